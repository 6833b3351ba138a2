//! Skip duplicates: chunks that return after a version without them, and are stored again because
//! only the newest version is asked.
//!
//! Measured during a backup in the layout `lifecycle`, by the fingerprints that the nodes of the
//! version before the base keep as samples. Chunks are sampled by their fingerprints alone. So a
//! new, sampled chunk is certainly in that version or certainly not. When too much is lost
//! ([`is_too_much`]), the next versions ask the version before the base as well, and chunks found
//! there are counted.

use std::collections::HashSet;

use larder_dedup::{SAMPLED_ONE_IN, is_sampled, sample};
use larder_format::Fingerprint;
use larder_format::manifest::Statistics;
use larder_reader::RecipeReader;
use larder_store::RepositoryError;

/// The permille of bytes outside of the base that may be skip duplicates before three versions
/// serve as bases.
const PERMILLE_MAX: u32 = 20;

/// Whether a version has lost so much that later ones search three versions.
pub(super) fn is_too_much(statistics: &Statistics) -> bool {
    statistics.skip_permille.is_some_and(|permille| permille > PERMILLE_MAX)
}

/// See the module header.
#[derive(Debug)]
pub(super) struct SkippedDuplicates {
    /// The data stream of the version before the base, until its samples are read.
    before: Option<RecipeReader>,
    /// Its samples; empty before the first new chunk that is sampled.
    samples: HashSet<u64>,
    is_measured: bool,
    /// Bytes of the chunks that were stored.
    stored: u64,
    /// Bytes that are in the version before the base, estimated from the sampled ones.
    lost: u64,
    /// Bytes that were found there, exactly.
    found: u64,
}

impl SkippedDuplicates {
    /// Measures against a version in which chunks are not searched.
    pub(super) fn measured(before: RecipeReader) -> Self {
        Self { before: Some(before), ..Self::counted() }
    }

    /// Counts chunks found in further bases.
    pub(super) fn counted() -> Self {
        Self { before: None, samples: HashSet::new(), is_measured: true, stored: 0, lost: 0, found: 0 }
    }

    /// A chunk was not found and is stored.
    pub(super) fn stored(&mut self, fingerprint: &Fingerprint, size: u32) -> Result<(), RepositoryError> {
        self.stored += u64::from(size);
        let sample = sample(fingerprint);
        if !is_sampled(sample) {
            return Ok(());
        }
        if let Some(mut before) = self.before.take() {
            match samples_of(&mut before) {
                Ok(samples) => self.samples = samples,
                Err(error) if error.is_damage() => {
                    tracing::warn!(%error, "the version before the base cannot be read; skip duplicates are not measured");
                    self.is_measured = false;
                }
                Err(error) => return Err(error),
            }
        }
        if self.samples.contains(&sample) {
            self.lost += u64::from(size) * SAMPLED_ONE_IN;
        }
        Ok(())
    }

    /// A chunk was found in another base than the newest alone.
    pub(super) fn found(&mut self, size: u32) {
        self.found += u64::from(size);
    }

    /// The share of the bytes that the base does not have.
    pub(super) fn permille(&self) -> Option<u32> {
        let all = u128::from(self.stored) + u128::from(self.found);
        let of_these = (u128::from(self.lost) + u128::from(self.found)).min(all) * 1000;
        self.is_measured.then(|| of_these.checked_div(all).map_or(0, |permille| permille as u32))
    }
}

fn samples_of(recipe: &mut RecipeReader) -> Result<HashSet<u64>, RepositoryError> {
    let mut samples = HashSet::new();
    for number in 0..recipe.recipe().nodes.len() {
        let node = recipe.node(number)?;
        samples.extend(node.segments.iter().flat_map(|segment| &segment.samples).filter(|sample| is_sampled(**sample)));
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_what_the_base_does_not_have() {
        let permille =
            |stored, lost, found| SkippedDuplicates { stored, lost, found, ..SkippedDuplicates::counted() }.permille();
        assert_eq!(permille(0, 0, 0), Some(0));
        assert_eq!(permille(1000, 20, 0), Some(20));
        assert_eq!(permille(980, 0, 20), Some(20));
        assert_eq!(permille(1000, 64_000, 0), Some(1000), "samples may say more than there is");
        assert_eq!(SkippedDuplicates { is_measured: false, ..SkippedDuplicates::counted() }.permille(), None);
        let of = |skip_permille| Statistics { skip_permille, ..Statistics::default() };
        assert_eq!([None, Some(20), Some(21)].map(|share| is_too_much(&of(share))), [false, false, true]);
    }
}

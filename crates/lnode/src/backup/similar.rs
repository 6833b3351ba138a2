//! The first version of a series: finds versions of other series that the input resembles.
//!
//! The input's head is read, cut and sampled before the backup begins. It is compared with the
//! sketches of the newest version of every series. When there are many series, the index names
//! those to compare (SlimStore section IV-A, step 1). If none is similar, twice as much is looked
//! at, until as much as sketches cover. A wrong guess costs misses, never correctness.
//!
//! * `head`: the input, of which the beginning is read. `sampler`: cuts and names it.

mod head;
mod sampler;

use larder_dedup::{SKETCH_HEAD, choose};
use larder_format::sketch::Sketch;
use larder_job::JobContext;
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::newest_versions::ListedSeries;
use larder_writer::Cutting;

use super::{Input, similar_series};
use head::Head;
use sampler::Sampler;

pub(super) use head::{Sampled, SampledImage};

/// Bytes of the input that are looked at first.
const SAMPLED_FIRST: u64 = 16 << 20;
/// Most bases used: further ones cost more look-ups than they find duplicates.
const BASES_MAX: usize = 3;

/// The newest versions of the series that the input resembles most, best first, and the input. Of a
/// stream at most `memory` bytes are looked at, and the first 16 MiB in any case: they are held.
pub(super) fn find_similar(
    context: &JobContext,
    input: Input,
    cutting: &Cutting,
    memory: usize,
) -> Result<(Vec<Version>, Sampled), RepositoryError> {
    let listed = context.executor.block_on(context.repository.list_series())?;
    if listed.is_empty() {
        return Ok((Vec::new(), Sampled::untouched(input)));
    }
    let (mut head, mut sampler) = (Head::new(input), Sampler::new(cutting));
    let most = if head.is_held() { SKETCH_HEAD.min(memory as u64) } else { SKETCH_HEAD };
    let mut limit = SAMPLED_FIRST;
    let mut compared = None;
    loop {
        let has_more = head.read(&mut sampler, limit, &context.cancel);
        let sketch = sampler.sketch();
        // Those that the last sketch was compared with, unless this one may name others.
        let (versions, is_of_any) = match compared.take() {
            Some((versions, true)) => (versions, true),
            _ => candidates(context, &sketch, listed.clone())?,
        };
        let sketches: Vec<_> = versions.iter().map(|version| &version.summary.sketch).collect();
        let chosen = choose(&sketch, &sketches, BASES_MAX);
        let is_hopeless = is_of_any && versions.is_empty();
        if !chosen.is_empty() || !has_more || limit >= most || is_hopeless {
            return Ok((chosen.into_iter().map(|number| versions[number].clone()).collect(), head.replayed()));
        }
        compared = Some((versions, is_of_any));
        limit = (limit * 2).min(most);
    }
}

/// The versions to compare with a sketch, and whether they are those of any sketch.
fn candidates(
    context: &JobContext,
    sketch: &Sketch,
    mut series: ListedSeries,
) -> Result<(Vec<Version>, bool), RepositoryError> {
    let is_of_any = !similar_series::narrow(context, sketch, &mut series)?;
    let mut versions = context.executor.block_on(context.repository.newest_of(series))?;
    // Metadata is not shared across domains (`MetaInDomain`): a key of one domain could not read a
    // version that is in two.
    let own = context.repository.keys().domain();
    versions.retain(|version| !version.summary.sketch.is_empty() && version.summary.domain == own);
    // Among equals the newest comes first.
    versions.sort_by_key(|version| std::cmp::Reverse(version.id()));
    Ok((versions, is_of_any))
}

//! The use that newest versions make of containers, without repetitions.
//!
//! The table in a manifest counts references. A version that names a chunk five times seems to use
//! five times its bytes, at most all that the container holds. So a version with many repetitions
//! looks denser than it is. Its backup cannot know better, because it does not read the segments
//! that it keeps. The recipe tells. It is read where that is worth it:
//!
//! * The user wants few unused bytes. Then the pass reads all recipes in any case.
//! * The table shows repetitions: its sums are less than the contents have. The recipe is small, by
//!   itself or beside what the backup stored. In the latter case, it is read once: before a pass
//!   has ingested the version.
//!
//! Memory is bounded: a version with more references than it holds keeps its table. Counting a
//! sample would make full containers look partly unused.

use std::collections::HashMap;

use larder_format::ids::ContainerId;
use larder_format::manifest::ContainerUsage;
use larder_format::recipe::Recipe;
use larder_format::{ChunkRef, ErrorKind};
use larder_job::JobContext;
use larder_reader::{References, is_missing};
use larder_store::RepositoryError;

/// Fewer repetitions than this share of the contents (percent) change no decision.
const REPEATED_PERCENT: u64 = 1;
/// About how many bytes a recipe has for a chunk.
const RECORD_BYTES: u64 = 34;
/// A recipe of at most this many bytes is read in any case.
const SMALL_RECIPE: u64 = 8 << 20;
/// A larger one is read if it has at most one part in this number of what its backup stored.
const STORED_ONE_IN: u64 = 2;
/// Of the memory for tables, one part in this number holds the chunks of a version.
const MEMORY_ONE_IN: usize = 4;

/// Whether a version hides repetitions in its table, and its recipe costs little beside its backup.
/// `containers` are its data containers, `stored` the bytes in those of its own backup.
pub(super) fn is_worth_reading(recipe: &Recipe, containers: &[ContainerUsage], stored: u64) -> bool {
    let used: u64 = containers.iter().map(|usage| usage.bytes_used).sum();
    let (all, repeated) = (recipe.bytes(), recipe.bytes().saturating_sub(used));
    let is_affordable = is_small(recipe) || recipe_bytes(recipe) <= stored / STORED_ONE_IN;
    is_affordable && repeated > 0 && repeated >= all / 100 * REPEATED_PERCENT
}

/// Whether a recipe is so small that it may be read in each pass.
pub(super) fn is_small(recipe: &Recipe) -> bool {
    recipe_bytes(recipe) <= SMALL_RECIPE
}

fn recipe_bytes(recipe: &Recipe) -> u64 {
    recipe.chunks().saturating_mul(RECORD_BYTES)
}

/// Lets the table of a version count each chunk once. A recipe that cannot be read, or exceeds the
/// memory, changes nothing.
pub(super) fn count(
    context: &JobContext,
    recipe: &Recipe,
    containers: &mut [ContainerUsage],
) -> Result<(), RepositoryError> {
    if recipe.chunks() > (context.memory / MEMORY_ONE_IN / size_of::<Chunk>()) as u64 {
        return Ok(());
    }
    let mut seen = Seen::new(containers);
    let walked: Result<(), RepositoryError> = References::new(context).visit(recipe, |chunk| {
        seen.push(chunk);
        Ok(())
    });
    match walked {
        Ok(()) => {
            seen.finish(containers);
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Damaged || is_missing(&error) => {
            tracing::warn!(%error, "a recipe cannot be read, so its repetitions count as uses");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// A chunk in one of the containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Chunk {
    container: u32,
    offset: u32,
    size: u32,
}

/// The chunks of a recipe.
#[derive(Debug)]
struct Seen {
    numbers: HashMap<ContainerId, u32>,
    chunks: Vec<Chunk>,
}

impl Seen {
    fn new(containers: &[ContainerUsage]) -> Self {
        let numbers = (0..).zip(containers).map(|(number, usage)| (usage.container, number)).collect();
        Self { numbers, chunks: Vec::new() }
    }

    fn push(&mut self, chunk: &ChunkRef) {
        // The table has every container of the recipe, unless it is damaged.
        if let Some(container) = self.numbers.get(&chunk.container) {
            self.chunks.push(Chunk { container: *container, offset: chunk.offset, size: chunk.size });
        }
    }

    /// Writes the counts into the table. They are never more than its own.
    fn finish(mut self, containers: &mut [ContainerUsage]) {
        self.chunks.sort_unstable();
        self.chunks.dedup();
        for of_container in self.chunks.chunk_by(|a, b| a.container == b.container) {
            let Some(usage) = containers.get_mut(of_container[0].container as usize) else { continue };
            let chunks = u32::try_from(of_container.len()).unwrap_or(u32::MAX);
            let bytes: u64 = of_container.iter().map(|chunk| u64::from(chunk.size)).sum();
            (usage.chunks_used, usage.bytes_used) = (usage.chunks_used.min(chunks), usage.bytes_used.min(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use larder_format::Fingerprint;
    use larder_format::ids::{ContainerKind, JobId};
    use proptest::prelude::*;

    use super::*;

    const CHUNKS: u32 = 1000;

    fn id(seq: u32) -> ContainerId {
        ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq }
    }

    /// Each container holds [`CHUNKS`] chunks, the n-th of 100 + n bytes.
    fn chunk(container: u32, number: u32) -> ChunkRef {
        let mut bits =
            (u64::from(container) << 32 | u64::from(number)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&(bits ^ (bits >> 27)).to_le_bytes());
        let offset = (0..number).map(|before| 100 + before).sum();
        ChunkRef { fingerprint: Fingerprint(bytes), container: id(container), offset, size: 100 + number }
    }

    /// The table as backups write it: references, at most what there is.
    fn table(references: &[(u32, u32)], containers: u32) -> Vec<ContainerUsage> {
        let held = (0..CHUNKS).map(|number| u64::from(100 + number)).sum();
        let row = |container: u32| {
            let of_container = references.iter().filter(|(of, _)| *of == container);
            let bytes: u64 = of_container.clone().map(|(_, number)| u64::from(100 + number)).sum();
            ContainerUsage {
                container: id(container),
                chunks_used: (of_container.count() as u32).min(CHUNKS),
                bytes_used: bytes.min(held),
                chunks_held: CHUNKS,
                bytes_held: held,
                object_bytes: held,
            }
        };
        (0..containers).map(row).filter(|usage| usage.chunks_used > 0).collect()
    }

    fn counted(references: &[(u32, u32)], table: &[ContainerUsage]) -> Vec<ContainerUsage> {
        let (mut seen, mut counted) = (Seen::new(table), table.to_vec());
        references.iter().for_each(|(container, number)| seen.push(&chunk(*container, *number)));
        seen.finish(&mut counted);
        counted
    }

    proptest! {
        /// The table is that of a set of the chunks.
        #[test]
        fn each_chunk_counts_once(references in proptest::collection::vec((0u32..6, 0u32..200), 1..2000)) {
            let table = table(&references, 6);
            let distinct: HashSet<(u32, u32)> = references.iter().copied().collect();
            for usage in counted(&references, &table) {
                let mine = || distinct.iter().filter(|(container, _)| id(*container) == usage.container);
                prop_assert_eq!(usage.chunks_used as usize, mine().count());
                prop_assert_eq!(usage.bytes_used, mine().map(|(_, number)| u64::from(100 + number)).sum::<u64>());
            }
        }
    }
}

//! The use that newest versions make of containers, without repetitions.
//!
//! The table in a manifest counts references. A version that names a chunk five times seems to use
//! five times its bytes, at most all that the container holds. So a version with many repetitions
//! looks denser than it is. Its backup cannot know better, because it does not read the segments
//! that it keeps. The recipe tells. It is read where that is worth it:
//!
//! * The user wants few unused bytes. Then the pass reads all recipes in any case.
//! * The table shows repetitions: its sums are less than the contents have. The recipe is small, by
//!   itself or beside what the backup stored. And no pass has ingested the version yet, so each is
//!   read once.
//!
//! Memory is bounded. Of a version with more chunks than it holds, some are counted for all:
//! fingerprints are uniform, so each container keeps its share of them.

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
    let chunks: u64 = recipe.nodes.iter().map(|node| node.chunks).sum();
    let is_small = chunks.saturating_mul(RECORD_BYTES) <= SMALL_RECIPE.max(stored / STORED_ONE_IN);
    is_small && repeated > 0 && repeated >= all / 100 * REPEATED_PERCENT
}

/// Lets the table of a version count each chunk once. A recipe that cannot be read changes nothing.
pub(super) fn count(
    context: &JobContext,
    recipe: &Recipe,
    containers: &mut [ContainerUsage],
) -> Result<(), RepositoryError> {
    let mut seen = Seen::new(containers, context.memory / MEMORY_ONE_IN / size_of::<Chunk>());
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
    /// Bits of the fingerprint, by which some are counted for all.
    sample: u32,
}

/// Chunks, each once: all of them, or one in a power of two.
#[derive(Debug)]
struct Seen {
    numbers: HashMap<ContainerId, u32>,
    chunks: Vec<Chunk>,
    most: usize,
    zero_bits: u32,
}

impl Seen {
    /// Holds at most `most` chunks, and at least 64.
    fn new(containers: &[ContainerUsage], most: usize) -> Self {
        let numbers = (0..).zip(containers).map(|(number, usage)| (usage.container, number)).collect();
        Self { numbers, chunks: Vec::new(), most: most.max(64), zero_bits: 0 }
    }

    fn push(&mut self, chunk: &ChunkRef) {
        let [a, b, c, d, ..] = chunk.fingerprint.0;
        let sample = u32::from_le_bytes([a, b, c, d]);
        // The table has every container of the recipe, unless it is damaged.
        let Some(container) = self.numbers.get(&chunk.container) else { return };
        if sample.trailing_zeros() < self.zero_bits {
            return;
        }
        self.chunks.push(Chunk { container: *container, offset: chunk.offset, size: chunk.size, sample });
        if self.chunks.len() >= self.most {
            self.compact();
            // Half of the room must be free, or every few chunks would be sorted again. Chunks with
            // one fingerprint in many places could leave too many at 32 bits.
            while self.chunks.len() > self.most / 2 && self.zero_bits < u32::BITS {
                self.zero_bits += 1;
                let zero_bits = self.zero_bits;
                self.chunks.retain(|chunk| chunk.sample.trailing_zeros() >= zero_bits);
            }
            self.chunks.truncate(self.most / 2);
        }
    }

    fn compact(&mut self) {
        self.chunks.sort_unstable();
        self.chunks.dedup();
    }

    /// Writes the counts into the table. They are never more than its own, and never nothing: a
    /// container of which no chunk was counted keeps its use.
    fn finish(mut self, containers: &mut [ContainerUsage]) {
        self.compact();
        for of_container in self.chunks.chunk_by(|a, b| a.container == b.container) {
            let Some(usage) = containers.get_mut(of_container[0].container as usize) else { continue };
            let whole = |part: u64| u128::from(part) << self.zero_bits;
            let chunks = whole(of_container.len() as u64).min(u128::from(usage.chunks_used));
            let bytes: u64 = of_container.iter().map(|chunk| u64::from(chunk.size)).sum();
            let bytes = whole(bytes).min(u128::from(usage.bytes_used));
            (usage.chunks_used, usage.bytes_used) = (chunks as u32, bytes as u64);
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

    fn counted(references: &[(u32, u32)], table: &[ContainerUsage], most: usize) -> Vec<ContainerUsage> {
        let (mut seen, mut counted) = (Seen::new(table, most), table.to_vec());
        references.iter().for_each(|(container, number)| seen.push(&chunk(*container, *number)));
        assert!(seen.chunks.len() <= seen.most);
        seen.finish(&mut counted);
        counted
    }

    proptest! {
        /// With room, the table is that of a set of the chunks. Without, it is never more than the
        /// references, and no container is lost.
        #[test]
        fn each_chunk_counts_once(
            references in proptest::collection::vec((0u32..6, 0u32..200), 1..2000),
            most in 64usize..1000,
        ) {
            let table = table(&references, 6);
            let distinct: HashSet<(u32, u32)> = references.iter().copied().collect();
            for usage in counted(&references, &table, 4000) {
                let mine = || distinct.iter().filter(|(container, _)| id(*container) == usage.container);
                prop_assert_eq!(usage.chunks_used as usize, mine().count());
                prop_assert_eq!(usage.bytes_used, mine().map(|(_, number)| u64::from(100 + number)).sum::<u64>());
            }
            for (counted, stated) in counted(&references, &table, most).iter().zip(&table) {
                prop_assert!(counted.bytes_used <= stated.bytes_used && counted.chunks_used <= stated.chunks_used);
                prop_assert!(counted.bytes_used > 0 && counted.chunks_used > 0);
            }
        }
    }

    #[test]
    fn samples_stand_for_all_when_memory_is_short() {
        // 10 containers of 1,000 chunks. The first half of each is used twice.
        let once = (0..10u32).flat_map(|container| (0..CHUNKS / 2).map(move |number| (container, number)));
        let references: Vec<_> = once.clone().chain(once).collect();
        let table = table(&references, 10);
        let sum = |table: &[ContainerUsage]| table.iter().map(|usage| usage.bytes_used).sum::<u64>() as f64;
        let exact = sum(&counted(&references, &table, 20_000));
        let sampled = counted(&references, &table, 1500);
        assert!((0.9..1.1).contains(&(sum(&sampled) / exact)), "{} of {exact}", sum(&sampled));
        assert!(sum(&table) / exact > 1.8, "references say too much");
    }

    #[test]
    fn many_places_of_one_fingerprint_take_no_more_memory() {
        let same = ChunkRef { fingerprint: Fingerprint([0; 32]), ..chunk(0, 1) };
        let table = table(&[(0, 1)], 1);
        let mut seen = Seen::new(&table, 64);
        (0..10_000).for_each(|offset| seen.push(&ChunkRef { offset, ..same }));
        assert!(seen.chunks.len() <= 64);
    }
}

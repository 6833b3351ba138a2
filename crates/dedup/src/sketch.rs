//! Similar streams: sketches made while a stream is backed up, and the choice of those that a new
//! stream resembles.
//!
//! [`Sketcher`] samples the head of a stream by the values of its fingerprints. [`choose`] compares
//! such a sketch with those of the newest versions of other series (SlimStore section IV-A, step
//! 1). A wrong choice costs misses, never correctness.

use std::collections::BTreeSet;

use larder_format::Fingerprint;
use larder_format::sketch::{SKETCH_SAMPLES_MAX, Sketch, rank};

use crate::sampled_index::sample;
use crate::segmenter::is_sampled;

/// Bytes of a stream whose chunks are sampled. Chunks behind them are not looked at.
pub const SKETCH_HEAD: u64 = 64 << 20;

/// Minimum number of chunks for a sketch: with fewer, there is nothing to gain.
const CHUNKS_MIN: u64 = 2;

/// One of this number of samples must be shared for two streams to count as similar.
const SHARED_ONE_IN: usize = 16;
/// With at least this number of samples to compare, a single shared one (a page of zeros) proves
/// nothing.
const COINCIDENCE_MIN: usize = 8;
/// Candidates are near equals if the lesser shares so little less than the best. The rest of the
/// stream decides as much as its head, and the newest resembles it most.
const NEAR_ONE_IN: usize = 8;

/// Makes the sketch of a stream from its chunks in order.
#[derive(Debug, Clone)]
pub struct Sketcher {
    /// Samples as ranks.
    ranks: BTreeSet<u64>,
    bytes: u64,
    chunks: u64,
    /// Everything so far is the same stretch of the base, at the same offset.
    is_base: bool,
}

impl Default for Sketcher {
    fn default() -> Self {
        Self { ranks: BTreeSet::new(), bytes: 0, chunks: 0, is_base: true }
    }
}

impl Sketcher {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next chunk of the stream; `base_offset` is where the base's stream has it, if it was
    /// taken over from there.
    pub fn chunk(&mut self, fingerprint: &Fingerprint, size: u32, base_offset: Option<u64>) {
        self.note(std::iter::once(sample(fingerprint)), u64::from(size), 1, base_offset);
    }

    /// The next chunks of the stream, taken over unseen from `base_offset` of the base's; of their
    /// fingerprints only these samples are known.
    pub fn unseen(&mut self, samples: &[u64], bytes: u64, chunks: u32, base_offset: u64) {
        self.note(samples.iter().copied(), bytes, u64::from(chunks), Some(base_offset));
    }

    fn note(&mut self, samples: impl Iterator<Item = u64>, bytes: u64, chunks: u64, base_offset: Option<u64>) {
        if self.bytes < SKETCH_HEAD {
            self.is_base &= base_offset == Some(self.bytes);
            self.ranks.extend(samples.map(rank));
            while self.ranks.len() > SKETCH_SAMPLES_MAX {
                self.ranks.pop_last();
            }
        }
        self.bytes += bytes;
        self.chunks += chunks;
    }

    /// The sketch. When the whole head is the base's, so is the sketch: it knows more of the unseen
    /// data. `base` is its sketch and the length of its stream in bytes.
    pub fn finish(self, base: Option<(&Sketch, u64)>) -> Sketch {
        if self.chunks < CHUNKS_MIN {
            return Sketch::default();
        }
        match base {
            Some((sketch, length))
                if self.is_base && !sketch.is_empty() && (self.bytes >= SKETCH_HEAD || self.bytes == length) =>
            {
                sketch.clone()
            }
            _ => Sketch::new(self.ranks.into_iter().map(u64::reverse_bits).collect()),
        }
    }
}

/// Chooses at most `most` of the candidates that together share most with `stream`, the best first;
/// of near equals the first given. Who adds nothing to those before it is not chosen.
pub fn choose(stream: &Sketch, candidates: &[&Sketch], most: usize) -> Vec<usize> {
    let mut wanted: BTreeSet<u64> = stream.samples().iter().copied().collect();
    let mut chosen = Vec::new();
    while chosen.len() < most {
        let basis = Basis::of(&wanted);
        let shared: Vec<Option<usize>> = candidates
            .iter()
            .map(|candidate| {
                let shared = || candidate.samples().iter().filter(|sample| wanted.contains(sample));
                (shared().count() >= needed(stream, candidate)).then(|| basis.count(shared()))
            })
            .collect();
        let Some(best) = shared.iter().flatten().max() else { break };
        let is_near = |shared: &Option<usize>| shared.is_some_and(|shared| shared >= best - best / NEAR_ONE_IN);
        let Some(number) = shared.iter().position(is_near) else { break };
        wanted.retain(|sample| !candidates[number].samples().contains(sample));
        chosen.push(number);
    }
    chosen
}

/// The samples by which candidates are compared with each other. Of data that was taken over
/// unseen, a sketch knows those of segments alone. With all samples, an older version that was read
/// as a whole would look more similar than newer ones.
enum Basis {
    OfSegments,
    All,
}

impl Basis {
    fn of(wanted: &BTreeSet<u64>) -> Self {
        let of_segments = wanted.iter().filter(|sample| is_sampled(**sample)).count();
        if of_segments >= COINCIDENCE_MIN { Self::OfSegments } else { Self::All }
    }

    fn count<'a>(&self, shared: impl Iterator<Item = &'a u64>) -> usize {
        match self {
            Self::OfSegments => shared.filter(|sample| is_sampled(**sample)).count(),
            Self::All => shared.count(),
        }
    }
}

/// Samples that must be shared. Only those count that both sketches had room for.
fn needed(stream: &Sketch, candidate: &Sketch) -> usize {
    let within = |sketch: &Sketch, reach| sketch.samples().partition_point(|sample| rank(*sample) <= reach);
    let comparable = within(stream, candidate.reach()).min(within(candidate, stream.reach()));
    let least = if comparable < COINCIDENCE_MIN { 1 } else { 2 };
    comparable.div_ceil(SHARED_ONE_IN).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: u32 = 4096;

    fn fingerprint(n: u64) -> Fingerprint {
        let mut bytes = [0; 32];
        let mut x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bytes[..8].copy_from_slice(&(x ^ (x >> 27)).to_le_bytes());
        Fingerprint(bytes)
    }

    fn sketch(chunks: impl IntoIterator<Item = u64>) -> Sketch {
        let mut sketcher = Sketcher::new();
        chunks.into_iter().for_each(|n| sketcher.chunk(&fingerprint(n), CHUNK, None));
        sketcher.finish(None)
    }

    #[test]
    fn small_streams_are_sampled_whole_and_large_ones_by_value() {
        assert_eq!(sketch(0..1), Sketch::default());
        assert_eq!(sketch(0..100).samples().len(), 100);
        let large = sketch(0..16_384);
        assert_eq!(large.samples().len(), SKETCH_SAMPLES_MAX);
        // Neither the places of chunks nor the data behind the head makes a difference.
        assert_eq!(sketch((0..16_384).rev()), large);
        assert_eq!(sketch(0..100_000), large);
    }

    #[test]
    fn an_unseen_head_keeps_the_sketch_of_the_base() {
        let base = sketch(0..1000);
        let length = 1000 * u64::from(CHUNK);
        let unseen = |offsets: [u64; 2], half: u64| {
            let mut sketcher = Sketcher::new();
            offsets.iter().for_each(|offset| sketcher.unseen(&[64, 128], half, 500, *offset));
            sketcher.finish(Some((&base, length)))
        };
        assert_eq!(unseen([0, length / 2], length / 2), base);
        // Moved, or not all of it: the samples of the segments.
        let told = Sketch::new(vec![64, 128]);
        assert_eq!(unseen([length / 2, 0], length / 2), told);
        assert_eq!(unseen([0, length / 4], length / 4), told);
        // With a longer base the head alone decides.
        assert_eq!(unseen([0, SKETCH_HEAD], SKETCH_HEAD), base);
    }

    #[test]
    fn the_best_are_chosen_and_none_twice() {
        let stream = sketch(0..4000);
        let (most, same, rest, other) =
            (sketch(0..3000), sketch(0..3000), sketch((3000..4000).chain(90_000..93_000)), sketch(50_000..54_000));
        assert_eq!(choose(&stream, &[&other, &rest, &most, &same], 3), [2, 1]);
        assert_eq!(choose(&stream, &[&other, &rest, &most, &same], 1), [2]);
        assert_eq!(choose(&stream, &[&other, &Sketch::default()], 3), [0; 0]);
        assert_eq!(choose(&Sketch::default(), &[&most], 3), [0; 0]);
        // A page that all have makes none similar.
        assert_eq!(choose(&sketch((0..100).chain([7777])), &[&sketch((500..600).chain([7777]))], 3), [0; 0]);
    }

    /// Versions with pages changed in place. The first was read as a whole, and of the others only
    /// what changed. The newest version is chosen for each next one, though the sketch of the first
    /// has most samples.
    #[test]
    fn the_newest_of_versions_is_chosen_though_the_first_was_seen_whole() {
        let version = |newest: u64| (0..10_000).map(move |n| (n, (1..=newest).rev().find(|v| n % 50 == v % 50)));
        let seen = |newest| sketch(version(newest).map(|(n, at)| n + at.unwrap_or(0) * 100_000));
        for newest in 2..20u64 {
            let mut older: Vec<Sketch> = (1..newest)
                .rev()
                .map(|before| {
                    let mut sketcher = Sketcher::new();
                    for (n, at) in version(before) {
                        let chunk = fingerprint(n + at.unwrap_or(0) * 100_000);
                        let sampled: Vec<u64> = [sample(&chunk)].into_iter().filter(|s| is_sampled(*s)).collect();
                        match at == Some(before) {
                            true => sketcher.chunk(&chunk, CHUNK, None),
                            false => sketcher.unseen(&sampled, u64::from(CHUNK), 1, 0),
                        }
                    }
                    sketcher.finish(None)
                })
                .collect();
            older.push(seen(0));
            // The head alone is compared.
            let head = sketch(version(newest).take(4000).map(|(n, at)| n + at.unwrap_or(0) * 100_000));
            let chosen = choose(&head, &older.iter().collect::<Vec<_>>(), 1);
            assert_eq!(chosen, [0], "version {newest}");
        }
    }

    #[test]
    fn a_short_head_finds_a_long_stream_and_the_other_way_round() {
        let (head, whole) = (sketch(0..4096), sketch(0..16_384));
        assert_eq!(choose(&head, &[&whole], 3), [0]);
        assert_eq!(choose(&whole, &[&head], 3), [0]);
        // Also when only every tenth chunk is still there.
        assert_eq!(choose(&sketch((0..4096).map(|n| if n % 8 == 0 { n } else { n + 100_000 })), &[&whole], 3), [0]);
        // A sketch made of the segments' samples alone.
        let sparse = Sketch::new(whole.samples().iter().copied().filter(|s| s.is_multiple_of(64)).take(20).collect());
        assert_eq!(choose(&head, &[&sparse], 3), [0]);
    }

    proptest! {
        #[test]
        fn at_most_so_many_are_chosen_and_each_shares_something(
            stream in prop::collection::vec(0u64..300, 0..200),
            others in prop::collection::vec(prop::collection::vec(0u64..600, 0..200), 0..6),
            most in 0..4_usize,
        ) {
            let stream = sketch(stream);
            let others: Vec<_> = others.into_iter().map(sketch).collect();
            let chosen = choose(&stream, &others.iter().collect::<Vec<_>>(), most);
            prop_assert!(chosen.len() <= most);
            for number in &chosen {
                prop_assert!(others[*number].samples().iter().any(|sample| stream.samples().contains(sample)));
                prop_assert_eq!(chosen.iter().filter(|other| *other == number).count(), 1);
            }
        }
    }
}

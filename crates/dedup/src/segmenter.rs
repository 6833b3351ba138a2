//! Where segments and recipe nodes end: by content, so that a change in one place leaves all others
//! as they were.
//!
//! A segment ends behind a chunk whose fingerprint says so, once it is long enough. So versions
//! that share a run of chunks agree on its segments, even if the run has moved far in the stream.
//! The rules are not part of the format: a reader takes segments as they come; a writer that cuts
//! otherwise finds fewer of them shared.

use larder_format::Fingerprint;
use larder_format::ids::ContentDigest;
use larder_format::recipe::NODE_SEGMENTS_MAX;
use larder_format::segment::ChunkRecord;

use crate::sampled_index::sample;

/// A segment is not ended by content below this (bytes of data).
const SEGMENT_MIN: u64 = 1 << 20;
/// Beyond [`SEGMENT_MIN`] one chunk in this many ends it: with chunks of 4 KiB, 2 MiB a segment on
/// average.
const SEGMENT_CUT_ONE_IN: u64 = 256;
/// A segment ends here with any content (bytes of data).
const SEGMENT_MAX: u64 = 8 << 20;
/// Or here (records), for streams of tiny files.
const SEGMENT_RECORDS_MAX: usize = 8192;

/// A node is not ended by content below this (segments).
const NODE_MIN: usize = 32;
/// Beyond [`NODE_MIN`] one segment in this many ends it: about 300 MiB of data a node.
const NODE_CUT_ONE_IN: u64 = 128;

/// One fingerprint in 2^this is kept as a sample with its segment (SlimStore section IV-A).
const SAMPLE_ZERO_BITS: u32 = 6;
/// Samples kept of one segment at most.
const SAMPLES_MAX: usize = 64;

/// Bits that decide cuts are apart from those that decide samples. Otherwise, every segment would
/// end with a sample.
fn cut_bits(fingerprint: &Fingerprint) -> u64 {
    sample(fingerprint) >> 40
}

/// Collects records into segments.
#[derive(Debug, Default)]
pub struct Segmenter {
    records: Vec<ChunkRecord>,
    bytes: u64,
}

impl Segmenter {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the next record begins a segment.
    pub fn is_at_start(&self) -> bool {
        self.records.is_empty()
    }

    /// Appends a record; gives the whole segment when this record ends it.
    pub fn push(&mut self, record: ChunkRecord) -> Option<Vec<ChunkRecord>> {
        self.records.push(record);
        self.bytes += u64::from(record.chunk.size);
        let by_content =
            self.bytes >= SEGMENT_MIN && cut_bits(&record.chunk.fingerprint).is_multiple_of(SEGMENT_CUT_ONE_IN);
        let full = self.bytes >= SEGMENT_MAX || self.records.len() >= SEGMENT_RECORDS_MAX;
        if by_content || full { self.finish() } else { None }
    }

    /// Ends the last segment, if it holds anything.
    pub fn finish(&mut self) -> Option<Vec<ChunkRecord>> {
        self.bytes = 0;
        let records = std::mem::take(&mut self.records);
        (!records.is_empty()).then_some(records)
    }
}

/// Decides where recipe nodes end.
#[derive(Debug, Default)]
pub struct NodeCutter {
    segments: usize,
}

impl NodeCutter {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the node ends behind the segment with this content. The content and not the
    /// fingerprint decides, so every generation of a version has the same nodes.
    pub fn ends_behind(&mut self, segment: &ContentDigest) -> bool {
        self.segments += 1;
        let cut_bits = cut_bits(&Fingerprint(segment.0));
        let by_content = self.segments >= NODE_MIN && cut_bits.is_multiple_of(NODE_CUT_ONE_IN);
        let ends = by_content || self.segments >= NODE_SEGMENTS_MAX;
        if ends {
            self.segments = 0;
        }
        ends
    }
}

/// Of how many chunks one is sampled.
pub const SAMPLED_ONE_IN: u64 = 1 << SAMPLE_ZERO_BITS;

/// Whether a chunk with this sample is among the sampled ones of its segment, at any place.
pub fn is_sampled(sample: u64) -> bool {
    sample.trailing_zeros() >= SAMPLE_ZERO_BITS
}

/// The fingerprints by which a segment can be found again: the sampled ones, and at least the least
/// of all.
pub fn samples_of(records: &[ChunkRecord]) -> Vec<u64> {
    let all = || records.iter().map(|record| sample(&record.chunk.fingerprint));
    let mut samples: Vec<_> = all().filter(|sample| is_sampled(*sample)).take(SAMPLES_MAX).collect();
    if samples.is_empty() {
        samples.extend(all().min());
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ChunkRef;
    use larder_format::ids::{ContainerId, ContainerKind, JobId};

    fn record(n: u64) -> ChunkRecord {
        let mut bytes = [0; 32];
        let mut x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bytes[..8].copy_from_slice(&(x ^ (x >> 27)).to_le_bytes());
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq: 0 };
        let chunk = ChunkRef { fingerprint: Fingerprint(bytes), container, offset: 0, size: 4096 };
        ChunkRecord { chunk, born: container.job }
    }

    fn segments(chunks: impl Iterator<Item = u64>) -> Vec<Vec<ChunkRecord>> {
        let mut segmenter = Segmenter::new();
        let mut segments: Vec<_> = chunks.filter_map(|n| segmenter.push(record(n))).collect();
        segments.extend(segmenter.finish());
        segments
    }

    #[test]
    fn an_insertion_changes_few_segments_and_the_mean_is_two_mebibytes() {
        let before = segments(0..100_000);
        let mean = 100_000 * 4096 / before.len();
        assert!(((3 << 19)..(5 << 19)).contains(&mean), "mean {mean}");
        let after = segments((0..30_000).chain([1 << 40]).chain(30_000..100_000));
        let new = after.iter().filter(|segment| !before.contains(segment)).count();
        assert!(new <= 6, "{new} segments changed");
    }

    #[test]
    fn every_segment_has_a_sample_and_samples_are_of_its_chunks() {
        for segment in segments(0..20_000) {
            let samples = samples_of(&segment);
            assert!(!samples.is_empty() && samples.len() <= 64);
            assert!(samples.iter().all(|s| segment.iter().any(|r| sample(&r.chunk.fingerprint) == *s)));
        }
        assert_eq!(samples_of(&[record(1)]).len(), 1);
    }

    #[test]
    fn nodes_end_by_content() {
        let mut cutter = NodeCutter::new();
        let mut lengths = Vec::new();
        let mut length = 0;
        for n in 0..100_000 {
            length += 1;
            if cutter.ends_behind(&ContentDigest(record(n).chunk.fingerprint.0)) {
                lengths.push(length);
                length = 0;
            }
        }
        let mean = lengths.iter().sum::<usize>() / lengths.len();
        assert!((100..220).contains(&mean), "mean {mean}");
    }
}

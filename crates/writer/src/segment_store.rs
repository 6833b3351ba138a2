//! Stores segments: whole, or as a difference to the segment of the base that they follow.
//!
//! The levels of differences are those of a tree of merged runs. A new difference is on top of the
//! base's chunks if it is at most half as large as the topmost one. Otherwise it replaces that one,
//! and has the changes of both. So with scattered changes, a version writes some 1,100 bytes for a
//! segment of 17,400 (`docs/decisions/0026-differences-of-segments.md`).

use larder_dedup::samples_of;
use larder_format::ChunkRef;
use larder_format::difference;
use larder_format::ids::ContainerId;
use larder_format::recipe::{BASES_MAX, CHAIN_BYTES_MAX, SegmentRef, decode_chain};
use larder_format::segment::Segment;
use larder_store::RepositoryError;

use crate::node_writer::MetaSink;

/// A difference to a whole segment has at most this share of its bytes (percent).
pub const DIFFERENCE_PERCENT: usize = 30;
/// A difference to a difference has at most this share of its bytes (percent).
const OF_DIFFERENCE_PERCENT: usize = 50;
/// Smaller segments are stored whole. Containers grow in steps of 8 KiB, so differences would save
/// nothing, and each costs a read.
const WHOLE_MIN: usize = 4 << 10;
/// Larger segments are stored whole, too: readers refuse long chains ([`CHAIN_BYTES_MAX`]).
const WHOLE_MAX: usize = 512 << 10;
/// A changed record takes a little more than this number of bytes.
pub const RECORD_BYTES: usize = 33;

/// The chunks of a stored segment, as its row in the node has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSegment {
    /// Its own chunk.
    pub chunk: ChunkRef,
    /// The chunks that it is a difference to.
    pub bases: Vec<ChunkRef>,
    /// Whether these are the chunks of the base, which is the same segment.
    pub is_shared: bool,
}

/// The bytes of a difference, and the chunks that it is to.
type Difference = (Vec<u8>, Vec<ChunkRef>);

/// A segment of the base as it was read.
struct Base {
    /// Its chunks.
    chain: Vec<ChunkRef>,
    /// The segment up to each of them.
    segments: Vec<Segment>,
}

impl MetaSink {
    /// Stores a segment, of which `whole` are the bytes, unless it equals `base`. It becomes a
    /// difference to `base` if that is small. Then it uses none of the base's chunks in containers
    /// that it `leaves`.
    pub fn store_segment(
        &mut self,
        segment: &Segment,
        whole: &[u8],
        base: Option<&SegmentRef>,
        leaves: impl Fn(&ContainerId) -> bool,
    ) -> Result<StoredSegment, RepositoryError> {
        let fingerprint = self.fingerprint(whole);
        if let Some(row) = base {
            if row.bases.is_empty() && row.chunk.fingerprint == fingerprint && !leaves(&row.chunk.container) {
                if self.may_share(&row.chunk, whole)? {
                    return Ok(StoredSegment { chunk: row.chunk, bases: Vec::new(), is_shared: true });
                }
            } else if is_similar(row, segment, whole.len())
                && let Some(base) = self.read_base(row, leaves)?
            {
                if let Some(level) = base.segments.iter().position(|known| known == segment) {
                    let (chunk, bases) = (base.chain[level], base.chain[..level].to_vec());
                    return Ok(StoredSegment { chunk, bases, is_shared: level == row.bases.len() });
                }
                if let Some((bytes, bases)) = base.difference(segment, whole.len())? {
                    let chunk = self.push_shared(self.fingerprint(&bytes), &bytes)?;
                    return Ok(StoredSegment { chunk, bases, is_shared: false });
                }
            }
        }
        Ok(StoredSegment { chunk: self.push_shared(fingerprint, whole)?, bases: Vec::new(), is_shared: false })
    }

    /// Reads a segment, without the chunks from the first one on that is in a container to leave.
    /// `None`: nothing of it can be used.
    fn read_base(
        &self,
        base: &SegmentRef,
        leaves: impl Fn(&ContainerId) -> bool,
    ) -> Result<Option<Base>, RepositoryError> {
        let Some(read) = self.base_reader() else { return Ok(None) };
        let chain: Vec<ChunkRef> = base.chain().take_while(|chunk| !leaves(&chunk.container)).copied().collect();
        let mut bytes = Vec::with_capacity(chain.len());
        for chunk in &chain {
            match read(chunk) {
                Ok(read) if self.may_share(chunk, &read)? => bytes.push(read),
                // `check` reports it. This segment is stored whole.
                Ok(_) => return Ok(None),
                Err(error) if error.is_damage() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let Ok(segments) = decode_chain(chain.iter().zip(bytes)) else { return Ok(None) };
        Ok((!chain.is_empty()).then_some(Base { chain, segments }))
    }
}

/// Whether a segment, of which this many bytes would be stored, may have records in common with a
/// segment of the base, so that it pays to read that one. Only segments within one large file
/// become differences: they have proofs. If a chunk below is lost, that costs a stretch of a file,
/// and not thousands of small files or their names.
fn is_similar(row: &SegmentRef, segment: &Segment, whole_bytes: usize) -> bool {
    let pays = (WHOLE_MIN..=WHOLE_MAX).contains(&whole_bytes) || !row.bases.is_empty();
    pays && row.proof.is_some()
        && (row.samples.is_empty() || samples_of(&segment.records).iter().any(|sample| row.samples.contains(sample)))
}

impl Base {
    /// The segment as a difference to as many of the chunks as pay, and these chunks.
    fn difference(&self, segment: &Segment, whole_bytes: usize) -> Result<Option<Difference>, RepositoryError> {
        if !(WHOLE_MIN..=WHOLE_MAX).contains(&whole_bytes) {
            return Ok(None);
        }
        let of_whole = whole_bytes * DIFFERENCE_PERCENT / 100;
        for used in (1..=self.chain.len().min(BASES_MAX)).rev() {
            let (top, base) = (&self.chain[used - 1], &self.segments[used - 1]);
            let of_top = if used == 1 { of_whole } else { top.size as usize * OF_DIFFERENCE_PERCENT / 100 };
            let most = of_whole.min(of_top);
            let below: u64 = self.chain[..used].iter().map(|chunk| u64::from(chunk.size)).sum();
            let bytes = difference::encode(&top.fingerprint, base, segment, most / RECORD_BYTES)?;
            let fits = |bytes: &Vec<u8>| bytes.len() <= most && below + bytes.len() as u64 <= CHAIN_BYTES_MAX;
            if let Some(bytes) = bytes.filter(fits) {
                return Ok(Some((bytes, self.chain[..used].to_vec())));
            }
        }
        Ok(None)
    }
}

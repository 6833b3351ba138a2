//! Cutting and naming bytes: which cutter a stream gets, and runs of chunks with their
//! fingerprints.

use std::ops::Range;
use std::sync::Arc;

use larder_chunking::{
    Algorithm, Chunker, ChunkerParams, Fingerprinter, RunMac, RunMacKey, StreamEnd, chunker, page_size, pages,
};
use larder_format::Fingerprint;
use larder_format::compress::ContentHint;
use larder_format::config::Config;
use larder_format::keys::Keys;
use larder_format::segment::ChunkRecord;

/// Bytes of a stream to look at before its cutter is chosen.
pub const HEAD_BYTES: usize = pages::HEAD_BYTES;

/// Streams shorter than this never count as pages: the gain would be too small.
const PAGED_MIN: u64 = 64 << 10;

/// How a stream is cut. The numbers are those of `Proof::cutter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cutter {
    /// As the repository's configuration says.
    Content = 0,
    /// At pages.
    Pages = 1,
}

impl Cutter {
    /// The content of its chunks.
    pub fn content_hint(self) -> ContentHint {
        match self {
            Self::Content => ContentHint::Any,
            Self::Pages => ContentHint::Pages,
        }
    }
}

/// Cutters by kind of stream, the fingerprint key, and the key of proofs.
pub struct Cutting {
    content: Box<dyn Chunker>,
    pages: Box<dyn Chunker>,
    page_cuts: bool,
    /// Names chunks, with the key of the repository.
    pub fingerprinter: Arc<Fingerprinter>,
    /// The MAC of nothing yet; `None` where computing MACs is slower than naming chunks.
    pub run_mac: Option<RunMac>,
}

impl std::fmt::Debug for Cutting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cutting").field("content", &self.content.params()).finish_non_exhaustive()
    }
}

impl Cutting {
    /// `None` for a key that may not back up, and when the configuration holds sizes that no cutter
    /// takes, which its decoder refuses.
    pub fn new(config: &Config, keys: &Keys) -> Option<Arc<Self>> {
        let (cuts, run_mac) = (keys.cuts()?, keys.run_mac()?);
        let pages = ChunkerParams::with_average(Algorithm::Fixed, pages::PAGE_CUT);
        Some(Arc::new(Self {
            content: chunker(config.chunker, &cuts.chunking.0).ok()?,
            pages: chunker(pages, &cuts.chunking.0).ok()?,
            page_cuts: config.page_cuts,
            fingerprinter: Arc::new(Fingerprinter::new(keys.fingerprint())),
            run_mac: RunMac::is_fast().then(|| RunMac::new(&RunMacKey(*run_mac))),
        }))
    }

    /// The cutter for a stream that begins with `head` and is `total` bytes long, if that is known.
    pub fn choose(&self, head: &[u8], total: Option<u64>) -> Cutter {
        let may_be_paged = self.page_cuts && total.is_none_or(|total| total >= PAGED_MIN);
        if may_be_paged && page_size(head, total).is_some() { Cutter::Pages } else { Cutter::Content }
    }

    /// The chunker that belongs to a cutter.
    pub fn chunker(&self, cutter: Cutter) -> &dyn Chunker {
        match cutter {
            Cutter::Content => &*self.content,
            Cutter::Pages => &*self.pages,
        }
    }

    /// Bytes of the longest chunk of any cutter.
    pub fn chunk_max(&self) -> usize {
        self.content.params().max.max(self.pages.params().max) as usize
    }
}

/// Consecutive chunks: their bytes, lengths and fingerprints.
#[derive(Debug, Default)]
pub struct Chunks {
    /// The bytes of all chunks, back to back.
    pub bytes: Vec<u8>,
    /// The length of each chunk, in bytes.
    pub lengths: Vec<u32>,
    /// The fingerprint of each chunk. Empty until [`Self::fingerprint`] was called.
    pub fingerprints: Vec<Fingerprint>,
    /// Runs of them that are proved equal to the base's, in order.
    pub known: Vec<KnownRun>,
}

/// A run of chunks whose records need not be looked for.
#[derive(Debug, Clone)]
pub struct KnownRun {
    /// Numbers of the chunks.
    pub chunks: Range<usize>,
    /// Records of the base's segment.
    pub records: Arc<Vec<ChunkRecord>>,
    /// The record of the first of the chunks.
    pub first: usize,
    /// Number of the segment in the base.
    pub segment: u32,
    /// The MAC, if they are one superchunk.
    pub mac: Option<[u8; 16]>,
}

impl Chunks {
    /// Cuts the whole of `bytes[from..]` as a stream that ends there.
    pub fn cut_from(&mut self, from: usize, cutting: &Cutting) {
        let stream = &self.bytes[from..];
        let head = &stream[..stream.len().min(HEAD_BYTES)];
        let chunker = cutting.chunker(cutting.choose(head, Some(stream.len() as u64)));
        let consumed = chunker.cut_all(stream, StreamEnd::Reached, &mut self.lengths);
        debug_assert_eq!(consumed, stream.len());
    }

    /// The run that a chunk is known from, and the place of its record there.
    pub fn known_at(&self, chunk: usize) -> Option<(&KnownRun, usize)> {
        let run = self.known.get(self.known.partition_point(|run| run.chunks.end <= chunk))?;
        run.chunks.contains(&chunk).then(|| (run, run.first + chunk - run.chunks.start))
    }

    /// Names all chunks, many at once; those of known runs have their names.
    pub fn fingerprint(&mut self, cutting: &Cutting) {
        self.fingerprints.clear();
        let (mut next, mut offset) = (0, 0);
        let bytes = |lengths: &[u32]| lengths.iter().map(|length| *length as usize).sum::<usize>();
        for run in &self.known {
            let unknown = &self.lengths[next..run.chunks.start];
            cutting.fingerprinter.many(&self.bytes[offset..], unknown, &mut self.fingerprints);
            offset += bytes(&self.lengths[next..run.chunks.end]);
            let records = &run.records[run.first..run.first + run.chunks.len()];
            self.fingerprints.extend(records.iter().map(|record| record.chunk.fingerprint));
            next = run.chunks.end;
        }
        cutting.fingerprinter.many(&self.bytes[offset..], &self.lengths[next..], &mut self.fingerprints);
    }
}

//! Cutting and naming bytes: which cutter a stream gets, and runs of chunks with their fingerprints.

use std::sync::Arc;

use larder_chunking::{Algorithm, Chunker, ChunkerParams, Fingerprinter, StreamEnd, chunker, page_size, pages};
use larder_format::Fingerprint;
use larder_format::config::Config;
use larder_format::seal::Keys;

/// Bytes of a stream to look at before its cutter is chosen.
pub(super) const HEAD_BYTES: usize = pages::HEAD_BYTES;

/// Streams shorter than this are never taken for pages: too few would be left to gain.
const PAGED_MIN: u64 = 64 << 10;

/// Cutters by kind of stream, and the fingerprint key.
pub(super) struct Cutting {
    default: Box<dyn Chunker>,
    /// By page length, for the page lengths that exist.
    pages: Vec<(u32, Box<dyn Chunker>)>,
    page_cuts: bool,
    pub(super) fingerprinter: Fingerprinter,
}

impl std::fmt::Debug for Cutting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cutting").field("default", &self.default.params()).finish_non_exhaustive()
    }
}

impl Cutting {
    /// `None` when the configuration holds sizes that no cutter takes, which its decoder refuses.
    pub(super) fn new(config: &Config, keys: &Keys) -> Option<Arc<Self>> {
        let fixed = |size: u32| {
            let params = ChunkerParams { algorithm: Algorithm::Fixed, min: size, average: size, max: size };
            chunker(params, &keys.chunking).ok().map(|chunker| (size, chunker))
        };
        Some(Arc::new(Self {
            default: chunker(config.chunker, &keys.chunking).ok()?,
            pages: [4096, 8192, 16384, 32768, 65536].into_iter().filter_map(fixed).collect(),
            page_cuts: config.page_cuts,
            fingerprinter: Fingerprinter::new(&keys.fingerprint),
        }))
    }

    /// The cutter for a stream that begins with `head` and is `total` bytes long, if that is known.
    pub(super) fn choose(&self, head: &[u8], total: Option<u64>) -> &dyn Chunker {
        if self.page_cuts
            && total.is_none_or(|total| total >= PAGED_MIN)
            && let Some(page) = page_size(head, total)
            && let Some((_, chunker)) = self.pages.iter().find(|(size, _)| *size == page)
        {
            return &**chunker;
        }
        &*self.default
    }
}

/// Consecutive chunks: their bytes, lengths and fingerprints.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    pub(super) bytes: Vec<u8>,
    pub(super) lengths: Vec<u32>,
    pub(super) fingerprints: Vec<Fingerprint>,
}

impl Chunks {
    /// Cuts the whole of `bytes[from..]` as a stream that ends there.
    pub(super) fn cut_from(&mut self, from: usize, cutting: &Cutting) {
        let stream = &self.bytes[from..];
        let head = &stream[..stream.len().min(HEAD_BYTES)];
        let chunker = cutting.choose(head, Some(stream.len() as u64));
        let consumed = chunker.cut_all(stream, StreamEnd::Reached, &mut self.lengths);
        debug_assert_eq!(consumed, stream.len());
    }

    /// Names all chunks, many at once.
    pub(super) fn fingerprint(&mut self, cutting: &Cutting) {
        self.fingerprints.clear();
        let total: usize = self.lengths.iter().map(|length| *length as usize).sum();
        cutting.fingerprinter.many(&self.bytes[..total], &self.lengths, &mut self.fingerprints);
    }
}

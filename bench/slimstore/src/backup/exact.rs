//! The reference: every chunk ever stored, in memory. Finds everything, and is what nobody can afford at scale.

use larder_bench_common::names::NameMap;
use larder_dedup::Segmenter;
use larder_format::{ChunkRef, Fingerprint};

use super::{Detector, Output, Piece, manifest};
use crate::clock::Traffic;

/// See the module header.
pub(crate) struct Exact {
    index: NameMap<Fingerprint, ChunkRef>,
    segmenter: Segmenter,
}

impl Exact {
    pub(crate) fn new() -> Self {
        Self { index: NameMap::default(), segmenter: Segmenter::new() }
    }
}

impl Detector for Exact {
    fn begin(&mut self, _: &Output) {}

    fn detect(&mut self, pieces: &[Piece], output: &mut Output) {
        for piece in pieces {
            let chunk = match self.index.get(&piece.fingerprint) {
                Some(chunk) => {
                    output.reuse(*chunk);
                    *chunk
                }
                None => {
                    let chunk = output.store(piece);
                    self.index.insert(piece.fingerprint, chunk);
                    chunk
                }
            };
            if let Some(records) = self.segmenter.push(manifest::ageless(chunk)) {
                std::hint::black_box(manifest::encode(&records, &[]));
            }
        }
    }

    fn finish(&mut self, _: &mut Output) {
        if let Some(records) = self.segmenter.finish() {
            std::hint::black_box(manifest::encode(&records, &[]));
        }
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    fn resident_bytes(&self) -> usize {
        self.index.capacity() * (size_of::<(Fingerprint, ChunkRef)>() + 1)
    }
}

//! Cuts of one length, for streams that change in place: databases made of pages, disk images,
//! block devices.

use crate::chunker::Chunker;
use crate::params::ChunkerParams;

/// Cuts every `max` bytes; only the last chunk of a stream is shorter.
pub(crate) struct Fixed {
    params: ChunkerParams,
}

impl Fixed {
    pub(crate) fn new(params: ChunkerParams) -> Self {
        Self { params }
    }
}

impl Chunker for Fixed {
    fn params(&self) -> ChunkerParams {
        self.params
    }

    fn next_cut(&self, data: &[u8]) -> usize {
        data.len().min(self.params.max as usize)
    }

    fn confirms(&self, data: &[u8], length: usize) -> bool {
        self.next_cut(data) == length
    }
}

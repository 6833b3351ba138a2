//! Copying chunks into several containers at once, each into that of its lane: chunks read in one
//! order are written in several.

use larder_format::ChunkRef;
use larder_writer::LANES_MAX;

use super::copying::batches;
use super::reading::Wanted;
use super::{ChunkCopier, RewriteError};

impl ChunkCopier {
    /// Copies chunks into new data containers, in the given order. Each goes into the container
    /// that is open in its lane (a number below [`LANES_MAX`]). Returns the new place of each. Each
    /// is checked against its fingerprint first.
    pub fn copy_apart(&mut self, chunks: &[(ChunkRef, usize)]) -> Result<Vec<ChunkRef>, RewriteError> {
        let mut copies = Vec::with_capacity(chunks.len());
        for batch in batches(chunks, self.batch_bytes(), |(chunk, _)| chunk) {
            self.stop_if_asked()?;
            let references: Vec<ChunkRef> = batch.iter().map(|(chunk, _)| *chunk).collect();
            let contents = self.read_batch(&references, Wanted::Bytes)?;
            for (place, (chunk, lane)) in batch.iter().enumerate() {
                while self.lanes.len() <= (*lane).min(LANES_MAX - 1) {
                    self.lanes.push(self.data.beside());
                }
                let last = self.lanes.len() - 1;
                copies.push(self.lanes[(*lane).min(last)].push(chunk.fingerprint, contents.chunk(place, chunk))?);
            }
        }
        Ok(copies)
    }

    /// Closes the containers of all lanes. Later copies go into others.
    pub fn close_lanes(&mut self) -> Result<(), RewriteError> {
        Ok(self.lanes.iter_mut().try_for_each(larder_writer::Packer::close)?)
    }
}

//! Copies chunks into several open containers, one for each writer: chunks are read in one order
//! and written in several.

use std::collections::BTreeMap;

use larder_format::ChunkRef;
use larder_format::ids::ContainerId;
use larder_writer::{ContainerTotals, WRITERS_MAX};

use super::copying::batches;
use super::reading::{Part, Wanted};
use super::{ChunkCopier, RewriteError};

/// Where a chunk is copied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writer {
    /// The writer, a number below [`WRITERS_MAX`].
    pub number: usize,
    /// Whether its containers are finished: no later pass reads them. It is the same for all chunks
    /// of a writer until the writers are closed.
    pub is_settled: bool,
}

impl ChunkCopier {
    /// Copies chunks into new data containers, in the given order. Each goes into the container
    /// that is open in its writer. Returns the new place of each. Each chunk is checked against its
    /// fingerprint first.
    pub fn copy_apart(&mut self, chunks: &[(ChunkRef, Writer)]) -> Result<Vec<ChunkRef>, RewriteError> {
        let mut copies = Vec::with_capacity(chunks.len());
        for batch in batches(chunks, self.batch_bytes(), |(chunk, _)| chunk) {
            self.stop_if_asked()?;
            let references: Vec<ChunkRef> = batch.iter().map(|(chunk, _)| *chunk).collect();
            self.reader().in_order(&references, Wanted::Bytes, |place, part| {
                let Part::Chunk(bytes) = part else { unreachable!("only chunks are wanted") };
                let (chunk, writer) = &batch[place];
                while self.writers.len() <= writer.number.min(WRITERS_MAX - 1) {
                    self.writers.push(self.data.beside());
                }
                let last = self.writers.len() - 1;
                let packer = &mut self.writers[writer.number.min(last)];
                packer.settle(writer.is_settled);
                copies.push(packer.push(chunk.fingerprint, bytes)?);
                Ok(())
            })?;
        }
        Ok(copies)
    }

    /// Waits until the store has acknowledged all closed containers.
    pub fn wait(&self) -> Result<(), RewriteError> {
        Ok(self.uploads.wait()?)
    }

    /// Takes out the containers that the store has acknowledged, with their sizes, and requests
    /// each once more. [`Self::finish`] does not return these.
    pub fn take_stored(&self) -> Result<BTreeMap<ContainerId, ContainerTotals>, RewriteError> {
        Ok(self.uploads.take_stored()?)
    }

    /// Closes the containers of all writers. Later copies go into others.
    pub fn close_writers(&mut self) -> Result<(), RewriteError> {
        Ok(self.writers.iter_mut().try_for_each(larder_writer::Packer::close)?)
    }
}

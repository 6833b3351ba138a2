//! Copying chunks from container to container: read container by container, written in the order
//! asked for.
//!
//! If all chunks of a frame are requested one after the other, the frame is copied as it was
//! compressed. It is opened, decompressed to prove every chunk in it, and sealed again under its
//! new container's key. Compressing takes most of a copy's time.

use larder_format::ids::ContainerId;
use larder_format::manifest::Manifest;
use larder_format::{ChunkRef, names};
use larder_reader::is_missing;
use larder_store::RepositoryError;
use larder_writer::Packer;

use super::reading::{Frame, Part, Wanted};
use super::{ChunkCopier, RewriteError};

/// Neighbouring chunks that fit into this number of bytes together. A chunk that exceeds it is
/// alone.
pub(super) fn batches<T>(
    chunks: &[T],
    bytes_max: usize,
    chunk: impl Fn(&T) -> &ChunkRef,
) -> impl Iterator<Item = &[T]> {
    let mut rest = chunks;
    std::iter::from_fn(move || {
        let mut bytes = 0usize;
        let fits = |item: &&T| {
            bytes = bytes.saturating_add(chunk(item).size as usize);
            bytes <= bytes_max
        };
        let (batch, later) = rest.split_at_checked(rest.iter().take_while(fits).count().max(1))?;
        rest = later;
        Some(batch)
    })
}

impl ChunkCopier {
    /// Copies chunks into new data containers, in the given order, and returns their new places.
    ///
    /// Each is checked against its fingerprint first. Reads every container once for each batch of
    /// chunks that memory holds. Chunks before an error are copied, and their container is closed.
    pub fn copy(&mut self, chunks: &[ChunkRef]) -> Result<Vec<ChunkRef>, RewriteError> {
        let before = self.whole_bytes;
        let copies = self.copy_all(chunks);
        // The caller may copy the same chunks again.
        if let Err(RewriteError::Repository(_)) = &copies {
            self.whole_bytes = before;
            self.data.close()?;
        }
        copies
    }

    /// Closes the open containers, before all is copied once more. Two copies of a chunk in one
    /// container would stay for ever.
    pub fn begin_again(&mut self) -> Result<(), RewriteError> {
        self.whole_bytes = 0;
        self.data.close()?;
        Ok(self.common.iter_mut().try_for_each(Packer::close)?)
    }

    fn copy_all(&mut self, chunks: &[ChunkRef]) -> Result<Vec<ChunkRef>, RewriteError> {
        let mut copies = Vec::with_capacity(chunks.len());
        for batch in batches(chunks, self.batch_bytes(), |chunk| chunk) {
            self.stop_if_asked()?;
            let before = copies.len();
            while let Some(named @ [_, ..]) = batch.get(copies.len() - before..) {
                // From the place in their record: an earlier place may be outdated.
                let mut rest = named.to_vec();
                self.place(&mut rest)?;
                match self.copy_placed(&rest, &mut copies) {
                    // A pass may have moved it.
                    Err(RewriteError::Repository(error))
                        if is_missing(&error) && self.chunks.moved().learn(missing_of(&error))? => {}
                    ended => ended?,
                }
            }
        }
        Ok(copies)
    }

    /// Copies chunks from where they are.
    fn copy_placed(&mut self, chunks: &[ChunkRef], copies: &mut Vec<ChunkRef>) -> Result<(), RewriteError> {
        self.reader().in_order(chunks, Wanted::Frames, |place, part| {
            match part {
                Part::Frame(Frame { chunks: count, compressed }) => {
                    self.whole_bytes += u64::from(compressed.raw_len);
                    copies.extend(self.data.push_frame(&chunks[place..place + count], compressed)?);
                }
                Part::Chunk(bytes) => copies.push(self.data.push(chunks[place].fingerprint, bytes)?),
            }
            Ok(())
        })
    }

    /// The same, into containers of their own.
    pub(super) fn copy_common(&mut self, chunks: &[ChunkRef]) -> Result<Vec<ChunkRef>, RewriteError> {
        let mut common = self.common.take().unwrap_or_else(|| self.data.second());
        std::mem::swap(&mut self.data, &mut common);
        let copies = self.copy(chunks);
        std::mem::swap(&mut self.data, &mut common);
        self.common = Some(common);
        copies
    }

    /// Names chunks from now on as this version of the layout `lifecycle` and those like it do.
    pub fn reads_names(&mut self, manifest: &Manifest) {
        self.names = Some(self.chunks.for_names(manifest));
    }

    /// Sets chunks to their present places, as far as known.
    pub(super) fn place(&self, chunks: &mut [ChunkRef]) -> Result<(), RewriteError> {
        Ok(self.names.as_ref().unwrap_or(&self.chunks).locate_all(chunks)?)
    }
}

/// The container that an error reports missing.
fn missing_of(error: &RepositoryError) -> Option<ContainerId> {
    match error {
        RepositoryError::Store(error) => names::parse_container(&error.name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use larder_format::Fingerprint;
    use larder_format::ids::{ContainerKind, JobId};

    use super::*;

    #[test]
    fn batches_are_full_and_none_is_empty() {
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq: 0 };
        let chunk = |size| ChunkRef { fingerprint: Fingerprint([0; 32]), container, offset: 0, size };
        let chunks = [3, 4, 4, 11, 1, 2, 9, 1].map(chunk);
        let sizes: Vec<Vec<u32>> =
            batches(&chunks, 10, |chunk| chunk).map(|batch| batch.iter().map(|chunk| chunk.size).collect()).collect();
        assert_eq!(sizes, [vec![3, 4], vec![4], vec![11], vec![1, 2], vec![9, 1]]);
        assert_eq!(batches(&[], 10, |chunk| chunk).count(), 0);
    }
}

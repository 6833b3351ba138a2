//! Copying chunks from container to container: read container by container, written in the order asked for.

use std::collections::BTreeMap;
use std::ops::Range;

use futures::StreamExt;
use larder_format::compress::Decompressor;
use larder_format::ids::ContainerId;
use larder_format::manifest::Manifest;
use larder_format::{ChunkRef, DecodeError, names};
use larder_store::RepositoryError;
use larder_store::container_reader::OpenContainer;

use super::{Relayout, RelayoutError};
use crate::version::is_missing;

/// Containers read at once.
const CONCURRENT_READS: usize = 4;

/// Chunks that come one after the other and fit into so many bytes together. One that does not fit alone is alone.
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

impl Relayout {
    /// Copies chunks into new data containers, in the order given; says where each of them is now.
    ///
    /// Each is checked against its fingerprint first. Reads every container once for so many chunks as memory holds.
    pub fn copy(&mut self, chunks: &[ChunkRef]) -> Result<Vec<ChunkRef>, RelayoutError> {
        let mut copies = Vec::with_capacity(chunks.len());
        for named in batches(chunks, self.batch_bytes(), |chunk| chunk) {
            self.stop_if_asked()?;
            let mut batch = named.to_vec();
            self.place(&mut batch)?;
            let contents = loop {
                match self.read_batch(&batch) {
                    // Somebody may have moved it.
                    Err(RelayoutError::Repository(error))
                        if is_missing(&error) && self.chunks.moved().learn(missing_of(&error))? =>
                    {
                        // From where they are named: where they were a moment ago means nothing.
                        batch.copy_from_slice(named);
                        self.place(&mut batch)?;
                    }
                    contents => break contents?,
                }
            };
            let mut from = 0;
            for chunk in &batch {
                let to = from + chunk.size as usize;
                copies.push(self.data.push(chunk.fingerprint, &contents[from..to])?);
                from = to;
            }
        }
        Ok(copies)
    }

    /// Chunks are named from now on as this version of the layout `lifecycle` and those like it do.
    pub fn reads_names(&mut self, manifest: &Manifest) {
        self.has_names = true;
        self.chunks.moved().expect(manifest.containers.iter().map(|usage| usage.container));
    }

    /// Sets chunks to where they are now, as far as that is known.
    pub(super) fn place(&self, chunks: &mut [ChunkRef]) -> Result<(), RelayoutError> {
        match self.has_names {
            true => self.chunks.moved().place(chunks)?,
            false => self.chunks.moved().lead_on(chunks)?,
        }
        Ok(())
    }

    /// The bytes of these chunks, one after the other.
    pub(super) fn read_batch(&self, batch: &[ChunkRef]) -> Result<Vec<u8>, RelayoutError> {
        let mut by_container: BTreeMap<ContainerId, Vec<usize>> = BTreeMap::new();
        let mut starts = Vec::with_capacity(batch.len());
        let mut total = 0;
        for (place, chunk) in batch.iter().enumerate() {
            by_container.entry(chunk.container).or_default().push(place);
            starts.push(total);
            total += chunk.size as usize;
        }
        for places in by_container.values_mut() {
            places.sort_unstable_by_key(|place| batch[*place].offset);
        }
        let mut contents = vec![0; total];
        let repository = self.context.repository.clone();
        let reads = by_container.iter().map(|(id, places)| {
            let wanted: Vec<Range<u32>> = places
                .iter()
                .map(|place| batch[*place].offset..batch[*place].offset.saturating_add(batch[*place].size))
                .collect();
            let repository = &repository;
            async move { repository.read_container_frames(*id, &wanted).await }
        });
        let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
        let mut opener = Opener::default();
        for places in by_container.values() {
            let Some(container) = self.context.runtime.block_on(reads.next()) else { break };
            let container = container?;
            opener.frame = None;
            for place in places {
                let chunk = &batch[*place];
                let bytes = opener.chunk(&repository, &container, chunk)?;
                if self.fingerprinter.one(bytes) != chunk.fingerprint {
                    return Err(damaged(chunk, "the bytes there have another fingerprint").into());
                }
                contents[starts[*place]..][..chunk.size as usize].copy_from_slice(bytes);
            }
        }
        drop(reads);
        Ok(contents)
    }
}

/// The container that an error is about.
fn missing_of(error: &RepositoryError) -> Option<ContainerId> {
    match error {
        RepositoryError::Store(error) => names::parse_container(&error.name),
        _ => None,
    }
}

/// Opens frames, and keeps the one that was opened last.
#[derive(Debug, Default)]
struct Opener {
    frame: Option<u32>,
    scratch: Vec<u8>,
    raw: Vec<u8>,
    decompressor: Decompressor,
}

impl Opener {
    fn chunk(
        &mut self,
        repository: &larder_store::Repository,
        container: &OpenContainer,
        chunk: &ChunkRef,
    ) -> Result<&[u8], RepositoryError> {
        let frame = container.index.frame_at(chunk.offset);
        let frame = frame.ok_or_else(|| damaged(chunk, "it lies outside of its container"))?;
        if self.frame != Some(frame.number) {
            self.frame = None;
            container.open_frame(repository, frame, &mut self.scratch, &mut self.raw, &mut self.decompressor)?;
            self.frame = Some(frame.number);
        }
        let from = (chunk.offset - frame.payload_offset) as usize;
        let bytes = self.raw.get(from..from + chunk.size as usize);
        bytes.ok_or_else(|| damaged(chunk, "it lies across the border of a frame"))
    }
}

fn damaged(chunk: &ChunkRef, why: &'static str) -> RepositoryError {
    let source = DecodeError::Invalid { what: "chunk record", why };
    RepositoryError::Damaged { name: names::container(chunk.container), source }
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

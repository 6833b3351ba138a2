//! Copying chunks from container to container: read container by container, written in the order asked for.

use std::collections::BTreeMap;
use std::ops::Range;

use futures::StreamExt;
use larder_format::compress::Decompressor;
use larder_format::ids::ContainerId;
use larder_format::{ChunkRef, DecodeError, names};
use larder_store::RepositoryError;
use larder_store::container_reader::OpenContainer;

use super::{Relayout, RelayoutError};
use crate::version::is_missing;

/// Containers read at once.
const CONCURRENT_READS: usize = 4;

impl Relayout {
    /// Copies chunks into new data containers, in the order given; says where each of them is now.
    ///
    /// Each is checked against its fingerprint first. Reads every container once for so many chunks as memory holds.
    pub fn copy(&mut self, chunks: &[ChunkRef]) -> Result<Vec<ChunkRef>, RelayoutError> {
        let mut copies = Vec::with_capacity(chunks.len());
        let mut rest = chunks;
        while !rest.is_empty() {
            self.stop_if_asked()?;
            let mut bytes = 0usize;
            let fits = |chunk: &&ChunkRef| {
                bytes += chunk.size as usize;
                bytes <= self.batch_bytes()
            };
            let (batch, later) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            rest = later;
            let mut batch = batch.to_vec();
            self.chunks.moved().lead_on(&mut batch)?;
            let contents = loop {
                match self.read_batch(&batch) {
                    // Somebody may have moved it.
                    Err(RelayoutError::Repository(error))
                        if is_missing(&error) && self.chunks.moved().learn(missing_of(&error))? =>
                    {
                        self.chunks.moved().lead_on(&mut batch)?;
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

    /// Of each of these chunks whether it is where it is said to be, which takes its bytes to be read and its fingerprint to be
    /// computed. What lies in a container that is damaged, or is gone, is not: the index is not asked where it may be now.
    pub(super) fn are_there(&self, chunks: &[ChunkRef]) -> Result<Vec<bool>, RelayoutError> {
        let mut are_there = Vec::with_capacity(chunks.len());
        let mut rest = chunks;
        while !rest.is_empty() {
            self.stop_if_asked()?;
            let mut bytes = 0usize;
            let fits = |chunk: &&ChunkRef| {
                bytes += chunk.size as usize;
                bytes <= self.batch_bytes()
            };
            let (batch, later) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            rest = later;
            match self.read_batch(batch) {
                Ok(_) => are_there.resize(are_there.len() + batch.len(), true),
                Err(RelayoutError::Repository(error)) if error.is_damage() => {
                    // One bad container must not speak for the others.
                    let mut good: BTreeMap<ContainerId, bool> = BTreeMap::new();
                    for chunk in batch {
                        if let std::collections::btree_map::Entry::Vacant(entry) = good.entry(chunk.container) {
                            let of_container = batch.iter().filter(|other| other.container == chunk.container);
                            entry.insert(self.is_readable(&of_container.copied().collect::<Vec<_>>())?);
                        }
                    }
                    are_there.extend(batch.iter().map(|chunk| good[&chunk.container]));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(are_there)
    }

    fn is_readable(&self, chunks: &[ChunkRef]) -> Result<bool, RelayoutError> {
        match self.read_batch(chunks) {
            Ok(_) => Ok(true),
            Err(RelayoutError::Repository(error)) if error.is_damage() => {
                tracing::warn!(%error, "a copy that was to be shared cannot be read; another one is made");
                Ok(false)
            }
            Err(error) => Err(error),
        }
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

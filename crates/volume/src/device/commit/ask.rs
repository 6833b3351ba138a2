//! Asking the filter chain about the chunks of a batch.

use std::sync::Arc;

use larder_format::volume_map::{Mapping, Place};

use super::batch::{BlockId, Changing};
use super::front::CutBatch;
use super::streams::Stream;
use crate::chain::{Answer, Asked, Entry, FilterKind, Key, Stored};
use crate::device::lower::Found;
use crate::error::VolumeError;
use crate::index::{PageCache, Runs, View, chunk_key};
use crate::store::{Committer, Store};

/// What the filters see of a store during one batch.
struct Seen<'a> {
    store: &'a Store,
    runs: Arc<Runs>,
    /// The first container that was begun since the last publication or commit. It may have no
    /// tables yet.
    begun: u32,
}

impl Stored for Seen<'_> {
    fn in_memory(&self, keys: &mut dyn Iterator<Item = Key>) -> Vec<Option<Place>> {
        let state = self.store.state.lock();
        keys.map(|key| state.tables.chunks.get(&key).copied().filter(|place| self.may_name(*place))).collect()
    }

    fn runs(&self) -> &Runs {
        &self.runs
    }

    fn pages(&self) -> &PageCache {
        &self.store.pages
    }

    fn chunks_of(&self, container: u32) -> Result<Option<Vec<Entry>>, VolumeError> {
        let is_open = container >= self.begun || self.store.containers.is_open(container);
        if is_open || !self.may_name(Place { container, offset: 0 }) {
            return Ok(None);
        }
        let table = self.store.containers.table(container)?;
        let contents = table.contents.read();
        let mut offset = 0;
        let entries = contents.chunks.iter().map(|chunk| {
            let entry = (chunk_key(&chunk.fingerprint), offset);
            offset += chunk.size;
            entry
        });
        Ok(Some(entries.collect()))
    }

    fn may_name(&self, place: Place) -> bool {
        self.store.may_name(&self.runs, place)
    }

    fn bytes_at(&self, place: Place, length: usize) -> Result<Vec<u8>, VolumeError> {
        let (frame, within) = self.store.containers.frame(place)?;
        Ok(frame[within..frame.len().min(within + length)].to_vec())
    }
}

impl Store {
    /// Asks the chain about all chunks of a batch, in the order of streams and chunks.
    pub(super) fn ask(&self, committer: &mut Committer, cut: &CutBatch) -> Result<Vec<Option<Answer>>, VolumeError> {
        let CutBatch { blocks: batch, streams, chunks, room: bytes } = cut;
        let before = self.blocks_before(batch, streams);
        let mut asked = Vec::with_capacity(chunks.iter().map(|chunks| chunks.lengths.len()).sum());
        let hydrating = self.hydrating.lock().clone();
        let mut copied = Vec::new();
        for (stream, chunks) in streams.iter().zip(chunks) {
            let (mut at, mut cursor) = (0, (0, 0));
            for (length, fingerprint) in chunks.lengths.iter().zip(&chunks.names) {
                let block = stream.block_of(at, &mut cursor);
                let from = stream.range.start + at;
                at += *length as usize;
                if hydrating.contains(&batch[block].key.0) {
                    copied.push(asked.len());
                }
                asked.push(Asked {
                    key: chunk_key(fingerprint),
                    bytes: &bytes[from..stream.range.start + at],
                    old: [Some(&batch[block].old), before.get(block).and_then(|before| before.get(batch))],
                });
            }
        }
        let runs = self.state.lock().runs.clone();
        // Only the end of a commit or a publication changes the number.
        let begun = committer.next_container;
        let mut answers = committer.chain.find(&Seen { store: self, runs, begun }, &asked)?;
        // What is below a hydrated volume is there for the last time. So the chunks are looked at
        // that it shares.
        for number in copied {
            let Some(Answer::At(place)) = answers[number] else { continue };
            if self.containers.frame(place).is_err() && !self.containers.is_readable(place.container) {
                answers[number] = None;
            }
        }
        Ok(answers)
    }

    /// The old content of the block before each block of the batch, for the filter that wants it.
    fn blocks_before(&self, batch: &[Changing], streams: &[Stream]) -> Vec<Before> {
        if self.counter(FilterKind::Block).is_none() || streams.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::with_capacity(batch.len());
        for (number, changing) in batch.iter().enumerate() {
            let previous: Option<BlockId> = changing.key.1.checked_sub(1).map(|block| (changing.key.0, block));
            found.push(match (previous, number.checked_sub(1)) {
                (None, _) => Before::None,
                (Some(previous), Some(before)) if batch[before].key == previous => Before::InBatch(before),
                _ if changing.is_unchanged || changing.dirty.is_zeros() => Before::None,
                // It is a hint: without it other filters find the chunks.
                (Some((volume, block)), _) => match self.found(View::live(volume), block) {
                    Ok(Found::Mapping(mapping)) => Before::Read(mapping),
                    Ok(Found::Outside(_)) | Err(_) => Before::None,
                },
            });
        }
        found
    }
}

/// The old content of the block before.
enum Before {
    None,
    /// It is that block of the batch.
    InBatch(usize),
    Read(Mapping),
}

impl Before {
    fn get<'a>(&'a self, batch: &'a [Changing]) -> Option<&'a Mapping> {
        match self {
            Self::None => None,
            Self::InBatch(number) => Some(&batch[*number].old),
            Self::Read(mapping) => Some(mapping),
        }
    }
}

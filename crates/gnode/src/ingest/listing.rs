//! Lists the chunks of new containers: reads their tables, sorts them by chunk, and merges them
//! with the index.

use futures::StreamExt;
use larder_format::ids::ContainerId;
use larder_format::index_tables::{ChunkKey, ChunkPlace, CopyKey};
use larder_index::{Chunks, Copies, Cursor, Draft, IndexError, IndexPass, LookupOptions, Records, TypedTable};
use larder_store::RepositoryError;

use super::{Ingested, Numbers};

/// Tables of containers that are read at once.
const CONCURRENT_READS: usize = 16;
/// Bytes that a copy takes in a group.
const COPY_BYTES: usize = 8;

/// Lists the chunks of containers that have numbers and whose chunks are not listed yet. `known`
/// has the numbers of all containers with a record, these among them.
pub fn ingest(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    known: &Numbers,
    containers: &[(u32, ContainerId)],
) -> Result<Ingested, IndexError> {
    let mut ingested = Ingested::default();
    if containers.is_empty() {
        return Ok(ingested);
    }
    let copies = collect(pass, containers, &mut ingested)?;
    let table = draft.view::<Chunks>(LookupOptions::streaming(pass.memory / 4));
    let age = draft.manifest.head.next_age;
    let (mut chunks, mut others) = (pass.writer::<Chunks>(age), pass.writer::<Copies>(age));
    table.join(&mut Groups::new(copies), pass.memory / 4, |key, group, found| {
        let mut copies = places(group.unwrap_or_default());
        // An entry stays as it is while its container has a record. Otherwise the first of the new
        // ones replaces it.
        if !found.is_some_and(|found| known.contains(found.container)) {
            let Some(first) = copies.next().transpose()? else { return Ok(()) };
            chunks.push(key.as_ref(), Some(&first.encode()))?;
            ingested.new_chunks += 1;
        }
        for copy in copies {
            let copy = copy?;
            let key = CopyKey { chunk: key, container: copy.container }.encode();
            others.push(&key, Some(&copy.chunk.to_le_bytes()))?;
            ingested.copies += 1;
        }
        Ok(())
    })?;
    let written = [chunks.finish()?, others.finish()?].concat();
    draft.add(written);
    Ok(ingested)
}

/// The copies in these containers, by chunk and container.
fn collect(
    pass: &IndexPass,
    containers: &[(u32, ContainerId)],
    ingested: &mut Ingested,
) -> Result<Records<Copies, larder_index::Sorted>, IndexError> {
    let mut copies = larder_index::Changes::<Copies>::new(&pass.io, pass.memory / 2, &pass.folder)?;
    let repository = &pass.io.repository;
    let reads =
        containers.iter().map(|(number, id)| async move { (*number, *id, repository.read_container_index(*id).await) });
    let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
    while let Some((number, id, read)) = pass.io.executor.block_on(reads.next()) {
        let index = match read {
            Ok(index) => index,
            Err(error) if error.is_cold() => {
                ingested.cold.push(id);
                continue;
            }
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "a container cannot be read; its chunks are not in the index");
                ingested.unreadable.push((id, error));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        ingested.containers += 1;
        // In reverse, so that of equal chunks in one container the first counts.
        for (place, chunk) in index.chunks.iter().enumerate().rev() {
            let place = u32::try_from(place).map_err(|_| too_many())?;
            let key = CopyKey { chunk: ChunkKey::of(&chunk.fingerprint), container: number };
            copies.put(&key, &place)?;
            ingested.chunks += 1;
        }
    }
    copies.sorted()
}

fn too_many() -> IndexError {
    IndexError::Repository(RepositoryError::Unstorable(larder_format::EncodeError {
        what: "place of a chunk in the index",
        why: "its container has more than 2^32 chunks",
    }))
}

/// The places in a record of [`Groups`].
pub(crate) fn places(group: &[u8]) -> impl Iterator<Item = Result<ChunkPlace, IndexError>> {
    let wrong = |source| IndexError::WrongRecord { table: Copies::TABLE, key: Vec::new(), source };
    group.chunks_exact(COPY_BYTES).map(move |place| ChunkPlace::decode(place).map_err(wrong))
}

/// Copies in order of their keys, one record for all copies of a chunk: its value has their places,
/// one after the other.
pub(crate) struct Groups<C> {
    copies: C,
    /// Whether `copies` is at the first copy of the next chunk.
    has_next: Option<bool>,
    key: [u8; 20],
    places: Vec<u8>,
}

impl<C: Cursor> Groups<C> {
    pub(crate) fn new(copies: Records<Copies, C>) -> Self {
        Self { copies: copies.into_cursor(), has_next: None, key: [0; 20], places: Vec::new() }
    }
}

impl<C: Cursor> Cursor for Groups<C> {
    fn advance(&mut self) -> Result<bool, IndexError> {
        let wrong = |key: &[u8]| {
            let key = key.to_vec();
            move |source| IndexError::WrongRecord { table: Copies::TABLE, key, source }
        };
        let mut has_next = match self.has_next {
            Some(has_next) => has_next,
            None => self.copies.advance()?,
        };
        self.places.clear();
        while has_next {
            let key = Copies::decode_key(self.copies.key()).map_err(wrong(self.copies.key()))?;
            if self.places.is_empty() {
                self.key = key.chunk.0;
            } else if self.key != key.chunk.0 {
                break;
            }
            // Removals among sorted changes do not matter here.
            if let Some(value) = self.copies.value() {
                let chunk = Copies::decode_value(value).map_err(wrong(self.copies.key()))?;
                self.places.extend_from_slice(&ChunkPlace { container: key.container, chunk }.encode());
            }
            has_next = self.copies.advance()?;
        }
        self.has_next = Some(has_next);
        Ok(!self.places.is_empty())
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn value(&self) -> Option<&[u8]> {
        Some(&self.places)
    }
}

//! File contents in stream order, for pipes: containers are fetched ahead and opened frames kept for a while.
//!
//! The recipe says which containers the next segments use, so they are asked for before they are needed. Restores to disk
//! do not come here: they go by container (`restore/`).

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use larder_format::compress::Decompressor;
use larder_format::container::CONTAINER_TARGET;
use larder_format::ids::ContainerId;
use larder_format::recipe::Recipe;
use larder_format::segment::ChunkRecord;
use larder_store::container_reader::{ByteLru, OpenContainer};
use larder_store::{Repository, RepositoryError};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::recipe_reader::{MetaChunks, RecipeReader, RecordCursor, damaged};

/// Of a job's memory, one part in so many for sealed containers.
const CONTAINERS_ONE_IN: usize = 4;
/// And for opened frames.
const FRAMES_ONE_IN: usize = 8;
/// And for containers asked for ahead.
const AHEAD_ONE_IN: usize = 3;
/// Containers asked for ahead at most.
const AHEAD_MAX: usize = 6;
/// Segments looked ahead.
const SEGMENTS_AHEAD: u32 = 4;

type Fetch = JoinHandle<Result<OpenContainer, RepositoryError>>;

/// See the module header.
pub(crate) struct DataReader {
    repository: Repository,
    runtime: Handle,
    cursor: RecordCursor,
    containers: ByteLru<ContainerId, Arc<OpenContainer>>,
    frames: ByteLru<(ContainerId, u32), Arc<Vec<u8>>>,
    fetches: HashMap<ContainerId, Fetch>,
    ahead_max: usize,
    looked_at: Option<u32>,
    decompressor: Decompressor,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for DataReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataReader").field("offset", &self.cursor.offset()).finish_non_exhaustive()
    }
}

impl Drop for DataReader {
    fn drop(&mut self) {
        for fetch in self.fetches.values() {
            fetch.abort();
        }
    }
}

impl DataReader {
    pub(crate) fn new(context: &crate::Context, recipe: Arc<Recipe>, chunks: MetaChunks) -> Self {
        Self {
            repository: context.repository.clone(),
            runtime: context.runtime.clone(),
            cursor: RecordCursor::new(RecipeReader::new(recipe, chunks)),
            containers: ByteLru::new(context.memory / CONTAINERS_ONE_IN),
            frames: ByteLru::new(context.memory / FRAMES_ONE_IN),
            fetches: HashMap::new(),
            ahead_max: (context.memory / AHEAD_ONE_IN / CONTAINER_TARGET).clamp(1, AHEAD_MAX),
            looked_at: None,
            decompressor: Decompressor::new(),
            scratch: Vec::new(),
        }
    }

    /// Goes to an offset at which a file begins.
    pub(crate) fn seek(&mut self, offset: u64) -> Result<(), RepositoryError> {
        match self.cursor.seek(offset)? {
            true => Ok(()),
            false => {
                let node = self.cursor.reader().recipe().nodes.first().map(|node| node.chunk);
                let source = larder_format::DecodeError::Invalid {
                    what: "recipe",
                    why: "a file's contents do not begin where its entry says",
                };
                Err(match node {
                    Some(chunk) => damaged(&chunk, source),
                    None => RepositoryError::Damaged { name: "the version's manifest".to_owned(), source },
                })
            }
        }
    }

    /// Appends the next chunk of the stream to `out`; `false` at the end.
    pub(crate) fn next_chunk(&mut self, out: &mut Vec<u8>) -> Result<bool, RepositoryError> {
        self.look_ahead()?;
        let Some(record) = self.cursor.next()? else { return Ok(false) };
        self.read(&record, out)?;
        Ok(true)
    }

    fn read(&mut self, record: &ChunkRecord, out: &mut Vec<u8>) -> Result<(), RepositoryError> {
        let chunk = record.chunk;
        let container = self.container(chunk.container)?;
        let outside = |why| damaged(&chunk, larder_format::DecodeError::Invalid { what: "chunk record", why });
        let frame =
            *container.index.frame_at(chunk.offset).ok_or_else(|| outside("it lies outside of its container"))?;
        let key = (chunk.container, frame.number);
        let raw = match self.frames.get(&key) {
            Some(raw) => raw,
            None => {
                let mut raw = Vec::new();
                container.open_frame(&self.repository, &frame, &mut self.scratch, &mut raw, &mut self.decompressor)?;
                let raw = Arc::new(raw);
                self.frames.put(key, raw.clone(), raw.len());
                raw
            }
        };
        let from = (chunk.offset - frame.payload_offset) as usize;
        let bytes = raw.get(from..from + chunk.size as usize);
        out.extend_from_slice(bytes.ok_or_else(|| outside("it lies across the border of a frame"))?);
        Ok(())
    }

    fn container(&mut self, id: ContainerId) -> Result<Arc<OpenContainer>, RepositoryError> {
        if let Some(container) = self.containers.get(&id) {
            return Ok(container);
        }
        let container = match self.fetches.remove(&id) {
            Some(fetch) => match self.runtime.block_on(fetch) {
                Ok(result) => result?,
                // Cancelled with the runtime, or a panic: ask again in the open.
                Err(_) => self.runtime.block_on(self.repository.read_container(id))?,
            },
            None => self.runtime.block_on(self.repository.read_container(id))?,
        };
        let bytes = container.bytes_read as usize;
        let container = Arc::new(container);
        self.containers.put(id, container.clone(), bytes);
        Ok(container)
    }

    fn look_ahead(&mut self) -> Result<(), RepositoryError> {
        let here = self.cursor.segment();
        if self.looked_at == Some(here) {
            return Ok(());
        }
        self.looked_at = Some(here);
        let mut wanted = Vec::new();
        for number in here..here.saturating_add(SEGMENTS_AHEAD) {
            let Some((segment, _)) = self.cursor.reader().segment_ref(number)? else { break };
            wanted.extend(segment.uses.iter().map(|used| used.container).filter(|id| !self.containers.contains(id)));
        }
        // What was asked for and then passed over would take the place of what is needed.
        self.fetches.retain(|id, fetch| {
            let is_wanted = wanted.contains(id);
            if !is_wanted {
                fetch.abort();
            }
            is_wanted
        });
        for id in wanted {
            if self.fetches.len() >= self.ahead_max {
                break;
            }
            if !self.fetches.contains_key(&id) {
                let repository = self.repository.clone();
                let fetch = self.runtime.spawn(async move { repository.read_container(id).await });
                self.fetches.insert(id, fetch);
            }
        }
        Ok(())
    }
}

/// The logical content of one file: stored runs from the stream, zeros for the holes.
pub(crate) struct ContentReader<'a> {
    data: Option<&'a mut DataReader>,
    data_offset: u64,
    /// Runs left, the next last: length, and whether it is stored.
    runs: Vec<(u64, bool)>,
    buffer: Vec<u8>,
    taken: usize,
    started: bool,
}

impl<'a> ContentReader<'a> {
    /// A reader for `entry`, whose stored bytes begin at `data_offset`.
    pub(crate) fn new(data: &'a mut DataReader, entry: &larder_format::entry::Entry, data_offset: u64) -> Self {
        let mut runs = Vec::new();
        if let larder_format::entry::EntryKind::File { size, extents } = &entry.kind {
            match extents {
                None => runs.push((*size, true)),
                Some(extents) => {
                    let mut end = 0;
                    for extent in extents {
                        runs.push((extent.offset - end, false));
                        runs.push((extent.length, true));
                        end = extent.offset + extent.length;
                    }
                    runs.push((size - end, false));
                }
            }
        }
        runs.reverse();
        Self { data: Some(data), data_offset, runs, buffer: Vec::new(), taken: 0, started: false }
    }
}

impl ContentReader<'_> {
    /// Leaves the holes out: what is read are the stored bytes.
    pub(crate) fn skip_holes(&mut self) {
        self.runs.retain(|(_, stored)| *stored);
    }
}

impl io::Read for ContentReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.runs.last().is_some_and(|(length, _)| *length == 0) {
            self.runs.pop();
        }
        let Some((length, stored)) = self.runs.last_mut() else { return Ok(0) };
        let wanted = usize::try_from(*length).unwrap_or(usize::MAX).min(out.len());
        if !*stored {
            out[..wanted].fill(0);
            *length -= wanted as u64;
            return Ok(wanted);
        }
        if self.taken == self.buffer.len() {
            self.buffer.clear();
            self.taken = 0;
            let Some(data) = &mut self.data else { return Ok(0) };
            if !self.started {
                data.seek(self.data_offset).map_err(io::Error::other)?;
                self.started = true;
            }
            if !data.next_chunk(&mut self.buffer).map_err(io::Error::other)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let count = wanted.min(self.buffer.len() - self.taken);
        out[..count].copy_from_slice(&self.buffer[self.taken..self.taken + count]);
        self.taken += count;
        *length -= count as u64;
        Ok(count)
    }
}

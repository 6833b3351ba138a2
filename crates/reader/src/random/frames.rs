//! Frames by container and payload offset, for several threads: opened in memory, sealed on disk,
//! or from the store.
//!
//! Invariants
//! * A frame that several threads need at once is fetched once. The others wait for it, and for
//!   nothing else: no lock is held during a request.
//! * Opened frames take the configured bytes of memory. One frame more may be in use for each
//!   thread.
//!
//! Frames come out as they were opened, which proves that they are frames of that container. The
//! caller compares chunks with their fingerprints.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use larder_format::compress::Decompressor;
use larder_format::container::{ContainerIndex, FrameLocation};
use larder_format::ids::ContainerId;
use larder_format::names;
use larder_index::Executor;
use larder_store::byte_lru::ByteLru;
use larder_store::container_reader::OpenContainer;
use larder_store::{Repository, RepositoryError};
use lru::LruCache;
use parking_lot::{Condvar, Mutex};
use tokio::sync::OnceCell;

use super::disk_frames::{DiskFrames, FrameKey};
use crate::container_cache::{FetchCounters, Opened};

/// Bytes of memory that the tables of a container take, nearly: places of frames and their opener.
const TABLES_BYTES: usize = 4 << 10;
/// The least number of containers whose tables are kept.
const TABLES_MIN: usize = 16;

type Tables = Arc<OnceCell<Arc<ContainerIndex>>>;
/// Parts of an object that were read, each with its offset.
type Parts = Vec<(u64, Bytes)>;

/// See the module header.
pub(super) struct Frames {
    repository: Repository,
    executor: Executor,
    counters: Arc<FetchCounters>,
    state: Mutex<State>,
    tables: Mutex<LruCache<ContainerId, Tables>>,
    pub(super) disk: Option<DiskFrames>,
}

struct State {
    opened: ByteLru<FrameKey, Arc<Vec<u8>>>,
    coming: HashMap<FrameKey, Arc<Flight>>,
}

/// A frame that some thread fetches.
#[derive(Default)]
struct Flight {
    /// `Some(None)`: it failed.
    landed: Mutex<Option<Option<Arc<Vec<u8>>>>>,
    waiting: Condvar,
}

impl Flight {
    fn wait(&self) -> Option<Arc<Vec<u8>>> {
        let mut landed = self.landed.lock();
        loop {
            match &*landed {
                Some(raw) => return raw.clone(),
                None => self.waiting.wait(&mut landed),
            }
        }
    }
}

/// Who gets a frame.
enum Claim<'a> {
    Opened(Arc<Vec<u8>>),
    Wait(Arc<Flight>),
    Ours(Landing<'a>),
}

/// The duty to fetch a frame. A drop without a frame lets the next thread try.
struct Landing<'a> {
    frames: &'a Frames,
    key: FrameKey,
    flight: Arc<Flight>,
    raw: Option<Arc<Vec<u8>>>,
}

impl Landing<'_> {
    /// Gives the frame to all that wait for it.
    fn land(mut self, raw: &Arc<Vec<u8>>) {
        self.raw = Some(raw.clone());
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let mut state = self.frames.state.lock();
        state.coming.remove(&self.key);
        if let Some(raw) = &self.raw {
            state.opened.put(self.key, raw.clone(), raw.len());
        }
        drop(state);
        *self.flight.landed.lock() = Some(self.raw.take());
        self.flight.waiting.notify_all();
    }
}

impl Frames {
    /// `memory`: bytes of opened frames. `tables`: bytes for the tables of containers.
    pub(super) fn new(
        repository: Repository,
        executor: Executor,
        counters: Arc<FetchCounters>,
        memory: usize,
        tables: usize,
        disk: Option<DiskFrames>,
    ) -> Self {
        let state = State { opened: ByteLru::new(memory), coming: HashMap::new() };
        let containers = NonZeroUsize::new((tables / TABLES_BYTES).max(TABLES_MIN)).unwrap_or(NonZeroUsize::MIN);
        let tables = Mutex::new(LruCache::new(containers));
        Self { repository, executor, counters, state: Mutex::new(state), tables, disk }
    }

    /// Counts of what was fetched.
    pub(super) fn counters(&self) -> &Arc<FetchCounters> {
        &self.counters
    }

    /// The frame with a payload byte of a container; `None`: no frame has it.
    pub(super) fn get(&self, id: ContainerId, offset: u32) -> Result<Option<Opened>, RepositoryError> {
        let mut known = Parts::new();
        let tables = self.executor.block_on(self.tables(id, &mut known))?;
        let Some(frame) = tables.frame_at(offset).copied() else { return Ok(None) };
        let payload_offset = frame.payload_offset;
        loop {
            let raw = match self.claim((id, frame.number)) {
                Claim::Opened(raw) => raw,
                Claim::Wait(flight) => match flight.wait() {
                    Some(raw) => raw,
                    None => continue,
                },
                Claim::Ours(landing) => {
                    let mut ours = vec![(frame, landing)];
                    match self.load(&tables, &mut ours, known)?.pop() {
                        Some(raw) => raw,
                        None => return Ok(None),
                    }
                }
            };
            return Ok(Some(Opened { payload_offset, raw }));
        }
    }

    /// Fetches the frames that hold any of these payload bytes (in rising order), except those at
    /// hand and under way. All are requested together.
    pub(super) fn fetch(&self, id: ContainerId, wanted: &[Range<u32>]) -> Result<(), RepositoryError> {
        let mut known = Parts::new();
        let tables = self.executor.block_on(self.tables(id, &mut known))?;
        let mut ours: Vec<(FrameLocation, Landing<'_>)> = Vec::new();
        for frame in wanted.iter().flat_map(|range| tables.frames_of(range)) {
            if ours.last().is_some_and(|(last, _)| last.number >= frame.number) {
                continue;
            }
            if let Claim::Ours(landing) = self.claim((id, frame.number)) {
                ours.push((*frame, landing));
            }
        }
        self.load(&tables, &mut ours, known).map(drop)
    }

    /// Ensures that the frame with a payload byte is on disk.
    pub(super) fn ensure_on_disk(&self, id: ContainerId, offset: u32) -> Result<(), KeepError> {
        let Some(disk) = &self.disk else { return Err(KeepError::NoDisk) };
        let tables = self.executor.block_on(self.tables(id, &mut Parts::new()))?;
        let Some(frame) = tables.frame_at(offset).copied() else { return Ok(()) };
        let key = (id, frame.number);
        if disk.has(&key) {
            return Ok(());
        }
        let range = frame.object_range();
        let sealed = self.executor.block_on(self.repository.store().get_range(&names::container(id), range));
        let sealed = sealed.map_err(RepositoryError::from)?;
        let raw = self.open(&tables, &frame, &mut sealed.to_vec())?;
        disk.put(&tables, &frame, &sealed)?;
        self.state.lock().opened.put(key, raw.clone(), raw.len());
        Ok(())
    }

    fn claim(&self, key: FrameKey) -> Claim<'_> {
        let mut state = self.state.lock();
        if let Some(raw) = state.opened.get(&key) {
            return Claim::Opened(raw);
        }
        if let Some(flight) = state.coming.get(&key) {
            return Claim::Wait(flight.clone());
        }
        let flight = Arc::<Flight>::default();
        state.coming.insert(key, flight.clone());
        Claim::Ours(Landing { frames: self, key, flight, raw: None })
    }

    /// Where the frames of a container are. Its chunks are left out, because there are thousands of
    /// them. Parts of the object that had to be read come back in `known`.
    async fn tables(&self, id: ContainerId, known: &mut Parts) -> Result<Arc<ContainerIndex>, RepositoryError> {
        if let Some(tables) = self.disk.as_ref().and_then(|disk| disk.tables(&id)) {
            return Ok(tables);
        }
        let cell = self.tables.lock().get_or_insert(id, Arc::default).clone();
        let read = cell.get_or_try_init(|| async {
            let tail = self.repository.read_container_frames(id, &[]).await?;
            self.counters.read(id, &tail);
            known.extend(tail.sealed_parts().1.iter().cloned());
            let mut index = tail.index;
            index.chunks = Vec::new();
            Ok::<_, RepositoryError>(Arc::new(index))
        });
        read.await.cloned()
    }

    /// Opens frames from the disk or the store and lands each. Returns them in order. The first
    /// error is returned, after all others were tried.
    fn load(
        &self,
        tables: &Arc<ContainerIndex>,
        ours: &mut Vec<(FrameLocation, Landing<'_>)>,
        known: Parts,
    ) -> Result<Vec<Arc<Vec<u8>>>, RepositoryError> {
        let mut opened = Vec::with_capacity(ours.len());
        let mut missing = Vec::new();
        for (frame, landing) in ours.drain(..) {
            match self.read_disk(tables, &frame) {
                Some(raw) => {
                    landing.land(&raw);
                    opened.push(raw);
                }
                None => missing.push((frame, landing)),
            }
        }
        if missing.is_empty() {
            return Ok(opened);
        }
        let wanted: Vec<_> = missing.iter().map(|(frame, _)| frame.payload_range()).collect();
        let read = self.repository.read_more_frames((**tables).clone(), &wanted, known);
        let container = self.executor.block_on(read)?;
        self.counters.read(tables.id, &container);
        let mut failed = None;
        for (frame, landing) in missing {
            match self.open_fetched(tables, &container, &frame) {
                Ok(raw) => {
                    landing.land(&raw);
                    opened.push(raw);
                }
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        failed.map_or(Ok(opened), Err)
    }

    fn read_disk(&self, tables: &ContainerIndex, frame: &FrameLocation) -> Option<Arc<Vec<u8>>> {
        let disk = self.disk.as_ref()?;
        let key = (tables.id, frame.number);
        let mut sealed = Vec::new();
        let stored = disk.read(&key, &mut sealed)?;
        match self.open(tables, frame, &mut sealed) {
            Ok(raw) => {
                self.counters.disk_hit(u64::from(frame.entry.sealed_len));
                Some(raw)
            }
            // Its blocks were used again meanwhile, or the file is damaged.
            Err(error) => {
                tracing::debug!(%error, "a frame in the disk cache does not open");
                disk.remove(&key, &stored);
                None
            }
        }
    }

    /// Opens a frame that was read. One that does not open is requested once more: it may have been
    /// damaged on its way.
    fn open_fetched(
        &self,
        tables: &Arc<ContainerIndex>,
        container: &OpenContainer,
        frame: &FrameLocation,
    ) -> Result<Arc<Vec<u8>>, RepositoryError> {
        let mut sealed = container.sealed(frame).unwrap_or_default().to_vec();
        let raw = match self.open(tables, frame, &mut sealed) {
            Ok(raw) => raw,
            Err(_) => {
                let name = names::container(tables.id);
                let again = self.executor.block_on(self.repository.store().get_range(&name, frame.object_range()))?;
                let raw = self.open(tables, frame, &mut again.to_vec())?;
                self.keep(tables, frame, &again);
                return Ok(raw);
            }
        };
        self.keep(tables, frame, container.sealed(frame).unwrap_or_default());
        Ok(raw)
    }

    fn keep(&self, tables: &Arc<ContainerIndex>, frame: &FrameLocation, sealed: &[u8]) {
        if let Some(disk) = &self.disk {
            match disk.put(tables, frame, sealed) {
                Ok(()) => self.counters.disk_written(sealed.len() as u64),
                // Hydration asks for it again and reports this.
                Err(error) => tracing::debug!(%error, "a frame was not kept on disk"),
            }
        }
    }

    fn open(
        &self,
        tables: &ContainerIndex,
        frame: &FrameLocation,
        sealed: &mut [u8],
    ) -> Result<Arc<Vec<u8>>, RepositoryError> {
        let mut raw = vec![0; frame.entry.raw_len as usize];
        let (keys, opener) = (self.repository.keys(), tables.opener());
        opener
            .open_frame(keys, frame, sealed, &mut raw, &mut Decompressor::new())
            .map_err(|source| RepositoryError::Damaged { name: names::container(tables.id), source })?;
        Ok(Arc::new(raw))
    }
}

/// Why a frame cannot be kept on disk.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeepError {
    #[error("there is no disk cache")]
    NoDisk,
    #[error(transparent)]
    Disk(#[from] std::io::Error),
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

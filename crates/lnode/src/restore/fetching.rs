//! Fetches the containers of windows ahead of need.
//!
//! One budget of memory and one number of requests hold for all windows of a restore. Windows ask
//! one after the other: the containers of the next one are requested when all of the present one
//! are, so none waits for memory that a later window holds.
//!
//! Where memory is for fewer whole containers than requests may be under way, each is read in
//! pieces side by side.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, unbounded};
use larder_format::ids::ContainerId;
use larder_job::JobContext;
use larder_reader::read_plan;
use larder_store::container_reader::OpenContainer;
use larder_store::{Repository, RepositoryError};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;

/// The unit of memory, in bytes.
const MEMORY_UNIT: u64 = 1 << 10;

/// A container to fetch: the ranges to read (`None`: all of it), and bytes of memory.
#[derive(Debug, Clone)]
pub(super) struct FetchTask {
    pub(super) id: ContainerId,
    pub(super) ranges: Option<Vec<Range<u32>>>,
    pub(super) bytes: u64,
    /// Requests for all of it, side by side. More than one only if `bytes` is its exact size.
    pub(super) pieces: u64,
}

/// A fetched container, and the memory it takes until it is written.
pub(super) struct Fetched {
    pub(super) id: ContainerId,
    pub(super) container: Result<OpenContainer, RepositoryError>,
    /// None: nothing else is fetched meanwhile.
    pub(super) memory: Option<OwnedSemaphorePermit>,
    /// Held until the container is written, if nothing is read ahead.
    pub(super) turn: Option<OwnedSemaphorePermit>,
    /// An earlier window has read it.
    pub(super) is_handed: bool,
    /// It has all of its frames.
    pub(super) is_whole: bool,
}

/// See the module header.
pub(super) struct Fetcher {
    repository: Repository,
    runtime: Handle,
    memory: Arc<Semaphore>,
    units: u32,
    /// Requests under way.
    turns: Arc<Semaphore>,
    /// The number of them at most.
    streams: usize,
    /// Ends when all tasks so far are requested.
    last: Mutex<Option<oneshot::Receiver<()>>>,
}

/// The requested containers of a window.
#[derive(Debug, Default)]
pub(super) struct Asked {
    containers: Mutex<HashSet<ContainerId>>,
    /// No more are requested.
    stop: AtomicBool,
}

impl Asked {
    /// The container will arrive, and need not be requested. `false`: it was requested before.
    pub(super) fn insert(&self, id: ContainerId) -> bool {
        self.containers.lock().insert(id)
    }
}

/// The requests of a window. Dropped, it makes no more, and what arrives is dropped.
pub(super) struct Fetches {
    out: Option<Sender<Fetched>>,
    pub(super) arriving: Receiver<Fetched>,
    asked: Arc<Asked>,
    feeders: Vec<JoinHandle<()>>,
    /// Containers that are requested, or will be.
    listed: HashSet<ContainerId>,
}

pub(super) async fn read(
    repository: &Repository,
    id: ContainerId,
    ranges: Option<Vec<Range<u32>>>,
) -> Result<OpenContainer, RepositoryError> {
    match ranges {
        Some(ranges) => repository.read_container_frames(id, &ranges).await,
        None => repository.read_container(id).await,
    }
}

impl Fetcher {
    /// `memory`: bytes of containers being fetched or written. `prefetch`: requests under way; 0:
    /// one, after the previous container was written.
    pub(super) fn new(context: &JobContext, memory: usize, prefetch: usize) -> Self {
        let units = u32::try_from(memory as u64 / MEMORY_UNIT).unwrap_or(u32::MAX).max(2);
        Self {
            repository: context.repository.clone(),
            runtime: context.executor.handle(),
            memory: Arc::new(Semaphore::new(units as usize)),
            units,
            turns: Arc::new(Semaphore::new(prefetch.max(1))),
            streams: prefetch,
            last: Mutex::default(),
        }
    }

    /// Whether containers are fetched before the window that needs them is executed.
    pub(super) fn is_ahead(&self) -> bool {
        self.streams > 0
    }

    /// Requests for a whole container of this size.
    pub(super) fn pieces(&self, bytes: u64) -> u64 {
        read_plan::pieces(bytes, u64::from(self.units) * MEMORY_UNIT, self.streams)
    }

    /// Units of memory that a container of this size counts for.
    pub(super) fn units(&self, bytes: u64) -> u32 {
        bytes.div_ceil(MEMORY_UNIT).clamp(1, u64::from(self.units / 2)) as u32
    }

    /// Units of memory for containers that the next window needs too.
    pub(super) fn room_for_kept(&self) -> u32 {
        self.units / 2
    }

    /// Requests these containers in their order, as many at a time as memory allows.
    pub(super) fn ask(&self, fetches: &mut Fetches, mut tasks: Vec<FetchTask>) {
        let Some(out) = fetches.out.clone() else { return };
        tasks.retain(|task| fetches.listed.insert(task.id));
        let (repository, asked, is_ahead) = (self.repository.clone(), fetches.asked.clone(), self.is_ahead());
        let (memory, turns) = (self.memory.clone(), self.turns.clone());
        let tasks: Vec<_> = tasks.into_iter().map(|task| (self.units(task.bytes), task)).collect();
        let (ended, end) = oneshot::channel();
        let before = self.last.lock().replace(end);
        fetches.feeders.push(self.runtime.spawn(async move {
            if let Some(before) = before {
                // An error when that feeder has ended, too.
                let _ = before.await;
            }
            for (units, FetchTask { id, ranges, bytes, pieces }) in tasks {
                let Ok(permit) = memory.clone().acquire_many_owned(units).await else { return };
                let turn = match pieces > 1 {
                    // Each piece takes one.
                    true => None,
                    false => turns.clone().acquire_owned().await.ok(),
                };
                if asked.stop.load(Ordering::Relaxed) {
                    return;
                }
                if !asked.insert(id) {
                    continue;
                }
                let (repository, out, turns) = (repository.clone(), out.clone(), turns.clone());
                let is_whole = ranges.is_none();
                tokio::spawn(async move {
                    let container = match pieces > 1 {
                        true => repository.read_container_in_pieces(id, bytes, pieces, &turns).await,
                        false => read(&repository, id, ranges).await,
                    };
                    let turn = turn.filter(|_| !is_ahead);
                    // Fails when the window was abandoned.
                    let memory = Some(permit);
                    let _ = out.send(Fetched { id, container, memory, turn, is_handed: false, is_whole });
                });
            }
            drop(ended);
        }));
    }
}

impl Fetches {
    pub(super) fn new() -> Self {
        // Bounded by the memory of all containers under way.
        let (out, arriving) = unbounded();
        let (asked, listed) = Default::default();
        Self { out: Some(out), arriving, asked, feeders: Vec::new(), listed }
    }

    /// Where containers that were not requested may arrive, and what was asked for.
    pub(super) fn entrance(&self) -> Option<(Sender<Fetched>, Arc<Asked>)> {
        Some((self.out.clone()?, self.asked.clone()))
    }

    /// No more will be asked for: the stream of containers ends with the last of them.
    pub(super) fn end(&mut self) {
        self.out = None;
    }

    /// Requests no more containers.
    pub(super) fn stop(&self) {
        self.asked.stop.store(true, Ordering::Relaxed);
    }

    /// Whether no more containers are requested.
    pub(super) fn is_stopped(&self) -> bool {
        self.asked.stop.load(Ordering::Relaxed)
    }

    /// The container is requested by other means.
    pub(super) fn note(&self, id: ContainerId) {
        self.asked.insert(id);
    }

    /// Whether the container was requested.
    pub(super) fn has(&self, id: &ContainerId) -> bool {
        self.asked.containers.lock().contains(id)
    }
}

impl Drop for Fetches {
    fn drop(&mut self) {
        self.feeders.iter().for_each(JoinHandle::abort);
    }
}

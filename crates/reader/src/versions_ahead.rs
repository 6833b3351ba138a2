//! Versions that are read one after the other: the manifests of the next ones, and what is new of
//! their metadata, are fetched meanwhile.
//!
//! Versions of a series share most of their metadata, and each has a container or two of its own. A
//! reader that asks for these when it gets there waits for the store several times a version.
//!
//! Memory: a number of manifests and of their bytes, and a part of the cache of metadata.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::manifest::{ContainerUsage, Manifest};
use larder_index::Task;
use larder_job::JobContext;
use larder_store::catalog::Version;
use larder_store::manifests::ManifestWindow;
use larder_store::{Repository, RepositoryError};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::read_lease::or_lower;
use crate::recipe_reader::{CONTAINERS_ONE_IN, MetaChunks};

/// Divisor of a job's memory that gives the part for metadata which is fetched ahead. It is less
/// than the cache has, so that nothing is evicted before it is used.
const AHEAD_ONE_IN: usize = 12;

/// The same for manifests that are read ahead. One alone may be larger.
const MANIFESTS_ONE_IN: u64 = 8;

/// A manifest as a reader wants it; `None`: the version is forgotten.
pub type ReadManifest = Result<Option<Manifest>, RepositoryError>;

/// Reads the manifest of one version.
type Read = dyn Fn(Repository, Version) -> BoxFuture<'static, ReadManifest> + Send + Sync;

/// What was fetched of one version.
struct Fetched {
    manifest: ReadManifest,
    /// Room for the metadata that was fetched with it.
    room: Option<OwnedSemaphorePermit>,
}

/// See the module header.
pub struct VersionsAhead<'v> {
    context: JobContext,
    chunks: MetaChunks,
    window: ManifestWindow,
    read: Arc<Read>,
    rest: std::slice::Iter<'v, Version>,
    next: Option<&'v Version>,
    under_way: VecDeque<(&'v Version, Task<Fetched>)>,
    /// Bytes of the manifests that are under way.
    bytes: u64,
    /// Containers that were fetched, or are being fetched.
    asked: Arc<Mutex<HashSet<ContainerId>>>,
    /// Room for metadata, in bytes.
    room: Arc<Semaphore>,
    /// That of the version that is being read now.
    held: Option<OwnedSemaphorePermit>,
}

impl std::fmt::Debug for VersionsAhead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionsAhead").field("under_way", &self.under_way.len()).finish_non_exhaustive()
    }
}

impl<'v> VersionsAhead<'v> {
    /// Reads these versions for looking: nothing is announced.
    pub fn looking(context: &JobContext, chunks: &MetaChunks, versions: &'v [Version]) -> Self {
        let read = |repository: Repository, version: Version| -> BoxFuture<'static, ReadManifest> {
            Box::pin(async move {
                let read = repository.manifest(&version).await.map(Some);
                or_lower(&repository, &version, read).await
            })
        };
        Self::new(context, chunks, versions, ManifestWindow::default(), read)
    }

    /// Reads these versions, each by `read`, in their order. Metadata gets into the caches of
    /// `chunks`.
    pub fn new(
        context: &JobContext,
        chunks: &MetaChunks,
        versions: &'v [Version],
        window: ManifestWindow,
        read: impl Fn(Repository, Version) -> BoxFuture<'static, ReadManifest> + Send + Sync + 'static,
    ) -> Self {
        let window = ManifestWindow { bytes: window.bytes.min(context.memory as u64 / MANIFESTS_ONE_IN), ..window };
        let room = (context.memory / AHEAD_ONE_IN).min(Semaphore::MAX_PERMITS);
        Self {
            context: context.clone(),
            chunks: chunks.clone(),
            window,
            read: Arc::new(read),
            rest: versions.iter(),
            next: None,
            under_way: VecDeque::new(),
            bytes: 0,
            asked: Arc::default(),
            room: Arc::new(Semaphore::new(room)),
            held: None,
        }
    }

    /// Bytes that a manifest counts for.
    fn bytes_of(&self, version: &Version) -> u64 {
        if version.manifest_bytes == 0 { self.window.unknown_bytes } else { version.manifest_bytes }
    }

    fn fill(&mut self) {
        while let Some(version) = self.next.take().or_else(|| self.rest.next()) {
            let bytes = self.bytes_of(version);
            let has_room =
                self.under_way.len() < self.window.manifests && self.bytes.saturating_add(bytes) <= self.window.bytes;
            if !has_room && !self.under_way.is_empty() {
                self.next = Some(version);
                return;
            }
            self.bytes += bytes;
            let read = (self.read)(self.context.repository.clone(), version.clone());
            let (chunks, asked, room) = (self.chunks.clone(), self.asked.clone(), self.room.clone());
            let task = self.context.executor.spawn(async move {
                let manifest = read.await;
                let new = match &manifest {
                    Ok(Some(manifest)) => new_metadata(&manifest.containers, &asked, &room),
                    Ok(None) | Err(_) => (Vec::new(), None),
                };
                let (ids, room) = new;
                // The reader of the version meets a failure again, and reports it.
                futures::future::join_all(ids.iter().map(|id| chunks.fetch(*id))).await;
                Fetched { manifest, room }
            });
            self.under_way.push_back((version, task));
        }
    }
}

impl<'v> Iterator for VersionsAhead<'v> {
    type Item = (&'v Version, ReadManifest);

    /// The next version. Blocks.
    fn next(&mut self) -> Option<Self::Item> {
        self.held = None;
        self.fill();
        let (version, mut task) = self.under_way.pop_front()?;
        self.bytes = self.bytes.saturating_sub(self.bytes_of(version));
        let fetched = self.context.executor.block_on(task.finished());
        let manifest = match fetched {
            Some(Fetched { manifest, room }) => {
                self.held = room;
                manifest
            }
            // The runtime ended the task: the version is read here.
            None => self.context.executor.block_on((self.read)(self.context.repository.clone(), version.clone())),
        };
        self.fill();
        Some((version, manifest))
    }
}

/// Requests for metadata of one version under way.
const METADATA_REQUESTS: usize = 16;

/// Begins to fetch the metadata containers of one version, side by side: all of them if the cache
/// holds them, otherwise as far as there is room.
pub(crate) fn fetch_metadata(context: &JobContext, chunks: &MetaChunks, containers: &[ContainerUsage]) {
    if context.executor.is_in_turns() {
        return;
    }
    let metadata = containers.iter().filter(|usage| usage.container.kind == ContainerKind::Meta);
    let all = metadata.fold(0_u64, |sum, usage| sum.saturating_add(usage.object_bytes));
    let cache = context.memory / CONTAINERS_ONE_IN;
    let room = if all <= cache as u64 { cache } else { context.memory / AHEAD_ONE_IN };
    let room = Arc::new(Semaphore::new(room.min(Semaphore::MAX_PERMITS)));
    let (ids, room) = new_metadata(containers, &Mutex::default(), &room);
    let chunks = chunks.clone();
    context.executor.detach(async move {
        let _room = room;
        let fetch = move |id| {
            let chunks = chunks.clone();
            async move { chunks.fetch(id).await }
        };
        let mut fetched = futures::stream::iter(ids.into_iter().map(fetch)).buffer_unordered(METADATA_REQUESTS);
        // The reader meets a failure again, and reports it.
        while fetched.next().await.is_some() {}
    });
}

/// The metadata containers of a version that were not asked for before, as far as there is room.
/// They are asked for from now on.
fn new_metadata(
    containers: &[ContainerUsage],
    asked: &Mutex<HashSet<ContainerId>>,
    room: &Arc<Semaphore>,
) -> (Vec<ContainerId>, Option<OwnedSemaphorePermit>) {
    let (mut ids, mut held): (Vec<ContainerId>, Option<OwnedSemaphorePermit>) = (Vec::new(), None);
    let mut asked = asked.lock();
    for usage in containers.iter().filter(|usage| usage.container.kind == ContainerKind::Meta) {
        if asked.contains(&usage.container) {
            continue;
        }
        let Ok(bytes) = u32::try_from(usage.object_bytes) else { continue };
        let Ok(permit) = room.clone().try_acquire_many_owned(bytes) else { break };
        match &mut held {
            Some(held) => held.merge(permit),
            None => held = Some(permit),
        }
        asked.insert(usage.container);
        ids.push(usage.container);
    }
    (ids, held)
}

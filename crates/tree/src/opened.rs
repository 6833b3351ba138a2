//! Snapshots that are in use: each is pinned by a lease of its own from the first access on, and
//! let go some time after the last.
//!
//! One lease for each snapshot needs no rule of leases that other readers do not have: the lease
//! names the snapshot, then the snapshot is looked at in the store, and only then it is read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use larder_format::ids::JobId;
use larder_format::manifest::{Manifest, Statistics};
use larder_job::JobContext;
use larder_reader::{FetchOptions, FrameCache, MetaChunks, RandomReader, ReadError, Reading, VersionReader};
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use parking_lot::Mutex;

use crate::error::TreeError;
use crate::links::Links;
use crate::metadata::{Metadata, MetadataCache};

/// Snapshots that are pinned at the same time, as far as no file of more of them is open.
const OPENED_MAX: usize = 64;
/// A lost lease that could not be replaced is tried again after this time, in milliseconds.
const RETRY_MS: u64 = 30_000;
/// Requests that use a snapshot look at it for less than this time.
const MOMENT: Duration = Duration::from_millis(50);
/// Snapshots whose contents are read at the same time: each has threads for reading ahead.
pub(crate) const READERS_MAX: usize = 4;
/// The part of the memory for decoded blocks of metadata: one in this number.
const BLOCKS_ONE_IN: usize = 12;
/// The part of the memory for segments of metadata: one in this number.
const SEGMENTS_ONE_IN: usize = 24;

/// A snapshot in use.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) version: Arc<Version>,
    pub(crate) metadata: Metadata,
    manifest: Manifest,
    reading: Mutex<Option<Reading>>,
    data: Mutex<Option<Arc<RandomReader>>>,
    links: Mutex<Option<Arc<Links>>>,
    /// When it was used last, by the clock of the job.
    used_ms: AtomicU64,
}

impl Opened {
    /// Whether its lease does not count any more.
    fn has_lost_lease(&self) -> bool {
        self.reading.lock().as_ref().is_some_and(|reading| reading.expect_lease().is_err())
    }

    /// Replaces the lease. Nothing takes the place of one that has ended.
    fn replace_lease(&self, again: Reading) {
        let mut reading = self.reading.lock();
        let ended = if reading.is_some() { reading.replace(again) } else { Some(again) };
        drop(reading);
        if let Some(ended) = ended {
            ended.end();
        }
    }

    /// The snapshot was forgotten: no lease protects it again.
    fn end_lease(&self) {
        let lost = self.reading.lock().take();
        if let Some(lost) = lost {
            lost.end();
        }
    }

    /// Whether the snapshot is forgotten and not protected: missing objects are no damage then.
    pub(crate) fn is_forgotten(&self) -> bool {
        let reading = self.reading.lock();
        reading.as_ref().is_none_or(|reading| {
            let is_protected = reading.has_lease() && reading.expect_lease().is_ok();
            !is_protected && reading.is_forgotten()
        })
    }

    /// How many names each file has.
    pub(crate) fn links(&self) -> Result<Arc<Links>, RepositoryError> {
        // Others wait, because they need it too.
        let mut links = self.links.lock();
        if let Some(links) = &*links {
            return Ok(links.clone());
        }
        // Hard links count as files. One alone has no other name, as in streams and disk images.
        let Statistics { files_new, files_changed, files_unmodified, others, .. } = self.version.summary.statistics;
        let has_several = files_new + files_changed + files_unmodified + others > 1;
        let counted = Arc::new(if has_several { Links::count(&self.metadata)? } else { Links::default() });
        if counted.is_partial {
            tracing::warn!(snapshot = %self.version.id(), "it has too many hard links; some files show too few names");
        }
        Ok(links.insert(counted).clone())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(reading) = self.reading.get_mut().take() {
            reading.end();
        }
    }
}

/// The place of a snapshot among those in use. Its lock is held while it is opened.
type Place = Arc<Mutex<Option<Arc<Opened>>>>;

/// All snapshots in use.
#[derive(Debug)]
pub(crate) struct Pins {
    context: JobContext,
    options: FetchOptions,
    frames: FrameCache,
    chunks: MetaChunks,
    cache: Arc<MetadataCache>,
    places: Mutex<HashMap<JobId, Place>>,
    /// Snapshots with open files that were replaced meanwhile.
    replaced: Mutex<Vec<Weak<Opened>>>,
    keep_ms: u64,
    /// Lost leases are not replaced before this time, by the clock of the job.
    retry_ms: AtomicU64,
}

impl Pins {
    /// Snapshots are let go when they were not used for `keep_ms`, in milliseconds.
    pub(crate) fn new(context: &JobContext, options: FetchOptions, keep_ms: u64) -> Result<Self, TreeError> {
        let cache = MetadataCache::new(context.memory / BLOCKS_ONE_IN, context.memory / SEGMENTS_ONE_IN);
        // What is left of the memory has the usual division.
        let context = JobContext { memory: context.memory / 8 * 7, ..context.clone() };
        Ok(Self {
            frames: FrameCache::new(&context, &options)?,
            chunks: MetaChunks::new(&context),
            cache: Arc::new(cache),
            places: Mutex::default(),
            replaced: Mutex::default(),
            retry_ms: AtomicU64::new(0),
            options,
            context,
            keep_ms,
        })
    }

    /// The cache of frames of all snapshots.
    pub(crate) fn frames(&self) -> &FrameCache {
        &self.frames
    }

    /// A snapshot for use. It is pinned first if it is not.
    pub(crate) fn open(&self, version: &Arc<Version>) -> Result<Arc<Opened>, TreeError> {
        let now = self.context.clock.now_ms();
        let place = self.places.lock().entry(version.id()).or_default().clone();
        let mut place = place.lock();
        if let Some(opened) = &*place {
            opened.used_ms.store(now, Ordering::Relaxed);
            return Ok(opened.clone());
        }
        self.make_room();
        let (reading, manifest) = Reading::begin(&self.context, version).map_err(|error| match error {
            ReadError::Forgotten { id } => TreeError::Forgotten { id },
            ReadError::Repository(error) => TreeError::Repository(error),
        })?;
        let reader = VersionReader::knowing(&self.context, manifest, &self.chunks);
        let manifest = reader.manifest().clone();
        let recipe = reader.metadata_recipe();
        let (recipe, chunks) = (Arc::new(recipe.recipe().clone()), recipe.chunks().clone());
        let opened = Arc::new(Opened {
            metadata: Metadata::new(version.id(), recipe, chunks, self.cache.clone()),
            version: version.clone(),
            manifest,
            reading: Mutex::new(Some(reading)),
            data: Mutex::default(),
            links: Mutex::default(),
            used_ms: AtomicU64::new(now),
        });
        Ok(place.insert(opened).clone())
    }

    /// Snapshots in use that a lease protects.
    pub(crate) fn protected(&self) -> Vec<Arc<Version>> {
        let is_protected = |opened: &Arc<Opened>| {
            opened.reading.lock().as_ref().is_some_and(|reading| reading.has_lease() && reading.expect_lease().is_ok())
        };
        // A request holds the lock of a place only for a moment, or the first one opens it.
        let places: Vec<Place> = self.places.lock().values().cloned().collect();
        let opened = places.iter().filter_map(|place| place.try_lock_for(MOMENT)?.clone());
        opened.filter(is_protected).map(|opened| opened.version.clone()).collect()
    }

    /// The reader of a snapshot's contents.
    pub(crate) fn data(&self, opened: &Opened) -> Arc<RandomReader> {
        self.touch(opened);
        if let Some(data) = &*opened.data.lock() {
            return data.clone();
        }
        self.end_readers();
        let mut data = opened.data.lock();
        let open = || {
            let reader = VersionReader::knowing(&self.context, opened.manifest.clone(), &self.chunks);
            let reader = reader.fetching(self.options.clone());
            Arc::new(RandomReader::of_stream(reader, &self.frames, READERS_MAX))
        };
        data.get_or_insert_with(open).clone()
    }

    /// A snapshot is used now.
    pub(crate) fn touch(&self, opened: &Opened) {
        opened.used_ms.store(self.context.clock.now_ms(), Ordering::Relaxed);
    }

    /// Lets unused snapshots go, and replaces leases that do not count any more. Returns the ids of
    /// snapshots that were forgotten without a lease.
    pub(crate) fn tidy(&self) -> Vec<JobId> {
        let now = self.context.clock.now_ms();
        self.let_go(|opened| now.saturating_sub(opened.used_ms.load(Ordering::Relaxed)) >= self.keep_ms, usize::MAX);
        let mut forgotten = Vec::new();
        if now < self.retry_ms.load(Ordering::Relaxed) {
            return forgotten;
        }
        for opened in self.all().into_iter().filter(|opened| opened.has_lost_lease()) {
            match Reading::begin(&self.context, &opened.version) {
                Ok((again, manifest)) => {
                    opened.replace_lease(again);
                    if manifest != opened.manifest {
                        self.supersede(&opened);
                    }
                }
                Err(ReadError::Forgotten { id }) => {
                    opened.end_lease();
                    forgotten.push(id);
                }
                // Others would wait for the same store.
                Err(ReadError::Repository(error)) => {
                    tracing::warn!(%error, "a lost lease was not replaced");
                    self.retry_ms.store(self.context.clock.now_ms().saturating_add(RETRY_MS), Ordering::Relaxed);
                    break;
                }
            }
        }
        forgotten
    }

    /// The next access opens a snapshot again, with the manifest that it has now: a pass has moved
    /// data while no lease counted.
    fn supersede(&self, opened: &Arc<Opened>) {
        let is_it = |place: &Place| {
            let place = place.try_lock();
            place.is_some_and(|place| place.as_ref().is_some_and(|other| Arc::ptr_eq(other, opened)))
        };
        self.places.lock().retain(|id, place| *id != opened.version.id() || !is_it(place));
        let mut replaced = self.replaced.lock();
        replaced.retain(|other| other.strong_count() > 0);
        replaced.push(Arc::downgrade(opened));
    }

    /// Lets all go, whether or not they are in use. Closes their leases.
    pub(crate) fn end(&self) {
        for opened in self.all() {
            drop(opened.data.lock().take());
            if let Some(reading) = opened.reading.lock().take() {
                reading.end();
            }
        }
        self.places.lock().clear();
    }

    fn all(&self) -> Vec<Arc<Opened>> {
        let places: Vec<Place> = self.places.lock().values().cloned().collect();
        let mut all: Vec<_> = places.iter().filter_map(|place| place.try_lock()?.clone()).collect();
        let of_open_files: Vec<_> = self.replaced.lock().iter().filter_map(Weak::upgrade).collect();
        let is_more = |opened: &Arc<Opened>| !all.iter().any(|other| Arc::ptr_eq(other, opened));
        let more: Vec<_> = of_open_files.into_iter().filter(is_more).collect();
        all.extend(more);
        all
    }

    /// The least recently used snapshots go until there is room for one more.
    fn make_room(&self) {
        let opened = self.all();
        if opened.len() < OPENED_MAX {
            return;
        }
        let mut used: Vec<u64> = opened.iter().map(|opened| opened.used_ms.load(Ordering::Relaxed)).collect();
        drop(opened);
        used.sort_unstable();
        let excess = used.len() + 1 - OPENED_MAX;
        let newest = used[excess - 1];
        self.let_go(|opened| opened.used_ms.load(Ordering::Relaxed) <= newest, excess);
    }

    /// Lets snapshots go that nothing uses, at most `most` of them.
    fn let_go(&self, may_go: impl Fn(&Opened) -> bool, most: usize) {
        let mut gone = Vec::new();
        self.places.lock().retain(|_, place| {
            // Somebody opens it now, or has just asked for its place.
            if gone.len() >= most || Arc::strong_count(place) > 1 {
                return true;
            }
            let Some(mut opened) = place.try_lock() else { return true };
            match &*opened {
                // Open files and running requests have it too.
                Some(shared) if Arc::strong_count(shared) > 1 || !may_go(shared) => true,
                Some(_) => {
                    gone.extend(opened.take());
                    false
                }
                None => false,
            }
        });
        // Outside of the lock: closing leases takes requests.
        drop(gone);
    }

    /// Ends readers of contents so that one more is not too many. Reads under way keep theirs.
    fn end_readers(&self) {
        let mut reading: Vec<_> = self.all().into_iter().filter(|opened| opened.data.lock().is_some()).collect();
        reading.sort_by_key(|opened| opened.used_ms.load(Ordering::Relaxed));
        let excess = (reading.len() + 1).saturating_sub(READERS_MAX);
        for opened in reading.iter().take(excess) {
            let ended = opened.data.lock().take();
            drop(ended);
        }
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.end();
    }
}

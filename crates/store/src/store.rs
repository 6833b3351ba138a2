//! [`Store`]: the one way everything above reaches stored objects.
//!
//! A store holds named immutable objects. They are created if absent, read whole or in part, listed
//! and deleted; nothing is ever overwritten, because there is no call that could. Names are
//! relative to the repository's prefix.
//!
//! Guarantees of every implementation (and `conformance` checks them against a user's own store)
//! * Of any number of concurrent creators of one name exactly one wins, and the object is the
//!   winner's, whole.
//! * An object is there after its create returned: for reads, for listings, and after a crash of
//!   the machine that holds it.
//! * An object is gone after its delete returned.
//!
//! The result of a failed or dropped create or delete is unknown: it may still take effect.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use larder_format::config::CONFIG_MAX;
use larder_format::ids::RepositoryId;
use larder_format::names;
use object_store::ObjectStore;

use crate::cache::Cached;
use crate::cold::classes::{TIERING, ThawTier};
use crate::cold::{ClassedObject, Classes, Thawed};
use crate::counters::{Counted, Counters, StoreStats};
use crate::error::{StoreError, StoreOp};
use crate::error_kind::StoreErrorKind;
use crate::layer::{Call, Created, Layer, Listed, ReadRange, Reply, Request};
use crate::limit::Limited;
use crate::location::Location;
use crate::name;
use crate::open::{self, Environment};
use crate::options::{CacheOptions, StoreOptions};
use crate::rehearsal::Rehearsal;
use crate::remote::{ListOrder, Remote};
use crate::retry::Retry;
use crate::stall_timeout::StallTimeout;
use crate::tail_cache::{Kept, TailCache};
use crate::unlisted::Unlisted;
use crate::waiting::Waiting;

/// Pauses before an unsound body is read again.
const PAUSES_UNSOUND: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(150), Duration::from_millis(300)];

/// Number of objects with an unsound body that are waited for.
const UNSOUND_WAITED_FOR: u32 = 4;

/// Requests to thaw an object that are under way at once.
const THAWED_AT_ONCE: usize = 16;

/// A repository's objects. Cheap to clone; clones share limits, counters and cache.
#[derive(Clone)]
pub struct Store {
    top: Arc<dyn Layer>,
    /// `top` without the cache.
    uncached: Arc<dyn Layer>,
    /// `top` with the cache for runs of the index alone.
    caching_runs: Arc<dyn Layer>,
    /// Whether all three keep ends of objects in memory.
    remembers_tails: bool,
    cache: Option<Arc<CacheOptions>>,
    counters: Arc<Counters>,
    waiting: Waiting,
    /// Whether proxies or gateways are between us and the objects, and may change answers.
    is_far: bool,
    /// How many objects did not become sound by being read again.
    unsound: Arc<AtomicU32>,
    /// Where entries are noted that a listing cannot examine. Without it they end the listing.
    unlisted: Option<Arc<Unlisted>>,
    /// Whether the store said that it keeps old versions of objects.
    keeps_versions: Arc<AtomicBool>,
    /// Whether an answer came from `rclone serve s3`.
    is_rclone: Arc<AtomicBool>,
    /// What asks for storage classes, where there are any.
    classes: Option<Arc<Classes>>,
    /// Whether a class was chosen for data.
    has_data_class: bool,
    /// Whether thawed objects are left as they are.
    leaves_thawed: bool,
    /// For messages only.
    shown: Arc<str>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.shown).finish()
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Store {
    /// Opens the store at a location, with credentials from the process's environment. Sends
    /// nothing: whether anything is there shows with the first request.
    pub fn open(location: &Location, options: &StoreOptions) -> Result<Self, StoreError> {
        Self::open_with(location, options, &Environment::of_process())
    }

    /// The same with variables of the caller's choice.
    pub fn open_with(location: &Location, options: &StoreOptions, env: &Environment) -> Result<Self, StoreError> {
        let (keeps_versions, is_rclone) = (Arc::default(), Arc::default());
        let mut transport = open::transport(location, options, env, &keeps_versions, &is_rclone)?;
        if let Some(folder) = &options.rehearse_in {
            let failed = |error| StoreError::from_io(StoreOp::Open, &folder.display().to_string(), error);
            transport = Arc::new(Rehearsal::new(transport, folder).map_err(failed)?);
        }
        let is_far = !matches!(location, Location::Local(_));
        let classes = open::classes(location, options, env)?.map(Arc::new);
        let has_data_class = classes.is_some() && options.s3.storage_class.is_some();
        let store = Self::over(transport, location.to_string(), options, is_far);
        Ok(Self { keeps_versions, is_rclone, classes, has_data_class, ..store })
    }

    /// Wraps any client of `object_store`, with the repository below `prefix`. Retries of its own
    /// must be off.
    pub fn from_object_store(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        options: &StoreOptions,
    ) -> Result<Self, StoreError> {
        let shown = store.to_string();
        Ok(Self::over(Arc::new(Remote::new(store, prefix, ListOrder::Unknown)), shown, options, true))
    }

    /// Stacks the layers; outer ones wrap inner ones. So a request is repeated, waits for its turn,
    /// is counted, and then timed.
    fn over(transport: Arc<dyn Layer>, shown: String, options: &StoreOptions, is_far: bool) -> Self {
        let counters = Arc::new(Counters::default());
        let waiting = Waiting::default();
        let timed = StallTimeout { inner: transport, limit: options.attempt_timeout, waiting: waiting.clone() };
        let counted = Counted { inner: Arc::new(timed), counters: counters.clone() };
        let limited = Limited::new(Arc::new(counted), options);
        let top: Arc<dyn Layer> = Arc::new(Retry::new(Arc::new(limited), options, waiting.clone(), is_far));
        let cache = options.cache.clone().map(Arc::new);
        Self {
            uncached: top.clone(),
            caching_runs: top.clone(),
            top,
            remembers_tails: false,
            cache,
            counters,
            waiting,
            is_far,
            unsound: Arc::default(),
            unlisted: None,
            keeps_versions: Arc::default(),
            is_rclone: Arc::default(),
            classes: None,
            has_data_class: false,
            leaves_thawed: false,
            shown: shown.into(),
        }
    }

    /// The same store with a cache of this repository's metadata, if the options ask for one.
    /// Clones made before continue without it. `repository` is the repository's id: two
    /// repositories must never share cached objects.
    #[must_use]
    pub fn with_cache_of(&self, repository: RepositoryId) -> Self {
        let Some(options) = &self.cache else { return self.clone() };
        let cached = Cached::new(self.uncached.clone(), options, &repository.to_string(), self.counters.clone());
        Self { caching_runs: Arc::new(cached.for_runs()), top: Arc::new(cached), ..self.clone() }
    }

    /// The same store, with the cache for runs of the index alone: for passes, which must know what
    /// else is stored.
    #[must_use]
    pub fn caching_runs(&self) -> Self {
        Self { top: self.caching_runs.clone(), ..self.clone() }
    }

    /// The same store without its cache, for callers that must know the stored state.
    #[must_use]
    pub fn without_cache(&self) -> Self {
        Self { top: self.uncached.clone(), ..self.clone() }
    }

    /// The same store, with up to this number of bytes of ends of runs and data containers in
    /// memory, for one task that reads them repeatedly. Requests for the current state still go to
    /// the store. A store that already has this memory continues with it, and also without its
    /// cache.
    #[must_use]
    pub fn remembering_tails(&self, bytes: usize) -> Self {
        if self.remembers_tails {
            return self.clone();
        }
        let kept = Arc::new(Kept::new(bytes));
        let remembering =
            |layer: &Arc<dyn Layer>| -> Arc<dyn Layer> { Arc::new(TailCache::new(layer.clone(), kept.clone())) };
        Self {
            top: remembering(&self.top),
            uncached: remembering(&self.uncached),
            caching_runs: remembering(&self.caching_runs),
            remembers_tails: true,
            ..self.clone()
        }
    }

    /// The same store, whose listings skip entries that cannot be examined and note them here. An
    /// object among them is listed nevertheless, with no bytes, so that reading it gives the
    /// reason. Of a folder nothing is listed.
    ///
    /// For readers, checks and repairs. A caller that decides by what a listing lacks must not use
    /// it.
    #[must_use]
    pub fn past_unlisted(&self, unlisted: &Arc<Unlisted>) -> Self {
        Self { unlisted: Some(unlisted.clone()), ..self.clone() }
    }

    /// The same store, whose listings end at the first entry that cannot be examined.
    #[must_use]
    pub fn listing_strictly(&self) -> Self {
        Self { unlisted: None, ..self.clone() }
    }

    /// The same store, in which thawed objects count as cold: reads of them end with
    /// [`StoreErrorKind::Cold`], as far as answers name a class.
    ///
    /// For passes, which leave cold storage as it is.
    #[must_use]
    pub fn leaving_thawed(&self) -> Self {
        Self { leaves_thawed: true, ..self.clone() }
    }

    /// Whether thawed objects count as cold.
    pub fn leaves_thawed(&self) -> bool {
        self.leaves_thawed
    }

    /// Requests to the store so far, by all clones together.
    pub fn stats(&self) -> StoreStats {
        self.counters.snapshot()
    }

    /// Whether the store keeps deleted objects as old versions, so that deleting frees no space. It
    /// says so when an object is created; before that this is false. Google Cloud Storage does not
    /// say.
    pub fn keeps_versions(&self) -> bool {
        self.keeps_versions.load(Ordering::Relaxed)
    }

    /// Whether the server is `rclone serve s3`, of which only one may serve a repository. An answer
    /// shows it; before that this is false.
    pub fn is_rclone(&self) -> bool {
        self.is_rclone.load(Ordering::Relaxed)
    }

    /// Whether objects can be in classes that must be thawed.
    pub fn has_classes(&self) -> bool {
        self.classes.is_some()
    }

    /// Whether a storage class was chosen for data, which is not that of the bucket.
    pub fn has_data_class(&self) -> bool {
        self.has_data_class
    }

    /// The requests that wait for the store, to end or observe them. Shared by all clones.
    pub fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Creates an object unless its name is taken.
    ///
    /// [`StoreErrorKind::AlreadyExists`] says that another writer's object has the name. If an
    /// attempt's outcome was unknown and the name turns out taken, the object is read back. Equal
    /// content counts as our own. So content that must be told apart has to include something
    /// random or the writer's id.
    pub async fn create(&self, name: &str, bytes: Bytes) -> Result<Created, StoreError> {
        match self.call(name, Request::Create(bytes)).await? {
            Reply::Created(created) => Ok(created),
            Reply::Bytes { .. } | Reply::Size(_) | Reply::Deleted => Err(mismatched(StoreOp::Create, name)),
        }
    }

    /// Creates as [`create`](Self::create) does, in the class of the bucket, also if another one
    /// was chosen for data: somebody will read the object again soon.
    pub async fn create_warm(&self, name: &str, bytes: Bytes) -> Result<Created, StoreError> {
        if !name::is_valid(name) {
            return Err(StoreError::new(StoreOp::Create, name, StoreErrorKind::Invalid).because(InvalidName));
        }
        let call = Call { stays_warm: true, ..Call::new(name, Request::Create(bytes)) };
        match self.top.call(&call).await.map_err(|error| error.at(&self.shown))? {
            Reply::Created(created) => Ok(created),
            Reply::Bytes { .. } | Reply::Size(_) | Reply::Deleted => Err(mismatched(StoreOp::Create, name)),
        }
    }

    /// Creates once more, with the same bytes, an object that this process has just created: the
    /// store must refuse it.
    ///
    /// [`StoreErrorKind::Unconditional`] says that it did not. Otherwise, a fenced job could
    /// replace the mark (rule `ProbedFirst`).
    pub async fn create_again(&self, name: &str, bytes: Bytes) -> Result<Created, StoreError> {
        let call = Call { is_probe: true, ..Call::new(name, Request::Create(bytes)) };
        match self.top.call(&call).await? {
            Reply::Created(refused) => Ok(refused),
            Reply::Bytes { .. } | Reply::Size(_) | Reply::Deleted => Err(mismatched(StoreOp::Create, name)),
        }
    }

    /// Reads a whole object.
    pub async fn get(&self, name: &str) -> Result<Bytes, StoreError> {
        self.read(name, ReadRange::Whole).await.map(|(bytes, _)| bytes)
    }

    /// Reads a whole object of at most `most` bytes. A larger one is [`StoreErrorKind::TooLarge`],
    /// and none of it is kept in memory. A client that can write to the store decides how large an
    /// object is, not how much memory its reader needs.
    pub async fn get_up_to(&self, name: &str, most: u64) -> Result<Bytes, StoreError> {
        self.read(name, ReadRange::WholeUpTo(most)).await.map(|(bytes, _)| bytes)
    }

    /// Reads a whole object of at most `most` bytes as [`get_up_to`](Self::get_up_to) does. A body
    /// that `is_sound` refuses is requested again, past data kept on this machine: a proxy may have
    /// cut or replaced it. The last body is returned in any case.
    pub async fn get_sound(
        &self,
        name: &str,
        most: u64,
        is_sound: impl Fn(&[u8]) -> bool,
    ) -> Result<Bytes, StoreError> {
        self.read_sound(name, ReadRange::WholeUpTo(most), |bytes, _| is_sound(bytes)).await.map(|(bytes, _)| bytes)
    }

    /// The same for a part, as [`get_range`](Self::get_range) reads it.
    pub async fn get_sound_range(
        &self,
        name: &str,
        range: Range<u64>,
        is_sound: impl Fn(&[u8]) -> bool,
    ) -> Result<Bytes, StoreError> {
        if range.is_empty() {
            return self.get_range(name, range).await;
        }
        self.read_sound(name, ReadRange::Span(range), |bytes, _| is_sound(bytes)).await.map(|(bytes, _)| bytes)
    }

    /// The same for the last bytes, as [`get_tail`](Self::get_tail) reads them. `is_sound` also
    /// gets the object's size.
    pub async fn get_sound_tail(
        &self,
        name: &str,
        count: u64,
        is_sound: impl Fn(&[u8], u64) -> bool,
    ) -> Result<(Bytes, u64), StoreError> {
        match count {
            0 => self.get_tail(name, count).await,
            _ => self.read_sound(name, ReadRange::Tail(count), is_sound).await,
        }
    }

    async fn read_sound(
        &self,
        name: &str,
        range: ReadRange,
        is_sound: impl Fn(&[u8], u64) -> bool,
    ) -> Result<(Bytes, u64), StoreError> {
        let (mut bytes, mut size) = self.read(name, range.clone()).await?;
        for pause in PAUSES_UNSOUND {
            if !self.is_far || is_sound(&bytes, size) {
                return Ok((bytes, size));
            }
            tracing::warn!(object = name, bytes = bytes.len(), "the body is not what it should be, reading it again");
            // An attacker who plants many false objects must not cause a wait for each.
            let is_usual = self.unsound.load(Ordering::Relaxed) >= UNSOUND_WAITED_FOR;
            if !self.waiting.sleep(if is_usual { Duration::ZERO } else { pause }).await {
                return Err(StoreError::new(StoreOp::Read, name, StoreErrorKind::Interrupted));
            }
            // Both bodies together would take twice the memory.
            drop(bytes);
            (bytes, size) = self.read_anew(name, range.clone()).await?;
        }
        if is_sound(&bytes, size) {
            return Ok((bytes, size));
        }
        self.unsound.fetch_add(1, Ordering::Relaxed);
        if is_page(&bytes) {
            // One object may be anything. If the configuration is a page as well, the server is no
            // store.
            let config = self.read_anew(names::CONFIG, ReadRange::WholeUpTo(CONFIG_MAX)).await;
            if config.is_ok_and(|(config, _)| is_page(&config)) {
                let start: String = String::from_utf8_lossy(&bytes).trim_start().chars().take(40).collect();
                let error = StoreError::new(StoreOp::Read, name, StoreErrorKind::Foreign);
                return Err(error.because(format!("the answer begins with {start:?}; is this an S3 server?")));
            }
        }
        Ok((bytes, size))
    }

    /// Reads past kept data, and keeps the answer.
    async fn read_anew(&self, name: &str, range: ReadRange) -> Result<(Bytes, u64), StoreError> {
        let call = Call { is_anew: true, ..Call::new(name, Request::Read(range)) };
        self.top.call(&call).await.and_then(|reply| self.bytes_of(name, reply))
    }

    /// Reads a part of an object. An object that ends before the range does is
    /// [`StoreErrorKind::Damaged`]; an empty range is answered without a look at the object.
    pub async fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        if range.start > range.end {
            return Err(StoreError::new(StoreOp::Read, name, StoreErrorKind::Invalid));
        }
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        self.read(name, ReadRange::Span(range)).await.map(|(bytes, _)| bytes)
    }

    /// Reads the last `count` bytes of an object, or all of a smaller one; also returns the
    /// object's size.
    pub async fn get_tail(&self, name: &str, count: u64) -> Result<(Bytes, u64), StoreError> {
        match count {
            0 => Ok((Bytes::new(), self.size(name).await?)),
            _ => self.read(name, ReadRange::Tail(count)).await,
        }
    }

    /// The size of an object in bytes.
    pub async fn size(&self, name: &str) -> Result<u64, StoreError> {
        match self.call(name, Request::Size).await? {
            Reply::Size(size) => Ok(size),
            Reply::Bytes { .. } | Reply::Created(_) | Reply::Deleted => Err(mismatched(StoreOp::Size, name)),
        }
    }

    /// Lists the objects below a folder (`data/`, or empty for all) in the byte order of their
    /// names.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        let mut listed: Vec<Listed> = Vec::new();
        self.list_each(prefix, |object| listed.push(object)).await?;
        listed.sort_unstable();
        Ok(listed)
    }

    /// The same, but `each` gets the objects one by one, in the order of the store. Nothing of them
    /// is kept.
    pub async fn list_each(&self, prefix: &str, mut each: impl FnMut(Listed)) -> Result<(), StoreError> {
        let mut listing = self.list_stream(prefix);
        while let Some(item) = listing.next().await {
            match (item, &self.unlisted) {
                (Ok(object), _) => each(object),
                (Err(error), Some(unlisted)) if error.is_unlisted() => {
                    unlisted.note(error).into_iter().for_each(&mut each);
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(())
    }

    /// Lists the objects below a folder one by one, in the order of the store.
    pub fn list_stream(&self, prefix: &str) -> BoxStream<'static, Result<Listed, StoreError>> {
        match name::folder(prefix) {
            Some(folder) => self.top.list(folder, None),
            None => stream::iter([Err(StoreError::new(StoreOp::List, prefix, StoreErrorKind::Invalid))]).boxed(),
        }
    }

    /// Lists the objects below a folder with their storage classes; `each` gets them one by one.
    /// Returns whether this store has classes that must be thawed: otherwise nothing is listed.
    /// Costs a request for a thousand objects, which is counted as a listing.
    pub async fn list_classes(&self, prefix: &str, each: impl FnMut(ClassedObject)) -> Result<bool, StoreError> {
        let Some(classes) = &self.classes else { return Ok(false) };
        classes.list(prefix, &self.waiting, |count| self.counters.note_lists(count), each).await?;
        Ok(true)
    }

    /// Sets class and warmth of archived objects of `INTELLIGENT_TIERING`, which a listing gives as
    /// readable. Costs a request for each object of that class, which is counted.
    pub async fn look_into_tiers(&self, objects: &mut [ClassedObject]) -> Result<(), StoreError> {
        let Some(classes) = &self.classes else { return Ok(()) };
        let tiered = objects.iter_mut().filter(|object| object.class == TIERING);
        let looks = tiered.map(|object| async move {
            self.counters.note_sizes(1);
            if let Some((tier, warmth)) = classes.archived(&object.name, &self.waiting).await? {
                (object.class, object.warmth) = (tier.to_owned(), warmth);
            }
            Ok::<_, StoreError>(())
        });
        stream::iter(looks).buffer_unordered(THAWED_AT_ONCE).try_collect().await
    }

    /// Asks for objects in cold storage, to be readable for some days. Gives the number of those
    /// for which nobody had asked.
    pub async fn thaw(
        &self,
        objects: impl IntoIterator<Item = &ClassedObject>,
        tier: ThawTier,
        days: u32,
    ) -> Result<u64, StoreError> {
        let Some(classes) = &self.classes else { return Ok(0) };
        let requests =
            objects.into_iter().map(|object| async move { classes.thaw(object, tier, days, &self.waiting).await });
        let mut answers = stream::iter(requests).buffer_unordered(THAWED_AT_ONCE);
        let mut asked = 0;
        while let Some(answer) = answers.next().await {
            asked += u64::from(answer? == Thawed::Asked);
        }
        Ok(asked)
    }

    /// Deletes an object. A missing one counts as deleted.
    pub async fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.call(name, Request::Delete).await.map(drop)
    }

    async fn read(&self, name: &str, range: ReadRange) -> Result<(Bytes, u64), StoreError> {
        self.call(name, Request::Read(range)).await.and_then(|reply| self.bytes_of(name, reply))
    }

    /// The bytes, and the size of the object.
    fn bytes_of(&self, name: &str, reply: Reply) -> Result<(Bytes, u64), StoreError> {
        match reply {
            Reply::Bytes { is_thawed: true, .. } if self.leaves_thawed => {
                Err(StoreError::new(StoreOp::Read, name, StoreErrorKind::Cold).because(LeftThawed))
            }
            Reply::Bytes { bytes, object_size, .. } => Ok((bytes, object_size)),
            Reply::Size(_) | Reply::Created(_) | Reply::Deleted => Err(mismatched(StoreOp::Read, name)),
        }
    }

    async fn call(&self, name: &str, request: Request) -> Result<Reply, StoreError> {
        if !name::is_valid(name) {
            return Err(StoreError::new(request.op(), name, StoreErrorKind::Invalid).because(InvalidName));
        }
        self.top.call(&Call::new(name, request)).await.map_err(|error| error.at(&self.shown))
    }
}

/// A name outside the alphabet of object names, or too long.
#[derive(Debug, thiserror::Error)]
#[error("object names have at most {} letters, digits, - _ . and / between non-empty parts", name::NAME_MAX)]
struct InvalidName;

/// Why a readable object counts as cold.
#[derive(Debug, thiserror::Error)]
#[error("it is thawed for some days, and is left as it is")]
struct LeftThawed;

/// Whether this is a page of HTML or XML. No object of a repository begins so.
fn is_page(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"<")
}

/// A layer broke the rule that a request is answered with a reply of its kind.
fn mismatched(op: StoreOp, name: &str) -> StoreError {
    StoreError::new(op, name, StoreErrorKind::Other).because("the reply is of another kind than the request")
}

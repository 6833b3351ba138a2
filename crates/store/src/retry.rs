//! Repeats requests that failed for a passing reason, until a deadline, and finds the outcome of
//! creates.
//!
//! | what an attempt to create met | and before it                         | means                                        |
//! |-------------------------------|---------------------------------------|----------------------------------------------|
//! | success                       | no attempt of unknown outcome         | created                                      |
//! | success                       | such an attempt                       | created; that attempt may still land later   |
//! | name taken                    | no failure                            | another writer won                           |
//! | name taken                    | an attempt whose outcome is not known | read it back: our bytes, so we won; else not |
//! | the same, and nothing is there| the same                              | reported: deleted meanwhile, never recreated |
//! | a passing failure             | anything                              | try again; from now on the outcome is open   |
//! | a lasting failure             | anything                              | reported; an earlier attempt may still land  |
//!
//! This is the only layer that repeats anything. A listing continues where it broke off if the
//! store lists in order. Otherwise it starts again, without the entries already passed on.

mod one_object;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::{StoreError, StoreOp};
use crate::error_kind::StoreErrorKind;
use crate::layer::{Call, Created, Layer, Listed, Listing, ReadRange, Reply, Request};
use crate::options::StoreOptions;
use crate::waiting::Waiting;

/// The pause before the first repetition; the next ones double.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// The same when the store has asked to be left alone for a while.
const PAUSE_THROTTLED: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Attempts at an object with bytes missing, or at a request whose answer makes no sense. A bad
/// connection recovers, a bad object or server does not.
const DAMAGED_ATTEMPTS: u32 = 4;

/// How long a server may fail with one object before it is looked whose fault that is.
const OBJECT_DEADLINE: Duration = Duration::from_secs(60);

/// The layer that repeats.
#[derive(Debug, Clone)]
pub(crate) struct Retry {
    inner: Arc<dyn Layer>,
    deadline: Duration,
    first_deadline: Duration,
    seed: u64,
    /// Whether the store has ever answered anything. Until then, the address may be wrong.
    answered: Arc<AtomicBool>,
    waiting: Waiting,
    /// Whether a failure may be one object's: a local folder says so itself.
    tells_apart: bool,
    /// Objects that were found unreadable.
    unreadable: Arc<Mutex<HashSet<Arc<str>>>>,
}

impl Retry {
    pub(crate) fn new(inner: Arc<dyn Layer>, options: &StoreOptions, waiting: Waiting, tells_apart: bool) -> Self {
        Self {
            inner,
            deadline: options.retry_deadline,
            first_deadline: options.first_deadline.min(options.retry_deadline),
            seed: options.jitter_seed,
            answered: Arc::default(),
            waiting,
            tells_apart,
            unreadable: Arc::default(),
        }
    }

    /// Repeats one request until it is answered or the deadline passes. Beside the answer: how many
    /// attempts before the last had no clear outcome.
    async fn persist(&self, call: &Call, deadline: Duration) -> (Result<Reply, StoreError>, u32) {
        let mut struggle = RetryState::begin(self);
        let mut open_attempts = 0;
        loop {
            let attempt = Call { attempt: struggle.attempt, ..call.clone() };
            let error = match self.inner.call(&attempt).await {
                Ok(reply) => {
                    self.answered.store(true, Ordering::Relaxed);
                    return (Ok(reply), open_attempts);
                }
                Err(error) => error,
            };
            match struggle.pause(&error, &call.name, self.deadline_after(call, &error, deadline)) {
                Some(pause) if self.waiting.sleep(pause).await => {}
                Some(_) => return (Err(error.interrupted()), open_attempts),
                None => return (Err(error), open_attempts),
            }
            // Also after "come back later", which a gateway may say for a server that continues
            // with the request.
            open_attempts += 1;
        }
    }

    /// Creates an object that exists already. Only a refusal is right, from the first attempt to
    /// the last.
    async fn probe(&self, call: &Call) -> Result<Reply, StoreError> {
        match self.persist(call, self.deadline).await {
            (Err(error), open_attempts) if error.kind == StoreErrorKind::AlreadyExists => {
                Ok(Reply::Created(Created { all_answered: open_attempts == 0 }))
            }
            (Ok(_), _) => Err(call.error(StoreErrorKind::Unconditional)),
            (Err(error), _) => Err(error),
        }
    }

    /// Creates, and finds the owner of the name when it is taken.
    async fn create(&self, call: &Call, bytes: &Bytes) -> Result<Reply, StoreError> {
        let created = |all_answered| Ok(Reply::Created(Created { all_answered }));
        match self.persist(call, self.deadline).await {
            (Ok(_), open_attempts) => created(open_attempts == 0),
            (Err(error), 0) => Err(error),
            (Err(error), open_attempts) if error.kind == StoreErrorKind::AlreadyExists => {
                match self.settle(call, bytes).await? {
                    // One of the open attempts made it; with a single one, nothing is left that
                    // could land.
                    Settled::Ours => created(open_attempts == 1),
                    // An object deleted meanwhile must not return: another program decided because
                    // of its existence.
                    Settled::Others | Settled::Gone => Err(error),
                }
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Reads back the object that has the name.
    async fn settle(&self, call: &Call, bytes: &Bytes) -> Result<Settled, StoreError> {
        let read = Call { request: Request::Read(ReadRange::WholeUpTo(bytes.len() as u64)), ..call.clone() };
        let settled = match self.persist(&read, self.deadline).await.0 {
            Ok(Reply::Bytes { bytes: stored, .. }) if stored == *bytes => Settled::Ours,
            Ok(_) => Settled::Others,
            Err(error) if error.kind == StoreErrorKind::TooLarge => Settled::Others,
            Err(error) if error.kind == StoreErrorKind::NotFound => Settled::Gone,
            Err(error) => return Err(call.error(error.kind).because(error)),
        };
        tracing::info!(object = &*call.name, outcome = ?settled, "create had no clear answer; read back");
        Ok(settled)
    }
}

/// The owner of the name that a create of open outcome met.
#[derive(Debug)]
enum Settled {
    Ours,
    Others,
    /// None any more: it was deleted meanwhile.
    Gone,
}

/// The history of one request that does not want to succeed.
#[derive(Debug)]
struct RetryState<'a> {
    retry: &'a Retry,
    began: Instant,
    attempt: u32,
}

impl<'a> RetryState<'a> {
    fn begin(retry: &'a Retry) -> Self {
        Self { retry, began: Instant::now(), attempt: 0 }
    }

    /// How long to wait before the next attempt, or `None` to stop.
    fn pause(&mut self, error: &StoreError, name: &str, deadline: Duration) -> Option<Duration> {
        let retry = self.retry;
        if !matches!(error.kind, StoreErrorKind::Unreachable | StoreErrorKind::NoConnection) {
            retry.answered.store(true, Ordering::Relaxed);
        }
        self.attempt += 1;
        // A host that is not known from the beginning is a mistyped one. Once it was, the network
        // is in trouble.
        if error.kind == StoreErrorKind::NoConnection && !retry.answered.load(Ordering::Relaxed) {
            return None;
        }
        let is_bounded = matches!(error.kind, StoreErrorKind::Damaged | StoreErrorKind::Foreign);
        if !error.is_retryable() || (is_bounded && self.attempt >= DAMAGED_ATTEMPTS) {
            return None;
        }
        let pause = retry.pause(error.kind, name, self.attempt);
        let deadline =
            if retry.answered.load(Ordering::Relaxed) { deadline } else { retry.first_deadline.min(deadline) };
        let quiet = self.began.elapsed() + pause;
        let left = deadline.checked_sub(quiet)?;
        retry.waiting.is_failing(quiet, left, &Chain(error).to_string());
        tracing::warn!(error = %Chain(error), attempt = self.attempt, pause_ms = pause.as_millis() as u64, "store request failed, trying again");
        Some(pause)
    }
}

impl Retry {
    /// Doubling pauses. The second half of each is random, so that clients that failed together
    /// separate.
    fn pause(&self, kind: StoreErrorKind, name: &str, attempt: u32) -> Duration {
        let first = if kind == StoreErrorKind::Throttled { PAUSE_THROTTLED } else { PAUSE_FIRST };
        let whole = first.saturating_mul(2_u32.saturating_pow(attempt - 1)).min(PAUSE_MAX);
        let mut hasher = DefaultHasher::new();
        (self.seed, name, attempt).hash(&mut hasher);
        let chance = (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64;
        whole.mul_f64(0.5 + chance / 2.0)
    }
}

/// An error with its causes, on one line.
struct Chain<'a>(&'a StoreError);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Layer for Retry {
    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        match &call.request {
            Request::Create(_) if call.is_probe => self.probe(call).await,
            Request::Create(bytes) => self.create(call, bytes).await,
            Request::Read(_) | Request::Size => self.look(call).await,
            Request::Delete => self.persist(call, self.deadline).await.0,
        }
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Listing {
        let resumed = Resumed::new(self.clone(), folder, after);
        stream::unfold(Some(resumed), |resumed| async move {
            let mut resumed = resumed?;
            match resumed.next().await? {
                Ok(listed) => Some((Ok(listed), Some(resumed))),
                Err(error) if error.is_unlisted() => Some((Err(error), Some(resumed))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }

    fn lists_in_order(&self) -> bool {
        self.inner.lists_in_order()
    }
}

/// A listing that survives failures on its way.
struct Resumed {
    retry: Retry,
    folder: String,
    listing: Option<Listing>,
    /// The last name passed on, after which an ordered listing continues.
    after: Option<String>,
    /// Every name passed on, where the store's order is not known.
    seen: Option<HashSet<String>>,
}

impl Resumed {
    fn new(retry: Retry, folder: &str, after: Option<&str>) -> Self {
        let seen = (!retry.inner.lists_in_order()).then(HashSet::new);
        Self { retry, folder: folder.to_owned(), listing: None, after: after.map(str::to_owned), seen }
    }

    async fn next(&mut self) -> Option<Result<Listed, StoreError>> {
        let retry = self.retry.clone();
        let mut struggle = RetryState::begin(&retry);
        loop {
            let listing = self.listing.get_or_insert_with(|| retry.inner.list(&self.folder, self.after.as_deref()));
            let error = match listing.next().await {
                None => {
                    retry.answered.store(true, Ordering::Relaxed);
                    return None;
                }
                Some(Ok(listed)) => {
                    retry.answered.store(true, Ordering::Relaxed);
                    match self.pass(listed) {
                        Some(passed) => return Some(passed),
                        None => continue,
                    }
                }
                // One entry that cannot be examined: the listing continues after it.
                Some(Err(error)) if error.is_unlisted() => return Some(Err(error)),
                Some(Err(error)) => error,
            };
            self.listing = None;
            match struggle.pause(&error, &self.folder, retry.deadline) {
                Some(pause) if retry.waiting.sleep(pause).await => {}
                Some(_) => return Some(Err(error.interrupted())),
                None => return Some(Err(error)),
            }
        }
    }

    /// Passes a name on, unless it was passed on before.
    fn pass(&mut self, listed: Listed) -> Option<Result<Listed, StoreError>> {
        if let Some(seen) = &mut self.seen {
            return seen.insert(listed.name.clone()).then_some(Ok(listed));
        }
        if self.after.as_ref().is_some_and(|after| *after >= listed.name) {
            // Continuing after a failure would lose names: such a listing must not count as
            // complete.
            let error = StoreError::new(StoreOp::List, &self.folder, StoreErrorKind::Invalid);
            return Some(Err(error.because("the storage lists names out of order")));
        }
        self.after = Some(listed.name.clone());
        Some(Ok(listed))
    }
}

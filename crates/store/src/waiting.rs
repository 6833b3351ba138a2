//! Waiting for a store: a long wait is reported, and it ends at once on request.
//!
//! `stall_timeout` reports attempts without progress here, `retry` failed attempts, and both ask
//! whether waiting has been ended. A report is not repeated for a while; that the store answers
//! again is reported too.
//!
//! After the end, a request is still sent, so that a job can say that it ended. It must be
//! answered within a second. If a small one is not, all other requests end at once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a store may be silent before that is said.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// How often silence is said at most.
const SAID_EVERY: Duration = Duration::from_secs(30);

/// How long an attempt may go without progress once waiting has been ended.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// The receiver of reports.
type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// Ends waiting for a store, and says that it takes long. Clones share their state.
#[derive(Clone)]
pub struct Waiting(Arc<Inner>);

struct Inner {
    ended: watch::Sender<Ended>,
    listener: Mutex<Option<Listener>>,
    said: Mutex<Said>,
}

/// Whether waiting is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Ended {
    No,
    /// One last answer may come soon.
    Soon,
    /// None came: nothing is waited for.
    Now,
}

#[derive(Debug, Default)]
struct Said {
    /// When silence was said last.
    last: Option<Instant>,
    /// Whether it was said and no answer came since.
    is_open: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Waiting").field(&*self.0.ended.borrow()).finish()
    }
}

impl Default for Waiting {
    fn default() -> Self {
        let inner = Inner { ended: watch::Sender::new(Ended::No), listener: Mutex::default(), said: Mutex::default() };
        Self(Arc::new(inner))
    }
}

impl Waiting {
    /// Ends it: a hanging or repeated request fails with
    /// [`StoreErrorKind::Interrupted`](crate::StoreErrorKind::Interrupted). A later request has a
    /// second to be answered.
    pub fn end(&self) {
        self.raise(Ended::Soon);
    }

    /// From now on `listener` gets a line for people when the store is silent or fails for seconds,
    /// and when it answers again.
    pub fn on_silence(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        *self.0.listener.lock() = Some(Box::new(listener));
    }

    fn raise(&self, ended: Ended) {
        self.0.ended.send_if_modified(|current| {
            let raises = *current < ended;
            if raises {
                *current = ended;
            }
            raises
        });
    }

    /// Whether it was ended.
    pub(crate) fn is_ended(&self) -> bool {
        *self.0.ended.borrow() != Ended::No
    }

    /// Follows one attempt.
    pub(crate) fn follow(&self) -> Following {
        Following(self.0.ended.subscribe())
    }

    /// An attempt was not answered in time after the end. `is_small`: the time was not spent on
    /// sending its bytes.
    pub(crate) fn last_answer_missed(&self, is_small: bool) {
        if is_small {
            self.raise(Ended::Now);
        }
    }

    /// Sleeps unless waiting is ended first; whether it slept all the time.
    pub async fn sleep(&self, pause: Duration) -> bool {
        if pause.is_zero() {
            return !self.is_ended();
        }
        let mut ended = self.0.ended.subscribe();
        let end = async { ended.wait_for(|ended| *ended != Ended::No).await.is_ok() };
        tokio::time::timeout(pause, end).await.is_err()
    }

    /// How long a store may be silent before [`is_silent`](Self::is_silent) is to be called.
    pub(crate) fn silent_after(&self) -> Duration {
        SILENT_AFTER
    }

    /// No answer and no bytes came for `quiet`.
    pub(crate) fn is_silent(&self, quiet: Duration) {
        self.say(quiet, || format!("the storage has not answered for {} s, waiting", quiet.as_secs()));
    }

    /// Every attempt has failed for `quiet`, the last one with `error`. The request is repeated for
    /// another `left`.
    pub(crate) fn is_failing(&self, quiet: Duration, left: Duration, error: &str) {
        let (quiet_s, left_s) = (quiet.as_secs(), left.as_secs());
        self.say(quiet, || format!("the storage has failed for {quiet_s} s, trying for another {left_s} s: {error}"));
    }

    /// Tells the listener, unless it is too early or was told a short while ago.
    fn say(&self, quiet: Duration, text: impl FnOnce() -> String) {
        if quiet < SILENT_AFTER || self.is_ended() {
            return;
        }
        let listener = self.0.listener.lock();
        let Some(listener) = &*listener else { return };
        {
            let mut said = self.0.said.lock();
            if said.last.is_some_and(|last| last.elapsed() < SAID_EVERY) {
                return;
            }
            *said = Said { last: Some(Instant::now()), is_open: true };
        }
        listener(&text());
    }

    /// A request was answered.
    pub(crate) fn is_answered(&self) {
        if std::mem::take(&mut self.0.said.lock().is_open)
            && let Some(listener) = &*self.0.listener.lock()
        {
            listener("the storage answers again");
        }
    }
}

/// One attempt's view of whether waiting was ended.
#[derive(Debug)]
pub(crate) struct Following(watch::Receiver<Ended>);

impl Following {
    /// How long the attempt may go without progress that otherwise has `limit`, if its bytes need
    /// `transfer`.
    pub(crate) fn limit(&mut self, limit: Duration, transfer: Duration) -> Duration {
        match *self.0.borrow_and_update() {
            Ended::No => limit,
            Ended::Soon => limit.min(LAST_ANSWER + transfer),
            Ended::Now => Duration::ZERO,
        }
    }

    /// Resolves when the last result of [`limit`](Self::limit) has changed.
    pub(crate) async fn changes(&mut self) {
        if self.0.changed().await.is_err() {
            // No one is left who could end anything.
            std::future::pending().await
        }
    }
}

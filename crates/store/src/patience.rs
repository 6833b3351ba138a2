//! Ends an attempt that makes no progress, so that a server that hangs does not hang us.
//!
//! A read may take as long as it likes while bytes keep coming. An upload shows no progress before its answer, so it is
//! given time in proportion to its size, at a pace that a poor line shared by many uploads still keeps, and twice as
//! much with each attempt: too strict a limit would send the same bytes again and again and never finish.
//!
//! Waiting for a turn or for bandwidth does not count: those layers are outside, and a throttled read says so.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::{StoreError, StoreErrorKind, StoreOp, TimedOut};
use crate::layer::{Call, Layer, Listing, Reply, Request};

/// Bytes a second that an upload is expected to reach at its first attempt.
const UPLOAD_PACE: u64 = 64 << 10;

/// Attempts after which the time for an upload no longer doubles.
const DOUBLINGS_MAX: u32 = 5;

/// When an attempt last got on.
#[derive(Debug)]
pub(crate) struct Watch(Mutex<State>);

#[derive(Debug)]
struct State {
    last: Instant,
    paused: bool,
}

impl Watch {
    fn start() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { last: Instant::now(), paused: false })))
    }

    /// Bytes have come.
    pub(crate) fn tick(&self) {
        let mut state = self.0.lock();
        *state = State { last: Instant::now(), paused: false };
    }

    /// We are the ones who wait, until the next tick.
    pub(crate) fn pause(&self) {
        self.0.lock().paused = true;
    }

    fn quiet_since(&self) -> Instant {
        let state = self.0.lock();
        if state.paused { Instant::now() } else { state.last }
    }
}

/// The layer that ends what hangs.
#[derive(Debug)]
pub(crate) struct Patience {
    pub(crate) inner: Arc<dyn Layer>,
    pub(crate) limit: Duration,
}

impl Patience {
    fn limit(&self, call: &Call) -> Duration {
        let Request::Create(bytes) = &call.request else { return self.limit };
        let transfer = Duration::from_secs(bytes.len() as u64 / UPLOAD_PACE);
        self.limit + transfer * 2_u32.pow(call.attempt.min(DOUBLINGS_MAX))
    }
}

#[async_trait]
impl Layer for Patience {
    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        let limit = self.limit(call);
        let watch = Watch::start();
        let watched = Call { watch: Some(watch.clone()), ..call.clone() };
        let mut answer = self.inner.call(&watched);
        loop {
            let end = watch.quiet_since() + limit;
            match tokio::time::timeout_at(end, &mut answer).await {
                Ok(reply) => return reply,
                Err(_) if watch.quiet_since() + limit > end => {}
                Err(_) => return Err(call.error(StoreErrorKind::Unreachable).because(TimedOut(limit))),
            }
        }
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Listing {
        let (limit, label) = (self.limit, folder.to_owned());
        let listing = Some(self.inner.list(folder, after));
        stream::unfold((listing, label), move |(listing, label)| async move {
            let mut listing = listing?;
            match tokio::time::timeout(limit, listing.next()).await {
                Ok(item) => Some((item?, (Some(listing), label))),
                Err(_) => {
                    let error =
                        StoreError::new(StoreOp::List, &label, StoreErrorKind::Unreachable).because(TimedOut(limit));
                    Some((Err(error), (None, label)))
                }
            }
        })
        .boxed()
    }

    fn lists_in_order(&self) -> bool {
        self.inner.lists_in_order()
    }
}

//! Ends an attempt that makes no progress, so that a server that hangs does not hang us.
//!
//! A read may take as long as it likes while a KiB comes within the time for an attempt. An upload
//! shows no progress before its answer, so its time is proportional to its size. The pace is one
//! that a poor line shared by many uploads still keeps, and each attempt gets twice as much time.
//! Too strict a limit would send the same bytes repeatedly and never finish.
//!
//! Waiting for a turn or for bandwidth does not count: those layers are outside, and a throttled
//! read says so.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tokio::time::Instant;

use crate::error::{StoreError, StoreOp, TimedOut};
use crate::error_kind::StoreErrorKind;
use crate::layer::{Call, Layer, Listing, Reply, Request};
use crate::waiting::Waiting;
use crate::watch::Watch;

/// Bytes a second that an upload is expected to reach at its first attempt.
const UPLOAD_PACE: u64 = 64 << 10;

/// The same after the end of waiting: a nearly finished request may finish.
const LAST_UPLOAD_PACE: u64 = 2 << 20;

/// Bytes a second below which an upload is slow enough to say so.
const SLOW_UPLOAD_PACE: u64 = 512 << 10;

/// Attempts after which the time for an upload no longer doubles.
const DOUBLINGS_MAX: u32 = 5;

/// The layer that ends stalled requests.
#[derive(Debug)]
pub(crate) struct StallTimeout {
    pub(crate) inner: Arc<dyn Layer>,
    pub(crate) limit: Duration,
    pub(crate) waiting: Waiting,
}

impl StallTimeout {
    fn limit(&self, call: &Call) -> Duration {
        let Request::Create(bytes) = &call.request else { return self.limit };
        let transfer = Duration::from_secs(bytes.len() as u64 / UPLOAD_PACE);
        self.limit + transfer * 2_u32.pow(call.attempt.min(DOUBLINGS_MAX))
    }
}

/// How long a request's bytes take at a pace.
fn transfer(call: &Call, pace: u64) -> Duration {
    match &call.request {
        Request::Create(bytes) => Duration::from_millis(bytes.len() as u64 * 1000 / pace),
        Request::Read(_) | Request::Size | Request::Delete => Duration::ZERO,
    }
}

#[async_trait]
impl Layer for StallTimeout {
    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        let limit = self.limit(call);
        let last_transfer = transfer(call, LAST_UPLOAD_PACE);
        let silent_after = self.waiting.silent_after() + transfer(call, SLOW_UPLOAD_PACE);
        let watch = Watch::start();
        let watched = Call { watch: Some(watch.clone()), ..call.clone() };
        let mut answer = self.inner.call(&watched);
        // Since when it has been quiet when that was said.
        let mut said = None;
        let mut following = self.waiting.follow();
        loop {
            let quiet_since = watch.quiet_since();
            let now_limit = following.limit(limit, last_transfer);
            let (end, say) = (quiet_since + now_limit, quiet_since + silent_after);
            let wake = if said == Some(quiet_since) { end } else { end.min(say) };
            tokio::select! {
                biased;
                reply = &mut answer => {
                    if reply.is_ok() {
                        self.waiting.is_answered();
                    }
                    return reply;
                }
                () = following.changes() => continue,
                () = tokio::time::sleep_until(wake) => {}
            }
            if watch.quiet_since() > quiet_since {
                continue;
            }
            if wake < end {
                said = Some(quiet_since);
                self.waiting.is_silent(quiet_since.elapsed());
            } else if self.waiting.is_ended() {
                self.waiting.last_answer_missed(last_transfer.is_zero());
                return Err(call.error(StoreErrorKind::Interrupted));
            } else {
                return Err(call.error(StoreErrorKind::Unreachable).because(TimedOut(limit)));
            }
        }
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Listing {
        let (limit, waiting, label) = (self.limit, self.waiting.clone(), folder.to_owned());
        let listing = Some(self.inner.list(folder, after));
        stream::unfold((listing, waiting, label), move |(listing, waiting, label)| async move {
            let mut listing = listing?;
            let began = Instant::now();
            let mut said = false;
            let mut following = waiting.follow();
            let error = loop {
                let end = began + following.limit(limit, Duration::ZERO);
                let wake = if said { end } else { end.min(began + waiting.silent_after()) };
                tokio::select! {
                    biased;
                    item = listing.next() => {
                        if matches!(item, Some(Ok(_)) | None) {
                            waiting.is_answered();
                        }
                        return Some((item?, (Some(listing), waiting, label)));
                    }
                    () = following.changes() => {}
                    () = tokio::time::sleep_until(wake) => {
                        if wake < end {
                            said = true;
                            waiting.is_silent(began.elapsed());
                        } else if waiting.is_ended() {
                            waiting.last_answer_missed(true);
                            break StoreError::new(StoreOp::List, &label, StoreErrorKind::Interrupted);
                        } else {
                            let timed_out = TimedOut(limit);
                            break StoreError::new(StoreOp::List, &label, StoreErrorKind::Unreachable).because(timed_out);
                        }
                    }
                }
            };
            Some((Err(error), (None, waiting, label)))
        })
        .boxed()
    }

    fn lists_in_order(&self) -> bool {
        self.inner.lists_in_order()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::PROGRESS;

    /// A body of 20 bytes a second would be read for hours.
    #[tokio::test(start_paused = true)]
    async fn a_trickle_is_no_progress() {
        let watch = Watch::start();
        let began = watch.quiet_since();
        for _ in 0..PROGRESS / 100 {
            tokio::time::advance(Duration::from_secs(5)).await;
            watch.tick(100);
        }
        assert_eq!(watch.quiet_since(), began);
        watch.tick(100);
        assert_eq!(watch.quiet_since(), Instant::now());
        watch.pause();
        tokio::time::advance(Duration::from_secs(50)).await;
        watch.tick(1);
        assert_eq!(watch.quiet_since(), Instant::now());
    }
}

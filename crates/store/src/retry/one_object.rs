//! Tells one object that cannot be read from a store that cannot be used.
//!
//! | a read or look-up ends with              | and                                              | so it is                       |
//! |-------------------------------------------|--------------------------------------------------|--------------------------------|
//! | 403                                       | another object of the same folder can be read    | this object's: unreadable      |
//! | 5xx for a minute, anything until the end  | `config` reads, three times, and this still not  | this object's: unreadable      |
//! | the same                                  | `config` does not read                           | the store's; waited for longer |
//!
//! An unreadable object is damaged: commands name it and continue. It is asked for once when it is
//! met again.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use larder_format::names;
use tokio::time::Instant;

use super::{OBJECT_DEADLINE, Retry};
use crate::error::{ServerFailure, StoreError};
use crate::error_kind::StoreErrorKind;
use crate::layer::{Call, ReadRange, Reply, Request};

/// How often an object must fail while the configuration can be read.
const ROUNDS: u32 = 3;

/// With less time left nothing is tried again.
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// How many others of a folder are tried.
const SIBLINGS: usize = 3;

impl Retry {
    /// Reads or looks up one object, and finds out whose fault it is if that fails.
    pub(super) async fn look(&self, call: &Call) -> Result<Reply, StoreError> {
        // The first object that is read stands for the store.
        if !self.tells_apart || &*call.name == names::CONFIG {
            return self.persist(call, self.deadline).await.0;
        }
        let began = Instant::now();
        let was_unreadable = self.unreadable.lock().contains(&call.name);
        loop {
            let left = self.deadline.saturating_sub(began.elapsed());
            let deadline = if was_unreadable { Duration::ZERO } else { left };
            let error = match self.persist(call, deadline).await.0 {
                Ok(reply) => {
                    if was_unreadable {
                        self.unreadable.lock().remove(&call.name);
                    }
                    return Ok(reply);
                }
                Err(error) => error,
            };
            let is_of_object = match error.kind {
                StoreErrorKind::PermissionDenied => was_unreadable || self.reads_beside(&call.name).await,
                StoreErrorKind::Unreachable if !self.waiting.is_ended() => {
                    was_unreadable || self.reads_config_instead(call).await
                }
                _ => return Err(error),
            };
            if is_of_object {
                self.unreadable.lock().insert(call.name.clone());
                return Err(StoreError { kind: StoreErrorKind::Unreadable, ..error });
            }
            let is_over = began.elapsed() + LAST_PAUSE >= self.deadline;
            if error.kind == StoreErrorKind::PermissionDenied || is_over || !is_answer(&error) {
                return Err(error);
            }
        }
    }

    /// How long a request is repeated whose attempt ended so. The server's own failure with one
    /// object is given less time than a network.
    pub(super) fn deadline_after(&self, call: &Call, error: &StoreError, deadline: Duration) -> Duration {
        let is_one = self.tells_apart && matches!(call.request, Request::Read(_) | Request::Size);
        if is_one && &*call.name != names::CONFIG && is_answer(error) {
            deadline.min(OBJECT_DEADLINE)
        } else {
            deadline
        }
    }

    /// Whether the configuration can be read again and again while this object cannot.
    async fn reads_config_instead(&self, call: &Call) -> bool {
        let config = Call::new(names::CONFIG, Request::Read(ReadRange::Whole));
        for _ in 0..ROUNDS {
            if self.inner.call(&config).await.is_err() || self.inner.call(call).await.is_ok() {
                return false;
            }
        }
        true
    }

    /// Whether another object of the folder can be read.
    async fn reads_beside(&self, name: &Arc<str>) -> bool {
        let Some((folder, _)) = name.split_once('/') else { return false };
        let mut listing = self.inner.list(folder, None);
        let mut tried = 0;
        while let Some(Ok(listed)) = listing.next().await {
            if listed.name == **name || listed.size == 0 {
                continue;
            }
            let read = Call::new(&listed.name, Request::Read(ReadRange::Span(0..1)));
            if self.inner.call(&read).await.is_ok() {
                return true;
            }
            tried += 1;
            if tried == SIBLINGS {
                break;
            }
        }
        false
    }
}

/// Whether the server itself said that it failed.
fn is_answer(error: &StoreError) -> bool {
    let failure = error.source.as_ref().and_then(|source| source.downcast_ref::<ServerFailure>());
    error.kind == StoreErrorKind::Unreachable && failure.is_some_and(|failure| failure.status >= 500)
}

//! Bounds how many requests are under way at once and how many bytes a second go each way.
//!
//! A request waits for its turn here before it is counted or timed, and gives the turn back before
//! it waits to be repeated. Listings do not wait. Their consumer may request objects while it reads
//! them, and would wait for a turn that its own listing holds.
//!
//! Uploads are paced by the object, downloads by the piece in which they arrive. Over the length of
//! several objects, both keep the limit, and any excess delays the next transfer.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::error::{StoreError, StoreErrorKind};
use crate::layer::{Call, Layer, Listing, Reply, Request};
use crate::options::StoreOptions;

/// A budget of bytes a second. A caller waits until the tokens taken before have been earned.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    bytes_per_second: NonZeroU64,
    /// When everything taken so far will have been earned.
    free: Mutex<Option<Instant>>,
}

impl Bandwidth {
    pub(crate) fn new(bytes_per_second: NonZeroU64) -> Self {
        Self { bytes_per_second, free: Mutex::new(None) }
    }

    /// Takes `bytes`, after waiting until earlier ones are earned. A caller that stops waiting has
    /// still taken them.
    pub(crate) async fn take(&self, bytes: u64) {
        let start = {
            let mut free = self.free.lock();
            let now = Instant::now();
            // Time in which nothing was taken is not saved up: it would come back as a burst.
            let start = free.unwrap_or(now).max(now);
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.get());
            *free = Some(start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
            start
        };
        tokio::time::sleep_until(start).await;
    }
}

/// The layer that makes requests wait.
#[derive(Debug)]
pub(crate) struct Limited {
    inner: Arc<dyn Layer>,
    turns: Semaphore,
    up: Option<Bandwidth>,
    down: Option<Arc<Bandwidth>>,
}

impl Limited {
    pub(crate) fn new(inner: Arc<dyn Layer>, options: &StoreOptions) -> Self {
        Self {
            inner,
            turns: Semaphore::new(options.concurrency.get().min(Semaphore::MAX_PERMITS)),
            up: options.upload_limit.map(Bandwidth::new),
            down: options.download_limit.map(|limit| Arc::new(Bandwidth::new(limit))),
        }
    }
}

#[async_trait]
impl Layer for Limited {
    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await.map_err(|closed| call.error(StoreErrorKind::Other).because(closed))?;
        if let (Some(up), Request::Create(bytes)) = (&self.up, &call.request) {
            up.take(bytes.len() as u64).await;
        }
        match &self.down {
            Some(down) => self.inner.call(&Call { download: Some(down.clone()), ..call.clone() }).await,
            None => self.inner.call(call).await,
        }
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Listing {
        self.inner.list(folder, after)
    }

    fn lists_in_order(&self) -> bool {
        self.inner.lists_in_order()
    }
}

//! Bounds how many requests are under way at once and how many bytes a second go each way.
//!
//! A request waits for its turn here before it is counted or timed, and gives the turn back before
//! it waits to be repeated. Listings do not wait. Their consumer may request objects while it reads
//! them, and would wait for a turn that its own listing holds.
//!
//! Uploads are paced by the object, downloads by the piece in which they arrive. Over the length of
//! several objects, both keep the limit, and any excess delays the next transfer.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::bandwidth::Bandwidth;
use crate::error::StoreError;
use crate::error_kind::StoreErrorKind;
use crate::layer::{Call, Layer, Listing, Reply, Request};
use crate::options::StoreOptions;

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

//! Bounds how many requests are under way at once and how many bytes a second go each way.
//!
//! Small reads have turns of their own. A verb that looks at every snapshot waits for the store's
//! answers, not for bytes, and more of them at once cost no memory to speak of.
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
use crate::layer::{Call, Layer, Listing, ReadRange, Reply, Request};
use crate::options::StoreOptions;

/// A part of an object up to this many bytes is small.
const SMALL_PART: u64 = 64 << 10;

/// So is an end of an object: the tables of a container.
const SMALL_TAIL: u64 = 256 << 10;

/// A whole object up to this many bytes is small: a mark, a lease, most manifests.
const SMALL_OBJECT: u64 = 1 << 20;

/// The layer that makes requests wait.
#[derive(Debug)]
pub(crate) struct Limited {
    inner: Arc<dyn Layer>,
    turns: Semaphore,
    /// Those of small reads.
    small: Semaphore,
    up: Option<Bandwidth>,
    down: Option<Arc<Bandwidth>>,
}

impl Limited {
    pub(crate) fn new(inner: Arc<dyn Layer>, options: &StoreOptions) -> Self {
        Self {
            inner,
            turns: Semaphore::new(options.concurrency.get().min(Semaphore::MAX_PERMITS)),
            small: Semaphore::new(options.small_concurrency.get().min(Semaphore::MAX_PERMITS)),
            up: options.upload_limit.map(Bandwidth::new),
            down: options.download_limit.map(|limit| Arc::new(Bandwidth::new(limit))),
        }
    }
}

/// Whether the answer is small, whatever the object is.
fn is_small(request: &Request) -> bool {
    match request {
        Request::Size => true,
        Request::Read(ReadRange::WholeUpTo(most)) => *most <= SMALL_OBJECT,
        Request::Read(ReadRange::Span(span)) => span.end - span.start <= SMALL_PART,
        Request::Read(ReadRange::Tail(count)) => *count <= SMALL_TAIL,
        Request::Read(ReadRange::Whole) | Request::Create(_) | Request::Delete => false,
    }
}

#[async_trait]
impl Layer for Limited {
    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        let turns = if is_small(&call.request) { &self.small } else { &self.turns };
        // The semaphores are never closed.
        let _turn = turns.acquire().await.map_err(|closed| call.error(StoreErrorKind::Other).because(closed))?;
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

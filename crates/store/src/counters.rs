//! Counts requests and bytes, as they leave for the store: repetitions count again, answers from
//! the cache do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::StreamExt;

use crate::error::{StoreError, StoreOp};
use crate::error_kind::StoreErrorKind;
use crate::layer::{Call, Layer, Listing, Reply, Request};

/// Names that a store returns for one request for a listing. Some return more; then the count is
/// too high.
const LIST_PAGE: u64 = 1000;

/// Requests to a store since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Requests to create an object.
    pub creates: u64,
    /// Requests for an object's bytes, or some of them.
    pub reads: u64,
    /// Requests for an object's size.
    pub sizes: u64,
    /// Requests for a page of a listing.
    pub lists: u64,
    /// Requests to delete an object.
    pub deletes: u64,
    /// How many of all these repeated an earlier one.
    pub retries: u64,
    /// How many of all these failed. A missing object or a lost race is an answer, not a failure.
    pub failures: u64,
    /// Bytes of objects sent.
    pub bytes_up: u64,
    /// Bytes of objects received.
    pub bytes_down: u64,
    /// Reads answered from the cache, without a request.
    pub cache_hits: u64,
    /// Reads that the cache could have answered if it had had the object.
    pub cache_misses: u64,
}

impl StoreStats {
    /// All requests together.
    pub fn requests(&self) -> u64 {
        self.creates + self.reads + self.sizes + self.lists + self.deletes
    }

    /// What was counted after `before`, an earlier state of the same counts.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            creates: self.creates.saturating_sub(before.creates),
            reads: self.reads.saturating_sub(before.reads),
            sizes: self.sizes.saturating_sub(before.sizes),
            lists: self.lists.saturating_sub(before.lists),
            deletes: self.deletes.saturating_sub(before.deletes),
            retries: self.retries.saturating_sub(before.retries),
            failures: self.failures.saturating_sub(before.failures),
            bytes_up: self.bytes_up.saturating_sub(before.bytes_up),
            bytes_down: self.bytes_down.saturating_sub(before.bytes_down),
            cache_hits: self.cache_hits.saturating_sub(before.cache_hits),
            cache_misses: self.cache_misses.saturating_sub(before.cache_misses),
        }
    }
}

/// The running counts behind [`StoreStats`], shared by all clones of a store.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    creates: AtomicU64,
    reads: AtomicU64,
    sizes: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    retries: AtomicU64,
    failures: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    pub(crate) cache_hits: AtomicU64,
    pub(crate) cache_misses: AtomicU64,
}

impl Counters {
    /// The counts now. Requests under way may be in some of them and not yet in others.
    pub(crate) fn snapshot(&self) -> StoreStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreStats {
            creates: get(&self.creates),
            reads: get(&self.reads),
            sizes: get(&self.sizes),
            lists: get(&self.lists),
            deletes: get(&self.deletes),
            retries: get(&self.retries),
            failures: get(&self.failures),
            bytes_up: get(&self.bytes_up),
            bytes_down: get(&self.bytes_down),
            cache_hits: get(&self.cache_hits),
            cache_misses: get(&self.cache_misses),
        }
    }

    /// Counts requests for pages of a listing that do not come through the layers.
    pub(crate) fn note_lists(&self, count: u64) {
        add(&self.lists, count);
    }

    /// Counts requests for the state of objects that do not come through the layers.
    pub(crate) fn note_sizes(&self, count: u64) {
        add(&self.sizes, count);
    }

    fn of(&self, op: StoreOp) -> Option<&AtomicU64> {
        match op {
            StoreOp::Create => Some(&self.creates),
            StoreOp::Read => Some(&self.reads),
            StoreOp::Size => Some(&self.sizes),
            StoreOp::List => Some(&self.lists),
            StoreOp::Delete => Some(&self.deletes),
            StoreOp::Open | StoreOp::Thaw => None,
        }
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// The layer that counts.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) inner: Arc<dyn Layer>,
    pub(crate) counters: Arc<Counters>,
}

#[async_trait]
impl Layer for Counted {
    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        if let Some(counter) = self.counters.of(call.request.op()) {
            add(counter, 1);
        }
        add(&self.counters.retries, u64::from(call.attempt > 0));
        if let Request::Create(bytes) = &call.request {
            add(&self.counters.bytes_up, bytes.len() as u64);
        }
        let reply = self.inner.call(call).await;
        match &reply {
            Ok(Reply::Bytes { bytes, .. }) => add(&self.counters.bytes_down, bytes.len() as u64),
            Ok(Reply::Created(_) | Reply::Deleted | Reply::Size(_)) => {}
            Err(error) if matches!(error.kind, StoreErrorKind::NotFound | StoreErrorKind::AlreadyExists) => {}
            Err(_) => add(&self.counters.failures, 1),
        }
        reply
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Listing {
        let counters = self.counters.clone();
        add(&counters.lists, 1);
        let mut listed = 0_u64;
        let count = move |item: &Result<_, _>| match item {
            Ok(_) => {
                add(&counters.lists, u64::from(listed > 0 && listed.is_multiple_of(LIST_PAGE)));
                listed += 1;
            }
            Err(_) => add(&counters.failures, 1),
        };
        self.inner.list(folder, after).inspect(count).boxed()
    }

    fn lists_in_order(&self) -> bool {
        self.inner.lists_in_order()
    }
}

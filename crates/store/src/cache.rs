//! Keeps read and written metadata on disk, so that the next command does not fetch it again.
//!
//! It keeps replies about objects under `meta/`, `versions/` and `forgotten/`, and closing marks of
//! leases. They never change, and every backup or listing reads them again. Of runs of the index,
//! the ends are kept (fences and filters), so a key is looked up with one request for its block.
//! Short runs are kept whole, because passes scan them. It does not keep data containers (too much,
//! read once), leases (they matter while their job runs), or key objects (a removed password must
//! stop working). It does not keep sizes, listings, or the absence of anything: only the store
//! knows whether an object exists. So a pass, which decides by what exists, uses it for runs alone.
//!
//! A reply is kept as it was asked for: the whole object, a span, or a tail. A kept whole object
//! answers all three.
//!
//! Invariants
//! * The cache may be deleted, damaged, full or unwritable at any moment, and nothing but speed
//!   changes. Every block that is read from it is checked; one that is wrong is fetched again.
//! * It exceeds its bound at most by the data added since the last look at it.

mod files;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_format::names::{self, LeaseObject};

use crate::counters::{self, Counters};
use crate::error::StoreError;
use crate::layer::{Call, Layer, Listing, ReadRange, Reply, Request};
use crate::options::CacheOptions;
use files::{Files, Part};

/// Bytes of the end of a created run that are kept: its filter and fences.
/// [`TailCache`](crate::tail_cache::TailCache) reads that many at least.
pub(crate) const RUN_END: u64 = 256 << 10;

/// What a cache answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Metadata,
    /// Runs of the index alone.
    Runs,
}

/// The layer that answers from disk where it can.
#[derive(Debug)]
pub(crate) struct Cached {
    inner: Arc<dyn Layer>,
    files: Arc<Files>,
    counters: Arc<Counters>,
    scope: Scope,
}

impl Cached {
    /// Keeps this repository's metadata in a folder of its own.
    pub(crate) fn new(
        inner: Arc<dyn Layer>,
        options: &CacheOptions,
        repository: &str,
        counters: Arc<Counters>,
    ) -> Self {
        let files = Files::new(&options.dir, Path::new(repository), options.max_bytes);
        Self { inner, files: Arc::new(files), counters, scope: Scope::Metadata }
    }

    /// The same files, for runs of the index alone.
    pub(crate) fn for_runs(&self) -> Self {
        let (inner, files, counters) = (self.inner.clone(), self.files.clone(), self.counters.clone());
        Self { inner, files, counters, scope: Scope::Runs }
    }

    /// Looks for a kept answer, on a blocking thread.
    async fn find(&self, name: &str, range: &ReadRange) -> Option<Reply> {
        let (files, name, range) = (self.files.clone(), name.to_owned(), range.clone());
        let found = tokio::task::spawn_blocking(move || files.find(&name, &range)).await.ok().flatten();
        counters::add(if found.is_some() { &self.counters.cache_hits } else { &self.counters.cache_misses }, 1);
        let (bytes, object_size) = found?;
        Some(Reply::Bytes { bytes, object_size, is_thawed: false })
    }

    /// Keeps an answer. A failure to do so does not matter.
    async fn keep(&self, name: &str, part: Part, bytes: Bytes, object_size: u64) {
        let (files, name) = (self.files.clone(), name.to_owned());
        let kept = tokio::task::spawn_blocking(move || files.keep(&name, &part, &bytes, object_size)).await;
        if let Ok(Err(error)) = kept {
            tracing::debug!(%error, "could not add to the metadata cache");
        }
    }

    async fn forget(&self, name: &str) {
        let (files, name) = (self.files.clone(), name.to_owned());
        // A remaining file is harmless: it answers for an object to which nothing refers any more.
        let _ = tokio::task::spawn_blocking(move || files.forget(&name)).await;
    }
}

/// Whether the answer is worth keeping and safe to keep; true also for deletes of such objects.
fn is_kept(call: &Call, scope: Scope) -> bool {
    let name = &call.name;
    if name.starts_with(names::RUNS) {
        let is_span = matches!(call.request, Request::Read(ReadRange::Span(_)));
        return !is_span && !matches!(call.request, Request::Size);
    }
    if scope == Scope::Runs {
        return false;
    }
    [names::META, names::VERSIONS, names::FORGOTTEN].iter().any(|prefix| name.starts_with(prefix))
        || matches!(names::parse_lease(name), Some((_, LeaseObject::Done)))
}

#[async_trait]
impl Layer for Cached {
    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        if !is_kept(call, self.scope) {
            return self.inner.call(call).await;
        }
        if let Request::Read(range) = &call.request
            && !call.is_anew
            && let Some(reply) = self.find(&call.name, range).await
        {
            return Ok(reply);
        }
        let reply = self.inner.call(call).await?;
        match (&call.request, &reply) {
            (Request::Create(bytes), _) => {
                let len = bytes.len() as u64;
                let (part, kept) = match call.name.starts_with(names::RUNS) && len > RUN_END {
                    true => (Part::Tail(RUN_END), bytes.slice((len - RUN_END) as usize..)),
                    false => (Part::Whole, bytes.clone()),
                };
                self.keep(&call.name, part, kept, len).await;
            }
            (Request::Read(range), Reply::Bytes { bytes, object_size, .. }) => {
                let part = if bytes.len() as u64 == *object_size { Part::Whole } else { Part::of(range) };
                self.keep(&call.name, part, bytes.clone(), *object_size).await;
            }
            (Request::Delete, _) => self.forget(&call.name).await,
            _ => {}
        }
        Ok(reply)
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Listing {
        self.inner.list(folder, after)
    }

    fn lists_in_order(&self) -> bool {
        self.inner.lists_in_order()
    }
}

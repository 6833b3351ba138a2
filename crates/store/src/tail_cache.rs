//! Keeps the ends of objects in memory while one task reads them again and again.
//!
//! A pass of the G-node opens the same runs of the index in each of its steps, and the tables of a
//! container before its chunks. Both are at the end of their objects. The memory keeps answers of
//! the store within one task, about objects that never change and whose names are used once.
//! Objects that must be current (listings, registers, leases, marks) are not of these kinds. Small
//! objects are their end: all of their reads are answered.
//!
//! Created runs are also kept, because the next step reads them. Created containers are not:
//! statements about their contents are made after asking the store. If more than the end of a small
//! run is requested, the run is read and kept as a whole.
//!
//! It is bounded by its bytes, of which containers take half at most. A pass reads the tables of
//! many containers once, and these must not evict the runs that it reads in every step. Called by
//! [`Store::remembering_tails`](crate::store::Store::remembering_tails).

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_format::names;
use parking_lot::Mutex;

use crate::byte_lru::ByteLru;
use crate::error::StoreError;
use crate::layer::{Call, Layer, Listing, ReadRange, Reply, Request};

/// Bytes that are asked for where less of an end is wanted. Few runs of a usual index are longer,
/// and a request takes longer than these bytes.
const TAIL_LEAST: u64 = crate::cache::RUN_END;

/// Containers of which more is requested are not kept: they would evict all others.
const CONTAINER_MAX: usize = 512 << 10;

/// Divisor of all bytes that gives the part for containers.
const CONTAINERS_ONE_IN: usize = 2;

/// Divisor of the part for runs that gives the maximum for one run.
const RUN_ONE_IN: usize = 4;

/// The end of an object.
#[derive(Debug, Clone)]
struct End {
    bytes: Bytes,
    object_size: u64,
    is_thawed: bool,
}

/// The kept answers. Stores that differ in their caches alone share it.
pub(crate) struct Kept {
    runs: Mutex<ByteLru<Arc<str>, End>>,
    containers: Mutex<ByteLru<Arc<str>, End>>,
    /// Runs that are longer are not kept as a whole.
    run_max: usize,
}

impl Kept {
    /// Keeps up to this number of bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let containers = bytes / CONTAINERS_ONE_IN;
        let runs = bytes - containers;
        Self {
            runs: Mutex::new(ByteLru::new(runs)),
            containers: Mutex::new(ByteLru::new(containers)),
            run_max: (runs / RUN_ONE_IN).max(TAIL_LEAST as usize),
        }
    }
}

/// The layer that answers from memory where it can.
pub(crate) struct TailCache {
    inner: Arc<dyn Layer>,
    kept: Arc<Kept>,
}

impl std::fmt::Debug for TailCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TailCache").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl TailCache {
    pub(crate) fn new(inner: Arc<dyn Layer>, kept: Arc<Kept>) -> Self {
        Self { inner, kept }
    }

    fn kept(&self, name: &str) -> (&Mutex<ByteLru<Arc<str>, End>>, usize) {
        match is_run(name) {
            true => (&self.kept.runs, self.kept.run_max),
            false => (&self.kept.containers, CONTAINER_MAX),
        }
    }

    fn keep(&self, name: &Arc<str>, end: End) {
        let (kept, most) = self.kept(name);
        if end.bytes.len() <= most {
            let held = end.bytes.len() + name.len();
            kept.lock().put(name.clone(), end, held);
        }
    }

    /// An answer that is known; an error when the object is not of the size that is asked for, as
    /// the store would say.
    fn find(&self, name: &Arc<str>, range: &ReadRange) -> Option<Result<Reply, StoreError>> {
        let End { bytes, object_size, is_thawed } = self.kept(name).0.lock().get(name)?;
        let wanted = match range.within(object_size) {
            Ok(wanted) => wanted,
            Err(wrong) => return Some(Err(wrong.of(name))),
        };
        let from = object_size - bytes.len() as u64;
        let start = wanted.start.checked_sub(from)? as usize;
        let end = start + (wanted.end - wanted.start) as usize;
        Some(Ok(Reply::Bytes { bytes: bytes.slice(start..end), object_size, is_thawed }))
    }

    async fn read(&self, call: &Call, range: &ReadRange) -> Result<Reply, StoreError> {
        if let Some(known) = self.find(&call.name, range) {
            return known;
        }
        let ReadRange::Tail(count) = range else {
            return if self.is_worth_all(&call.name) {
                self.read_all(call, range).await
            } else {
                self.inner.call(call).await
            };
        };
        let more = Request::Read(ReadRange::Tail((*count).max(TAIL_LEAST)));
        match self.inner.call(&Call { request: more, ..call.clone() }).await? {
            Reply::Bytes { bytes, object_size, is_thawed } => {
                self.keep(&call.name, End { bytes: bytes.clone(), object_size, is_thawed });
                let skipped = bytes.len() as u64 - (*count).min(bytes.len() as u64);
                Ok(Reply::Bytes { bytes: bytes.slice(skipped as usize..), object_size, is_thawed })
            }
            reply => Ok(reply),
        }
    }

    /// Whether a run is to be kept as a whole: its end was read before, so it is known how long it
    /// is.
    fn is_worth_all(&self, name: &Arc<str>) -> bool {
        let is_short = |end: End| end.object_size <= self.kept.run_max as u64;
        is_run(name) && self.kept.runs.lock().get(name).is_some_and(is_short)
    }

    async fn read_all(&self, call: &Call, range: &ReadRange) -> Result<Reply, StoreError> {
        let all = Call { request: Request::Read(ReadRange::Whole), ..call.clone() };
        match self.inner.call(&all).await? {
            Reply::Bytes { bytes, object_size, is_thawed } => {
                self.keep(&call.name, End { bytes: bytes.clone(), object_size, is_thawed });
                let wanted = range.within(object_size).map_err(|wrong| wrong.of(&call.name))?;
                let bytes = bytes.slice(wanted.start as usize..wanted.end as usize);
                Ok(Reply::Bytes { bytes, object_size, is_thawed })
            }
            reply => Ok(reply),
        }
    }
}

fn is_run(name: &str) -> bool {
    name.starts_with(names::RUNS)
}

#[async_trait]
impl Layer for TailCache {
    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        let is_run = is_run(&call.name);
        if !is_run && !call.name.starts_with(names::DATA) {
            return self.inner.call(call).await;
        }
        match &call.request {
            Request::Read(range) => self.read(call, range).await,
            Request::Create(bytes) if is_run => {
                let reply = self.inner.call(call).await?;
                let object_size = bytes.len() as u64;
                self.keep(&call.name, End { bytes: bytes.clone(), object_size, is_thawed: false });
                Ok(reply)
            }
            Request::Delete => {
                self.kept(&call.name).0.lock().remove(&call.name);
                self.inner.call(call).await
            }
            Request::Create(_) | Request::Size => self.inner.call(call).await,
        }
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Listing {
        self.inner.list(folder, after)
    }

    fn lists_in_order(&self) -> bool {
        self.inner.lists_in_order()
    }
}

#[cfg(test)]
mod tests {
    use larder_format::ids::{ContainerId, ContainerKind, JobId, RunId};
    use object_store::memory::InMemory;

    use super::*;
    use crate::options::StoreOptions;
    use crate::store::Store;

    fn store() -> Store {
        Store::from_object_store(Arc::new(InMemory::new()), "r", &StoreOptions::default()).expect("a store")
    }

    fn run(seq: u32) -> String {
        names::run(RunId { job: JobId([1; 16]), seq })
    }

    fn container(kind: ContainerKind) -> String {
        names::container(ContainerId { kind, job: JobId([2; 16]), seq: 0 })
    }

    fn contents(len: usize) -> Bytes {
        (0..len).map(|at| at as u8 ^ (at >> 8) as u8).collect::<Vec<_>>().into()
    }

    #[tokio::test]
    async fn what_was_created_or_read_is_read_once() {
        let plain = store();
        let remembering = plain.remembering_tails(1 << 20);
        let bytes = contents(10_000);
        remembering.create(&run(0), bytes.clone()).await.expect("created");
        plain.create(&run(1), bytes.clone()).await.expect("created");
        for seq in 0..2 {
            for _ in 0..3 {
                let (tail, size) = remembering.get_tail(&run(seq), 100).await.expect("read");
                assert_eq!((tail, size), (bytes.slice(9_900..), 10_000));
                assert_eq!(remembering.get_range(&run(seq), 5..70).await.expect("read"), bytes.slice(5..70));
                assert_eq!(remembering.get(&run(seq)).await.expect("read"), bytes);
            }
            assert!(remembering.get_range(&run(seq), 5..10_001).await.is_err());
        }
        assert_eq!(plain.stats().reads, 1);
    }

    #[tokio::test]
    async fn of_large_objects_the_end_is_kept() {
        let plain = store();
        let remembering = plain.remembering_tails(2 << 20);
        let bytes = contents(TAIL_LEAST as usize * 3);
        plain.create(&run(0), bytes.clone()).await.expect("created");
        let len = bytes.len() as u64;
        for _ in 0..3 {
            let (tail, size) = remembering.get_tail(&run(0), 100).await.expect("read");
            assert_eq!((tail.len(), size), (100, len));
            assert_eq!(
                remembering.get_range(&run(0), len - TAIL_LEAST..len).await.expect("read"),
                bytes.slice(bytes.len() - TAIL_LEAST as usize..)
            );
        }
        assert_eq!(plain.stats().reads, 1);
        // Each read begins before the kept part.
        for _ in 0..2 {
            let range = len - TAIL_LEAST - 1..len;
            assert_eq!(remembering.get_range(&run(0), range.clone()).await.expect("read").len() as u64, TAIL_LEAST + 1);
        }
        assert_eq!(plain.stats().reads, 3);
    }

    #[tokio::test]
    async fn containers_that_were_made_are_read_back_and_what_goes_is_gone() {
        let plain = store();
        let remembering = plain.remembering_tails(1 << 20);
        let (data, meta) = (container(ContainerKind::Data), container(ContainerKind::Meta));
        for name in [&data, &meta] {
            remembering.create(name, contents(1000)).await.expect("created");
            for _ in 0..2 {
                remembering.get_tail(name, 10).await.expect("read");
            }
        }
        assert_eq!(plain.stats().reads, 3, "data once, metadata each time");
        remembering.delete(&data).await.expect("deleted");
        assert!(remembering.get_tail(&data, 10).await.is_err());
    }

    /// A run that is not large is read twice at most, for any number and kind of requests.
    #[tokio::test]
    async fn runs_are_kept_as_a_whole() {
        let plain = store();
        let remembering = plain.remembering_tails(8 << 20);
        let len = TAIL_LEAST * 4;
        let bytes = contents(len as usize);
        plain.create(&run(0), bytes.clone()).await.expect("created");
        for _ in 0..3 {
            remembering.get_tail(&run(0), 100).await.expect("read");
            for from in [0, 1000, len / 2] {
                let range = from..len / 2 + 1000;
                let expected = bytes.slice(range.start as usize..range.end as usize);
                assert_eq!(remembering.get_range(&run(0), range).await.expect("read"), expected);
            }
            assert!(remembering.get_range(&run(0), 5..len + 1).await.is_err());
        }
        assert_eq!(plain.stats().reads, 2);
    }

    #[tokio::test]
    async fn containers_do_not_drive_out_runs_and_stores_without_a_cache_remember_the_same() {
        let plain = store();
        let remembering = plain.remembering_tails(1 << 20);
        plain.create(&run(0), contents(100_000)).await.expect("created");
        remembering.get_tail(&run(0), 100).await.expect("read");
        for seq in 0..20 {
            let name = names::container(ContainerId { kind: ContainerKind::Data, job: JobId([2; 16]), seq });
            plain.create(&name, contents(100_000)).await.expect("created");
            remembering.get_tail(&name, 100).await.expect("read");
        }
        for again in [remembering.without_cache(), remembering.remembering_tails(5), remembering] {
            again.get_tail(&run(0), 100).await.expect("read");
        }
        assert_eq!(plain.stats().reads, 21);
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        let plain = store();
        let remembering = plain.remembering_tails(90_000);
        for seq in 0..5 {
            remembering.create(&run(seq), contents(10_000)).await.expect("created");
        }
        // The oldest made room.
        for seq in [4, 3, 2, 1, 0] {
            remembering.get_tail(&run(seq), 10).await.expect("read");
        }
        assert_eq!(plain.stats().reads, 1);
    }
}

//! A rehearsal: the store is read and never changed. Creates and deletes take effect here alone.
//!
//! The layers above count the requests of a program as if it changed the store. So a rehearsal
//! tells what a run takes. Created objects are in a temporary file without a name.
//!
//! Invariants
//! * No create and no delete reaches the store.
//! * A name that the store has is taken, unless it was deleted here.
//! * Reads and listings show what they would show after a run.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use crate::error::StoreError;
use crate::error_kind::StoreErrorKind;
use crate::layer::{Call, Created, Layer, Listed, Listing, ReadRange, Reply, Request};

/// The layer over a transport.
#[derive(Debug)]
pub(crate) struct Rehearsal {
    inner: Arc<dyn Layer>,
    file: Arc<File>,
    changes: Mutex<Changes>,
}

/// What would differ from the store.
#[derive(Debug, Default)]
struct Changes {
    /// Created objects; `None`: deleted.
    objects: BTreeMap<Arc<str>, Option<Placed>>,
    /// Where the next object begins.
    end: u64,
}

/// Where a created object is in the file.
#[derive(Debug, Clone, Copy)]
struct Placed {
    at: u64,
    size: u64,
    made_ms: u64,
}

impl Rehearsal {
    /// Keeps created objects in a file of this folder, which is made if it is missing.
    pub(crate) fn new(inner: Arc<dyn Layer>, folder: &Path) -> io::Result<Self> {
        let file = Arc::new(larder_spill::unnamed(folder)?);
        Ok(Self { inner, file, changes: Mutex::default() })
    }

    /// What a run would have done to the object: `None` is nothing, and `Some(None)` a deletion.
    fn changed(&self, name: &str) -> Option<Option<Placed>> {
        self.changes.lock().objects.get(name).copied()
    }

    async fn create(&self, call: &Call, bytes: &Bytes) -> Result<Reply, StoreError> {
        let taken = || call.error(StoreErrorKind::AlreadyExists);
        match self.changed(&call.name) {
            Some(Some(_)) => return Err(taken()),
            Some(None) => {}
            None => match self.inner.call(&Call::new(&call.name, Request::Size)).await {
                Ok(_) => return Err(taken()),
                Err(error) if error.kind == StoreErrorKind::NotFound => {}
                Err(error) => return Err(error),
            },
        }
        let size = bytes.len() as u64;
        let at = {
            let mut changes = self.changes.lock();
            let at = changes.end;
            changes.end += size;
            at
        };
        let (file, written) = (self.file.clone(), bytes.clone());
        let write = move || {
            file.write_all_at(&written, at)?;
            // The clock of files is that of local stores.
            let metadata = file.metadata()?;
            Ok(u64::try_from(metadata.mtime() * 1000 + metadata.mtime_nsec() / 1_000_000).unwrap_or(0))
        };
        let made_ms = blocking(call, write).await?;
        let mut changes = self.changes.lock();
        let object = changes.objects.entry(call.name.clone()).or_default();
        if object.is_some() {
            // Another one was faster.
            return Err(taken());
        }
        *object = Some(Placed { at, size, made_ms });
        Ok(Reply::Created(Created { all_answered: true }))
    }

    async fn read(&self, call: &Call, range: &ReadRange, placed: Placed) -> Result<Reply, StoreError> {
        let Range { start, end } = range.within(placed.size).map_err(|size| size.of(&call.name))?;
        let file = self.file.clone();
        let read = move || {
            let mut bytes = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
            file.read_exact_at(&mut bytes, placed.at + start)?;
            Ok(Bytes::from(bytes))
        };
        Ok(Reply::Bytes { bytes: blocking(call, read).await?, object_size: placed.size, is_thawed: false })
    }
}

/// Works on the file, on a blocking thread.
async fn blocking<T: Send + 'static>(
    call: &Call,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| StoreError::from_io(call.request.op(), &call.name, error)),
        Err(lost) => Err(call.error(StoreErrorKind::Other).because(lost)),
    }
}

#[async_trait]
impl Layer for Rehearsal {
    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        match (&call.request, self.changed(&call.name)) {
            (Request::Create(bytes), _) => self.create(call, bytes).await,
            (Request::Delete, _) => {
                self.changes.lock().objects.insert(call.name.clone(), None);
                Ok(Reply::Deleted)
            }
            (Request::Read(_) | Request::Size, None) => self.inner.call(call).await,
            (Request::Read(_) | Request::Size, Some(None)) => Err(call.error(StoreErrorKind::NotFound)),
            (Request::Read(range), Some(Some(placed))) => self.read(call, range, placed).await,
            (Request::Size, Some(Some(placed))) => Ok(Reply::Size(placed.size)),
        }
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Listing {
        let below = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let (mut hidden, mut created) = (HashSet::new(), VecDeque::new());
        for (name, placed) in &self.changes.lock().objects {
            if !name.starts_with(&below) || after.is_some_and(|after| **name <= *after) {
                continue;
            }
            hidden.insert(name.to_string());
            created.extend(placed.map(|Placed { size, made_ms, .. }| Listed {
                name: name.to_string(),
                size,
                modified_ms: made_ms,
            }));
        }
        // The order of names stays, if the store has one.
        let created = Arc::new(Mutex::new(created));
        let rest = created.clone();
        let listed = self.inner.list(folder, after);
        let listed = listed.try_filter(move |object| futures::future::ready(!hidden.contains(&object.name)));
        let merged = listed.flat_map(move |item| {
            let mut items = Vec::new();
            if let Ok(object) = &item {
                let mut created = created.lock();
                while created.front().is_some_and(|first| first.name < object.name) {
                    items.extend(created.pop_front().map(Ok));
                }
            }
            items.push(item);
            stream::iter(items)
        });
        let rest = stream::once(async move { stream::iter(std::mem::take(&mut *rest.lock()).into_iter().map(Ok)) });
        merged.chain(rest.flatten()).boxed()
    }

    fn lists_in_order(&self) -> bool {
        self.inner.lists_in_order()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;
    use crate::options::StoreOptions;
    use crate::store::Store;

    fn names(listed: &[Listed]) -> Vec<&str> {
        listed.iter().map(|object| &*object.name).collect()
    }

    /// What is created and deleted shows as after a run, and the store stays as it is.
    #[tokio::test]
    async fn changes_show_and_reach_no_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let location = Location::Local(folder.path().join("store"));
        let real = Store::open(&location, &StoreOptions::default()).expect("opens");
        for name in ["data/b", "data/d", "config"] {
            real.create(name, Bytes::from(name)).await.expect("created");
        }
        let options = StoreOptions { rehearse_in: Some(folder.path().join("scratch")), ..StoreOptions::default() };
        let store = Store::open(&location, &options).expect("opens");
        for name in ["data/a", "data/c", "data/e"] {
            store.create(name, Bytes::from(name)).await.expect("created");
        }
        let taken = |result: Result<Created, StoreError>| result.expect_err("taken").kind;
        assert_eq!(taken(store.create("data/b", Bytes::new()).await), StoreErrorKind::AlreadyExists);
        assert_eq!(taken(store.create("data/a", Bytes::from("other")).await), StoreErrorKind::AlreadyExists);
        assert_eq!(
            names(&store.list("data").await.expect("listed")),
            ["data/a", "data/b", "data/c", "data/d", "data/e"]
        );
        let (tail, size) = store.get_tail("data/c", 3).await.expect("read");
        assert_eq!((&*tail, size), (&b"a/c"[..], 6));
        assert_eq!(store.get("data/b").await.expect("read"), "data/b");
        assert!(store.get_range("data/c", 2..9).await.is_err(), "it is shorter");
        for name in ["data/a", "data/b"] {
            store.delete(name).await.expect("deleted");
            assert_eq!(store.size(name).await.expect_err("gone").kind, StoreErrorKind::NotFound);
        }
        store.create("data/b", Bytes::from("again")).await.expect("its name is free");
        assert_eq!(store.get("data/b").await.expect("read"), "again");
        let mut listed: Vec<Listed> = Vec::new();
        store.list_each("data", |object| listed.push(object)).await.expect("listed");
        assert_eq!(names(&listed), ["data/b", "data/c", "data/d", "data/e"], "in the order of names");
        assert!(listed.iter().all(|object| object.modified_ms > 0), "{listed:?}");
        assert_eq!(names(&real.list("").await.expect("listed")), ["config", "data/b", "data/d"]);
        assert_eq!(real.get("data/b").await.expect("read"), "data/b");
        let stats = store.stats();
        assert_eq!((stats.creates, stats.deletes, stats.bytes_up), (6, 2, 3 * 6 + 5 + 5));
        let scratch = std::fs::read_dir(folder.path().join("scratch")).expect("made").count();
        assert_eq!(scratch, 0, "its file has no name");
    }
}

//! A store in memory that tests can copy, look into and damage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

/// A store in memory. Clones are the same store; [`Memory::snapshot`] is another one with the same
/// content.
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<InMemory>);

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store with these objects.
    pub async fn of(contents: &BTreeMap<String, Bytes>) -> Self {
        let memory = Self::new();
        for (path, bytes) in contents {
            memory.put(path, bytes.clone()).await;
        }
        memory
    }

    /// The store as everybody else sees it.
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        self.0.clone()
    }

    /// A store of its own with the same content as this one has now.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        Self(Arc::new(self.0.fork()))
    }

    /// All objects by their whole path.
    pub async fn contents(&self) -> BTreeMap<String, Bytes> {
        let mut contents = BTreeMap::new();
        let metas: Vec<_> = self.0.list(None).try_collect().await.expect("memory can be listed");
        for meta in metas {
            let result = self.0.get(&meta.location).await.expect("what was listed is there");
            contents.insert(meta.location.to_string(), result.bytes().await.expect("memory can be read"));
        }
        contents
    }

    /// The paths of all objects.
    pub async fn paths(&self) -> Vec<String> {
        let metas: Vec<_> = self.0.list(None).try_collect().await.expect("memory can be listed");
        metas.into_iter().map(|meta| meta.location.to_string()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Puts an object in place of any other under its name.
    pub async fn put(&self, path: &str, bytes: impl Into<Bytes>) {
        self.0.put(&Path::from(path), bytes.into().into()).await.expect("memory can be written");
    }

    /// The bytes of an object, or `None` where there is none.
    pub async fn get(&self, path: &str) -> Option<Bytes> {
        let result = self.0.get(&Path::from(path)).await.ok()?;
        Some(result.bytes().await.expect("memory can be read"))
    }

    /// Removes an object, if it is there.
    pub async fn remove(&self, path: &str) {
        // Only its absence matters, which is also what an error reports.
        let _ = self.0.delete(&Path::from(path)).await;
    }

    /// Changes an object's bytes; says whether it was there.
    pub async fn change(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let Some(bytes) = self.get(path).await else { return false };
        let mut bytes = bytes.to_vec();
        change(&mut bytes);
        self.put(path, bytes).await;
        true
    }
}

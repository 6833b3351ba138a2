//! The list of snapshots is read again when it is old. Requests show the old list if the store
//! takes long: programs that wait for a request cannot be killed.

use std::sync::Arc;
use std::time::Duration;

use larder_index::Task;
use larder_store::RepositoryError;
use larder_store::catalog::{Catalog, Version};

use super::{Tree, TreeOptions};
use crate::error::TreeError;
use crate::folders::Folders;

/// One request waits for a new list for this time.
const WAIT: Duration = Duration::from_secs(2);

/// A list that is being read, and the time when it was there, in milliseconds.
pub(super) type Refresh = Task<(Result<Catalog, RepositoryError>, u64)>;

impl Tree {
    /// The folders above snapshots. The list is read again when it is old.
    pub(super) fn folders(&self) -> Arc<Folders> {
        self.shown().0
    }

    /// The folders above snapshots, and when their list was read, in milliseconds.
    pub(super) fn shown(&self) -> (Arc<Folders>, u64) {
        if self.needs_list()
            && let Some(mut refresh) = self.refreshing.try_lock()
        {
            // Others use the old list meanwhile. If the new one is old already, there is one more.
            let was_begun = refresh.is_some();
            if self.refresh(&mut refresh) && was_begun && self.needs_list() {
                self.refresh(&mut refresh);
            }
        }
        let shown = self.shown.read();
        (shown.folders.clone(), shown.read_ms)
    }

    fn needs_list(&self) -> bool {
        if self.one.is_some() {
            return false;
        }
        let shown = self.shown.read();
        let age = self.context.clock.now_ms().saturating_sub(shown.read_ms);
        shown.is_awaited || age >= self.options.refresh_ms
    }

    /// Begins to read the list, and waits for a moment. If that was begun before, it only looks.
    /// Returns whether there is a result.
    fn refresh(&self, refresh: &mut Option<Refresh>) -> bool {
        let executor = &self.context.executor;
        let wait = if refresh.is_some() { Duration::ZERO } else { WAIT };
        let task = refresh.get_or_insert_with(|| {
            let (repository, clock) = (self.context.repository.clone(), self.context.clock.clone());
            let has_tags = self.options.shows_tags();
            executor.spawn(async move {
                let catalog = match has_tags {
                    true => repository.tagged_catalog().await.map(|(catalog, _)| catalog),
                    false => repository.catalog().await,
                };
                (catalog, clock.now_ms())
            })
        });
        let ended = executor.block_on(async { tokio::time::timeout(wait, task.finished()).await });
        let Ok(ended) = ended else {
            self.shown.write().is_awaited = true;
            return false;
        };
        *refresh = None;
        // Without a result it panicked, which the runtime has reported.
        let (catalog, read_ms) = ended.map_or((None, self.context.clock.now_ms()), |(result, at)| (Some(result), at));
        let folders = match catalog {
            None => None,
            Some(Ok(catalog)) => Some(Arc::new(self.folders_of(catalog))),
            Some(Err(error)) => {
                self.failed("the list of snapshots", &TreeError::Repository(error));
                None
            }
        };
        let mut shown = self.shown.write();
        (shown.read_ms, shown.is_awaited) = (read_ms, false);
        if let Some(folders) = folders {
            shown.folders = folders;
        }
        true
    }

    /// The folders of a list, and of forgotten snapshots that are still in use.
    fn folders_of(&self, catalog: Catalog) -> Folders {
        let TreeOptions { filter, templates, times, .. } = &self.options;
        let mut versions = catalog.filtered(filter).versions;
        for version in self.pins.protected() {
            insert(&mut versions, &version);
        }
        Folders::new(versions, templates, times, &mut self.numbers.lock())
    }
}

/// Adds a version to a list in the order of catalogs, unless it is there.
fn insert(versions: &mut Vec<Version>, version: &Version) {
    if versions.iter().any(|other| other.id() == version.id()) {
        return;
    }
    let at = versions.partition_point(|other| other.rank() < version.rank());
    versions.insert(at, version.clone());
}

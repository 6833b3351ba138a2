//! Snapshots of restic repositories as originals.
//!
//! * `api`: the only module that knows the library which reads the repository. `store`: the files
//!   of the repository, in any store that Larder knows. `entries`: a snapshot as the input of a
//!   backup.

mod api;
mod entries;
mod store;

use std::sync::Arc;

use larder_format::ids::JobId;
use larder_index::Executor;
use larder_job::Cancel;
use larder_lnode::EntrySource;
use larder_store::Store;

use self::api::Reader;
use self::entries::SnapshotEntries;
use crate::ImportError;
use crate::original::ForeignId;

/// A repository of restic, open for reading.
#[derive(Clone)]
pub struct ResticRepository(Arc<Reader>);

/// A snapshot of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResticSnapshot {
    /// Its id.
    pub id: ForeignId,
    /// The id that it had before its tags were changed; else its own.
    pub first_id: ForeignId,
    /// The id of its tree.
    pub tree: ForeignId,
    /// Its time, milliseconds since the epoch.
    pub time_ms: u64,
    /// The host it was made on.
    pub host: String,
    /// The user who made it.
    pub user: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// The paths that it is of.
    pub paths: Vec<String>,
}

/// The id of a snapshot that cannot be read, and the reason.
pub type Unreadable = (String, String);

impl ResticRepository {
    /// Opens the repository in a store.
    ///
    /// # Errors
    /// There is none, the password is wrong, or the index cannot be read.
    pub fn open(store: Store, executor: Executor, password: &str) -> Result<Self, ImportError> {
        Ok(Self(Arc::new(Reader::open(store, executor, password)?)))
    }

    /// The id of the repository.
    pub fn id(&self) -> ForeignId {
        self.0.id()
    }

    /// All snapshots that can be read, oldest first, and what is wrong with the others.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn snapshots(&self) -> Result<(Vec<ResticSnapshot>, Vec<Unreadable>), ImportError> {
        let (mut snapshots, damaged) = self.0.snapshots()?;
        snapshots.sort_by_key(|snapshot| (snapshot.time_ms, snapshot.id));
        Ok((snapshots, damaged))
    }

    /// The entries of a snapshot. `before` is the tree of a snapshot that was imported, and the
    /// version that this machine made of it. `is_strict`: all contents are looked at before an
    /// entry is supplied, and nothing is taken over. `cancel` stops that.
    pub fn entries(
        &self,
        snapshot: &ResticSnapshot,
        before: Option<(ForeignId, JobId)>,
        is_strict: bool,
        cancel: &Cancel,
    ) -> Box<dyn EntrySource> {
        Box::new(SnapshotEntries::new(self.0.clone(), snapshot.tree, before, is_strict, cancel.clone()))
    }
}

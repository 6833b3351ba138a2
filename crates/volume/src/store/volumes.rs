//! Changing volumes and snapshots. Each change is one record of the log, so it takes as long as a
//! sync, whatever the memory tables hold and however large a volume is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_format::volume_log::{Event, VolumeChange};
use larder_format::volume_manifest::{
    Parent, SnapshotEntry, VOLUME_TEXT_MAX, VOLUMES_MAX, VolumeEntry, is_valid_name, is_valid_size,
};

use super::catalog::Catalog;
use super::opened::{Committer, StopOnPanic, Store};
use crate::error::VolumeError;
use crate::index::View;

impl Store {
    /// Adds a volume. Durable when it returns, as all changes here.
    pub fn create_volume(&self, name: &str, size: u64, now_ms: u64) -> Result<VolumeEntry, VolumeError> {
        self.add_volume(&mut self.committer.lock(), name, size, now_ms, None)
    }

    /// Adds a volume over content outside of the store. `text` says what that is, for the caller.
    /// Until [`Store::set_lower`] connects it, reads of it fail.
    pub fn create_over(&self, name: &str, size: u64, text: &str, now_ms: u64) -> Result<VolumeEntry, VolumeError> {
        check_text(text)?;
        let parent = Some(Parent::Outside(text.to_owned()));
        self.add_volume(&mut self.committer.lock(), name, size, now_ms, parent)
    }

    /// Adds a volume that has the content of a snapshot. Takes no space until it is written.
    pub fn clone_snapshot(&self, name: &str, snapshot: u32, now_ms: u64) -> Result<VolumeEntry, VolumeError> {
        let mut committer = self.committer.lock();
        let size = self.catalog().snapshot(snapshot)?.size;
        self.add_volume(&mut committer, name, size, now_ms, Some(Parent::Snapshot(snapshot)))
    }

    fn add_volume(
        &self,
        committer: &mut Committer,
        name: &str,
        size: u64,
        created_ms: u64,
        parent: Option<Parent>,
    ) -> Result<VolumeEntry, VolumeError> {
        let catalog = self.catalog();
        check_name(name)?;
        check_size(size)?;
        check_room(&catalog)?;
        if catalog.volume_named(name).is_ok() {
            return Err(VolumeError::VolumeExists(name.to_owned()));
        }
        let entry = VolumeEntry { id: catalog.next_volume, name: name.to_owned(), size, created_ms, parent };
        self.change(committer, vec![VolumeChange::Volume(entry.clone())])?;
        Ok(entry)
    }

    /// Commits, and keeps the content that a volume has now. All writes that were acknowledged
    /// before are in it.
    pub fn create_snapshot(
        &self,
        volume: u32,
        name: &str,
        mark: Option<&str>,
        now_ms: u64,
    ) -> Result<SnapshotEntry, VolumeError> {
        check_name(name)?;
        check_text(mark.unwrap_or_default())?;
        let mut committer = self.committer.lock();
        let catalog = self.catalog();
        let of = catalog.volume(volume)?;
        check_room(&catalog)?;
        if catalog.snapshots_of(volume).any(|snapshot| snapshot.name == name) {
            return Err(VolumeError::SnapshotExists(format!("{}@{name}", of.name)));
        }
        self.commit(&mut committer)?.of(volume)?;
        let entry = SnapshotEntry {
            id: catalog.next_snapshot,
            volume,
            name: name.to_owned(),
            version: committer.next_version,
            size: of.size,
            created_ms: now_ms,
            mark: mark.map(str::to_owned),
        };
        self.change(&mut committer, vec![VolumeChange::Snapshot(entry.clone())])?;
        Ok(entry)
    }

    /// Sets or removes the text of a snapshot, which the store does not read.
    pub fn mark_snapshot(&self, snapshot: u32, mark: Option<&str>) -> Result<(), VolumeError> {
        check_text(mark.unwrap_or_default())?;
        let mut committer = self.committer.lock();
        let entry = self.catalog().snapshot(snapshot)?.clone();
        let entry = SnapshotEntry { mark: mark.map(str::to_owned), ..entry };
        self.change(&mut committer, vec![VolumeChange::Snapshot(entry)])
    }

    /// Deletes a snapshot. Refused while a volume is a clone of it.
    pub fn delete_snapshot(&self, snapshot: u32) -> Result<(), VolumeError> {
        let mut committer = self.committer.lock();
        let catalog = self.catalog();
        check_clones(&catalog, catalog.snapshot(snapshot)?, None)?;
        self.change(&mut committer, vec![VolumeChange::SnapshotDeleted(snapshot)])
    }

    /// Deletes a volume, with its snapshots only if the caller says so. Writes of it that wait for
    /// a commit are forgotten, and clients that have it open get errors.
    pub fn delete_volume(&self, volume: u32, with_snapshots: bool) -> Result<(), VolumeError> {
        let mut committer = self.committer.lock();
        let catalog = self.catalog();
        let of = catalog.volume(volume)?;
        let mut changes = Vec::new();
        for snapshot in catalog.snapshots_of(volume) {
            check_clones(&catalog, snapshot, Some(volume))?;
            changes.push(VolumeChange::SnapshotDeleted(snapshot.id));
        }
        if !with_snapshots && !changes.is_empty() {
            let names: Vec<_> = catalog.snapshots_of(volume).map(|snapshot| snapshot.name.clone()).collect();
            let by = format!("snapshots: {}", names.join(", "));
            return Err(VolumeError::Needed { what: format!("the volume {}", of.name), by });
        }
        changes.push(VolumeChange::Deleted(volume));
        self.change(&mut committer, changes)
    }

    /// Gives a volume another name.
    pub fn rename_volume(&self, volume: u32, name: &str) -> Result<VolumeEntry, VolumeError> {
        check_name(name)?;
        let mut committer = self.committer.lock();
        let catalog = self.catalog();
        let entry = VolumeEntry { name: name.to_owned(), ..catalog.volume(volume)?.clone() };
        if catalog.volume_named(name).is_ok_and(|other| other.id != volume) {
            return Err(VolumeError::VolumeExists(name.to_owned()));
        }
        self.change(&mut committer, vec![VolumeChange::Volume(entry.clone())])?;
        Ok(entry)
    }

    /// Gives a volume another size. What is behind the end of a smaller one is discarded; what a
    /// larger one has more is zeros. Snapshots keep their size. Clients see it when they connect
    /// the next time.
    pub fn resize_volume(&self, volume: u32, size: u64) -> Result<VolumeEntry, VolumeError> {
        check_size(size)?;
        let _resizing = Resizing::begin(self, volume)?;
        let before = {
            let state = self.state.lock();
            // A discard asks it, so the new size would stay without its discard.
            if let (_, Some(below)) = state.catalog.levels(View::live(volume))? {
                state.outside(below)?.expect_connected()?;
            }
            state.catalog.volume(volume)?.size
        };
        if size > before {
            // A write that raced with an earlier shrinking may have left something there.
            self.discard_anywhere(volume, before, size - before)?;
        }
        let mut committer = self.committer.lock();
        let entry = self.catalog().volume(volume)?.clone();
        self.commit(&mut committer)?.of(volume)?;
        let entry = VolumeEntry { size, ..entry };
        self.change(&mut committer, vec![VolumeChange::Volume(entry.clone())])?;
        drop(committer);
        if size < before {
            self.discard_anywhere(volume, size, before - size)?;
        }
        Ok(entry)
    }

    /// Ends the dependence of a volume on its parent. Every block that the parent has must have
    /// been written to the volume before. Refused while the volume has snapshots: they may need it.
    pub fn drop_parent(&self, volume: u32) -> Result<(), VolumeError> {
        let mut committer = self.committer.lock();
        let catalog = self.catalog();
        let of = catalog.volume(volume)?;
        if let Some(snapshot) = catalog.snapshots_of(volume).next() {
            let by = format!("a snapshot that may need its parent: {}", snapshot.name);
            return Err(VolumeError::Needed { what: format!("the volume {}", of.name), by });
        }
        self.commit(&mut committer)?.of(volume)?;
        self.change(&mut committer, vec![VolumeChange::Volume(VolumeEntry { parent: None, ..of.clone() })])?;
        self.forget_lower(volume);
        Ok(())
    }

    /// Makes changes durable by one record, and applies them.
    fn change(&self, committer: &mut Committer, changes: Vec<VolumeChange>) -> Result<(), VolumeError> {
        if let Some(why) = &self.state.lock().stopped {
            return Err(VolumeError::Stopped(why.clone()));
        }
        if committer.log.is_half_full() {
            self.publish(committer)?;
        }
        let _guard = StopOnPanic(self);
        let events = changes.iter().cloned().map(Event::Volume).collect();
        let appended = committer.log.append(&*self.disk, &self.keys, &*self.entropy, events);
        let files = appended.map_err(|error| self.stop(error))?;
        self.disk.sync_files(&files).map_err(|error| self.stop(VolumeError::io("log")(error)))?;
        let mut state = self.state.lock();
        let mut catalog = Catalog::clone(&state.catalog);
        for change in &changes {
            catalog.apply(change);
            match change {
                VolumeChange::Snapshot(snapshot) => state.tables.keep_below(snapshot.volume, snapshot.version),
                VolumeChange::Deleted(volume) => {
                    state.active.forget(*volume);
                    state.sealing.forget(*volume);
                }
                _ => {}
            }
        }
        state.catalog = Arc::new(catalog);
        drop(state);
        for change in &changes {
            if let VolumeChange::Deleted(volume) = change {
                self.forget_lower(*volume);
            }
        }
        let is_deletion =
            |change: &VolumeChange| matches!(change, VolumeChange::Deleted(_) | VolumeChange::SnapshotDeleted(_));
        if changes.iter().any(is_deletion) {
            self.has_deleted.store(true, Ordering::Relaxed);
        }
        self.changed.notify_all();
        Ok(())
    }
}

/// A request that changes the size of a volume. It discards without the committer's lock, so
/// another one could give the same range to clients meanwhile.
struct Resizing<'a>(&'a Store, u32);

impl<'a> Resizing<'a> {
    fn begin(store: &'a Store, volume: u32) -> Result<Self, VolumeError> {
        if store.resizing.lock().insert(volume) {
            return Ok(Self(store, volume));
        }
        Err(VolumeError::BadRequest("another request changes the size of the volume now".into()))
    }
}

impl Drop for Resizing<'_> {
    fn drop(&mut self) {
        self.0.resizing.lock().remove(&self.1);
    }
}

fn check_name(name: &str) -> Result<(), VolumeError> {
    if is_valid_name(name) {
        return Ok(());
    }
    let why = "a name has 1 to 255 letters, digits, '-', '_' and '.', and does not begin with '.'";
    Err(VolumeError::BadRequest(why.into()))
}

fn check_size(size: u64) -> Result<(), VolumeError> {
    if is_valid_size(size) {
        return Ok(());
    }
    Err(VolumeError::BadRequest("a volume has 512 bytes to 64 TiB, in multiples of 512".into()))
}

fn check_text(text: &str) -> Result<(), VolumeError> {
    if text.len() <= VOLUME_TEXT_MAX {
        return Ok(());
    }
    Err(VolumeError::BadRequest(format!("a text of a volume or snapshot has at most {VOLUME_TEXT_MAX} bytes")))
}

fn check_room(catalog: &Catalog) -> Result<(), VolumeError> {
    if catalog.count() < VOLUMES_MAX {
        return Ok(());
    }
    Err(VolumeError::BadRequest("the store has as many volumes and snapshots as it can have".into()))
}

/// Refuses when a volume is a clone of a snapshot, other than one that is deleted too.
fn check_clones(catalog: &Catalog, snapshot: &SnapshotEntry, deleted: Option<u32>) -> Result<(), VolumeError> {
    let clones = catalog.clones_of(snapshot.id).filter(|clone| Some(clone.id) != deleted);
    let names: Vec<_> = clones.map(|clone| clone.name.clone()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let what = format!("the snapshot {}", catalog.full_name(snapshot));
    Err(VolumeError::Needed { what, by: format!("clones: {}", names.join(", ")) })
}

//! [`Catalog`]: the volumes and snapshots of a store, and which versions of blocks they see.

use std::collections::BTreeMap;

use larder_format::volume_log::VolumeChange;
use larder_format::volume_manifest::{Parent, SnapshotEntry, VolumeEntry, VolumeManifest};

use crate::error::VolumeError;
use crate::index::{Bounds, View};

/// Volumes and snapshots, each by its number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    volumes: BTreeMap<u32, VolumeEntry>,
    snapshots: BTreeMap<u32, SnapshotEntry>,
    pub(crate) next_volume: u32,
    pub(crate) next_snapshot: u32,
}

impl Catalog {
    pub(crate) fn of(manifest: &VolumeManifest) -> Self {
        Self {
            volumes: manifest.volumes.iter().map(|volume| (volume.id, volume.clone())).collect(),
            snapshots: manifest.snapshots.iter().map(|snapshot| (snapshot.id, snapshot.clone())).collect(),
            next_volume: manifest.next_volume,
            next_snapshot: manifest.next_snapshot,
        }
    }

    /// Puts its entries into a manifest.
    pub(crate) fn put_into(&self, manifest: &mut VolumeManifest) {
        manifest.volumes = self.volumes.values().cloned().collect();
        manifest.snapshots = self.snapshots.values().cloned().collect();
        manifest.next_volume = self.next_volume;
        manifest.next_snapshot = self.next_snapshot;
    }

    /// Changes an entry. A change that was applied before changes nothing.
    pub(crate) fn apply(&mut self, change: &VolumeChange) {
        match change {
            VolumeChange::Volume(volume) => {
                self.next_volume = self.next_volume.max(volume.id + 1);
                self.volumes.insert(volume.id, volume.clone());
            }
            VolumeChange::Deleted(id) => drop(self.volumes.remove(id)),
            VolumeChange::Snapshot(snapshot) => {
                self.next_snapshot = self.next_snapshot.max(snapshot.id + 1);
                self.snapshots.insert(snapshot.id, snapshot.clone());
            }
            VolumeChange::SnapshotDeleted(id) => drop(self.snapshots.remove(id)),
        }
    }

    pub(crate) fn volumes(&self) -> impl Iterator<Item = &VolumeEntry> {
        self.volumes.values()
    }

    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &SnapshotEntry> {
        self.snapshots.values()
    }

    pub(crate) fn count(&self) -> usize {
        self.volumes.len() + self.snapshots.len()
    }

    pub(crate) fn volume(&self, id: u32) -> Result<&VolumeEntry, VolumeError> {
        self.volumes.get(&id).ok_or_else(|| VolumeError::NoVolume(format!("number {id}")))
    }

    pub(crate) fn snapshot(&self, id: u32) -> Result<&SnapshotEntry, VolumeError> {
        self.snapshots.get(&id).ok_or_else(|| VolumeError::NoSnapshot(format!("number {id}")))
    }

    pub(crate) fn volume_named(&self, name: &str) -> Result<&VolumeEntry, VolumeError> {
        let found = self.volumes.values().find(|volume| volume.name == name);
        found.ok_or_else(|| VolumeError::NoVolume(name.to_owned()))
    }

    /// The snapshot of `NAME@SNAP`.
    pub(crate) fn snapshot_named(&self, text: &str) -> Result<&SnapshotEntry, VolumeError> {
        let missing = || VolumeError::NoSnapshot(text.to_owned());
        let (volume, name) = text.split_once('@').ok_or_else(missing)?;
        let volume = self.volume_named(volume)?.id;
        self.snapshots_of(volume).find(|snapshot| snapshot.name == name).ok_or_else(missing)
    }

    /// Snapshots of a volume, the oldest first.
    pub(crate) fn snapshots_of(&self, volume: u32) -> impl Iterator<Item = &SnapshotEntry> {
        self.snapshots.values().filter(move |snapshot| snapshot.volume == volume)
    }

    /// Volumes whose parent is a snapshot.
    pub(crate) fn clones_of(&self, snapshot: u32) -> impl Iterator<Item = &VolumeEntry> {
        self.volumes.values().filter(move |volume| volume.parent == Some(Parent::Snapshot(snapshot)))
    }

    /// `NAME@SNAP` of a snapshot.
    pub(crate) fn full_name(&self, snapshot: &SnapshotEntry) -> String {
        match self.volumes.get(&snapshot.volume) {
            Some(volume) => format!("{}@{}", volume.name, snapshot.name),
            None => format!("number {}@{}", snapshot.volume, snapshot.name),
        }
    }

    /// The views through which a block is looked for, one after the other, and the volume whose
    /// parent is outside of the store, if it ends there.
    pub(crate) fn levels(&self, view: View) -> Result<(Vec<View>, Option<u32>), VolumeError> {
        let mut levels = vec![view];
        let mut volume = self.volume(view.volume)?;
        loop {
            match &volume.parent {
                None => return Ok((levels, None)),
                Some(Parent::Outside(_)) => return Ok((levels, Some(volume.id))),
                Some(Parent::Snapshot(id)) => {
                    let snapshot = self.snapshot(*id)?;
                    levels.push(view_of(snapshot));
                    volume = self.volume(snapshot.volume)?;
                }
            }
        }
    }

    /// What merges may drop now.
    pub(crate) fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::default();
        for volume in self.volumes.values() {
            bounds.add_volume(volume.id, volume.parent.is_some());
        }
        // In order of their numbers, so that their versions rise.
        for snapshot in self.snapshots.values() {
            bounds.add_snapshot(snapshot.volume, snapshot.version);
        }
        bounds
    }
}

/// What a snapshot sees.
pub(crate) fn view_of(snapshot: &SnapshotEntry) -> View {
    View { volume: snapshot.volume, below: snapshot.version }
}

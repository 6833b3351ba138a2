//! The manifest of a volume store: which runs and volumes there are, and where the log begins.
//!
//! `manifest/<n>` is a sealed object (`seal.rs`), magic `LVMF`, of the index, not signed, one part:
//! a CBOR map with the fields of [`VolumeManifest`] by their numbers.

use minicbor::{Decode, Encode};

use crate::cbor;
use crate::ids::{DomainId, PageRunId};
use crate::keys::Keys;
use crate::page_run::VolumeTable;
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing, open_object, seal_object};
pub use crate::volume_entry::{
    Parent, SnapshotEntry, VOLUME_MAX, VOLUME_NAME_MAX, VOLUME_TEXT_MAX, VOLUMES_MAX, VolumeEntry, is_valid_name,
    is_valid_size,
};
use crate::volume_log::SlotUse;
use crate::volume_map::BLOCK_LEN;
use crate::wire::{DecodeError, EncodeError};

/// Most bytes of a manifest.
pub const VOLUME_MANIFEST_MAX: u64 = 64 << 20;

const KIND: ObjectType = ObjectType {
    magic: *b"LVMF",
    version: 2,
    what: "volume manifest",
    max_len: VOLUME_MANIFEST_MAX,
    realm: Realm::Index,
    signing: Signing::Never,
    pad: Pad::Nothing,
};

/// A page run.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PageRunRef {
    /// The run.
    #[n(0)]
    pub id: PageRunId,
    /// [`VolumeTable::code`] of its table.
    #[n(1)]
    pub table: u8,
    /// Records.
    #[n(2)]
    pub records: u64,
    /// Bytes of the file.
    #[n(3)]
    pub object_bytes: u64,
}

/// Consecutive containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ContainerRange {
    /// The first one.
    #[n(0)]
    pub first: u32,
    /// The last one.
    #[n(1)]
    pub last: u32,
}

/// The state of a store up to a record of its log.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct VolumeManifest {
    /// Its number, which is in its name too.
    #[n(0)]
    pub number: u64,
    /// First record of the log that is not in the runs.
    #[n(1)]
    pub log_from: u64,
    /// Slot where that record is, or will be.
    #[n(2)]
    pub log_slot: u32,
    /// Salt of that slot.
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    pub log_salt: [u8; 16],
    /// Slots of the log.
    #[n(4)]
    pub slots: u32,
    /// Bytes of a slot.
    #[n(5)]
    pub slot_bytes: u64,
    /// Containers below this number are closed; the log names others.
    #[n(6)]
    pub next_container: u32,
    /// Versions of blocks in runs are below.
    #[n(7)]
    pub next_version: u64,
    /// Number of the next volume.
    #[n(8)]
    pub next_volume: u32,
    /// All volumes, by id.
    #[n(9)]
    pub volumes: Vec<VolumeEntry>,
    /// All runs, the oldest of each table first.
    #[n(10)]
    pub runs: Vec<PageRunRef>,
    /// Bytes of a block: [`BLOCK_LEN`].
    #[n(11)]
    pub block_len: u32,
    /// Number of the next snapshot.
    #[n(12)]
    pub next_snapshot: u32,
    /// All snapshots, by id.
    #[n(13)]
    pub snapshots: Vec<SnapshotEntry>,
    /// Containers whose files are gone or may go, in order. Nothing names them.
    #[n(14)]
    pub retired: Vec<ContainerRange>,
}

/// `manifest/<n>`: its path in the store.
pub fn path(number: u64) -> String {
    format!("manifest/{number}")
}

impl VolumeManifest {
    /// The slot where the log begins.
    pub fn log_use(&self) -> SlotUse {
        SlotUse { slot: self.log_slot, salt: self.log_salt }
    }

    fn check(&self) -> Result<(), DecodeError> {
        let invalid = |why| Err(DecodeError::invalid(KIND.what, why));
        if self.block_len != BLOCK_LEN {
            return invalid("its blocks have another size than this program knows");
        }
        if self.slots < 2 || self.log_slot >= self.slots || !(1 << 14..=1 << 40).contains(&self.slot_bytes) {
            return invalid("its log has no valid form");
        }
        self.check_volumes()?;
        let is_in_order = |a: &ContainerRange, b: &ContainerRange| a.last < b.first && a.last + 1 < b.first;
        let is_valid = |range: &ContainerRange| range.first <= range.last && range.last < self.next_container;
        if !self.retired.is_sorted_by(is_in_order) || !self.retired.iter().all(is_valid) {
            return invalid("its retired containers are not in order");
        }
        if self.runs.iter().any(|run| VolumeTable::from_code(run.table).is_none()) {
            return invalid("a run is of an unknown table");
        }
        Ok(())
    }

    fn check_volumes(&self) -> Result<(), DecodeError> {
        let invalid = |why| Err(DecodeError::invalid(KIND.what, why));
        if self.volumes.len() + self.snapshots.len() > VOLUMES_MAX || !self.volumes.is_sorted_by(|a, b| a.id < b.id) {
            return invalid("its volumes are not in order");
        }
        if !self.snapshots.is_sorted_by(|a, b| a.id < b.id) {
            return invalid("its snapshots are not in order");
        }
        let has_volume = |id: u32| self.volumes.binary_search_by_key(&id, |volume| volume.id).is_ok();
        for snapshot in &self.snapshots {
            snapshot.check(KIND.what)?;
            let is_known = snapshot.id < self.next_snapshot && has_volume(snapshot.volume);
            if !is_known || snapshot.version > self.next_version {
                return invalid("a snapshot has no valid form");
            }
        }
        for volume in &self.volumes {
            volume.check(KIND.what)?;
            if volume.id >= self.next_volume {
                return invalid("a volume has no valid form");
            }
            // Parents are of older volumes, so no volume is below itself.
            let Some(Parent::Snapshot(id)) = &volume.parent else { continue };
            let parent = self.snapshots.binary_search_by_key(id, |snapshot| snapshot.id);
            if !parent.is_ok_and(|at| self.snapshots[at].volume < volume.id) {
                return invalid("a volume has a parent that does not exist");
            }
        }
        Ok(())
    }

    /// Seals it. `random` must be fresh random bytes.
    pub fn encode(&self, keys: &Keys, random: [u8; RANDOM_LEN]) -> Result<Vec<u8>, EncodeError> {
        self.check()?;
        seal_object(keys, DomainId::DEFAULT, &path(self.number), KIND, random, &[&cbor::encode(self)])
    }

    /// Opens the manifest of a number.
    pub fn decode(keys: &Keys, number: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &path(number), KIND, bytes, 1, 1)?;
        Self::decode_plain(number, &opened.parts[0])
    }

    /// The contents before they are sealed.
    pub fn encode_plain(&self) -> Vec<u8> {
        cbor::encode(self)
    }

    /// Reads the contents of a manifest.
    pub fn decode_plain(number: u64, plain: &[u8]) -> Result<Self, DecodeError> {
        let manifest: Self = cbor::decode(plain, KIND.what)?;
        if manifest.number != number {
            return Err(DecodeError::invalid(KIND.what, "its number is not the one in its name"));
        }
        manifest.check()?;
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{all_damage_is_noticed, golden, keys};
    use crate::keys::MasterKey;

    fn sample() -> VolumeManifest {
        VolumeManifest {
            number: 7,
            log_from: 99,
            log_slot: 3,
            log_salt: [6; 16],
            slots: 8,
            slot_bytes: 64 << 20,
            next_container: 12,
            next_version: 1000,
            next_volume: 4,
            volumes: vec![
                VolumeEntry { id: 1, name: "disk-1".into(), size: 1 << 30, created_ms: 5, parent: None },
                VolumeEntry {
                    id: 3,
                    name: "clone".into(),
                    size: 1 << 30,
                    created_ms: 6,
                    parent: Some(Parent::Snapshot(2)),
                },
            ],
            runs: vec![PageRunRef { id: PageRunId([3; 16]), table: 1, records: 10, object_bytes: 12_288 }],
            block_len: BLOCK_LEN,
            next_snapshot: 3,
            snapshots: vec![SnapshotEntry {
                id: 2,
                volume: 1,
                name: "monday".into(),
                version: 900,
                size: 1 << 30,
                created_ms: 5,
                mark: Some("backup".into()),
            }],
            retired: vec![ContainerRange { first: 0, last: 3 }, ContainerRange { first: 5, last: 5 }],
        }
    }

    fn sealed() -> Vec<u8> {
        sample().encode(&keys(), [9; 32]).expect("fits")
    }

    #[test]
    fn bytes_never_change() {
        let golden = golden("volume_manifest_v2", &sealed());
        assert_eq!(VolumeManifest::decode(&keys(), 7, &golden), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        all_damage_is_noticed(&sealed(), |bytes| VolumeManifest::decode(&keys(), 7, bytes).is_ok());
        assert!(VolumeManifest::decode(&keys(), 8, &sealed()).is_err());
        assert!(VolumeManifest::decode(&Keys::derive(&MasterKey([2; 32])), 7, &sealed()).is_err());
    }

    #[test]
    fn contents_without_meaning_are_refused() {
        let with = |change: fn(&mut VolumeManifest)| {
            let mut manifest = sample();
            change(&mut manifest);
            let read = VolumeManifest::decode_plain(manifest.number, &cbor::encode(&manifest));
            assert_eq!(read.is_ok(), manifest.encode(&keys(), [9; 32]).is_ok());
            read
        };
        assert!(with(|_| ()).is_ok());
        assert!(with(|manifest| manifest.block_len = 4096).is_err());
        assert!(with(|manifest| manifest.log_slot = 8).is_err());
        assert!(with(|manifest| manifest.slot_bytes = 512).is_err());
        assert!(with(|manifest| manifest.volumes[0].name = "a/b".into()).is_err());
        assert!(with(|manifest| manifest.volumes[0].size = 513).is_err());
        assert!(with(|manifest| manifest.next_volume = 1).is_err());
        assert!(with(|manifest| manifest.runs[0].table = 9).is_err());
        assert!(with(|manifest| manifest.next_volume = 3).is_err());
        assert!(with(|manifest| manifest.next_snapshot = 2).is_err());
        assert!(with(|manifest| manifest.snapshots[0].volume = 2).is_err());
        assert!(with(|manifest| manifest.snapshots[0].version = 1001).is_err());
        assert!(with(|manifest| manifest.snapshots[0].name = "a@b".into()).is_err());
        assert!(with(|manifest| manifest.volumes[1].parent = Some(Parent::Snapshot(1))).is_err());
        assert!(with(|manifest| manifest.volumes[0].parent = Some(Parent::Snapshot(2))).is_err());
        assert!(with(|manifest| manifest.volumes[1].parent = Some(Parent::Outside("x".repeat(5000)))).is_err());
        assert!(with(|manifest| manifest.retired[1].last = 12).is_err());
        assert!(with(|manifest| manifest.retired[1].first = 4).is_err());
    }
}

//! The anchor: a file that says up to which record the log is durable.
//!
//! A log that ends before that record was put back to an earlier state, or lost its end in another
//! way. Without the anchor this would look like the end of a process: the records of a slot are a
//! sequence, and each of its beginnings is a valid log. Each record is written together with the
//! anchor of the record before, and an idle store notes the last one. So an anchor never says more
//! than is durable, and a record that a crash tore is behind it.

use std::sync::Arc;

use larder_format::ids::RepositoryId;
use larder_format::keys::Keys;
use larder_format::volume_log::{ANCHOR_STEP, AnchorKey, SECTOR};
use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile};
use crate::error::VolumeError;

/// The path of the anchor in the store. It is not in the folder of the log, which somebody could
/// put back as a whole.
const PATH: &str = "anchor";
const COPIES: usize = 2;

/// An opened anchor.
pub(crate) struct Anchor {
    pub(crate) file: Arc<dyn DiskFile>,
    key: AnchorKey,
    said: Mutex<Said>,
}

#[derive(Clone, Copy)]
struct Said {
    /// The last record that is noted as durable.
    upto: u64,
    /// The copy that is written next: never the only one that is whole.
    turn: usize,
}

impl Anchor {
    fn key(keys: &Keys, store: RepositoryId) -> Result<AnchorKey, VolumeError> {
        AnchorKey::of(keys, store).map_err(VolumeError::damaged(PATH))
    }

    /// Writes an anchor that notes no record, in place of one that cannot be read. The caller makes
    /// its name durable.
    pub(super) fn create(disk: &dyn Disk, keys: &Keys, store: RepositoryId) -> Result<Self, VolumeError> {
        let key = Self::key(keys, store)?;
        let file = match disk.create(PATH) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => disk.open(PATH),
            created => created,
        };
        let file = file.map_err(VolumeError::io(PATH))?;
        let mut copy = key.encode(0);
        copy.resize(ANCHOR_STEP, 0);
        file.write_at(0, &copy.repeat(COPIES)).map_err(VolumeError::io(PATH))?;
        file.sync().map_err(VolumeError::io(PATH))?;
        Ok(Self { file, key, said: Mutex::new(Said { upto: 0, turn: 0 }) })
    }

    /// Opens the anchor of a store. [`VolumeError::Damaged`]: it is missing, or no copy is whole.
    pub(super) fn open(disk: &dyn Disk, keys: &Keys, store: RepositoryId) -> Result<Self, VolumeError> {
        let key = Self::key(keys, store)?;
        let file = disk.open(PATH).map_err(VolumeError::needed(PATH))?;
        // Each by itself: one that cannot be read is one that is not whole.
        let mut unreadable = None;
        let copies: Vec<Vec<u8>> = (0..COPIES)
            .map(|number| {
                let mut copy = vec![0; SECTOR];
                let read = file.read_at((number * ANCHOR_STEP) as u64, &mut copy);
                read.map_or_else(
                    |error| {
                        unreadable.get_or_insert(error);
                        Vec::new()
                    },
                    |()| copy,
                )
            })
            .collect();
        let copies: Vec<&[u8]> = copies.iter().map(Vec::as_slice).collect();
        let upto = match (key.newest(&copies), unreadable) {
            (Ok(upto), _) => upto,
            (Err(_), Some(error)) => return Err(VolumeError::needed(PATH)(error)),
            (Err(error), None) => return Err(VolumeError::damaged(PATH)(error)),
        };
        let turn = copies.iter().position(|copy| key.decode(copy) != Ok(upto)).unwrap_or(0);
        Ok(Self { file, key, said: Mutex::new(Said { upto, turn }) })
    }

    /// The last record that it notes as durable.
    pub(crate) fn upto(&self) -> u64 {
        self.said.lock().upto
    }

    /// Makes both copies durable, one after the other: what a killed process wrote of them may not
    /// be, and a crash must not tear both.
    pub(super) fn settle(&self) -> Result<(), VolumeError> {
        let mut said = self.said.lock();
        for _ in 0..COPIES {
            self.write(&said)?;
            self.file.sync().map_err(VolumeError::io(PATH))?;
            said.turn = (said.turn + 1) % COPIES;
        }
        Ok(())
    }

    /// Notes a durable record, and makes the note durable.
    pub(super) fn note_synced(&self, durable_upto: u64) -> Result<(), VolumeError> {
        let before = *self.said.lock();
        if self.note(durable_upto)? {
            // The next one writes the same copy again.
            self.file.sync().map_err(VolumeError::io(PATH)).inspect_err(|_| *self.said.lock() = before)?;
        }
        Ok(())
    }

    fn write(&self, said: &Said) -> Result<(), VolumeError> {
        let offset = (said.turn * ANCHOR_STEP) as u64;
        self.file.write_at(offset, &self.key.encode(said.upto)).map_err(VolumeError::io(PATH))
    }

    /// Notes a durable record, not synced. `false`: it is noted already.
    pub(crate) fn note(&self, durable_upto: u64) -> Result<bool, VolumeError> {
        let mut said = self.said.lock();
        if said.upto >= durable_upto {
            return Ok(false);
        }
        self.write(&Said { upto: durable_upto, ..*said })?;
        *said = Said { upto: durable_upto, turn: (said.turn + 1) % COPIES };
        Ok(true)
    }
}

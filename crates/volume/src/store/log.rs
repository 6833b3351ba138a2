//! The log: one record for each commit, in slots that are used in turn.

use std::sync::Arc;

use larder_format::DecodeError;
use larder_format::keys::Keys;
use larder_format::volume_log::{Event, Record, SECTOR, SlotKey, SlotUse, record_len};

use super::entropy::Entropy;
use crate::disk::{Disk, DiskFile};
use crate::error::VolumeError;

/// Room that stays free in a slot for the record that names the next one.
const LAST: u64 = SECTOR as u64;

/// `log/<slot>`: its path in the store.
pub(super) fn path(slot: u32) -> String {
    format!("log/{slot}")
}

/// Creates a slot. Its bytes are written once, so that later syncs change no metadata of the file
/// system.
pub(super) fn create(disk: &dyn Disk, slot: u32, bytes: u64) -> Result<(), VolumeError> {
    const PIECE: u64 = 1 << 20;
    let name = path(slot);
    let file = disk.create(&name).map_err(VolumeError::io(&name))?;
    let zeros = vec![0; PIECE.min(bytes) as usize];
    let mut at = 0;
    while at < bytes {
        let length = PIECE.min(bytes - at);
        file.write_at(at, &zeros[..length as usize]).map_err(VolumeError::io(&name))?;
        at += length;
    }
    file.sync().map_err(VolumeError::io(name))
}

fn open_slot(disk: &dyn Disk, slot: u32, bytes: u64) -> Result<Arc<dyn DiskFile>, VolumeError> {
    let name = path(slot);
    let file = disk.open(&name).map_err(VolumeError::needed(&name))?;
    if file.length().map_err(VolumeError::io(&name))? != bytes {
        return Err(VolumeError::needed(name)(std::io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(file)
}

/// The end of the log, where commits append.
pub(crate) struct Log {
    pub(crate) file: Arc<dyn DiskFile>,
    key: SlotKey,
    /// The slot in use.
    pub(super) current: SlotUse,
    /// Slots with records that are not in the runs yet, this one included.
    pub(super) live: Vec<u32>,
    offset: u64,
    slots: u32,
    slot_bytes: u64,
    /// Number of the next record.
    pub(super) seq: u64,
}

impl Log {
    /// Begins a slot that is not in `live`, durably. Nothing names it yet.
    pub(super) fn begin(
        disk: &dyn Disk,
        keys: &Keys,
        entropy: &dyn Entropy,
        (slots, slot_bytes): (u32, u64),
        live: Vec<u32>,
        seq: u64,
    ) -> Result<Self, VolumeError> {
        let after = live.last().map_or(0, |last| last + 1);
        let slot = (after..after + slots).map(|slot| slot % slots).find(|slot| !live.contains(slot));
        let slot = slot.ok_or_else(|| VolumeError::Stopped("all slots of the log are in use".into()))?;
        let damaged = VolumeError::damaged(path(slot));
        let salt = SlotKey::salt(keys, &entropy.random()?, seq);
        let (salt, key) = match salt.and_then(|salt| Ok((salt, SlotKey::of(keys, SlotUse { slot, salt })?))) {
            Ok(found) => found,
            Err(error) => return Err(damaged(error)),
        };
        let file = open_slot(disk, slot, slot_bytes)?;
        file.write_at(0, &key.encode_header(seq)).map_err(VolumeError::io(path(slot)))?;
        file.sync().map_err(VolumeError::io(path(slot)))?;
        let live = live.into_iter().chain([slot]).collect();
        let current = SlotUse { slot, salt };
        Ok(Self { file, key, current, live, offset: SECTOR as u64, slots, slot_bytes, seq })
    }

    /// Whether half of the slots have records that are not in the runs.
    pub(crate) fn is_half_full(&self) -> bool {
        self.live.len() * 2 > self.slots as usize
    }

    /// Most bytes that the events of one commit should have.
    pub(crate) fn record_room(&self) -> usize {
        (self.slot_bytes / 4).min(16 << 20) as usize
    }

    /// Writes a record, not synced. Every record before must be durable.
    pub(crate) fn append(
        &mut self,
        disk: &dyn Disk,
        keys: &Keys,
        entropy: &dyn Entropy,
        events: Vec<Event>,
    ) -> Result<(), VolumeError> {
        let mut record = Record { seq: self.seq, durable_upto: self.seq - 1, events };
        let mut bytes = self.key.seal(self.offset, &record)?;
        if self.offset + bytes.len() as u64 + LAST > self.slot_bytes {
            let shape = (self.slots, self.slot_bytes);
            let next = Self::begin(disk, keys, entropy, shape, self.live.clone(), self.seq + 1)?;
            let events = vec![Event::NextSlot(next.current)];
            let last = Record { seq: self.seq, durable_upto: self.seq - 1, events };
            let last = self.key.seal(self.offset, &last)?;
            let name = path(self.current.slot);
            self.file.write_at(self.offset, &last).map_err(VolumeError::io(&name))?;
            self.file.sync().map_err(VolumeError::io(name))?;
            *self = next;
            (record.seq, record.durable_upto) = (self.seq, self.seq - 1);
            bytes = self.key.seal(self.offset, &record)?;
            if self.offset + bytes.len() as u64 + LAST > self.slot_bytes {
                return Err(VolumeError::BadRequest("a commit is larger than a slot of the log".into()));
            }
        }
        self.file.write_at(self.offset, &bytes).map_err(VolumeError::io(path(self.current.slot)))?;
        self.offset += bytes.len() as u64;
        self.seq += 1;
        Ok(())
    }
}

/// The records of a log.
pub(super) struct Replay {
    pub(super) records: Vec<Record>,
    /// Slots that hold them.
    pub(super) slots: Vec<u32>,
    /// Bytes of the records.
    pub(super) bytes: u64,
    /// The sequence number behind everything that was ever written.
    pub(super) next_seq: u64,
}

/// Reads the log from where a manifest says to its end.
pub(super) fn replay(
    disk: &dyn Disk,
    keys: &Keys,
    first: SlotUse,
    from: u64,
    slot_bytes: u64,
) -> Result<Replay, VolumeError> {
    let mut replay = Replay { records: Vec::new(), slots: Vec::new(), bytes: 0, next_seq: from };
    let mut next = Some(first);
    while let Some(of) = next.take() {
        let name = path(of.slot);
        let invalid = |why: &str| VolumeError::Io {
            what: name.clone(),
            source: std::io::Error::new(std::io::ErrorKind::InvalidData, why),
        };
        if replay.slots.contains(&of.slot) {
            return Err(invalid("the log returns to a slot"));
        }
        replay.slots.push(of.slot);
        let file = open_slot(disk, of.slot, slot_bytes)?;
        let mut bytes = vec![0; slot_bytes as usize];
        file.read_at(0, &mut bytes).map_err(VolumeError::needed(&name))?;
        let key = SlotKey::of(keys, of).map_err(VolumeError::damaged(&name))?;
        let first_seq = key.decode_header(&bytes[..SECTOR]).map_err(VolumeError::damaged(&name))?;
        if first_seq != replay.next_seq {
            let source = DecodeError::Truncated { what: "log" };
            return Err(VolumeError::Damaged { what: name, source });
        }
        let mut offset = SECTOR;
        while let Some((record, length)) = record_at(&key, &bytes, offset, |seq| seq == replay.next_seq) {
            replay.next_seq += 1;
            replay.bytes += length as u64;
            offset += length;
            if let Some(Event::NextSlot(of)) = record.events.last() {
                next = Some(*of);
            }
            replay.records.push(record);
        }
        if next.is_none() {
            // A record behind the end says that this is no end.
            let later = (offset..bytes.len()).step_by(SECTOR);
            let expected = replay.next_seq;
            for at in later {
                if record_at(&key, &bytes, at, |seq| seq >= expected).is_some() {
                    let what = format!("{name}, offset {offset}");
                    let source = DecodeError::NotAuthentic { what: "log record" };
                    return Err(VolumeError::Damaged { what, source });
                }
            }
        }
    }
    Ok(replay)
}

fn record_at(key: &SlotKey, slot: &[u8], at: usize, is_wanted: impl Fn(u64) -> bool) -> Option<(Record, usize)> {
    let (seq, length) = record_len(slot.get(at..)?)?;
    let bytes = slot.get(at..at.checked_add(length)?)?;
    let record = is_wanted(seq).then(|| key.open(at as u64, bytes).ok())??;
    Some((record, length))
}

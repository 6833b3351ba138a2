//! The log: one record for each commit, in slots that are used in turn.

use std::sync::Arc;

use larder_format::DecodeError;
use larder_format::ids::RepositoryId;
use larder_format::keys::Keys;
use larder_format::volume_log::{Event, Record, SECTOR, SlotKey, SlotUse, ends_early, record_len};

use super::anchor::Anchor;
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
    file: Arc<dyn DiskFile>,
    /// What each record says about the one before.
    pub(super) anchor: Arc<Anchor>,
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
        anchor: Arc<Anchor>,
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
        Ok(Self { file, anchor, key, current, live, offset: SECTOR as u64, slots, slot_bytes, seq })
    }

    /// Whether half of the slots have records that are not in the runs.
    pub(crate) fn is_half_full(&self) -> bool {
        self.live.len() * 2 > self.slots as usize
    }

    /// Slots, those with records that are not in the runs, and bytes of a slot.
    pub(crate) fn usage(&self) -> (u64, u64, u64) {
        (u64::from(self.slots), self.live.len() as u64, self.slot_bytes)
    }

    /// Most bytes that the events of one commit should have.
    pub(crate) fn record_room(&self) -> usize {
        (self.slot_bytes / 4).min(16 << 20) as usize
    }

    /// Writes a record, not synced, and gives the files to sync. Every record before must be
    /// durable.
    pub(crate) fn append(
        &mut self,
        disk: &dyn Disk,
        keys: &Keys,
        entropy: &dyn Entropy,
        events: Vec<Event>,
    ) -> Result<Vec<Arc<dyn DiskFile>>, VolumeError> {
        let mut record = Record { seq: self.seq, durable_upto: self.seq - 1, events };
        let mut bytes = self.key.seal(self.offset, &record)?;
        if self.offset + bytes.len() as u64 + LAST > self.slot_bytes {
            let shape = (self.slots, self.slot_bytes);
            let (live, anchor) = (self.live.clone(), self.anchor.clone());
            let next = Self::begin(disk, keys, entropy, shape, live, self.seq + 1, anchor)?;
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
        let mut files = vec![self.file.clone()];
        if self.anchor.note(record.durable_upto)? {
            files.push(self.anchor.file.clone());
        }
        self.offset += bytes.len() as u64;
        self.seq += 1;
        Ok(files)
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
    /// The last record that is known to be durable; 0: nothing says so.
    pub(super) anchored: u64,
    /// Why records are missing behind these, or may be.
    pub(super) damage: Option<Damage>,
}

/// A log that does not end where it was written last.
pub(super) struct Damage {
    pub(super) error: VolumeError,
    /// Records behind the gap that open.
    pub(super) later: Vec<Record>,
    /// Records that there were at least, those of `later` included. 0: only the anchor is gone.
    pub(super) lost: u64,
}

/// Reads the log from where a manifest says to its end, or to a damaged place in it.
pub(super) fn replay(
    disk: &dyn Disk,
    keys: &Keys,
    store: RepositoryId,
    first: SlotUse,
    from: u64,
    (slots, slot_bytes): (u32, u64),
) -> Result<Replay, VolumeError> {
    let (records, slots_read) = (Vec::new(), Vec::new());
    let mut replay = Replay { records, slots: slots_read, bytes: 0, next_seq: from, anchored: 0, damage: None };
    let mut end = (first.slot, SECTOR);
    let of_log = |error| match error {
        VolumeError::Damaged { what, source } => Ok(VolumeError::DamagedLog { what, source }),
        error => Err(error),
    };
    let failed = walk(disk, keys, first, slot_bytes, &mut replay, &mut end).err().map(of_log).transpose()?;
    // Records behind the end say that this is no end, and so does the anchor.
    let later = later_records(disk, keys, (slots, slot_bytes), &replay)?;
    let (anchored, anchorless) = match Anchor::open(disk, keys, store) {
        Ok(anchor) => (anchor.upto(), None),
        Err(error) => (0, Some(of_log(error)?)),
    };
    replay.anchored = anchored;
    let is_early = anchored >= replay.next_seq;
    let at_end = |source| VolumeError::DamagedLog { what: format!("{}, offset {}", path(end.0), end.1), source };
    let error = match failed {
        Some(error) => Some(error),
        None if !later.is_empty() => Some(at_end(DecodeError::NotAuthentic { what: "log record" })),
        None if is_early => Some(at_end(ends_early())),
        None => {
            replay.damage = anchorless.map(|error| Damage { error, later: Vec::new(), lost: 0 });
            return Ok(replay);
        }
    };
    replay.damage = error.map(|error| {
        let last = later.last().map_or(0, |record| record.seq).max(anchored).max(replay.next_seq);
        let lost = last + 1 - replay.next_seq;
        // One more may have been written, that nothing noted.
        replay.next_seq += lost + 1;
        Damage { error, later, lost }
    });
    Ok(replay)
}

/// Reads records until one does not open. `end` is where that is.
fn walk(
    disk: &dyn Disk,
    keys: &Keys,
    first: SlotUse,
    slot_bytes: u64,
    replay: &mut Replay,
    end: &mut (u32, usize),
) -> Result<(), VolumeError> {
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
        *end = (of.slot, offset);
    }
    Ok(())
}

/// Records behind the end of a replay, in any slot. A slot that was begun and never used has none:
/// the record that names it is durable before it is used.
fn later_records(
    disk: &dyn Disk,
    keys: &Keys,
    (slots, slot_bytes): (u32, u64),
    replay: &Replay,
) -> Result<Vec<Record>, VolumeError> {
    let mut found = Vec::new();
    for slot in 0..slots {
        let name = path(slot);
        let Ok(file) = disk.open(&name) else { continue };
        let mut header = vec![0; SECTOR];
        if file.read_at(0, &mut header).is_err() {
            continue;
        }
        let claimed = SlotUse::claimed(&header).filter(|of| of.slot == slot);
        let Some(key) = claimed.and_then(|of| SlotKey::of(keys, of).ok()) else { continue };
        let is_last = replay.slots.last() == Some(&slot);
        let is_later = |first: u64| is_last || first >= replay.next_seq;
        if !key.decode_header(&header).is_ok_and(is_later) {
            continue;
        }
        let mut bytes = vec![0; slot_bytes as usize];
        file.read_at(0, &mut bytes).map_err(VolumeError::needed(&name))?;
        let mut at = SECTOR;
        while at < bytes.len() {
            match record_at(&key, &bytes, at, |seq| seq >= replay.next_seq) {
                Some((record, length)) => {
                    found.push(record);
                    at += length;
                }
                None => at += SECTOR,
            }
        }
    }
    found.sort_unstable_by_key(|record| record.seq);
    Ok(found)
}

fn record_at(key: &SlotKey, slot: &[u8], at: usize, is_wanted: impl Fn(u64) -> bool) -> Option<(Record, usize)> {
    let (seq, length) = record_len(slot.get(at..)?)?;
    let bytes = slot.get(at..at.checked_add(length)?)?;
    let record = is_wanted(seq).then(|| key.open(at as u64, bytes).ok())??;
    Some((record, length))
}

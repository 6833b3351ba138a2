//! Changes of volumes and snapshots, as events of the log.
//!
//! | change          | code | fields (varints unless a size is given)                            |
//! |-----------------|-----:|--------------------------------------------------------------------|
//! | Volume          |    1 | number, name, size, created, parent (1 byte: 0 none, 1 a snapshot: its number, 2 outside: a text) |
//! | Deleted         |    2 | number of the volume                                               |
//! | Snapshot        |    3 | number, volume, name, version, size, created, mark (1 byte: 0 none, 1: a text) |
//! | SnapshotDeleted |    4 | number of the snapshot                                             |
//!
//! A change says how an entry is from now on. So changes that are replayed twice do no harm.

use super::WHAT;
use crate::volume_entry::{Parent, SnapshotEntry, VolumeEntry};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

/// One change of the volumes and snapshots of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeChange {
    /// A volume was created, cloned, renamed or resized, or lost its parent: it is this from now
    /// on.
    Volume(VolumeEntry),
    /// A volume was deleted.
    Deleted(u32),
    /// A snapshot was created or marked: it is this from now on.
    Snapshot(SnapshotEntry),
    /// A snapshot was deleted.
    SnapshotDeleted(u32),
}

impl VolumeChange {
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Volume(volume) => {
                volume.check(WHAT)?;
                out.put_u8(1);
                out.put_varint(u64::from(volume.id));
                out.put_bytes(volume.name.as_bytes());
                out.put_varint(volume.size);
                out.put_varint(volume.created_ms);
                match &volume.parent {
                    None => out.put_u8(0),
                    Some(Parent::Snapshot(id)) => {
                        out.put_u8(1);
                        out.put_varint(u64::from(*id));
                    }
                    Some(Parent::Outside(text)) => {
                        out.put_u8(2);
                        out.put_bytes(text.as_bytes());
                    }
                }
            }
            Self::Deleted(id) => {
                out.put_u8(2);
                out.put_varint(u64::from(*id));
            }
            Self::Snapshot(snapshot) => {
                snapshot.check(WHAT)?;
                out.put_u8(3);
                out.put_varint(u64::from(snapshot.id));
                out.put_varint(u64::from(snapshot.volume));
                out.put_bytes(snapshot.name.as_bytes());
                out.put_varint(snapshot.version);
                out.put_varint(snapshot.size);
                out.put_varint(snapshot.created_ms);
                match &snapshot.mark {
                    None => out.put_u8(0),
                    Some(mark) => {
                        out.put_u8(1);
                        out.put_bytes(mark.as_bytes());
                    }
                }
            }
            Self::SnapshotDeleted(id) => {
                out.put_u8(4);
                out.put_varint(u64::from(*id));
            }
        }
        Ok(())
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let change = match reader.u8()? {
            1 => {
                let (id, name) = (reader.varint_u32()?, text(reader)?);
                let (size, created_ms) = (reader.varint()?, reader.varint()?);
                let parent = match reader.u8()? {
                    0 => None,
                    1 => Some(Parent::Snapshot(reader.varint_u32()?)),
                    2 => Some(Parent::Outside(text(reader)?)),
                    _ => return Err(reader.invalid("a volume has an unknown parent")),
                };
                Self::Volume(VolumeEntry { id, name, size, created_ms, parent })
            }
            2 => Self::Deleted(reader.varint_u32()?),
            3 => {
                let (id, volume, name) = (reader.varint_u32()?, reader.varint_u32()?, text(reader)?);
                let (version, size, created_ms) = (reader.varint()?, reader.varint()?, reader.varint()?);
                let mark = match reader.u8()? {
                    0 => None,
                    1 => Some(text(reader)?),
                    _ => return Err(reader.invalid("a snapshot has an unknown mark")),
                };
                Self::Snapshot(SnapshotEntry { id, volume, name, version, size, created_ms, mark })
            }
            4 => Self::SnapshotDeleted(reader.varint_u32()?),
            _ => return Err(reader.invalid("it holds an unknown change of a volume")),
        };
        match &change {
            Self::Volume(volume) => volume.check(WHAT)?,
            Self::Snapshot(snapshot) => snapshot.check(WHAT)?,
            _ => {}
        }
        Ok(change)
    }
}

fn text(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = reader.bytes()?.to_vec();
    String::from_utf8(bytes).map_err(|_| reader.invalid("a text is not UTF-8"))
}

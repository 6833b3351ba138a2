//! The metadata stream: entries in blocks. A block is one chunk of the stream and reads without its
//! neighbours.
//!
//! Blocks are cut by content: the hash of a path decides. Paths and numbers are relative to the
//! entry before within the block, and no block has its own position. So an inserted file changes
//! one block and the others deduplicate.
//!
//! | field      | size        | meaning                                                                             |
//! |------------|-------------|-------------------------------------------------------------------------------------|
//! | version    | 1           | 1                                                                                   |
//! | entries    | varint      | count                                                                               |
//! | data bytes | varint      | bytes that these entries have in the data stream                                    |
//! | owners     | varint + rows | varint uid, varint gid, user, group; a name is a varint length + 1 and bytes, 0 = unknown |
//! | rows       | one an entry | see below                                                                          |
//!
//! A block is refused if its paths, written out, have [`BLOCK_PATHS_MAX`] bytes before its last
//! entry. Shared beginnings would otherwise let a few kilobytes unfold into gigabytes.
//!
//! A row, in order; "prev" is the entry before in this block, or zeros for the first:
//!
//! | field        | size            | meaning                                                                       |
//! |--------------|-----------------|-------------------------------------------------------------------------------|
//! | flags        | 1               | low 3 bits the kind (file, directory, symlink, hard link, FIFO, char, block); 8 xattrs, 16 atime, 32 extents, 64 ctime equals mtime |
//! | path         | varint + bytes  | bytes shared with prev's path; varint length and the rest                     |
//! | owner        | varint          | row of the owners table                                                       |
//! | mode         | varint          | permission bits                                                               |
//! | mtime        | signed + varint | seconds minus prev's; nanoseconds                                             |
//! | ctime        | signed + varint | seconds minus mtime's; nanoseconds; absent with flag 64                       |
//! | atime        | signed + varint | seconds minus mtime's; nanoseconds; only with flag 16                         |
//! | inode        | signed          | minus prev's, modulo 2^64                                                     |
//! | of the kind  | …               | file: varint size, with flag 32 varint count and per extent varint gap since the last end, varint length; links: varint length and target; devices: varint major, varint minor |
//! | xattrs       | …               | only with flag 8: varint count, per attribute name and value, each varint length and bytes |

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use crate::entry::{Entry, EntryKind, Extent, Timestamp, Xattr, is_valid_path, path_order};
use crate::wire::{DecodeError, EncodeError, Put, Reader};

const WHAT: &str = "metadata block";

/// A block is not closed by its content below this length (bytes).
const BLOCK_MIN: usize = 4 << 10;
/// A block is closed at this length (bytes), unless one entry alone is longer.
const BLOCK_MAX: usize = 32 << 10;
/// A block is closed when its paths, written out, have this many bytes. Only trees of very long
/// paths get there.
pub const BLOCK_PATHS_MAX: usize = 1 << 20;
/// One path in this many may close a block: with about 60 bytes an entry, 12 KiB a block.
const BLOCK_CUT_ONE_IN: u64 = 128;

/// Bytes of the shortest row: a directory, whose path differs from the one before in at least one
/// byte.
const ROW_MIN: usize = 9;

const MODE_MAX: u32 = 0o7777;
const NANOS_MAX: u32 = 999_999_999;

const KIND_MASK: u8 = 7;
const HAS_XATTRS: u8 = 8;
const HAS_ATIME: u8 = 16;
const HAS_EXTENTS: u8 = 32;
const CTIME_IS_MTIME: u8 = 64;

/// A finished block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its encoding: one chunk of the metadata stream.
    pub bytes: Vec<u8>,
    /// Path of its first entry.
    pub first_path: Vec<u8>,
    /// Bytes that its entries have in the data stream.
    pub data_bytes: u64,
}

type OwnerKey = (u32, u32, Option<Arc<str>>, Option<Arc<str>>);

/// Encodes entries into blocks. Takes only entries that [`decode_block`] returns. An entry that a
/// reader would refuse makes the whole block unreadable, and with it unrelated files.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    rows: Vec<u8>,
    entries: u64,
    data_bytes: u64,
    path_bytes: usize,
    owners: Vec<OwnerKey>,
    owner_numbers: HashMap<OwnerKey, u64>,
    first_path: Vec<u8>,
    previous_path: Vec<u8>,
    /// The last path of the stream: that of the block before, when this one is still empty.
    last_path: Vec<u8>,
    previous_mtime: i64,
    previous_inode: u64,
}

impl BlockBuilder {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the next entry in [`path_order`]; gives the block back when this entry closes it. A
    /// refused entry leaves the block as it was.
    pub fn push(&mut self, entry: &Entry) -> Result<Option<Block>, EncodeError> {
        check_entry(entry)?;
        if path_order(&self.last_path, &entry.path) != Ordering::Less {
            return Err(EncodeError::new(WHAT, "its paths are not in order"));
        }
        let data_bytes = self.data_bytes.checked_add(entry.stored_bytes());
        let data_bytes = data_bytes.ok_or(EncodeError::new(WHAT, "its data is larger than 2^64"))?;
        if self.entries == 0 {
            self.first_path.clone_from(&entry.path);
        }
        self.encode_row(entry);
        self.entries += 1;
        self.data_bytes = data_bytes;
        self.path_bytes = self.path_bytes.saturating_add(entry.path.len());
        let len = self.rows.len();
        let closes = len >= BLOCK_MAX
            || self.path_bytes >= BLOCK_PATHS_MAX
            || (len >= BLOCK_MIN && path_hash(&entry.path).is_multiple_of(BLOCK_CUT_ONE_IN));
        self.last_path.clone_from(&entry.path);
        Ok(if closes { self.finish() } else { None })
    }

    /// Closes the last block, if it holds anything.
    pub fn finish(&mut self) -> Option<Block> {
        if self.entries == 0 {
            return None;
        }
        let mut state = std::mem::take(self);
        self.last_path = std::mem::take(&mut state.last_path);
        let mut bytes = Vec::with_capacity(state.rows.len() + 64);
        bytes.put_u8(2);
        bytes.put_varint(state.entries);
        bytes.put_varint(state.data_bytes);
        bytes.put_varint(state.owners.len() as u64);
        for (uid, gid, user, group) in &state.owners {
            bytes.put_varint(u64::from(*uid));
            bytes.put_varint(u64::from(*gid));
            for name in [user, group] {
                match name {
                    None => bytes.put_varint(0),
                    Some(name) => {
                        bytes.put_varint(name.len() as u64 + 1);
                        bytes.extend_from_slice(name.as_bytes());
                    }
                }
            }
        }
        bytes.extend_from_slice(&state.rows);
        Some(Block { bytes, first_path: state.first_path, data_bytes: state.data_bytes })
    }

    fn owner(&mut self, entry: &Entry) -> u64 {
        let key = (entry.uid, entry.gid, entry.user.clone(), entry.group.clone());
        // Nearly always the owner of the entry before: no hashing then.
        if self.owners.last() == Some(&key) {
            return self.owners.len() as u64 - 1;
        }
        *self.owner_numbers.entry(key).or_insert_with_key(|key| {
            self.owners.push(key.clone());
            self.owners.len() as u64 - 1
        })
    }

    fn encode_row(&mut self, entry: &Entry) {
        let owner = self.owner(entry);
        let rows = &mut self.rows;
        let mut flags = match &entry.kind {
            EntryKind::File { extents, .. } => u8::from(extents.is_some()) * HAS_EXTENTS,
            EntryKind::Directory => 1,
            EntryKind::Symlink { .. } => 2,
            EntryKind::HardLink { .. } => 3,
            EntryKind::Fifo => 4,
            EntryKind::CharDevice { .. } => 5,
            EntryKind::BlockDevice { .. } => 6,
        };
        flags |= u8::from(!entry.xattrs.is_empty()) * HAS_XATTRS;
        flags |= u8::from(entry.atime.is_some()) * HAS_ATIME;
        flags |= u8::from(entry.ctime == entry.mtime) * CTIME_IS_MTIME;
        rows.put_u8(flags);
        let shared = entry.path.iter().zip(&self.previous_path).take_while(|(a, b)| a == b).count();
        rows.put_varint(shared as u64);
        rows.put_bytes(&entry.path[shared..]);
        rows.put_varint(owner);
        rows.put_varint(u64::from(entry.mode));
        put_time(rows, entry.mtime, self.previous_mtime);
        if entry.ctime != entry.mtime {
            put_time(rows, entry.ctime, entry.mtime.seconds);
        }
        if let Some(atime) = entry.atime {
            put_time(rows, atime, entry.mtime.seconds);
        }
        rows.put_signed(entry.inode.wrapping_sub(self.previous_inode) as i64);
        put_kind(rows, &entry.kind);
        if !entry.xattrs.is_empty() {
            rows.put_varint(entry.xattrs.len() as u64);
            for xattr in &entry.xattrs {
                rows.put_bytes(&xattr.name);
                rows.put_bytes(&xattr.value);
            }
        }
        self.previous_path.clone_from(&entry.path);
        self.previous_mtime = entry.mtime.seconds;
        self.previous_inode = entry.inode;
    }
}

/// The rows that [`decode_row`] refuses, except those that an [`Entry`] cannot express.
fn check_entry(entry: &Entry) -> Result<(), EncodeError> {
    let refuse = |why| Err(EncodeError::new(WHAT, why));
    if !is_valid_path(&entry.path) {
        return refuse("a path could leave the target");
    }
    if entry.mode > MODE_MAX {
        return refuse("a mode has more than the permission bits");
    }
    if [Some(entry.mtime), Some(entry.ctime), entry.atime].iter().flatten().any(|time| time.nanos > NANOS_MAX) {
        return refuse("a time has more than a second of nanoseconds");
    }
    match &entry.kind {
        EntryKind::HardLink { target } if !is_valid_path(target) => refuse("a hard link could leave the target"),
        EntryKind::File { size, extents: Some(extents) } => {
            let mut end = 0;
            for extent in extents {
                let next = extent.offset.checked_add(extent.length).filter(|next| next <= size);
                match next {
                    Some(next) if extent.offset >= end && extent.length > 0 => end = next,
                    _ => return refuse("an extent is empty, out of order, or lies outside of its file"),
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn put_time(out: &mut Vec<u8>, time: Timestamp, base: i64) {
    out.put_signed(time.seconds.wrapping_sub(base));
    out.put_varint(u64::from(time.nanos));
}

fn put_kind(out: &mut Vec<u8>, kind: &EntryKind) {
    match kind {
        EntryKind::File { size, extents } => {
            out.put_varint(*size);
            if let Some(extents) = extents {
                out.put_varint(extents.len() as u64);
                let mut end = 0;
                for extent in extents {
                    out.put_varint(extent.offset - end);
                    out.put_varint(extent.length);
                    end = extent.offset + extent.length;
                }
            }
        }
        EntryKind::Symlink { target } | EntryKind::HardLink { target } => out.put_bytes(target),
        EntryKind::CharDevice { major, minor } | EntryKind::BlockDevice { major, minor } => {
            out.put_varint(u64::from(*major));
            out.put_varint(u64::from(*minor));
        }
        EntryKind::Directory | EntryKind::Fifo => {}
    }
}

/// FNV-1a with a final mix. Only spreads cuts; nothing secret depends on it.
fn path_hash(path: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in path {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^ (hash >> 29)
}

/// Bytes that the entries of a block have in the data stream, by its head alone.
///
/// [`decode_block`] compares this number with the entries.
pub fn data_bytes(block: &[u8]) -> Result<u64, DecodeError> {
    let mut reader = Reader::new(block, WHAT);
    reader.version(2)?;
    reader.count(ROW_MIN)?;
    reader.varint()
}

/// Decodes a block. The entries are valid and in order.
pub fn decode_block(bytes: &[u8]) -> Result<Vec<Entry>, DecodeError> {
    let mut reader = Reader::new(bytes, WHAT);
    reader.version(2)?;
    let count = reader.count(ROW_MIN)?;
    let data_bytes = reader.varint()?;
    let owner_count = reader.count(4)?;
    let mut owners = Vec::with_capacity(owner_count);
    for _ in 0..owner_count {
        let (uid, gid) = (reader.varint_u32()?, reader.varint_u32()?);
        owners.push((uid, gid, take_name(&mut reader)?, take_name(&mut reader)?));
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(count);
    let mut sum = 0u64;
    let mut path_bytes = 0usize;
    for _ in 0..count {
        if path_bytes >= BLOCK_PATHS_MAX {
            return Err(reader.invalid("its paths are longer than a block's may be"));
        }
        let entry = decode_row(&mut reader, &owners, entries.last())?;
        let sorted = entries.last().is_none_or(|last| path_order(&last.path, &entry.path) == Ordering::Less);
        if !sorted || !is_valid_path(&entry.path) {
            return Err(reader.invalid("a path is out of order or could leave the target"));
        }
        path_bytes += entry.path.len();
        sum = sum.checked_add(entry.stored_bytes()).ok_or_else(|| reader.invalid("its data is larger than 2^64"))?;
        entries.push(entry);
    }
    reader.finish()?;
    if sum != data_bytes {
        return Err(reader.invalid("the entries' data does not add up"));
    }
    Ok(entries)
}

fn take_name(reader: &mut Reader<'_>) -> Result<Option<Arc<str>>, DecodeError> {
    let Some(len) = reader.varint()?.checked_sub(1) else { return Ok(None) };
    let len = usize::try_from(len).map_err(|_| DecodeError::Truncated { what: WHAT })?;
    let name = std::str::from_utf8(reader.take(len)?).map_err(|_| reader.invalid("an owner's name is not UTF-8"))?;
    Ok(Some(Arc::from(name)))
}

fn take_time(reader: &mut Reader<'_>, base: i64) -> Result<Timestamp, DecodeError> {
    let seconds = base.wrapping_add(reader.signed()?);
    let nanos = reader.varint_u32()?;
    if nanos > NANOS_MAX {
        return Err(reader.invalid("a time has more than a second of nanoseconds"));
    }
    Ok(Timestamp { seconds, nanos })
}

fn decode_row(reader: &mut Reader<'_>, owners: &[OwnerKey], previous: Option<&Entry>) -> Result<Entry, DecodeError> {
    let flags = reader.u8()?;
    if flags & 0x80 != 0 {
        return Err(reader.invalid("an entry has an unknown flag"));
    }
    let shared = reader.varint()? as usize;
    let head = previous.map_or(&[][..], |entry| &entry.path);
    let head = head.get(..shared).ok_or_else(|| reader.invalid("a path shares more than there is"))?;
    let path = [head, reader.bytes()?].concat();
    let owner = owners.get(reader.varint()? as usize);
    let (uid, gid, user, group) = owner.cloned().ok_or_else(|| reader.invalid("an entry names no owner"))?;
    let mode = reader.varint_u32()?;
    if mode > MODE_MAX {
        return Err(reader.invalid("a mode has more than the permission bits"));
    }
    let mtime = take_time(reader, previous.map_or(0, |entry| entry.mtime.seconds))?;
    let ctime = if flags & CTIME_IS_MTIME != 0 { mtime } else { take_time(reader, mtime.seconds)? };
    let atime = if flags & HAS_ATIME != 0 { Some(take_time(reader, mtime.seconds)?) } else { None };
    let inode = previous.map_or(0, |entry| entry.inode).wrapping_add(reader.signed()? as u64);
    let kind = take_kind(reader, flags)?;
    let mut xattrs = Vec::new();
    if flags & HAS_XATTRS != 0 {
        for _ in 0..reader.count(2)? {
            xattrs.push(Xattr { name: reader.bytes()?.to_vec(), value: reader.bytes()?.to_vec() });
        }
    }
    Ok(Entry { path, kind, mode, uid, gid, user, group, mtime, ctime, atime, inode, xattrs })
}

fn take_kind(reader: &mut Reader<'_>, flags: u8) -> Result<EntryKind, DecodeError> {
    let kind = flags & KIND_MASK;
    if flags & HAS_EXTENTS != 0 && kind != 0 {
        return Err(reader.invalid("only files have extents"));
    }
    Ok(match kind {
        0 => {
            let size = reader.varint()?;
            let extents = if flags & HAS_EXTENTS != 0 { Some(take_extents(reader, size)?) } else { None };
            EntryKind::File { size, extents }
        }
        1 => EntryKind::Directory,
        2 => EntryKind::Symlink { target: reader.bytes()?.to_vec() },
        3 => {
            let target = reader.bytes()?.to_vec();
            if !is_valid_path(&target) {
                return Err(reader.invalid("a hard link could leave the target"));
            }
            EntryKind::HardLink { target }
        }
        4 => EntryKind::Fifo,
        5 => EntryKind::CharDevice { major: reader.varint_u32()?, minor: reader.varint_u32()? },
        6 => EntryKind::BlockDevice { major: reader.varint_u32()?, minor: reader.varint_u32()? },
        _ => return Err(reader.invalid("an entry has an unknown kind")),
    })
}

fn take_extents(reader: &mut Reader<'_>, size: u64) -> Result<Vec<Extent>, DecodeError> {
    let count = reader.count(2)?;
    let mut extents = Vec::with_capacity(count);
    let mut end = 0u64;
    for _ in 0..count {
        let (gap, length) = (reader.varint()?, reader.varint()?);
        let offset = end.checked_add(gap);
        let next = offset.and_then(|offset| offset.checked_add(length)).filter(|next| *next <= size && length > 0);
        let (Some(offset), Some(next)) = (offset, next) else {
            return Err(reader.invalid("an extent is empty or lies outside of its file"));
        };
        extents.push(Extent { offset, length });
        end = next;
    }
    Ok(extents)
}

#[cfg(test)]
mod tests;

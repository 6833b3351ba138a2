//! Directories whose metadata is still to be set, packed: a version may have millions.
//!
//! Times can only be set when nothing is put into a directory any more, and modes may forbid it. So
//! every directory waits until the end. Records are kept in the order in which the directories were
//! created. A parent is created before its contents, so reading backwards gives the deepest first.
//! Paths share their beginnings with the record before, within blocks, as neighbours of a walk do:
//! about 40 bytes a directory. Access control lists and other attributes can be far larger, so what
//! exceeds [`HELD_MAX`] goes into a temporary file, if there is a folder for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use larder_format::entry::{Timestamp, Xattr};

use super::metadata::{Attributes, Goal};
use super::omit::Omit;
use super::owner::{Ids, OwnerMode};

/// Records of one block: small enough to unpack, large enough for shared beginnings to pay.
const BLOCK_RECORDS: usize = 256;

/// Bytes at which a block is full, whatever the number of its records.
const BLOCK_BYTES: usize = 256 << 10;

/// Bytes of full blocks that stay in memory.
const HELD_MAX: usize = 8 << 20;

/// Some directory's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingDir {
    pub(super) path: Vec<u8>,
    pub(super) mode: u32,
    /// `None`: only the mode is set, everything else stays as it is.
    pub(super) rest: Option<Rest>,
}

/// All but the mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) ids: Ids,
    pub(super) mtime: Timestamp,
    pub(super) atime: Option<Timestamp>,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) attributes: Attributes,
}

impl PendingDir {
    /// The goal for a directory that now belongs to `now`.
    pub(super) fn goal<'e>(&'e self, owners: OwnerMode, omit: &'e Omit, now: Ids) -> (Goal<'e>, Attributes) {
        let bare = Goal {
            mode: self.mode,
            ids: now,
            owners: OwnerMode::None,
            mtime: None,
            atime: None,
            xattrs: None,
            omit,
            without_set_ids: false,
        };
        match &self.rest {
            Some(Rest { ids, mtime, atime, xattrs, attributes }) => {
                let (mtime, xattrs) = (Some(*mtime), Some(xattrs.as_slice()));
                (Goal { ids: *ids, owners, mtime, atime: *atime, xattrs, ..bare }, *attributes)
            }
            None => (bare, Attributes::Fresh),
        }
    }
}

/// The list. See the module header.
#[derive(Debug, Default)]
pub(super) struct PendingDirs {
    blocks: Vec<Block>,
    open: Vec<u8>,
    open_records: usize,
    last_path: Vec<u8>,
    /// Bytes of the blocks in memory.
    held: usize,
    scratch: Scratch,
}

/// A full block.
#[derive(Debug)]
enum Block {
    Held(Box<[u8]>),
    /// At this offset of the temporary file, with this length.
    Spilled(u64, usize),
}

/// The temporary file, once it is needed. Its last block is read first.
#[derive(Debug, Default)]
struct Scratch {
    /// Where it is made; `None` afterwards, or if there is none.
    folder: Option<PathBuf>,
    file: Option<File>,
    end: u64,
}

impl Scratch {
    /// Writes a block, and gives its offset.
    fn write(&mut self, block: &[u8]) -> Option<u64> {
        if self.file.is_none() {
            // If none can be made, more memory is used.
            let folder = self.folder.take()?;
            self.file = larder_spill::unnamed(&folder).ok();
        }
        // Where there is no space, this block stays in memory.
        self.file.as_ref()?.write_all_at(block, self.end).ok()?;
        let at = self.end;
        self.end += block.len() as u64;
        Some(at)
    }

    fn read(&mut self, at: u64, length: usize) -> io::Result<Box<[u8]>> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut block = vec![0; length].into_boxed_slice();
        file.read_exact_at(&mut block, at)?;
        self.end = at;
        Ok(block)
    }
}

impl PendingDirs {
    /// An empty list with a folder for its temporary file.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self { scratch: Scratch { folder, ..Scratch::default() }, ..Self::default() }
    }

    fn keep(&mut self, block: Box<[u8]>) {
        let spilled = (self.held + block.len() > HELD_MAX).then(|| self.scratch.write(&block)).flatten();
        self.blocks.push(match spilled {
            Some(at) => Block::Spilled(at, block.len()),
            None => {
                self.held += block.len();
                Block::Held(block)
            }
        });
    }

    pub(super) fn push(&mut self, dir: &PendingDir) {
        if self.open_records == BLOCK_RECORDS || self.open.len() >= BLOCK_BYTES {
            let block = std::mem::take(&mut self.open).into_boxed_slice();
            self.keep(block);
            self.open_records = 0;
            self.last_path.clear();
        }
        let shared = self.last_path.iter().zip(&dir.path).take_while(|(a, b)| a == b).count();
        let out = &mut self.open;
        put_number(out, shared as u64);
        put_bytes(out, &dir.path[shared..]);
        put_number(out, dir.mode.into());
        match &dir.rest {
            None => out.push(0),
            Some(rest) => {
                let fresh = u8::from(rest.attributes == Attributes::Fresh);
                let atime = u8::from(rest.atime.is_some());
                out.push(1 | fresh << 1 | atime << 2);
                put_number(out, rest.ids.uid.into());
                put_number(out, rest.ids.gid.into());
                put_time(out, rest.mtime);
                if let Some(atime) = rest.atime {
                    put_time(out, atime);
                }
                put_number(out, rest.xattrs.len() as u64);
                for xattr in &rest.xattrs {
                    put_bytes(out, &xattr.name);
                    put_bytes(out, &xattr.value);
                }
            }
        }
        self.open_records += 1;
        self.last_path.truncate(shared);
        self.last_path.extend_from_slice(&dir.path[shared..]);
    }

    /// Takes the last block out, its records last made first.
    ///
    /// # Errors
    /// The temporary file cannot be read. The block is lost then.
    pub(super) fn pop_block(&mut self) -> io::Result<Option<Vec<PendingDir>>> {
        let block = match self.open_records {
            0 => match self.blocks.pop() {
                None => return Ok(None),
                Some(Block::Held(block)) => {
                    self.held -= block.len();
                    block
                }
                Some(Block::Spilled(at, length)) => self.scratch.read(at, length)?,
            },
            _ => std::mem::take(&mut self.open).into_boxed_slice(),
        };
        self.open_records = 0;
        self.last_path.clear();
        let mut dirs = Vec::with_capacity(BLOCK_RECORDS);
        let mut reader = Reader(&block);
        let mut path = Vec::new();
        while let Some(dir) = reader.record(&mut path) {
            dirs.push(dir);
        }
        dirs.reverse();
        Ok(Some(dirs))
    }

    /// Bytes held.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.held + self.open.len()
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    // Signed numbers with the sign last, so that small ones of both signs stay short.
    put_number(out, (time.seconds << 1 ^ time.seconds >> 63).cast_unsigned());
    put_number(out, time.nanos.into());
}

/// Reads the records of this module; the end of the block ends them.
struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn record(&mut self, path: &mut Vec<u8>) -> Option<PendingDir> {
        let shared = usize::try_from(self.number()?).ok()?;
        path.truncate(shared);
        path.extend_from_slice(&self.bytes()?);
        let mode = u32::try_from(self.number()?).ok()?;
        let flags = self.byte()?;
        let rest = match flags & 1 {
            0 => None,
            _ => {
                let uid = u32::try_from(self.number()?).ok()?;
                let gid = u32::try_from(self.number()?).ok()?;
                let mtime = self.time()?;
                let atime = if flags & 4 == 0 { None } else { Some(self.time()?) };
                let count = self.number()?;
                let xattrs = (0..count)
                    .map(|_| Some(Xattr { name: self.bytes()?, value: self.bytes()? }))
                    .collect::<Option<_>>()?;
                let attributes = if flags & 2 == 0 { Attributes::Unknown } else { Attributes::Fresh };
                Some(Rest { ids: Ids { uid, gid }, mtime, atime, xattrs, attributes })
            }
        };
        Some(PendingDir { path: path.clone(), mode, rest })
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    fn time(&mut self) -> Option<Timestamp> {
        let folded = self.number()?;
        let seconds = (folded >> 1).cast_signed() ^ -(folded & 1).cast_signed();
        Some(Timestamp { seconds, nanos: u32::try_from(self.number()?).ok()? })
    }
}

#[cfg(test)]
mod tests;

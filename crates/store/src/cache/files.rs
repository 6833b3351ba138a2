//! The files of the metadata cache.
//!
//! `<cache>/<repository id>/<object name>@<part>` holds one kept reply, part being `all`,
//! `<start>-<end>` or `-<count>` for a tail. No object name holds an `@`.
//!
//! | offset | size   | field       | meaning                                                        |
//! |-------:|-------:|-------------|----------------------------------------------------------------|
//! |      0 | n      | bytes       | the reply                                                      |
//! |      n | 16 * b | checks      | of each block of 64 KiB, the last one shorter; b = ceil(n / 64 KiB) |
//! |        | 8      | object_size | of the whole object, in bytes                                  |
//! |        | 8      | magic       | `LDRCACH1`, the digit is the version                           |
//!
//! Numbers are little-endian. A check is the start of a BLAKE3 over object name, part, object size,
//! block number and the block. So a file under a wrong name or with misplaced blocks is noticed. It
//! guards against bad disks, not against forgery: the contents are sealed, and opening them reveals
//! a forgery.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;

use crate::layer::ReadRange;

const MAGIC: &[u8; 8] = b"LDRCACH1";
/// Bytes covered by one check: the minimum that a small read has to read and hash.
const BLOCK: u64 = 64 << 10;
const CHECK: usize = 16;
const TRAILER: u64 = 16;

/// Marks a folder as a cache, so that backup programs (ours too) leave it out. They look for the
/// first line.
const TAG: &str =
    "Signature: 8a477f597d28d172789f06886806bc55\n# Copies of objects in Larder repositories. Safe to delete.\n";

/// Tells the temporary files of one process apart.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Which part of an object a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Span(Range<u64>),
    Tail(u64),
}

impl Part {
    pub(super) fn of(range: &ReadRange) -> Self {
        match range {
            ReadRange::Whole | ReadRange::WholeUpTo(_) => Self::Whole,
            ReadRange::Span(span) => Self::Span(span.clone()),
            ReadRange::Tail(count) => Self::Tail(*count),
        }
    }

    fn suffix(&self) -> String {
        match self {
            Self::Whole => "@all".to_owned(),
            Self::Span(span) => format!("@{}-{}", span.start, span.end),
            Self::Tail(count) => format!("@-{count}"),
        }
    }
}

/// One repository's cache.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    folder: PathBuf,
    max_bytes: u64,
    /// Bytes in the cache as far as this process knows; `None` until it has looked.
    total: Mutex<Option<u64>>,
}

impl Files {
    pub(super) fn new(dir: &Path, repository: &Path, max_bytes: u64) -> Self {
        Self { dir: dir.to_owned(), folder: dir.join(repository), max_bytes, total: Mutex::new(None) }
    }

    fn path(&self, name: &str, part: &Part) -> PathBuf {
        let mut path = self.folder.join(name).into_os_string();
        path.push(part.suffix());
        path.into()
    }

    /// The kept bytes that answer a read, and the object's size.
    pub(super) fn find(&self, name: &str, range: &ReadRange) -> Option<(Bytes, u64)> {
        let wanted = Part::of(range);
        let parts = if wanted == Part::Whole { vec![Part::Whole] } else { vec![Part::Whole, wanted] };
        parts.into_iter().find_map(|part| {
            let path = self.path(name, &part);
            match Kept::read(&path, name, &part, range) {
                Ok(found) => Some(found),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => {
                    // Fetched again and kept again; until then there is one bad file less.
                    tracing::info!(object = name, %error, "removing an unusable file from the metadata cache");
                    let _ = fs::remove_file(&path);
                    None
                }
            }
        })
    }

    /// Keeps a reply: a temporary file, renamed, so that no reader sees half of it. Nothing is
    /// synced; after a crash the checks find out.
    pub(super) fn keep(&self, name: &str, part: &Part, bytes: &[u8], object_size: u64) -> io::Result<()> {
        let stored = bytes.len() as u64 + checks_len(bytes.len() as u64) + TRAILER;
        if stored > self.max_bytes / 4 {
            // It would push out too much else.
            return Ok(());
        }
        self.make_room(stored);
        let path = self.path(name, part);
        let parent = path.parent().ok_or(ErrorKind::InvalidFilename)?;
        if !parent.is_dir() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            self.tag();
        }
        let temporary = parent.join(format!("@{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
        let written = write(&temporary, name, part, bytes, object_size).and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        } else if let Some(total) = self.total.lock().as_mut() {
            *total += stored;
        }
        written
    }

    /// Removes every part kept of an object.
    pub(super) fn forget(&self, name: &str) {
        let whole = self.path(name, &Part::Whole);
        let Some((parent, prefix)) = whole.parent().zip(name.rsplit('/').next()) else { return };
        let prefix = format!("{prefix}@");
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|file| file.starts_with(&prefix)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Writes the mark of a cache folder, unless it is there.
    fn tag(&self) {
        if let Ok(mut file) = File::options().write(true).create_new(true).open(self.dir.join("CACHEDIR.TAG")) {
            let _ = file.write_all(TAG.as_bytes());
        }
    }

    /// Removes the files unused for longest until there is room again, with a tenth to spare.
    fn make_room(&self, needed: u64) {
        let mut total = self.total.lock();
        if total.is_some_and(|total| total + needed <= self.max_bytes) {
            return;
        }
        // Other processes add and remove as well, so the existing files decide.
        let mut by_age = BTreeMap::new();
        let mut sum = 0;
        for (path, size, used) in walk(&self.folder) {
            sum += size;
            by_age.insert((used, path), size);
        }
        if sum + needed > self.max_bytes {
            let target = (self.max_bytes - self.max_bytes / 10).saturating_sub(needed);
            for ((_, path), size) in by_age {
                if sum <= target {
                    break;
                }
                if fs::remove_file(&path).is_ok() {
                    sum -= size;
                }
            }
        }
        *total = Some(sum);
    }
}

/// An opened cache file.
struct Kept<'a> {
    file: File,
    /// Bytes of the reply it holds.
    len: u64,
    object_size: u64,
    name: &'a str,
    part: &'a Part,
}

impl<'a> Kept<'a> {
    fn read(path: &Path, name: &'a str, part: &'a Part, range: &ReadRange) -> io::Result<(Bytes, u64)> {
        let kept = Self::open(path, name, part)?;
        let span = match part {
            // Only whole objects are cut; a part that was kept as it was asked for is given out so.
            Part::Whole => range.within(kept.object_size).map_err(|_| ErrorKind::NotFound)?,
            Part::Span(_) | Part::Tail(_) => 0..kept.len,
        };
        let bytes = kept.checked(span)?;
        // Marks the file as used, for the choice of files to remove. Best effort: the cache may be
        // read-only.
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let _ = rustix::fs::futimens(&kept.file, &rustix::fs::Timestamps { last_access: now, last_modification: now });
        Ok((bytes, kept.object_size))
    }

    fn open(path: &Path, name: &'a str, part: &'a Part) -> io::Result<Self> {
        let file = File::open(path)?;
        let file_len = file.metadata()?.len();
        let mut trailer = [0; TRAILER as usize];
        file.read_exact_at(&mut trailer, file_len.checked_sub(TRAILER).ok_or(ErrorKind::InvalidData)?)?;
        let (size, magic) = trailer.split_at(8);
        let object_size = u64::from_le_bytes(size.try_into().map_err(|_| ErrorKind::InvalidData)?);
        let len = match part {
            Part::Whole => object_size,
            Part::Span(span) => span.end - span.start,
            Part::Tail(count) => object_size.min(*count),
        };
        // Compared before anything is allocated: a flipped bit in the size must not ask for
        // exabytes.
        if magic != MAGIC || len.checked_add(checks_len(len)).and_then(|len| len.checked_add(TRAILER)) != Some(file_len)
        {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(Self { file, len, object_size, name, part })
    }

    /// Reads a span of the kept bytes by whole blocks, each checked.
    fn checked(&self, span: Range<u64>) -> io::Result<Bytes> {
        if span.is_empty() {
            return Ok(Bytes::new());
        }
        let blocks = span.start / BLOCK..span.end.div_ceil(BLOCK);
        let start = blocks.start * BLOCK;
        let end = (blocks.end * BLOCK).min(self.len);
        let mut bytes = Vec::with_capacity((end - start) as usize);
        while (bytes.len() as u64) < end - start {
            let offset = start + bytes.len() as u64;
            if rustix::io::pread(&self.file, spare_capacity(&mut bytes), offset)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        bytes.truncate((end - start) as usize);
        let mut checks = vec![0; (blocks.end - blocks.start) as usize * CHECK];
        self.file.read_exact_at(&mut checks, self.len + blocks.start * CHECK as u64)?;
        for ((block, bytes), expected) in blocks.zip(bytes.chunks(BLOCK as usize)).zip(checks.chunks(CHECK)) {
            if check(self.name, self.part, self.object_size, block, bytes) != *expected {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        Ok(Bytes::from(bytes).slice((span.start - start) as usize..(span.end - start) as usize))
    }
}

fn write(path: &Path, name: &str, part: &Part, bytes: &[u8], object_size: u64) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    let mut tail = Vec::with_capacity(checks_len(bytes.len() as u64) as usize + TRAILER as usize);
    for (block, bytes) in (0..).zip(bytes.chunks(BLOCK as usize)) {
        tail.extend_from_slice(&check(name, part, object_size, block, bytes));
    }
    tail.extend_from_slice(&object_size.to_le_bytes());
    tail.extend_from_slice(MAGIC);
    file.write_all(&tail)
}

fn checks_len(len: u64) -> u64 {
    len.div_ceil(BLOCK) * CHECK as u64
}

fn check(name: &str, part: &Part, object_size: u64, block: u64, bytes: &[u8]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(name.as_bytes());
    hasher.update(part.suffix().as_bytes());
    hasher.update(&object_size.to_le_bytes());
    hasher.update(&block.to_le_bytes());
    hasher.update(bytes);
    let mut check = [0; CHECK];
    hasher.finalize_xof().fill(&mut check);
    check
}

/// All files below a folder, with size and time of last use. Files that vanish meanwhile are left
/// out.
fn walk(folder: &Path) -> Vec<(PathBuf, u64, (i64, i64))> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                open.push(entry.path());
            } else {
                found.push((entry.path(), metadata.len(), (metadata.mtime(), metadata.mtime_nsec())));
            }
        }
    }
    found
}

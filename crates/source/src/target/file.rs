//! Regular files: begun, written from any thread in any order, finished.
//!
//! An existing file is overwritten in place when that changes no other file (`policy`), so that the
//! pipeline may keep its right parts. Otherwise it is removed and created again. Its old content is
//! lost from the first write on: until then it is left alone, so a restore over an equal tree
//! changes nothing.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};

use larder_format::entry::Entry;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::error::TargetError;
use super::files::Slot;
use super::folders::{self, Folder};
use super::metadata::{self, Attributes, Now};
use super::notes::NoteKind;
use super::policy::{KeptReason, Verdict, decide, overwritten};
use super::sparse::{self, Layout, OldContent, Zeros};
use super::subject::Subject;
use super::{Inner, Target, unfinished};
use crate::stat::{InodeId, Stat};

/// Attempts at a place where another program makes and removes things at the same time.
const PLACE_ATTEMPTS: u32 = 4;

/// Flags of every opening of an existing file: no link is followed, no FIFO waited for, no terminal
/// taken.
pub(super) const EXISTING: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// The decision of [`Target::begin_file`].
#[derive(Debug)]
pub enum FileDecision {
    /// Its content is wanted.
    Write(FileWriter),
    /// It is there already; its metadata was put right where it differed.
    UpToDate,
    /// It was left alone, and noted.
    Kept(KeptReason),
}

/// The result of [`Target::put_file`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutDecision {
    /// It was written.
    Written,
    /// It was there already; its metadata was put right where it differed.
    UpToDate,
    /// It was left alone, and noted.
    Kept(KeptReason),
}

impl Target {
    /// Restores a small file in one call. `content`: its [`Entry::stored_bytes`], extents one after
    /// the other.
    pub fn put_file(&self, entry: &Entry, content: &[u8]) -> Result<PutDecision, TargetError> {
        let layout = Layout::of(entry)?;
        if content.len() as u64 != entry.stored_bytes() {
            let path = entry.path.clone();
            return Err(TargetError::Incomplete { path, expected: entry.stored_bytes(), got: content.len() as u64 });
        }
        let writer = match self.inner.begin(entry)? {
            Begun::UpToDate => return Ok(PutDecision::UpToDate),
            Begun::Kept(reason) => return Ok(PutDecision::Kept(reason)),
            Begun::Dry { over: None } => return Ok(PutDecision::Written),
            Begun::Dry { over: Some(found) } => FileWriter::dry(self, entry, Some(&found)),
            Begun::Fresh { folder, fd } => {
                self.inner.put_fresh(entry, layout, content, &folder, &fd)?;
                return Ok(PutDecision::Written);
            }
            Begun::InPlace { fd, found } => FileWriter::over(self, entry, fd, &found),
        };
        if writer.holds(content, layout) {
            writer.covered.store(content.len() as u64, Ordering::Relaxed);
        } else {
            let mut rest = content;
            for run in layout.runs() {
                let (part, after) = rest.split_at(usize::try_from(run.length).unwrap_or(rest.len()));
                writer.write_at(run.offset, part)?;
                rest = after;
            }
        }
        writer.finish(entry)?;
        Ok(if writer.is_touched() { PutDecision::Written } else { PutDecision::UpToDate })
    }

    /// Begins a file whose content comes in pieces.
    pub fn begin_file(&self, entry: &Entry) -> Result<FileDecision, TargetError> {
        Layout::of(entry)?;
        Ok(match self.inner.begin(entry)? {
            Begun::UpToDate => FileDecision::UpToDate,
            Begun::Kept(reason) => FileDecision::Kept(reason),
            Begun::Dry { over } => FileDecision::Write(FileWriter::dry(self, entry, over.as_ref())),
            Begun::InPlace { fd, found } => FileDecision::Write(FileWriter::over(self, entry, fd, &found)),
            Begun::Fresh { folder, fd } => {
                let made = Stat::of(&fd).map_err(TargetError::step("look at", &entry.path))?;
                let mut writer = FileWriter::new(self, entry, Some(made.id));
                writer.attributes = attributes_in(&folder);
                self.inner.files.insert(&writer.slot, fd);
                FileDecision::Write(writer)
            }
        })
    }

    /// The file in the place of `entry`, opened for reading, when it is a regular file.
    ///
    /// For comparing before [`Target::begin_file`]; afterwards [`FileWriter::existing_content`] is
    /// the one that still counts.
    pub fn existing_content(&self, entry: &Entry) -> Option<File> {
        let (folder, name) = self.inner.existing_parent(&entry.path).ok()??;
        let fd = rustix::fs::openat(&*folder, name, EXISTING | OFlags::RDONLY, Mode::empty()).ok()?;
        Stat::of(&fd).is_ok_and(|stat| stat.file_type.is_file()).then(|| File::from(fd))
    }
}

/// A regular file between its beginning and its end.
///
/// Bytes may come in any order and from several threads. It may have no descriptor of its own for a
/// while, so thousands can be begun at once. Dropped without [`FileWriter::finish`], the file stays
/// marked as unfinished and the next restore does it again.
#[derive(Debug)]
pub struct FileWriter {
    target: Arc<Inner>,
    slot: Arc<Slot>,
    path: Box<[u8]>,
    size: u64,
    /// The inode that was begun: opening it again must find no other. `None`: a dry run would make
    /// it.
    id: Option<InodeId>,
    /// The old content in it; of no bytes for a file made by this restore.
    old: OldContent,
    attributes: Attributes,
    covered: AtomicU64,
    /// Runs before the first change: from then on an old file counts as unfinished.
    touched: Once,
    finished: AtomicBool,
}

impl FileWriter {
    fn new(target: &Target, entry: &Entry, id: Option<InodeId>) -> Self {
        Self {
            target: target.inner.clone(),
            slot: Arc::default(),
            path: entry.path.as_slice().into(),
            size: entry.size(),
            id,
            old: OldContent::default(),
            attributes: Attributes::Fresh,
            covered: AtomicU64::new(0),
            touched: Once::new(),
            finished: AtomicBool::new(false),
        }
    }

    /// Writes nothing; finds the writes over `over` that would be needed.
    fn dry(target: &Target, entry: &Entry, over: Option<&Stat>) -> Self {
        let mut writer = Self::new(target, entry, over.map(|found| found.id));
        writer.old = OldContent::new(over.map_or(0, |found| found.size));
        writer
    }

    fn over(target: &Target, entry: &Entry, fd: OwnedFd, found: &Stat) -> Self {
        let mut writer = Self::new(target, entry, Some(found.id));
        writer.old = OldContent::new(found.size);
        writer.attributes = Attributes::Unknown;
        target.inner.files.insert(&writer.slot, fd);
        writer
    }

    /// Writes bytes at their place in the file (holes included in the count). Every stored byte
    /// must be written once, or declared with [`FileWriter::keep`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), TargetError> {
        self.check_range(offset, data.len() as u64)?;
        if self.is_dry() {
            self.touched.call_once(|| ());
        } else {
            let fd = self.descriptor()?;
            self.touch(fd.as_fd());
            let zeros = match self.target.options.sparse {
                true => Zeros::Holes(&self.old),
                false => Zeros::Written,
            };
            sparse::write(fd.as_fd(), data, offset, zeros).map_err(TargetError::step("write", &self.path))?;
        }
        self.covered.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Declares that the old content is right here, as a comparison has shown.
    pub fn keep(&self, offset: u64, length: u64) -> Result<(), TargetError> {
        self.check_range(offset, length)?;
        if offset + length > self.old.bytes() {
            return Err(self.misuse("there is no old content to keep"));
        }
        self.covered.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    /// In a dry run: this number of bytes would have to be written, with any content.
    pub fn would_write(&self, length: u64) -> Result<(), TargetError> {
        if !self.is_dry() {
            return Err(self.misuse("it is written, not only looked at"));
        }
        self.touched.call_once(|| ());
        self.covered.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes of old content in the file; 0 when it was made by this restore.
    pub fn existing_bytes(&self) -> u64 {
        self.old.bytes()
    }

    /// The old content, to compare with the new; `None` when there is none or it cannot be read.
    pub fn existing_content(&self) -> Option<File> {
        if self.old.bytes() == 0 {
            return None;
        }
        self.reopen(OFlags::RDONLY).ok().map(File::from)
    }

    /// Whether anything of its content was changed, or it was made.
    pub fn has_changed(&self) -> bool {
        self.old.bytes() == 0 || self.is_touched()
    }

    /// Whether any of its content was changed. A real run cuts off the end or adds a hole there; a
    /// dry run sees this by the size.
    pub fn is_touched(&self) -> bool {
        self.touched.is_completed() || (self.is_dry() && self.old.bytes() != self.size)
    }

    fn is_dry(&self) -> bool {
        self.target.options.dry_run
    }

    /// Ends the file: size, holes, metadata, and at last the mode that tells it is finished. One
    /// whose old content was written over ends with [`Target::finish_overwritten`].
    ///
    /// Takes `&self`, because the thread that writes the last piece usually shares the writer with
    /// others; nothing may be written afterwards.
    pub fn finish(&self, entry: &Entry) -> Result<(), TargetError> {
        let layout = Layout::of(entry)?;
        if *entry.path != *self.path || layout.size != self.size {
            return Err(self.misuse("finished with another entry than it was begun with"));
        }
        let (expected, got) = (entry.stored_bytes(), self.covered.load(Ordering::Relaxed));
        if got < expected {
            return Err(TargetError::Incomplete { path: self.path.to_vec(), expected, got });
        }
        if self.finished.swap(true, Ordering::Relaxed) {
            return Err(self.misuse("finished twice"));
        }
        if self.is_dry() {
            return Ok(());
        }
        let fd = self.descriptor()?;
        self.target.finish(self, entry, layout, fd.as_fd())?;
        drop(self.target.files.remove(&self.slot));
        Ok(())
    }

    pub(super) fn id(&self) -> Option<InodeId> {
        self.id
    }

    fn check_range(&self, offset: u64, length: u64) -> Result<(), TargetError> {
        if self.finished.load(Ordering::Relaxed) {
            return Err(self.misuse("written after its end"));
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            let problem = "its content is longer than its size";
            return Err(TargetError::BadEntry { path: self.path.to_vec(), problem });
        }
        Ok(())
    }

    fn misuse(&self, problem: &'static str) -> TargetError {
        TargetError::Misuse { path: self.path.to_vec(), problem }
    }

    /// Marks an old file before its first change. Where that is not allowed, its changed time must
    /// do.
    fn touch(&self, fd: BorrowedFd<'_>) {
        self.touched.call_once(|| {
            if self.attributes == Attributes::Unknown {
                let _ = rustix::fs::fchmod(fd, Mode::from_raw_mode(unfinished::FILE));
            }
        });
    }

    fn descriptor(&self) -> Result<Arc<OwnedFd>, TargetError> {
        match self.slot.get() {
            Some(fd) => Ok(fd),
            None => Ok(self.target.files.insert(&self.slot, self.reopen(OFlags::WRONLY)?)),
        }
    }

    /// Opens the same inode once more.
    fn reopen(&self, access: OFlags) -> Result<OwnedFd, TargetError> {
        let swapped = || TargetError::Swapped { path: self.path.to_vec() };
        let (folder, name) = self.target.existing_parent(&self.path)?.ok_or_else(swapped)?;
        match rustix::fs::openat(&*folder, name, EXISTING | access, Mode::empty()) {
            Ok(fd) if Stat::of(&fd).is_ok_and(|stat| Some(stat.id) == self.id) => Ok(fd),
            Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ISDIR) => Err(swapped()),
            Err(errno) => Err(TargetError::step("open", &self.path)(errno)),
        }
    }

    /// Whether the old content is exactly this, without holes.
    fn holds(&self, content: &[u8], layout: Layout<'_>) -> bool {
        use std::os::unix::fs::FileExt;
        if self.old.bytes() != layout.size || content.len() as u64 != layout.size {
            return false;
        }
        let Some(file) = self.existing_content() else { return content.is_empty() };
        let mut now = vec![0; content.len()];
        file.read_exact_at(&mut now, 0).is_ok() && now == content
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        drop(self.target.files.remove(&self.slot));
    }
}

/// The place of a file, made ready.
enum Begun {
    Fresh {
        folder: Arc<Folder>,
        fd: OwnedFd,
    },
    InPlace {
        fd: OwnedFd,
        found: Stat,
    },
    UpToDate,
    Kept(KeptReason),
    /// A dry run: it would be created, or an existing file overwritten.
    Dry {
        over: Option<Stat>,
    },
}

impl Inner {
    fn begin(&self, entry: &Entry) -> Result<Begun, TargetError> {
        let path = &entry.path;
        for _ in 0..PLACE_ATTEMPTS {
            let (folder, name) = match self.parent(path) {
                Ok(Some(place)) => place,
                Ok(None) => return Ok(Begun::Dry { over: None }),
                Err(error @ TargetError::NotBelowFolder { .. }) => {
                    let reason = self.kept_out(path).ok_or(error)?;
                    return Ok(Begun::Kept(self.kept(path, reason)));
                }
                Err(error) => return Err(error),
            };
            // The usual case first: the name is free.
            if !self.options.dry_run {
                match create(&folder, name) {
                    Ok(fd) => return Ok(Begun::Fresh { folder, fd }),
                    Err(Errno::EXIST) => {}
                    Err(Errno::NOENT) => {
                        self.forget_parent(path);
                        continue;
                    }
                    Err(errno) => return Err(TargetError::step("create", path)(errno)),
                }
            }
            match self.look(&folder, name, path)? {
                Some(found) => {
                    if let Some(begun) = self.begin_over(entry, &folder, name, &found)? {
                        return Ok(begun);
                    }
                }
                None if self.options.dry_run => return Ok(Begun::Dry { over: None }),
                None => {}
            }
        }
        Err(TargetError::Swapped { path: path.clone() })
    }

    /// The name exists. `None`: it is gone now, try again.
    fn begin_over(
        &self,
        entry: &Entry,
        folder: &Arc<Folder>,
        name: &[u8],
        found: &Stat,
    ) -> Result<Option<Begun>, TargetError> {
        let path = &entry.path;
        let around = self.around(entry);
        let verdict = match decide(entry, found, false, &around) {
            Verdict::Same if !has_its_data(entry, folder, name)? => overwritten(found, &around),
            verdict => verdict,
        };
        let dry_run = self.options.dry_run;
        match verdict {
            Verdict::Keep(reason) => return Ok(Some(Begun::Kept(self.kept(path, reason)))),
            Verdict::Same if dry_run => return Ok(Some(Begun::UpToDate)),
            Verdict::InPlace if dry_run => return Ok(Some(Begun::Dry { over: Some(*found) })),
            Verdict::Same if self.refresh(entry, folder, name, found)? => return Ok(Some(Begun::UpToDate)),
            Verdict::InPlace => match rustix::fs::openat(&**folder, name, EXISTING | OFlags::WRONLY, Mode::empty()) {
                Ok(fd) => {
                    let opened = Stat::of(&fd).map_err(TargetError::step("look at", path))?;
                    let same = opened.id == found.id && opened.links == 1;
                    return Ok(same.then_some(Begun::InPlace { fd, found: opened }));
                }
                Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
                // No right to write, or a program that is running: a new file in its place does it.
                Err(Errno::ACCESS | Errno::TXTBSY) => {}
                Err(errno) => return Err(TargetError::step("overwrite", path)(errno)),
            },
            Verdict::Same | Verdict::Replace => {}
        }
        if let Some(reason) = self.clear(folder, name, path, found)? {
            return Ok(Some(Begun::Kept(self.kept(path, reason))));
        }
        if dry_run {
            return Ok(Some(Begun::Dry { over: None }));
        }
        if !found.file_type.is_file() && !found.file_type.is_dir() {
            self.notes.add(NoteKind::Replaced, path, || "by a file".to_owned());
        }
        match create(folder, name) {
            Ok(fd) => Ok(Some(Begun::Fresh { folder: folder.clone(), fd })),
            Err(Errno::EXIST | Errno::NOENT) => Ok(None),
            Err(errno) => Err(TargetError::step("create", path)(errno)),
        }
    }

    /// Puts the metadata of a file with the right content right. `false`: that would change another
    /// name's file as well.
    fn refresh(&self, entry: &Entry, folder: &Folder, name: &[u8], found: &Stat) -> Result<bool, TargetError> {
        let path = &entry.path;
        let goal = self.goal(entry);
        if metadata::is_reached(&self.rights, Subject::Name { folder, name }, found, &goal) {
            return Ok(true);
        }
        if found.links > 1 {
            return Ok(false);
        }
        let open = |access| rustix::fs::openat(folder, name, EXISTING | access, Mode::empty());
        let (fd, place_only) = match open(OFlags::RDONLY) {
            Err(Errno::ACCESS) => (open(OFlags::PATH), true),
            other => (other, false),
        };
        let fd = fd.map_err(TargetError::step("open", path))?;
        let mut stat = Stat::of(&fd).map_err(TargetError::step("look at", path))?;
        if stat.id != found.id || stat.links > 1 {
            return Ok(false);
        }
        let subject = if place_only { Subject::Place(fd.as_fd()) } else { Subject::Open(fd.as_fd()) };
        if self.rights.euid != 0 && stat.mode & 0o600 != 0o600 && subject.chmod(stat.mode | 0o600).is_ok() {
            // Attributes are content to the kernel: its rights count for them. The mode is set
            // right last.
            stat.mode |= 0o600;
        }
        let now = Now { stat: &stat, attributes: Attributes::Unknown, written_since: false };
        metadata::apply(&self.rights, &self.notes, path, subject, &now, &goal)?;
        Ok(true)
    }

    /// Fills and ends a file that was just made, all at once.
    fn put_fresh(
        &self,
        entry: &Entry,
        layout: Layout<'_>,
        content: &[u8],
        folder: &Folder,
        fd: &OwnedFd,
    ) -> Result<(), TargetError> {
        let path = &entry.path;
        let fill = || -> Result<(), TargetError> {
            let stat = Stat::of(fd).map_err(TargetError::step("look at", path))?;
            let nothing = OldContent::default();
            let zeros = if self.options.sparse { Zeros::Holes(&nothing) } else { Zeros::Written };
            let mut rest = content;
            let mut end = 0;
            for run in layout.runs() {
                let (part, after) = rest.split_at(usize::try_from(run.length).unwrap_or(rest.len()));
                sparse::write(fd.as_fd(), part, run.offset, zeros).map_err(TargetError::step("write", path))?;
                end = run.offset + run.length;
                rest = after;
            }
            if end < layout.size || (self.options.sparse && layout.size > 0) {
                rustix::fs::ftruncate(fd, layout.size).map_err(TargetError::step("set the size of", path))?;
            }
            self.keep_safe(path, fd.as_fd())?;
            let goal = self.goal(entry);
            let now = Now { stat: &stat, attributes: attributes_in(folder), written_since: true };
            metadata::apply(&self.rights, &self.notes, path, Subject::Open(fd.as_fd()), &now, &goal)
        };
        fill().inspect_err(|_| {
            // Nothing of it is worth keeping for the next run.
            let _ = rustix::fs::unlinkat(folder, folders::split(path).1, AtFlags::empty());
        })
    }

    /// Ends a file written in pieces.
    fn finish(
        &self,
        writer: &FileWriter,
        entry: &Entry,
        layout: Layout<'_>,
        fd: BorrowedFd<'_>,
    ) -> Result<(), TargetError> {
        let path = &entry.path;
        let mut stat = Stat::of(fd).map_err(TargetError::step("look at", path))?;
        let resize = || rustix::fs::ftruncate(fd, layout.size).map_err(TargetError::step("set the size of", path));
        if stat.size > layout.size {
            writer.touch(fd);
            resize()?;
        }
        for hole in layout.holes(layout.size).take_while(|hole| hole.offset < writer.old.bytes()) {
            // File systems keep a block of which a part is cleared, so the last one is whole.
            let end = match hole.offset + hole.length {
                end if end == layout.size => end.next_multiple_of(sparse::BLOCK),
                end => end,
            };
            if !sparse::is_clear(fd, hole.offset..end, || writer.existing_content()) {
                writer.touch(fd);
                let cleared = sparse::clear(fd, hole.offset..end, writer.old.bytes());
                cleared.map_err(TargetError::step("make a hole in", path))?;
            }
        }
        if stat.size < layout.size {
            writer.touch(fd);
            resize()?;
        }
        let changed = writer.touched.is_completed();
        // A mark that was found here is of a run that has not waited for the disk.
        if (changed || unfinished::is_marked(&stat)) && writer.old.bytes() > 0 && !self.sync_files {
            return self.end_on_disk(writer, entry);
        }
        if changed {
            self.keep_safe(path, fd)?;
            stat = Stat::of(fd).map_err(TargetError::step("look at", path))?;
        }
        let goal = self.goal(entry);
        let now = Now { stat: &stat, attributes: writer.attributes, written_since: changed };
        metadata::apply(&self.rights, &self.notes, path, Subject::Open(fd), &now, &goal)
    }

    fn keep_safe(&self, path: &[u8], fd: BorrowedFd<'_>) -> Result<(), TargetError> {
        if !self.sync_files {
            return Ok(());
        }
        rustix::fs::fdatasync(fd).map_err(TargetError::step("write", path))
    }

    /// The directory of `path` was removed under us, so the path is resolved again.
    pub(super) fn forget_parent(&self, path: &[u8]) {
        if let Some(folders) = &self.folders {
            folders.forget(folders::split(path).0);
        }
    }
}

/// Whether no stored byte of a file is in a hole, so that its size and time may be trusted.
///
/// A restore leaves it to the kernel when contents go to disk, and a power cut may come between.
/// Then size, time and mode are back, and unwritten data reads as zeros, from a hole or from space
/// that was only reserved. Both are holes here.
fn has_its_data(entry: &Entry, folder: &Folder, name: &[u8]) -> Result<bool, TargetError> {
    let layout = Layout::of(entry)?;
    if layout.runs().next().is_none() {
        return Ok(true);
    }
    // A file that cannot be examined is not trusted.
    let fd = rustix::fs::openat(folder, name, EXISTING | OFlags::RDONLY, Mode::empty());
    Ok(fd.is_ok_and(|fd| layout.runs().all(|run| sparse::is_data(fd.as_fd(), run))))
}

/// The initial attributes of a new file in this directory.
fn attributes_in(folder: &Folder) -> Attributes {
    if folder.gives_acl { Attributes::Unknown } else { Attributes::Fresh }
}

fn create(folder: &Folder, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(unfinished::FILE))
}

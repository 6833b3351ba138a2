//! Creating files on file systems without unnamed files: under a name out of sight first, then
//! linked or renamed.
//!
//! Staged files are in one folder whose name begins with a dot, so no listing shows them. Each is
//! locked for as long as its writer lives. A file without its lock was left by a crash, and the
//! next writer removes it. Without locks (some network mounts) nothing is removed, which wastes
//! space and harms nothing.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::blocks::Buffers;
use super::write::write_synced;

/// The folder of staged files in a repository's folder. No object name has a segment that begins
/// with a dot.
pub(super) const FOLDER: &str = ".staging";

/// Tells apart the files that one process stages at a time, in however many repositories.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The place for files that are not complete yet: [`FOLDER`], which the caller opens and makes
/// where necessary.
#[derive(Debug, Default)]
pub(super) struct Staging {
    swept: parking_lot::Once,
}

impl Staging {
    /// Writes a file into the opened staging folder and moves it to its name in `target`, unless
    /// that name is taken.
    pub(super) fn create(
        &self,
        buffers: &Buffers,
        staging: &OwnedFd,
        target: &OwnedFd,
        name: &Path,
        bytes: &[u8],
    ) -> io::Result<()> {
        self.swept.call_once(|| sweep(staging));
        let (file, staged) = stage(staging)?;
        let moved = write_synced(buffers, &file, bytes).and_then(|()| publish(staging, &staged, &file, target, name));
        // After a rename this name is gone already; after a link or a failure it must be removed.
        match rustix::fs::unlinkat(staging, &*staged, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => tracing::warn!(file = %staged, error = %errno, "could not remove a staged file"),
        }
        moved
    }
}

/// Opens a new file under a unique name, and locks it.
fn stage(staging: &OwnedFd) -> io::Result<(File, String)> {
    let uname = rustix::system::uname();
    let node: String =
        uname.nodename().to_string_lossy().chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    let pid = std::process::id();
    loop {
        let staged = format!("{node}-{pid}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(staging, &*staged, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => file,
            Err(Errno::EXIST) => continue,
            Err(errno) => return Err(errno.into()),
        };
        // Without locks the file cannot be swept either, so it is safe all the same.
        let _ = rustix::fs::flock(&file, FlockOperation::LockExclusive);
        // A sweep may have come between the two: then the file has no name left.
        if rustix::fs::fstat(&file)?.st_nlink > 0 {
            return Ok((File::from(file), staged));
        }
    }
}

/// Gives the staged file its name: by a link, or where there are none by a rename that replaces
/// nothing.
fn publish(staging: &OwnedFd, staged: &str, file: &File, target: &OwnedFd, name: &Path) -> io::Result<()> {
    match rustix::fs::linkat(staging, staged, target, name, AtFlags::empty()) {
        Ok(()) => return Ok(()),
        // A link that is repeated because the answer was lost (NFS) meets itself.
        Err(Errno::EXIST) if rustix::fs::fstat(file)?.st_nlink > 1 => return Ok(()),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
        Err(errno) => return Err(errno.into()),
    }
    rustix::fs::renameat_with(staging, staged, target, name, RenameFlags::NOREPLACE).map_err(|errno| match errno {
        Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => io::Error::new(
            io::ErrorKind::Unsupported,
            "the file system has neither hard links nor renames that replace nothing, so objects cannot be created safely",
        ),
        errno => errno.into(),
    })
}

/// How a file is opened that may have been left.
const LEFT: OFlags = OFlags::WRONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Removes the files of crashed writers. Failures are left to the next one.
fn sweep(staging: &OwnedFd) {
    let Ok(entries) = Dir::read_from(staging) else { return };
    for entry in entries.flatten() {
        let staged = entry.file_name();
        if entry.file_type() == FileType::Directory {
            continue;
        }
        let Ok(file) = rustix::fs::openat(staging, staged, LEFT, Mode::empty()) else {
            continue;
        };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let removed = rustix::fs::unlinkat(staging, staged, AtFlags::empty());
            tracing::info!(file = %staged.to_string_lossy(), removed = removed.is_ok(), "file left by a crashed writer");
        }
    }
}

//! The mark of a file or directory whose restore has not ended.
//!
//! A restore may be killed at any moment. Under no overwrite policy may its next run take half a
//! file for a whole one. So everything is created with a mode that finished entries do not have: a
//! sticky bit on a file that only its owner can read. The very last call sets the true mode. That
//! costs nothing, because the mode has to be set anyway, and needs no second name. It hides the
//! content until it is complete, and leaves the bytes where the next run can compare and keep them.
//!
//! A file system without Unix modes cannot hold the mark. There size and time tell finished files,
//! which are set late as well.

use rustix::fs::FileType;

use crate::stat::Stat;

/// Mode of a file while it is being written.
pub(super) const FILE: u32 = 0o1600;

/// Mode of a directory until its metadata is set.
pub(super) const DIRECTORY: u32 = 0o1700;

/// A new directory may take this bit from the one it is made in.
const SET_GID: u32 = 0o2000;

/// Whether an earlier restore left this behind.
pub(super) fn is_marked(stat: &Stat) -> bool {
    match stat.file_type {
        FileType::RegularFile => stat.mode == FILE,
        FileType::Directory => stat.mode & !SET_GID == DIRECTORY,
        _ => false,
    }
}

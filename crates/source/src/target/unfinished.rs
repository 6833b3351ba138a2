//! The mark of a file or directory whose restore has not ended.
//!
//! A restore may be killed at any moment, and its next run must not take half a file for a whole one, under no overwrite policy.
//! So everything is made with a mode that nobody uses for finished things, a sticky bit on a file only its owner can read, and
//! gets its true mode with the very last call. That costs nothing (the mode has to be set anyway), needs no second name, hides the
//! content until it is complete, and leaves the bytes where the next run can compare and keep them.
//!
//! A file system without Unix modes cannot hold the mark. There size and time tell finished files, which are set late as well.

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

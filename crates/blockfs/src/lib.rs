//! Block devices as files: a FUSE file system with one file for each export of
//! [`larder_nbd::Exports`].
//!
//! | a call on a file                   | becomes                                                 |
//! |------------------------------------|---------------------------------------------------------|
//! | `read`, `write`                    | the same, past the page cache; short at the end         |
//! | `write` with `O_DSYNC`             | a write that is durable when it returns (FUA)           |
//! | `fsync`, `fdatasync`               | `flush`                                                 |
//! | `fallocate` punching or zeroing    | `write_zeroes`, which a deduplicating store discards    |
//! | `lseek` for data or holes          | `block_status` of `base:allocation`                     |
//! | truncation                         | nothing: as a block device, a file keeps its size       |
//!
//! Only the user of the process and root can use the files. This crate knows nothing of Larder.

mod files;
mod handles;
mod seek;

use std::io;
use std::path::Path;
use std::sync::Arc;

use larder_mountpoint::{Options, Users};
use larder_nbd::Exports;

use self::files::Files;

pub use larder_mountpoint::{Mounted, is_dead, unmount_dead};

/// Threads that serve requests of the kernel.
const THREADS: usize = 4;

/// Mounts exports on a folder that exists. Files appear and vanish with the exports.
///
/// # Errors
/// There is no such folder, or the system refuses the mount.
pub fn mount(folder: &Path, exports: Arc<dyn Exports>) -> io::Result<Mounted> {
    // Others are refused by the permissions of the files.
    let options = Options { is_read_only: false, users: Users::Owner, checks_permissions: true, threads: THREADS };
    Mounted::mount(folder, Files::new(exports), options)
}

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
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use larder_nbd::Exports;
use rustix::io::Errno;

use self::files::Files;

/// Threads that serve requests of the kernel.
const THREADS: usize = 4;
/// Programs that unmount a folder in use, and their options.
const LAZY_UNMOUNTS: [&[&str]; 3] = [&["fusermount3", "-uz"], &["fusermount", "-uz"], &["umount", "-l"]];

/// A mounted file system. A drop unmounts it.
#[derive(Debug)]
pub struct Mounted {
    folder: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts the exports on a folder that exists. Files appear and vanish with the exports.
    pub fn mount(folder: &Path, exports: Arc<dyn Exports>) -> io::Result<Self> {
        let folder = std::fs::canonicalize(folder)?;
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("larder".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoAtime,
        ];
        // Others are refused by the permissions of the files.
        config.acl = if rustix::process::geteuid().is_root() { SessionACL::Owner } else { SessionACL::default() };
        config.n_threads = Some(THREADS);
        let session = fuser::spawn_mount(Files::new(exports), &folder, &config)?;
        Ok(Self { folder, session: Some(session) })
    }

    /// Where it is mounted.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Unmounts. With open files, it is unmounted all the same: they fail from the end of the
    /// process on. `false` then.
    pub fn unmount(mut self) -> io::Result<bool> {
        self.end()
    }

    fn end(&mut self) -> io::Result<bool> {
        let Some(session) = self.session.take() else { return Ok(true) };
        if unmount(&["umount"], &self.folder) || unmount(&["fusermount3", "-u"], &self.folder) {
            // The kernel has ended the session. It only has to be joined.
            return session.umount_and_join().map(|()| true).or(Ok(true));
        }
        // Joining would wait for the users of the files.
        std::mem::forget(session);
        if unmount_dead(&self.folder) { Ok(false) } else { Err(io::Error::from(Errno::BUSY)) }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!("{} cannot be unmounted: {error}", self.folder.display());
        }
    }
}

/// Whether a folder has a mount whose program has ended.
pub fn is_dead(folder: &Path) -> bool {
    std::fs::metadata(folder).is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()))
}

/// Unmounts what a killed program left mounted, or what is in use. `false` if nothing could.
pub fn unmount_dead(folder: &Path) -> bool {
    LAZY_UNMOUNTS.iter().any(|command| unmount(command, folder))
}

fn unmount(command: &[&str], folder: &Path) -> bool {
    let [program, options @ ..] = command else { return false };
    let mut command = Command::new(program);
    command.args(options).arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

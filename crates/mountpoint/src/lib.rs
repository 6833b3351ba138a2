//! Mounting FUSE file systems on folders, and ending that in every case. This crate knows nothing
//! of Larder.
//!
//! * [`expect_free`]: refuses a folder that cannot be a mount point, or that has files.
//! * [`Mounted`]: a mounted file system. Unmounting works with open files too.
//! * `guard`: unmounts when the process is killed.

mod free;
mod guard;
mod unmounting;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use fuser::{BackgroundSession, Config, Filesystem, MountOption, SessionACL};

pub use self::free::{NotFree, expect_free};
use self::guard::Guard;
pub use self::unmounting::{is_dead, unmount_dead};
use self::unmounting::{unmount, unmount_lazily};

/// Who may use the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Users {
    /// The user of the process. Root's files can be used by root alone.
    Owner,
    /// Every user. The system may refuse that (`user_allow_other` in `/etc/fuse.conf`).
    All,
}

/// How a file system is mounted. It never has devices or set-id programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The kernel refuses all changes.
    pub is_read_only: bool,
    /// Who may use the files.
    pub users: Users,
    /// The kernel checks modes and owners of files.
    pub checks_permissions: bool,
    /// Threads that serve requests of the kernel.
    pub threads: usize,
}

/// Why a mount did not end well.
#[derive(Debug)]
pub enum NotEnded {
    /// It cannot be unmounted.
    Busy(io::Error),
    /// It is unmounted, but requests were not served any more because of this error.
    Broken(io::Error),
}

impl fmt::Display for NotEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(error) => write!(f, "it cannot be unmounted: {error}"),
            Self::Broken(error) => write!(f, "it ended by an error of FUSE: {error}"),
        }
    }
}

impl std::error::Error for NotEnded {}

/// A mounted file system. A drop unmounts it, and so does the end of the process.
#[derive(Debug)]
pub struct Mounted {
    folder: PathBuf,
    session: Option<BackgroundSession>,
    guard: Option<Guard>,
}

impl Mounted {
    /// Mounts a file system on a folder that exists.
    ///
    /// # Errors
    /// There is no such folder, or the system refuses the mount.
    pub fn mount(folder: &Path, files: impl Filesystem, options: Options) -> io::Result<Self> {
        let folder = std::fs::canonicalize(folder)?;
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("larder".to_owned()),
            MountOption::Subtype("larder".to_owned()),
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoAtime,
        ];
        if options.checks_permissions {
            config.mount_options.push(MountOption::DefaultPermissions);
        }
        if options.is_read_only {
            config.mount_options.push(MountOption::RO);
        }
        config.acl = match options.users {
            Users::Owner => SessionACL::Owner,
            Users::All => SessionACL::All,
        };
        config.n_threads = Some(options.threads);
        // Before the mount: a child that inherits its device would keep it alive.
        let guard = Guard::start(&folder);
        match fuser::spawn_mount(files, &folder, &config) {
            Ok(session) => Ok(Self { folder, session: Some(session), guard }),
            Err(error) => {
                if let Some(guard) = guard {
                    guard.end();
                }
                Err(error)
            }
        }
    }

    /// Where it is mounted.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether somebody else has unmounted it.
    pub fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }

    /// Unmounts. With open files, it is unmounted all the same: they fail from the end of the
    /// process on. `false` then.
    ///
    /// # Errors
    /// It cannot be unmounted, or it ended by an error.
    pub fn unmount(mut self) -> Result<bool, NotEnded> {
        self.end()
    }

    fn end(&mut self) -> Result<bool, NotEnded> {
        let Some(session) = self.session.take() else { return Ok(true) };
        let ended = self.end_session(session);
        // If it is still mounted, the guard tries once more after the process.
        if !matches!(ended, Err(NotEnded::Busy(_)))
            && let Some(guard) = self.guard.take()
        {
            guard.end();
        }
        ended
    }

    fn end_session(&self, session: BackgroundSession) -> Result<bool, NotEnded> {
        if session.guard.is_finished() || unmount(&self.folder) {
            // The kernel has ended the session, or an error has. It only has to be joined.
            let joined = session.join();
            // An error may have left it mounted.
            if is_dead(&self.folder) {
                unmount_lazily(&self.folder);
            }
            return joined.map(|()| true).map_err(NotEnded::Broken);
        }
        // Joining would wait for the users of the files.
        std::mem::forget(session);
        let busy = || NotEnded::Busy(rustix::io::Errno::BUSY.into());
        if unmount_lazily(&self.folder) { Ok(false) } else { Err(busy()) }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!("{}: {error}", self.folder.display());
        }
    }
}

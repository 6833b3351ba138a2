//! The folder of one repository: who may read it, and how its files change.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use larder_format::ids::RepositoryId;
use larder_format::keys::Secret;
use rustix::fs::{FlockOperation, OFlags};
use zeroize::Zeroizing;

use crate::measured::{MEASURED_MAX, Measured, MeasuredRun};
use crate::seen::{SEEN_MAX, Seen};

/// How often, and how long, a process waits for another one that changes the state.
const LOCK_TRIES: u32 = 500;
const LOCK_WAIT: std::time::Duration = std::time::Duration::from_millis(10);

/// Why a state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another user may have written it.
    #[error("{path} belongs to another user (uid {uid})", path = path.display())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Others may read or change it.
    #[error("{path} is open to others (mode {mode:04o}); `chmod go= {path}` closes it", path = path.display())]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Its bytes are no state.
    #[error("{path} cannot be read; delete it to begin again", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

impl StateError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}

/// The state of one repository on this machine.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
}

impl StateFolder {
    /// Opens the folder of a repository below `base`; `None` if there is none.
    pub fn open(base: &Path, repository: RepositoryId) -> Result<Option<Self>, StateError> {
        let path = base.join(repository.to_string());
        match std::fs::symlink_metadata(&path) {
            Ok(metadata) => Self::checked(path, &metadata).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StateError::io(&path)(error)),
        }
    }

    /// The same; makes the folder if there is none.
    pub fn create(base: &Path, repository: RepositoryId) -> Result<Self, StateError> {
        let path = base.join(repository.to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(StateError::io(&path))?;
        let metadata = std::fs::symlink_metadata(&path).map_err(StateError::io(&path))?;
        Self::checked(path, &metadata)
    }

    fn checked(path: PathBuf, metadata: &std::fs::Metadata) -> Result<Self, StateError> {
        check(&path, metadata)?;
        match metadata.is_dir() {
            true => Ok(Self { path }),
            false => Err(StateError::io(&path)(io::ErrorKind::NotADirectory.into())),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The secret of this machine. When there is none yet, `draw` fills it with random bytes.
    pub fn secret(&self, draw: impl FnOnce(&mut [u8]) -> io::Result<()>) -> Result<Secret, StateError> {
        let path = self.path.join("secret");
        if let Some(secret) = self.read_secret(&path)? {
            return Ok(secret);
        }
        let mut drawn = Zeroizing::new([0; 32]);
        draw(&mut drawn[..]).map_err(StateError::io(&path))?;
        let lock = self.lock()?;
        // Another process may have been first.
        if let Some(secret) = self.read_secret(&path)? {
            return Ok(secret);
        }
        self.replace("secret", &drawn[..])?;
        // Versions are witnessed with it from now on.
        self.sync()?;
        drop(lock);
        Ok(Secret(*drawn))
    }

    fn read_secret(&self, path: &Path) -> Result<Option<Secret>, StateError> {
        let Some(file) = open_checked(path)? else { return Ok(None) };
        let mut bytes = Zeroizing::new(Vec::with_capacity(64));
        file.take(33).read_to_end(&mut bytes).map_err(StateError::io(path))?;
        let secret = bytes[..].try_into().map_err(|_| StateError::Damaged { path: path.to_owned() })?;
        Ok(Some(Secret(secret)))
    }

    /// What this machine made and saw. Nothing, as long as nothing was noted.
    pub fn seen(&self) -> Result<Seen, StateError> {
        let path = self.path.join("seen");
        let Some(file) = open_checked(&path)? else { return Ok(Seen::default()) };
        let mut bytes = Vec::new();
        file.take(SEEN_MAX).read_to_end(&mut bytes).map_err(StateError::io(&path))?;
        minicbor::decode(&bytes).map_err(|_| StateError::Damaged { path })
    }

    /// Changes what this machine made and saw: at once for other processes, and durably.
    pub fn change(&self, change: impl FnOnce(&mut Seen)) -> Result<(), StateError> {
        self.note(change)?;
        self.sync()
    }

    /// The same without waiting for the disk. A power cut may take the change back, so it must only
    /// add: without it fewer roll-backs are noticed, and none by mistake.
    pub fn note(&self, change: impl FnOnce(&mut Seen)) -> Result<(), StateError> {
        let _lock = self.lock()?;
        let before = self.seen()?;
        let mut seen = before.clone();
        change(&mut seen);
        if seen == before {
            return Ok(());
        }
        let mut bytes = Vec::new();
        match minicbor::encode(&seen, &mut bytes) {
            Ok(()) => self.replace("seen", &bytes),
            Err(_) => unreachable!("memory takes all bytes"),
        }
    }

    /// How long commands took. Nothing, if nothing was noted or the file cannot be read.
    pub fn measured(&self) -> Measured {
        let path = self.path.join("measured");
        let Ok(Some(file)) = open_checked(&path) else { return Measured::default() };
        let mut bytes = Vec::new();
        let read = file.take(MEASURED_MAX).read_to_end(&mut bytes);
        read.ok().and_then(|_| minicbor::decode(&bytes).ok()).unwrap_or_default()
    }

    /// Notes how long a command took. A power cut may take it back.
    pub fn add_measured(&self, command: &str, run: MeasuredRun) -> Result<(), StateError> {
        let _lock = self.lock()?;
        let mut measured = self.measured();
        measured.add(command, run);
        let mut bytes = Vec::new();
        match minicbor::encode(&measured, &mut bytes) {
            Ok(()) => self.replace("measured", &bytes),
            Err(_) => unreachable!("memory takes all bytes"),
        }
    }

    /// Waits until the names in the folder are on disk.
    fn sync(&self) -> Result<(), StateError> {
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(StateError::io(&self.path))
    }

    /// Waits until no other process changes the state. The lock ends with the value.
    fn lock(&self) -> Result<File, StateError> {
        let path = self.path.join("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let lock = options.open(&path).map_err(StateError::io(&path))?;
        // Others hold it for milliseconds. One that was stopped must not stop all backups.
        for _ in 0..LOCK_TRIES {
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_WAIT),
                taken => return taken.map(|()| lock).map_err(|error| StateError::io(&path)(error.into())),
            }
        }
        Err(StateError::io(&path)(io::ErrorKind::WouldBlock.into()))
    }

    /// Puts a file in place, whole or not at all, also after a power cut. Only under the lock.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        let (path, new) = (self.path.join(name), self.path.join(format!("{name}.new")));
        // One left by a process that was killed.
        let _ = std::fs::remove_file(&new);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&new).map_err(StateError::io(&new))?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(StateError::io(&new))?;
        std::fs::rename(&new, &path).map_err(StateError::io(&path))
    }
}

/// Opens a file of the state; `None` if there is none.
fn open_checked(path: &Path) -> Result<Option<File>, StateError> {
    let flags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StateError::io(path)(error)),
    };
    let metadata = file.metadata().map_err(StateError::io(path))?;
    check(path, &metadata)?;
    match metadata.is_file() {
        true => Ok(Some(file)),
        false => Err(StateError::Damaged { path: path.to_owned() }),
    }
}

/// Refuses what others own or may open.
fn check(path: &Path, metadata: &std::fs::Metadata) -> Result<(), StateError> {
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(StateError::Foreign { path: path.to_owned(), uid: metadata.uid() });
    }
    if !metadata.is_symlink() && metadata.mode() & 0o077 != 0 {
        return Err(StateError::Open { path: path.to_owned(), mode: metadata.mode() & 0o7777 });
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! Locks that keep two runs of a profile apart on one machine, and two of the maintenance of a
//! repository.
//!
//! It is an `flock` on a file, so it ends with its process in every case. The file says who has it.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// What a lock is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locked<'a> {
    /// Runs of a profile.
    Profile(&'a str),
    /// Maintenance of a repository, by its name in the configuration.
    Maintenance(&'a str),
}

/// A lock. A drop releases it.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

/// The run that has the lock, as far as its file says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its process.
    pub process: Option<u32>,
    /// When it began, in milliseconds since 1970.
    pub since_ms: Option<u64>,
}

/// The result of an attempt.
#[derive(Debug)]
pub enum Attempt {
    /// This process has the lock.
    Locked(RunLock),
    /// Another run has it.
    Held(Holder),
}

impl RunLock {
    /// Takes a lock in a folder, if no other run has it.
    ///
    /// # Errors
    /// The file cannot be made or locked.
    pub fn take(folder: &Path, what: Locked<'_>, now_ms: u64) -> io::Result<Attempt> {
        let path = folder.join(match what {
            Locked::Profile(name) => format!("profile-{name}.lock"),
            Locked::Maintenance(name) => format!("maintenance-{name}.lock"),
        });
        let mut file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // The holder may be writing it just now.
                drop(file.take(100).read_to_string(&mut text));
                let mut words = text.split_whitespace();
                let process = words.next().and_then(|word| word.parse().ok());
                let since_ms = words.next().and_then(|word| word.parse().ok());
                return Ok(Attempt::Held(Holder { process, since_ms }));
            }
            Err(error) => return Err(error.into()),
        }
        // The lock counts. The text is for messages, and a full disk prevents no backup.
        let written = file.set_len(0).and_then(|()| file.rewind());
        drop(written.and_then(|()| writeln!(file, "{} {now_ms}", std::process::id())));
        Ok(Attempt::Locked(Self { _file: file }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_of_a_profile_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let take_any = |what: Locked<'_>, now| RunLock::take(folder.path(), what, now).expect("files can be made");
        let take = |profile: &str, now| take_any(Locked::Profile(profile), now);
        let Attempt::Locked(first) = take("home", 5) else { panic!("nobody has it") };
        let Attempt::Held(holder) = take("home", 6) else { panic!("it is held") };
        assert_eq!(holder, Holder { process: Some(std::process::id()), since_ms: Some(5) });
        assert!(matches!(take("other", 7), Attempt::Locked(_)));
        assert!(matches!(take_any(Locked::Maintenance("home"), 7), Attempt::Locked(_)));
        drop(first);
        assert!(matches!(take("home", 8), Attempt::Locked(_)));
    }
}

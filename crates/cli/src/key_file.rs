//! Key files of machines: reading one, and writing one.
//!
//! A key file opens a repository without a password. Nobody but its owner may read it, and a file
//! that others can read is refused, as `ssh` does.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use larder_format::key_file::{MACHINE_KEY_MAX, MachineKey};
use zeroize::Zeroizing;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::text::safe;

/// What a new file says about a key, for people.
#[derive(Debug)]
pub(crate) struct About<'a> {
    /// Its roles.
    pub(crate) roles: String,
    /// Name of its domain; may be empty.
    pub(crate) domain: &'a str,
    /// The location of its repository.
    pub(crate) location: String,
    /// When it was made.
    pub(crate) date: String,
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::of(Exit::WrongKey, error).while_doing(&format!("cannot read the key file {}", path.display()))
}

/// Reads a key file.
pub(crate) fn read(path: &Path) -> Result<Vec<MachineKey>, Failure> {
    let text = read_text(path)?;
    MachineKey::read_all(&text).map_err(|error| {
        Failure::of(Exit::WrongKey, &error).while_doing(&format!("cannot use the key file {}", path.display()))
    })
}

fn read_text(path: &Path) -> Result<Zeroizing<String>, Failure> {
    // Not waiting: a pipe or a device is no key file.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path);
    let file = file.map_err(|error| failed(path, &error))?;
    let metadata = file.metadata().map_err(|error| failed(path, &error))?;
    if !metadata.is_file() || metadata.len() > MACHINE_KEY_MAX as u64 {
        return Err(Failure::new(Exit::WrongKey, format!("{} is no key file", path.display()))
            .advise("`larder key add --file` makes one"));
    }
    let own = rustix::process::geteuid().as_raw();
    if ![0, own].contains(&metadata.uid()) {
        return Err(Failure::new(
            Exit::WrongKey,
            format!("the key file {} belongs to another user (uid {})", path.display(), metadata.uid()),
        )
        .advise("use a file of your own, or of root"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(Failure::new(
            Exit::WrongKey,
            format!("the key file {} can be read by others (mode {:04o})", path.display(), metadata.mode() & 0o7777),
        )
        .advise(format!("`chmod 600 {}`; if others may have read it, remove its key", path.display())));
    }
    let mut text = Zeroizing::new(String::with_capacity(MACHINE_KEY_MAX));
    file.take(MACHINE_KEY_MAX as u64).read_to_string(&mut text).map_err(|error| failed(path, &error))?;
    Ok(text)
}

/// Adds a key to a file, which is made if it is not there.
pub(crate) fn add(path: &Path, key: &MachineKey, about: &About<'_>) -> Result<(), Failure> {
    let mut text = Zeroizing::new(String::with_capacity(MACHINE_KEY_MAX));
    // Behind a link is the file that takes the key.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_new = match std::fs::symlink_metadata(path) {
        Ok(_) => {
            text.push_str(&read_text(path)?);
            let before = MachineKey::read_all(&text).map_err(|error| {
                Failure::of(Exit::Failed, &error).while_doing(&format!("cannot add a key to {}", path.display()))
            })?;
            if before.iter().any(|before| before.repository == key.repository) {
                return Err(Failure::new(
                    Exit::Failed,
                    format!("{} already has a key of this repository; nothing was changed", path.display()),
                )
                .advise("name another file"));
            }
            false
        }
        Err(_) => true,
    };
    let About { roles, domain, location, date } = about;
    let domain = if domain.is_empty() { String::new() } else { format!(", domain {}", safe(domain)) };
    if text.len() + key.to_line().len() + 1024 > MACHINE_KEY_MAX {
        return Err(Failure::new(Exit::Failed, format!("{} has no room for another key", path.display()))
            .advise("name another file"));
    }
    text.push_str(&format!("# Larder key {}: role {roles}{domain}, made {date}\n", key.key));
    text.push_str(&format!("# Repository {}\n", safe(location)));
    text.push_str(&key.to_line());
    text.push('\n');
    let write = || match is_new {
        true => write_new(path, text.as_bytes()),
        false => {
            let mut beside = path.as_os_str().to_owned();
            beside.push(".new");
            let beside = PathBuf::from(beside);
            // Of two programs at once, one finds this file.
            write_new(&beside, text.as_bytes())
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", beside.display())))?;
            std::fs::rename(&beside, path)
        }
    };
    write()
        .map_err(|error| Failure::of_file(&error).while_doing(&format!("cannot write the key file {}", path.display())))
}

/// Creates a file that only its owner can read, and never overwrites one.
pub(crate) fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text).and_then(|()| file.sync_all()).inspect_err(|_| {
        // A file without the secret must not pass for one that has it.
        drop(std::fs::remove_file(path));
    })
}

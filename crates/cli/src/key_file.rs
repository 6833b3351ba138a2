//! Key files of machines: reading one, and writing one.
//!
//! A key file opens a repository without a password. Nobody but its owner may read it, and a file
//! that others can read is refused, as `ssh` does.

use std::fs::{File, OpenOptions};
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
    let file = File::open(path).map_err(|error| failed(path, &error))?;
    let metadata = file.metadata().map_err(|error| failed(path, &error))?;
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
    let is_new = match std::fs::symlink_metadata(path) {
        Ok(_) => {
            text.push_str(&read_text(path)?);
            let before = MachineKey::read_all(&text).unwrap_or_default();
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
            write_new(&beside, text.as_bytes())?;
            std::fs::rename(&beside, path)
        }
    };
    write().map_err(|error| {
        Failure::of(Exit::Failed, &error).while_doing(&format!("cannot write the key file {}", path.display()))
    })
}

/// Creates a file that only its owner can read, and never overwrites one.
pub(crate) fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

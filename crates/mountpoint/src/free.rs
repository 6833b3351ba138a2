//! Folders on which something can be mounted.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::is_dead;

/// The mounts of this process.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Why nothing can be mounted on a folder.
#[derive(Debug)]
pub enum NotFree {
    /// There is no such folder.
    Missing,
    /// It is not a folder.
    NotAFolder,
    /// It has files, which would be hidden.
    NotEmpty,
    /// A mount whose program has ended is there.
    Dead,
    /// Something is mounted there.
    Mounted {
        /// The type of the file system, such as `fuse.larder`.
        kind: String,
    },
    /// The system refuses to look.
    Unreadable(io::Error),
}

/// Refuses a folder that cannot be a mount point. `may_hide`: its files may be hidden.
///
/// # Errors
/// See [`NotFree`].
pub fn expect_free(folder: &Path, may_hide: bool) -> Result<(), NotFree> {
    if is_dead(folder) {
        return Err(NotFree::Dead);
    }
    let whole = match std::fs::canonicalize(folder) {
        Ok(whole) => whole,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NotFree::Missing),
        Err(error) => return Err(NotFree::Unreadable(error)),
    };
    if !whole.is_dir() {
        return Err(NotFree::NotAFolder);
    }
    // Without /proc nothing is known to be mounted.
    let mounts = std::fs::read(MOUNTS).unwrap_or_default();
    if let Some(kind) = mounted_on(&mounts, &whole) {
        return Err(NotFree::Mounted { kind });
    }
    if may_hide {
        return Ok(());
    }
    match std::fs::read_dir(&whole).map(|mut entries| entries.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(NotFree::NotEmpty),
        Err(error) => Err(NotFree::Unreadable(error)),
    }
}

/// The type of the last file system that was mounted on a folder.
fn mounted_on(mounts: &[u8], folder: &Path) -> Option<String> {
    let mut found = None;
    for line in mounts.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let Some(place) = fields.get(4) else { continue };
        if unescape(place).as_bytes() == folder.as_os_str().as_bytes() {
            let kind = fields.iter().position(|field| *field == b"-").and_then(|dash| fields.get(dash + 1));
            found = Some(String::from_utf8_lossy(kind.unwrap_or(&&b"unknown"[..])).into_owned());
        }
    }
    found
}

/// A field of `mountinfo` as it is: spaces and some other bytes are written as `\040`.
fn unescape(field: &[u8]) -> OsString {
    let (mut bytes, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) if *first == b'\\' => {
                bytes.push(digits.iter().fold(0_u8, |sum, digit| sum.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_folder() {
        let mounts = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            40 22 0:40 / /mnt/a\\040b rw,nosuid shared:1 - fuse.larder larder rw\n\
            41 22 0:41 / /mnt/c rw - tmpfs tmpfs rw\n42 41 0:42 / /mnt/c rw - xfs /dev/sdb rw\n";
        assert_eq!(mounted_on(mounts, Path::new("/mnt/a b")).as_deref(), Some("fuse.larder"));
        assert_eq!(mounted_on(mounts, Path::new("/mnt/c")).as_deref(), Some("xfs"));
        assert_eq!(mounted_on(mounts, Path::new("/mnt")), None);
    }

    #[test]
    fn only_empty_folders_are_free() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("empty")).expect("created");
        std::fs::write(at("file"), "x").expect("written");
        assert!(expect_free(&at("empty"), false).is_ok());
        assert!(matches!(expect_free(&at("missing"), false), Err(NotFree::Missing)));
        assert!(matches!(expect_free(&at("file"), false), Err(NotFree::NotAFolder)));
        assert!(matches!(expect_free(folder.path(), false), Err(NotFree::NotEmpty)));
        assert!(expect_free(folder.path(), true).is_ok());
        assert!(matches!(expect_free(Path::new("/"), true), Err(NotFree::Mounted { .. })));
    }
}

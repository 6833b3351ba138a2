//! Temporary files without a name: however the process ends, their space becomes free.
//!
//! If the file system cannot create a file without a name, one is created and its name removed at
//! once. A process that dies in between leaves an empty file, which the next process removes.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, Mode, OFlags};

/// The prefix of such names, while they exist.
const PREFIX: &str = "larder-scratch-";

/// Creates a file without a name, for reading and writing. Creates the folder if it is absent.
pub fn unnamed(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    unnamed_in(folder)
}

/// The same in an existing folder.
pub fn unnamed_in(folder: &Path) -> io::Result<File> {
    remove_left_over_once(folder);
    match rustix::fs::open(folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        Err(_) => named_for_a_moment(folder),
    }
}

/// Gives the space of bytes back that are not read again. They are zeros then.
pub(crate) fn give_back(file: &File, bytes: Range<u64>) {
    let length = bytes.end.saturating_sub(bytes.start);
    if length > 0 {
        // Some file systems have no holes. Then the file takes more, and nothing else happens.
        let _ =
            rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, bytes.start, length);
    }
}

/// Bytes that a file takes on its disk.
#[cfg(test)]
pub(crate) fn bytes_on_disk(file: &File) -> u64 {
    use std::os::unix::fs::MetadataExt;

    file.metadata().expect("it is open").blocks() * 512
}

fn named_for_a_moment(folder: &Path) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (file, path) = loop {
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(name);
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => break (file, path),
            // A process of another container may have the same number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    };
    match fs::remove_file(&path) {
        // Another call removed it as a leftover.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed?,
    }
    Ok(file)
}

/// Removes left-over files when this process first uses a folder: a shared one may be large.
fn remove_left_over_once(folder: &Path) {
    static CLEANED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let is_new = match CLEANED.lock() {
        Ok(mut cleaned) => cleaned.insert(folder.to_owned()),
        Err(_) => false,
    };
    if is_new {
        remove_left_over(folder);
    }
}

/// Removes files of processes that died before removing the names. A file in use loses at most the
/// name that its owner is about to remove.
fn remove_left_over(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            // Perhaps another user's.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn files_have_no_name_and_left_over_ones_go() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(unnamed_in(&dir.path().join("not there")).is_err());
        let names = || fs::read_dir(dir.path()).expect("readable").count();
        fs::write(dir.path().join(format!("{PREFIX}1-0")), "left by a process that died").expect("written");
        fs::write(dir.path().join("something else"), "").expect("written");
        for make in [unnamed, unnamed_in, named_for_a_moment] {
            let file = make(dir.path()).expect("made");
            assert_eq!(names(), 1, "only what is somebody else's");
            file.write_all_at(b"bytes", 7).expect("written");
            let mut back = [0; 5];
            file.read_exact_at(&mut back, 7).expect("read");
            assert_eq!(&back, b"bytes");
        }
    }
}

//! Entries and looks at the file system for the tests of the restore target.

#![allow(dead_code, reason = "every test file uses its own part")]

pub(crate) mod pump;
#[path = "../../walk/support/torture.rs"]
pub(crate) mod torture;
#[path = "../../../examples/treediff.rs"]
pub(crate) mod treediff;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use larder_format::entry::{Entry, EntryKind, Extent, Timestamp};
use larder_source::target::{FileDecision, FileWriter, Overwrite, PutDecision, Target, TargetOptions};

/// 2023-11-14, with all digits of a nanosecond in use.
pub(crate) const THEN: Timestamp = Timestamp { seconds: 1_700_000_000, nanos: 123_456_789 };

/// A later and an earlier time.
pub(crate) const LATER: Timestamp = Timestamp { seconds: 1_700_000_001, nanos: 0 };
pub(crate) const EARLIER: Timestamp = Timestamp { seconds: 1_699_999_999, nanos: 999_999_999 };

/// Whether this process may do everything; tests of what only root may do say that they do nothing, and return.
pub(crate) fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        #[expect(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("{test}: skipped, it needs root");
        }
    }
    is_root
}

/// An entry that belongs to whoever runs the test.
pub(crate) fn entry(path: impl AsRef<[u8]>, kind: EntryKind, mode: u32) -> Entry {
    Entry {
        path: path.as_ref().to_vec(),
        kind,
        mode,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        user: None,
        group: None,
        mtime: THEN,
        ctime: Timestamp::default(),
        atime: None,
        inode: 1,
        xattrs: Vec::new(),
    }
}

pub(crate) fn file(path: impl AsRef<[u8]>, size: usize) -> Entry {
    entry(path, EntryKind::File { size: size as u64, extents: None }, 0o644)
}

pub(crate) fn sparse_file(path: impl AsRef<[u8]>, size: u64, extents: &[(u64, u64)]) -> Entry {
    let extents = extents.iter().map(|(offset, length)| Extent { offset: *offset, length: *length }).collect();
    entry(path, EntryKind::File { size, extents: Some(extents) }, 0o644)
}

pub(crate) fn dir(path: impl AsRef<[u8]>) -> Entry {
    entry(path, EntryKind::Directory, 0o755)
}

pub(crate) fn symlink(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Entry {
    entry(path, EntryKind::Symlink { target: target.as_ref().to_vec() }, 0o777)
}

pub(crate) fn hard_link(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Entry {
    entry(path, EntryKind::HardLink { target: target.as_ref().to_vec() }, 0o644)
}

/// A temporary folder with a `root` to restore into and an `outside` that nothing may touch.
pub(crate) struct Place {
    pub(crate) base: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) outside: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let base = tempfile::tempdir().expect("a temporary folder");
        let (root, outside) = (base.path().join("root"), base.path().join("outside"));
        std::fs::create_dir(&root).expect("made");
        std::fs::create_dir(&outside).expect("made");
        std::fs::write(outside.join("secret"), "do not touch").expect("made");
        Self { base, root, outside }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    pub(crate) fn target(&self, options: TargetOptions) -> Target {
        Target::open(&self.root, options).expect("the target opens")
    }

    pub(crate) fn plain(&self) -> Target {
        self.target(TargetOptions::default())
    }

    pub(crate) fn overwriting(&self, overwrite: Overwrite) -> Target {
        let mut options = TargetOptions::default();
        options.overwrite = overwrite;
        self.target(options)
    }

    /// Fails when anything outside the root has changed.
    pub(crate) fn assert_outside_untouched(&self) {
        let names: Vec<_> =
            std::fs::read_dir(&self.outside).expect("listed").map(|name| name.expect("read").file_name()).collect();
        assert_eq!(names, ["secret"]);
        assert_eq!(std::fs::read(self.outside.join("secret")).expect("read"), b"do not touch");
        let meta = std::fs::symlink_metadata(self.outside.join("secret")).expect("stat");
        assert_eq!(meta.nlink(), 1);
        assert_ne!(meta.mtime(), THEN.seconds);
    }
}

pub(crate) fn put(target: &Target, entry: &Entry, content: &[u8]) -> PutDecision {
    let decision = target.put_file(entry, content).expect("the file is restored");
    finish_overwritten(target);
    decision
}

/// Ends files that were written over.
pub(crate) fn finish_overwritten(target: &Target) {
    let failed = target.finish_overwritten().expect("synced");
    assert!(failed.is_empty(), "{failed:?}");
}

pub(crate) fn begin(target: &Target, entry: &Entry) -> FileWriter {
    match target.begin_file(entry).expect("the file is begun") {
        FileDecision::Write(writer) => writer,
        other => panic!("nothing to write: {other:?}"),
    }
}

pub(crate) fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("stat").permissions().mode() & 0o7777
}

pub(crate) fn mtime(path: &Path) -> Timestamp {
    let meta = std::fs::symlink_metadata(path).expect("stat");
    Timestamp { seconds: meta.mtime(), nanos: u32::try_from(meta.mtime_nsec()).expect("nanoseconds") }
}

pub(crate) fn set_mtime(path: &Path, time: Timestamp) {
    let since = std::time::Duration::new(u64::try_from(time.seconds).expect("after 1970"), time.nanos);
    std::fs::File::open(path).expect("opens").set_modified(std::time::UNIX_EPOCH + since).expect("set");
}

pub(crate) fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("read")
}

/// Bytes that differ from place to place and hold no zero.
pub(crate) fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8 | 1
        })
        .collect()
}

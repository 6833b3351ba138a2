//! Trees to back up, and an own, independent look at two trees.

use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Bytes that no compressor shortens and that are the same for the same seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// What one path is, content and metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: (i64, i64),
    /// Content of files, target of links, nothing of others.
    pub(crate) content: Vec<u8>,
    pub(crate) links: u64,
    pub(crate) device: u64,
}

/// Everything below a folder by its path, the folder itself as the empty path.
pub(crate) fn look(root: &Path) -> BTreeMap<Vec<u8>, Look> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let metadata = std::fs::symlink_metadata(&path).expect("there");
        let kind = metadata.file_type();
        let content = if kind.is_symlink() {
            std::fs::read_link(&path).expect("a link").into_os_string().into_vec()
        } else if kind.is_file() {
            std::fs::read(&path).expect("readable")
        } else {
            Vec::new()
        };
        if kind.is_dir() {
            waiting.extend(std::fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
        }
        let look = Look {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            content,
            links: if kind.is_dir() { 0 } else { metadata.nlink() },
            device: metadata.rdev(),
        };
        let name = path.strip_prefix(root).expect("below").as_os_str().as_bytes().to_vec();
        found.insert(name, look);
    }
    found
}

/// Below both folders everything must be the same in content and metadata. The folders themselves are the user's.
#[track_caller]
pub(crate) fn same(a: &Path, b: &Path) {
    let (mut a, mut b) = (look(a), look(b));
    a.remove(&b""[..]);
    b.remove(&b""[..]);
    let names = |tree: &BTreeMap<Vec<u8>, Look>| {
        tree.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&a), names(&b));
    for (name, look) in &a {
        assert_eq!(look, &b[name], "{}", String::from_utf8_lossy(name));
    }
}

/// A small tree with one of every odd thing that a normal user can make.
pub(crate) fn odd(root: &Path) {
    let write = |name: &[u8], content: &[u8]| {
        let path = root.join(std::ffi::OsStr::from_bytes(name));
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, content).expect("written");
    };
    write(b"plain.txt", b"hello\n");
    write(b"empty", b"");
    write(b"folder/large", &noise(1, 3_000_000));
    write(b"folder/text", "all work and no play\n".repeat(20_000).as_bytes());
    write(b"not \xff text\n", b"odd name");
    write("日本/Zoë".as_bytes(), b"names");
    std::fs::create_dir_all(root.join("empty folder")).expect("made");
    std::os::unix::fs::symlink("plain.txt", root.join("link")).expect("linked");
    std::os::unix::fs::symlink("nowhere", root.join("dangling")).expect("linked");
    std::fs::hard_link(root.join("plain.txt"), root.join("second name")).expect("linked");
    std::fs::set_permissions(root.join("empty"), std::fs::Permissions::from_mode(0o4711)).expect("set");
    let long: String = "n".repeat(200);
    write(format!("{long}/{long}/deep").as_bytes(), b"deep");
    let sparse = std::fs::File::create(root.join("sparse")).expect("made");
    sparse.set_len(5_000_000).expect("sized");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 2_500_000).expect("written");
    drop(sparse);
    let past = std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000, 123));
    std::fs::File::open(root.join("empty")).expect("there").set_times(past).expect("set");
}

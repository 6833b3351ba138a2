//! Entries of a version, as long listings and as JSON nodes.

use larder_format::entry::{Entry, EntryKind};
use larder_source::PathText;
use serde_json::{Map, Value, json};

use super::absolute;
use crate::{sizes, time};

/// The word for a kind of entry, as restic's JSON has it.
pub(crate) fn kind_word(kind: &EntryKind) -> &'static str {
    match kind {
        EntryKind::File { .. } => "file",
        EntryKind::Directory => "dir",
        EntryKind::Symlink { .. } => "symlink",
        EntryKind::HardLink { .. } => "hardlink",
        EntryKind::Fifo => "fifo",
        EntryKind::CharDevice { .. } => "chardev",
        EntryKind::BlockDevice { .. } => "dev",
    }
}

/// Type and mode as `ls -l` shows them.
pub(crate) fn permissions(entry: &Entry) -> String {
    let kind = match entry.kind {
        EntryKind::File { .. } | EntryKind::HardLink { .. } => '-',
        EntryKind::Directory => 'd',
        EntryKind::Symlink { .. } => 'l',
        EntryKind::Fifo => 'p',
        EntryKind::CharDevice { .. } => 'c',
        EntryKind::BlockDevice { .. } => 'b',
    };
    let mode = entry.mode;
    let mut text = String::from(kind);
    for (shift, special, set, unset) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A line of `ls -l`. `size` is that of a file; a further name has it from the first one. Sizes for
/// people are shorter and not exact.
pub(crate) fn long_line(entry: &Entry, size: Option<u64>, is_for_people: bool) -> String {
    let owner = |name: &Option<std::sync::Arc<str>>, id: u32| match name {
        Some(name) => PathText(name.as_bytes()).to_string(),
        None => id.to_string(),
    };
    let size = match entry.kind {
        EntryKind::CharDevice { major, minor } | EntryKind::BlockDevice { major, minor } => format!("{major},{minor}"),
        _ if is_for_people => sizes::show(size.unwrap_or_default()),
        _ => size.unwrap_or_default().to_string(),
    };
    let mut line = format!(
        "{}  {:<8}  {:<8}  {size:>13}  {}  {}",
        permissions(entry),
        owner(&entry.user, entry.uid),
        owner(&entry.group, entry.gid),
        time::show_file_time(entry.mtime),
        absolute(&entry.path),
    );
    match &entry.kind {
        EntryKind::Symlink { target } => line.push_str(&format!(" -> {}", PathText(target))),
        EntryKind::HardLink { target } => line.push_str(&format!(" = {}", absolute(target))),
        _ => {}
    }
    line
}

/// An entry as a JSON node with restic's field names. `size` is that of a file; a further name has
/// it from the first one.
pub(crate) fn node(entry: &Entry, size: Option<u64>) -> Map<String, Value> {
    let mut node = Map::new();
    let name = entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    put_path(&mut node, "name", name.to_vec());
    node.insert("type".to_owned(), json!(kind_word(&entry.kind)));
    put_path(&mut node, "path", [b"/", &*entry.path].concat());
    node.insert("uid".to_owned(), json!(entry.uid));
    node.insert("gid".to_owned(), json!(entry.gid));
    if let Some(user) = &entry.user {
        node.insert("user".to_owned(), json!(&**user));
    }
    if let Some(group) = &entry.group {
        node.insert("group".to_owned(), json!(&**group));
    }
    if let Some(size) = size {
        node.insert("size".to_owned(), json!(size));
    }
    match &entry.kind {
        EntryKind::Symlink { target } => put_path(&mut node, "linktarget", target.clone()),
        EntryKind::HardLink { target } => put_path(&mut node, "linktarget", [b"/", &**target].concat()),
        EntryKind::CharDevice { major, minor } | EntryKind::BlockDevice { major, minor } => {
            node.insert("device".to_owned(), json!([major, minor]));
        }
        EntryKind::File { .. } | EntryKind::Directory | EntryKind::Fifo => {}
    }
    node.insert("mode".to_owned(), json!(entry.mode));
    node.insert("permissions".to_owned(), json!(permissions(entry)));
    let mut put_time = |key: &str, time| {
        if let Some(text) = time::rfc3339_file_time(time) {
            node.insert(key.to_owned(), json!(text));
        }
    };
    put_time("mtime", entry.mtime);
    put_time("ctime", entry.ctime);
    if let Some(atime) = entry.atime {
        put_time("atime", atime);
    }
    node.insert("inode".to_owned(), json!(entry.inode));
    node
}

/// Sets `key` to a path. JSON has no bytes: a path that is not UTF-8 is shown with replacement
/// characters, and exactly, in base64, as `key_b64`.
pub(crate) fn put_path(object: &mut Map<String, Value>, key: &str, path: Vec<u8>) {
    match String::from_utf8(path) {
        Ok(text) => drop(object.insert(key.to_owned(), json!(text))),
        Err(error) => {
            object.insert(key.to_owned(), json!(String::from_utf8_lossy(error.as_bytes())));
            let exact = data_encoding::BASE64.encode(error.as_bytes());
            object.insert(format!("{key}_b64"), json!(exact));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::entry::Timestamp;

    fn entry(kind: EntryKind, mode: u32, path: &[u8]) -> Entry {
        let time = Timestamp { seconds: 1_790_000_000, nanos: 5 };
        Entry {
            path: path.to_vec(),
            kind,
            mode,
            uid: 0,
            gid: 7,
            user: Some("root".into()),
            group: None,
            mtime: time,
            ctime: time,
            atime: None,
            inode: 12,
            xattrs: Vec::new(),
        }
    }

    #[test]
    fn modes_look_as_ls_shows_them() {
        let shown = |kind, mode| permissions(&entry(kind, mode, b"x"));
        assert_eq!(shown(EntryKind::File { size: 0, extents: None }, 0o4755), "-rwsr-xr-x");
        assert_eq!(shown(EntryKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(shown(EntryKind::Fifo, 0o2640), "prw-r-S---");
    }

    #[test]
    fn a_further_name_has_the_size_of_its_file() {
        let link = entry(EntryKind::HardLink { target: b"a".to_vec() }, 0o644, b"b");
        assert_eq!(node(&link, Some(4711))["size"], json!(4711));
        assert!(node(&link, None).get("size").is_none());
        let line = long_line(&link, Some(4711), false);
        assert!(line.contains(" 4711 ") && line.ends_with("/b = /a"), "{line}");
    }

    #[test]
    fn names_that_are_not_text_are_exact_all_the_same() {
        let node = node(&entry(EntryKind::Directory, 0o755, b"a/\xff"), None);
        assert_eq!(node["path"], json!("/a/\u{fffd}"));
        assert_eq!(node["path_b64"], json!("L2Ev/w=="));
        assert_eq!(node["name_b64"], json!("/w=="));
        let line = long_line(&entry(EntryKind::Symlink { target: b"\n".to_vec() }, 0o777, b"a\x1b[1m"), None, false);
        assert!(line.ends_with("/a\\x1b[1m -> \\n"), "{line}");
    }
}

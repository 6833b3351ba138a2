//! A listing as `ncdu -f` reads it: nested arrays, written while the entries are read. The format
//! is version 1.2 of <https://dev.yorhel.nl/ncdu/jsonfmt>.
//!
//! Memory: the folders above the present entry.

use std::io::{self, Write};

use larder_format::entry::{Entry, EntryKind};
use serde_json::{Map, Value, json};

/// Bytes of a block: ncdu counts the space of files in whole blocks.
const BLOCK: u64 = 512;

/// Writes a listing.
pub(super) struct Ncdu<W> {
    out: W,
    /// The folders that are open, as paths; the top is always open.
    open: Vec<Vec<u8>>,
}

impl<W: Write> Ncdu<W> {
    /// Begins a listing of a snapshot of this time.
    pub(super) fn begin(mut out: W, unix_seconds: u64) -> io::Result<Self> {
        let about = json!({"progname": "larder", "progver": env!("CARGO_PKG_VERSION"), "timestamp": unix_seconds});
        write!(out, "[1,2,{about},[{}", json!({"name": "/"}))?;
        Ok(Self { out, open: Vec::new() })
    }

    /// Adds an entry. Entries come with the folders first and each folder's contents together.
    pub(super) fn add(&mut self, entry: &Entry) -> io::Result<()> {
        let parent = entry.path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |at| &entry.path[..at]);
        self.enter(parent)?;
        let about = about(entry);
        if entry.kind == EntryKind::Directory {
            self.open.push(entry.path.clone());
            self.write(b"[", &entry.path, about)
        } else {
            self.write(b"", &entry.path, about)
        }
    }

    /// Ends the listing.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.close_to(0)?;
        writeln!(self.out, "]]")
    }

    /// Closes the folders that are not above `parent`, and opens those that have no entry.
    fn enter(&mut self, parent: &[u8]) -> io::Result<()> {
        let is_above =
            |path: &[u8]| parent.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
        let depth = self.open.iter().take_while(|path| is_above(path)).count();
        self.close_to(depth)?;
        let mut at = self.open.last().map_or(0, |path| path.len() + 1);
        while at < parent.len() {
            let end = parent[at..].iter().position(|byte| *byte == b'/').map_or(parent.len(), |length| at + length);
            let path = parent[..end].to_vec();
            self.write(b"[", &path, Map::new())?;
            self.open.push(path);
            at = end + 1;
        }
        Ok(())
    }

    fn close_to(&mut self, depth: usize) -> io::Result<()> {
        for _ in depth..self.open.len() {
            self.out.write_all(b"]")?;
        }
        self.open.truncate(depth);
        Ok(())
    }

    /// Writes an object with the name of a path. Names are bytes: ncdu reads them as they are.
    fn write(&mut self, before: &[u8], path: &[u8], about: Map<String, Value>) -> io::Result<()> {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.out.write_all(b",\n")?;
        self.out.write_all(before)?;
        self.out.write_all(b"{\"name\":\"")?;
        for byte in name {
            match byte {
                b'"' | b'\\' => self.out.write_all(&[b'\\', *byte])?,
                0..0x20 | 0x7f => write!(self.out, "\\u{:04x}", *byte)?,
                byte => self.out.write_all(&[*byte])?,
            }
        }
        self.out.write_all(b"\"")?;
        for (key, value) in about {
            write!(self.out, ",\"{key}\":{value}")?;
        }
        self.out.write_all(b"}")
    }
}

/// The facts of an entry besides its name.
fn about(entry: &Entry) -> Map<String, Value> {
    let mut about = Map::new();
    let mut put = |key: &str, value: Value| drop(about.insert(key.to_owned(), value));
    put("uid", json!(entry.uid));
    put("gid", json!(entry.gid));
    put("mode", json!(entry.mode));
    put("mtime", json!(entry.mtime.seconds));
    match entry.kind {
        EntryKind::File { .. } => {
            put("asize", json!(entry.size()));
            put("dsize", json!(entry.stored_bytes().div_ceil(BLOCK) * BLOCK));
            put("ino", json!(entry.inode));
        }
        EntryKind::Directory => put("ino", json!(entry.inode)),
        // Its data counts at the first name.
        EntryKind::HardLink { .. }
        | EntryKind::Symlink { .. }
        | EntryKind::Fifo
        | EntryKind::CharDevice { .. }
        | EntryKind::BlockDevice { .. } => put("notreg", json!(true)),
    }
    about
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::entry::Timestamp;

    fn entry(path: &str, kind: EntryKind) -> Entry {
        let time = Timestamp { seconds: 7, nanos: 0 };
        Entry {
            path: path.into(),
            kind,
            mode: 0o644,
            uid: 1,
            gid: 2,
            user: None,
            group: None,
            mtime: time,
            ctime: time,
            atime: None,
            inode: 9,
            xattrs: Vec::new(),
        }
    }

    #[test]
    fn folders_are_nested_and_sizes_are_in_blocks() {
        let mut out = Vec::new();
        let mut ncdu = Ncdu::begin(&mut out, 5).expect("room");
        let file = |size| EntryKind::File { size, extents: None };
        for entry in [
            entry("home/u", EntryKind::Directory),
            entry("home/u/a\"\n", file(1)),
            entry("home/u/d", EntryKind::Directory),
            entry("home/u/d/e", file(513)),
            entry("home/u2", EntryKind::Fifo),
            entry("z", EntryKind::Directory),
        ] {
            ncdu.add(&entry).expect("room");
        }
        ncdu.end().expect("room");
        let value: Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!((&value[0], &value[1], &value[2]["timestamp"]), (&json!(1), &json!(2), &json!(5)));
        let top = &value[3];
        assert_eq!(top[0], json!({"name": "/"}));
        let home = &top[1];
        assert_eq!(home[0], json!({"name": "home"}), "a folder without an entry");
        let u = &home[1];
        assert_eq!((&u[0]["name"], &u[1]["name"]), (&json!("u"), &json!("a\"\n")));
        assert_eq!((&u[1]["asize"], &u[1]["dsize"]), (&json!(1), &json!(512)));
        assert_eq!((&u[2][0]["name"], &u[2][1]["dsize"]), (&json!("d"), &json!(1024)));
        assert_eq!((&home[2]["name"], &home[2]["notreg"]), (&json!("u2"), &json!(true)));
        assert_eq!(top[2], json!([{"name": "z", "uid": 1, "gid": 2, "mode": 0o644, "mtime": 7, "ino": 9}]));
    }
}

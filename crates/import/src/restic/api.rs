//! The only module that knows `rustic_core`, which reads repositories of restic.
//!
//! Its errors become text here, because their kinds change with its versions.

use std::collections::HashSet;
use std::sync::Arc;

use aws_lc_rs::digest;
use bytes::Bytes;
use larder_format::ErrorKind;
use larder_format::entry::{Timestamp, Xattr};
use larder_index::Executor;
use larder_store::{Store, StoreError};
use parking_lot::Mutex;
use rustic_core::repofile::{BlobType, FileType, Node, NodeType, SnapshotFile, SnapshotId, Tree};
use rustic_core::{
    BlobId, BytesList, Credentials, DataId, Id, IndexedFullStatus, ReadBackend, Repository, RepositoryBackends,
    RepositoryOptions, RusticError, RusticResult, TreeId, WriteBackend,
};

use super::store::{ReadFailure, ResticFiles};
use super::{ResticSnapshot, Unreadable};
use crate::ImportError;
use crate::original::ForeignId;

/// Threads that read snapshots.
const THREADS: usize = 8;

/// A repository with its index.
pub(super) struct Reader {
    repository: Repository<IndexedFullStatus>,
    files: Arc<ResticFiles>,
    id: ForeignId,
    /// Contents that could not be read.
    lost: Mutex<HashSet<ForeignId>>,
}

/// Something that was not read.
#[derive(Debug)]
pub(super) enum Unread {
    /// It is absent or damaged.
    Lost(String),
    /// The store fails.
    Store(StoreError),
}

/// An entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TreeEntry {
    /// Its name, any bytes.
    pub(super) name: Vec<u8>,
    pub(super) kind: TreeEntryKind,
    /// Permission bits, set-id and sticky included.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    /// Only if it differs from `mtime`, which is what restic records without `--with-atime`.
    pub(super) atime: Option<Timestamp>,
    pub(super) inode: u64,
    pub(super) device_id: u64,
    pub(super) links: u64,
    /// In any order.
    pub(super) xattrs: Vec<Xattr>,
}

/// The kind of an entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TreeEntryKind {
    /// A file: the ids of its contents.
    File(Vec<ForeignId>),
    /// A folder; `None`: its tree is not named.
    Directory(Option<ForeignId>),
    Symlink(Vec<u8>),
    CharDevice(u64),
    BlockDevice(u64),
    Fifo,
    Socket,
    /// Not understood, for this reason.
    Unknown(String),
}

impl Reader {
    pub(super) fn open(store: Store, executor: Executor, password: &str) -> Result<Self, ImportError> {
        let files = Arc::new(ResticFiles::new(store, executor));
        // Its cache would be a copy of the other program's.
        let mut options = RepositoryOptions::default();
        options.no_cache = true;
        let backends = RepositoryBackends::new(Arc::new(Backend(files.clone())), None);
        let failed = |error: Box<RusticError>| match files.take_failure() {
            Some(error) => ImportError::Store(error),
            None => failed(&error),
        };
        let unopened = Repository::new(&options, &backends).map_err(failed)?;
        if unopened.config_id().map_err(failed)?.is_none() {
            let message = "there is no restic repository at this place".to_owned();
            return Err(ImportError::Foreign { kind: ErrorKind::NoRepository, message });
        }
        let opened = unopened.open(&Credentials::password(password)).map_err(failed)?;
        let id = foreign(&opened.config().id);
        let repository = opened.to_indexed().map_err(failed)?;
        Ok(Self { repository, files, id, lost: Mutex::default() })
    }

    pub(super) fn id(&self) -> ForeignId {
        self.id
    }

    /// Snapshots, and what is known of those that cannot be read.
    pub(super) fn snapshots(&self) -> Result<(Vec<ResticSnapshot>, Vec<Unreadable>), ImportError> {
        let ids = self.repository.list::<SnapshotId>().map_err(|error| self.unread(&error));
        let ids: Vec<SnapshotId> = ids.map_err(import_error)?.collect();
        let read = |ids: &[SnapshotId]| -> Vec<_> {
            let one = |id: &SnapshotId| match self.repository.get_file::<SnapshotFile>(id) {
                Ok(snapshot) => Ok(snapshot_of(&SnapshotFile { id: *id, ..snapshot })),
                Err(error) => Err((id.to_string(), self.unread(&error))),
            };
            ids.iter().map(one).collect()
        };
        // Each is a request.
        let all: Vec<_> = std::thread::scope(|scope| {
            let parts = ids.chunks(ids.len().div_ceil(THREADS).max(1));
            let threads: Vec<_> = parts.map(|part| scope.spawn(|| read(part))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
        });
        let (mut snapshots, mut damaged) = (Vec::new(), Vec::new());
        for one in all {
            match one {
                // An index file is lost, or was not copied yet. Nothing of the snapshot could be read.
                Ok(snapshot) if self.repository.get_index_entry(&TreeId::from(Id::new(snapshot.tree))).is_err() => {
                    let why = "the index does not have its tree; `restic repair index` makes a new index";
                    damaged.push((data_encoding::HEXLOWER.encode(&snapshot.id), why.to_owned()));
                }
                Ok(snapshot) => snapshots.push(snapshot),
                Err((id, Unread::Lost(why))) => damaged.push((id, why)),
                Err((_, error)) => return Err(import_error(error)),
            }
        }
        Ok((snapshots, damaged))
    }

    /// The entries of a tree, as the other program sorted them.
    pub(super) fn tree(&self, id: &ForeignId) -> Result<Vec<TreeEntry>, Unread> {
        entries_of(&self.blob_of(BlobType::Tree, id)?)
            .map_err(|error| Unread::Lost(format!("its list of entries is not understood: {error}")))
    }

    /// A piece of contents.
    pub(super) fn blob(&self, id: &ForeignId) -> Result<Bytes, Unread> {
        let blob = self.blob_of(BlobType::Data, id);
        if let Err(Unread::Lost(_)) = &blob {
            self.lost.lock().insert(*id);
        }
        blob
    }

    fn blob_of(&self, kind: BlobType, id: &ForeignId) -> Result<Bytes, Unread> {
        let blob = self.repository.get_blob_cached(&BlobId::from(Id::new(*id)), kind);
        let blob = blob.map_err(|error| self.unread(&error))?;
        // The library does not compare it with its id, as the other program does.
        if digest::digest(&digest::SHA256, &blob).as_ref() != id.as_slice() {
            return Err(Unread::Lost("it is not what its id says".to_owned()));
        }
        Ok(blob)
    }

    /// Bytes of contents together, as the index has them.
    pub(super) fn bytes_of(&self, ids: &[ForeignId]) -> Result<u64, Unread> {
        let mut bytes = 0_u64;
        for id in ids {
            let entry = self.repository.get_index_entry(&DataId::from(Id::new(*id)));
            let entry = entry.map_err(|_| {
                let id = data_encoding::HEXLOWER.encode(id);
                Unread::Lost(format!("the index does not have its piece {id}"))
            })?;
            bytes += u64::from(entry.data_length());
        }
        Ok(bytes)
    }

    /// Whether any of these contents could not be read before.
    pub(super) fn has_lost(&self, ids: &[ForeignId]) -> bool {
        let lost = self.lost.lock();
        !lost.is_empty() && ids.iter().any(|id| lost.contains(id))
    }

    fn unread(&self, error: &RusticError) -> Unread {
        match self.files.take_failure() {
            Some(error) => Unread::Store(error),
            None => Unread::Lost(text(error)),
        }
    }
}

fn import_error(error: Unread) -> ImportError {
    match error {
        Unread::Lost(message) => ImportError::Foreign { kind: ErrorKind::Damaged, message },
        Unread::Store(error) => ImportError::Store(error),
    }
}

fn snapshot_of(snapshot: &SnapshotFile) -> ResticSnapshot {
    let millis = snapshot.time.timestamp().as_millisecond();
    ResticSnapshot {
        id: foreign(&snapshot.id),
        first_id: foreign(&snapshot.original.unwrap_or(snapshot.id)),
        tree: foreign(&snapshot.tree),
        time_ms: u64::try_from(millis).unwrap_or(0),
        host: snapshot.hostname.clone(),
        user: snapshot.username.clone(),
        tags: snapshot.tags.iter().cloned().collect(),
        paths: snapshot.paths.iter().cloned().collect(),
    }
}

/// The entries of a list. One that is not understood costs itself only.
fn entries_of(list: &[u8]) -> Result<Vec<TreeEntry>, serde_json::Error> {
    #[derive(serde::Deserialize)]
    struct Plain {
        nodes: Option<Vec<serde_json::Value>>,
    }
    if let Ok(tree) = serde_json::from_slice::<Tree>(list) {
        return Ok(tree.nodes.iter().map(entry_of).collect());
    }
    let plain: Plain = serde_json::from_slice(list)?;
    let one = |mut value: serde_json::Value| {
        last_days(&mut value);
        let name = value.get("name").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
        serde_json::from_value(value).map_or_else(
            |error| {
                let named = entry_of(&Node { name, ..Node::default() });
                TreeEntry { kind: TreeEntryKind::Unknown(error.to_string()), ..named }
            },
            |node| entry_of(&node),
        )
    };
    Ok(plain.nodes.unwrap_or_default().into_iter().map(one).collect())
}

/// Replaces times of the last days of the year 9999, which stand for "never". The library has no
/// such times, by a few hours.
fn last_days(node: &mut serde_json::Value) {
    for key in ["mtime", "atime", "ctime"] {
        if let Some(time) = node.get_mut(key)
            && let Some(text) = time.as_str()
            && text.starts_with("9999-12-3")
            && text.parse::<rustic_core::jiff::Timestamp>().is_err()
        {
            *time = "9999-12-30T22:00:00Z".into();
        }
    }
}

fn entry_of(node: &Node) -> TreeEntry {
    use std::os::unix::ffi::OsStrExt;
    let meta = &node.meta;
    let time = |time: Option<rustic_core::jiff::Timestamp>| {
        time.map(|time| {
            let nanos = time.as_nanosecond();
            Timestamp {
                seconds: i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(0),
                nanos: nanos.rem_euclid(1_000_000_000) as u32,
            }
        })
    };
    let mtime = time(meta.mtime).unwrap_or_default();
    let kind = match &node.node_type {
        NodeType::File => TreeEntryKind::File(node.content.iter().flatten().map(|id| foreign(id)).collect()),
        NodeType::Dir => TreeEntryKind::Directory(node.subtree.as_ref().map(|id| foreign(id))),
        NodeType::Symlink { .. } => TreeEntryKind::Symlink(node.node_type.to_link().as_os_str().as_bytes().to_vec()),
        NodeType::Dev { device } => TreeEntryKind::BlockDevice(*device),
        NodeType::Chardev { device } => TreeEntryKind::CharDevice(*device),
        NodeType::Fifo => TreeEntryKind::Fifo,
        NodeType::Socket => TreeEntryKind::Socket,
    };
    let xattrs = meta.extended_attributes.iter().map(|attribute| Xattr {
        name: attribute.name.as_bytes().to_vec(),
        value: attribute.value.clone().unwrap_or_default(),
    });
    TreeEntry {
        name: node.name().as_bytes().to_vec(),
        kind,
        mode: mode(meta.mode.unwrap_or(0)),
        uid: meta.uid.unwrap_or(0),
        gid: meta.gid.unwrap_or(0),
        user: meta.user.clone().filter(|user| !user.is_empty()),
        group: meta.group.clone().filter(|group| !group.is_empty()),
        mtime,
        ctime: time(meta.ctime).unwrap_or(mtime),
        atime: time(meta.atime).filter(|atime| *atime != mtime),
        inode: meta.inode,
        device_id: meta.device_id,
        links: meta.links,
        xattrs: xattrs.collect(),
    }
}

/// Modes have the bits of Go beside the permissions.
fn mode(go: u32) -> u32 {
    let bit = |go_bit: u32, bit: u32| if go & (1 << go_bit) != 0 { bit } else { 0 };
    (go & 0o777) | bit(23, 0o4000) | bit(22, 0o2000) | bit(20, 0o1000)
}

fn foreign(id: &Id) -> ForeignId {
    data_encoding::HEXLOWER
        .decode(id.to_hex().as_str().as_bytes())
        .ok()
        .and_then(|id| id.try_into().ok())
        .unwrap_or([0; 32])
}

fn failed(error: &RusticError) -> ImportError {
    let kind = if error.is_incorrect_password() { ErrorKind::BadKey } else { ErrorKind::Damaged };
    let message = match kind {
        ErrorKind::BadKey => "wrong password: it opens no key of the restic repository".to_owned(),
        _ => text(error),
    };
    ImportError::Foreign { kind, message }
}

/// The message of an error, on one line, and its cause.
fn text(error: &RusticError) -> String {
    let all = error.to_string();
    let behind = |title: &str| {
        let line = all.split_once(title)?.1.lines().find(|line| !line.trim().is_empty())?;
        Some(line.trim().to_owned())
    };
    let message = behind("Message:").unwrap_or_else(|| "it cannot be read".to_owned());
    match behind("Caused by:") {
        Some(cause) if !message.contains(&cause) => format!("{message} ({cause})"),
        _ => message,
    }
}

/// The files of the repository as the library wants them.
struct Backend(Arc<ResticFiles>);

impl Backend {
    fn name(kind: FileType, id: &Id) -> String {
        let hex = id.to_hex();
        match kind {
            FileType::Config => "config".to_owned(),
            FileType::Pack => format!("data/{}/{}", &hex.as_str()[..2], hex.as_str()),
            other => format!("{}/{}", other.dirname(), hex.as_str()),
        }
    }
}

fn unread(error: ReadFailure) -> Box<RusticError> {
    RusticError::with_source(rustic_core::ErrorKind::Backend, error.to_string(), error)
}

impl ReadBackend for Backend {
    fn location(&self) -> String {
        "restic".to_owned()
    }

    fn list_with_size(&self, kind: FileType) -> RusticResult<Vec<(Id, u32)>> {
        if kind == FileType::Config {
            let size = self.0.size("config").map_err(unread)?;
            return Ok(size.map(|size| (Id::default(), u32::try_from(size).unwrap_or(u32::MAX))).into_iter().collect());
        }
        let listed = self.0.list(kind.dirname()).map_err(unread)?;
        let id = |(name, size): (String, u64)| {
            let id = name.rsplit('/').next()?.parse::<Id>().ok()?;
            Some((id, u32::try_from(size).unwrap_or(u32::MAX)))
        };
        Ok(listed.into_iter().filter_map(id).collect())
    }

    fn read_full(&self, kind: FileType, id: &Id) -> RusticResult<Bytes> {
        self.0.get(&Self::name(kind, id)).map_err(unread)
    }

    fn read_partial(&self, kind: FileType, id: &Id, _: bool, offset: u32, length: u32) -> RusticResult<Bytes> {
        let range = u64::from(offset)..u64::from(offset) + u64::from(length);
        self.0.get_range(&Self::name(kind, id), range).map_err(unread)
    }

    fn warmup_path(&self, kind: FileType, id: &Id) -> String {
        Self::name(kind, id)
    }
}

impl WriteBackend for Backend {
    fn write_bytes(&self, _: FileType, _: &Id, _: bool, _: BytesList) -> RusticResult<()> {
        Err(RusticError::new(rustic_core::ErrorKind::AppendOnly, "the repository is only read"))
    }

    fn remove(&self, _: FileType, _: &Id, _: bool) -> RusticResult<()> {
        Err(RusticError::new(rustic_core::ErrorKind::AppendOnly, "the repository is only read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_not_understood_costs_itself_only() {
        let file = |name: &str, kind: &str| {
            format!(r#"{{"name":"{name}","type":"{kind}","mode":420,"uid":1,"gid":2,"content":null}}"#)
        };
        let list = |nodes: &[String]| format!(r#"{{"nodes":[{}]}}"#, nodes.join(","));
        let whole = entries_of(list(&[file("a", "file"), file("b", "fifo")]).as_bytes()).expect("understood");
        assert_eq!(whole[1].kind, TreeEntryKind::Fifo);
        let odd = list(&[file("a", "file"), file("b\\\\xff", "irregular"), file("c", "file")]);
        let odd = entries_of(odd.as_bytes()).expect("understood");
        assert!(matches!(odd[1].kind, TreeEntryKind::Unknown(_)), "{odd:?}");
        let names: Vec<&[u8]> = odd.iter().map(|entry| &*entry.name).collect();
        assert_eq!((names, &odd[0]), (vec![&b"a"[..], b"b\xff", b"c"], &whole[0]));
        assert!(entries_of(b"{").is_err());
    }

    /// Times of the last hours of the year 9999 stand for "never", and restic writes them.
    #[test]
    fn an_entry_with_a_time_that_the_library_lacks_is_read() {
        let list = br#"{"nodes":[
            {"name":"never","type":"dir","mode":2147484141,"mtime":"9999-12-31T23:59:59Z","uid":7,"subtree":null},
            {"name":"odd","type":"file","mtime":"yesterday"}]}"#;
        let entries = entries_of(list).expect("a list");
        assert_eq!(entries[0].kind, TreeEntryKind::Directory(None));
        assert_eq!((entries[0].uid, entries[0].mtime.seconds / 86_400), (7, 2_932_895));
        assert!(matches!(entries[1].kind, TreeEntryKind::Unknown(_)), "{entries:?}");
    }

    #[test]
    fn modes_keep_what_a_file_system_knows() {
        for (go, expected) in [
            (0o644, 0o644),
            (0o410_000_644, 0o644),
            (0o20_000_000_755, 0o755),
            ((1 << 23) | 0o755, 0o4755),
            ((1 << 22) | 0o755, 0o2755),
            ((1 << 20) | (1 << 31) | 0o777, 0o1777),
        ] {
            assert_eq!(mode(go), expected, "{go:o}");
        }
    }
}

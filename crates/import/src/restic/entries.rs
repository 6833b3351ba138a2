//! The entries of a snapshot of restic, in the order of paths.
//!
//! The tree of a snapshot that was imported before is walked beside. A file with the same contents
//! there, by their ids, is known and not read.

use std::collections::HashMap;
use std::sync::Arc;
use std::vec::IntoIter;

use bytes::Bytes;
use larder_format::entry::{Entry, EntryKind, is_valid_path};
use larder_format::ids::JobId;
use larder_format::manifest::SourceKind;
use larder_job::{Activity, Cancel, Problem};
use larder_lnode::{EntrySource, SourceError, Supplied, SuppliedEntry};

use super::api::{Reader, TreeEntry, TreeEntryKind, Unread};
use crate::original::ForeignId;
use crate::sound::{expect_target, sound_xattrs};

/// Contents up to this size are looked at before their entry is supplied (bytes).
const LOOKED_AT_MAX: u64 = 8 << 20;
/// Paths are not longer than what the kernel takes, with room. Deeper trees are refused.
const PATH_MAX: usize = 64 << 10;

/// See the module header.
pub(super) struct SnapshotEntries {
    reader: Arc<Reader>,
    tree: ForeignId,
    /// The tree that was imported before, and the version made of it.
    before: Option<(ForeignId, JobId)>,
    is_strict: bool,
    cancel: Cancel,
    /// The folders that are being walked, from the root on. Empty before the first entry.
    folders: Option<Vec<Folder>>,
    /// The first paths of files with several names, by device and inode, with their contents.
    links: HashMap<(u64, u64), FirstName>,
    /// The contents of the last entry that were not read.
    contents: IntoIter<ForeignId>,
    piece: Bytes,
    /// Bytes of the last entry that were not read.
    left: u64,
    path: Vec<u8>,
    /// What is wrong with the last entry.
    problem: Option<Supplied>,
}

struct FirstName {
    path: Vec<u8>,
    /// Of the kind and the contents.
    hash: blake3::Hash,
    /// Names that come yet.
    missing: u64,
}

struct Folder {
    path: Vec<u8>,
    entries: IntoIter<TreeEntry>,
    /// The same folder of the snapshot before.
    before: Arc<[TreeEntry]>,
}

impl SnapshotEntries {
    pub(super) fn new(
        reader: Arc<Reader>,
        tree: ForeignId,
        before: Option<(ForeignId, JobId)>,
        is_strict: bool,
        cancel: Cancel,
    ) -> Self {
        Self {
            reader,
            tree,
            before,
            is_strict,
            cancel,
            folders: None,
            links: HashMap::new(),
            contents: Vec::new().into_iter(),
            piece: Bytes::new(),
            left: 0,
            path: Vec::new(),
            problem: None,
        }
    }

    fn failed(&self, why: Unread) -> SourceError {
        match why {
            Unread::Lost(why) => SourceError::Input { path: self.path.clone(), source: std::io::Error::other(why) },
            Unread::Store(error) => SourceError::Repository(error.into()),
        }
    }

    /// The reason why something is left out. If the store fails, no version is made.
    fn lost<T>(&self, result: Result<T, Unread>) -> Result<Result<T, String>, SourceError> {
        match result {
            Ok(found) => Ok(Ok(found)),
            Err(Unread::Lost(why)) => Ok(Err(why)),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// A folder with its entries sorted. `before`: the tree of the same folder before.
    fn folder(&self, path: Vec<u8>, tree: &ForeignId, before: Option<&ForeignId>) -> Result<Folder, Unread> {
        let sorted = |tree: &ForeignId| {
            let mut entries = self.reader.tree(tree)?;
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            entries.dedup_by(|a, b| a.name == b.name);
            Ok::<_, Unread>(entries)
        };
        let entries = sorted(tree)?;
        let is_same = before == Some(tree);
        let before: Arc<[TreeEntry]> = match before {
            Some(_) if is_same => entries.clone().into(),
            Some(before) => match sorted(before) {
                Ok(before) => before.into(),
                // Without it, more is read.
                Err(Unread::Lost(_)) => Arc::default(),
                Err(error) => return Err(error),
            },
            None => Arc::default(),
        };
        Ok(Folder { path, entries: entries.into_iter(), before })
    }

    /// An entry of a folder, as an entry of a version.
    fn entry(&mut self, path: Vec<u8>, found: TreeEntry, before: Option<&TreeEntry>) -> Result<Supplied, Unread> {
        let TreeEntry { mode, uid, gid, mtime, ctime, atime, inode, .. } = found;
        let (user, group) = (found.user.map(Arc::from), found.group.map(Arc::from));
        let may_be_linked =
            found.links > 1 && !matches!(found.kind, TreeEntryKind::Directory(_) | TreeEntryKind::Symlink(_));
        let key = (found.device_id, found.inode);
        let hash = may_be_linked.then(|| hash(&found.kind));
        let first = hash.and_then(|hash| self.links.get_mut(&key).filter(|first| first.hash == hash));
        let mut contents = Vec::new();
        let mut known = Vec::new();
        let mut size_of_contents = 0;
        let device = |device: u64| (rustix::fs::major(device), rustix::fs::minor(device));
        let kind = if let Some(first) = first {
            let target = first.path.clone();
            first.missing -= 1;
            if first.missing == 0 {
                self.links.remove(&key);
            }
            EntryKind::HardLink { target }
        } else {
            if let Some(hash) = hash {
                self.links.insert(key, FirstName { path: path.clone(), hash, missing: found.links - 1 });
            }
            match found.kind {
                TreeEntryKind::File(ids) => {
                    let is_known = before.is_some_and(
                        |before| matches!(&before.kind, TreeEntryKind::File(ids_before) if *ids_before == ids),
                    );
                    let size = match self.reader.bytes_of(&ids) {
                        Ok(size) => size,
                        Err(why) => {
                            self.links.remove(&key);
                            return Err(why);
                        }
                    };
                    if is_known && size > 0 && !self.is_strict && !self.reader.has_lost(&ids) {
                        known.push(0..size);
                    }
                    size_of_contents = size;
                    contents = ids;
                    EntryKind::File { size, extents: None }
                }
                TreeEntryKind::Directory(_) => EntryKind::Directory,
                TreeEntryKind::Symlink(target) => match expect_target(&target) {
                    Ok(()) => EntryKind::Symlink { target },
                    Err(why) => return Err(Unread::Lost(why.to_owned())),
                },
                TreeEntryKind::CharDevice(number) => {
                    let (major, minor) = device(number);
                    EntryKind::CharDevice { major, minor }
                }
                TreeEntryKind::BlockDevice(number) => {
                    let (major, minor) = device(number);
                    EntryKind::BlockDevice { major, minor }
                }
                TreeEntryKind::Fifo => EntryKind::Fifo,
                TreeEntryKind::Unknown(why) => return Err(Unread::Lost(format!("it is not understood: {why}"))),
                TreeEntryKind::Socket => return Err(Unread::Lost("a socket is only in memory".to_owned())),
            }
        };
        let is_looked_at = known.is_empty() && (self.is_strict || size_of_contents <= LOOKED_AT_MAX);
        if let (true, Err(why)) = (is_looked_at, self.look_at(&contents, size_of_contents)) {
            // The next name may not be a link to it.
            self.links.remove(&key);
            return Err(why);
        }
        self.path.clone_from(&path);
        self.contents = contents.into_iter();
        self.piece = Bytes::new();
        self.left = size_of_contents;
        let mut problems = Vec::new();
        let xattrs = sound_xattrs(found.xattrs, &mut problems);
        self.problem = problems.pop().map(|why| problem(path.clone(), Activity::Read, why));
        let entry = Entry { path, kind, mode, uid, gid, user, group, mtime, ctime, atime, inode, xattrs };
        Ok(Supplied::Entry(SuppliedEntry { entry, known }))
    }

    /// Has a piece of contents that is not empty.
    fn go_on(&mut self) -> Result<(), SourceError> {
        while self.piece.is_empty() {
            let Some(id) = self.contents.next() else {
                return Err(self.failed(Unread::Lost("its contents end before".to_owned())));
            };
            self.piece = self.reader.blob(&id).map_err(|why| self.failed(why))?;
        }
        Ok(())
    }

    /// Whether contents are whole.
    fn look_at(&self, contents: &[ForeignId], size: u64) -> Result<(), Unread> {
        let mut found = 0;
        for id in contents {
            if self.cancel.is_cancelled() {
                return Err(Unread::Lost("interrupted".to_owned()));
            }
            found += self.reader.blob(id)?.len() as u64;
        }
        match found == size {
            true => Ok(()),
            false => Err(Unread::Lost(format!("it has {found} bytes of contents, and should have {size}"))),
        }
    }
}

/// Equal for names of one file.
fn hash(kind: &TreeEntryKind) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    match kind {
        TreeEntryKind::File(ids) => {
            for id in ids {
                hasher.update(id);
            }
        }
        kind => {
            hasher.update(format!("{kind:?}").as_bytes());
        }
    }
    hasher.finalize()
}

fn problem(path: Vec<u8>, during: Activity, message: String) -> Supplied {
    Supplied::Problem(Problem { path, during, message })
}

impl EntrySource for SnapshotEntries {
    fn kind(&self) -> SourceKind {
        SourceKind::Tree
    }

    fn base(&self) -> Option<JobId> {
        self.before.map(|(_, version)| version)
    }

    fn again(&self) -> Box<dyn EntrySource> {
        Box::new(Self::new(self.reader.clone(), self.tree, None, self.is_strict, self.cancel.clone()))
    }

    fn next_entry(&mut self) -> Result<Option<Supplied>, SourceError> {
        if let Some(problem) = self.problem.take() {
            return Ok(Some(problem));
        }
        if self.folders.is_none() {
            self.path.clear();
            let before = self.before.map(|(tree, _)| tree);
            let root = self.folder(Vec::new(), &self.tree, before.as_ref()).map_err(|why| self.failed(why))?;
            self.folders = Some(vec![root]);
        }
        loop {
            let Some(folder) = self.folders.as_mut().and_then(|folders| folders.last_mut()) else { return Ok(None) };
            let Some(found) = folder.entries.next() else {
                if let Some(folders) = &mut self.folders {
                    folders.pop();
                }
                continue;
            };
            let path = match folder.path.is_empty() {
                true => found.name.clone(),
                false => [&*folder.path, b"/", &*found.name].concat(),
            };
            if !is_valid_path(&path) || found.name.contains(&b'/') || path.len() > PATH_MAX {
                let why = "a name cannot be in a snapshot".to_owned();
                return Ok(Some(problem(folder.path.clone(), Activity::Walk, why)));
            }
            let at = folder.before.binary_search_by(|before| before.name.cmp(&found.name));
            let before = at.ok().and_then(|at| folder.before.get(at)).cloned();
            let TreeEntryKind::Directory(tree) = &found.kind else {
                if found.kind == TreeEntryKind::Socket {
                    continue;
                }
                let entry = self.entry(path.clone(), found, before.as_ref());
                return Ok(Some(self.lost(entry)?.unwrap_or_else(|why| problem(path, Activity::Read, why))));
            };
            let before_tree = match before.as_ref().map(|before| &before.kind) {
                Some(TreeEntryKind::Directory(tree)) => *tree,
                _ => None,
            };
            let opened = match tree {
                Some(tree) => self.folder(path.clone(), tree, before_tree.as_ref()),
                None => Err(Unread::Lost("it has no contents".to_owned())),
            };
            let entry = opened.and_then(|folder| Ok((self.entry(path.clone(), found, None)?, folder)));
            return Ok(Some(match self.lost(entry)? {
                Ok((supplied, folder)) => {
                    self.folders.get_or_insert_default().push(folder);
                    supplied
                }
                Err(why) => problem(path, Activity::Walk, format!("the folder and all below it: {why}")),
            }));
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, SourceError> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        self.go_on()?;
        let count = wanted.min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        self.left -= count as u64;
        Ok(count)
    }

    fn pass(&mut self, bytes: u64) {
        let end = self.left.saturating_sub(bytes);
        while self.left > end && self.go_on().is_ok() {
            let count = usize::try_from(self.left - end).unwrap_or(usize::MAX).min(self.piece.len());
            drop(self.piece.split_to(count));
            self.left -= count as u64;
        }
    }
}

//! The tree: numbers and names, facts, links and open files. Children: lists, contents, reports.

mod listing;
mod open_file;
mod refreshing;
mod reporting;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use larder_format::DecodeError;
use larder_format::entry::{Entry, EntryKind, Xattr};
use larder_format::ids::JobId;
use larder_job::JobContext;
use larder_reader::{FetchOptions, FetchReport, is_at_or_below};
use larder_store::RepositoryError;
use larder_store::catalog::{Filter, Version};
use parking_lot::{Mutex, RwLock};

pub use self::listing::Listed;
pub use self::open_file::OpenFile;
use self::open_file::Recent;
use self::refreshing::Refresh;
use self::reporting::{Reported, what};
use crate::attributes::{Attributes, Kind};
use crate::error::TreeError;
use crate::folders::{Folders, Named, Numbers};
use crate::inode::{Inode, Position, ROOT, SLOTS, of_entry};
use crate::opened::{Opened, Pins};
use crate::template::Template;
use crate::time_layout::TimeLayout;

/// Gets to know what users of the tree met. Each thing is reported once.
pub trait Reports: Send + Sync {
    /// Data is missing or damaged.
    fn damaged(&self, what: &str, error: &TreeError);
    /// Something cannot be read now.
    fn failed(&self, what: &str, error: &TreeError);
    /// A snapshot was forgotten while nothing protected it.
    fn forgotten(&self, id: JobId);
}

/// What a tree shows, and how.
#[derive(Debug, Clone)]
pub struct TreeOptions {
    /// Where snapshots appear.
    pub templates: Vec<Template>,
    /// How times are written.
    pub times: TimeLayout,
    /// Which snapshots appear.
    pub filter: Filter,
    /// How contents are fetched.
    pub fetch: FetchOptions,
    /// Owner and group of the folders that no snapshot has.
    pub owner: (u32, u32),
    /// Owner and group of all files, in place of their own.
    pub owner_of_all: Option<(u32, u32)>,
    /// An unused snapshot stays protected for this time, in milliseconds.
    pub keep_ms: u64,
    /// The list of snapshots is read again when it is older, in milliseconds.
    pub refresh_ms: u64,
    /// Whether attributes say how many names a file has. The first use of a snapshot with links
    /// then reads all its metadata.
    pub counts_names: bool,
}

/// Where in a snapshot an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Within {
    /// The snapshot.
    pub snapshot: JobId,
    /// The inode number of the folder that shows the root of the snapshot.
    pub root: u64,
    /// The number of the entry in the snapshot, the same in every process.
    pub number: u64,
}

impl TreeOptions {
    /// Whether tags say where snapshots appear, or which.
    pub fn shows_tags(&self) -> bool {
        !self.filter.tags.is_empty() || self.templates.iter().any(Template::has_tag)
    }
}

/// A snapshot at one path of the tree.
#[derive(Debug, Clone)]
struct Slot {
    version: Arc<Version>,
    /// The number of its root.
    root: u64,
    /// The path in the snapshot that its root shows.
    below: Vec<u8>,
}

/// A folder in a snapshot.
struct Inside {
    slot: u16,
    opened: Arc<Opened>,
    path: Vec<u8>,
}

/// The list of snapshots, and when it was read.
struct Shown {
    folders: Arc<Folders>,
    read_ms: u64,
    /// A newer one is being read, and nobody waits for it.
    is_awaited: bool,
}

/// See the crate's header. Shared by threads; calls block.
pub struct Tree {
    context: JobContext,
    options: TreeOptions,
    pub(crate) reports: Arc<dyn Reports>,
    pub(crate) pins: Pins,
    shown: RwLock<Shown>,
    /// Held by the thread that reads the list again, or waits for that.
    refreshing: Mutex<Option<Refresh>>,
    /// The path in the snapshot that is the root; `None`: the root is above snapshots.
    one: Option<Vec<u8>>,
    numbers: Mutex<Numbers>,
    slots: RwLock<Slots>,
    recent: Recent,
    reported: Mutex<Reported>,
    met_damage: AtomicBool,
}

#[derive(Default)]
struct Slots {
    /// The first has the number 1.
    slots: Vec<Slot>,
    of_root: HashMap<u64, u16>,
    /// Folders that no entry names, only paths below them.
    implied: HashMap<u64, (u16, Vec<u8>)>,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("pins", &self.pins).finish_non_exhaustive()
    }
}

impl Tree {
    /// A tree of these versions, sorted by time. They are those that the filter admits.
    ///
    /// # Errors
    /// The temporary file of the disk cache cannot be created.
    pub fn new(
        context: &JobContext,
        versions: Vec<Version>,
        options: TreeOptions,
        reports: Arc<dyn Reports>,
    ) -> Result<Self, TreeError> {
        let mut numbers = Numbers::default();
        let folders = Folders::new(versions, &options.templates, &options.times, &mut numbers);
        Self::showing(context, folders, numbers, None, options, reports)
    }

    /// A tree whose root is a folder of one snapshot.
    ///
    /// # Errors
    /// The snapshot was forgotten, has no such folder, or cannot be read.
    pub fn of_one(
        context: &JobContext,
        version: Version,
        path: Vec<u8>,
        options: TreeOptions,
        reports: Arc<dyn Reports>,
    ) -> Result<Self, TreeError> {
        let one = Some(path.clone());
        let tree = Self::showing(context, Folders::of_one(version), Numbers::default(), one, options, reports)?;
        let inside = tree.folder_of(ROOT)?.ok_or(TreeError::NotAFolder)?;
        if !path.is_empty() {
            match inside.opened.metadata.at_or_behind(&path)? {
                Some((_, entry)) if entry.path == path && entry.kind != EntryKind::Directory => {
                    return Err(TreeError::NotAFolder);
                }
                Some((_, entry)) if is_at_or_below(&entry.path, &path) => {}
                _ => return Err(TreeError::NotFound),
            }
        }
        Ok(tree)
    }

    fn showing(
        context: &JobContext,
        folders: Folders,
        numbers: Numbers,
        one: Option<Vec<u8>>,
        options: TreeOptions,
        reports: Arc<dyn Reports>,
    ) -> Result<Self, TreeError> {
        let read_ms = context.clock.now_ms();
        Ok(Self {
            pins: Pins::new(context, options.fetch.clone(), options.keep_ms)?,
            context: context.clone(),
            shown: RwLock::new(Shown { folders: Arc::new(folders), read_ms, is_awaited: false }),
            refreshing: Mutex::default(),
            one,
            numbers: Mutex::new(numbers),
            slots: RwLock::default(),
            recent: Recent::default(),
            reported: Mutex::default(),
            met_damage: AtomicBool::new(false),
            reports,
            options,
        })
    }

    /// Snapshots that the tree shows.
    pub fn snapshots(&self) -> usize {
        self.shown.read().folders.snapshots
    }

    /// Milliseconds after which folders above snapshots may have changed.
    pub fn refresh_ms(&self) -> u64 {
        self.options.refresh_ms
    }

    /// Counts of the contents fetched so far.
    pub fn fetched(&self) -> FetchReport {
        self.pins.frames().fetched()
    }

    /// The path in the snapshot that the root of the tree shows. `None`: the root is above
    /// snapshots.
    pub fn shown_path(&self) -> Option<&[u8]> {
        self.one.as_deref()
    }

    /// Where in a snapshot an entry is. `None` for folders above snapshots, and those that no entry
    /// names.
    pub fn within(&self, inode: u64) -> Option<Within> {
        let Inode::Entry { slot, position } = Inode::of(inode) else { return None };
        let slots = self.slots.read();
        let slot = slots.slots.get(usize::from(slot).wrapping_sub(1))?;
        Some(Within { snapshot: slot.version.id(), root: slot.root, number: position.number()? })
    }

    /// Lets unused snapshots go. To be called now and then.
    pub fn tidy(&self) {
        for id in self.pins.tidy() {
            self.forgotten(id);
        }
    }

    /// Lets all snapshots go. Nothing can be read without new leases then.
    pub fn end(&self) {
        self.pins.end();
    }

    /// The facts of something.
    pub fn attributes(&self, inode: u64) -> Result<Attributes, TreeError> {
        match Inode::of(inode) {
            Inode::Named(number) => self.named_attributes(number),
            Inode::Entry { slot, position } => {
                let (_, opened, entry) = self.entry(slot, position)?;
                self.entry_attributes(slot, &opened, position, &entry, true)
            }
        }
    }

    /// The facts of a name in a folder.
    pub fn lookup(&self, folder: u64, name: &[u8]) -> Result<Attributes, TreeError> {
        let Some(inside) = self.folder_of(folder)? else {
            let folders = self.folders();
            let Some(Named::Folder(names)) = folders.get(folder) else { return Err(TreeError::NotFound) };
            let number = std::str::from_utf8(name).ok().and_then(|name| names.get(name));
            return self.named_attributes(*number.ok_or(TreeError::NotFound)?);
        };
        let path = joined(&inside.path, name);
        let found = self.met(&inside.opened, &path, inside.opened.metadata.at_or_behind(&path))?;
        match found {
            Some((position, entry)) if entry.path == path => {
                self.entry_attributes(inside.slot, &inside.opened, position, &entry, true)
            }
            Some((_, entry)) if is_at_or_below(&entry.path, &path) => Ok(self.implied(&inside, path)),
            _ => Err(TreeError::NotFound),
        }
    }

    /// The target of a symbolic link.
    pub fn link_target(&self, inode: u64) -> Result<Vec<u8>, TreeError> {
        match Inode::of(inode) {
            Inode::Named(number) => match self.folders().get(number) {
                Some(Named::Link(target)) => Ok(target.clone().into_bytes()),
                Some(_) => Err(TreeError::Unsuitable),
                None => Err(TreeError::NotFound),
            },
            Inode::Entry { slot, position } => match self.entry(slot, position)?.2.kind {
                EntryKind::Symlink { target } => Ok(target),
                _ => Err(TreeError::Unsuitable),
            },
        }
    }

    /// The extended attributes of something, ACLs included.
    pub fn xattrs(&self, inode: u64) -> Result<Vec<Xattr>, TreeError> {
        match Inode::of(inode) {
            Inode::Named(number) => match self.root_entry(number)? {
                Some((_, _, entry)) => Ok(entry.xattrs),
                None => Ok(Vec::new()),
            },
            Inode::Entry { slot, position } => Ok(self.entry(slot, position)?.2.xattrs),
        }
    }

    /// The entry at a place.
    fn entry(&self, slot: u16, position: Position) -> Result<(Slot, Arc<Opened>, Entry), TreeError> {
        let slot = self.slot_numbered(slot)?;
        let opened = self.pin(&slot.version)?;
        let entry = self.met(&opened, b"", opened.metadata.at(position))?.ok_or(TreeError::NotFound)?;
        Ok((slot, opened, entry))
    }

    fn slot_numbered(&self, number: u16) -> Result<Slot, TreeError> {
        let slot = self.slots.read().slots.get(usize::from(number).wrapping_sub(1)).cloned();
        slot.ok_or(TreeError::NotFound)
    }

    /// The entry that the root of a snapshot shows; `None`: it has none.
    fn root_entry(&self, number: u64) -> Result<Option<(Inside, Position, Entry)>, TreeError> {
        // Only the root of the mount may be within a snapshot.
        if number != ROOT || self.one.as_ref().is_none_or(Vec::is_empty) {
            return Ok(None);
        }
        let Some(inside) = self.folder_of(number)? else { return Ok(None) };
        let found = self.met(&inside.opened, &inside.path, inside.opened.metadata.find(&inside.path))?;
        Ok(found.map(|(position, entry)| (inside, position, entry)))
    }

    fn pin(&self, version: &Arc<Version>) -> Result<Arc<Opened>, TreeError> {
        self.pins.open(version).inspect_err(|error| match error {
            TreeError::Forgotten { id } => self.forgotten(*id),
            error => self.failed(&format!("snapshot {}", version.id().short()), error),
        })
    }

    fn named_attributes(&self, number: u64) -> Result<Attributes, TreeError> {
        if let Some((inside, position, entry)) = self.root_entry(number)? {
            let attributes = self.entry_attributes(inside.slot, &inside.opened, position, &entry, true)?;
            return Ok(Attributes { inode: number, ..attributes });
        }
        let implied = self.slots.read().implied.get(&number).map(|(slot, _)| *slot);
        if let Some(slot) = implied {
            let slot = self.slots.read().slots.get(usize::from(slot) - 1).cloned().ok_or(TreeError::NotFound)?;
            return Ok(self.folder_attributes(number, slot.version.summary.time_ms));
        }
        let (folders, read_ms) = self.shown();
        self.attributes_in(&folders, read_ms, number).ok_or(TreeError::NotFound)
    }

    /// The facts of something in a list that was read at a time, in milliseconds.
    fn attributes_in(&self, folders: &Folders, read_ms: u64, number: u64) -> Option<Attributes> {
        let attributes = |unix_ms| self.folder_attributes(number, unix_ms);
        Some(match folders.get(number)? {
            Named::Folder(_) => attributes(read_ms),
            Named::Snapshot(version) => attributes(version.summary.time_ms),
            Named::Link(target) => {
                Attributes { kind: Kind::Link, size: target.len() as u64, mode: 0o777, ..attributes(read_ms) }
            }
        })
    }

    fn folder_attributes(&self, number: u64, unix_ms: u64) -> Attributes {
        Attributes::of_folder(number, self.options.owner_of_all.unwrap_or(self.options.owner), unix_ms)
    }

    fn entry_attributes(
        &self,
        slot: u16,
        opened: &Opened,
        position: Position,
        entry: &Entry,
        with_all: bool,
    ) -> Result<Attributes, TreeError> {
        let linked;
        let (position, entry) = match &entry.kind {
            EntryKind::HardLink { target } => {
                let found = opened.metadata.find(target).and_then(|found| found.ok_or_else(|| no_target(opened)));
                linked = self.met(opened, &entry.path, found)?;
                (linked.0, &linked.1)
            }
            _ => (position, entry),
        };
        let inode = of_entry(slot, position).ok_or(TreeError::NoRoom).inspect_err(|error| {
            self.failed(&what(opened, &entry.path), error);
        })?;
        let names = match entry.kind {
            EntryKind::Directory => 1,
            _ if with_all && self.options.counts_names => {
                self.met(opened, &entry.path, opened.links())?.names(position)
            }
            _ => 1,
        };
        Ok(Attributes::of_entry(inode, entry, names, self.options.owner_of_all))
    }

    /// A folder that no entry names.
    fn implied(&self, inside: &Inside, path: Vec<u8>) -> Attributes {
        let number = self.numbers.lock().of(implied_key(inside.slot, &path));
        self.slots.write().implied.insert(number, (inside.slot, path));
        self.folder_attributes(number, inside.opened.version.summary.time_ms)
    }

    /// The folder of a snapshot with this number. `None`: it is above snapshots.
    fn folder_of(&self, inode: u64) -> Result<Option<Inside>, TreeError> {
        let number = match Inode::of(inode) {
            Inode::Entry { slot, position } => {
                let (_, opened, entry) = self.entry(slot, position)?;
                return match entry.kind {
                    EntryKind::Directory => Ok(Some(Inside { slot, opened, path: entry.path })),
                    _ => Err(TreeError::NotAFolder),
                };
            }
            Inode::Named(number) => number,
        };
        let implied = self.slots.read().implied.get(&number).cloned();
        if let Some((slot, path)) = implied {
            let version = self.slots.read().slots.get(usize::from(slot) - 1).map(|slot| slot.version.clone());
            let opened = self.pin(&version.ok_or(TreeError::NotFound)?)?;
            return Ok(Some(Inside { slot, opened, path }));
        }
        let folders = self.folders();
        match folders.get(number) {
            Some(Named::Folder(_)) => Ok(None),
            Some(Named::Link(_)) => Err(TreeError::NotAFolder),
            Some(Named::Snapshot(version)) => {
                let path = self.one.clone().unwrap_or_default();
                let slot = self.slot(number, version, &path)?;
                Ok(Some(Inside { slot, opened: self.pin(version)?, path }))
            }
            None => Err(TreeError::NotFound),
        }
    }

    /// The slot of a snapshot at one path.
    fn slot(&self, root: u64, version: &Arc<Version>, below: &[u8]) -> Result<u16, TreeError> {
        if let Some(slot) = self.slots.read().of_root.get(&root) {
            return Ok(*slot);
        }
        let mut slots = self.slots.write();
        if let Some(slot) = slots.of_root.get(&root) {
            return Ok(*slot);
        }
        let number = u16::try_from(slots.slots.len() + 1).ok().filter(|slot| usize::from(*slot) < SLOTS);
        let Some(number) = number else {
            drop(slots);
            self.failed("a snapshot", &TreeError::NoRoom);
            return Err(TreeError::NoRoom);
        };
        slots.slots.push(Slot { version: version.clone(), root, below: below.to_vec() });
        slots.of_root.insert(root, number);
        Ok(number)
    }

    /// The number of the folder that a folder is in.
    fn parent(&self, inode: u64) -> Result<u64, TreeError> {
        let (slot, path) = match Inode::of(inode) {
            Inode::Named(number) => {
                let implied = self.slots.read().implied.get(&number).cloned();
                match implied {
                    Some(place) => place,
                    None => return Ok(self.folders().parent(number)),
                }
            }
            Inode::Entry { slot, position } => (slot, self.entry(slot, position)?.2.path),
        };
        let place = self.slots.read().slots.get(usize::from(slot) - 1).cloned().ok_or(TreeError::NotFound)?;
        let Some(above) = path.iter().rposition(|byte| *byte == b'/').map(|end| &path[..end]) else {
            return Ok(place.root);
        };
        if above == place.below {
            return Ok(place.root);
        }
        let opened = self.pin(&place.version)?;
        match self.met(&opened, above, opened.metadata.find(above))? {
            Some((position, _)) => of_entry(slot, position).ok_or(TreeError::NoRoom),
            None => Ok(self.implied(&Inside { slot, opened, path: Vec::new() }, above.to_vec()).inode),
        }
    }
}

/// The name of an implied folder among numbers: different folders have different names.
fn implied_key(slot: u16, path: &[u8]) -> String {
    format!("\0{slot}\0{}", path.escape_ascii())
}

fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

fn no_target(opened: &Opened) -> RepositoryError {
    let source = DecodeError::Invalid { what: "metadata stream", why: "a hard link names a path that is not there" };
    RepositoryError::Damaged { name: format!("snapshot {}", opened.version.id().short()), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_text_are_different_folders() {
        let keys = [&b"q/\xfe"[..], b"q/\xff", "q/\u{fffd}".as_bytes(), b"q/\\xff"].map(|path| implied_key(1, path));
        for (number, key) in keys.iter().enumerate() {
            assert!(!keys[..number].contains(key), "{key}");
        }
    }
}

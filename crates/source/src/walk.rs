//! Walks file trees in the order of a version's metadata stream.
//!
//! Depth first, siblings by the bytes of their names: the order of
//! `larder_format::entry::path_order`. The folders above a root are entries too, each once, so that
//! a restore can create them with their metadata.
//!
//! Everything is done relative to open directories. Paths may be longer than the kernel's limit,
//! renames above the walk do not disturb it, and below a root no symlink is ever followed. (A root
//! that is a symlink is an entry of that kind. Folders *above* a root are followed and recorded as
//! directories, since their path means that.) Memory holds the names of the directories along the
//! current path, and [`WalkOptions::link_memory`] bytes of hard links with names still to come;
//! more of them go to a file. At most [`OPEN_DIRECTORIES_MAX`] directories are held open, plus
//! those that
//! [`Found`] values keep.
//!
//! The walk is an iterator without threads of its own; it never fails as a whole.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::sync::Arc;

use larder_format::entry::{Entry, EntryKind};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::directory::{Directory, ListingBuffer, Names, Purpose};
use crate::exclude::Excludes;
use crate::found::Found;
use crate::item::{Item, Problem, SkipReason, WalkError};
use crate::links::LinkTable;
use crate::owners::Owners;
use crate::roots::{NodeId, Roots};
use crate::stat::{Follow, Stat};

/// Directories along the current path that are held open; those further up are opened again when
/// the walk comes back to them. Far below the usual limit of 1,024 descriptors, far above usual
/// depths.
pub const OPEN_DIRECTORIES_MAX: usize = 128;

/// Name lists kept for reuse.
const SPARE_LISTS_MAX: usize = 16;

/// Memory for hard links, in bytes, unless [`WalkOptions::link_memory`] says otherwise.
const LINK_MEMORY: usize = 8 << 20;

/// Exclusions, extra inspections, and bounds.
#[derive(Debug)]
pub struct WalkOptions {
    /// Stay on the file systems of the roots. A mount point itself is an entry, but the mounted
    /// file system is not entered.
    pub one_file_system: bool,
    /// Record access times.
    pub with_atime: bool,
    /// Roots that are block devices or FIFOs, or symlinks to them, are to be read as streams
    /// (`Found::is_special_stream`). Only roots: a FIFO somewhere in a tree would hold up the
    /// backup for ever, and `/dev` is full of disks.
    pub read_special: bool,
    /// The exclusions. Folders above a root are not judged.
    pub excludes: Excludes,
    /// Bytes of memory for files that have further names.
    pub link_memory: usize,
    /// The folder for what exceeds it. It is created if it is absent.
    pub scratch: PathBuf,
}

impl Default for WalkOptions {
    fn default() -> Self {
        Self {
            one_file_system: false,
            with_atime: false,
            read_special: false,
            excludes: Excludes::default(),
            link_memory: LINK_MEMORY,
            scratch: std::env::temp_dir(),
        }
    }
}

impl WalkOptions {
    /// Why an entry other than a directory is excluded, judged by its metadata.
    fn unwanted(&self, stat: &Stat) -> Option<SkipReason> {
        let is_too_large = self.excludes.larger_than.is_some_and(|limit| stat.size > limit);
        match stat.file_type {
            FileType::Socket => Some(SkipReason::Socket),
            FileType::RegularFile if is_too_large => Some(SkipReason::TooLarge),
            _ => None,
        }
    }
}

/// How a directory on the current path is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It is above a root: only the planned names in it matter.
    Leading,
    /// It is a root or below one: everything in it matters.
    Full,
}

/// A directory on the current path.
#[derive(Debug)]
struct Level {
    /// `None` while closed to save descriptors; never for the last level.
    directory: Option<Arc<Directory>>,
    /// Device and inode, to know it again.
    identity: (u64, u64),
    names: Names,
    /// Bytes of the walk's path up to here.
    path_length: usize,
    mode: Mode,
    plan: Option<NodeId>,
    /// Device of the root this level belongs to.
    device: u64,
}

/// A directory whose entry was just given out and which is entered next.
#[derive(Debug)]
struct Entering {
    mode: Mode,
    plan: Option<NodeId>,
    device: u64,
    identity: (u64, u64),
}

/// The iterator over everything at and below the roots.
#[derive(Debug)]
pub struct Walk {
    options: WalkOptions,
    roots: Roots,
    levels: Vec<Level>,
    /// Path of the name looked at last, relative to `/`.
    path: Vec<u8>,
    entering: Option<Entering>,
    waiting: VecDeque<Item>,
    owners: Owners,
    links: LinkTable,
    listing: ListingBuffer,
    spare: Vec<Names>,
}

impl Walk {
    /// A walk over `roots`. Nothing is touched before the first item is asked for.
    pub fn new(roots: Roots, options: WalkOptions) -> Self {
        let mode = if roots.is_root(Roots::TOP) { Mode::Full } else { Mode::Leading };
        let links = LinkTable::new(options.link_memory, options.scratch.clone());
        Self {
            options,
            roots,
            levels: Vec::new(),
            path: Vec::new(),
            entering: Some(Entering { mode, plan: Some(Roots::TOP), device: 0, identity: (0, 0) }),
            waiting: VecDeque::new(),
            owners: Owners::new(),
            links,
            listing: ListingBuffer::new(),
            spare: Vec::new(),
        }
    }

    /// Opens the directory whose path is the current one and makes it the last level.
    fn enter(&mut self, entering: Entering) {
        let opened = match self.levels.last() {
            None => Directory::root().and_then(|root| match entering.mode {
                Mode::Full => root.open(c".", Purpose::Listing),
                Mode::Leading => Ok(root),
            }),
            Some(level) => {
                let name = last_component(&self.path);
                match (&level.directory, entering.mode) {
                    (None, _) => Err(Errno::BADF),
                    (Some(parent), Mode::Leading) => parent.open(name, Purpose::Passage),
                    (Some(parent), Mode::Full) => parent.open(name, Purpose::Listing),
                }
            }
        };
        let mut listable = entering.mode == Mode::Full;
        let directory = match opened {
            Ok(directory) => directory,
            Err(error) => {
                self.problem(opening_error(error));
                // Roots below it may be reachable all the same: that needs less permission than
                // listing.
                let bare = match (self.levels.last(), self.plan_has_children(entering.plan)) {
                    (Some(Level { directory: Some(parent), .. }), true) => {
                        parent.open(last_component(&self.path), Purpose::BarePassage).ok()
                    }
                    _ => None,
                };
                let Some(directory) = bare else { return };
                listable = false;
                directory
            }
        };
        let identity = (directory.device, directory.inode);
        if !self.levels.is_empty() && identity != entering.identity {
            // Another device: opening it made an automounter mount a file system there, which the
            // user wants walked.
            if identity.0 == entering.identity.0 {
                return self.problem(WalkError::Moved);
            }
            if self.options.one_file_system {
                let reason = SkipReason::OtherFileSystem;
                return self.waiting.push_back(Item::Skipped { path: self.path.clone(), reason });
            }
        }
        let mut names = self.spare.pop().unwrap_or_default();
        if listable && let Err(error) = names.read(&directory, &mut self.listing) {
            self.problem(WalkError::List { source: error.into() });
        }
        // Planned names are looked at even if they are not listed: a path that was asked for and
        // does not exist must be reported.
        if let Some(node) = entering.plan {
            for name in self.roots.child_names(node) {
                if let Ok(name) = CString::new(name) {
                    names.add(&name);
                }
            }
        }
        names.sort();
        if listable && self.options.excludes.apply_tags(&directory, &mut names) {
            self.waiting.push_back(Item::Skipped { path: self.path.clone(), reason: SkipReason::Tagged });
        }
        let device = if self.levels.is_empty() { directory.device } else { entering.device };
        self.levels.push(Level {
            directory: Some(Arc::new(directory)),
            identity,
            names,
            path_length: self.path.len(),
            mode: entering.mode,
            plan: entering.plan,
            device,
        });
        // Level 0 stays open, so that everything can be found again from there.
        if let Some(far) = self.levels.len().checked_sub(OPEN_DIRECTORIES_MAX + 1).filter(|far| *far > 0) {
            self.levels[far].directory = None;
        }
    }

    /// Goes back to the directory above, opening it again if need be.
    fn leave(&mut self) {
        let Some(left) = self.levels.pop() else { return };
        let Level { directory, names, .. } = left;
        if self.spare.len() < SPARE_LISTS_MAX {
            self.spare.push(names.recycle());
        }
        let mut from_below = directory;
        while let Some(level) = self.levels.last() {
            if level.directory.is_some() {
                return;
            }
            let above = from_below.take().and_then(|below| below.open(c"..", Purpose::BarePassage).ok());
            let found =
                above.filter(|above| (above.device, above.inode) == level.identity).or_else(|| self.find_again());
            let Some(level) = self.levels.last_mut() else { return };
            if let Some(directory) = found {
                level.directory = Some(Arc::new(directory));
                return;
            }
            self.path.truncate(level.path_length);
            if level.names.left() > 0 {
                self.problem(WalkError::Moved);
            }
            self.levels.pop();
        }
    }

    /// Opens the last level again by the names above it.
    fn find_again(&self) -> Option<Directory> {
        let start = self.levels.iter().rposition(|level| level.directory.is_some())?;
        let mut directory: Option<Directory> = None;
        for pair in self.levels[start..].windows(2) {
            let [upper, lower] = pair else { return None };
            let name = last_component(&self.path[..lower.path_length]);
            let purpose = match lower.mode {
                Mode::Leading => Purpose::Passage,
                Mode::Full => Purpose::BarePassage,
            };
            let next = match (&directory, &upper.directory) {
                (Some(upper), _) => upper.open(name, purpose),
                (None, Some(upper)) => upper.open(name, purpose),
                (None, None) => return None,
            };
            directory = Some(next.ok().filter(|next| (next.device, next.inode) == lower.identity)?);
        }
        directory
    }

    /// Takes the next name of the last level and looks at it. `None`: it gave no item.
    fn visit(&mut self) -> Option<Item> {
        let Self { levels, path, roots, options, owners, links, entering, waiting, .. } = self;
        let level = levels.last_mut()?;
        let directory = level.directory.as_ref()?;
        path.truncate(level.path_length);
        let name = level.names.take()?;
        if level.path_length > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());

        let plan = level.plan.and_then(|node| roots.child(node, name.to_bytes()));
        let is_root = plan.is_some_and(|node| roots.is_root(node));
        let mode = if level.mode == Mode::Full || is_root { Mode::Full } else { Mode::Leading };
        if mode == Mode::Full && options.excludes.by_pattern(path) {
            return Some(Item::Skipped { path: path.clone(), reason: SkipReason::Pattern });
        }
        let mut follow = if mode == Mode::Full { Follow::No } else { Follow::Yes };

        let mut stat = match directory.stat(name, follow) {
            Ok(stat) => stat,
            Err(error) => {
                report(waiting, roots, plan, path, |asked_for| match error {
                    Errno::NOENT if asked_for => WalkError::NotFound,
                    Errno::NOENT => WalkError::Vanished,
                    error => WalkError::Stat { source: error.into() },
                });
                return None;
            }
        };
        if options.read_special
            && is_root
            && stat.file_type == FileType::Symlink
            && let Ok(target) = directory.stat(name, Follow::Yes)
            && is_stream(&target)
        {
            (stat, follow) = (target, Follow::Yes);
        }
        let is_special_stream = options.read_special && is_root && is_stream(&stat);
        let is_directory = stat.file_type == FileType::Directory;
        if !is_directory {
            // Roots that were to be reached through here cannot be.
            let is_link = stat.file_type == FileType::Symlink;
            let below = plan.map(|node| roots.roots_below(node, path)).unwrap_or_default();
            waiting.extend(below.into_iter().filter(|root| root != path).map(|path| {
                let error = if is_link { WalkError::BehindSymlink } else { WalkError::NotADirectory };
                Item::Problem(Problem { path, error })
            }));
            if mode == Mode::Leading {
                return None;
            }
        }
        let device = if is_root { stat.id.device } else { level.device };
        let is_foreign = options.one_file_system && mode == Mode::Full && stat.id.device != device;
        let unwanted = if is_foreign { Some(SkipReason::OtherFileSystem) } else { options.unwanted(&stat) };
        if let Some(reason) = unwanted {
            let skipped = Item::Skipped { path: path.clone(), reason };
            if !is_directory {
                return Some(skipped);
            }
            // The mount point is an entry all the same; that nothing below it is comes next.
            waiting.push_back(skipped);
        }
        let kind = match own_kind(directory, name, &stat) {
            Ok(_)
                if !is_directory
                    && !is_special_stream
                    && let Some(target) = links.meet(&stat, path) =>
            {
                EntryKind::HardLink { target }
            }
            Ok(kind) => kind,
            Err(error) => return Some(Item::Problem(Problem { path: path.clone(), error })),
        };
        let leads_on = plan.is_some_and(|node| roots.child_names(node).next().is_some());
        if is_directory && (!is_foreign || leads_on) {
            // A foreign file system is passed through when a root is in it, but only that root is
            // walked.
            let mode = if is_foreign { Mode::Leading } else { mode };
            *entering = Some(Entering { mode, plan, device, identity: (stat.id.device, stat.id.inode) });
        }
        let entry = Entry {
            path: path.clone(),
            kind,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            user: owners.user(stat.uid),
            group: owners.group(stat.gid),
            mtime: stat.mtime,
            ctime: stat.ctime,
            atime: options.with_atime.then_some(stat.atime),
            inode: stat.id.inode,
            xattrs: Vec::new(),
        };
        Some(Item::Found(Found { entry, directory: Arc::clone(directory), stat, follow, is_special_stream }))
    }

    fn plan_has_children(&self, plan: Option<NodeId>) -> bool {
        plan.is_some_and(|node| self.roots.child_names(node).next().is_some())
    }

    fn problem(&mut self, error: WalkError) {
        self.waiting.push_back(Item::Problem(Problem { path: self.path.clone(), error }));
    }
}

impl Iterator for Walk {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.waiting.pop_front() {
                return Some(item);
            }
            if let Some(entering) = self.entering.take() {
                self.enter(entering);
            } else if self.levels.last()?.names.left() == 0 {
                self.leave();
            } else if let Some(item) = self.visit() {
                return Some(item);
            }
        }
    }
}

/// The kind of an entry, hard links aside.
fn own_kind(directory: &Directory, name: &CStr, stat: &Stat) -> Result<EntryKind, WalkError> {
    if let Some(kind) = stat.plain_kind() {
        return Ok(kind);
    }
    match rustix::fs::readlinkat(directory, name, Vec::new()) {
        Ok(target) => Ok(EntryKind::Symlink { target: target.into_bytes() }),
        Err(Errno::NOENT) => Err(WalkError::Vanished),
        Err(error) => Err(WalkError::ReadLink { source: error.into() }),
    }
}

/// Reports a path that cannot be walked; if roots are at or below it, each of them by its own path.
fn report(
    waiting: &mut VecDeque<Item>,
    roots: &Roots,
    plan: Option<NodeId>,
    path: &[u8],
    error: impl Fn(bool) -> WalkError,
) {
    match plan {
        None => waiting.push_back(Item::Problem(Problem { path: path.to_vec(), error: error(false) })),
        Some(node) => {
            for path in roots.roots_below(node, path) {
                waiting.push_back(Item::Problem(Problem { path, error: error(true) }));
            }
        }
    }
}

fn opening_error(error: Errno) -> WalkError {
    match error {
        Errno::NOENT => WalkError::Vanished,
        // It was a directory just before.
        Errno::NOTDIR | Errno::LOOP => WalkError::Moved,
        error => WalkError::OpenDirectory { source: error.into() },
    }
}

/// Whether its contents can be read as one stream that ends.
fn is_stream(stat: &Stat) -> bool {
    matches!(stat.file_type, FileType::BlockDevice | FileType::Fifo)
}

fn last_component(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

//! The target of a restore: creates the entries of a version below one folder, with all their
//! metadata.
//!
//! The restore pipeline opens one [`Target`] and uses it from all its threads. In order:
//!
//! 1. [`Target::make_dir`] for directories, parents first (missing parents of anything are made
//!    when needed);
//! 2. for regular files [`Target::put_file`] when the content is at hand, else
//!    [`Target::begin_file`] and a [`FileWriter`], which takes the bytes in any order from any
//!    thread; [`Target::make_node`] for symlinks, FIFOs and devices; [`Target::finish_overwritten`]
//!    after a number of them;
//! 3. [`Target::make_link`] for hard links, when the files they name are finished;
//! 4. [`Target::delete_extra`] where the user asked for it, then [`Target::finish_dirs`],
//!    [`Target::sync`] for who asked for that, and [`Target::notes`] for the report.
//!
//! Invariants
//! * Nothing outside the root is touched. No symlink below the root is followed, be it of the
//!   version, in the target, or swapped in meanwhile (`folders`). A file with further names is
//!   never written into, since those may be elsewhere.
//! * An unfinished file never looks finished, so a restore is continued by running it again
//!   (`unfinished`). This holds for a process that dies, and for a power cut on some file systems.
//!   They keep the order of metadata and write contents before the size that covers them (ext4 as
//!   it is mounted by default, XFS, Btrfs, ZFS). New files that lost content are short or have
//!   holes, and are not trusted. Overwritten files get their metadata when they are on disk
//!   (`overwritten`). Only [`Overwrite::Never`] leaves such files alone, as it does all that exist.
//!   [`Overwrite::Always`] trusts nothing.
//! * Anything that cannot be restored exactly is noted or an error, never silent.
//! * Descriptors and memory are bounded, however many files are begun at once and however long
//!   paths are.
//!
//! Not here: which entries are restored, reading chunks, the order of writes.

mod attributes;
mod delete;
mod directory;
mod error;
mod file;
mod files;
mod folders;
mod links;
mod metadata;
mod mounts;
mod node;
mod notes;
mod omit;
mod overwritten;
mod owner;
mod pending;
mod policy;
mod protected;
mod remove;
mod sparse;
mod subject;
mod unfinished;
mod verify;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use larder_format::entry::{Entry, is_valid_path};
use rustix::io::Errno;

use crate::stat::{Follow, Stat};
use files::OpenFiles;
use folders::{Folder, Folders, Missing};
use metadata::{Goal, Rights};
use overwritten::Waiting;
use owner::{Ids, OwnerTable};
use pending::PendingDirs;
use policy::Circumstances;
use protected::Protected;

pub use directory::DirDecision;
pub use error::{TargetCause, TargetError};
pub use file::{FileDecision, FileWriter, PutDecision};
pub use links::LinkDecision;
pub use node::NodeDecision;
pub use notes::{EXAMPLES_PER_KIND, Example, NoteKind, NoteSummary, Notes};
pub use omit::{Omit, XattrFilter};
pub use owner::OwnerMode;
pub use policy::{FullDirectories, KeptReason, Overwrite};
pub use remove::remove_folder;
pub use verify::{Difference, Verification};

/// Choices of one restore.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TargetOptions {
    /// When existing files are overwritten.
    pub overwrite: Overwrite,
    /// Policy for a directory where the version has something else.
    pub full_directories: FullDirectories,
    /// Runs of zeros become holes, also where the original had none. Holes of the original are
    /// always restored.
    pub sparse: bool,
    /// How owners are restored.
    pub owners: OwnerMode,
    /// Parts of the version that are left out.
    pub omit: Omit,
    /// Nothing is made, changed or removed; decisions are those of a real run as far as they can be
    /// known.
    pub dry_run: bool,
    /// Folders of repositories. Nothing is restored into them, and they are never removed.
    pub protected: Vec<PathBuf>,
    /// More folders that are never removed, with everything in them.
    pub spared: Vec<PathBuf>,
    /// Files kept open at once; `None`: a fraction of the limit of the process.
    pub open_files_max: Option<usize>,
    /// Folder for a temporary file with attributes of folders. Without one, they take memory.
    pub scratch: Option<PathBuf>,
}

/// A folder being restored into. Cheap to clone; all clones are the same target.
#[derive(Debug, Clone)]
pub struct Target {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: TargetOptions,
    /// `None`: a dry run into a folder that does not exist.
    folders: Option<Folders>,
    /// Nothing is restored there.
    protected: Protected,
    /// Nothing is removed there; includes the above.
    spared: Protected,
    files: OpenFiles,
    owners: OwnerTable,
    rights: Rights,
    notes: Notes,
    pending: Mutex<PendingDirs>,
    overwritten: Mutex<Waiting>,
    /// Directories of the version in whose place something else was kept.
    kept_out: Mutex<BTreeSet<Box<[u8]>>>,
    /// The server of a network file system reports a full disk only when it is asked to keep the
    /// data.
    sync_files: bool,
}

impl Target {
    /// Opens `root`, and makes it with its parents when it is missing (not in a dry run). Links in
    /// `root` itself are followed: it is the user's word.
    pub fn open(root: &Path, options: TargetOptions) -> Result<Self, TargetError> {
        let failed = |source| TargetError::Root { root: PathBuf::from(root), source };
        if root.as_os_str().as_bytes().is_empty() {
            return Err(failed(Errno::NOENT.into()));
        }
        // Before it is made.
        Protected::below(root, &options.protected)?;
        let fd = match open_root(root) {
            Err(Errno::NOENT) if options.dry_run => None,
            Err(Errno::NOENT) => {
                std::fs::create_dir_all(root).map_err(failed)?;
                Some(open_root(root).map_err(|errno| failed(errno.into()))?)
            }
            other => Some(other.map_err(|errno| failed(errno.into()))?),
        };
        let protected = Protected::below(root, &options.protected)?;
        // Who restores into one of these wants to.
        let outside = |folder: &&PathBuf| Protected::below(root, std::slice::from_ref(*folder)).is_ok();
        let spared: Vec<_> = options.spared.iter().filter(outside).chain(&options.protected).cloned().collect();
        let spared = Protected::below(root, &spared)?;
        let limits = Limits::of_this_process(options.open_files_max);
        let sync_files = fd.as_ref().is_some_and(crate::file_system::is_network);
        let inner = Inner {
            folders: fd.map(|fd| Folders::new(fd, limits.folders)),
            protected,
            spared,
            files: OpenFiles::new(limits.files),
            owners: OwnerTable::default(),
            rights: Rights::of_this_process(),
            notes: Notes::default(),
            pending: Mutex::new(PendingDirs::new(options.scratch.clone())),
            overwritten: Mutex::default(),
            kept_out: Mutex::default(),
            sync_files,
            options,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The choices it was opened with.
    pub fn options(&self) -> &TargetOptions {
        &self.inner.options
    }

    /// Items that could not be restored exactly so far.
    pub fn notes(&self) -> &Notes {
        &self.inner.notes
    }

    /// Waits until everything restored so far is on disk, in every used file system below the root,
    /// so that it survives a power cut.
    pub fn sync(&self) -> Result<(), TargetError> {
        self.inner.sync()
    }
}

/// An open directory of the target and a name in it.
type Spot<'p> = (Arc<Folder>, &'p [u8]);

impl Inner {
    fn sync(&self) -> Result<(), TargetError> {
        match &self.folders {
            Some(folders) if !self.options.dry_run => {
                folders.sync().map_err(TargetError::step("write to disk all of", b"."))
            }
            _ => Ok(()),
        }
    }

    /// The directory an entry belongs into, made when it is missing, and the name in it. `None`: a
    /// dry run, and it is missing.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<Option<Spot<'p>>, TargetError> {
        if !is_valid_path(path) {
            return Err(TargetError::BadEntry { path: path.to_vec(), problem: "its path could leave the target" });
        }
        if self.protected.contains(path) {
            return Err(TargetError::NotBelowFolder { path: path.to_vec() });
        }
        let Some(folders) = &self.folders else { return Ok(None) };
        let (directory, name) = folders::split(path);
        let found = match folders.get(directory, Missing::Fail) {
            Err(Errno::NOENT) if self.options.dry_run => return Ok(None),
            Err(Errno::NOENT) => folders.get(directory, Missing::Create),
            other => other,
        };
        match found {
            Ok(folder) => Ok(Some((folder, name))),
            // A real run would have replaced an entry in the place of a directory.
            Err(Errno::LOOP | Errno::NOTDIR) if self.options.dry_run => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => Err(TargetError::NotBelowFolder { path: path.to_vec() }),
            Err(errno) => Err(TargetError::step("open the folder of", path)(errno)),
        }
    }

    /// Like [`Inner::parent`], for something that exists: nothing is made. `None`: there is no such
    /// directory.
    fn existing_parent<'p>(&self, path: &'p [u8]) -> Result<Option<Spot<'p>>, TargetError> {
        let Some(folders) = self.folders.as_ref().filter(|_| is_valid_path(path)) else { return Ok(None) };
        let (directory, name) = folders::split(path);
        match folders.get(directory, Missing::Fail) {
            Ok(folder) => Ok(Some((folder, name))),
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(TargetError::step("open the folder of", path)(errno)),
        }
    }

    /// The entry with a name in an open directory.
    fn look(&self, folder: &Folder, name: &[u8], path: &[u8]) -> Result<Option<Stat>, TargetError> {
        match Stat::at(folder, name, Follow::No) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(TargetError::step("look at", path)(errno)),
        }
    }

    fn ids(&self, entry: &Entry) -> Ids {
        self.owners.ids(self.options.owners, entry)
    }

    /// The metadata that an entry shall have.
    fn goal<'e>(&'e self, entry: &'e Entry) -> Goal<'e> {
        Goal::of(entry, self.ids(entry), self.options.owners, &self.options.omit)
    }

    fn around(&self, entry: &Entry) -> Circumstances<'_> {
        Circumstances {
            overwrite: self.options.overwrite,
            owners: self.options.owners,
            ids: self.ids(entry),
            rights: &self.rights,
        }
    }

    /// Notes that something was kept.
    fn kept(&self, path: &[u8], reason: KeptReason) -> KeptReason {
        let kind = if reason.is_in_the_way() { NoteKind::InTheWay } else { NoteKind::Kept };
        self.notes.add(kind, path, || reason.meaning().to_owned());
        reason
    }

    /// Why nothing can be restored at `path`: it is protected, or a directory above it was kept
    /// out.
    fn kept_out(&self, path: &[u8]) -> Option<KeptReason> {
        if self.protected.contains(path) {
            return Some(KeptReason::Protected);
        }
        let kept_out = self.kept_out.lock().unwrap_or_else(PoisonError::into_inner);
        if kept_out.is_empty() {
            return None;
        }
        let mut above = folders::split(path).0;
        while !above.is_empty() {
            if kept_out.contains(above) {
                return Some(KeptReason::ParentKept);
            }
            above = folders::split(above).0;
        }
        None
    }
}

fn open_root(root: &Path) -> Result<rustix::fd::OwnedFd, Errno> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// How many descriptors this target may hold.
#[derive(Debug, Clone, Copy)]
struct Limits {
    files: usize,
    folders: usize,
}

impl Limits {
    /// Half of the limit of the process, and not more than is useful; the rest is for the store and
    /// all others.
    fn of_this_process(files_wanted: Option<usize>) -> Self {
        let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
        let share = |part: u64, most: usize| usize::try_from(soft / part).unwrap_or(most).clamp(4, most);
        Self { files: files_wanted.unwrap_or_else(|| share(3, 512)), folders: share(8, 128) }
    }
}

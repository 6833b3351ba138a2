//! Opens files and folders below an opened folder, and never through a link.
//!
//! A restore writes below its target, and a local repository is below its folder. In both, another
//! user may put a link in the place of a folder at any time. A path that is resolved here never
//! leaves its base, independent of what is renamed or replaced meanwhile.
//!
//! `openat2` does so with `RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS` and `RESOLVE_NO_MAGICLINKS`. Old
//! kernels do not have it, and some sandboxes forbid unknown calls. There, each component is opened
//! below the one before with `O_NOFOLLOW`. Paths longer than the kernel takes are resolved in
//! pieces.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Longest piece of a path given to the kernel at once; its own limit is 4,096 with the closing
/// zero.
const PIECE_BYTES: usize = 4000;

/// Attempts at a resolution that the kernel aborts because of renames elsewhere.
const RESOLVE_ATTEMPTS: u32 = 16;

/// How the folders on the way are opened: as places only, which needs no right to read them.
const ON_THE_WAY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Resolves paths below folders. It remembers whether the kernel can.
#[derive(Debug, Default)]
pub struct Resolver {
    by_component: AtomicBool,
}

impl Resolver {
    /// Resolves component by component from the beginning, as on kernels without `openat2`.
    pub fn by_component() -> Self {
        Self { by_component: AtomicBool::new(true) }
    }

    /// Opens `path`, relative and not empty, below the folder `base`.
    ///
    /// `ELOOP`: a component is a link. `ENOTDIR`: a component on the way, or the end where a folder
    /// is wanted, is not a folder. `EXDEV`: the path leads out of the folder.
    pub fn open(&self, base: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let (mut piece, mut rest) = first_piece(path);
        let mut at: Option<OwnedFd> = None;
        loop {
            let here = at.as_ref().map_or_else(|| base.as_fd(), AsFd::as_fd);
            if rest.is_empty() {
                return self.open_piece(here, piece, flags);
            }
            at = Some(self.open_piece(here, piece, ON_THE_WAY)?);
            (piece, rest) = first_piece(rest);
        }
    }

    fn open_piece(&self, base: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        if !self.by_component.load(Ordering::Relaxed) {
            match open_at_once(&base, path, flags) {
                Err(Errno::NOSYS | Errno::PERM) => self.by_component.store(true, Ordering::Relaxed),
                opened => return opened,
            }
        }
        let (mut name, mut rest) = first_component(path);
        let mut at: Option<OwnedFd> = None;
        loop {
            // The kernel's own way refuses to go up, and so does this one.
            if name == b".." {
                return Err(Errno::XDEV);
            }
            let here = at.as_ref().map_or_else(|| base.as_fd(), AsFd::as_fd);
            if rest.is_empty() {
                return open_child(here, name, flags);
            }
            at = Some(open_child(here, name, ON_THE_WAY)?);
            (name, rest) = first_component(rest);
        }
    }
}

fn open_at_once(base: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = || rustix::fs::openat2(&base, path, flags, Mode::empty(), resolve);
    for _ in 1..RESOLVE_ATTEMPTS {
        match open() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
    open()
}

/// Opens the entry `name` directly below `base`. A link there is `ELOOP`, also where a folder is
/// wanted.
pub fn open_child(base: impl AsFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    match rustix::fs::openat(&base, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NOTDIR) if is_link(&base, name) => Err(Errno::LOOP),
        opened => opened,
    }
}

fn is_link(base: impl AsFd, name: &[u8]) -> bool {
    let stat = rustix::fs::statat(base, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// The first component of a path, and the rest.
pub fn first_component(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().position(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (path, b""),
    }
}

/// As many whole components as fit into [`PIECE_BYTES`] (at least one), and the rest.
fn first_piece(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= PIECE_BYTES {
        return (path, b"");
    }
    match path[..PIECE_BYTES].iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => first_component(path),
    }
}

#[cfg(test)]
mod tests;

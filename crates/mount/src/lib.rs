//! Snapshots as a read-only FUSE file system: requests of the kernel for a [`larder_tree::Tree`].
//!
//! Attributes and names inside of snapshots never change, so the kernel may keep them for an hour.
//! Pages of files stay in its cache after a file was closed. Folders above snapshots are asked for
//! again each second.

mod files;
mod time;

use std::io;
use std::path::Path;
use std::sync::Arc;

use larder_mountpoint::Options;
use larder_tree::Tree;

use self::files::Files;

pub use larder_mountpoint::{Mounted, NotFree, Users, expect_free};

/// Threads that serve requests of the kernel. Some of them may wait for the store while others
/// answer from the caches.
const THREADS: usize = 16;

/// Mounts a tree on a folder that exists. If all users may use it and permissions are checked, ACLs
/// are checked too. The user of the process can read the repository anyway.
///
/// # Errors
/// There is no such folder, the system refuses the mount, or it cannot check ACLs.
pub fn mount(folder: &Path, tree: Arc<Tree>, users: Users, checks_permissions: bool) -> io::Result<Mounted> {
    let options = Options { is_read_only: true, users, checks_permissions, threads: THREADS };
    Mounted::mount(folder, Files::new(tree, checks_permissions && users == Users::All), options)
}

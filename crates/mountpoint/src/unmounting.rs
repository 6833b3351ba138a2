//! Unmounting by the programs of the system, which users without rights may run too.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;

/// Programs that unmount a folder, and their options.
const UNMOUNTS: [&[&str]; 2] = [&["umount"], &["fusermount3", "-u"]];
/// The same for a folder in use.
const LAZY_UNMOUNTS: [&[&str]; 3] = [&["fusermount3", "-uz"], &["fusermount", "-uz"], &["umount", "-l"]];

/// Whether a folder has a mount whose program has ended.
pub fn is_dead(folder: &Path) -> bool {
    std::fs::metadata(folder).is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()))
}

/// Unmounts what a killed program left mounted. `false` if nothing could.
pub fn unmount_dead(folder: &Path) -> bool {
    unmount_lazily(folder)
}

/// Unmounts a folder that is not in use.
pub(crate) fn unmount(folder: &Path) -> bool {
    UNMOUNTS.iter().any(|command| run(command, folder))
}

/// Unmounts a folder that may be in use.
pub(crate) fn unmount_lazily(folder: &Path) -> bool {
    LAZY_UNMOUNTS.iter().any(|command| run(command, folder))
}

fn run(command: &[&str], folder: &Path) -> bool {
    let [program, options @ ..] = command else { return false };
    let mut command = Command::new(program);
    command.args(options).arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

//! `--mount-file`: the device as a file of this machine, by `nbdfuse`.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// How long the file may take to appear.
const APPEARS: Duration = Duration::from_secs(10);
/// The interval at which it is looked for.
const LOOK: Duration = Duration::from_millis(20);
/// The name that nbdfuse has for the device.
const FILE: &str = "nbd";

/// A running `nbdfuse`. A drop unmounts.
#[derive(Debug)]
pub(super) struct Mounted {
    folder: PathBuf,
    /// The device.
    pub(super) file: PathBuf,
    child: Child,
    out: Output,
}

impl Mounted {
    /// Refuses a missing program and a folder in use before anything is served.
    pub(super) fn check(folder: &Path) -> Result<(), Failure> {
        expect_free(folder)?;
        let run = Command::new("nbdfuse").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        match run {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Failure::new(Exit::Failed, "--mount-file needs nbdfuse, which is not installed")
                    .advise("install libnbd (Debian: libnbd-bin; Fedora: nbdfuse), or use the device without it"))
            }
            Err(error) => Err(Failure::of(Exit::Failed, &error).while_doing("cannot run nbdfuse")),
        }
    }

    /// Mounts the device of a URI as `folder/nbd`.
    pub(super) fn start(folder: &Path, uri: &str, out: &Output) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::of(Exit::Failed, &error).while_doing("cannot run nbdfuse");
        std::fs::create_dir_all(folder).map_err(failed)?;
        let folder = std::path::absolute(folder).map_err(failed)?;
        let mut command = Command::new("nbdfuse");
        command.arg("--readonly").arg(&folder).arg(uri).stdin(Stdio::null()).stdout(Stdio::null());
        // Ctrl-C on the terminal is for this program, which then unmounts.
        command.process_group(0);
        let child = command.spawn().map_err(failed)?;
        let file = folder.join(FILE);
        let mut mounted = Self { folder, file, child, out: out.clone() };
        let mut waited = Duration::ZERO;
        while !mounted.file.exists() {
            if waited >= APPEARS || mounted.has_ended() {
                let message = format!("nbdfuse did not mount {}", mounted.folder.display());
                return Err(Failure::new(Exit::Failed, message).advise("its reason is above, if it gave one"));
            }
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
        Ok(mounted)
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // If it was killed, its mount is still there.
        if self.has_ended() && !is_dead(&self.folder) {
            return;
        }
        let is_unmounted = UNMOUNTS.iter().any(|command| unmount(command, &self.folder))
            // A program has the file open. It gets errors from now on, but no dead mount stays.
            || LAZY_UNMOUNTS.iter().any(|command| {
                let is_done = unmount(command, &self.folder);
                if is_done {
                    self.out.warn(&format!("{} is still in use; it was unmounted anyway, and programs in it get errors", self.file.display()));
                }
                is_done
            });
        if !is_unmounted {
            self.out.warn(&format!("{} cannot be unmounted", self.folder.display()));
        }
        // With users of its file, it runs until they close it. The server is about to end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Programs that unmount, and their options.
const UNMOUNTS: [&[&str]; 3] = [&["fusermount3", "-u"], &["fusermount", "-u"], &["umount"]];
/// The same for a mount in use.
const LAZY_UNMOUNTS: [&[&str]; 3] = [&["fusermount3", "-uz"], &["fusermount", "-uz"], &["umount", "-l"]];

/// Whether a command could unmount a folder.
fn unmount(command: &[&str], folder: &Path) -> bool {
    let [program, options @ ..] = command else { return false };
    let run = Command::new(program)
        .args(options)
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    run.is_ok_and(|status| status.success())
}

/// Whether a folder has a mount whose program has ended.
fn is_dead(folder: &Path) -> bool {
    std::fs::metadata(folder).is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()))
}

/// Refuses a folder in which the device could not be told from something else.
fn expect_free(folder: &Path) -> Result<(), Failure> {
    let shown = folder.display();
    if is_dead(folder) {
        return Err(Failure::new(Exit::Failed, format!("{shown} has a dead mount on it"))
            .advise(format!("`fusermount3 -u {shown}` or `umount {shown}` removes it")));
    }
    match std::fs::metadata(folder.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::of(Exit::Failed, &error).while_doing(&format!("cannot mount {shown}"))),
        Ok(_) => Err(Failure::new(Exit::Failed, format!("{shown} already has a file {FILE}"))
            .advise("unmount it, or name another folder")),
    }
}

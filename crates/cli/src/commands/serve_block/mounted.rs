//! `--mount-file`: the device as a file of this machine, by `nbdfuse`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::exit::Exit;
use crate::failure::Failure;

/// How long the file may take to appear.
const APPEARS: Duration = Duration::from_secs(10);
/// The interval at which it is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// A running `nbdfuse`. A drop unmounts.
#[derive(Debug)]
pub(super) struct Mounted {
    folder: PathBuf,
    /// The device.
    pub(super) file: PathBuf,
    child: Child,
}

impl Mounted {
    /// Refuses a missing program before anything is served.
    pub(super) fn check() -> Result<(), Failure> {
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
    pub(super) fn start(folder: &Path, uri: &str) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::of(Exit::Failed, &error).while_doing("cannot run nbdfuse");
        std::fs::create_dir_all(folder).map_err(failed)?;
        let folder = std::path::absolute(folder).map_err(failed)?;
        let mut command = Command::new("nbdfuse");
        command.arg("--readonly").arg(&folder).arg(uri).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        let file = folder.join("nbd");
        let mut mounted = Self { folder, file, child };
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
        if self.has_ended() {
            return;
        }
        for program in ["fusermount3", "fusermount", "umount"] {
            let mut command = Command::new(program);
            if program != "umount" {
                command.arg("-u");
            }
            let run = command.arg(&self.folder).stdin(Stdio::null()).stderr(Stdio::null()).status();
            if run.is_ok_and(|status| status.success()) {
                break;
            }
        }
        // A file in use stays mounted; the server is about to end, so its reads fail.
        if !self.has_ended() {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

//! Unmounts when the process is killed: a shell waits for the end of a pipe that only the process
//! can write.
//!
//! Without it, users of the folder would get "Transport endpoint is not connected" until somebody
//! unmounts it. The option `auto_unmount` of FUSE needs `allow_other`, which users without rights
//! seldom have.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for a line or for the end of the pipe. A line says that everything is unmounted. Signals
/// for the process are none of its business.
const SCRIPT: &str = r#"trap '' HUP INT TERM
if read -r _; then exit 0; fi
fusermount3 -uz "$0" || fusermount -uz "$0" || umount -l "$0""#;

/// See the module header.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
}

impl Guard {
    /// Guards a folder that will be mounted. `None`: it does not start, for instance because there
    /// is no shell.
    pub(crate) fn start(folder: &Path) -> Option<Self> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(SCRIPT).arg(folder).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A signal for all processes of a terminal must not reach it.
        command.process_group(0);
        match command.spawn() {
            Ok(child) => Some(Self { child }),
            Err(error) => {
                tracing::warn!(%error, "nothing will unmount {} if this process is killed", folder.display());
                None
            }
        }
    }

    /// Everything is unmounted.
    pub(crate) fn end(mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            // It has ended already if this fails.
            drop(pipe.write_all(b"done\n"));
        }
        drop(self.child.wait());
    }
}

//! `larder mount` as a process of a test, and scripts that mount.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Play, Ran, ready, schema};

/// Looks at something that happens in another process: `PAUSE` apart, `LOOKS` times at most.
const PAUSE: Duration = Duration::from_millis(20);
const LOOKS: usize = 1500;

/// A mount.
pub(crate) struct Mounting {
    child: Option<Child>,
    output: BufReader<std::process::ChildStdout>,
    pub(crate) folder: PathBuf,
}

/// Whether this user can mount anything here. Says so if not.
#[allow(clippy::print_stderr, reason = "a test that does nothing says so")]
pub(crate) fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root()
        && std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("skipped: it needs root and /dev/fuse");
    }
    can
}

/// Whether something is mounted on a folder.
pub(crate) fn is_mounted(folder: &Path) -> bool {
    let folder = folder.to_str().expect("text");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(folder))
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("never: {what}");
}

impl Mounting {
    /// Mounts on the folder `mnt` and waits until it can be used. `None` where nothing can be
    /// mounted.
    pub(crate) fn of(play: &Play, args: &[&str]) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        Some(Self::by(play, play.command([&["mount", "--json", "mnt"], args].concat())))
    }

    /// The same by a command of the caller.
    pub(crate) fn by(play: &Play, command: Command) -> Self {
        let folder = play.path("mnt");
        std::fs::create_dir_all(&folder).expect("created");
        let (child, output, event) = ready(command, "mount");
        assert_eq!((&event["event"], &event["folder"]), (&"mounted".into(), &folder.to_str().into()));
        Self { child: Some(child), output, folder }
    }

    /// A path below it.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.join(name)
    }

    /// Names in a folder, sorted.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).expect("a folder");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("it runs");
    }

    /// The largest memory that the process had so far, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.as_ref().expect("it runs").id());
        let status = std::fs::read_to_string(status).expect("readable");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    /// Ends it by a signal, and returns how that went.
    pub(crate) fn end(self) -> Ran {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> Ran {
        let mut line = String::new();
        while self.output.read_line(&mut line).expect("a line") > 0 {
            schema::check("mount", &serde_json::from_str(&line).expect("JSON"));
            line.clear();
        }
        let ended = self.child.take().expect("it runs").wait_with_output().expect("it ends");
        Ran::from(ended)
    }
}

impl Drop for Mounting {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
            drop(Command::new("umount").arg("-l").arg(&self.folder).output());
        }
    }
}

/// Runs a script that may mount, `$1` being the binary. `None`: this user may not.
pub(crate) fn with_mounts(play: &Play, script: &str) -> Option<Ran> {
    let may_mount = std::process::Command::new("unshare").args(["-m", "true"]).output();
    if !may_mount.is_ok_and(|ran| ran.status.success()) {
        return None;
    }
    let args = ["-m", "sh", "-ec", script, "sh", env!("CARGO_BIN_EXE_larder")];
    Some(super::run(&mut play.command_of(std::path::Path::new("unshare"), args)))
}

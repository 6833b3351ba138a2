//! Programs of QEMU and of LVM as children.
//!
//! They get no signals of the terminal: an interrupted backup ends them itself, in order.

use std::ffi::OsStr;
use std::io::{BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::ImageError;
use super::stops::Stops;
use crate::path_text::PathText;
use crate::stream::collect_lines;

/// Bytes of output that are read.
const OUTPUT_MAX: u64 = 16 << 20;
/// How long a server may take to end after its only client has left.
const END_MAX: Duration = Duration::from_secs(20);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(10);

pub(super) fn failed(program: &str, why: impl ToString) -> ImageError {
    ImageError::Tool { program: program.to_owned(), why: why.to_string() }
}

/// Runs a program to its end, and gives its standard output.
pub(super) fn run<A: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = A>) -> Result<Vec<u8>, ImageError> {
    let all = |output: &mut BufReader<ChildStdout>| {
        let mut all = Vec::new();
        output.take(OUTPUT_MAX).read_to_end(&mut all).map(|_| all)
    };
    run_into(program, args, None, all)?.map_err(|error| failed(program, error))
}

/// The same, with its output as it comes. What is not read is lost. `stops` ends the program early.
///
/// # Errors
/// It cannot be started, or failed.
pub(super) fn run_into<A: AsRef<OsStr>, T>(
    program: &str,
    args: impl IntoIterator<Item = A>,
    stops: Option<&Stops>,
    read: impl FnOnce(&mut BufReader<ChildStdout>) -> T,
) -> Result<T, ImageError> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    // Messages are looked at, and the programs of LVM talk about descriptors.
    command.env("LC_ALL", "C").env("LVM_SUPPRESS_FD_WARNINGS", "1");
    let mut child = command.spawn().map_err(|error| failed(program, error))?;
    let (stderr, stdout) = (Lines::of(&mut child), child.stdout.take());
    let child = Arc::new(Mutex::new(child));
    stops.inspect(|stops| stops.add_child(&child));
    // It ends with the program.
    let read = stdout.map(|stdout| read(&mut BufReader::new(stdout)));
    let status = child.lock().wait();
    stops.inspect(|stops| stops.remove_child(&child));
    let status = status.map_err(|error| failed(program, error))?;
    if status.success() {
        return read.ok_or_else(|| failed(program, "it has no output"));
    }
    stops.map_or(Ok(()), |stops| stops.check(program))?;
    let why = stderr.or(&status.to_string());
    // The reason comes first.
    let why = why.split(" / Usage: ").next().unwrap_or_default().trim();
    let own = format!("{program}: ");
    Err(failed(program, why.strip_prefix(&*own).unwrap_or(why)))
}

/// The last lines of a child's standard error.
struct Lines(Option<Receiver<String>>);

impl Lines {
    fn of(child: &mut Child) -> Self {
        let Some(stderr) = child.stderr.take() else { return Self(None) };
        let (send, lines) = channel();
        let collect = move || {
            let lines = collect_lines(BufReader::new(stderr), &mut |_: &[u8]| {});
            let lines: Vec<String> = lines.iter().map(|line| PathText(line).to_string()).collect();
            // Nobody waits for them if all went well.
            let _ = send.send(lines.join(" / "));
        };
        // Without the thread the message is shorter.
        let started = thread::Builder::new().name("image-tool".into()).spawn(collect);
        Self(started.ok().map(|_| lines))
    }

    /// The lines; another text if there are none.
    fn or(self, other: &str) -> String {
        let lines = self.0.and_then(|lines| lines.recv_timeout(Duration::from_millis(500)).ok());
        lines.filter(|lines| !lines.is_empty()).unwrap_or_else(|| other.to_owned())
    }
}

/// A `qemu-nbd` that serves one client, and ends when that leaves. So it ends with this process,
/// however that ends.
pub(super) struct QemuNbd {
    child: Child,
    stderr: Option<Lines>,
}

/// The program.
const QEMU_NBD: &str = "qemu-nbd";

impl QemuNbd {
    /// Starts it with these arguments, and connects to it. Nobody else can: its socket has no name
    /// any more.
    pub(super) fn start<A: AsRef<OsStr>>(
        args: impl IntoIterator<Item = A>,
        folder: &Path,
    ) -> Result<(Self, UnixStream), ImageError> {
        let failed = |error: std::io::Error| failed(QEMU_NBD, error);
        let socket = folder.join("qemu-nbd");
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        let stream = UnixStream::connect(&socket).and_then(|stream| std::fs::remove_file(&socket).map(|()| stream));
        let stream = stream.map_err(failed)?;
        // It takes over descriptor 3, as from systemd.
        let script = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec qemu-nbd \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, QEMU_NBD]).args(args).process_group(0);
        command.stdin(Stdio::from(OwnedFd::from(listener))).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let stderr = Some(Lines::of(&mut child));
        // The command holds the listener, with which a connection would outlive the server.
        drop(command);
        Ok((Self { child, stderr }, stream))
    }

    /// Why it ended, if it did without being asked.
    pub(super) fn explain(mut self, error: ImageError) -> ImageError {
        let ended = self.wait(Duration::from_secs(1));
        match (ended, self.stderr.take()) {
            (Some(status), Some(stderr)) => failed(QEMU_NBD, stderr.or(&status.to_string())),
            _ => {
                // It serves until a client has come and gone.
                let _ = self.child.kill();
                error
            }
        }
    }

    fn wait(&mut self, most: Duration) -> Option<std::process::ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if begun.elapsed() >= most {
                return None;
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for QemuNbd {
    /// Waits for its end, so that others can open the image. Its client has left before.
    fn drop(&mut self) {
        if self.wait(END_MAX).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

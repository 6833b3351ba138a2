//! Sources that are one run of bytes: standard input and the output of a command.
//!
//! Such a source becomes one file of the version. Its size is known when it ends: read first, then
//! make the entry. The bytes of a command count only if [`CommandStream::finish`] says that the
//! command ended well; a version must not be committed before.
//!
//! Block devices and images are read by [`crate::read::FileReader`] like files
//! (`WalkOptions::read_special`).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use larder_format::ErrorKind;
use larder_format::entry::{Entry, EntryKind, Timestamp};
use larder_secret::variables;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, getgid, getuid, pidfd_open, pidfd_send_signal};
use thiserror::Error;

use crate::owners::Owners;
use crate::path_text::PathText;

/// Lines of a command's standard error that are kept for the message about its failure.
const LAST_LINES: usize = 10;

/// Bytes kept of each such line.
const LINE_BYTES_MAX: u64 = 1 << 10;

/// How long to wait for the end of standard error when the command has ended but another process
/// still holds it open.
const STDERR_PATIENCE: Duration = Duration::from_millis(500);

/// The name a stream has when none is given.
pub const STREAM_NAME: &[u8] = b"stdin";

/// A name that cannot be given to a stream.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{} is not a name for a file", PathText(.name))]
pub struct StreamNameError {
    /// The name as given.
    pub name: Vec<u8>,
}

impl StreamNameError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::BadRequest
    }
}

/// The entries of a stream of `size` bytes called `name`: the folders of the name, then the file,
/// in the order of a version.
///
/// A stream has no metadata. It belongs to the user who makes the backup, is private to them, and
/// has the given time.
pub fn stream_entries(name: &[u8], size: u64, time: Timestamp) -> Result<Vec<Entry>, StreamNameError> {
    let refused = || StreamNameError { name: name.to_vec() };
    let components: Vec<&[u8]> =
        name.split(|byte| *byte == b'/').filter(|component| !matches!(*component, b"" | b".")).collect();
    if components.is_empty() || components.contains(&&b".."[..]) || name.contains(&0) || name.ends_with(b"/") {
        return Err(refused());
    }
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let mut owners = Owners::new();
    let entries = (1..=components.len()).map(|length| {
        let is_file = length == components.len();
        Entry {
            path: components[..length].join(&b'/'),
            kind: if is_file { EntryKind::File { size, extents: None } } else { EntryKind::Directory },
            mode: if is_file { 0o600 } else { 0o700 },
            uid,
            gid,
            user: owners.user(uid),
            group: owners.group(gid),
            mtime: time,
            ctime: time,
            atime: None,
            inode: 0,
            xattrs: Vec::new(),
        }
    });
    Ok(entries.collect())
}

/// A problem with a command whose output is backed up.
#[derive(Debug, Error)]
pub enum CommandError {
    /// No command was given.
    #[error("no command was given")]
    Empty,
    /// It could not be started.
    #[error("cannot start the command {}: {source}", PathText(.program.as_bytes()))]
    Start {
        /// The command.
        program: OsString,
        /// The message of the system.
        source: io::Error,
    },
    /// It could not be waited for.
    #[error("cannot learn how the command {} ended: {source}", PathText(.program.as_bytes()))]
    Wait {
        /// The command.
        program: OsString,
        /// The message of the system.
        source: io::Error,
    },
    /// It ended with an error, or was ended by a signal.
    #[error("the command {} failed ({status}){}", PathText(.program.as_bytes()), last_words(.stderr))]
    Failed {
        /// The command.
        program: OsString,
        /// How it ended.
        status: ExitStatus,
        /// The last lines it wrote to standard error.
        stderr: Vec<Vec<u8>>,
    },
}

fn last_words(lines: &[Vec<u8>]) -> String {
    let shown: Vec<String> = lines.iter().map(|line| PathText(line).to_string()).collect();
    if shown.is_empty() { String::new() } else { format!(": {}", shown.join(" / ")) }
}

impl CommandError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Empty | Self::Failed { .. } => ErrorKind::Precondition,
            Self::Start { .. } | Self::Wait { .. } => ErrorKind::Resource,
        }
    }
}

/// The standard output of a running command.
///
/// Reading to the end is not enough: the command may have ended there because it failed. Dropping
/// this before [`CommandStream::finish`] kills the command.
#[derive(Debug)]
pub struct CommandStream {
    program: OsString,
    child: Child,
    output: Option<ChildStdout>,
    last_lines: Receiver<VecDeque<Vec<u8>>>,
    is_finished: bool,
}

impl CommandStream {
    /// Starts `command` (program and arguments; no shell is involved). Its standard input is empty,
    /// and its environment is without passwords of repositories.
    /// Lines it writes to standard error are handed to `on_stderr`, on another thread, without
    /// their line ends.
    pub fn start(
        command: &[OsString],
        mut on_stderr: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<Self, CommandError> {
        let (program, arguments) = command.split_first().ok_or(CommandError::Empty)?;
        let start_error = |source| CommandError::Start { program: program.clone(), source };
        let mut started = Command::new(program);
        started.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // It may read from a cloud itself, but opens no repository.
        variables::remove_from(&mut started, variables::is_password);
        let mut child = started.spawn().map_err(start_error)?;
        let output = child.stdout.take();
        let (send, last_lines) = channel();
        if let Some(stderr) = child.stderr.take() {
            let collect = move || {
                // No receiver waits any more when the stream was dropped.
                let _ = send.send(collect_lines(BufReader::new(stderr), &mut on_stderr));
            };
            if let Err(error) = thread::Builder::new().name("command-stderr".into()).spawn(collect) {
                let _ = child.kill();
                let _ = child.wait();
                return Err(start_error(error));
            }
        }
        Ok(Self { program: program.clone(), child, output, last_lines, is_finished: false })
    }

    /// A means to end the command from another thread, for when the job is interrupted while this
    /// one waits for output.
    pub fn stopper(&self) -> Result<CommandStopper, CommandError> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let opened = pid.ok_or(rustix::io::Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        match opened {
            Ok(pidfd) => Ok(CommandStopper { pidfd }),
            Err(error) => Err(CommandError::Wait { program: self.program.clone(), source: error.into() }),
        }
    }

    /// Waits for the command to end. An error means that the bytes that were read must not be
    /// trusted.
    ///
    /// A command that is still writing is cut off: its output is not wanted any more, and it will
    /// fail by it.
    pub fn finish(mut self) -> Result<(), CommandError> {
        drop(self.output.take());
        let status = self.child.wait();
        self.is_finished = true;
        let status = status.map_err(|source| CommandError::Wait { program: self.program.clone(), source })?;
        if status.success() {
            return Ok(());
        }
        let lines = self.last_lines.recv_timeout(STDERR_PATIENCE).unwrap_or_default();
        Err(CommandError::Failed { program: std::mem::take(&mut self.program), status, stderr: lines.into() })
    }
}

impl Read for CommandStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.output {
            Some(output) => output.read(buffer),
            None => Ok(0),
        }
    }
}

impl Drop for CommandStream {
    fn drop(&mut self) {
        if !self.is_finished {
            // It may have ended by itself; it must be waited for, or it stays as a zombie.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Ends a command. Harmless when it has ended already.
#[derive(Debug)]
pub struct CommandStopper {
    pidfd: OwnedFd,
}

impl CommandStopper {
    /// Asks the command to end (`SIGTERM`); the stream then ends, and finishing it reports the
    /// signal.
    pub fn stop(&self) {
        // The only failure is that it has ended.
        let _ = pidfd_send_signal(&self.pidfd, Signal::TERM);
    }
}

/// Hands on every line, cut to a bearable length, and returns the last ones.
pub(crate) fn collect_lines(mut from: impl BufRead, on_line: &mut impl FnMut(&[u8])) -> VecDeque<Vec<u8>> {
    let mut last = VecDeque::with_capacity(LAST_LINES);
    loop {
        let mut line = Vec::new();
        match from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => return last,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return last,
        }
        let line = line.trim_ascii_end();
        on_line(line);
        if line.is_empty() {
            continue;
        }
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(line.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::sync::{Arc, Mutex};

    fn shell(script: &str) -> CommandStream {
        let command: Vec<OsString> = ["sh", "-c", script].iter().map(OsString::from).collect();
        CommandStream::start(&command, |_| {}).expect("sh starts")
    }

    fn read_all(stream: &mut CommandStream) -> Vec<u8> {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("readable");
        all
    }

    #[test]
    fn output_of_a_good_command_comes_through() {
        let mut stream = shell("seq 1 100000; echo noise >&2");
        let all = read_all(&mut stream);
        assert!(all.starts_with(b"1\n2\n") && all.ends_with(b"\n100000\n"));
        stream.finish().expect("it ended well");
    }

    #[test]
    fn a_failing_command_fails_with_its_status_and_last_words() {
        let mut stream = shell("echo data; for i in $(seq 1 50); do echo line $i >&2; done; exit 3");
        assert_eq!(read_all(&mut stream), b"data\n");
        let Err(CommandError::Failed { status, stderr, .. }) = stream.finish() else { panic!("it failed") };
        assert_eq!(status.code(), Some(3));
        assert_eq!(stderr.len(), LAST_LINES);
        assert_eq!(stderr.last().expect("lines"), b"line 50");
        let mut stream = shell("echo data; kill -9 $$");
        read_all(&mut stream);
        let error = stream.finish().expect_err("killed");
        assert!(matches!(&error, CommandError::Failed { status, .. } if status.signal() == Some(9)));
        assert!(error.to_string().contains("signal: 9"), "{error}");
    }

    #[test]
    fn a_failure_after_the_output_was_closed_is_seen() {
        let mut stream = shell("echo data; exec >&-; sleep 0.1; exit 1");
        assert_eq!(read_all(&mut stream), b"data\n");
        stream.finish().expect_err("it failed late");
    }

    #[test]
    fn a_grandchild_that_keeps_standard_error_open_does_not_hold_up_the_end() {
        let mut stream = shell("echo data; (sleep 20 >/dev/null) & exit 2");
        assert_eq!(read_all(&mut stream), b"data\n");
        assert!(matches!(stream.finish(), Err(CommandError::Failed { status, .. }) if status.code() == Some(2)));
    }

    #[test]
    fn a_command_that_does_not_exist_cannot_start() {
        let nothing: [OsString; 0] = [];
        assert!(matches!(CommandStream::start(&nothing, |_| {}), Err(CommandError::Empty)));
        let missing = CommandStream::start(&["/no/such/program".into()], |_| {});
        assert!(matches!(missing, Err(CommandError::Start { .. })));
    }

    #[test]
    fn a_running_command_can_be_stopped_or_dropped() {
        let mut stream = shell("echo started; exec sleep 1000");
        let mut start = [0; 8];
        stream.read_exact(&mut start).expect("it says so");
        let stopper = stream.stopper().expect("it runs");
        stopper.stop();
        assert_eq!(read_all(&mut stream), b"");
        assert!(matches!(stream.finish(), Err(CommandError::Failed { status, .. }) if status.signal() == Some(15)));
        stopper.stop();
        drop(shell("exec sleep 1000"));
        shell("exec yes").finish().expect_err("cut off while writing");
    }

    #[test]
    fn standard_error_is_handed_on_line_by_line() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        let on_line = move |line: &[u8]| seen.lock().expect("not poisoned").push(line.to_vec());
        let command: Vec<OsString> =
            ["sh", "-c", "echo a >&2; echo >&2; printf 'b\\r\\nc' >&2; exit 1"].map(Into::into).into();
        let stream = CommandStream::start(&command, on_line).expect("sh starts");
        let Err(CommandError::Failed { stderr, .. }) = stream.finish() else { panic!("it failed") };
        assert_eq!(stderr, [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
        assert_eq!(lines.lock().expect("not poisoned").len(), 4);
    }

    #[test]
    fn a_stream_is_a_file_with_its_folders() {
        let time = Timestamp { seconds: 5, nanos: 6 };
        let entries = stream_entries(b"/db/./dump.sql", 77, time).expect("good");
        let paths: Vec<&[u8]> = entries.iter().map(|entry| entry.path.as_slice()).collect();
        assert_eq!(paths, [&b"db"[..], b"db/dump.sql"]);
        assert_eq!(entries[1].kind, EntryKind::File { size: 77, extents: None });
        assert_eq!((entries[1].mode, entries[1].mtime), (0o600, time));
        assert!(stream_entries(STREAM_NAME, 0, time).is_ok());
        for bad in [&b""[..], b"/", b"a/", b"../a", b"a\0b", b"."] {
            assert_eq!(stream_entries(bad, 0, time), Err(StreamNameError { name: bad.to_vec() }));
        }
    }
}

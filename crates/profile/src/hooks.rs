//! Starting programs of users: with a time limit, in a process group of their own, without secrets.
//!
//! A program that does not end in time gets SIGTERM, and SIGKILL ten seconds later. Both go to its
//! whole group.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use larder_secret::variables;
use rustix::process::{Pid, Signal, kill_process_group};

/// Bytes of the output of a program that are kept, the last ones.
const OUTPUT_MAX: usize = 64 << 10;
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// How often a running program is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time for the rest of the output when the program has ended. One of its children may keep the
/// pipe open for ever.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);

/// A program to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A line for `sh -c`.
    Shell(String),
    /// A program and its arguments.
    Direct(Vec<String>),
}

impl Program {
    /// A short name, for messages.
    pub fn name(&self) -> &str {
        let word = match self {
            Self::Shell(line) => line.split_whitespace().next().unwrap_or("sh"),
            Self::Direct(words) => words.first().map_or("", String::as_str),
        };
        word.rsplit('/').next().unwrap_or(word)
    }
}

/// The effect of a failed hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The run counts as failed; nothing that follows a `before` is run.
    Stop,
    /// A warning.
    Warn,
    /// None.
    Ignore,
}

/// A program that a profile starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The program.
    pub program: Program,
    /// Its time.
    pub timeout: Duration,
    /// The effect of a failure.
    pub on_error: OnError,
}

/// Why a program did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookError {
    /// It could not be started.
    NotStarted(String),
    /// It ended with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It was stopped because its time was over.
    TimedOut,
    /// It was stopped because the run was interrupted.
    Interrupted,
}

/// The end of a program.
#[derive(Debug)]
pub struct Ended {
    /// Whether it succeeded.
    pub result: Result<(), HookError>,
    /// The last part of its output and its errors.
    pub output: String,
}

/// Runs a program to its end. `added` are variables of its environment, and `stdin` is its standard
/// input. `is_cancelled` is asked often, and stops it.
pub fn run(hook: &Hook, added: &[(&str, String)], stdin: &[u8], is_cancelled: &dyn Fn() -> bool) -> Ended {
    let not_started =
        |error: io::Error| Ended { result: Err(HookError::NotStarted(error.to_string())), output: String::new() };
    let (reader, writer) = match io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return not_started(error),
    };
    let mut command = match &hook.program {
        Program::Shell(line) => {
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(line);
            command
        }
        Program::Direct(words) => {
            let mut command = Command::new(words.first().map_or("", String::as_str));
            command.args(words.iter().skip(1));
            command
        }
    };
    variables::remove_from(&mut command, variables::is_credential);
    command.envs(added.iter().map(|(name, value)| (name, value)));
    let errors = match writer.try_clone() {
        Ok(errors) => errors,
        Err(error) => return not_started(error),
    };
    command.stdin(Stdio::piped()).stdout(writer).stderr(errors).process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return not_started(error),
    };
    // The command holds this side of the pipe, which must be closed to see the end.
    drop(command);
    if let Some(mut pipe) = child.stdin.take() {
        let stdin = stdin.to_vec();
        // Programs that do not read their input must not stop this one. One that ends closes the
        // pipe.
        std::thread::spawn(move || drop(pipe.write_all(&stdin)));
    }
    let output = keep_end(reader);
    let result = wait(&mut child, hook.timeout, is_cancelled);
    Ended { result, output: output.end() }
}

/// The last part of an output, which a thread reads.
struct Output {
    kept: Arc<Mutex<Vec<u8>>>,
    ended: mpsc::Receiver<()>,
}

/// Reads an output to its end in a thread.
fn keep_end(mut reader: io::PipeReader) -> Output {
    let (sender, ended) = mpsc::channel();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let filled = kept.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 8 << 10];
        while let Ok(read @ 1..) = reader.read(&mut buffer) {
            let mut kept = filled.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&buffer[..read]);
            if kept.len() > 2 * OUTPUT_MAX {
                let first = kept.len() - OUTPUT_MAX;
                kept.drain(..first);
            }
        }
        // Nobody may wait for it any more.
        let _ = sender.send(());
    });
    Output { kept, ended }
}

impl Output {
    /// The last part. If a child of the program still holds the pipe, the part until now.
    fn end(&self) -> String {
        // Either way, the output until now counts.
        let _ = self.ended.recv_timeout(OUTPUT_GRACE);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let start = kept.len().saturating_sub(OUTPUT_MAX);
        String::from_utf8_lossy(&kept[start..]).into_owned()
    }
}

fn wait(child: &mut std::process::Child, timeout: Duration, is_cancelled: &dyn Fn() -> bool) -> Result<(), HookError> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = |signal| group.map(|group| kill_process_group(group, signal));
    let (started, mut stopped) = (Instant::now(), None);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                let by_itself = || match (status.code(), status.signal()) {
                    (Some(0), _) => Ok(()),
                    (Some(code), _) => Err(HookError::Code(code)),
                    (None, signal) => Err(HookError::Signal(signal.unwrap_or_default())),
                };
                return match stopped {
                    Some((why, _)) => {
                        // Its children too.
                        signal(Signal::KILL);
                        Err(why)
                    }
                    None => by_itself(),
                };
            }
            Ok(None) => {}
            Err(error) => return Err(HookError::NotStarted(error.to_string())),
        }
        match &stopped {
            None if is_cancelled() => {
                signal(Signal::TERM);
                stopped = Some((HookError::Interrupted, Instant::now()));
            }
            None if started.elapsed() > timeout => {
                signal(Signal::TERM);
                stopped = Some((HookError::TimedOut, Instant::now()));
            }
            Some((_, since)) if since.elapsed() > GRACE => {
                signal(Signal::KILL);
            }
            _ => {}
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str, timeout: Duration) -> Ended {
        let hook = Hook { program: Program::Shell(line.to_owned()), timeout, on_error: OnError::Stop };
        run(&hook, &[("LARDER_PROFILE", "home".to_owned())], b"{\"a\":1}", &|| false)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn programs_get_the_summary_and_variables_and_their_output_is_kept() {
        let ended = shell("cat; echo; echo \"$LARDER_PROFILE\" >&2", LONG);
        assert_eq!((ended.result, ended.output.as_str()), (Ok(()), "{\"a\":1}\nhome\n"));
        let ended = shell("exit 7", LONG);
        assert_eq!(ended.result, Err(HookError::Code(7)));
        assert_eq!(shell("kill -9 $$", LONG).result, Err(HookError::Signal(9)));
        let direct = Program::Direct(vec!["/no/such/program".to_owned()]);
        assert_eq!(direct.name(), "program");
        let hook = Hook { program: direct, timeout: LONG, on_error: OnError::Stop };
        assert!(matches!(run(&hook, &[], b"", &|| false).result, Err(HookError::NotStarted(_))));
    }

    #[test]
    fn only_the_end_of_much_output_is_kept() {
        let ended = shell("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end", LONG);
        assert_eq!((ended.result, ended.output.len()), (Ok(()), OUTPUT_MAX));
        assert!(ended.output.ends_with("x\nend\n"));
    }

    /// Also with a child that is out of reach and holds the pipe.
    #[test]
    fn a_program_that_hangs_is_stopped_with_its_children() {
        let ended = shell("sleep 1000 & sleep 1000", Duration::from_millis(100));
        assert_eq!(ended.result, Err(HookError::TimedOut));
        let ended = shell("setsid sleep 5 & echo begun; exit 0", LONG);
        assert_eq!((ended.result, ended.output.as_str()), (Ok(()), "begun\n"));
    }

    #[test]
    fn an_interruption_stops_a_program() {
        let hook = Hook { program: Program::Shell("sleep 1000".to_owned()), timeout: LONG, on_error: OnError::Stop };
        assert_eq!(run(&hook, &[], b"", &|| true).result, Err(HookError::Interrupted));
    }
}

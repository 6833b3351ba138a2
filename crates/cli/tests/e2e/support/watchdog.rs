//! Ends children that run for too long: a test that waits for ever then fails, and says for which program it waited.
//!
//! Without this, such a test takes the gate with it, and nobody learns which one it was.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Once;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// For how long no child of a test needs to run, on any machine.
const LIMIT: Duration = Duration::from_secs(600);

/// How often the watchdog looks.
const EVERY: Duration = Duration::from_secs(20);

/// Starts the watchdog of this process, once.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| drop(std::thread::spawn(watch)));
}

fn watch() {
    let mut seen = Seen::default();
    loop {
        std::thread::sleep(EVERY);
        for child in seen.look(children(), Instant::now(), LIMIT) {
            let _ = kill_process(child.pid, Signal::KILL);
            // Not with `eprintln!`: that would be captured for the test that started the watchdog.
            let what = format!("ended, because it ran for more than {LIMIT:?}: {}\n", child.command());
            let _ = std::io::stderr().write_all(what.as_bytes());
        }
    }
}

/// A process. Ids are used again, so the start is a part of who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    pid: Pid,
    /// Ticks of the kernel's clock. They are compared, and no time is computed from them.
    started: u64,
}

impl Process {
    fn command(self) -> String {
        let line = std::fs::read(format!("/proc/{}/cmdline", self.pid.as_raw_nonzero())).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned()
    }
}

/// When the watchdog first saw each process that still runs.
///
/// The age of a process is not asked of `ps`: for one that has just started, some of its releases answer with more than a century.
#[derive(Default)]
struct Seen(HashMap<Process, Instant>);

impl Seen {
    /// Takes what runs now, and returns what has run for longer than a limit since it was first seen.
    fn look(&mut self, running: Vec<Process>, now: Instant, limit: Duration) -> Vec<Process> {
        let before = std::mem::take(&mut self.0);
        let first = |process| before.get(&process).copied().unwrap_or(now);
        self.0 = running.into_iter().map(|process| (process, first(process))).collect();
        self.0.iter().filter(|(_, first)| now.duration_since(**first) > limit).map(|(process, _)| *process).collect()
    }
}

/// Children of this process that run.
fn children() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id();
    let child = |name: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        // The name of the program is in brackets, and may hold spaces and brackets itself.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let (parent, started) = (fields.get(1)?.parse::<u32>().ok()?, fields.get(19)?.parse().ok()?);
        let pid = Pid::from_raw(name.parse().ok()?)?;
        (parent == own).then_some(Process { pid, started })
    };
    entries.flatten().filter_map(|entry| child(entry.file_name().to_str()?)).collect()
}

#[test]
fn late_children_are_found() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
    let found = children().into_iter().find(|process| process.pid == Pid::from_child(&child));
    // Between fork and exec, the command is still that of this process.
    let is_named = (0..300).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        found.is_some_and(|process| process.command() == "sleep 60")
    });
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    assert!(is_named);

    let (process, start) = (found.expect("a child"), Instant::now());
    let (mut seen, minute) = (Seen::default(), Duration::from_secs(60));
    assert_eq!(seen.look(vec![process], start, minute), []);
    assert_eq!(seen.look(vec![process], start + minute, minute), []);
    assert_eq!(seen.look(vec![process], start + minute * 2, minute), [process]);
    // Another process with the same id starts from nothing.
    let other = Process { started: process.started + 1, ..process };
    assert_eq!(seen.look(vec![other], start + minute * 3, minute), []);
}

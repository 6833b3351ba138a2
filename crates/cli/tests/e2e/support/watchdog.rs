//! Ends children that run for too long: a test that waits for ever then fails, and says for which program it waited.
//!
//! Without this, such a test takes the gate with it, and nobody learns which one it was.

use std::process::Command;
use std::sync::Once;
use std::time::Duration;

/// Seconds that no child of a test needs, on any machine.
const LIMIT: u64 = 600;

/// Starts the watchdog of this process, once.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| drop(std::thread::spawn(watch)));
}

#[expect(clippy::print_stderr, reason = "the end of a child is explained")]
fn watch() {
    loop {
        std::thread::sleep(Duration::from_secs(20));
        for (pid, command) in late(LIMIT) {
            eprintln!("ended, because it ran for more than {LIMIT} s: {command}");
            drop(Command::new("kill").args(["-9", &pid]).status());
        }
    }
}

/// Children of this process that run for longer than this number of seconds: their ids and command lines.
fn late(seconds: u64) -> Vec<(String, String)> {
    let own = std::process::id().to_string();
    let Ok(listed) = Command::new("ps").args(["--ppid", &own, "-o", "pid=,etimes=,args="]).output() else {
        return Vec::new();
    };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let child = |line: &str| {
        let (pid, rest) = line.trim().split_once(' ')?;
        let (age, command) = rest.trim().split_once(' ')?;
        let is_late = age.parse::<u64>().ok()? > seconds;
        is_late.then(|| (pid.to_owned(), command.to_owned()))
    };
    listed.lines().filter_map(child).collect()
}

#[test]
fn late_children_are_found() {
    let mut child = Command::new("sleep").arg("60").spawn().expect("it starts");
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let found = loop {
        let found = late(1).into_iter().any(|(pid, command)| pid == child.id().to_string() && command == "sleep 60");
        if found || std::time::Instant::now() > deadline {
            break found;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    assert!(found);
}

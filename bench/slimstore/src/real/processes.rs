//! Runs processes side by side and measures what they take, from `/proc`.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// How often processes are looked at. What happens in the last moment before one ends is not seen.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Kernel ticks a second, as `/proc` counts CPU time on every Linux this runs on.
const TICKS: f64 = 100.0;

/// What a group of processes took.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Used {
    /// From the first start to the last end (seconds).
    pub(crate) wall: f64,
    /// Of all of them (seconds).
    pub(crate) cpu: f64,
    /// Sum of their peaks of resident memory (bytes).
    pub(crate) memory: u64,
}

impl Used {
    /// The same work was done twice: the run that was disturbed less. The greater memory counts.
    pub(crate) fn least(self, other: Self) -> Self {
        let memory = self.memory.max(other.memory);
        if other.wall < self.wall { Self { memory, ..other } } else { Self { memory, ..self } }
    }
}

struct Running {
    child: Child,
    cpu: f64,
    memory: u64,
    done: bool,
}

/// Runs all commands at once and waits for them. Fails when one of them does.
pub(crate) fn together(mut commands: Vec<Command>) -> anyhow::Result<Used> {
    for command in &mut commands {
        command.stdout(Stdio::null());
    }
    watch(commands)
}

fn watch(commands: Vec<Command>) -> anyhow::Result<Used> {
    let begun = Instant::now();
    let mut failed = Ok(());
    let mut running: Vec<Running> = Vec::new();
    for mut command in commands {
        command.stdin(Stdio::null());
        match command.spawn().with_context(|| format!("cannot start {}", command.get_program().display())) {
            Ok(child) => running.push(Running { child, cpu: 0.0, memory: 0, done: false }),
            Err(error) => failed = Err(error),
        }
    }
    while running.iter().any(|process| !process.done) {
        std::thread::sleep(LOOK_EVERY);
        for process in running.iter_mut().filter(|process| !process.done) {
            process.look();
            if let Some(status) = process.child.try_wait().context("cannot wait for a process")? {
                process.done = true;
                if !status.success() && failed.is_ok() {
                    failed = Err(anyhow::anyhow!("a process ended with {status}"));
                }
            }
        }
    }
    failed?;
    Ok(Used {
        wall: begun.elapsed().as_secs_f64(),
        cpu: running.iter().map(|process| process.cpu).sum(),
        memory: running.iter().map(|process| process.memory).sum(),
    })
}

pub(crate) fn run(command: Command) -> anyhow::Result<Used> {
    together(vec![command])
}

/// Runs a command and gives what it printed as well.
pub(crate) fn run_and_read(mut command: Command) -> anyhow::Result<(Used, String)> {
    let mut printed = tempfile::tempfile().context("cannot make a temporary file")?;
    command.stdout(printed.try_clone().context("cannot share a temporary file")?);
    let used = watch(vec![command])?;
    let mut text = String::new();
    printed
        .seek(SeekFrom::Start(0))
        .and_then(|_| printed.read_to_string(&mut text))
        .context("cannot read what was printed")?;
    Ok((used, text))
}

impl Running {
    fn look(&mut self) {
        let id = self.child.id();
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let peak =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        self.memory = self.memory.max(peak.unwrap_or(0_u64) << 10);
        // Behind the name in brackets, which may hold anything, user and system time are the 12th and 13th field.
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().skip(11).take(2);
        let ticks: f64 = fields.filter_map(|field| field.parse::<f64>().ok()).sum();
        self.cpu = self.cpu.max(ticks / TICKS);
    }
}

//! Writes to a volume of a server that may be killed, and knows what the volume must have then.
//!
//! ```text
//! flush_oracle rounds SOCKET VOLUME CONTROL SEED
//! flush_oracle write SOCKET VOLUME CONTROL SEED STEPS EVENTS LOG
//! flush_oracle verify SOCKET VOLUME EVENTS CUT
//! ```
//!
//! `rounds` reads numbers of steps from its input. For each it compares the volume and its
//! snapshots, says `whole`, writes that many times, and says `ended`. A server that is killed ends
//! a round.
//!
//! `write` is one round with a new volume, and keeps its events. LOG is the log of the device below
//! the store (`log_writes` of `larder-nbd`). `verify` compares the volume of a store whose device
//! lost power at the place CUT of the log.
//!
//! SOCKET is the one of NBD, and CONTROL the one of the store. The volume is new at first.

#![allow(clippy::print_stdout, reason = "a program for scripts")]

mod content;
mod event;
mod oracle;
mod shared;
mod target;
mod writer;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use self::content::SECTOR;
use self::event::Event;
use self::oracle::Oracle;
use self::shared::{End, Journal, Shared};
use self::target::Target;
use self::writer::Counts;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn new_oracle(target: &Target) -> Fallible<Oracle> {
    let size = target.connect(&target.volume)?.size();
    Ok(Oracle::new(size as usize / SECTOR))
}

fn say(line: &str) {
    println!("{line}");
    // The script that reads this may have ended.
    drop(std::io::stdout().flush());
}

fn summary(counts: &Counts) -> String {
    let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
    format!("{} writes {} flushes {} requests", count(&counts.writes), count(&counts.flushes), count(&counts.requests))
}

fn rounds(target: &Target, seed: u64) -> Fallible<()> {
    let mut shared = None;
    for (round, line) in (0..).zip(std::io::stdin().lines()) {
        let steps: u64 = line?.trim().parse()?;
        let shared = match &shared {
            Some(shared) => shared,
            None => shared.insert(Shared::new(new_oracle(target)?, None)),
        };
        let verified = target.verify(&mut shared.oracle());
        match verified {
            Ok(snapshots) => say(&format!("whole, {snapshots} snapshots")),
            Err(End::Killed) => {
                say("ended while it was compared");
                continue;
            }
            Err(End::Wrong(why)) => return Err(format!("round {round}: {why}").into()),
        }
        let counts = Counts::default();
        match writer::write(target, shared, seed << 20 | round, steps, &counts) {
            Ok(()) => say(&format!("ended by itself, {}", summary(&counts))),
            Err(End::Killed) => say(&format!("ended, {}", summary(&counts))),
            Err(End::Wrong(why)) => return Err(format!("round {round}: {why}").into()),
        }
    }
    Ok(())
}

fn write(target: &Target, seed: u64, steps: u64, journal: Journal) -> Fallible<()> {
    let shared = Shared::new(new_oracle(target)?, Some(journal));
    let counts = Counts::default();
    match writer::write(target, &shared, seed, steps, &counts) {
        Ok(()) => say(&summary(&counts)),
        Err(End::Killed) => return Err("the server ended".into()),
        Err(End::Wrong(why)) => return Err(why.into()),
    }
    Ok(())
}

fn verify(target: &Target, events: &Path, cut: u64) -> Fallible<()> {
    let mut oracle = new_oracle(target)?;
    for line in std::fs::read_to_string(events)?.lines() {
        let event = Event::parse(line).ok_or_else(|| format!("no event: {line}"))?;
        match event {
            event if event.place().is_none_or(|place| place <= cut) => oracle.note(&event),
            // The answer came behind the cut, and makes nothing durable.
            Event::Acknowledged { number, .. } => oracle.note(&Event::Acknowledged { number, durable: None }),
            _ => {}
        }
    }
    match target.verify(&mut oracle) {
        Ok(snapshots) => say(&format!("whole, {snapshots} snapshots")),
        Err(End::Killed) => return Err("the server ended".into()),
        Err(End::Wrong(why)) => return Err(why.into()),
    }
    Ok(())
}

fn run(words: &[&str]) -> Fallible<()> {
    let target = |socket: &str, volume: &str, control: Option<&str>| Target {
        socket: socket.into(),
        volume: volume.into(),
        control: control.map(Into::into),
    };
    match words {
        ["rounds", socket, volume, control, seed] => rounds(&target(socket, volume, Some(control)), seed.parse()?),
        ["write", socket, volume, control, seed, steps, events, log] => {
            let journal = Journal::create(Path::new(events), Path::new(log))?;
            write(&target(socket, volume, Some(control)), seed.parse()?, steps.parse()?, journal)
        }
        ["verify", socket, volume, events, cut] => {
            verify(&target(socket, volume, None), Path::new(events), cut.parse()?)
        }
        _ => Err("usage: flush_oracle (rounds | write | verify) ...; the source says more".into()),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("wrong: {error}"));
            ExitCode::FAILURE
        }
    }
}

//! `copytree [--threads N] [--piece BYTES] FROM TO`: reads a tree into memory and restores it, and says how long each took.
//!
//! For measuring the restoring half against `cp -a`, and for trying it on odd trees (see `treediff`).

#![expect(clippy::print_stdout, reason = "a command line tool")]

#[path = "../tests/target/support/pump.rs"]
mod pump;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use larder_source::PathText;
use larder_source::target::{Target, TargetOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut threads, mut piece, mut paths) = (1, 1 << 20, Vec::new());
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<usize, Box<dyn std::error::Error>> {
            let value = arguments.next().ok_or("a number is missing")?;
            Ok(value.to_str().ok_or("not a number")?.parse()?)
        };
        match argument.to_str() {
            Some("--threads") => threads = number()?,
            Some("--piece") => piece = number()?,
            _ => paths.push(PathBuf::from(argument)),
        }
    }
    let [from, to] = paths.as_slice() else {
        return Err("usage: copytree [--threads N] [--piece BYTES] FROM TO".into());
    };
    let started = Instant::now();
    let held = pump::Held::read(std::fs::canonicalize(from)?.as_os_str().as_bytes())?;
    for problem in &held.problems {
        println!("{problem}");
    }
    let read = started.elapsed();
    let bytes: usize = held.entries.iter().map(|(_, content)| content.len()).sum();
    let target = Target::open(to, TargetOptions::default())?;
    let started = Instant::now();
    held.restore(&target, threads, piece)?;
    println!("{} entries, {bytes} bytes: read in {read:?}, restored in {:?}", held.entries.len(), started.elapsed());
    for note in target.notes().summary() {
        println!("{} {}", note.count, note.kind.meaning());
        for example in note.examples {
            println!("  {}: {}", PathText(&example.path), example.detail);
        }
    }
    Ok(())
}

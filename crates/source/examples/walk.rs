//! Walks the given paths and says what was found and how long it took: `walk [--read] PATH...`.
//!
//! A tool for measuring and for looking at odd trees; the numbers in commit messages come from here.
#![expect(clippy::print_stdout, reason = "a command line tool")]

use std::os::unix::ffi::OsStringExt;
use std::time::Instant;

use larder_format::entry::EntryKind;
use larder_source::{Item, Roots, Walk, WalkOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<Vec<u8>> = std::env::args_os().skip(1).map(OsStringExt::into_vec).collect();
    let reads = arguments.iter().any(|argument| argument == b"--read");
    arguments.retain(|argument| argument != b"--read");
    let base = std::env::current_dir()?.into_os_string().into_vec();
    let started = Instant::now();
    let (mut entries, mut skipped, mut links, mut bytes, mut problems) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let mut buffer = vec![0; 1 << 20];
    for item in Walk::new(Roots::new(arguments, &base)?, WalkOptions::default()) {
        match item {
            Item::Found(mut found) => {
                entries += 1;
                match found.entry.kind {
                    EntryKind::HardLink { .. } => links += 1,
                    EntryKind::File { .. } if reads => {
                        let mut reader = found.open()?;
                        for problem in found.complete_from(&reader) {
                            println!("{problem}");
                        }
                        while reader.read(&mut buffer)? > 0 {}
                        let finished = reader.finish(&mut found.entry);
                        bytes += finished.stored;
                        if let Some(change) = finished.change {
                            println!("/{}: {change}", larder_source::PathText(&found.entry.path));
                        }
                    }
                    _ if reads => problems += found.complete().len() as u64,
                    _ => {}
                }
            }
            Item::Skipped { .. } => skipped += 1,
            Item::Problem(problem) => {
                problems += 1;
                println!("{problem}");
            }
        }
    }
    let took = started.elapsed();
    println!("{entries} entries, {links} hard links, {skipped} skipped, {problems} problems, {bytes} bytes, {took:?}");
    Ok(())
}

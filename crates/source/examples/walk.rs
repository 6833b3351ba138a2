//! Walks the given paths and says what was found and how long it took:
//! `walk [--read] [--list] [-x] [--exclude PATTERN]... [--iexclude PATTERN]... PATH...`.
//!
//! A tool for measuring and for looking at odd trees; the numbers in commit messages come from here.
#![expect(clippy::print_stdout, reason = "a command line tool")]

use std::os::unix::ffi::OsStringExt;
use std::time::Instant;

use larder_format::entry::EntryKind;
use larder_source::{Case, Excludes, Found, Item, PathMatcher, PathText, Roots, Walk, WalkOptions};

#[derive(Default)]
struct Arguments {
    reads: bool,
    lists: bool,
    options: WalkOptions,
    paths: Vec<Vec<u8>>,
}

fn arguments() -> Result<Arguments, Box<dyn std::error::Error>> {
    let mut parsed = Arguments::default();
    let (mut exact, mut folded) = (Vec::new(), Vec::new());
    let mut arguments = std::env::args_os().skip(1).map(OsStringExt::into_vec);
    while let Some(argument) = arguments.next() {
        match argument.as_slice() {
            b"--read" => parsed.reads = true,
            b"--list" => parsed.lists = true,
            b"-x" => parsed.options.one_file_system = true,
            b"--exclude" => exact.extend(arguments.next()),
            b"--iexclude" => folded.extend(arguments.next()),
            _ => parsed.paths.push(argument),
        }
    }
    let patterns = [PathMatcher::new(exact, Case::Sensitive)?, PathMatcher::new(folded, Case::Insensitive)?];
    let patterns = patterns.into_iter().filter(|list| !list.is_empty()).collect();
    parsed.options.excludes = Excludes { patterns, ..Default::default() };
    Ok(parsed)
}

/// Completes an entry and reads what it has; returns the number of bytes.
fn read(found: &mut Found, buffer: &mut [u8]) -> Result<u64, Box<dyn std::error::Error>> {
    if !matches!(found.entry.kind, EntryKind::File { .. }) {
        for problem in found.complete() {
            println!("{problem}");
        }
        return Ok(0);
    }
    let mut reader = found.open()?;
    for problem in found.complete_from(&reader) {
        println!("{problem}");
    }
    while reader.read(buffer)? > 0 {}
    let finished = reader.finish(&mut found.entry);
    if let Some(change) = finished.change {
        println!("/{}: {change}", PathText(&found.entry.path));
    }
    Ok(finished.stored)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { reads, lists, options, paths } = arguments()?;
    let base = std::env::current_dir()?.into_os_string().into_vec();
    let started = Instant::now();
    let (mut entries, mut skipped, mut links, mut bytes, mut problems) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let mut buffer = vec![0; 1 << 20];
    for item in Walk::new(Roots::new(paths, &base)?, options) {
        match item {
            Item::Found(mut found) => {
                entries += 1;
                links += u64::from(matches!(found.entry.kind, EntryKind::HardLink { .. }));
                if lists {
                    println!("/{}", PathText(&found.entry.path));
                }
                if reads {
                    bytes += read(&mut found, &mut buffer).unwrap_or_else(|error| {
                        problems += 1;
                        println!("{error}");
                        0
                    });
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

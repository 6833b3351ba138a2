//! What it takes to read versions of the layout `lifecycle` that were arranged: bytes and requests, for restores and in order of the
//! stream, by the memory for containers. Everything is where the paper has it: each chunk with those of its first and last version.
//!
//! `cargo run --release -p larder-lnode --features measure --example arranged_reading -- FOLDER VERSIONS MEGABYTES`, where the folder is for the repository
//! and what is restored. Every version changes 3 % of the file, in runs of 64 KiB; half of what is written compresses.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that cannot go on fails here")]

#[path = "../tests/suite/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::time::Instant;

use larder_format::layout::Layout;
use larder_lnode::{BackupOptions, RestoreOptions};
use larder_reader::{FetchOptions, FetchReport, VersionReader};
use larder_source::target::{Target, TargetOptions};
use larder_store::RepositoryError;
use support::arranging::Arranger;
use support::{context, init, local, options, pseudo_random, runtime, versions, walk};

const RUN: usize = 64 << 10;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number =
        |place: usize| args.get(place).and_then(|text| text.parse::<usize>().ok()).filter(|number| *number > 0);
    let (Some(folder), Some(count), Some(size)) = (args.get(1), number(2), number(3)) else {
        println!("usage: arranged_reading FOLDER VERSIONS MEGABYTES");
        std::process::exit(2);
    };
    let folder = PathBuf::from(folder);
    let runtime = runtime();
    let (source, target) = (folder.join("source"), folder.join("restored"));
    for made in [&source, &folder.join("repository")] {
        std::fs::create_dir_all(made).unwrap();
    }
    let context = context(&runtime, init(&runtime, local(&folder.join("repository"))));
    let run = |seed: usize| {
        let mut bytes = pseudo_random(RUN, seed as u64);
        bytes[RUN / 2..].iter_mut().for_each(|byte| *byte &= 3);
        bytes
    };
    let mut content: Vec<u8> = (0..(size << 20) / RUN).flat_map(run).collect();
    let mut random = 7usize;
    for version in 0..count {
        for change in 0..content.len() / RUN * 3 / 100 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = (random >> 33) % (content.len() - RUN);
            content[place..place + RUN].copy_from_slice(&run(1 << 40 | version << 20 | change));
        }
        std::fs::write(source.join("file"), &content).unwrap();
        let options = BackupOptions { layout: Layout::Lifecycle, ..options("series") };
        larder_lnode::backup(&context, walk(&source), &options).unwrap();
    }
    drop(content);
    let versions = versions(&context);
    let mut arranger = Arranger::default();
    arranger.take_in(&context, &versions);
    arranger.pass(&context, count - 1, |_| true);
    drop(arranger);
    let object_bytes = |number: usize| -> u64 {
        let manifest = VersionReader::open(&context, &versions[number]).unwrap().manifest().clone();
        let used = manifest.containers.iter().filter(|usage| usage.bytes_held > 0);
        used.map(|usage| usage.object_bytes * usage.bytes_used / usage.bytes_held).sum()
    };
    println!(
        "| version | read | MB for containers | seconds | containers | requests | MB | of what it takes | again | MiB more memory |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for number in [0, count / 2, count - 1] {
        let least = object_bytes(number) as f64;
        let line = |how: &str, memory: usize, before: u64, seconds: f64, fetched: &FetchReport| {
            let FetchReport { containers, requests, bytes, again, .. } = fetched;
            let (mb, of) = (*bytes as f64 / 1e6, *bytes as f64 / least);
            let memory = memory >> 20;
            let more = memory_mib("VmHWM:").saturating_sub(before);
            println!(
                "| {number} | {how} | {memory} | {seconds:.2} | {containers} | {requests} | {mb:.1} | {of:.3} | {again} | {more} |"
            );
        };
        for memory in [256 << 20, 48 << 20, 16 << 20] {
            let fetch = FetchOptions { cache_memory: Some(memory), ..FetchOptions::default() };
            let before = reset_peak();
            let begun = Instant::now();
            let reader = VersionReader::open(&context, &versions[number]).unwrap().fetching(fetch.clone());
            reader
                .visit_contents(b"", |_, content| {
                    std::io::copy(content, &mut std::io::sink()).unwrap();
                    Ok::<(), RepositoryError>(())
                })
                .unwrap();
            line("in order", memory, before, begun.elapsed().as_secs_f64(), &reader.fetched());
            let before = reset_peak();
            let begun = Instant::now();
            let into = Target::open(&target, TargetOptions::default()).unwrap();
            let options = RestoreOptions { fetch, ..RestoreOptions::default() };
            let report = larder_lnode::restore(&context, &versions[number], &into, &options).unwrap();
            line("to a file", memory, before, begun.elapsed().as_secs_f64(), &report.fetched);
            std::fs::remove_dir_all(&target).unwrap();
        }
    }
}

/// Memory of the process in MiB: what it has, or the most that it had since that was last forgotten.
fn memory_mib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024
}

/// Forgets the most; gives what there is.
fn reset_peak() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    memory_mib("VmRSS:")
}

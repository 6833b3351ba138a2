//! Memory of a backup whose base has millions of chunks: backs up a generated stream of tiny chunks into a local repository, then a
//! version in which a thousandth is new, parts have moved, and a part comes back without any order. Prints for both what came of
//! it, the peak of resident memory and CPU time.
//!
//! `MALLOC_ARENA_MAX=2 cargo run --release -p larder-lnode --features measure --example many_chunks -- FOLDER MILLIONS`, with as
//! few arenas of memory as the program itself uses; 50 million take 6 GB in the folder.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that cannot go on fails here")]

#[path = "../tests/suite/support/mod.rs"]
mod support;

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_lnode::{BackupOptions, Input};
use larder_store::Repository;
use larder_store::repository::SystemEntropy;
use support::{PASSWORD, config, context, key_fields, local, options, runtime};

/// Bytes of a chunk: as small as it may be for containers to hold no more chunks than they do otherwise, nearly.
const CHUNK: usize = 256;

/// A stream of numbered chunks.
struct Chunks<F> {
    next: u64,
    count: u64,
    number: F,
    chunk: [u8; CHUNK],
    taken: usize,
}

impl<F: Fn(u64) -> u64> Chunks<F> {
    fn new(count: u64, number: F) -> Self {
        Self { next: 0, count, number, chunk: [0; CHUNK], taken: CHUNK }
    }
}

impl<F: Fn(u64) -> u64> Read for Chunks<F> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut written = 0;
        while written < out.len() {
            if self.taken == CHUNK {
                if self.next == self.count {
                    break;
                }
                let number = (self.number)(self.next);
                self.chunk[..8].copy_from_slice(&scatter(number).to_le_bytes());
                self.chunk[8..16].copy_from_slice(&number.to_le_bytes());
                (self.next, self.taken) = (self.next + 1, 0);
            }
            let bytes = (CHUNK - self.taken).min(out.len() - written);
            out[written..written + bytes].copy_from_slice(&self.chunk[self.taken..self.taken + bytes]);
            (written, self.taken) = (written + bytes, self.taken + bytes);
        }
        Ok(written)
    }
}

fn scatter(n: u64) -> u64 {
    let mut x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

/// The next version, as numbers of chunks of the first.
fn changed(n: u64, count: u64) -> u64 {
    let sixteenth = count / 16;
    match n / sixteenth.max(1) {
        _ if n.is_multiple_of(1000) => count + n,
        // Two parts change places.
        6 => n + 4 * sixteenth,
        10 => n - 4 * sixteenth,
        // Without order: of 50 million chunks each that is found costs the segment it lies in.
        _ if n >= count - count / 1024 => scatter(n) % count,
        _ => n,
    }
}

/// Resident memory at most since this was asked last (MiB).
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    kib / 1024
}

fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().unwrap());
    let count = (args.next().unwrap().parse::<f64>().unwrap() * 1e6) as u64;
    let runtime = runtime();
    std::fs::create_dir_all(&folder).unwrap();
    let mut config = config();
    config.chunker = ChunkerParams::with_average(Algorithm::Fixed, CHUNK as u32);
    config.page_cuts = false;
    let store = local(&folder.join("repository"));
    let repository = Repository::init(store, config, PASSWORD, key_fields(), Arc::new(SystemEntropy));
    let mut context = context(&runtime, runtime.block_on(repository).unwrap());
    context.memory = 96 << 20;
    let options = BackupOptions {
        index_memory: context.memory / 2,
        merge_after: Some(5),
        scratch: Some(folder.join("scratch")),
        ..options("series")
    };
    println!(
        "| version | chunks, million | new, million | stored MB | peak MiB | CPU s | wall s |\n|---|---:|---:|---:|---:|---:|---:|"
    );
    let run = |name: &str, reader: Box<dyn Read + Send>| {
        let (begun, used) = (Instant::now(), cpu());
        peak();
        let input = Input::Stream { path: b"stream".to_vec(), reader, size: None };
        let report = larder_lnode::backup(&context, input, &options).unwrap();
        let done = report.statistics;
        let (all, new) = (done.chunks as f64 / 1e6, done.new_chunks as f64 / 1e6);
        let (stored, cpu, wall) = (done.stored_bytes as f64 / 1e6, cpu() - used, begun.elapsed().as_secs_f64());
        println!("| {name} | {all:.2} | {new:.3} | {stored:.0} | {} | {cpu:.1} | {wall:.1} |", peak());
    };
    run("first", Box::new(Chunks::new(count, |n| n)));
    run("next", Box::new(Chunks::new(count, move |n| changed(n, count))));
    run("again", Box::new(Chunks::new(count, move |n| changed(n, count))));
}

//! How fast the newest version of a file is dumped and restored, by requests ahead: each file given is backed up as a version
//! of one and the same into memory, and then every read of contents takes as long as on a slow store.
//!
//! `cargo run --release -p larder-lnode --features measure --example restore_speed -- FOLDER DELAY_MS CACHE_MEMORY CACHE_DISK FILE...`, where the
//! folder is for copies of the files, what is restored, and temporary files; sizes are bytes, and 0 memory means the default.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that cannot go on fails here")]

#[path = "../tests/suite/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use larder_lnode::RestoreOptions;
use larder_reader::{FetchOptions, FetchReport, VersionReader};
use larder_source::target::{Target, TargetOptions};
use larder_store::{RepositoryError, Store, StoreOptions};
use larder_testkit::{Fault, FaultStore, Memory, OpKind, Times, When};
use support::{context, init, options, runtime, versions, walk};

fn main() {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().unwrap();
    let target = PathBuf::from(next());
    let delay = Duration::from_millis(next().parse().unwrap());
    let (memory, disk): (usize, u64) = (next().parse().unwrap(), next().parse().unwrap());
    let runtime = runtime();
    let (store, faults) = FaultStore::new(Memory::new().store());
    let store = Store::from_object_store(store, "", &StoreOptions::default()).unwrap();
    let mut context = context(&runtime, init(&runtime, store));
    context.memory = 96 << 20;
    let source = target.join("source");
    std::fs::create_dir_all(&source).unwrap();
    for file in args {
        std::fs::copy(file, source.join("file")).unwrap();
        larder_lnode::backup(&context, walk(&source), &options("series")).unwrap();
    }
    std::fs::remove_dir_all(&source).unwrap();
    let version = versions(&context).pop().unwrap();
    if !delay.is_zero() {
        faults.add(When::kind(OpKind::Get).path("data/"), Fault::Delay(delay), Times::Always);
    }
    println!(
        "| prefetch | dump MB/s | restore MB/s | dump: containers, requests, bytes a byte, again, frames from disk, MB of them, MB written to it | restore |"
    );
    println!("|---:|---:|---:|---|---|");
    let counts = |fetched: &FetchReport| {
        let FetchReport { containers, requests, again, disk_hits, disk_read, disk_written, .. } = fetched;
        format!(
            "{containers}, {requests}, {:.2}, {again}, {disk_hits}, {:.1}, {:.1}",
            fetched.per_byte(),
            *disk_read as f64 / 1e6,
            *disk_written as f64 / 1e6
        )
    };
    for prefetch in [0, 1, 2, 4, 6, 8] {
        let mut fetch = FetchOptions::default();
        (fetch.prefetch, fetch.cache_memory, fetch.cache_disk) =
            (prefetch, Some(memory).filter(|bytes| *bytes > 0), disk);
        fetch.scratch = target.join("scratch");
        let begun = Instant::now();
        let reader = VersionReader::open(&context, &version).unwrap().fetching(fetch.clone());
        let mut bytes = 0;
        reader
            .visit_contents(b"", |_, content| {
                bytes += std::io::copy(content, &mut std::io::sink()).unwrap();
                Ok::<(), RepositoryError>(())
            })
            .unwrap();
        let dump = bytes as f64 / 1e6 / begun.elapsed().as_secs_f64();
        let dumped = reader.fetched();
        let begun = Instant::now();
        let into = Target::open(&target.join("restored"), TargetOptions::default()).unwrap();
        let options = RestoreOptions { fetch, ..RestoreOptions::default() };
        let report = larder_lnode::restore(&context, &version, &into, &options).unwrap();
        let restore = bytes as f64 / 1e6 / begun.elapsed().as_secs_f64();
        std::fs::remove_dir_all(target.join("restored")).unwrap();
        println!("| {prefetch} | {dump:.0} | {restore:.0} | {} | {} |", counts(&dumped), counts(&report.fetched));
    }
}

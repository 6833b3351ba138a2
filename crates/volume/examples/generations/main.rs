//! Writes two generations of data into a store, and says how fast that was (dedupv1, section IV).
//!
//! ```text
//! cargo run --release -p larder-volume --example generations -- FOLDER [--mib N] [--filters LIST]
//!     [--threads N] [--memory MIB] [--index-memory MIB] [--entries N] [--cold] [--fixed]
//!     [--writers N] [--request KIB] [--until STEP] [--json]
//! ```
//!
//! The data is generated before, in memory: 32.5 % of the first generation repeats itself, and
//! 97.6 % of the second is in the first, with replaced, inserted and deleted parts. A writer for
//! each volume writes it in order. Each step ends with a flush. Steps: the first generation; the
//! second one to new volumes, after the store was opened again; the second one over the first; the
//! same once more, so that nothing changes. Then everything is read and compared.
//!
//! `--entries` adds that many chunks to the index that nothing names, so that it is large.
//! `--cold` drops the caches of the system before each step (root). `--json` prints a line of JSON
//! for each step; `bench/volume/figures.py` reads them.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for developers")]

mod data;
mod entries;
mod measure;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::key_file::KdfCost;
use larder_volume::disk::RealDisk;
use larder_volume::store::NewStore;
use larder_volume::{Options, Store, SystemEntropy};

use crate::data::Random;
use crate::measure::{Measuring, Output};

const PASSWORD: &[u8] = b"secret";

/// What the arguments say.
struct Settings {
    folder: PathBuf,
    options: Options,
    mib: usize,
    writers: usize,
    request: usize,
    entries: u64,
    is_fixed: bool,
    is_cold: bool,
    /// The number of the last step.
    until: usize,
    output: Output,
}

impl Settings {
    fn of_args() -> Self {
        let mut args = std::env::args().skip(1);
        let folder = PathBuf::from(args.next().expect("FOLDER: missing or empty"));
        let (mut memory, mut filters, mut threads, mut index_memory) = (512usize, None, None, None);
        let mut settings = Self {
            folder,
            options: Options::default(),
            mib: 1024,
            writers: 4,
            request: 256 << 10,
            entries: 0,
            is_fixed: false,
            is_cold: false,
            until: 4,
            output: Output::Text,
        };
        while let Some(option) = args.next() {
            match option.as_str() {
                "--fixed" => settings.is_fixed = true,
                "--cold" => settings.is_cold = true,
                "--json" => settings.output = Output::Json,
                _ => {
                    let value = args.next().expect("a value");
                    let number = || value.parse::<usize>().unwrap();
                    match option.as_str() {
                        "--mib" => settings.mib = number(),
                        "--writers" => settings.writers = number(),
                        "--request" => settings.request = number() << 10,
                        "--entries" => settings.entries = number() as u64,
                        "--until" => settings.until = number(),
                        "--filters" => filters = Some(value.parse().unwrap()),
                        "--threads" => threads = Some(number()),
                        "--memory" => memory = number(),
                        "--index-memory" => index_memory = Some(number() << 20),
                        _ => panic!("unknown option {option}"),
                    }
                }
            }
        }
        settings.options = Options::of_memory(memory << 20);
        let options = &mut settings.options;
        options.filters = filters.unwrap_or(options.filters.clone());
        options.threads = threads.unwrap_or(options.threads);
        options.index_memory = index_memory.unwrap_or(options.index_memory);
        settings
    }

    fn create(&self) {
        let mut new = NewStore { cost: KdfCost::TEST, ..NewStore::default() };
        if self.is_fixed {
            new.chunker = ChunkerParams::with_average(Algorithm::Fixed, 4 << 10);
        }
        let disk = RealDisk::create(&self.folder).unwrap();
        Store::create(&disk, &SystemEntropy, PASSWORD, &new).unwrap();
        if self.entries > 0 {
            entries::add(&disk, PASSWORD, self.entries);
        }
    }

    fn open(&self) -> Store {
        if self.is_cold {
            drop_caches();
        }
        let disk = Arc::new(RealDisk::open(&self.folder).unwrap());
        Store::open(disk, Arc::new(SystemEntropy), PASSWORD, self.options.clone()).unwrap().0
    }
}

fn drop_caches() {
    assert!(std::process::Command::new("sync").status().unwrap().success());
    std::fs::write("/proc/sys/vm/drop_caches", "3\n").unwrap();
}

struct Bench {
    settings: Settings,
    measuring: Measuring,
}

impl Bench {
    /// One writer for each volume.
    fn write(&mut self, step: &str, store: &Store, volumes: &[u32], data: &[Vec<u8>]) {
        let request = self.settings.request;
        self.measuring.begin(store);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| store.commit_in_background(Duration::from_millis(50), &|| ends.load(Ordering::Relaxed)));
            let writers: Vec<_> = volumes
                .iter()
                .zip(data)
                .map(|(volume, data)| {
                    scope.spawn(move || {
                        for (number, part) in data.chunks(request).enumerate() {
                            store.write(*volume, (number * request) as u64, part).unwrap();
                        }
                        store.flush().unwrap();
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            self.measuring.end(step, store, data.iter().map(Vec::len).sum());
            ends.store(true, Ordering::Relaxed);
        });
    }
}

fn generations(settings: &Settings, length: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let of_writer = |writer: u64| {
        let first = data::first(&mut Random(writer), length);
        let second = data::second(&mut Random(writer + 1000), &first);
        (first, second)
    };
    (0..settings.writers as u64).map(of_writer).unzip()
}

/// Compares all volumes with what was written last.
fn compare(store: &Store, volumes: &[u32], data: &[Vec<u8>]) {
    let mut buffer = vec![0; 1 << 20];
    for (volume, data) in volumes.iter().zip(data) {
        for (number, expected) in data.chunks(buffer.len()).enumerate() {
            store.read(*volume, (number << 20) as u64, &mut buffer[..expected.len()]).unwrap();
            assert!(buffer[..expected.len()] == *expected, "volume {volume}, MiB {number}");
        }
    }
}

fn main() {
    let settings = Settings::of_args();
    let length = (settings.mib << 20) / settings.writers;
    let (firsts, seconds) = generations(&settings, length);
    settings.create();
    let Settings { mib, writers, until, output, .. } = settings;
    if output == Output::Text {
        let Options { filters, threads, .. } = &settings.options;
        println!("{mib} MiB a generation, {writers} writers, filters {filters}, {threads} threads");
    }
    let measuring = Measuring::new(&settings.folder, output);
    let mut bench = Bench { settings, measuring };
    let store = bench.settings.open();
    let volumes = |name: &str| -> Vec<u32> {
        let create = |number: usize| store.create_volume(&format!("{name}{number}"), length as u64, 0).unwrap().id;
        (0..writers).map(create).collect()
    };
    let (old, new) = (volumes("old"), volumes("new"));
    bench.write("first generation", &store, &old, &firsts);
    if until == 1 {
        compare(&store, &old, &firsts);
        return;
    }
    store.close().unwrap();
    drop(store);
    let store = bench.settings.open();
    bench.write("second, to new volumes", &store, &new, &seconds);
    if until == 2 {
        compare(&store, &new, &seconds);
        return;
    }
    store.close().unwrap();
    drop(store);
    let store = bench.settings.open();
    bench.write("second, over the first", &store, &old, &seconds);
    bench.write("the same again, unchanged", &store, &old, &seconds);
    compare(&store, &old, &seconds);
    compare(&store, &new, &seconds);
    store.close().unwrap();
    if output == Output::Text {
        println!("all data reads back equal");
    }
}

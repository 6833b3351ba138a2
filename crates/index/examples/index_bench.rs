//! Measures the index on a folder: `index_bench FOLDER [MILLIONS OF ENTRIES] [THREADS]`.
//!
//! Entries are as chunks have them: 20 random bytes to 8 bytes. The folder is made, and what is made in it stays. For figures of memory
//! as the program has them set `MALLOC_ARENA_MAX=2`, which it does by itself; the highest use is of the whole process.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::ids::{JobId, RepositoryId};
use larder_format::index_manifest::{RunRef, Table};
use larder_format::index_tables::{ChunkKey, ChunkPlace};
use larder_format::key_file::KeyFields;
use larder_index::{
    Chunks, Cursor, Draft, IndexError, IndexIo, IndexPass, LookupOptions, MergePlan, PassRuns, TableView, in_parallel,
};
use larder_store::repository::SystemEntropy;
use larder_store::{Location, Repository, Store, StoreOptions};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Memory for collecting changes, and for scans and joins.
const MEMORY: usize = 16 << 20;

fn key(number: u64) -> ChunkKey {
    let mut key = [0; 20];
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in key.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes()[..word.len()]);
    }
    ChunkKey(key)
}

/// A figure of this process from the system: memory in KiB.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat.split_whitespace().skip(13).take(2).filter_map(|field| field.parse().ok()).collect();
    fields.iter().sum::<f64>() / 100.0
}

fn measured<T>(what: &str, count: u64, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // Forgets the highest use of memory so far.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let result = work()?;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let per = |seconds: f64| count as f64 / seconds.max(0.001) / 1e6;
    println!(
        "{what:44} {seconds:7.2} s {cpu:7.2} s CPU {:7.2} M/s {:7.2} M/s of a core, {:4} MiB at most",
        per(seconds),
        per(cpu),
        status("VmHWM") >> 10
    );
    Ok(result)
}

/// Some keys of a cursor; or keys beside them, that are not in the index.
struct Some<C> {
    cursor: C,
    step: u64,
    absent: bool,
    key: [u8; 20],
}

impl<C: Cursor> Cursor for Some<C> {
    fn advance(&mut self) -> Result<bool, IndexError> {
        for _ in 0..self.step {
            if !self.cursor.advance()? {
                return Ok(false);
            }
        }
        self.key.copy_from_slice(self.cursor.key());
        self.key[19] ^= u8::from(self.absent);
        Ok(true)
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn value(&self) -> Option<&[u8]> {
        None
    }
}

fn open(folder: &Path) -> Result<(tokio::runtime::Runtime, IndexIo), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let location: Location = folder.to_str().ok_or("the folder's name is not UTF-8")?.parse()?;
    let store = Store::open(&location, &StoreOptions::default())?;
    let config = Config {
        repository: RepositoryId([7; 16]),
        created_ms: 0,
        chunker: ChunkerParams::with_average(Algorithm::DEFAULT, 4096),
        page_cuts: true,
    };
    let fields = KeyFields::for_tests();
    let repository = runtime.block_on(Repository::init(store, config, b"bench", fields, Arc::new(SystemEntropy)))?;
    let io = IndexIo { repository, executor: runtime.handle().into() };
    Ok((runtime, io))
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("usage: index_bench FOLDER [MILLIONS] [THREADS]")?;
    let entries = args.next().map_or(Ok(10), |text| text.parse::<u64>())? * 1_000_000;
    let threads = args.next().map_or(Ok(1), |text| text.parse::<usize>())?;
    let threads = NonZeroUsize::new(threads).ok_or("no threads")?;
    std::fs::create_dir_all(&folder)?;
    let folder = Path::new(&folder);
    let (runtime, io) = open(&folder.join("repository"))?;
    let pass = IndexPass::new(io.clone(), PassRuns::new(JobId([1; 16])), threads, MEMORY, folder.to_owned());
    let mut draft = Draft::empty(&pass);
    let mut next = 0;
    for share in [80, 15, 4, 1] {
        let count = entries * share / 100;
        measured(&format!("a run of {share} %, from unsorted entries"), count, || {
            let mut changes = pass.changes::<Chunks>()?;
            for number in next..next + count {
                changes
                    .put(&key(number), &ChunkPlace { container: number as u32 >> 11, chunk: number as u32 & 2047 })?;
            }
            Ok(draft.apply(changes)?)
        })?;
        next += count;
    }
    let runs = draft.manifest.runs.clone();
    let bytes: u64 = runs.iter().map(|run| run.object_bytes).sum();
    println!(
        "{} objects, {:.1} MB, {:.2} bytes an entry",
        runs.len(),
        bytes as f64 / 1e6,
        bytes as f64 / entries as f64
    );
    measure_reads(&io, &runtime, &runs, entries, threads)?;
    let plan = MergePlan::full(&runs).ok_or("nothing to merge")?;
    measured("all four runs merged", entries, || Ok(draft.merge_planned(Table::Chunks, &plan, 0..=u64::MAX)?))?;
    println!("{} objects after the merge", draft.manifest.runs.len());
    measure_reads(&io, &runtime, &draft.manifest.runs, entries, threads)
}

fn measure_reads(
    io: &IndexIo,
    runtime: &tokio::runtime::Runtime,
    runs: &[RunRef],
    entries: u64,
    threads: NonZeroUsize,
) -> Result<(), Failure> {
    let view = || TableView::<Chunks>::new(io.clone(), runs, LookupOptions::streaming(MEMORY));
    measured("scan", entries, || {
        let mut cursor = view().scan(0..=u64::MAX, MEMORY).into_cursor();
        let mut count = 0;
        while cursor.advance()? {
            count += 1;
        }
        if count == entries { Ok(()) } else { Err(format!("{count} entries").into()) }
    })?;
    let joins = [
        ("join, all keys", 1, false),
        ("join, as many absent keys", 1, true),
        ("join, one key in 100", 100, false),
        ("join, one absent key in 100", 100, true),
    ];
    for (what, step, absent) in joins {
        let count = entries / step;
        let there = if absent { 0 } else { count };
        let cost = measured(what, count, || {
            // The keys come from a scan of the same index, so the figure has that in it.
            let cursor = view().scan(0..=u64::MAX, MEMORY / 2).into_cursor();
            let mut found = 0;
            let mut keys = Some { cursor, step, absent, key: [0; 20] };
            let cost = view().join(&mut keys, 4 << 20, |_, _, value| {
                found += u64::from(value.is_some());
                Ok(())
            })?;
            if found == there { Ok(cost) } else { Err(format!("{found} found").into()) }
        })?;
        println!("    {cost:?}");
    }
    if threads.get() > 1 {
        let view = view();
        let parts = view.partitions(threads.saturating_mul(threads));
        measured("join, all keys, in threads", entries, || {
            in_parallel(threads, parts, |part| {
                let cursor = view.scan(part, MEMORY / 2 / threads).into_cursor();
                let mut keys = Some { cursor, step: 1, absent: false, key: [0; 20] };
                view.join(&mut keys, 2 << 20, |_, _, _| Ok(())).map(drop)
            })?;
            Ok(())
        })?;
    }
    let points = TableView::<Chunks>::new(io.clone(), runs, LookupOptions::default());
    for (what, count, batch) in [
        ("single keys", 2_000, 1),
        ("batches of 100 keys", 20_000, 100),
        ("batches of 1000 absent keys", 200_000, 1000),
    ] {
        let from = if what.contains("absent") { entries * 20 } else { 0 };
        measured(what, count, || {
            for start in (0..count).step_by(batch as usize) {
                let keys: Vec<ChunkKey> = (start..start + batch).map(|n| key(from + n * 7919 % entries)).collect();
                let found = runtime.block_on(points.get(&keys))?;
                if found.iter().any(|value| value.is_some() != (from == 0)) {
                    return Err("wrong answer".into());
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

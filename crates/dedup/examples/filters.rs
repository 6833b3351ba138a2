//! What the filters cost and find: the bloom filter in front of a job's own chunks, and the neighbour index in place of the
//! sampled one. CPU time of this thread, one core.
//!
//! `cargo run --release -p larder-dedup --example filters -- [MILLIONS]`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement that cannot go on fails here")]

use std::convert::Infallible;
use std::sync::Arc;

use larder_dedup::chain::{self, Chunk, Filter};
use larder_dedup::{
    Asked, Bloom, Group, GroupFilter, KeepGroups, LoadGroup, NoteGroups, OWN_GROUP, OlderChunks, OwnChunks,
    SpillingIndex, sample,
};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::segment::ChunkRecord;
use larder_format::{ChunkRef, Fingerprint};

const JOB: JobId = JobId([1; 16]);

fn scatter(n: u64) -> u64 {
    let mut x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

fn record(n: u64) -> ChunkRecord {
    let mut fingerprint = [0; 32];
    fingerprint[..8].copy_from_slice(&scatter(n).to_le_bytes());
    fingerprint[8..16].copy_from_slice(&n.to_le_bytes());
    let container = ContainerId { kind: ContainerKind::Data, job: JOB, seq: (n / 2000) as u32 };
    let chunk = ChunkRef { fingerprint: Fingerprint(fingerprint), container, offset: n as u32, size: 1 };
    ChunkRecord { chunk, born: JOB }
}

/// CPU nanoseconds of this process so far.
fn cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// Groups of chunks in rising order, made when they are asked for.
struct Made {
    per_group: u64,
    groups: u32,
    loads: u64,
}

impl LoadGroup for Made {
    type Error = Infallible;

    fn groups(&self) -> u32 {
        self.groups
    }

    fn load(&mut self, group: u32) -> Result<Group, Infallible> {
        self.loads += 1;
        let first = u64::from(group) * self.per_group;
        Ok(Arc::new((first..first + self.per_group).map(record).collect()))
    }

    fn fill(&mut self, index: &mut dyn NoteGroups) -> Result<(), Infallible> {
        let all = u64::from(self.groups) * self.per_group;
        let is_exact = all <= index.capacity();
        for n in 0..all {
            let sample = sample(&record(n).chunk.fingerprint);
            if is_exact || sample.trailing_zeros() >= 6 {
                index.note(sample, (n / self.per_group) as u32);
            }
        }
        Ok(())
    }
}

impl KeepGroups for Made {
    fn keep(&mut self, _: &[ChunkRecord]) -> Result<(), Infallible> {
        self.groups += 1;
        Ok(())
    }
}

fn own(millions: f64, has_bloom: bool) {
    const BUDGET: usize = 1 << 20;
    let count = (millions * 1e6) as u64;
    let mut bloom = Bloom::new(if has_bloom { BUDGET } else { 0 });
    let mut newest = OwnChunks::new(3 * BUDGET);
    let made = Made { per_group: OWN_GROUP as u64, groups: 0, loads: 0 };
    let mut older = OlderChunks::new(made, 6 * BUDGET, 2 * BUDGET);
    let records: Vec<ChunkRecord> = (0..1 << 16).map(record).collect();
    let mut used = 0;
    for from in (0..count).step_by(records.len()) {
        let records: Vec<ChunkRecord> = (from..from + records.len() as u64).map(record).collect();
        let begun = cpu();
        for stored in &records {
            let asked = Chunk { fingerprint: &stored.chunk.fingerprint, bytes: &[0] };
            let skip = usize::from(!has_bloom);
            let filters: [&mut dyn Filter<Infallible>; 3] = [&mut bloom, &mut newest, &mut older];
            let Ok(found) = chain::find(filters.into_iter().skip(skip), &asked);
            assert!(found.is_none());
            let filters: [&mut dyn Filter<Infallible>; 3] = [&mut bloom, &mut newest, &mut older];
            let Ok(()) = chain::update(filters.into_iter().skip(skip), stored);
            if let Some(group) = newest.take_leaving() {
                let Ok(()) = older.keep(&group);
            }
        }
        used += cpu() - begun;
    }
    let name = if has_bloom { "with" } else { "without" };
    println!("| {millions} million new chunks, {name} bloom filter | {} ns |", used / count);
}

fn base(millions: f64, is_exact: bool) {
    const PER_GROUP: u64 = 500;
    const BUDGET: usize = 12 << 20;
    let groups = (millions * 1e6) as u64 / PER_GROUP;
    let count = groups * PER_GROUP;
    let made = Made { per_group: PER_GROUP, groups: groups as u32, loads: 0 };
    let mut filter = match is_exact {
        false => GroupFilter::with_budgets(made, BUDGET, BUDGET),
        true => {
            let folder = std::env::temp_dir();
            let new_file = move || {
                let path = folder.join(format!("larder-filters-{}", std::process::id()));
                let options = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path);
                std::fs::remove_file(&path)?;
                options
            };
            GroupFilter::exact(made, SpillingIndex::new(BUDGET, Box::new(new_file), Asked::Afterwards), BUDGET)
        }
    };
    let name = if is_exact { "neighbour index" } else { "sampled index" };
    let begun = cpu();
    let Ok(absent) = filter.find(&record(count + 1).chunk.fingerprint, 1);
    assert!(absent.is_none());
    println!("| base of {millions} million, {name}: filling it | {} ms |", (cpu() - begun) / 1_000_000);
    for run in [10_000, 256, 16, 1] {
        let asked = 400_000_u64.min(run * 20_000);
        let (mut found, before, begun) = (0_u64, filter.loader().loads, cpu());
        for n in 0..asked {
            let n = scatter(n / run) % (count - run) + n % run;
            let Ok(hit) = filter.find(&record(n).chunk.fingerprint, 1);
            found += u64::from(hit.is_some());
        }
        let (used, loads) = ((cpu() - begun) / asked, filter.loader().loads - before);
        let share = found as f64 * 100.0 / asked as f64;
        println!(
            "| - runs of {run} in any order | {share:.1} % found, {used} ns, {:.1} groups loaded a 1000 |",
            loads as f64 * 1000.0 / asked as f64
        );
    }
}

fn main() {
    let millions: f64 = std::env::args().nth(1).map_or(4.0, |arg| arg.parse().unwrap());
    println!("| what | a chunk |\n|---|---|");
    for share in [0.1, 1.0] {
        own(millions * share, false);
        own(millions * share, true);
    }
    base(millions, false);
    base(millions, true);
}

//! What a step took: time, processor time, bytes, and the counters of filters and commits.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use larder_volume::{FilterCounts, Phase, Store, StoreStats};

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Text,
    /// A line for each step.
    Json,
}

/// Processor time of this process in seconds: its own, and that of the system for it.
fn cpu() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let seconds = |field: usize| fields[field].parse::<u64>().unwrap() as f64 / 100.0;
    (seconds(11), seconds(12))
}

fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let size = |entry: std::fs::DirEntry| {
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() { bytes_in(&entry.path()) } else { metadata.len() }
    };
    entries.map(|entry| size(entry.unwrap())).sum()
}

/// One step after the other.
pub(crate) struct Measuring {
    folder: PathBuf,
    output: Output,
    /// Bytes of containers after the step before.
    stored: u64,
    begin: Instant,
    cpu: (f64, f64),
    filters: Vec<FilterCounts>,
    stats: StoreStats,
}

impl Measuring {
    pub(crate) fn new(folder: &Path, output: Output) -> Self {
        let (filters, stats) = (Vec::new(), StoreStats::default());
        let folder = folder.join("containers");
        Self { folder, output, stored: 0, begin: Instant::now(), cpu: cpu(), filters, stats }
    }

    /// A step begins.
    pub(crate) fn begin(&mut self, store: &Store) {
        (self.filters, self.stats) = (store.filter_counts(), store.stats());
        (self.begin, self.cpu) = (Instant::now(), cpu());
    }

    /// A step with this many bytes ends: everything is durable.
    pub(crate) fn end(&mut self, step: &str, store: &Store, bytes: usize) {
        let (seconds, end) = (self.begin.elapsed().as_secs_f64(), cpu());
        let (user, system) = (end.0 - self.cpu.0, end.1 - self.cpu.1);
        let stored = bytes_in(&self.folder);
        let added = stored.saturating_sub(self.stored) as f64;
        self.stored = stored;
        let filters: Vec<_> =
            store.filter_counts().into_iter().zip(&self.filters).map(|(now, before)| since(now, before)).collect();
        let stats = store.stats();
        let phase = |phase: Phase| (stats.nanos[phase as usize] - self.stats.nanos[phase as usize]) as f64 / 1e6;
        let phases = Phase::ALL.map(|of| (of.name(), phase(of)));
        let pages = (stats.pages.hits - self.stats.pages.hits, stats.pages.misses - self.stats.pages.misses);
        let share = added / bytes as f64 * 100.0;
        let mut out = String::new();
        match self.output {
            Output::Text => {
                let rate = bytes as f64 / seconds / 1e6;
                let gigabytes = bytes as f64 / 1e9;
                let a_gigabyte = (user + system) / gigabytes;
                write!(out, "{step:<26} {rate:>6.0} MB/s {seconds:>6.2} s, cpu {user:>5.2} + {system:>5.2} s").unwrap();
                write!(out, " = {a_gigabyte:.2} s/GB, {share:>5.2} % stored\n   ").unwrap();
                phases.iter().for_each(|(name, ms)| write!(out, " {name} {ms:.0} ms").unwrap());
                write!(out, ", pages {} hits {} misses", pages.0, pages.1).unwrap();
                for filter in &filters {
                    let FilterCounts { name, asked, existing, strong, weak, non_existing, nanos } = filter;
                    let ms = *nanos as f64 / 1e6;
                    write!(out, "\n    {name:<6} asked {asked:>8} existing {existing:>7} strong {strong:>7}").unwrap();
                    write!(out, " weak {weak:>7} none {non_existing:>7} {ms:>8.1} ms").unwrap();
                }
            }
            Output::Json => {
                write!(out, "{{\"step\":\"{step}\",\"bytes\":{bytes},\"seconds\":{seconds:.4}").unwrap();
                write!(out, ",\"user\":{user:.2},\"system\":{system:.2},\"stored\":{added}").unwrap();
                write!(out, ",\"page_hits\":{},\"page_misses\":{}", pages.0, pages.1).unwrap();
                let phases: Vec<_> = phases.iter().map(|(name, ms)| format!("\"{name}\":{ms:.1}")).collect();
                let filters: Vec<_> = filters.iter().map(as_json).collect();
                write!(out, ",\"phases\":{{{}}},\"filters\":[{}]}}", phases.join(","), filters.join(",")).unwrap();
            }
        }
        println!("{out}");
    }
}

fn as_json(filter: &FilterCounts) -> String {
    let FilterCounts { name, asked, existing, strong, weak, non_existing, nanos } = filter;
    let ms = *nanos as f64 / 1e6;
    format!(
        "{{\"name\":\"{name}\",\"asked\":{asked},\"existing\":{existing},\"strong\":{strong},\"weak\":{weak},\"none\":{non_existing},\"ms\":{ms:.1}}}"
    )
}

fn since(now: FilterCounts, before: &FilterCounts) -> FilterCounts {
    FilterCounts {
        name: now.name,
        asked: now.asked - before.asked,
        existing: now.existing - before.existing,
        strong: now.strong - before.strong,
        weak: now.weak - before.weak,
        non_existing: now.non_existing - before.non_existing,
        nanos: now.nanos - before.nanos,
    }
}

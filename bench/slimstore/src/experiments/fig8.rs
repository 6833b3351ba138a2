//! Figure 8 and Table II: restores under the compared caches, by memory, by version and by prefetching threads. Simulated time.

use super::{INDEX_MEMORY, Page, begin_page, megabytes, rate, spec};
use crate::Settings;
use crate::backup::{CONTAINER_BYTES, Detail, Larder, Output, With, front};
use crate::clock::Link;
use crate::plot::{Axis, Floor, Labels, Line, lines};
use crate::restore::{
    FullVision, Plan, Reading, Recipe, alacc, chunk_lru, containers_with_disk, forward_assembly, full_vision,
    opt_containers, simulate,
};
use crate::sdb::{Duplication, SDb};
use crate::table::Table;

/// Memory of the cache as shares of the newest version's bytes: the paper's 256 MB to 1 GB for tables of some gigabytes.
const MEMORY: [f64; 5] = [0.0625, 0.125, 0.25, 0.5, 1.0];
/// The one that is used where memory is not what varies.
const MEMORY_MIDDLE: f64 = 0.25;
const THREADS: [usize; 8] = [0, 1, 2, 4, 6, 8, 10, 16];
/// Bytes a second at which the writer takes what is in memory: what one core opens, checks and writes.
const WRITER: f64 = 1e9;
/// Requests are worth this many bytes of the slow store's stream.
const GAP: u32 = 2_700_000;
const CONTAINER: u64 = CONTAINER_BYTES as u64;

/// One cache and the recipe as it goes through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Opt,
    ChunkLru,
    ForwardAssembly,
    Alacc,
    /// In stream order, as for a pipe, in memory alone.
    FullVision(Reading),
    /// With a disk tier for all that does not fit into memory.
    WithDisk(Reading),
    /// Container by container, as files are restored.
    ByContainer(Reading),
    /// Whole containers by next use, and frames of them on disk where memory ends, as Larder serves a stream.
    ContainersWithDisk,
}

const WHOLE: Reading = Reading::Whole;
const RANGES: Reading = Reading::Ranges { gap: GAP };
const POLICIES: [(&str, Policy); 10] = [
    ("OPT containers", Policy::Opt),
    ("chunk LRU", Policy::ChunkLru),
    ("forward assembly", Policy::ForwardAssembly),
    ("ALACC, best split", Policy::Alacc),
    ("full vision", Policy::FullVision(WHOLE)),
    ("full vision, ranges", Policy::FullVision(RANGES)),
    ("full vision + disk", Policy::WithDisk(WHOLE)),
    ("full vision + disk, ranges", Policy::WithDisk(RANGES)),
    ("container order, ranges", Policy::ByContainer(RANGES)),
    ("OPT containers + disk", Policy::ContainersWithDisk),
];

impl Policy {
    /// What it reads with so many bytes of memory, and seconds until all is written.
    fn run(self, recipe: &Recipe, memory: u64, threads: usize) -> (Plan, f64) {
        let vision = |recipe: &Recipe, disk, reading| {
            let plan = full_vision(
                recipe,
                FullVision { memory, disk, container_bytes: CONTAINER, threads: threads.max(1), reading },
            );
            finish(recipe, plan, threads)
        };
        let plan = match self {
            Self::FullVision(reading) => return vision(recipe, 0, reading),
            Self::WithDisk(reading) => return vision(recipe, u64::MAX, reading),
            Self::ByContainer(reading) => return vision(&recipe.by_container(), 0, reading),
            Self::Opt => opt_containers(recipe, memory, CONTAINER, threads),
            Self::ContainersWithDisk => containers_with_disk(recipe, memory, CONTAINER, threads),
            Self::ChunkLru => chunk_lru(recipe, memory),
            Self::ForwardAssembly => forward_assembly(recipe, memory),
            Self::Alacc => alacc(recipe, memory),
        };
        finish(recipe, plan, threads)
    }
}

/// Adds the time, in which what comes back from disk is opened and checked again.
fn finish(recipe: &Recipe, plan: Plan, threads: usize) -> (Plan, f64) {
    let seconds = simulate(recipe, &plan, Link::SLOW, threads, WRITER) + plan.spilled as f64 / WRITER;
    (plan, seconds)
}

/// The recipes of all versions, as Larder's backups leave them.
fn recipes(settings: &Settings) -> anyhow::Result<Vec<Recipe>> {
    let front = front(settings.chunker, settings.chunk_kib << 10)?;
    let with = With { skipping: true, proofs: true, ..With::default() }.merging_at_once();
    let (mut larder, mut output) = (Larder::new(INDEX_MEMORY), Output::new(CONTAINER_BYTES));
    let mut sdb = SDb::new(spec(settings, 4, 32.0, Duplication::Spread));
    let mut versions = Vec::new();
    for version in 0..settings.versions {
        if version > 0 {
            sdb.advance();
        }
        let files: Vec<&[u8]> = sdb.files().collect();
        larder.back_up(&front, &files, with, Detail::Whole, &mut output);
        versions.push(output.recipe().to_vec());
    }
    Ok(versions.iter().map(|chunks| Recipe::new(chunks, output.catalogue())).collect())
}

fn share(recipe: &Recipe, share: f64) -> u64 {
    ((recipe.bytes() as f64 * share) as u64).max(2 * CONTAINER)
}

pub(crate) fn fig8(settings: &Settings) -> anyhow::Result<()> {
    let recipes = recipes(settings)?;
    let Some(newest) = recipes.last() else { anyhow::bail!("no version") };
    let mut page = begin_page("fig8", "Figure 8 and Table II: restores", settings)?;
    page.say(&format!(
        "Recipes and containers ({} MiB) are those of {} real backups of {} chunks of {} KiB; the newest version has {:.0} MB in {} containers, \
         which hold {:.0} MB. Times are simulated: a request takes 30 ms and then comes at 90 MB/s a stream; what is in memory is written at \
         {:.0} MB/s. Nobody compacts or rewrites here. Memory counts buffers of reads in flight. OPT knows the whole recipe; ALACC's split is \
         the best of five in hindsight; \"ranges\" reads parts of a container where the gaps cost more than a request. Container order is how files \
         are restored. Larder itself serves a stream by \"OPT containers + disk\": full vision of containers, which go to disk once and are read there by \
         frames of 512 KiB.",
        CONTAINER >> 20,
        recipes.len(),
        settings.chunker,
        settings.chunk_kib,
        megabytes(newest.bytes()),
        newest.containers.len(),
        megabytes((0..newest.containers.len() as u32).map(|container| newest.container_bytes(container)).sum()),
        WRITER / 1e6
    ));
    by_memory(&mut page, newest)?;
    by_version(&mut page, &recipes)?;
    by_threads(&mut page, newest)?;
    page.finish()
}

fn by_memory(page: &mut Page, newest: &Recipe) -> anyhow::Result<()> {
    let mut table = Table::new([
        "memory MB, cache",
        "containers / 100 MB",
        "bytes read a byte",
        "MB/s",
        "x OPT",
        "back from disk MB",
    ]);
    let hundreds = megabytes(newest.bytes()) / 100.0;
    let mut reads: Vec<Line> = POLICIES.iter().map(|(name, _)| Line::new(*name, [])).collect();
    for part in MEMORY {
        let memory = share(newest, part);
        let opt = Policy::Opt.run(newest, memory, 0).1;
        for (line, (name, policy)) in reads.iter_mut().zip(POLICIES) {
            let (plan, seconds) = policy.run(newest, memory, 0);
            let containers = plan.reads.len() as f64 / hundreds;
            table.row([
                format!("{:.0} {name}", megabytes(memory)),
                format!("{containers:.1}"),
                format!("{:.2}", plan.bytes() as f64 / newest.bytes() as f64),
                format!("{:.1}", rate(newest.bytes(), seconds)),
                format!("{:.2}", opt / seconds),
                format!("{:.1}", megabytes(plan.spilled)),
            ]);
            line.points.push((megabytes(memory), containers));
        }
    }
    page.say("## By memory: the newest version, no prefetching");
    page.table(&table);
    let labels = Labels { title: "Containers read, newest version", x: "memory (MB)", y: "containers read / 100 MB" };
    page.plot("a-reads-by-memory", &lines(&labels, Axis::Doubling, Floor::Zero, &reads))
}

fn by_version(page: &mut Page, recipes: &[Recipe]) -> anyhow::Result<()> {
    let shown = [(0, 0), (1, 0), (3, 0), (6, 0), (0, 6), (6, 6), (8, 6)];
    let mut reads: Vec<Line> = POLICIES.iter().map(|(name, _)| Line::new(*name, [])).collect();
    let mut speeds: Vec<Line> = Vec::new();
    for (policy, threads) in shown {
        let (name, policy) = POLICIES[policy];
        let points = recipes.iter().enumerate().map(|(version, recipe)| {
            let seconds = policy.run(recipe, share(recipe, MEMORY_MIDDLE), threads).1;
            ((version + 1) as f64, rate(recipe.bytes(), seconds))
        });
        speeds.push(Line::new(format!("{name}, {threads}"), points));
    }
    for (version, recipe) in recipes.iter().enumerate() {
        for (line, (_, policy)) in reads.iter_mut().zip(POLICIES) {
            let plan = policy.run(recipe, share(recipe, MEMORY_MIDDLE), 0).0;
            line.points.push(((version + 1) as f64, plan.reads.len() as f64 / (megabytes(recipe.bytes()) / 100.0)));
        }
    }
    let mut table = Table::new(["cache", "first version", "middle", "newest"]);
    for line in &reads {
        let at = |place: usize| format!("{:.1}", line.points[place].1);
        table.row([line.name.clone(), at(0), at(recipes.len() / 2), at(recipes.len() - 1)]);
    }
    page.say(&format!("## By version, with memory of {MEMORY_MIDDLE} of the version: containers read / 100 MB"));
    page.table(&table);
    let labels = Labels { title: "Containers read by version", x: "version", y: "containers read / 100 MB" };
    page.plot("b-reads-by-version", &lines(&labels, Axis::Linear, Floor::Zero, &reads))?;
    let labels = Labels { title: "Restore by version (simulated; threads)", x: "version", y: "MB/s" };
    page.plot("c-speed-by-version", &lines(&labels, Axis::Linear, Floor::Zero, &speeds))
}

/// Table II for every cache that can prefetch.
fn by_threads(page: &mut Page, newest: &Recipe) -> anyhow::Result<()> {
    let can = [0, 4, 5, 6, 7, 8, 9].map(|number| POLICIES[number]);
    let mut speeds: Vec<Line> = Vec::new();
    let limit =
        |threads: usize| threads as f64 * rate(CONTAINER, Link::SLOW.latency + CONTAINER as f64 / Link::SLOW.rate);
    page.say("## Table II: the newest version by prefetching threads (MB/s)");
    page.say(
        "\"6: x alone\" is what 6 threads make, in multiples of the OPT cache that does not prefetch, with the same memory; \"6: x OPT\" in \
         multiples of the OPT cache with as many threads; \"6: of limit\" the rate at which containers come in, as a share of what six streams \
         can bring that fetch whole containers one behind the other. Ranges ask for less at a time, which brings less a second and more of use.",
    );
    for part in [0.25, 0.5, 1.0] {
        let memory = share(newest, part);
        let opts = THREADS.map(|threads| Policy::Opt.run(newest, memory, threads).1);
        let mut head = vec![format!("{:.0} MB memory", megabytes(memory))];
        head.extend(THREADS.map(|threads| threads.to_string()));
        let told = [6, 10, 16];
        head.extend(told.map(|threads| format!("{threads}: x alone")));
        head.extend(told.map(|threads| format!("{threads}: x OPT")));
        head.push("6: of limit".to_owned());
        let mut table = Table::new(head);
        for (name, policy) in can {
            let runs = THREADS.map(|threads| policy.run(newest, memory, threads));
            let seconds = |place: usize| runs[place].1;
            let places = told.map(|threads| THREADS.iter().position(|each| *each == threads).unwrap_or(0));
            let mut row = vec![name.to_owned()];
            row.extend(runs.iter().map(|(_, seconds)| format!("{:.0}", rate(newest.bytes(), *seconds))));
            row.extend(places.map(|place| format!("{:.2}", opts[0] / seconds(place))));
            row.extend(places.map(|place| format!("{:.2}", opts[place] / seconds(place))));
            let incoming = rate(runs[places[0]].0.bytes(), seconds(places[0]));
            row.push(format!("{:.0} %", incoming / limit(6) * 100.0));
            table.row(row);
            if part == 0.5 {
                let points = THREADS
                    .iter()
                    .enumerate()
                    .map(|(place, threads)| (*threads as f64, rate(newest.bytes(), seconds(place))));
                speeds.push(Line::new(name, points));
            }
        }
        page.table(&table);
    }
    page.say(&format!(
        "The limit of the streams themselves, whole containers one behind the other on each: {:.0} MB/s with 1, {:.0} with 6, {:.0} with 16 threads. \
         The paper: 36, 38, 75, 154, 207, 208, 208 MB/s with 0, 1, 2, 4, 6, 8, 10 threads, where 6 reach its network's limit; 9.75 x OPT.",
        limit(1),
        limit(6),
        limit(16)
    ));
    let labels =
        Labels { title: "Newest version, memory of half of it (simulated)", x: "prefetching threads", y: "MB/s" };
    page.plot("d-speed-by-threads", &lines(&labels, Axis::Linear, Floor::Zero, &speeds))
}

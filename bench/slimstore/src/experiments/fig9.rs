//! Figure 9: space by version and the layout of the newest one, as the real L-node and G-node leave them, beside HAR and Capping.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use larder_format::{ChunkRef, Fingerprint};
use larder_reader::FetchReport;

use super::{Page, begin_page, megabytes, rate, spec};
use crate::backup::{Capping, Detector, Har, Output, Piece, detect};
use crate::clock::Link;
use crate::offline::{Cost, Holdings, Node, Writer, compact, pass};
use crate::plot::{Axis, Floor, Labels, Line, lines};
use crate::restore::{FullVision, Reading, Recipe, full_vision, simulate};
use crate::sdb::{Duplication, SDb};
use crate::table::Table;
use crate::{Offline, Settings};

/// Larder's containers, and so everybody's here.
pub(super) const CONTAINER: u32 = 8 << 20;
/// Versions that are kept where some are forgotten.
const KEPT: usize = 10;
/// Requests at once of the modelled restore, and bytes a second at which one core opens, checks and writes.
const THREADS: usize = 6;
const WRITER: f64 = 1e9;
/// A request is worth this many bytes of the slow store's stream.
const GAP: u32 = 2_700_000;
/// Rows of tables.
const SHOWN: [usize; 12] = [1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50];
/// From this version on the layout of the newest version is to stay as it is.
const SETTLED: usize = 7;

/// What is run after each backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Nothing.
    Online,
    /// A pass.
    Pass,
    /// Compaction and a pass: `larder optimize`.
    Optimize,
    /// Forgetting all but the newest versions, and then the same.
    Keep,
}

const WAYS: [(&str, Way); 4] = [
    ("L-dedup only", Way::Online),
    ("passes, no compaction", Way::Pass),
    ("G-dedup", Way::Optimize),
    ("G-dedup, newest 10 kept", Way::Keep),
];
/// Their places.
const ONLINE: usize = 0;
const OPTIMIZE: usize = 2;
const KEEP: usize = 3;

/// How one version lies in containers, and what reading it costs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Layout {
    /// Bytes of the version, and of its different chunks.
    bytes: u64,
    different: u64,
    containers: usize,
    /// Bytes in these containers.
    held: u64,
    /// What the model reads.
    requests: u64,
    read: u64,
    seconds: f64,
}

impl Layout {
    pub(super) fn new(chunks: &[ChunkRef], catalogue: &[ChunkRef]) -> Self {
        let recipe = Recipe::new(chunks, catalogue);
        let containers = recipe.containers.len();
        let held = (0..containers as u32).map(|container| recipe.container_bytes(container));
        let different: HashMap<Fingerprint, u32> = chunks.iter().map(|chunk| (chunk.fingerprint, chunk.size)).collect();
        let largest = held.clone().max().unwrap_or(0).max(u64::from(CONTAINER));
        let settings = FullVision {
            memory: recipe.bytes().max(3 * THREADS as u64 * largest),
            disk: 0,
            container_bytes: largest,
            threads: THREADS,
            reading: Reading::Ranges { gap: GAP },
        };
        let in_order = recipe.by_container();
        let plan = full_vision(&in_order, settings);
        Self {
            bytes: recipe.bytes(),
            different: different.values().map(|size| u64::from(*size)).sum(),
            containers,
            held: held.sum(),
            requests: plan.reads.iter().map(|read| u64::from(read.requests)).sum(),
            read: plan.bytes(),
            seconds: simulate(&in_order, &plan, Link::SLOW, THREADS, WRITER),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn per_100_mb(&self) -> f64 {
        self.containers as f64 / (megabytes(self.bytes) / 100.0)
    }

    pub(super) fn speed(&self) -> f64 {
        rate(self.bytes, self.seconds)
    }

    /// Bytes read for a byte of different chunks: what repeats need not be read again.
    pub(super) fn amplification(&self) -> f64 {
        self.read as f64 / self.different.max(1) as f64
    }

    /// Bytes in all its containers for a byte of its different chunks.
    pub(super) fn held(&self) -> f64 {
        self.held as f64 / self.different.max(1) as f64
    }
}

/// What a repository has come to after a version.
pub(super) struct Sample {
    pub(super) held: u64,
    reclaimed: u64,
    objects: u64,
    /// What came with the first version and is still there.
    of_first: u64,
    pub(super) layout: Layout,
    compaction: Cost,
    pass: Cost,
    /// Bytes of chunks that were copied for the newest version, and for older ones.
    pub(super) copied: [u64; 2],
}

/// A repository that is treated in one way.
pub(super) struct Run {
    way: Way,
    node: Node,
    holdings: Holdings,
    pub(super) samples: Vec<Sample>,
    fetched: Vec<(usize, FetchReport)>,
}

impl Run {
    fn new(way: Way, settings: &Settings) -> anyhow::Result<Self> {
        let node = Node::in_memory(settings.chunker, settings.chunk_kib << 10, settings.seed)?;
        Ok(Self { way, node, holdings: Holdings::default(), samples: Vec::new(), fetched: Vec::new() })
    }

    /// A repository that `larder optimize` treats.
    pub(super) fn optimized(settings: &Settings) -> anyhow::Result<Self> {
        Self::new(Way::Optimize, settings)
    }

    /// A version and what comes after it. Returns its recipe as it was backed up.
    pub(super) fn step(
        &mut self,
        version: usize,
        stream: &Arc<[u8]>,
        offline: Offline,
        is_restored: bool,
    ) -> anyhow::Result<Vec<ChunkRef>> {
        let Self { way, node, holdings, .. } = self;
        node.back_up("s-db", stream, |_| ())?;
        let backed_up = node.recipe(&node.newest()?)?;
        holdings.look(node, Writer::Version(version))?;
        if *way == Way::Keep {
            node.keep_newest(KEPT)?;
        }
        let (mut compaction, mut passes) = (Cost::default(), Cost::default());
        let (mut for_newest, mut for_older) = (0, 0);
        if matches!(way, Way::Optimize | Way::Keep) {
            compaction = compact(node, offline)?;
            for_newest += holdings.look(node, Writer::Version(version))?;
        }
        if *way != Way::Online {
            passes = pass(node, offline)?;
            for_older += holdings.look(node, Writer::Pass)?;
        }
        // What lies twice shows after the pass that took the version in.
        if matches!(way, Way::Optimize | Way::Keep) {
            let again = compact(node, offline)?;
            for_newest += holdings.look(node, Writer::Version(version))?;
            if again.written > 0 {
                passes += pass(node, offline)?;
                for_older += holdings.look(node, Writer::Pass)?;
            }
            compaction += again;
        }
        let newest = node.newest()?;
        let recipe = node.recipe(&newest)?;
        self.samples.push(Sample {
            held: holdings.bytes(),
            reclaimed: holdings.reclaimed,
            objects: holdings.objects,
            of_first: holdings.bytes_since(0),
            layout: Layout::new(&recipe, &holdings.catalogue(&recipe)),
            compaction,
            pass: passes,
            copied: [for_newest, for_older],
        });
        if is_restored {
            self.fetched.push((version + 1, node.restore(&newest, stream)?));
        }
        Ok(backed_up)
    }
}

/// Every chunk of retained versions once.
#[derive(Default)]
pub(super) struct Oracle {
    versions: VecDeque<HashMap<Fingerprint, u32>>,
    uses: HashMap<Fingerprint, u32>,
    pub(super) bytes: u64,
}

impl Oracle {
    pub(super) fn add(&mut self, recipe: &[ChunkRef], kept: usize) {
        let version: HashMap<Fingerprint, u32> = recipe.iter().map(|chunk| (chunk.fingerprint, chunk.size)).collect();
        for (fingerprint, size) in &version {
            let uses = self.uses.entry(*fingerprint).or_default();
            self.bytes += if *uses == 0 { u64::from(*size) } else { 0 };
            *uses += 1;
        }
        self.versions.push_back(version);
        while self.versions.len() > kept {
            for (fingerprint, size) in self.versions.pop_front().unwrap_or_default() {
                let Some(uses) = self.uses.get_mut(&fingerprint) else { continue };
                *uses -= 1;
                if *uses == 0 {
                    self.uses.remove(&fingerprint);
                    self.bytes -= u64::from(size);
                }
            }
        }
    }
}

/// A rival over the same chunks.
struct Rival {
    name: &'static str,
    detector: Box<dyn Detector>,
    output: Output,
    layouts: Vec<(u64, Layout)>,
}

/// Everything by version.
struct Figures {
    runs: Vec<Run>,
    rivals: Vec<Rival>,
    /// All bytes backed up; every chunk once, of all versions and of the newest; after each version.
    logical: Vec<u64>,
    exact: Vec<u64>,
    exact_kept: Vec<u64>,
}

fn is_shown(version: usize, versions: usize) -> bool {
    SHOWN.contains(&version) || version == versions
}

fn measure(settings: &Settings, offline: Offline) -> anyhow::Result<Figures> {
    let rival = |name, detector| Rival { name, detector, output: Output::new(CONTAINER), layouts: Vec::new() };
    let mut figures = Figures {
        runs: WAYS.iter().map(|(_, way)| Run::new(*way, settings)).collect::<anyhow::Result<_>>()?,
        rivals: vec![rival("HAR", Box::new(Har::new())), rival("Capping", Box::new(Capping::new()))],
        logical: Vec::new(),
        exact: Vec::new(),
        exact_kept: Vec::new(),
    };
    let (mut all, mut kept) = (Oracle::default(), Oracle::default());
    let mut sdb = SDb::new(spec(settings, 4, 64.0, Duplication::Spread));
    let mut first: Option<Arc<[u8]>> = None;
    for version in 0..settings.versions {
        if version > 0 {
            sdb.advance();
        }
        let stream: Arc<[u8]> = sdb.files().collect::<Vec<_>>().concat().into();
        let mut recipe = Vec::new();
        for run in &mut figures.runs {
            let is_restored = run.way != Way::Pass && is_shown(version + 1, settings.versions);
            let backed_up = run.step(version, &stream, offline, is_restored)?;
            let names = |recipe: &[ChunkRef]| recipe.iter().map(|chunk| chunk.fingerprint).collect::<Vec<_>>();
            anyhow::ensure!(recipe.is_empty() || names(&recipe) == names(&backed_up), "one stream was cut in two ways");
            recipe = backed_up;
        }
        all.add(&recipe, usize::MAX);
        kept.add(&recipe, KEPT);
        figures.logical.push(figures.logical.last().unwrap_or(&0) + stream.len() as u64);
        figures.exact.push(all.bytes);
        figures.exact_kept.push(kept.bytes);
        let pieces = recipe.iter().map(|chunk| Piece { fingerprint: chunk.fingerprint, size: chunk.size });
        let pieces = [pieces.collect::<Vec<_>>()];
        for Rival { detector, output, layouts, .. } in &mut figures.rivals {
            detect(&mut **detector, &pieces, output);
            layouts.push((output.stored_bytes(), Layout::new(output.recipe(), output.catalogue())));
        }
        first.get_or_insert(stream);
    }
    // The oldest version has seen every pass.
    if let Some(first) = first {
        let node = &figures.runs[OPTIMIZE].node;
        let versions = node.versions()?;
        node.restore(&versions[0], &first)?;
    }
    Ok(figures)
}

pub(crate) fn fig9(settings: &Settings, offline: Offline) -> anyhow::Result<()> {
    let mut page = begin_page("fig9", "Figure 9: space, and the layout of the newest version", settings)?;
    let figures = measure(settings, offline)?;
    page.say(&format!(
        "The product's L-node and G-node on a repository in memory, one series, one stream of four tables a version; chunks of {} KiB by {}, \
         containers of {} MiB, nothing compressed but what passes write. After every version: nothing (L-dedup only); a pass; compaction and a pass, which is \
         `larder optimize` (G-dedup); and the same with all but the newest {KEPT} versions forgotten. All four cut and name alike. \"Exact\" is every \
         chunk of the retained versions once. HAR and Capping are our own, over an exact index, on the same chunks with containers of the same size. \
         Restored versions were compared with what was backed up, at the end the first version too.",
        settings.chunk_kib,
        settings.chunker,
        CONTAINER >> 20,
    ));
    for (what, percent) in [
        ("Sparse is what is used by less than", offline.sparse_percent),
        ("Compaction copies of a version at most", offline.budget_percent),
    ] {
        if let Some(percent) = percent {
            page.say(&format!("{what} {percent} % here, which is not what the program does."));
        }
    }
    if let Some(percent) = offline.max_unused {
        page.say(&format!("Containers are retired until no more than {percent} % is of no use."));
    }
    if offline.exact {
        page.say("Every pass finds out what no version needs.");
    }
    figures.space(&mut page)?;
    figures.first_version(&mut page)?;
    figures.layout(&mut page)?;
    figures.restores(&mut page);
    figures.costs(&mut page);
    figures.targets(&mut page);
    page.finish()
}

fn line(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Line {
    Line::new(name, values.into_iter().enumerate().map(|(version, value)| ((version + 1) as f64, value)))
}

impl Figures {
    fn versions(&self) -> usize {
        self.logical.len()
    }

    /// A table with a row for each shown version and a column for each line.
    fn by_version(&self, page: &mut Page, lines: &[Line], digits: usize) {
        let mut table = Table::new(std::iter::once("version").chain(lines.iter().map(|line| line.name.as_str())));
        for version in (1..=self.versions()).filter(|version| is_shown(*version, self.versions())) {
            let values = lines.iter().map(|line| format!("{:.digits$}", line.points[version - 1].1));
            table.row(std::iter::once(version.to_string()).chain(values));
        }
        page.table(&table);
    }

    fn samples(&self, way: usize, value: impl Fn(&Sample) -> f64) -> Line {
        line(WAYS[way].0, self.runs[way].samples.iter().map(value))
    }

    fn space(&self, page: &mut Page) -> anyhow::Result<()> {
        let exact = |name: &str, bytes: &[u64]| line(name, bytes.iter().map(|bytes| megabytes(*bytes)));
        let mut all = vec![exact("exact", &self.exact), exact("exact, newest 10", &self.exact_kept)];
        all.extend((0..WAYS.len()).map(|way| self.samples(way, |sample| megabytes(sample.held))));
        for rival in &self.rivals {
            all.push(line(rival.name, rival.layouts.iter().map(|(stored, _)| megabytes(*stored))));
        }
        page.say("## Space by version: chunks in all containers (MB)");
        self.by_version(page, &all, 1);
        let labels = Labels { title: "Space", x: "version", y: "MB of chunks" };
        page.plot("a-space", &lines(&labels, Axis::Linear, Floor::Zero, &all))?;
        let mut table = Table::new(["at the end", "chunks MB", "of them retired MB", "all objects MB", "x exact"]);
        for (run, (name, way)) in self.runs.iter().zip(WAYS) {
            let Some(sample) = run.samples.last() else { continue };
            let exact = if way == Way::Keep { &self.exact_kept } else { &self.exact };
            table.row([
                name.to_owned(),
                format!("{:.1}", megabytes(sample.held)),
                format!("{:.1}", megabytes(sample.reclaimed)),
                format!("{:.1}", megabytes(sample.objects)),
                format!("{:.4}", sample.held as f64 / exact.last().copied().unwrap_or(1) as f64),
            ]);
        }
        page.say(&format!(
            "{:.0} MB were backed up. \"Retired\" is what the index does not lead to any more, in containers that are still there; \"all \
             objects\" has metadata, index and everything else in it.",
            megabytes(self.logical.last().copied().unwrap_or(0))
        ));
        page.table(&table);
        page.say("The paper: reverse deduplication saves 2.4 % of what L-dedup leaves; with the newest 10 kept, space grows slowly after version 10.");
        Ok(())
    }

    fn first_version(&self, page: &mut Page) -> anyhow::Result<()> {
        let all: Vec<Line> = (0..=OPTIMIZE).map(|way| self.samples(way, |sample| megabytes(sample.of_first))).collect();
        page.say(
            "## Space held by the first version: chunks that came with it, where its backup or a pass put them (MB)",
        );
        self.by_version(page, &all, 1);
        let labels = Labels { title: "Space held by the first version", x: "version", y: "MB of chunks" };
        page.plot("b-first-version", &lines(&labels, Axis::Linear, Floor::Zero, &all))
    }

    fn layouts(&self, value: impl Fn(&Layout) -> f64) -> Vec<Line> {
        let mut all: Vec<Line> =
            [ONLINE, OPTIMIZE, KEEP].map(|way| self.samples(way, |sample| value(&sample.layout))).into();
        for rival in &self.rivals {
            all.push(line(rival.name, rival.layouts.iter().map(|(_, layout)| value(layout))));
        }
        all
    }

    fn layout(&self, page: &mut Page) -> anyhow::Result<()> {
        page.say("## Layout of the newest version: containers / 100 MB");
        let all = self.layouts(Layout::per_100_mb);
        self.by_version(page, &all, 1);
        let labels = Labels { title: "Containers of the newest version", x: "version", y: "containers / 100 MB" };
        page.plot("c-containers", &lines(&labels, Axis::Linear, Floor::Zero, &all))?;
        page.say(&format!(
            "## Restore of the newest version, modelled: MB/s\n\nBy container, {THREADS} requests at once, 30 ms and 90 MB/s each; parts of \
             a container where the gaps cost more than a request; the same reader for all."
        ));
        let all = self.layouts(Layout::speed);
        self.by_version(page, &all, 1);
        let labels = Labels { title: "Restore of the newest version (simulated)", x: "version", y: "MB/s" };
        page.plot("d-restore", &lines(&labels, Axis::Linear, Floor::Zero, &all))?;
        page.say("Requests of the same model, for 100 MB:");
        let requests = |layout: &Layout| layout.requests as f64 / (megabytes(layout.bytes) / 100.0);
        self.by_version(page, &self.layouts(requests), 1);
        page.say("Bytes that it reads, for a byte of different chunks:");
        self.by_version(page, &self.layouts(Layout::amplification), 3);
        page.say("Bytes in all containers that the newest version uses, for a byte of its different chunks:");
        self.by_version(page, &self.layouts(Layout::held), 3);
        Ok(())
    }

    fn restores(&self, page: &mut Page) {
        let mut table = Table::new(["version, way", "containers", "requests", "bytes read a byte", "read again"]);
        for (run, (name, _)) in self.runs.iter().zip(WAYS) {
            for (version, fetched) in &run.fetched {
                table.row([
                    format!("{version} {name}"),
                    fetched.containers.to_string(),
                    fetched.requests.to_string(),
                    format!("{:.3}", fetched.per_byte()),
                    fetched.again.to_string(),
                ]);
            }
        }
        page.say("## Real restores of the newest version into a folder: what was fetched");
        page.table(&table);
    }

    fn costs(&self, page: &mut Page) {
        let requests = |way: usize, of: fn(&Sample) -> Cost, what: &str| {
            let mut line = self.samples(way, |sample| of(sample).requests as f64);
            line.name = format!("{}: {what}", WAYS[way].0);
            line
        };
        let all = [
            requests(OPTIMIZE, |sample| sample.compaction, "compaction"),
            requests(OPTIMIZE, |sample| sample.pass, "pass"),
            requests(KEEP, |sample| sample.compaction, "compaction"),
            requests(KEEP, |sample| sample.pass, "pass"),
        ];
        page.say("## What making order cost: requests");
        self.by_version(page, &all, 0);
        let written = |of: fn(&Sample) -> Cost| {
            megabytes(self.runs[OPTIMIZE].samples.iter().map(|sample| of(sample).written).sum())
        };
        page.say(&format!(
            "Over all versions compaction wrote {:.1} MB and passes {:.1} MB (G-dedup).",
            written(|sample| sample.compaction),
            written(|sample| sample.pass)
        ));
    }

    fn targets(&self, page: &mut Page) {
        let samples = &self.runs[OPTIMIZE].samples;
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return };
        let mut table = Table::new(["target", "measured", "reached"]);
        let mut row = |target: &str, measured: String, is_reached: bool| {
            table.row([target.to_owned(), measured, if is_reached { "yes" } else { "no" }.to_owned()]);
        };
        for (name, way, exact) in [("all versions", OPTIMIZE, &self.exact), ("newest 10", KEEP, &self.exact_kept)] {
            let held = self.runs[way].samples.last().map_or(0, |sample| sample.held);
            let over = held as f64 / exact.last().copied().unwrap_or(1) as f64 - 1.0;
            row(
                &format!("chunks as with an exact index, within 0.1 %: {name}"),
                format!("{:+.2} %", over * 100.0),
                over <= 0.001,
            );
        }
        if let Some(settled) = samples.get(SETTLED - 1) {
            let most = samples[SETTLED - 1..].iter().map(|sample| sample.layout.per_100_mb()).fold(0.0, f64::max);
            let (settled, last) = (settled.layout.per_100_mb(), last.layout.per_100_mb());
            row(
                &format!("containers / 100 MB constant from version {SETTLED} on"),
                format!("{settled:.1} at {SETTLED}, {last:.1} at {}, {most:.1} at most", samples.len()),
                most <= settled * 1.1,
            );
        }
        let amplification = last.layout.amplification();
        row("read amplification by different chunks at most 1.1", format!("{amplification:.2}"), amplification <= 1.1);
        let (then, now) = (first.layout.speed(), last.layout.speed());
        row(
            "newest version restored within 10 % of the first",
            format!("{now:.0} of {then:.0} MB/s, {:+.0} %", (now / then - 1.0) * 100.0),
            now >= then * 0.9,
        );
        page.say(&format!("## Targets, at version {}", samples.len()));
        page.table(&table);
    }
}

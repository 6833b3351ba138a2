//! The product's own L-node and G-node on the same data: the layout `lifecycle` with and without holes, and the standard layout with
//! all of `larder optimize`.
//!
//! A repository in memory for each way. After every version all but the newest are forgotten and the G-node does what there is to do. What
//! lies where is read from the store and the index: a restore is taken to read of every container the stretch that it needs, in the order
//! in which containers were written, on the disk of the model. Beside it stand models over the same chunks: those of the real recipes.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use larder_bench_common::front::Piece;
use larder_bench_common::megabytes;
use larder_bench_common::node::{Cost, Node};
use larder_bench_common::page::Page;
use larder_bench_common::table::Table;
use larder_format::ChunkRef;
use larder_format::compress::Compression;
use larder_format::extents::Extents;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::layout::Layout;
use larder_gnode::defragment::DefragmentOptions;
use larder_gnode::pass::PassOptions;
use larder_gnode::reclaim::ReclaimOptions;
use larder_index::{ContainerExtents, Current, IndexIo, LookupOptions, TableView};
use larder_lifecycle::arrange::ArrangeOptions;
use larder_store::Store;

use crate::Settings;
use crate::disk::{Disk, Extent, Reading};
use crate::schemes::{Classic, Collection, Larder, MfDedup, Number, Rule, Scheme};
use crate::sets::Set;

/// The only series.
const SERIES: &str = "set";

/// How the G-node treats the repository.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Way {
    Standard,
    /// With holes up to this (percent), after so many versions.
    Lifecycle(f64, u32),
}

impl Way {
    /// As the settings have it.
    pub(crate) fn lifecycle(settings: &Settings) -> Self {
        Self::Lifecycle(settings.holes, settings.arrange_every)
    }

    fn name(self) -> String {
        match self {
            Self::Standard => "Larder, standard".to_owned(),
            Self::Lifecycle(holes, 1) => format!("Larder, lifecycle, holes {holes} %"),
            Self::Lifecycle(holes, every) => format!("Larder, lifecycle, holes {holes} %, a pass after {every}"),
        }
    }
}

/// A container, and where it lies when all are written one after the other.
struct Placed {
    at: u64,
    bytes: u64,
}

/// One repository.
pub(crate) struct Run {
    way: Way,
    node: Node,
    placed: HashMap<ContainerId, Placed>,
    end: u64,
    /// By version: chunks in containers (bytes), what passes asked of the store, chunks they copied, and what the newest version reads.
    stored: Vec<u64>,
    costs: Vec<Cost>,
    moved: Vec<u64>,
    newest: Vec<Reading>,
}

impl Run {
    fn new(way: Way, settings: &Settings) -> anyhow::Result<Self> {
        Self::of(way, Node::in_memory(settings.chunker, settings.chunk_kib << 10, settings.seed)?)
    }

    /// The same, its repository somewhere else.
    pub(crate) fn over(store: Store, way: Way, settings: &Settings) -> anyhow::Result<Self> {
        Self::of(way, Node::over(store, settings.chunker, settings.chunk_kib << 10, settings.seed)?)
    }

    fn of(way: Way, node: Node) -> anyhow::Result<Self> {
        let (stored, costs, moved, newest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(Self { way, node, placed: HashMap::new(), end: 0, stored, costs, moved, newest })
    }

    /// A version and what comes after it. Returns its chunks.
    pub(crate) fn step(&mut self, stream: &Arc<[u8]>, keep: usize) -> anyhow::Result<Vec<Piece>> {
        let layout = if self.way == Way::Standard { Layout::Standard } else { Layout::Lifecycle };
        self.node.back_up(SERIES, stream, |options| options.layout = layout)?;
        let recipe = self.node.recipe(&self.node.newest()?)?;
        self.look()?;
        self.node.keep_newest(keep)?;
        let (cost, moved) = match self.way {
            Way::Standard => self.optimize()?,
            Way::Lifecycle(holes, every) => self.arrange(holes, every)?,
        };
        self.costs.push(cost);
        self.moved.push(moved);
        self.look()?;
        self.stored.push(self.placed.values().map(|placed| placed.bytes).sum());
        // Optimizing may have written it again.
        let optimized = self.node.recipe(&self.node.newest()?)?;
        self.newest.push(self.reading(&optimized)?);
        Ok(recipe.iter().map(|chunk| Piece { fingerprint: chunk.fingerprint, size: chunk.size }).collect())
    }

    /// What `larder optimize` does: what lies twice shows after the pass that took the version in, so there are two.
    fn optimize(&mut self) -> anyhow::Result<(Cost, u64)> {
        let reclaim = ReclaimOptions { compression: Compression::Off, ..ReclaimOptions::default() };
        let pass = PassOptions { reclaim: Some(reclaim), ..PassOptions::default() };
        let compaction = DefragmentOptions { compression: Compression::Off, ..DefragmentOptions::default() };
        let (mut cost, mut moved) = (Cost::default(), 0);
        for _ in 0..2 {
            let compacted = self.node.compact(&compaction)?;
            self.look()?;
            let (report, passed) = self.node.pass(&pass)?;
            moved += compacted.written + report.reclaimed.copied_bytes.0;
            cost += compacted;
            cost += passed;
            if compacted.written == 0 {
                break;
            }
        }
        Ok((cost, moved))
    }

    fn arrange(&mut self, holes_percent: f64, every: u32) -> anyhow::Result<(Cost, u64)> {
        let arrange = ArrangeOptions {
            holes_percent: Some(holes_percent),
            every: Some(every),
            compression: Compression::Off,
            ..ArrangeOptions::default()
        };
        let (report, cost) =
            self.node.pass(&PassOptions { arrange: Some(arrange), reclaim: None, ..PassOptions::default() })?;
        Ok((cost, report.arranged.moved_bytes.0))
    }

    /// Looks at what containers there are. What is new is put behind everything else, in the order of its names.
    fn look(&mut self) -> anyhow::Result<()> {
        let repository = &self.node.context.repository;
        let listed = self.node.runtime.block_on(repository.list_containers())?;
        let mut there: Vec<ContainerId> =
            listed.iter().map(|listed| listed.id).filter(|id| id.kind == ContainerKind::Data).collect();
        there.sort_unstable();
        self.placed.retain(|id, _| there.binary_search(id).is_ok());
        for id in there {
            if self.placed.contains_key(&id) {
                continue;
            }
            let index = self.node.runtime.block_on(repository.read_container_index(id))?;
            let bytes = index.chunk_refs().map(|chunk| u64::from(chunk.size)).sum();
            self.placed.insert(id, Placed { at: self.end, bytes });
            self.end += bytes;
        }
        Ok(())
    }

    fn extents(&self) -> anyhow::Result<HashMap<ContainerId, Extents>> {
        let repository = self.node.context.repository.clone();
        let newest = self.node.runtime.block_on(Current::look(&repository))?.base()?;
        let io = IndexIo { repository, executor: self.node.runtime.handle().clone().into() };
        let table: TableView<ContainerExtents> = TableView::new(io, &newest.manifest.runs, LookupOptions::default());
        let mut extents = HashMap::new();
        for record in table.scan(0..=u64::MAX, 1 << 20) {
            if let (id, Some(record)) = record? {
                extents.insert(id, record);
            }
        }
        Ok(extents)
    }

    /// What a restore of these chunks reads: of every container the stretch that they lie in.
    fn reading(&self, recipe: &[ChunkRef]) -> anyhow::Result<Reading> {
        let parts = self.parts_of(recipe)?;
        let extent = |(container, range): (ContainerId, Range<u64>)| Extent {
            at: self.placed[&container].at + range.start,
            len: range.end - range.start,
        };
        Ok(Disk::SLOW.read_sorted(parts.into_iter().map(extent).collect()))
    }

    /// What a restore of the newest version reads, in the order in which containers were written.
    pub(crate) fn parts(&self) -> anyhow::Result<Vec<(ContainerId, Range<u64>)>> {
        let mut parts: Vec<_> = self.parts_of(&self.node.recipe(&self.node.newest()?)?)?.into_iter().collect();
        parts.sort_by_key(|(container, _)| self.placed[container].at);
        Ok(parts)
    }

    /// Seconds that the product's restore of the newest version takes.
    pub(crate) fn restoring_newest(&self, stream: &[u8]) -> anyhow::Result<f64> {
        Ok(self.node.restore_timed(&self.node.newest()?, stream)?.1.as_secs_f64())
    }

    /// Of every container the stretch that these chunks lie in.
    fn parts_of(&self, recipe: &[ChunkRef]) -> anyhow::Result<BTreeMap<ContainerId, Range<u64>>> {
        let extents = self.extents()?;
        let mut parts: BTreeMap<ContainerId, Range<u64>> = BTreeMap::new();
        for chunk in recipe {
            let place = match extents.get(&chunk.container) {
                Some(record) => record.place(chunk.container, chunk.offset, chunk.size),
                None => Some((chunk.container, chunk.offset)),
            };
            let place = place.filter(|(container, _)| self.placed.contains_key(container));
            let Some((container, offset)) = place else {
                anyhow::bail!("{}: chunk {} of {} is nowhere", self.way.name(), chunk.fingerprint, chunk.container)
            };
            let (from, end) = (u64::from(offset), u64::from(offset) + u64::from(chunk.size));
            let part = parts.entry(container).or_insert(from..end);
            *part = part.start.min(from)..part.end.max(end);
        }
        Ok(parts)
    }

    /// How many retained versions the product's own restore brings back as they were.
    fn restored(&self, streams: &[Arc<[u8]>]) -> anyhow::Result<(usize, usize)> {
        let versions = self.node.versions()?;
        let streams = &streams[streams.len() - versions.len()..];
        let right = versions.iter().zip(streams).filter(|(version, stream)| self.node.restore(version, stream).is_ok());
        Ok((right.count(), versions.len()))
    }
}

/// A row of a table: real and modelled ways side by side.
struct Row {
    name: String,
    stored: u64,
    moved: f64,
    newest: Reading,
    more: [String; 3],
}

pub(crate) fn section(page: &mut Page, settings: &Settings, set: Set) -> anyhow::Result<()> {
    let mut data = set.versions(settings.scale, settings.seed, &settings.tars)?;
    let ways = [Way::Standard, Way::Lifecycle(0.0, 1), Way::lifecycle(settings)];
    let mut runs = ways.into_iter().map(|way| Run::new(way, settings)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut models: Vec<Box<dyn Scheme>> = vec![
        Box::new(Classic::new(Rule::Exact, Collection::Perfect)),
        Box::new(Classic::new(Rule::Har, Collection::Perfect)),
        Box::new(MfDedup::default()),
        Box::new(Larder::new(settings.rules())),
    ];
    let mut model_moved = vec![0; models.len()];
    let mut streams: Vec<Arc<[u8]>> = Vec::new();
    let keep = settings.keep.max(1);
    let mut count = 0;
    while count < settings.versions {
        let mut bytes = Vec::new();
        if !data.next(&mut |file| Ok(file.read_to_end(&mut bytes).map(drop)?))? {
            break;
        }
        count += 1;
        let stream: Arc<[u8]> = bytes.into();
        let mut pieces = Vec::new();
        for run in &mut runs {
            let cut = run.step(&stream, keep)?;
            anyhow::ensure!(pieces.is_empty() || pieces == cut, "one stream was cut in two ways");
            pieces = cut;
        }
        for (model, moved) in models.iter_mut().zip(&mut model_moved) {
            model.back_up(count as Number, &pieces);
            let mut work = Vec::new();
            if count > keep {
                work.push(model.delete((count - keep) as Number));
            }
            work.push(model.arrange());
            if count > keep {
                *moved += work.iter().map(|work| work.written).sum::<u64>();
            }
        }
        streams.push(stream);
        if streams.len() > keep {
            streams.remove(0);
        }
    }
    anyhow::ensure!(count > 1, "at least two versions are needed");
    let later = count.saturating_sub(keep).max(1) as f64;
    let retained: u64 = streams.iter().map(|stream| stream.len() as u64).sum();
    let newest = streams.last().map_or(0, |stream| stream.len() as u64);
    let mut rows = Vec::new();
    for (model, moved) in models.iter().zip(model_moved) {
        let restored = model.restore(count as Number, settings.memory(newest));
        let (name, newest) = (format!("model: {}", model.name()), restored.usual);
        rows.push(Row { name, stored: model.stored(), moved: moved as f64 / later, newest, more: Default::default() });
    }
    for run in &runs {
        let from = keep.min(count - 1);
        let mean =
            |values: &dyn Fn(usize) -> u64| (from..count).map(values).sum::<u64>() as f64 / (count - from) as f64;
        let (right, all) = run.restored(&streams)?;
        rows.push(Row {
            name: run.way.name(),
            stored: run.stored[count - 1],
            moved: mean(&|place| run.moved[place]),
            newest: run.newest[count - 1],
            more: [
                format!("{:.1}", mean(&|place| run.costs[place].read) / 1e6),
                format!("{:.0}", mean(&|place| run.costs[place].requests)),
                format!("{right} of {all}"),
            ],
        });
    }
    page.say(&format!(
        "{count} versions, the last of {:.1} MB, as one stream each; the newest {keep} are retained. Nothing is compressed. \"Moved\" is what \
         optimizing or arranging copies of chunks after a version, MB down and requests all that it asks of the store, means of later versions; \
         restored: retained versions that the product's restore brought back as they were.",
        megabytes(newest)
    ));
    let mut table = Table::new([
        "at the end",
        "stored MB",
        "ratio",
        "x exact",
        "moved MB",
        "newest: MB/s",
        "amplification",
        "extents",
        "seeks",
        "MB down",
        "requests",
        "restored",
    ]);
    let exact = rows.first().map_or(1, |row| row.stored);
    for Row { name, stored, moved, newest: reading, more } in rows {
        let mut cells = vec![
            name,
            format!("{:.1}", megabytes(stored)),
            format!("{:.2}", retained as f64 / stored.max(1) as f64),
            format!("{:.3}", exact as f64 / stored.max(1) as f64),
            format!("{:.1}", moved / 1e6),
            format!("{:.0}", megabytes(newest) / Disk::SLOW.reading_seconds(&reading).max(1e-9)),
            format!("{:.3}", reading.bytes as f64 / newest.max(1) as f64),
            reading.extents.to_string(),
            reading.seeks.to_string(),
        ];
        cells.extend(more);
        table.row(cells);
    }
    page.table(&table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Without holes the product stores, for the newest versions of a set, exactly what MFDedup's model does, a restore reads every byte
    /// once, and brings everything back; with holes it stores no less and copies less.
    #[test]
    fn the_product_is_as_its_model() -> anyhow::Result<()> {
        let mut data = Set::Syn.versions(0.02, 3, Path::new(""))?;
        let settings = Settings::for_tests();
        let mut runs = [0.0, 20.0]
            .map(|holes| Run::new(Way::Lifecycle(holes, 1), &settings))
            .into_iter()
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut model = MfDedup::default();
        let mut streams: Vec<Arc<[u8]>> = Vec::new();
        for number in 1..=7 {
            let mut bytes = Vec::new();
            data.next(&mut |file| Ok(file.read_to_end(&mut bytes).map(drop)?))?;
            let stream: Arc<[u8]> = bytes.into();
            let pieces = runs[0].step(&stream, 3)?;
            assert!(runs[1].step(&stream, 3)? == pieces);
            model.back_up(number, &pieces);
            if number > 3 {
                model.delete(number - 3);
            }
            model.arrange();
            let stored = |run: &Run| run.stored[run.stored.len() - 1];
            assert_eq!(stored(&runs[0]), model.stored(), "version {number}");
            assert!(stored(&runs[1]) >= model.stored());
            let reading = runs[0].newest[runs[0].newest.len() - 1];
            assert_eq!(reading.bytes, model.restore(number, 0).once.bytes, "version {number}");
            streams.push(stream);
        }
        let moved = |run: &Run| run.moved.iter().sum::<u64>();
        assert!(moved(&runs[1]) < moved(&runs[0]));
        for run in &runs {
            assert_eq!(run.restored(&streams)?, (3, 3));
        }
        Ok(())
    }
}

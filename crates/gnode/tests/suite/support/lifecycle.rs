//! Series in the layout `lifecycle`: versions of them, and an oracle of where their chunks are that knows names and records alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use larder_format::ChunkRef;
use larder_format::extents::{Extent, Extents};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::layout::Layout;
use larder_gnode::pass::{PassOptions, PassReport};
use larder_index::{ContainerExtents, IndexIo, IndexSnapshot, LookupOptions, TableView};
use larder_lifecycle::arrange::{ArrangeOptions, needing_rebuild};
use larder_lifecycle::lifecycle_map::{Categories, Last, categories};
use larder_reader::References;
use larder_store::RepositoryError;
use larder_testkit::data;

use super::{Scene, backup_with, pass_options, versions};

/// Arranging after so many versions, leaving so much (percent) of other versions in a container.
pub fn every(versions: u32, holes_percent: f64) -> ArrangeOptions {
    ArrangeOptions { holes_percent: Some(holes_percent), every: Some(versions), ..ArrangeOptions::default() }
}

/// A pass that leaves so much (percent) of other versions in a container.
pub fn arranging(holes_percent: f64) -> PassOptions {
    PassOptions { arrange: Some(every(1, holes_percent)), reclaim: None, ..pass_options() }
}

/// The same with nothing left over, also where nothing is new.
pub fn thoroughly() -> PassOptions {
    let options = ArrangeOptions { all: true, ..every(1, 0.0) };
    PassOptions { arrange: Some(options), ..arranging(0.0) }
}

/// 240 KiB in which a sixtieth each is of the given editions.
pub fn pieces(editions: &[u64; 60]) -> Vec<u8> {
    let piece = |(place, edition): (usize, &u64)| data::random(place as u64 * 1000 + edition, 4096);
    editions.iter().enumerate().flat_map(piece).collect()
}

/// A stretch of a container's payload with the first and the last version that use it: its category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Laid {
    pub container: ContainerId,
    pub offset: u32,
    pub length: u32,
    pub first: u32,
    /// Open comes last of all.
    pub last: Last,
}

impl Scene {
    /// All that the newest index says is needed of this layout, in the order in which it was written: by container, and in each from its
    /// begin to its end.
    pub fn laid_out(&self) -> Vec<Laid> {
        let records = self.extents();
        let facts = self.facts().into_values().filter(|facts| facts.layout == Layout::Lifecycle);
        let mut laid = Vec::new();
        for name in facts.filter(|facts| facts.id.kind == ContainerKind::Data) {
            let whole = Extent { from: 0, length: name.bytes as u32, last: None, to: None };
            let extents = records.get(&name.id).cloned().unwrap_or_else(|| Extents(vec![whole]));
            laid.extend(extents.0.into_iter().map(|extent| {
                let (container, offset) = extent.to.unwrap_or((name.id, extent.from));
                let first = name.users[0].lifespans[0].first;
                Laid { container, offset, length: extent.length, first, last: extent.last.into() }
            }));
        }
        laid.sort_unstable();
        laid
    }

    /// A version of a series of this layout that holds these bytes.
    pub fn lifecycle(&self, series: &str, bytes: &[u8]) -> JobId {
        self.lifecycle_at(&self.context(), series, bytes).unwrap()
    }

    pub fn lifecycle_at(
        &self,
        context: &larder_job::JobContext,
        series: &str,
        bytes: &[u8],
    ) -> Result<JobId, larder_lnode::BackupError> {
        Ok(self.lifecycle_report(context, series, bytes)?.version.unwrap().id)
    }

    /// The same, with all that there is to say of it.
    pub fn lifecycle_report(
        &self,
        context: &larder_job::JobContext,
        series: &str,
        bytes: &[u8],
    ) -> Result<larder_lnode::BackupReport, larder_lnode::BackupError> {
        let root = self.source(series);
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("file"), bytes).unwrap();
        backup_with(context, &root, series, |options| {
            options.layout = Layout::Lifecycle;
            options.force = true;
        })
    }

    /// A version, and whether it may have used what was there before its base and not in that. Such a category has versions in it that do
    /// not need it, and keeps what is in it for them (`docs/lifecycle.md`).
    pub fn lifecycle_skipping(&self, series: &str, bytes: &[u8]) -> (JobId, bool) {
        let report = self.lifecycle_report(&self.context(), series, bytes).unwrap();
        (report.version.unwrap().id, report.bases.len() > 1)
    }

    /// A pass that gives containers up after so many versions.
    pub fn arrange_every(&self, versions: u32, holes_percent: f64) -> PassReport {
        self.pass_with(&PassOptions { arrange: Some(every(versions, holes_percent)), ..arranging(holes_percent) })
            .unwrap()
    }

    pub fn arrange(&self, holes_percent: f64) -> PassReport {
        self.pass_with(&arranging(holes_percent)).unwrap()
    }

    /// The chunks that a version names, each once, and how often it names any.
    pub fn names(&self, id: JobId) -> BTreeMap<(ContainerId, u32), ChunkRef> {
        let context = self.context();
        let version = versions(&context).into_iter().find(|version| version.id() == id).unwrap();
        let manifest = self.runtime.block_on(context.repository.manifest(&version)).unwrap();
        let mut names = BTreeMap::new();
        References::new(&context)
            .visit(&manifest.data, |chunk| {
                names.insert((chunk.container, chunk.offset), *chunk);
                Ok::<_, RepositoryError>(())
            })
            .unwrap();
        names
    }

    /// The records of all containers that the newest index has any of.
    pub fn extents(&self) -> BTreeMap<ContainerId, Extents> {
        let repository = self.repository(self.memory.store());
        let newest = self.runtime.block_on(IndexSnapshot::newest(&repository)).unwrap().snapshot;
        let io = IndexIo { repository, executor: self.runtime.handle().into() };
        let table: TableView<ContainerExtents> = TableView::new(io, &newest.manifest.runs, LookupOptions::default());
        table.scan(0..=u64::MAX, 1 << 20).map(|record| record.unwrap()).map(|(id, of)| (id, of.unwrap())).collect()
    }

    /// That every chunk that a visible version names is where the index says: another way to the bytes than readers take.
    #[track_caller]
    pub fn names_lead_to_chunks(&self, at: &str) {
        let context = self.context();
        let extents = self.extents();
        let mut tables: HashMap<ContainerId, BTreeMap<u32, ChunkRef>> = HashMap::new();
        for version in versions(&context) {
            for ((container, offset), chunk) in self.names(version.id()) {
                let place = match extents.get(&container) {
                    Some(record) => record.place(container, offset, chunk.size),
                    None => Some((container, offset)),
                };
                let Some((there, offset_there)) = place else {
                    panic!("{at}: {} needs {container} at {offset}, which is in no extent", version.id())
                };
                let table = tables.entry(there).or_insert_with(|| {
                    let index = self.runtime.block_on(context.repository.read_container_index(there));
                    let index = index.unwrap_or_else(|error| panic!("{at}: {} needs {there}: {error}", version.id()));
                    index.chunk_refs().map(|chunk| (chunk.offset, chunk)).collect()
                });
                let found = table.get(&offset_there).map(|found| (found.fingerprint, found.size));
                assert_eq!(found, Some((chunk.fingerprint, chunk.size)), "{at}: {container} at {offset}");
            }
        }
    }

    /// What categories say of a series.
    pub fn categories_of(&self, series: &str) -> Categories {
        let repository = self.context().repository;
        let versions = self.versions().into_iter().filter(|version| version.summary.series == series);
        let all = self.runtime.block_on(categories(&repository, &versions.collect::<Vec<_>>())).unwrap();
        all.into_values().next().unwrap()
    }

    /// Whether an index that was rebuilt keeps any series from being arranged.
    pub fn is_disordered(&self) -> bool {
        !self.runtime.block_on(needing_rebuild(&self.context().repository)).unwrap().is_empty()
    }

    /// Bytes of the objects of all data containers.
    pub fn data_bytes(&self) -> u64 {
        let listed = self.runtime.block_on(self.context().repository.list_containers()).unwrap();
        listed.iter().filter(|listed| listed.id.kind == ContainerKind::Data).map(|listed| listed.bytes).sum()
    }

    /// Bytes of all chunks in data containers, and of those that versions need: each name once.
    pub fn stored_and_named(&self) -> (u64, u64) {
        let context = self.context();
        let listed = self.runtime.block_on(context.repository.list_containers()).unwrap();
        let data = listed.iter().filter(|container| container.id.kind == ContainerKind::Data);
        let stored = data.map(|container| {
            let index = self.runtime.block_on(context.repository.read_container_index(container.id)).unwrap();
            index.chunk_refs().map(|chunk| u64::from(chunk.size)).sum::<u64>()
        });
        let stored = stored.sum();
        let mut named: BTreeSet<(ContainerId, u32)> = BTreeSet::new();
        let mut bytes = 0;
        for version in versions(&context) {
            for (name, chunk) in self.names(version.id()) {
                if named.insert(name) {
                    bytes += u64::from(chunk.size);
                }
            }
        }
        (stored, bytes)
    }
}

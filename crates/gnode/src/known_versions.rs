//! The index's knowledge of versions and containers, as one pass reads, extends and writes it.
//!
//! If the index knows a version's current generation, its manifest is not read. Everything else is
//! read from the manifests, so an index that lags, or none, costs only reads.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use larder_format::ids::{ContainerId, JobId, RunId};
use larder_format::index_manifest::{IndexHead, IndexManifest, IndexedVersion, RunRef, Table, VersionState};
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_format::layout::{Layout, PerLayout};
use larder_format::lease::Pin;
use larder_format::manifest::{ContainerUsage, Manifest};
use larder_format::sketch::Sketch;
use larder_index::tables::{Changes, ContainerExtents, Containers, TableView};
use larder_index::{IndexError, IndexSnapshot, LookupOptions, PassRuns};
use larder_lifecycle::arrange::{SeriesChanges, Unarranged};
use larder_store::rules::Rule;

use crate::error::PassError;
use crate::first_seen::earliest;
use crate::ingest::Sketches;
use crate::lifespans::{Dropped, Lifespans, Numbers, TableError};
use crate::reclaim::{RetentionView, Search};
use crate::spilled::spilled;
use crate::tables::IndexWork;

/// Runs of the table at which it is rewritten as one. Every run is read by every pass.
const RUNS_MAX: usize = 8;

/// The parts of a manifest that are ingested.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) containers: Vec<ContainerUsage>,
    pub(crate) sketch: Sketch,
    pub(crate) layout: Layout,
}

impl From<Manifest> for Contents {
    fn from(manifest: Manifest) -> Self {
        Self { containers: manifest.containers, sketch: manifest.summary.sketch, layout: manifest.summary.layout }
    }
}

/// Versions and containers.
#[derive(Debug)]
pub(crate) struct KnownVersions {
    versions: BTreeMap<Pin, IndexedVersion>,
    lifespans: Lifespans,
    next_version: u32,
    /// Versions that are retained, whether the index had them or not.
    retained: BTreeSet<Pin>,
    ingested: u64,
    /// Known versions whose generation was proved now.
    newly_proved: u64,
    /// Known versions whose job was found settled now.
    newly_settled: u64,
    /// Versions that were dropped, with rows or without.
    dropped: u64,
    /// Containers in manifests that count and were not ingested: several generations, and those
    /// that only a lease retains.
    held: HashSet<ContainerId>,
    /// Every generation that counts of every version that is retained.
    counting: PerLayout<Vec<(Pin, u32)>>,
    /// The facts about them that arranging needs.
    series: SeriesChanges,
    /// Samples of ingested versions.
    sketches: Sketches,
    /// When the store made generation 0 of versions, as they were listed.
    made_ms: BTreeMap<Pin, u64>,
    /// Registers whose jobs are settled for certain.
    settled: HashSet<Pin>,
    /// A version that finds no free number is not ingested; the next pass reads it again.
    is_full: bool,
}

/// The changes to write.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) versions: Vec<IndexedVersion>,
    pub(crate) runs: Vec<RunRef>,
    pub(crate) next_version: u32,
    pub(crate) next_container: u32,
    pub(crate) next_age: u64,
    pub(crate) containers: u64,
    pub(crate) ingested: u64,
    pub(crate) sketches: Sketches,
    /// Names for the other objects that the pass writes.
    pub(crate) ids: PassRuns,
}

impl KnownVersions {
    /// Reads the index.
    pub(crate) async fn load(work: IndexWork<'_>, base: &IndexSnapshot) -> Result<Self, PassError> {
        let manifest = &base.manifest;
        let runs = manifest.runs.clone();
        let memory = work.limits.memory / 4;
        // A container is stored whole, or was retired whole.
        let is_whole = |facts: &ContainerFacts| match facts.state {
            ContainerState::Live => facts.retired_chunks == 0,
            _ => facts.retired_chunks == facts.chunks && facts.retired_bytes == facts.bytes,
        };
        let next_container = manifest.head.next_container;
        let follows = work.repository.keeps(Rule::RedirectIsReference);
        let inherits = work.repository.keeps(Rule::LaterReferencesInherit);
        let all = move |io| {
            let table: TableView<Containers> = TableView::new(io, &runs, LookupOptions::default());
            let mut lifespans = Lifespans::new(next_container, &std::env::temp_dir(), memory);
            (lifespans.follows, lifespans.inherits) = (follows, inherits);
            let mut is_known = true;
            for record in table.scan(0..=u64::MAX, memory) {
                if let (number, Some(facts)) = record? {
                    is_known &= number < next_container && is_whole(&facts);
                    match lifespans.push(number, &facts) {
                        Ok(()) => {}
                        Err(TableError::Full) => is_known = false,
                        Err(TableError::Spill(error)) => return Err(spilled(error)),
                    }
                }
            }
            lifespans.sort().map_err(spilled)?;
            Ok::<_, IndexError>(is_known.then_some(lifespans))
        };
        let lifespans = work.run(all).await?.ok_or(PassError::UnknownTables)?;
        let versions = manifest.versions.iter();
        let versions = versions.map(|version| (Pin { series: version.series, job: version.job }, *version));
        Ok(Self {
            versions: versions.collect(),
            lifespans,
            // 0 is before all versions.
            next_version: manifest.head.next_version.max(1),
            retained: BTreeSet::new(),
            ingested: 0,
            newly_proved: 0,
            newly_settled: 0,
            settled: HashSet::new(),
            dropped: 0,
            held: HashSet::new(),
            counting: PerLayout::default(),
            series: SeriesChanges::new(!work.repository.keeps(Rule::UnsettledLeft)),
            sketches: Sketches::new(),
            made_ms: BTreeMap::new(),
            is_full: false,
        })
    }

    /// Notes when the store made generation 0 of versions; 0: it does not say.
    pub(crate) fn note_made(&mut self, made_ms: BTreeMap<Pin, u64>) {
        self.made_ms = made_ms;
    }

    /// Notes registers whose jobs are settled for certain.
    pub(crate) fn note_settled(&mut self, settled: HashSet<Pin>) {
        for (version, row) in &mut self.versions {
            if settled.contains(version) && !std::mem::replace(&mut row.is_settled, true) {
                self.newly_settled += 1;
            }
        }
        self.settled = settled;
    }

    /// Bytes of the table of containers, in memory and in temporary files.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.lifespans.bytes()
    }

    /// Whether the index knows the containers of this generation of a version.
    pub(crate) fn knows(&self, version: &Pin, generation: u32) -> bool {
        self.versions.get(version).is_some_and(|known| known.generation == generation)
    }

    /// An ingested version whose manifest is gone although it was not forgotten, with the
    /// generation that the index knows. A manifest that a pass removes is no longer in the index by
    /// then, so this one was lost.
    pub(crate) fn lost(
        &self,
        registers: &BTreeMap<Pin, Vec<u32>>,
        is_marked: impl Fn(&Pin) -> bool,
    ) -> Option<(Pin, u32)> {
        let retained = self.versions.iter().filter(|(_, version)| version.state == VersionState::Retained);
        let mut lost = retained.filter(|(pin, version)| {
            let generations = registers.get(pin).map_or(&[][..], Vec::as_slice);
            let is_there = generations.first() == Some(&0) && generations.last() >= Some(&version.generation);
            !is_there && !is_marked(pin)
        });
        lost.next().map(|(pin, version)| (*pin, version.generation))
    }

    /// A version that the index knows is retained.
    pub(crate) fn retain(&mut self, version: Pin) {
        self.retained.insert(version);
        if let Some(known) = self.versions.get(&version) {
            let (generation, layout) = (known.generation, known.layout);
            self.counting[layout].push((version, generation));
        }
    }

    /// A generation of a version counts that is not ingested.
    pub(crate) fn hold(&mut self, version: Pin, generation: u32, contents: &Contents) {
        self.held.extend(contents.containers.iter().map(|usage| usage.container));
        self.series.held(version.series, contents.layout);
        self.counting[contents.layout].push((version, generation));
    }

    /// The containers that have a record, with their numbers and layouts.
    pub(crate) fn containers(&self) -> impl Iterator<Item = Result<(u32, ContainerId, Layout), PassError>> {
        self.lifespans.containers().map(|container| container.map_err(|error| spilled(error).into()))
    }

    /// Ingests a container that no version names, and that is not asked for by name here; `None`
    /// when the numbers are used up.
    pub(crate) fn ingest_unnamed(
        &mut self,
        id: ContainerId,
        chunks: u32,
        bytes: u64,
        object_bytes: u64,
    ) -> Result<Option<u32>, PassError> {
        unless_full(self.lifespans.ingest_unnamed(id, chunks, bytes, object_bytes))
    }

    /// Ingests the containers of a generation that only a lease retains, so that the index can say
    /// where their chunks went. `None` when the numbers are used up. After
    /// [`KnownVersions::prune`].
    pub(crate) fn ingest_named(
        &mut self,
        containers: &[ContainerUsage],
        layout: Layout,
    ) -> Result<Option<()>, PassError> {
        unless_full(self.lifespans.ingest_named(containers, layout))
    }

    /// The containers that hold the chunks of a retired one.
    pub(crate) fn forwards_of(&self, container: &ContainerId) -> Result<Vec<ContainerId>, PassError> {
        Ok(self.lifespans.forwards_of(container).map_err(spilled)?)
    }

    /// The numbers of these.
    pub(crate) fn forward_numbers(&self, container: &ContainerId) -> Result<Vec<u32>, PassError> {
        Ok(self.lifespans.forward_numbers(container).map_err(spilled)?)
    }

    /// Whether a container was retired, so that no manifest that names it keeps it.
    pub(crate) fn is_retired(&self, container: &ContainerId) -> Result<bool, PassError> {
        Ok(self.lifespans.is_retired(container).map_err(spilled)?)
    }

    /// A version is retained as this generation, which uses these containers and is the only one
    /// that counts.
    pub(crate) fn ingest(
        &mut self,
        version: Pin,
        generation: u32,
        is_proved: bool,
        contents: Contents,
    ) -> Result<(), PassError> {
        if self.knows(&version, generation) {
            // The generation above it was retired, or this one was proved.
            if let Some(known) = self.versions.get_mut(&version)
                && is_proved
                && !std::mem::replace(&mut known.is_proved, true)
            {
                self.newly_proved += 1;
            }
            self.retain(version);
            return Ok(());
        }
        let Pin { series, job } = version;
        let number = self.next_version;
        let next = number.checked_add(1).filter(|_| !self.is_full);
        let Contents { containers, layout, .. } = &contents;
        let layout = *layout;
        let ingested = match next {
            Some(next) => unless_full(self.lifespans.ingest(series, number, containers, layout))?.map(|()| next),
            None => None,
        };
        let Some(next) = ingested else {
            self.is_full = true;
            self.hold(version, generation, &contents);
            return Ok(());
        };
        self.next_version = next;
        self.ingested += 1;
        self.retained.insert(version);
        let state = VersionState::Retained;
        let (is_arranged, is_carried) = (false, false);
        let seen_ms = self.versions.get(&version).map_or(0, |known| known.seen_ms);
        let was_settled = self.versions.get(&version).is_some_and(|known| known.is_settled);
        let is_settled = was_settled || self.settled.contains(&version);
        let row = IndexedVersion {
            number,
            series,
            job,
            generation,
            state,
            layout,
            is_arranged,
            is_carried,
            is_proved,
            is_settled,
            seen_ms,
        };
        self.versions.insert(version, row);
        // Versions that share nothing with other series have none.
        if !contents.sketch.is_empty() {
            self.sketches.insert(series, (number, contents.sketch));
        }
        self.counting[layout].push((version, generation));
        Ok(())
    }

    /// Retains the containers of a generation that does not count: it may be forged.
    pub(crate) fn hold_aside(&mut self, contents: &Contents) {
        self.held.extend(contents.containers.iter().map(|usage| usage.container));
    }

    /// The highest generation of a version that the index knows as proved. Generation 0 is the
    /// version.
    pub(crate) fn proved(&self, version: &Pin) -> u32 {
        self.versions.get(version).filter(|known| known.is_proved).map_or(0, |known| known.generation)
    }

    /// Removes the rows of versions that go. Also removes the rows of containers that none of the
    /// others uses and that may go. Returns those containers.
    pub(crate) fn prune(&mut self, may_go: &dyn Fn(&ContainerId) -> bool) -> Result<Dropped, PassError> {
        let retained = std::mem::take(&mut self.retained);
        let before = self.versions.len();
        let dropped = self.versions.iter().filter(|(pin, _)| !retained.contains(pin));
        dropped.for_each(|(_, version)| self.series.dropped(version));
        self.versions.retain(|pin, _| retained.contains(pin));
        self.dropped += (before - self.versions.len()) as u64;
        Ok(self.lifespans.prune(&numbers_of(&self.versions), &self.held, may_go).map_err(spilled)?)
    }

    /// The containers that retained versions need, with their numbers. After
    /// [`KnownVersions::prune`].
    pub(crate) fn used(&self) -> Result<impl Iterator<Item = Result<(u32, ContainerId), PassError>>, PassError> {
        let used = self.lifespans.used(&numbers_of(&self.versions), &self.held).map_err(spilled)?;
        Ok(used.map(|container| container.map_err(|error| spilled(error).into())))
    }

    /// This number of versions without rows goes.
    pub(crate) fn note_dropped(&mut self, versions: u64) {
        self.dropped += versions;
    }

    /// The input for the decision whether to search for unneeded chunks, after the index with this
    /// head.
    pub(crate) fn search(&self, head: &IndexHead) -> Search {
        Search {
            dropped: head.dropped.unwrap_or(0) + self.dropped,
            left: head.left,
            versions: self.versions.len() as u64,
            next_version: self.next_version,
        }
    }

    /// Every generation that counts of every version that is retained, of the standard layout.
    pub(crate) fn counting(&self) -> &[(Pin, u32)] {
        &self.counting.standard
    }

    /// The same of the layout `lifecycle`.
    pub(crate) fn counting_arranged(&self) -> &[(Pin, u32)] {
        &self.counting.lifecycle
    }

    /// Every generation whose chunks may be in containers that are retired chunk by chunk. Names of
    /// the layout `lifecycle` refer to containers that are not. In a rebuilt index they refer to
    /// any container with their chunks (`CollectorAsksAll`).
    pub(crate) fn walked(&self, is_rebuilt: bool) -> Vec<(Pin, u32)> {
        let arranged = if is_rebuilt { self.counting_arranged() } else { &[] };
        [self.counting(), arranged].concat()
    }

    /// Series of the layout `lifecycle` of which versions were added or removed, or all of them.
    /// Series with manifests that count but were not ingested are left out: their needs are
    /// unknown. After [`KnownVersions::prune`].
    pub(crate) fn unarranged(&self, all_series: bool) -> Vec<Unarranged> {
        self.series.unarranged(self.versions.values(), all_series)
    }

    /// The view that follows from the retained versions. They hold their numbers, those of the
    /// newest of each series and of `bases`, and containers that are named otherwise. After
    /// [`KnownVersions::prune`].
    pub(crate) fn retention_view(&self, bases: &BTreeSet<Pin>) -> RetentionView {
        let mut spared: BTreeMap<Pin, IndexedVersion> = BTreeMap::new();
        for of_series in self.versions.iter().collect::<Vec<_>>().chunk_by(|(a, _), (b, _)| a.series == b.series) {
            // They come by rising id, as in the catalog.
            spared.extend(of_series.last().map(|(pin, version)| (**pin, **version)));
        }
        let bases = bases.iter().filter_map(|base| Some((*base, *self.versions.get(base)?)));
        spared.extend(bases);
        let mut of_layout: PerLayout<Numbers> = PerLayout::default();
        for version in self.versions.values() {
            of_layout[version.layout].entry(version.series).or_default().insert(version.number);
        }
        RetentionView {
            retained: numbers_of(&self.versions),
            spared: numbers_of(&spared),
            arranged: of_layout.lifecycle,
            standard: of_layout.standard,
            held: self.held.clone(),
            ..RetentionView::default()
        }
    }

    /// The number of ingested versions.
    pub(crate) fn ingested(&self) -> u64 {
        self.ingested
    }

    /// The number of containers that this index does not have.
    pub(crate) fn new_containers(&self, base: &IndexManifest) -> u64 {
        u64::from(self.lifespans.next_container() - base.head.next_container)
    }

    /// Whether it has a record of a container.
    pub(crate) fn has_record(&self, container: &ContainerId) -> Result<bool, PassError> {
        Ok(self.lifespans.has(container).map_err(spilled)?)
    }

    /// Whether versions were ingested or proved, which is worth an index.
    pub(crate) fn has_new(&self) -> bool {
        self.ingested > 0 || self.newly_proved > 0 || self.newly_settled > 0
    }

    /// The rows, each with the earliest time at which the store or a pass is known to have had the
    /// version. On a store without times, that is the time of the pass that first saw it.
    fn rows(&self, now_ms: u64) -> Vec<IndexedVersion> {
        let with_time = |(version, row): (&Pin, &IndexedVersion)| {
            let made_ms = self.made_ms.get(version).copied().unwrap_or(0);
            IndexedVersion { seen_ms: earliest([row.seen_ms, made_ms]).unwrap_or(now_ms), ..*row }
        };
        self.versions.iter().map(with_time).collect()
    }

    /// Writes the changes as a run of this pass, or everything when there are many runs. `now_ms`:
    /// for versions without a time of the store.
    pub(crate) async fn write(
        mut self,
        work: IndexWork<'_>,
        job: JobId,
        now_ms: u64,
        manifest: &IndexManifest,
    ) -> Result<Written, PassError> {
        let versions = self.rows(now_ms);
        let (next_version, ingested) = (self.next_version, self.ingested);
        let (next_container, containers) = (self.lifespans.next_container(), self.lifespans.len());
        let (mut runs, age) = (manifest.runs.clone(), manifest.head.next_age);
        let (mut next_age, mut ids, sketches) = (age, PassRuns::new(job), self.sketches.clone());
        if self.lifespans.has_changed() {
            let is_anew = manifest.runs_of(Table::Containers).len() >= RUNS_MAX;
            if is_anew {
                runs.retain(|run| run.table != Table::Containers);
            }
            next_age += 1;
            let memory = work.limits.memory / 4;
            let mut gone = self.lifespans.take_gone();
            let has_extents = !manifest.runs_of(Table::Extents).is_empty();
            let changes = move |io| {
                let mut changes: Changes<Containers> = Changes::new(&io, memory, &std::env::temp_dir())?;
                match is_anew {
                    true => self.lifespans.all().try_for_each(|record| {
                        let (number, facts) = record.map_err(spilled)?;
                        changes.put(&number, &facts)
                    })?,
                    false => self.lifespans.changes().try_for_each(|change| match change.map_err(spilled)? {
                        (number, Some(facts)) => changes.put(&number, &facts),
                        (number, None) => changes.remove(&number),
                    })?,
                }
                let mut runs = changes.write(&io, &ids, age)?;
                let mut extents: Changes<ContainerExtents> = Changes::new(&io, memory, &std::env::temp_dir())?;
                while has_extents && let Some(batch) = gone.batch().map_err(spilled)? {
                    batch.iter().try_for_each(|container| extents.remove(&container.id))?;
                }
                runs.extend(extents.write(&io, &ids, age)?);
                Ok::<_, IndexError>((runs, ids))
            };
            let (written, used) = work.run(changes).await?;
            ids = used;
            runs.extend(written);
        }
        Ok(Written { versions, runs, next_version, next_container, next_age, containers, ingested, sketches, ids })
    }
}

/// `None` when the numbers are used up.
fn unless_full<T>(done: Result<T, TableError>) -> Result<Option<T>, PassError> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(TableError::Full) => Ok(None),
        Err(TableError::Spill(error)) => Err(spilled(error).into()),
    }
}

fn numbers_of(versions: &BTreeMap<Pin, IndexedVersion>) -> Numbers {
    let mut numbers = Numbers::new();
    for version in versions.values() {
        numbers.entry(version.series).or_default().insert(version.number);
    }
    numbers
}

/// The objects of runs.
pub(crate) fn run_ids(manifest: &IndexManifest) -> impl Iterator<Item = RunId> {
    manifest.runs.iter().map(|run| run.id)
}

#[cfg(test)]
mod tests;

//! Reads the categories of series: tables of the newest index, and manifests of versions that it
//! does not know.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::pin::pin;

use futures::StreamExt;
use larder_format::extents::{Extent, Extents};
use larder_format::ids::{ContainerId, ContainerKind, JobId, SeriesKey};
use larder_format::index_tables::{ContainerFacts, ContainerState, Lifespan};
use larder_format::layout::Layout;
use larder_format::manifest::{ContainerUsage, Summary};
use larder_index::{
    ContainerExtents, Containers, Executor, IndexError, IndexIo, IndexSnapshot, LookupOptions, TableView,
};
use larder_store::catalog::Version;
use larder_store::manifests::ManifestWindow;
use larder_store::{Repository, RepositoryError};

use super::{Categories, CategorizedVersion, Category, Last, Piece, Place, Progress};

/// Bytes of memory for reading the table of containers.
const SCAN_MEMORY: usize = 4 << 20;
/// Records of extents that are looked up at once.
const BATCH: usize = 256;

/// The categories of every series in the layout `lifecycle` that has one of these versions. These
/// are all that are retained. Memory: some hundred bytes for each container and each category in
/// it.
pub async fn categories(
    repository: &Repository,
    retained: &[Version],
) -> Result<BTreeMap<SeriesKey, Categories>, RepositoryError> {
    let is_of_layout = |version: &&Version| version.summary.layout == Layout::Lifecycle;
    let versions: Vec<&Version> = retained.iter().filter(is_of_layout).collect();
    if versions.is_empty() {
        return Ok(BTreeMap::new());
    }
    let by_index = async {
        let snapshot = IndexSnapshot::newest(repository).await?.snapshot;
        let all = drafts(repository, &versions, &snapshot).await?;
        read_tables(repository, all, &snapshot).await
    };
    let all = match by_index.await {
        Ok(all) => all,
        Err(IndexError::Repository(error)) if !error.is_damage() => return Err(error),
        Err(error) => {
            tracing::warn!(%error, "the index cannot be read: what was arranged counts as if it were where it was stored");
            let mut all = drafts(repository, &versions, &IndexSnapshot::empty()).await?;
            all.values_mut().for_each(|draft| draft.names().iter().for_each(|name| draft.extents(name, None)));
            all
        }
    };
    Ok(all.into_iter().map(|(series, draft)| (series, draft.finish())).collect())
}

/// Reads the tables of the index for the containers of series.
async fn read_tables(
    repository: &Repository,
    mut all: BTreeMap<SeriesKey, Draft>,
    snapshot: &IndexSnapshot,
) -> Result<BTreeMap<SeriesKey, Draft>, IndexError> {
    let runs = snapshot.manifest.runs.clone();
    let read = move |io: IndexIo| {
        let table: TableView<Containers> = TableView::new(io.clone(), &runs, LookupOptions::default());
        for record in table.scan(0..=u64::MAX, SCAN_MEMORY) {
            let (_, Some(facts)) = record? else { continue };
            if let Some(draft) = facts.users.first().and_then(|user| all.get_mut(&user.series)) {
                draft.container(&facts);
            }
        }
        let table: TableView<ContainerExtents> = TableView::new(io.clone(), &runs, LookupOptions::default());
        for draft in all.values_mut() {
            for names in draft.names().chunks(BATCH) {
                for (name, extents) in names.iter().zip(io.executor.block_on(table.get(names))?) {
                    draft.extents(name, extents.as_ref());
                }
            }
        }
        Ok(all)
    };
    Executor::threads().run(repository, read).await
}

/// The series of these versions, from the manifest of the index, and from the manifests of versions
/// that it does not know.
async fn drafts(
    repository: &Repository,
    versions: &[&Version],
    snapshot: &IndexSnapshot,
) -> Result<BTreeMap<SeriesKey, Draft>, RepositoryError> {
    let mut all = with_versions(versions, snapshot);
    let place = |version: &Version| all.get(&version.series)?.place_of_unknown(version);
    let unknown: Vec<(&Version, usize)> =
        versions.iter().filter_map(|version| Some((*version, place(version)?))).collect();
    let versions = unknown.iter().map(|(version, _)| *version);
    let mut manifests = pin!(repository.manifests(versions, ManifestWindow::default()));
    let mut names = unknown.iter();
    while let (Some((version, place)), Some(manifest)) = (names.next(), manifests.next().await) {
        if let Some(draft) = all.get_mut(&version.series) {
            draft.name(*place, &manifest?.containers);
        }
    }
    Ok(all)
}

fn with_versions(versions: &[&Version], snapshot: &IndexSnapshot) -> BTreeMap<SeriesKey, Draft> {
    let rows: HashMap<_, _> = snapshot.manifest.versions.iter().map(|row| ((row.series, row.job), row)).collect();
    let by_id: HashMap<_, _> = versions.iter().map(|version| ((version.series, version.id()), *version)).collect();
    let since = |version: &Version| {
        let arranged = |id| rows.get(&(version.series, id)).filter(|row| row.is_arranged).map(|row| row.number);
        let bases = |id| by_id.get(&(version.series, id)).and_then(|version| bases_of(version));
        oldest_arranged_base(version.id(), arranged, bases)
    };
    let mut all: BTreeMap<SeriesKey, Vec<(CategorizedVersion, Option<u32>)>> = BTreeMap::new();
    let mut next = snapshot.manifest.head.next_version.max(1);
    let mut versions = versions.to_vec();
    versions.sort_by_key(|version| version.id());
    for version in &versions {
        // A row of another generation does not apply to this one.
        let row = rows.get(&(version.series, version.id())).filter(|row| row.generation == version.generation);
        let (number, progress) = match row {
            Some(row) if row.is_arranged => (row.number, Progress::Arranged),
            Some(row) => (row.number, Progress::Ingested),
            None => {
                next = next.saturating_add(1);
                (next - 1, Progress::Committed)
            }
        };
        let categorized = CategorizedVersion { id: version.id(), number, progress };
        all.entry(version.series).or_default().push((categorized, since(version)));
    }
    all.into_iter().map(|(series, versions)| (series, Draft::new(snapshot.number, series, versions))).collect()
}

/// The versions with which a version may share containers; `None` when they are unknown.
fn bases_of(version: &Version) -> Option<Vec<JobId>> {
    // The job that rewrote it may have shared containers of others too.
    let Version { summary: Summary { base, more_bases, .. }, generation: 0, .. } = version else { return None };
    Some(base.iter().chain(more_bases).copied().collect())
}

/// The lowest number of an arranged version on which a version is built, directly or through
/// versions that were not arranged. `None` when there is none, or when one of these is unknown:
/// then it may use anything.
pub(super) fn oldest_arranged_base(
    version: JobId,
    arranged: impl Fn(JobId) -> Option<u32>,
    bases: impl Fn(JobId) -> Option<Vec<JobId>>,
) -> Option<u32> {
    let (mut seen, mut waiting, mut oldest) = (HashSet::new(), bases(version)?, None);
    while let Some(base) = waiting.pop() {
        if !seen.insert(base) {
            continue;
        }
        match arranged(base) {
            Some(number) => oldest = Some(oldest.map_or(number, |oldest: u32| oldest.min(number))),
            None => waiting.extend(bases(base)?),
        }
    }
    oldest
}

/// Extents that have the same fate: their container, category, whether arranged versions count, and
/// the versions that name it.
type PieceKey = (usize, Category, bool, usize);

/// Categories that are being read: containers first, then the extents of each.
#[derive(Debug)]
pub(super) struct Draft {
    index: u64,
    series: SeriesKey,
    versions: Vec<CategorizedVersion>,
    /// For versions that were not arranged, the number of the oldest arranged one that they are
    /// built on, if all are known. Of arranged data they use only what one of these uses.
    since: Vec<Option<u32>>,
    containers: BTreeMap<ContainerId, Known>,
    /// Containers that versions outside the index name.
    named: HashMap<ContainerId, BTreeSet<usize>>,
    /// Containers with extents of others. They are no names.
    moved_to: HashSet<ContainerId>,
    /// Containers without records of extents.
    as_written: Vec<ContainerId>,
    places: Vec<Place>,
    numbers: HashMap<ContainerId, usize>,
    sets: Vec<BTreeSet<usize>>,
    set_numbers: HashMap<BTreeSet<usize>, usize>,
    pieces: BTreeMap<PieceKey, (u64, u64)>,
}

/// The facts about a container.
#[derive(Debug, Clone)]
struct Known {
    first: u32,
    last: Last,
    lifespans: Vec<Lifespan>,
    is_there: bool,
    bytes: u64,
    object_bytes: u64,
}

impl Draft {
    pub(super) fn new(index: u64, series: SeriesKey, mut versions: Vec<(CategorizedVersion, Option<u32>)>) -> Self {
        versions.sort_by_key(|(version, _)| version.number);
        let (versions, since) = versions.into_iter().unzip();
        Self {
            index,
            series,
            versions,
            since,
            containers: BTreeMap::new(),
            named: HashMap::new(),
            moved_to: HashSet::new(),
            as_written: Vec::new(),
            places: Vec::new(),
            numbers: HashMap::new(),
            sets: Vec::new(),
            set_numbers: HashMap::new(),
            pieces: BTreeMap::new(),
        }
    }

    /// The place of a version among the others, if no index knows it.
    fn place_of_unknown(&self, version: &Version) -> Option<usize> {
        let is_it = |known: &CategorizedVersion| known.id == version.id() && known.progress == Progress::Committed;
        self.versions.iter().position(is_it)
    }

    /// A version that no index knows names these containers.
    pub(super) fn name(&mut self, version: usize, containers: &[ContainerUsage]) {
        let number = self.versions[version].number;
        for usage in containers.iter().filter(|usage| usage.container.kind == ContainerKind::Data) {
            self.named.entry(usage.container).or_default().insert(version);
            // Until the index is read: a container that this version was the first to store.
            let known = self.containers.entry(usage.container).or_insert(Known {
                first: number,
                last: Last::Open,
                lifespans: Vec::new(),
                is_there: true,
                bytes: usage.bytes_held,
                object_bytes: usage.object_bytes,
            });
            known.first = known.first.min(number);
        }
    }

    /// The index has this about a container.
    pub(super) fn container(&mut self, facts: &ContainerFacts) {
        let user = facts.users.iter().find(|user| user.series == self.series);
        let is_data = facts.id.kind == ContainerKind::Data && facts.layout == Layout::Lifecycle;
        let Some(user) = user.filter(|_| is_data) else { return };
        let (Some(first), Some(last)) = (user.lifespans.first(), user.lifespans.last()) else { return };
        let known = Known {
            first: first.first,
            last: last.last.into(),
            lifespans: user.lifespans.clone(),
            is_there: facts.state == ContainerState::Live,
            bytes: facts.bytes,
            object_bytes: facts.object_bytes,
        };
        self.containers.insert(facts.id, known);
    }

    /// All containers, in the order in which the records of their extents are.
    pub(super) fn names(&self) -> Vec<ContainerId> {
        self.containers.keys().copied().collect()
    }

    /// The index has this record of a container's extents.
    pub(super) fn extents(&mut self, name: &ContainerId, extents: Option<&Extents>) {
        let Some(extents) = extents else {
            self.as_written.push(*name);
            return;
        };
        let Some(known) = self.containers.get(name).cloned() else { return };
        let naming = self.versions_naming(name, &known, |progress| progress != Progress::Arranged);
        let mut sets: BTreeMap<Last, usize> = BTreeMap::new();
        for Extent { length, last, to, .. } in &extents.0 {
            let place = to.map_or(*name, |(container, _)| container);
            if place != *name {
                self.moved_to.insert(place);
            }
            let last = Last::from(*last);
            let set = match sets.get(&last) {
                Some(set) => *set,
                None => {
                    let may_use =
                        |version: &&usize| self.since[**version].is_none_or(|since| Last::Version(since) <= last);
                    let versions = naming.iter().filter(may_use).copied().collect();
                    *sets.entry(last).or_insert(self.set(versions))
                }
            };
            self.add(place, Category { first: known.first, last }, true, set, u64::from(*length));
        }
    }

    /// Versions that name a container, among those that passes have processed.
    fn versions_naming(&self, name: &ContainerId, known: &Known, counts: impl Fn(Progress) -> bool) -> BTreeSet<usize> {
        let by_manifest = self.named.get(name);
        let names = |(place, version): &(usize, &CategorizedVersion)| match version.progress {
            Progress::Committed => by_manifest.is_some_and(|versions| versions.contains(place)),
            _ => known.lifespans.iter().any(|lifespan| lifespan.contains(version.number)),
        };
        let versions = self.versions.iter().enumerate().filter(|(_, version)| counts(version.progress));
        versions.filter(names).map(|(place, _)| place).collect()
    }

    fn set(&mut self, set: BTreeSet<usize>) -> usize {
        let next = self.sets.len();
        let number = *self.set_numbers.entry(set.clone()).or_insert(next);
        if number == next {
            self.sets.push(set);
        }
        number
    }

    fn add(&mut self, place: ContainerId, category: Category, is_arranged: bool, named_by: usize, bytes: u64) {
        let next = self.places.len();
        let number = *self.numbers.entry(place).or_insert(next);
        if number == next {
            // An unknown container has no size: it was collected during the reading.
            let (bytes, object_bytes) =
                self.containers.get(&place).map_or((0, 0), |known| (known.bytes, known.object_bytes));
            self.places.push(Place { bytes, object_bytes });
        }
        let (sum, extents) = self.pieces.entry((number, category, is_arranged, named_by)).or_default();
        *sum += bytes;
        *extents += 1;
    }

    pub(super) fn finish(mut self) -> Categories {
        for name in std::mem::take(&mut self.as_written) {
            let Some(known) = self.containers.get(&name).filter(|known| known.is_there).cloned() else { continue };
            if !self.moved_to.contains(&name) {
                let versions = self.versions_naming(&name, &known, |_| true);
                let set = self.set(versions);
                self.add(name, Category { first: known.first, last: known.last }, false, set, known.bytes);
            }
        }
        let known: BTreeSet<u32> = self
            .versions
            .iter()
            .map(|version| version.number)
            .chain(self.containers.values().map(|known| known.first))
            .collect();
        // Between two versions of a series there may be those of others. The last user is of this
        // series.
        let of_series = |last: Last| match last {
            Last::Version(last) => Last::Version(known.range(..=last).next_back().copied().unwrap_or(last)),
            Last::Open => Last::Open,
        };
        let pieces = self.pieces.iter().map(|((place, category, is_arranged, named_by), (bytes, extents))| Piece {
            place: *place,
            category: Category { last: of_series(category.last), ..*category },
            is_arranged: *is_arranged,
            named_by: *named_by,
            bytes: *bytes,
            extents: *extents,
        });
        let pieces = pieces.collect();
        let Self { index, versions, places, sets, .. } = self;
        Categories { index, versions, places, pieces, sets }
    }
}

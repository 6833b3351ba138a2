//! Whether an index agrees with its containers and versions.
//!
//! Reads every manifest and the tables of every container. For tests, for `repair index --dry-run`,
//! and for users in doubt. Nothing is changed. An index may lag. Versions that it does not have
//! yet, and forgotten ones that it still has, are counted and are no finding.
//!
//! # Proved facts
//! * Every version that the index has uses exactly the containers whose lifespans hold its number.
//! * The index has the facts of a container's own table; no container has two numbers.
//! * Retired containers forward to containers that are there, and that were not retired.
//! * A container that versions of both layouts use is stored whole.
//! * In the layout `lifecycle`, the data of retained versions is in containers that are there.
//! * Every container that the index has can be read. For one that cannot, the versions that need it
//!   are reported.
//! * Every chunk of every one of these containers is listed, once, and every listed chunk is there
//!   (`copies`). For a container that cannot be read, only that is reported. Those that the index
//!   says it could not read are counted: the next pass lists their chunks.

mod copies;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::StreamExt;
use larder_format::ids::{ContainerId, ContainerKind, JobId, SeriesKey};
use larder_format::index_manifest::{IndexedVersion, VersionState};
use larder_format::index_tables::{ChunkKey, ContainerFacts, ContainerState, SeriesLifespans};
use larder_format::layout::Layout;
use larder_format::lease::Pin;
use larder_format::manifest::{ContainerUsage, Register};
use larder_format::names;
use larder_index::{Containers, IndexError, IndexPass, IndexSnapshot, LookupOptions, TableView};
use larder_job::{Cancel, NoProgress, Progress};
use larder_lifecycle::extents_check::compare_extents;

use crate::lifespans::{Numbers, is_used};

/// Above this number of findings, only their number is kept.
const KEPT_MAX: usize = 1000;
/// Manifests that are read at once.
const MANIFESTS_AHEAD: usize = 4;

/// One way in which an index is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexFinding {
    /// A version uses a container and the index does not say so.
    #[error("snapshot {} uses {container}, and the index does not know it", version.job)]
    UseUnknown {
        /// The version.
        version: Pin,
        /// Name of the container.
        container: String,
    },
    /// The index has a version that was not forgotten, and its manifest is gone.
    #[error("{name} is missing, and nobody has forgotten that snapshot")]
    ManifestLost {
        /// The version.
        version: Pin,
        /// The manifest that the index ingested.
        name: String,
    },
    /// A container was retired or arranged away although a version of the other layout uses it.
    #[error("snapshot {} uses {container}, which is of another layout and was retired", version.job)]
    LayoutsMixed {
        /// The version.
        version: Pin,
        /// Name of the container.
        container: String,
    },
    /// The index says that a version uses a container, which it does not.
    #[error("the index says that snapshot {} uses {container}", version.job)]
    NotUsed {
        /// The version.
        version: Pin,
        /// Name of the container.
        container: String,
    },
    /// One container has two numbers.
    #[error("{container} has the numbers {first} and {second} in the index")]
    TwoNumbers {
        /// Name of the container.
        container: String,
        /// One number.
        first: u32,
        /// The other.
        second: u32,
    },
    /// A container that the index has cannot be read, or is gone.
    #[error("{container} is in the index and cannot be read: {reason}{}", NeededBy(needed_by))]
    ContainerUnreadable {
        /// Its name.
        container: String,
        /// Why not.
        reason: String,
        /// The first versions that need it, because they name it or because chunks that they name
        /// were moved there.
        needed_by: Vec<JobId>,
    },
    /// The index disagrees with the table of the container.
    #[error("{container} does not hold what the index says")]
    WrongFacts {
        /// Its name.
        container: String,
    },
    /// A chunk of a container is not listed.
    #[error("chunk {chunk} of {container} is not in the index")]
    ChunkUnknown {
        /// Name of the container.
        container: String,
        /// Its number there.
        chunk: u32,
    },
    /// The index names a place where the chunk is not.
    #[error("the index names chunk {chunk} of {container}, which is another")]
    WrongPlace {
        /// Name of the container.
        container: String,
        /// The number there.
        chunk: u32,
        /// The chunk that should be there.
        key: ChunkKey,
    },
    /// Chunks of a container that was retired are said to be in one that is not there.
    #[error("{container} was redirected to container {forward} of the index, which is not there")]
    ForwardGone {
        /// Name of the container that was retired.
        container: String,
        /// Number of the other one.
        forward: u32,
    },
    /// Bytes that a retained version uses are said to be in a container that is not there, or that
    /// is too short.
    #[error("bytes of {container} are said to be in {place}, which does not have them")]
    ExtentGone {
        /// Name of the container in which they were stored first.
        container: String,
        /// Name of the other one.
        place: String,
    },
    /// A copy is listed twice, or listed and retired.
    #[error("chunk {chunk} of {container} is in the index twice")]
    ListedTwice {
        /// Name of the container.
        container: String,
        /// Its number there.
        chunk: u32,
    },
}

/// Beyond this number of versions, only their number is kept.
const NEEDED_BY_MAX: usize = 20;

/// Versions that need something, in words.
struct NeededBy<'a>(&'a [JobId]);

impl std::fmt::Display for NeededBy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, id) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "; needed by snapshot " } else { ", " })?;
            write!(f, "{}", id.short())?;
        }
        if self.0.len() >= NEEDED_BY_MAX { f.write_str(" and perhaps others") } else { Ok(()) }
    }
}

/// The result of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexCheck {
    /// Versions that were compared.
    pub versions: u64,
    /// Versions that the index does not have in their newest generation.
    pub not_ingested: u64,
    /// Versions that the index has, and that are forgotten or gone.
    pub outlived: u64,
    /// Containers.
    pub containers: u64,
    /// Chunks in them.
    pub chunks: u64,
    /// Different chunks.
    pub different_chunks: u64,
    /// Chunks that are stored, and whose entry names a container without a record: the next sweep
    /// corrects them.
    pub waiting: u64,
    /// Containers that the index has and that cannot be read. Each is a finding too.
    pub unreadable: u64,
    /// Containers whose chunks the index does not list yet, because they could not be read when a
    /// pass first saw them, and that can be read now: the next pass lists them.
    pub unlisted: u64,
    /// The number of findings.
    pub count: u64,
    /// The first of them.
    pub disagreements: Vec<IndexFinding>,
}

impl IndexCheck {
    fn found(&mut self, disagreement: IndexFinding) {
        self.count += 1;
        if self.disagreements.len() < KEPT_MAX {
            self.disagreements.push(disagreement);
        }
    }
}

/// Compares an index with all its versions and containers. Memory: the records of all containers,
/// and the pass's. Blocks on the pass's runtime.
pub fn index_check(pass: &IndexPass, index: &IndexSnapshot) -> Result<IndexCheck, IndexError> {
    // No caller stops it, so it is never left unfinished.
    Ok(index_check_watched(pass, index, &NoProgress, &Cancel::default())?.unwrap_or_default())
}

/// The same, with progress in bytes of containers; `None` when it was asked to stop.
pub(crate) fn index_check_watched(
    pass: &IndexPass,
    index: &IndexSnapshot,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<Option<IndexCheck>, IndexError> {
    let mut check = IndexCheck::default();
    let table: TableView<Containers> = TableView::new(pass.io.clone(), &index.manifest.runs, LookupOptions::default());
    let mut containers: BTreeMap<u32, ContainerFacts> = BTreeMap::new();
    let mut numbers: HashMap<ContainerId, u32> = HashMap::new();
    for record in table.scan(0..=u64::MAX, pass.memory / 4) {
        let (number, facts) = record?;
        let Some(facts) = facts else { continue };
        if let Some(first) = numbers.insert(facts.id, number) {
            let container = names::container(facts.id);
            check.found(IndexFinding::TwoNumbers { container, first, second: number });
        }
        containers.insert(number, facts);
    }
    check.containers = containers.len() as u64;
    compare_versions(pass, index, &containers, &mut check)?;
    let mut retained = Numbers::new();
    for version in index.manifest.versions.iter().filter(|version| version.state == VersionState::Retained) {
        retained.entry(version.series).or_default().insert(version.number);
    }
    // Of the layout `lifecycle` the extents say it. A container that is there only as a target of
    // forwards may itself forward to one that is gone.
    let forwarding = |facts: &&ContainerFacts| facts.layout == Layout::Standard && is_used(facts, &retained);
    for facts in containers.values().filter(forwarding) {
        let is_there = |forward: &u32| containers.get(forward).is_some_and(|to| to.state == ContainerState::Live);
        for forward in facts.forwards.iter().filter(|forward| !is_there(forward)) {
            let container = names::container(facts.id);
            check.found(IndexFinding::ForwardGone { container, forward: *forward });
        }
    }
    compare_extents(pass, index, &containers, |container, place| {
        let (container, place) = (names::container(container), names::container(place));
        check.found(IndexFinding::ExtentGone { container, place });
    })?;
    let needs = Needs::of(index, containers.values().filter(forwarding));
    containers.retain(|_, facts| facts.state == ContainerState::Live);
    progress.expect(0, containers.values().map(|facts| facts.object_bytes).sum());
    progress.expectation_is_complete();
    let finished = copies::compare(pass, index, containers, &needs, &mut check, progress, cancel)?;
    Ok(finished.then_some(check))
}

/// Which versions need which containers.
struct Needs {
    /// Versions that are retained: series, number, id.
    versions: Vec<(SeriesKey, u32, JobId)>,
    /// The users of moved chunks, by the numbers of the containers that have them now.
    moved: HashMap<u32, Vec<Vec<SeriesLifespans>>>,
}

impl Needs {
    /// `moved` are containers that versions use and that forward to others.
    fn of<'a>(index: &IndexSnapshot, moved: impl Iterator<Item = &'a ContainerFacts>) -> Self {
        let retained = index.manifest.versions.iter().filter(|version| version.state == VersionState::Retained);
        let versions = retained.map(|version| (version.series, version.number, version.job)).collect();
        let mut users: HashMap<u32, Vec<Vec<SeriesLifespans>>> = HashMap::new();
        for facts in moved {
            for forward in &facts.forwards {
                users.entry(*forward).or_default().push(facts.users.clone());
            }
        }
        Self { versions, moved: users }
    }

    /// The first of the versions that need a container.
    fn needed_by(&self, number: u32, facts: &ContainerFacts) -> Vec<JobId> {
        let moved = self.moved.get(&number).into_iter().flatten();
        let users: Vec<&SeriesLifespans> = facts.users.iter().chain(moved.flatten()).collect();
        let needs = |(series, version, _): &&(SeriesKey, u32, JobId)| {
            let mut of_series = users.iter().filter(|user| user.series == *series).flat_map(|user| &user.lifespans);
            of_series.any(|span| span.contains(*version))
        };
        self.versions.iter().filter(needs).map(|(_, _, id)| *id).take(NEEDED_BY_MAX).collect()
    }
}

/// Compares lifespans with container tables.
fn compare_versions(
    pass: &IndexPass,
    index: &IndexSnapshot,
    containers: &BTreeMap<u32, ContainerFacts>,
    check: &mut IndexCheck,
) -> Result<(), IndexError> {
    let (repository, runtime) = (&pass.io.repository, &pass.io.executor);
    let (registers, marks) = runtime.block_on(async {
        let marks = repository.list_marks().await?;
        Ok::<_, IndexError>((repository.list_registers().await?, marks))
    })?;
    let of_pin = |version: &IndexedVersion| Pin { series: version.series, job: version.job };
    let rows = index.manifest.versions.iter().filter(|version| version.state == VersionState::Retained);
    let rows: HashMap<Pin, IndexedVersion> = rows.map(|version| (of_pin(version), *version)).collect();
    let mut compared = BTreeSet::new();
    let wanted = registers.iter().filter(|(pin, generations)| !marks.contains(pin) && generations.contains(&0));
    let reads = wanted.map(|(pin, generations)| async move { (*pin, newest(repository, *pin, generations).await) });
    let mut reads = futures::stream::iter(reads).buffered(MANIFESTS_AHEAD);
    while let Some((pin, read)) = runtime.block_on(reads.next()) {
        let Some((generation, used)) = read? else { continue };
        match rows.get(&pin) {
            Some(row) if row.generation == generation => {
                compared.insert(pin);
                let first_told = index.manifest.head.rebuilt.unwrap_or(0);
                compare_version(pin, *row, &used, containers, first_told, check);
            }
            _ => check.not_ingested += 1,
        }
    }
    for (pin, row) in rows.iter().filter(|(pin, _)| !compared.contains(*pin) && !marks.contains(*pin)) {
        let generations = registers.get(pin).map_or(&[][..], Vec::as_slice);
        if generations.first() != Some(&0) || generations.last() < Some(&row.generation) {
            let name = names::version(pin.series, pin.job, row.generation);
            check.found(IndexFinding::ManifestLost { version: *pin, name });
        }
    }
    check.versions = compared.len() as u64;
    check.outlived = (rows.len() - compared.len()) as u64;
    Ok(())
}

/// The containers of the newest generation that holds a manifest; `None` when there is none that
/// opens.
async fn newest(
    repository: &larder_store::Repository,
    pin: Pin,
    generations: &[u32],
) -> Result<Option<(u32, Vec<ContainerUsage>)>, IndexError> {
    for generation in generations.iter().rev() {
        match repository.read_register(pin, *generation).await {
            Ok(Some(Register::Committed(manifest))) => return Ok(Some((*generation, manifest.containers))),
            Ok(Some(Register::Aborted) | None) => {}
            Err(error) if error.is_of_object() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn compare_version(
    pin: Pin,
    IndexedVersion { number, layout, .. }: IndexedVersion,
    used: &[ContainerUsage],
    containers: &BTreeMap<u32, ContainerFacts>,
    first_told: u32,
    check: &mut IndexCheck,
) {
    let holds = |facts: &&ContainerFacts| {
        let spans = facts.users.iter().filter(|user| user.series == pin.series).flat_map(|user| &user.lifespans);
        spans.into_iter().any(|span| span.contains(number))
    };
    let held: HashMap<ContainerId, &ContainerFacts> =
        containers.values().filter(holds).map(|facts| (facts.id, facts)).collect();
    for usage in used {
        match held.get(&usage.container) {
            None => {
                let container = names::container(usage.container);
                check.found(IndexFinding::UseUnknown { version: pin, container });
            }
            Some(facts) => {
                let is_data = usage.container.kind == ContainerKind::Data;
                if is_data && facts.layout != layout && facts.state != ContainerState::Live {
                    let container = names::container(usage.container);
                    check.found(IndexFinding::LayoutsMixed { version: pin, container });
                }
                let said = (facts.chunks, facts.bytes, facts.object_bytes);
                if said != (usage.chunks_held, usage.bytes_held, usage.object_bytes) {
                    let container = names::container(usage.container);
                    check.found(IndexFinding::WrongFacts { container });
                }
            }
        }
    }
    let used: BTreeSet<ContainerId> = used.iter().map(|usage| usage.container).collect();
    // A container with moved chunks is kept for their versions too. So one is unused only if no
    // chunk was moved from it or to it. It is unknown for which versions a rebuilt index keeps
    // containers (`RebuiltKeepsCopies`).
    let is_moved_to: BTreeSet<u32> = containers.values().flat_map(|facts| facts.forwards.iter().copied()).collect();
    for (number, facts) in containers.range(first_told..) {
        if holds(&facts) && !used.contains(&facts.id) && !is_moved_to.contains(number) {
            let container = names::container(facts.id);
            check.found(IndexFinding::NotUsed { version: pin, container });
        }
    }
}

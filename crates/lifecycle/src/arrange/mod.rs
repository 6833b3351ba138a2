//! Arranging: moves chunks of series in the layout `lifecycle` so that those that the same versions
//! need are together (MFDedup section 3.3, AVAR). `docs/lifecycle.md` explains extents, categories
//! and volumes.
//!
//! Called by a pass, in the draft of its index, after it ingested new versions. Readers see no
//! change before the index is published. Then the retired containers may be deleted, as in
//! `reclaim`.
//!
//! * `series`: the index's knowledge of one series: its containers, and the records of their
//!   extents.
//! * `series_changes`: which series have something to arrange.
//! * `references`: which stretches of containers new versions use.
//! * `classify`: the last version that needs each stretch. Pure.
//! * `places`: the needed content of each container, summed from the extents of all names.
//! * `select`: which containers are worth retiring.
//! * `evacuate`: copies their needed extents, volume by volume.
//! * `plan`: the plan, for a dry run; changes nothing.
//! * `needs_rebuild`: the series that cannot be arranged because the index was rebuilt.
//! * `publish_extents`: the resulting table of containers.
//! * `written`: the containers that it writes. `retired`: those that may be deleted then.
//! * `container_values`: a number for each of many containers.
//!
//! A series may have more containers than memory holds. All that grows with it is sorted, or in
//! pages, within shares of the memory of the pass: at most all of it together, beside a block of
//! each sorted run.
//!
//! Invariants
//! * An extent that a retained version uses, or one that was not arranged yet, has bytes that
//!   exist. Before they are retired elsewhere, they were read, with their fingerprints.
//! * A container has a lifespan that covers those of its extents.
//! * A container that cannot be read is not retired. A series with an unreadable recipe is not
//!   changed.
//! * Nothing is read or copied from a container in cold storage. The view of the store in
//!   [`Work::context`] says whether thawed ones count as cold.
//!
//! Beyond the paper: Data that stays is not copied. A container is retired only when too much of it
//! is useless. Several versions are arranged at once, in any order of forgetting. Versions may be
//! made at the same time.

mod classify;
mod container_retention;
mod container_values;
mod evacuate;
mod needs_rebuild;
mod places;
mod plan;
mod publish_extents;
mod references;
mod retired;
mod select;
mod series;
mod series_changes;
mod written;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use larder_format::compress::Compression;
use larder_format::ids::{ByteCount, ContainerId, JobId, SeriesKey};
use larder_format::index_manifest::IndexedVersion;
use larder_format::layout::Layout;
use larder_index::{Draft, IndexError, IndexPass};
use larder_job::JobContext;
use larder_rewrite::chunk_copier::{ChunkCopier, RewriteError};
use larder_store::cold_containers::{ColdContainers, ColdLeft};
use larder_store::survey::ListedContainer;

pub use container_retention::{ArrangeError, ContainerRetention};
pub(crate) use needs_rebuild::disordered_on;
pub use needs_rebuild::needing_rebuild;
pub use plan::ArrangePlan;
pub use plan::plan;
pub use retired::RetiredContainers;
pub use series_changes::SeriesChanges;

use evacuate::Ended;
use places::Places;
use publish_extents::Publication;
use references::References;
use select::Selecting;
use series::Series;
use written::Writing;

/// How often a series begins again because one of its containers cannot be read.
const ATTEMPTS: u32 = 8;

/// How series in the layout `lifecycle` are arranged.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrangeOptions {
    /// A container is retired when more than this share of its bytes (percent) has another last
    /// version than most of it. Half of that is enough for bytes that are not needed. 0 is
    /// MFDedup's own layout. `None`: the setting of each series.
    pub holes_percent: Option<f64>,
    /// Containers are retired after this number of versions; until then only the records change.
    /// `None`: the setting of each series.
    pub every: Option<u32>,
    /// Arrange now, and also look at series without news.
    pub all: bool,
    /// How copies are compressed.
    pub compression: Compression,
}

impl Default for ArrangeOptions {
    fn default() -> Self {
        Self { holes_percent: None, every: None, all: false, compression: Compression::DEFAULT }
    }
}

/// The result of arranging.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arranged {
    /// Versions that were arranged.
    pub versions: u64,
    /// Chunks that were copied.
    pub moved_chunks: u64,
    /// Their bytes, uncompressed.
    pub moved_bytes: ByteCount,
    /// Containers that were written.
    pub written: u64,
    /// Their bytes.
    pub written_bytes: ByteCount,
    /// Containers that cannot be read, and were left as they are.
    pub unreadable: Vec<ContainerId>,
    /// Containers in cold storage, which were left as they are.
    pub cold: ColdLeft,
    /// Series that were not changed, because a recipe cannot be read or refers to missing bytes.
    pub damaged_series: u64,
    /// Whether it was told to stop: the next pass continues.
    pub was_stopped: bool,
    /// Containers that are to be deleted, and their bytes.
    pub reclaimed: u64,
    /// Bytes of those.
    pub retired_bytes: ByteCount,
    /// Whether the index newly says of a series that it was checked.
    pub(crate) has_noted: bool,
    /// The number that the pass's next container gets.
    pub next_number: u32,
}

impl Arranged {
    /// Whether it changed nothing that is worth an index.
    pub fn is_nothing(&self) -> bool {
        self.versions == 0 && self.written == 0 && self.reclaimed == 0 && !self.has_noted
    }

    /// Whether it may have written containers that no index has.
    pub fn may_have_left(&self) -> bool {
        self.was_stopped || !self.unreadable.is_empty() || self.cold.containers > 0
    }

    /// Adds a later result.
    pub fn add(&mut self, next: Self) {
        self.versions += next.versions;
        self.moved_chunks += next.moved_chunks;
        self.moved_bytes.0 += next.moved_bytes.0;
        self.written += next.written;
        self.written_bytes.0 += next.written_bytes.0;
        self.unreadable.extend(next.unreadable);
        self.cold = self.cold.or(next.cold);
        self.damaged_series = self.damaged_series.max(next.damaged_series);
        self.was_stopped |= next.was_stopped;
        self.reclaimed += next.reclaimed;
        self.retired_bytes.0 += next.retired_bytes.0;
    }
}

/// A series that is to be arranged.
#[derive(Debug, Clone)]
pub struct Unarranged {
    /// Which series.
    pub series: SeriesKey,
    /// Its versions that are retained, by rising number.
    pub versions: Vec<IndexedVersion>,
    /// Whether versions were removed that have older ones, so that some of their bytes remain.
    pub has_left: bool,
    /// Whether any versions were removed.
    pub has_lost: bool,
    /// Whether the caller asked for it.
    pub is_wanted: bool,
    /// Percent, as in [`ArrangeOptions`].
    pub holes_percent: f64,
    /// Versions, as in [`ArrangeOptions`].
    pub every: u32,
}

impl Unarranged {
    /// Whether there is something to arrange, for any limit of leftovers. After an interrupted pass
    /// no version has `is_carried`.
    pub fn is_due(&self) -> bool {
        self.has_new() || self.has_left || self.is_wanted || self.passes_since_arranged().is_none()
    }

    fn has_new(&self) -> bool {
        self.versions.iter().any(|version| !version.is_arranged)
    }

    /// The number of versions after the newest one after which containers were retired, if that is
    /// still there.
    fn passes_since_arranged(&self) -> Option<usize> {
        self.versions.iter().rev().position(|version| version.is_carried)
    }

    /// Whether containers are retired now. Otherwise new uses are only noted, which moves nothing.
    /// If no version was added, this may be the last pass for long.
    fn retires(&self) -> bool {
        let is_time = self.passes_since_arranged().is_none_or(|since| since >= self.every as usize);
        is_time || self.is_wanted || !self.has_new()
    }

    /// Numbers of versions that are to be arranged.
    fn new_numbers(&self) -> Vec<u32> {
        self.versions.iter().filter(|version| !version.is_arranged).map(|version| version.number).collect()
    }

    fn retained(&self) -> BTreeSet<u32> {
        self.versions.iter().map(|version| version.number).collect()
    }
}

/// The input.
pub struct Work {
    /// How it is done.
    pub options: ArrangeOptions,
    /// For reading and writing contents. It is asked often whether to stop.
    pub context: JobContext,
    /// Containers in cold storage, as far as the pass knows them.
    pub cold: Arc<ColdContainers>,
    /// The pass, to which new containers belong.
    pub job: JobId,
    /// The pass's knowledge of containers.
    pub retention: Box<dyn ContainerRetention>,
    /// The series to arrange.
    pub series: Vec<Unarranged>,
}

/// Arranges the series, and changes the draft. The returned containers may be deleted as soon as
/// the draft is published. The data containers that are written have numbers from `first_number`
/// on.
pub fn arrange(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    work: &Work,
    first_number: u32,
) -> Result<(Arranged, RetiredContainers), ArrangeError> {
    let mut arranged = Arranged::default();
    let mut writing = None;
    let mut publication = Publication::new(pass)?;
    for series in &work.series {
        if work.context.cancel.is_cancelled() {
            arranged.was_stopped = true;
            break;
        }
        if let Some(series) = arrange_series(pass, draft, work, series, first_number, &mut writing, &mut arranged)? {
            publication.add(pass, draft, work, series, writing.as_mut(), &mut arranged)?;
        }
    }
    if let Some(Writing { copier, .. }) = writing {
        arranged.next_number = copier.next_number();
        copier.finish()?;
    }
    let retired = publication.finish(draft, work, &mut arranged)?;
    for table in [larder_format::index_manifest::Table::Extents, larder_format::index_manifest::Table::Containers] {
        draft.merge(table)?;
    }
    let statistics = &mut draft.manifest.head.statistics;
    statistics.chunks_moved += arranged.moved_chunks;
    statistics.containers_written += arranged.written;
    statistics.bytes_written += arranged.written_bytes.0;
    Ok((arranged, retired))
}

/// `None` when it is not to be changed.
///
/// The uses by versions are noted for each of them. Containers are retired at intervals of
/// versions, in one merge. Waiting needs no stored state: until the interval is over, the pass
/// ignores holes.
fn arrange_series(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    work: &Work,
    unarranged: &Unarranged,
    first_number: u32,
    writing: &mut Option<Writing>,
    arranged: &mut Arranged,
) -> Result<Option<Series>, ArrangeError> {
    let mut series = Series::read(pass, draft, unarranged.series, &*work.retention)?;
    // Containers that are gone, or that may go at any time, cannot be relied on
    // (`RebuiltKeepsCopies`).
    if series.needs_rebuild {
        tracing::warn!(
            "a series is not arranged: the index was rebuilt, and does not know where its containers' bytes went; \
             converting it within its layout puts it in order"
        );
        return Ok(None);
    }
    let mut uses = match references::references(pass, work, unarranged) {
        Ok(References::All(uses)) => uses,
        Ok(References::Overtaken) => return Ok(None),
        Ok(References::Damaged) => {
            arranged.damaged_series += 1;
            return Ok(None);
        }
        Err(ArrangeError::ChunkCopier(RewriteError::Interrupted)) => {
            // It has not changed. The pass's knowledge of other series, and of removals, is worth
            // its index.
            arranged.was_stopped = true;
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    if !classify::classify(pass, draft, work, unarranged, &mut series, &mut uses)? {
        arranged.damaged_series += 1;
        return Ok(None);
    }
    let mut unreadable = HashSet::new();
    let mut was_cut = false;
    let retires = unarranged.retires();
    for _ in 0..if retires { ATTEMPTS } else { 0 } {
        let places = Places::read(pass, draft, &mut series)?;
        let has_class = pass.io.repository.store().has_data_class();
        let (retention, cold) = (&*work.retention, &*work.cold);
        let selecting = Selecting { unarranged, has_class, retention, unreadable: &unreadable, cold };
        let selected = selecting.all(pass, places)?;
        if selected.is_empty() {
            break;
        }
        let writing = match writing {
            Some(writing) => writing,
            None => {
                // To stop is decided between extents.
                let context = work.context.on(&pass.io.executor).uninterrupted();
                let new = ChunkCopier::new(&context, work.job, work.options.compression)?;
                writing.insert(Writing::new(pass, new.numbered_from(first_number)))
            }
        };
        match evacuate::evacuate(pass, draft, work, &mut series, &selected, writing, arranged)? {
            Ended::Done => break,
            Ended::Stopped => {
                was_cut = true;
                break;
            }
            Ended::Unreadable(container) => {
                arranged.unreadable.push(container);
                unreadable.insert(container);
            }
            Ended::Cold(containers) => {
                pass.io.executor.block_on(work.cold.look(&work.context.repository)).map_err(IndexError::from)?;
                for id in containers {
                    let bytes = selected.get(&id)?.unwrap_or(0);
                    work.cold.meet(ListedContainer { id, bytes }).map_err(container_values::spilled)?;
                }
            }
        }
    }
    arranged.was_stopped |= was_cut;
    arranged.has_noted |= unarranged.passes_since_arranged().is_none() && !was_cut;
    let newest = unarranged.versions.last().map(|version| version.number);
    for version in draft.manifest.versions.iter_mut().filter(|version| version.series == unarranged.series) {
        if version.layout != Layout::Lifecycle {
            continue;
        }
        arranged.versions += u64::from(!version.is_arranged);
        version.is_arranged = true;
        if was_cut {
            // The next pass continues in any case.
            version.is_carried = false;
        } else if retires {
            version.is_carried = Some(version.number) == newest;
        }
    }
    Ok(Some(series))
}

fn interrupted() -> ArrangeError {
    ArrangeError::ChunkCopier(RewriteError::Interrupted)
}

//! Reclaiming: removes chunks that are stored twice, or that no version needs, although retained
//! versions name their containers. It covers reverse deduplication (SlimStore section V-A), stale
//! containers (section VI) and exact collection.
//!
//! Containers never change. A container is retired as a whole if no newest version uses it and
//! enough of it is useless. The table of chunks then names another copy of its needed chunks, or a
//! new one. Once that index is published, any pass may delete the container. Readers of the
//! versions that name it find its chunks through the index, in one hop. Called by a pass, in the
//! draft of its index, after the chunks of new containers are listed.
//!
//! * `eligibility`: which containers may be retired, and which may be redirect targets. The rules
//!   of "What tasks that move chunks must obey" (`docs/concurrency.md`) are kept there.
//! * `copies`: every chunk with all its copies.
//! * `mark`: every chunk that retained versions name, for exact collection.
//! * `select`: how much of each container is useless, and which are worth retiring.
//! * `chunk_fates`: the new place of each chunk of a container that goes.
//! * `evacuate`: reads and checks copies, and makes new ones.
//! * `tables`: the changes in the index.
//! * `exact_trigger`: when to search for unneeded chunks. Pure.
//!
//! Invariants
//! * A chunk that a retained version needs has a copy at every moment. That copy was read and had
//!   its fingerprint, and the index keeps its container as long as the version.
//! * A record of a retired container forwards only to containers that exist and were not retired
//!   (`OneHop`).
//! * A container that cannot be read is neither retired nor a redirect target.

mod chunk_fates;
pub(crate) mod copies;
mod eligibility;
mod evacuate;
mod exact_trigger;
mod mark;
mod prove;
mod select;
mod tables;

use std::collections::HashSet;
use std::sync::Arc;

use larder_format::ErrorKind;
use larder_format::compress::Compression;
use larder_format::ids::{ByteCount, ContainerId, JobId};
use larder_format::index_manifest::Table;
use larder_format::lease::Pin;
use larder_index::{Draft, IndexError, IndexPass};
use larder_job::JobContext;
use larder_lifecycle::arrange::ArrangeError;
use larder_reader::ShareMarks;
use larder_rewrite::chunk_copier::{ChunkCopier, RewriteError, ShareCopies, SharedCopying};
use larder_store::RepositoryError;
use larder_store::cold_containers::{ColdContainers, ColdLeft};
use larder_store::survey::ListedContainer;

pub(crate) use eligibility::RetentionView;
pub(crate) use exact_trigger::Search;

use eligibility::Eligibility;
use evacuate::Ended;
use prove::Proved;
use select::Selection;

use crate::spilled::spilled;

/// How often a pass begins again because a container that it relied on cannot be read.
const ATTEMPTS: u32 = 8;

/// How many useless bytes may stay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unused {
    /// A container is retired when at least this percentage of its bytes is useless.
    OfContainer(u8),
    /// The same, but nothing is retired for other copies before a tenth of all data is useless.
    WhenMuch {
        /// The percentage of a container.
        container: u8,
    },
    /// The worst go first, until at most this percentage of all containers together is useless.
    OfRepository(f64),
}

/// When all recipes are read to find unneeded chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exact {
    /// Never: chunks are retired for other copies only.
    Never,
    /// When many versions were forgotten since the last time.
    WhenWorth,
    /// Now.
    Always,
}

/// How containers are retired.
#[derive(Debug, Clone, PartialEq)]
pub struct ReclaimOptions {
    /// How much may stay.
    pub unused: Unused,
    /// When to search for unneeded chunks.
    pub exact: Exact,
    /// Bytes that are copied at most, uncompressed.
    pub max_rewrite: Option<u64>,
    /// How copies are compressed.
    pub compression: Compression,
}

impl Default for ReclaimOptions {
    fn default() -> Self {
        Self {
            unused: Unused::OfContainer(20),
            exact: Exact::WhenWorth,
            max_rewrite: None,
            compression: Compression::DEFAULT,
        }
    }
}

/// The plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReclaimPlan {
    /// Containers.
    pub containers: u64,
    /// Their bytes, as stored.
    pub container_bytes: ByteCount,
    /// Bytes in them, uncompressed, that are needed and have no other copy: about the number that
    /// is copied.
    pub copied_bytes: ByteCount,
    /// Useless bytes in all containers, whether they go or not: an estimate.
    pub unused_bytes: ByteCount,
    /// Bytes in all containers.
    pub data_bytes: ByteCount,
    /// Whether all recipes were read to find unneeded chunks.
    pub is_exact: bool,
    /// Whether nothing goes because too little is useless ([`Unused::WhenMuch`]).
    pub waits: bool,
}

impl ReclaimPlan {
    /// Adds a later plan.
    pub(crate) fn add(&mut self, next: Self) {
        self.containers += next.containers;
        self.container_bytes.0 += next.container_bytes.0;
        self.copied_bytes.0 += next.copied_bytes.0;
        self.unused_bytes = next.unused_bytes;
        self.data_bytes = next.data_bytes;
        self.is_exact |= next.is_exact;
        self.waits = next.waits;
    }
}

/// The result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReclaimReport {
    /// The plan.
    pub plan: ReclaimPlan,
    /// Chunks that are found in existing containers.
    pub redirected_chunks: u64,
    /// Chunks that were copied.
    pub copied_chunks: u64,
    /// Bytes of those, uncompressed.
    pub copied_bytes: ByteCount,
    /// Of these, bytes in frames that were copied as they were compressed.
    pub whole_bytes: ByteCount,
    /// Chunks that no version needs.
    pub dropped_chunks: u64,
    /// Containers that were written.
    pub written: u64,
    /// Their bytes.
    pub written_bytes: ByteCount,
    /// Containers that cannot be read, and were left out.
    pub unreadable: Vec<ContainerId>,
    /// Containers in cold storage that were left out.
    pub cold: ColdLeft,
    /// Whether it was told to stop: its work until then counts, and the next pass continues.
    pub was_stopped: bool,
    /// How much of the searched chunks stays.
    pub(crate) remains: Remains,
    /// The number that the next data container of its pass gets.
    pub(crate) next_number: u32,
    /// Whether workers may have written containers that the index does not get.
    pub(crate) may_have_others: bool,
    /// Those that are to be deleted.
    pub(crate) containers: Vec<ListedContainer>,
}

/// How many unneeded chunks stay after a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Remains {
    /// Too little to be worth it.
    #[default]
    Few,
    /// Much, in containers that cannot go for now: newest versions or running jobs may use them.
    Much,
    /// No more was to be copied this time.
    Unfinished,
}

impl ReclaimReport {
    /// Adds a later result.
    pub(crate) fn add(&mut self, next: Self) {
        self.plan.add(next.plan);
        self.redirected_chunks += next.redirected_chunks;
        self.copied_chunks += next.copied_chunks;
        self.copied_bytes.0 += next.copied_bytes.0;
        self.whole_bytes.0 += next.whole_bytes.0;
        self.dropped_chunks += next.dropped_chunks;
        self.written += next.written;
        self.written_bytes.0 += next.written_bytes.0;
        self.unreadable.extend(next.unreadable);
        self.cold = self.cold.or(next.cold);
        (self.was_stopped, self.remains) = (next.was_stopped, next.remains);
        self.may_have_others |= next.may_have_others;
        self.containers.extend(next.containers);
    }
}

/// Containers could not be retired. Nothing was.
#[derive(Debug, thiserror::Error)]
pub enum ReclaimError {
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Copying failed.
    #[error(transparent)]
    ChunkCopier(#[from] RewriteError),
}

impl ReclaimError {
    /// The action that a caller can take.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Index(error) => error.kind(),
            Self::ChunkCopier(error) => error.kind(),
        }
    }
}

impl From<ArrangeError> for ReclaimError {
    fn from(error: ArrangeError) -> Self {
        match error {
            ArrangeError::Index(error) => Self::Index(error),
            ArrangeError::ChunkCopier(error) => Self::ChunkCopier(error),
        }
    }
}

impl From<RepositoryError> for ReclaimError {
    fn from(error: RepositoryError) -> Self {
        Self::Index(error.into())
    }
}

/// Gives parts of passes to other processes: segments of recipes to read, and chunks to verify and
/// to copy.
pub trait SharePass: ShareMarks + ShareCopies {}

impl<T: ShareMarks + ShareCopies> SharePass for T {}

/// The input.
pub(crate) struct Work {
    pub(crate) options: ReclaimOptions,
    /// For reading and writing contents. It is asked often whether to stop.
    pub(crate) context: JobContext,
    /// Containers in cold storage, as far as the pass knows them.
    pub(crate) cold: Arc<ColdContainers>,
    /// The pass, to which new containers belong.
    pub(crate) job: JobId,
    pub(crate) retention: RetentionView,
    /// Every generation of every retained version, if their needs are to be found exactly.
    pub(crate) walks: Option<Vec<(Pin, u32)>>,
    /// Whether it is time for that search, for notes in the next index.
    pub(crate) search: Search,
    /// Gives segments and chunks to workers. `None`: this process does all alone.
    pub(crate) sharing: Option<Arc<dyn SharePass>>,
    /// The number of the index that the pass is to publish.
    pub(crate) turn: u64,
}

/// The containers that are worth retiring. Changes nothing.
pub(crate) fn plan(pass: &IndexPass, draft: &Draft<'_>, work: &Work) -> Result<ReclaimPlan, ReclaimError> {
    Ok(select(pass, draft, work, (&HashSet::new(), None), mark::Sharing::Alone)?.0.plan)
}

/// Leaves out unreadable and cold containers.
fn select(
    pass: &IndexPass,
    draft: &Draft<'_>,
    work: &Work,
    (unreadable, cold): (&HashSet<ContainerId>, Option<&ColdContainers>),
    sharing: mark::Sharing,
) -> Result<(Selection, Eligibility), ReclaimError> {
    if work.walks.is_none() && draft.manifest.runs_of(Table::Copies).is_empty() {
        return Ok(Default::default());
    }
    let mut eligibility = Eligibility::read(pass, draft, &work.retention, unreadable, cold)?;
    let needed = match &work.walks {
        Some(walks) => mark::needed(pass, work, walks, sharing)?,
        None => None,
    };
    let selection = select::select(pass, draft, &work.options, &mut eligibility, needed)?;
    Ok((selection, eligibility))
}

/// Retires containers that are worth it: copies chunks, and changes the draft. The containers of
/// [`ReclaimReport`] may be deleted as soon as the draft is published.
///
/// The data containers that are written have numbers from `first_number` on.
pub(crate) fn reclaim(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    work: &Work,
    first_number: u32,
) -> Result<ReclaimReport, ReclaimError> {
    let reclaimed = retire(pass, draft, work, first_number)?;
    let is_searched = reclaimed.plan.is_exact && !reclaimed.was_stopped;
    let found = is_searched.then_some(reclaimed.remains);
    work.search.note(work.options.exact, found, &mut draft.manifest.head);
    Ok(reclaimed)
}

/// Leaves out what is in cold storage: none of it is retired, and nothing is redirected to it. Only
/// a pass that has something to retire lists the classes. Returns whether anything is cold.
fn leave_cold(
    pass: &IndexPass,
    work: &Work,
    (selection, eligibility): (&mut Selection, &mut Eligibility),
    reclaimed: &mut ReclaimReport,
) -> Result<bool, ReclaimError> {
    pass.io.executor.block_on(work.cold.look(&work.context.repository)).map_err(IndexError::from)?;
    note_cold(work, (selection, eligibility), reclaimed)?;
    Ok(!work.cold.is_empty())
}

/// Notes what is left in cold storage, if any of it has unused data.
fn note_cold(
    work: &Work,
    (selection, eligibility): (&mut Selection, &mut Eligibility),
    reclaimed: &mut ReclaimReport,
) -> Result<(), ReclaimError> {
    if let Some(left) = selection.left_cold(&work.cold, eligibility)? {
        reclaimed.cold = reclaimed.cold.or(left);
    }
    Ok(())
}

/// Whether this process knows by itself that nothing which goes is needed. If workers were wrong
/// about it, nothing else of them counts.
fn is_proved(
    pass: &IndexPass,
    draft: &Draft<'_>,
    work: &Work,
    selection: &mut Selection,
) -> Result<bool, ReclaimError> {
    let (true, Some(walks)) = (selection.is_told, &work.walks) else { return Ok(true) };
    match prove::prove(pass, draft, work, walks, selection)? {
        Proved::Unneeded => Ok(true),
        Proved::Unknown => Ok(false),
        Proved::Needed => {
            tracing::warn!("a worker left out chunks that snapshots need; this process reads all recipes itself");
            if let Some(sharing) = &work.sharing {
                sharing.was_wrong();
            }
            Ok(false)
        }
    }
}

/// Shares batches with workers, if that was asked for, until the pass has retired its containers.
fn retire(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    work: &Work,
    first_number: u32,
) -> Result<ReclaimReport, ReclaimError> {
    let mut shared = None;
    let retired = retire_with(pass, draft, work, first_number, &mut shared);
    let may_have_others = shared.is_some_and(SharedCopying::end);
    Ok(ReclaimReport { may_have_others, ..retired? })
}

fn retire_with(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    work: &Work,
    mut first_number: u32,
    shared: &mut Option<Box<dyn SharedCopying>>,
) -> Result<ReclaimReport, ReclaimError> {
    let mut sharing = work.sharing.as_ref();
    let mut unreadable = HashSet::new();
    let mut reclaimed = ReclaimReport { next_number: first_number, ..ReclaimReport::default() };
    let (mut copier, mut has_looked) = (None, false);
    // Names of the layout `lifecycle` may refer to any container of a rebuilt index.
    // Proofs expect that what stays has its chunks.
    let head = &draft.manifest.head;
    let mut marks_alone = work.retention.rebuilt > 0 || head.rebuilt.is_some() || head.missing.is_some_and(|n| n > 0);
    for attempt in 0..ATTEMPTS {
        let look = match marks_alone || !unreadable.is_empty() {
            true => mark::Sharing::Alone,
            false => mark::Sharing::Look(u8::try_from(attempt).unwrap_or(u8::MAX)),
        };
        // First with those in cold storage, also if another task knows them: what is left there is
        // counted among the candidates.
        let left_out = (&unreadable, has_looked.then_some(&*work.cold));
        let (mut selection, mut eligibility) = match select(pass, draft, work, left_out, look) {
            Err(ReclaimError::ChunkCopier(RewriteError::Interrupted)) => {
                reclaimed.was_stopped = true;
                return Ok(reclaimed);
            }
            selection => selection?,
        };
        (reclaimed.plan, reclaimed.remains) = (selection.plan, selection.remains);
        if selection.containers.is_empty() {
            return Ok(reclaimed);
        }
        if !has_looked {
            has_looked = true;
            if leave_cold(pass, work, (&mut selection, &mut eligibility), &mut reclaimed)? {
                marks_alone = true;
                continue;
            }
        }
        match is_proved(pass, draft, work, &mut selection) {
            Ok(true) => {}
            Ok(false) => {
                marks_alone = true;
                continue;
            }
            Err(ReclaimError::ChunkCopier(RewriteError::Interrupted)) => {
                reclaimed.was_stopped = true;
                return Ok(reclaimed);
            }
            Err(error) => return Err(error),
        }
        let (chunk_fates, mut changes) = chunk_fates::chunk_fates(pass, draft, &eligibility, &mut selection)?;
        // Names of new objects are used once: one for all attempts, or the next one goes on
        // numbering.
        let mut writing = match copier.take() {
            Some(copier) => copier,
            None => {
                // To stop is decided between containers.
                let context = work.context.on(&pass.io.executor).uninterrupted();
                ChunkCopier::new(&context, work.job, work.options.compression)?.numbered_from(first_number)
            }
        };
        if let (None, Some(sharing)) = (&shared, sharing.take()) {
            // To stop is decided between batches.
            let context = work.context.on(&pass.io.executor);
            *shared = sharing.begin(&context, work.job, work.turn, work.options.compression);
        }
        let sharing = shared.as_deref_mut();
        let ended = evacuate::evacuate(pass, draft, work, &selection, chunk_fates, &mut writing, sharing)?;
        if let (Some(shared), false) = (&mut *shared, matches!(ended, Ended::Done(_))) {
            shared.abandon(!matches!(ended, Ended::Stopped(_)));
        }
        let evacuated = match ended {
            Ended::Done(evacuated) => evacuated,
            Ended::Stopped(evacuated) => {
                reclaimed.was_stopped = true;
                selection.keep_to(|number| evacuated.forwards.contains_key(number));
                selection.plan.copied_bytes = ByteCount(evacuated.copied_bytes);
                (reclaimed.plan, reclaimed.remains) = (selection.plan, selection.remains);
                drop(changes);
                changes = chunk_fates::chunk_fates(pass, draft, &eligibility, &mut selection)?.1;
                evacuated
            }
            Ended::Cold(container) => {
                // It was not cold in the listing, or the listing does not tell.
                let known = selection.containers.values().find(|candidate| candidate.id == container);
                let bytes = known.map_or(0, |candidate| candidate.object_bytes);
                work.cold.meet(ListedContainer { id: container, bytes }).map_err(spilled)?;
                marks_alone = true;
                note_cold(work, (&mut selection, &mut eligibility), &mut reclaimed)?;
                reclaimed.cold.containers = reclaimed.cold.containers.max(1);
                writing.begin_again()?;
                reclaimed.next_number = writing.next_number();
                copier = Some(writing);
                continue;
            }
            Ended::WorkerWrong => {
                // The same chunks are copied again. Two copies in one container would stay for
                // ever.
                first_number = writing.next_number();
                reclaimed.next_number = first_number;
                writing.finish()?;
                continue;
            }
            Ended::Unreadable(container) => {
                reclaimed.unreadable.push(container);
                unreadable.insert(container);
                writing.begin_again()?;
                reclaimed.next_number = writing.next_number();
                copier = Some(writing);
                continue;
            }
        };
        reclaimed.redirected_chunks = evacuated.redirected_chunks;
        reclaimed.copied_chunks = evacuated.copied_chunks;
        reclaimed.copied_bytes = ByteCount(evacuated.copied_bytes);
        reclaimed.whole_bytes = ByteCount(writing.whole_bytes() + evacuated.whole_bytes);
        reclaimed.dropped_chunks = changes.dropped;
        reclaimed.next_number = writing.next_number();
        let mut written = writing.finish()?;
        written.containers.extend(evacuated.written.iter().map(|(id, totals)| (*id, *totals)));
        tables::apply(pass, draft, &selection, &evacuated, &written, changes, &mut reclaimed)?;
        return Ok(reclaimed);
    }
    tracing::warn!(containers = unreadable.len(), "too much cannot be read; nothing is retired");
    reclaimed.plan = ReclaimPlan::default();
    Ok(reclaimed)
}

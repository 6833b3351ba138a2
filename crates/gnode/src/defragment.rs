//! Defragmentation: rewrites newest versions so that restores read few containers, and newest
//! versions share data.
//!
//! The newest version of a series gets a new generation of its manifest, in which it *leaves*
//! containers. It leaves a container
//! * if all of its containers together hold too much else: the one that holds least of it
//!   (SlimStore section V-B leaves each sparse one), or small ones of one size, copied together, or
//! * with many chunks that are also in other containers of newest versions, or
//! * with some of these, if newest versions have too much twice, or
//! * that was retired, so that its chunks are found through the index alone, or
//! * with bytes that no version uses, if the user wants less of that than there is.
//!
//! Chunks of a container that it leaves are shared where there is another copy. The rest are copied
//! together in the order of its stream. So duplicates between series are removed without a newest
//! version ever needing the index: its manifest has all its references. A container that all newest
//! versions left is collected by a pass, or retired if older versions need it. Nothing is deleted
//! here.
//!
//! Every version that is rewritten is a job of its own, whose register is the generation it creates
//! (`OwnRegister` of `docs/concurrency.md`). Sharing with another version needs no rule of its own.
//! The lease names that version too, and the job examines it like a base. It references only
//! containers of its newest generation's manifest (`OwnersNamed`).
//!
//! Three rules end all exchange between containers. A container that is dense for any newest
//! version is not left as sparse. Chunks with copies are redirected to the highest container that
//! stays, but not to containers of which the version would use little. All newest versions that use
//! a container leave it, or none does.
//!
//! * `newest`: newest versions, and the containers they use. `parts`: as many of them as memory
//!   holds. `distinct`: this use without repetitions. `duplicates`: chunks that are stored twice.
//!   `choice`: which versions leave which containers; pure.
//! * `gather`: scattered duplicates. `unused`: containers with bytes that no version uses.
//! * `execute`: the job that rewrites a version. `sharing`: its redirect targets.

mod choice;
mod distinct;
mod duplicates;
mod execute;
mod gather;
mod newest;
mod options;
mod parts;
mod sharing;
mod unread;
mod unused;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use larder_format::ErrorKind;
use larder_format::ids::{ContainerId, JobId};
use larder_format::lease::Pin;
use larder_format::manifest::{ContainerUsage, Manifest};
use larder_format::recipe::Recipe;
use larder_index::{Current, IndexError, IndexSnapshot};
use larder_job::JobContext;
use larder_reader::pin_of;
use larder_rewrite::chunk_copier::RewriteError;
use larder_store::RepositoryError;
use larder_store::catalog::Version;

pub use execute::{Defragmenter, compact};
pub use options::{Budget, DefragmentOptions};
pub(crate) use parts::PlansInParts;
pub use parts::TooLarge;

use choice::{Chosen, Leave, Why};
use duplicates::{Duplicates, Search};
use newest::{Newest, Uses};
use parts::Part;

/// How often duplicates are looked for again when the index they are looked for in is deleted
/// meanwhile.
const ATTEMPTS: u32 = 3;

/// Ends of runs and containers that are remembered while duplicates are looked for.
const TAILS_BYTES: usize = 8 << 20;

/// A version that would be read faster, or share more, after a rewrite.
#[derive(Debug, Clone)]
pub struct DefragmentPlan {
    /// The version.
    pub version: Version,
    /// Its use of the containers that it would leave: the sparsest first, then those with most
    /// copies elsewhere.
    pub containers: Vec<ContainerUsage>,
    /// Bytes that would be copied, uncompressed, at most.
    pub bytes: u64,
    /// Bytes that would be shared, at most.
    pub shared_bytes: u64,
    /// Newest versions of other series whose containers it would share.
    pub others: Vec<Version>,
    /// Bytes that all of its data containers hold, uncompressed.
    pub held_bytes: u64,
    /// Bytes of these that it uses.
    pub used_bytes: u64,
    /// The number of these containers.
    pub used_containers: u64,
    leaves: Vec<Leave>,
    duplicates: Arc<Duplicates>,
    /// Metadata containers that newest versions of other series use too.
    others_metadata: Arc<HashSet<ContainerId>>,
}

impl DefragmentPlan {
    /// Whether all that it does is to make restores of the version read less.
    pub fn is_for_reading(&self) -> bool {
        self.leaves.iter().all(|leave| leave.why == Why::Sparse)
    }

    /// The same without containers that the version has left before. `None`: nothing is left.
    pub fn without(mut self, left: &HashSet<ContainerId>) -> Option<Self> {
        self.leaves.retain(|leave| !left.contains(&leave.usage.container));
        (self.containers, self.bytes, self.shared_bytes) = sums(&self.leaves);
        Some(self).filter(|plan| !plan.leaves.is_empty())
    }

    /// The same within a budget of bytes to copy: without as many of the partly unused containers
    /// as necessary, the worst of them kept first. `None` if the rest alone exceeds it, or nothing
    /// is left.
    pub fn within(mut self, bytes: u64) -> Option<Self> {
        let is_optional = |leave: &Leave| matches!(leave.why, Why::Unused | Why::Scattered);
        let needed = |leave: &Leave| if is_optional(leave) { 0 } else { leave.copied_bytes() };
        let mut left = bytes.checked_sub(self.leaves.iter().map(needed).sum())?;
        self.leaves.retain(|leave| {
            let rest = if is_optional(leave) { left.checked_sub(leave.copied_bytes()) } else { Some(left) };
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        (self.containers, self.bytes, self.shared_bytes) = sums(&self.leaves);
        Some(self).filter(|plan| !plan.leaves.is_empty())
    }
}

/// The containers of a plan, the bytes to copy and those to share, at most.
fn sums(leaves: &[Leave]) -> (Vec<ContainerUsage>, u64, u64) {
    let shared = |leave: &Leave| leave.shared_bytes().min(leave.usage.bytes_used);
    let containers = leaves.iter().map(|leave| leave.usage).collect();
    (containers, leaves.iter().map(Leave::copied_bytes).sum(), leaves.iter().map(shared).sum())
}

/// The outcome of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defragmented {
    /// There is a new generation.
    Done {
        /// Its number.
        generation: u32,
        /// Chunks that were copied.
        chunks: u64,
        /// Their bytes, uncompressed.
        bytes: u64,
        /// Bytes of the containers that were written.
        stored_bytes: u64,
        /// Chunks that now use another copy.
        shared_chunks: u64,
        /// Their bytes, uncompressed.
        shared_bytes: u64,
    },
    /// The version was forgotten, another task rewrote it, or data to be shared is gone. Nothing
    /// was done, or the work is void.
    Overtaken,
}

/// A version could not be rewritten. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum DefragmentError {
    /// The repository failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The index could not be read for duplicates.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Copying failed.
    #[error(transparent)]
    ChunkCopier(#[from] RewriteError),
}

impl DefragmentError {
    /// Whether it met data in cold storage.
    pub fn is_cold(&self) -> bool {
        match self {
            Self::Repository(error)
            | Self::Index(IndexError::Repository(error))
            | Self::ChunkCopier(RewriteError::Repository(error)) => error.is_cold(),
            Self::Index(_) | Self::ChunkCopier(_) => false,
        }
    }

    /// The action that a caller can take.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Repository(error) => error.kind(),
            Self::Index(error) => error.kind(),
            Self::ChunkCopier(error) => error.kind(),
        }
    }
}

/// Plans for all newest versions.
#[derive(Debug, Default)]
pub struct Plans {
    /// In the order of their series.
    pub plans: Vec<DefragmentPlan>,
    /// Whether there were more duplicates than memory holds; they are found when these are gone.
    pub has_more: bool,
    /// About how many bytes newest versions have twice or more, each first copy not counted. All
    /// chunks of a container count with its mean size.
    pub duplicate_bytes: u64,
    /// How many of these are left when all plans are executed.
    pub left_duplicate_bytes: u64,
    /// Newest versions that cannot be read, and were left out.
    pub unreadable: Vec<Version>,
    /// Newest versions that there is too little memory for, and that were left out.
    pub too_large: Vec<TooLarge>,
}

impl Plans {
    /// Adds those for other versions.
    fn add(&mut self, others: Self) {
        self.plans.extend(others.plans);
        self.has_more |= others.has_more;
        self.duplicate_bytes += others.duplicate_bytes;
        self.left_duplicate_bytes += others.left_duplicate_bytes;
        self.unreadable.extend(others.unreadable);
        self.too_large.extend(others.too_large);
    }
}

/// The plan for a version that shares no containers, if one is worth it.
pub fn plan(version: &Version, manifest: &Manifest, options: &DefragmentOptions) -> Option<DefragmentPlan> {
    let newest = [Newest::new(version, manifest)];
    let uses = Uses::of_all(&newest);
    let sparse = choice::for_reading(&newest, &uses, options);
    let duplicates = Duplicates::default();
    let chosen = choice::choose(&newest, &uses, sparse, vec![Vec::new()], &duplicates, options);
    plans_of(&newest, &uses, chosen.leaves, duplicates).plans.pop()
}

/// Plans for the newest version of every series. A version may be rewritten again and again, as
/// long as it reads too much, or there is enough to share.
/// Versions that cannot be read are left as they are.
pub fn plans(context: &JobContext, options: &DefragmentOptions) -> Result<Plans, DefragmentError> {
    plans_after(context, options, &HashMap::new())
}

/// The same, after this number of bytes was copied for each of these versions: they count for the
/// budget.
pub fn plans_after(
    context: &JobContext,
    options: &DefragmentOptions,
    spent: &HashMap<JobId, u64>,
) -> Result<Plans, DefragmentError> {
    let (mut all, mut in_parts) = (Plans::default(), PlansInParts::look(context, options)?);
    while let Some(plans) = in_parts.next(spent)? {
        all.add(plans);
    }
    Ok(all)
}

fn plans_of_part(
    context: &JobContext,
    options: &DefragmentOptions,
    spent: &HashMap<JobId, u64>,
    part: Part,
) -> Result<Plans, DefragmentError> {
    let Part { mut newest, unreadable, too_large, elsewhere } = part;
    let is_thorough = options.unused_percent.is_some();
    let index = first_look(context, options)?;
    let ingested: HashSet<Pin> = match (&index, is_thorough) {
        (Some(index), false) => {
            index.manifest.versions.iter().map(|row| Pin { series: row.series, job: row.job }).collect()
        }
        _ => HashSet::new(),
    };
    for newest in &mut newest {
        newest.spent = spent.get(&newest.version.id()).copied().unwrap_or(0);
        // A pass may have ingested the version without a look at it.
        let is_new = |recipe: &Recipe| {
            distinct::is_small(recipe) && newest.version.generation == 0 || !ingested.contains(&pin_of(&newest.version))
        };
        let recipe = newest.recipe.take().filter(is_new);
        if let Some(recipe) = recipe {
            distinct::count(context, &recipe, &mut newest.containers)?;
        }
    }
    let uses = Uses::of_all(&newest).beside(elsewhere);
    let of = |left: &[Vec<ContainerUsage>]| left.iter().flatten().map(|usage| usage.container).collect::<HashSet<_>>();
    let sparse = choice::for_reading(&newest, &uses, options);
    let mut leaving = of(&sparse);
    let mut unused = vec![Vec::new(); newest.len()];
    if let Some(percent) = options.unused_percent {
        // Older versions are read only if they can change anything. Those that cannot be read may
        // use anything.
        let candidates: HashSet<_> = uses.containers().filter(|container| uses.unused_bytes(container) > 0).collect();
        let is_unknown = !unreadable.is_empty() || !too_large.is_empty();
        let exclusive = match candidates.is_empty() || is_unknown {
            true => HashSet::new(),
            false => unused::exclusive(context, &newest, candidates)?.unwrap_or_default(),
        };
        unused = unused::unused(&newest, &uses, &exclusive, &leaving, percent);
        leaving.extend(of(&unused));
    }
    let choose =
        |duplicates: &Duplicates| choice::choose(&newest, &uses, sparse.clone(), unused.clone(), duplicates, options);
    let found = with_duplicates(context, index, &uses, &leaving, options, choose)?;
    let plans = plans_of(&newest, &uses, found.chosen.leaves, found.duplicates);
    let (duplicate_bytes, left_duplicate_bytes) = (found.excess_bytes, found.left_bytes);
    Ok(Plans { unreadable, too_large, duplicate_bytes, left_duplicate_bytes, ..plans })
}

/// The choice, given the duplicates that the index knows.
struct WithDuplicates {
    chosen: Chosen,
    duplicates: Duplicates,
    excess_bytes: u64,
    left_bytes: u64,
}

/// The newest index, if it is needed; `None` if there is none that can be read.
fn first_look(context: &JobContext, options: &DefragmentOptions) -> Result<Option<IndexSnapshot>, DefragmentError> {
    if options.duplicate_percent > 100 {
        return Ok(None);
    }
    match context.executor.block_on(Current::look(&context.repository)).and_then(Current::base) {
        Ok(index) => Ok(Some(index)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Asks the newest index, which a first look may have found. Without one, or with one that cannot
/// be read, nothing is shared.
fn with_duplicates(
    context: &JobContext,
    mut first: Option<IndexSnapshot>,
    uses: &Uses,
    leaving: &HashSet<ContainerId>,
    options: &DefragmentOptions,
    choose: impl Fn(&Duplicates) -> Chosen,
) -> Result<WithDuplicates, DefragmentError> {
    let without = || {
        let duplicates = Duplicates::default();
        WithDuplicates { chosen: choose(&duplicates), duplicates, excess_bytes: 0, left_bytes: 0 }
    };
    if options.duplicate_percent > 100 {
        return Ok(without());
    }
    // The tables are read three times.
    let repository = context.repository.through(context.repository.store().remembering_tails(TAILS_BYTES));
    let context = &JobContext { repository, ..context.clone() };
    for attempt in 1..=ATTEMPTS {
        let look = || context.executor.block_on(Current::look(&context.repository)).and_then(Current::base);
        let found = first.take().map_or_else(look, Ok).and_then(|index| match index.number {
            0 => Ok(without()),
            _ => choose_in(context, &index, uses, leaving, options, &choose),
        });
        match found {
            Ok(found) => return Ok(found),
            // Runs that it names may be gone because there is a newer one.
            Err(error) if error.is_damage() && attempt < ATTEMPTS => {}
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "the index cannot be read; versions share nothing with others");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(without())
}

/// Redirects come first. Scattered duplicates are gathered when no redirect is left, and only if
/// there are too many.
fn choose_in(
    context: &JobContext,
    index: &IndexSnapshot,
    uses: &Uses,
    leaving: &HashSet<ContainerId>,
    options: &DefragmentOptions,
    choose: impl Fn(&Duplicates) -> Chosen,
) -> Result<WithDuplicates, IndexError> {
    let (mut search, mut duplicates) = Search::begin(context, index, uses)?;
    search.redirects(leaving, options.duplicate_percent, &mut duplicates)?;
    let mut chosen = choose(&duplicates);
    let most = uses.held_bytes() as f64 * options.excess_percent / 100.0;
    if search.excess_bytes as f64 > most {
        if chosen.has_redirects() {
            duplicates.has_more = true;
        } else {
            // Half of the limit: otherwise, every pass would gather a little.
            search.gather(&chosen.containers(), (most / 2.0) as u64, &mut duplicates)?;
            chosen.gather(uses, &duplicates);
        }
    }
    let left_bytes = search.left(&chosen.containers(), &duplicates)?;
    Ok(WithDuplicates { chosen, duplicates, excess_bytes: search.excess_bytes, left_bytes })
}

fn plans_of(newest: &[Newest], uses: &Uses, leaves: Vec<Vec<Leave>>, duplicates: Duplicates) -> Plans {
    let (duplicates, mut plans) = (Arc::new(duplicates), Vec::new());
    let (mut seen, mut shared_metadata) = (HashSet::new(), HashSet::new());
    for container in newest.iter().flat_map(|newest| &newest.metadata) {
        if !seen.insert(*container) {
            shared_metadata.insert(*container);
        }
        if uses.is_elsewhere(container) {
            shared_metadata.insert(*container);
        }
    }
    let shared_metadata = Arc::new(shared_metadata);
    for (version, leaves) in leaves.into_iter().enumerate().filter(|(_, leaves)| !leaves.is_empty()) {
        let shared: BTreeSet<_> =
            leaves.iter().flat_map(|leave| &leave.shared).map(|(container, _)| container).collect();
        // One version for each container that is shared, and few in all.
        let mut others: BTreeSet<usize> = BTreeSet::from([version]);
        for container in shared {
            let users = uses.of(container);
            if !users.iter().any(|used| others.contains(&used.version)) {
                others.extend(users.first().map(|used| used.version));
            }
        }
        others.remove(&version);
        let (containers, bytes, shared_bytes) = sums(&leaves);
        let all = || newest[version].containers.iter();
        plans.push(DefragmentPlan {
            version: newest[version].version.clone(),
            held_bytes: all().map(|usage| usage.bytes_held).sum(),
            used_bytes: all().map(|usage| usage.bytes_used).sum(),
            used_containers: all().len() as u64,
            containers,
            bytes,
            shared_bytes,
            others: others.into_iter().map(|other| newest[other].version.clone()).collect(),
            leaves,
            duplicates: duplicates.clone(),
            others_metadata: shared_metadata.clone(),
        });
    }
    Plans { plans, has_more: duplicates.has_more, ..Plans::default() }
}

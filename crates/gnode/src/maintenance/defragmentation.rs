//! The step of a round that rewrites newest versions, until none is left to rewrite.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use larder_format::ErrorKind;
use larder_format::container::CONTAINER_TARGET;
use larder_format::ids::{ContainerId, JobId};
use larder_format::lease::Pin;
use larder_job::JobContext;
use larder_rewrite::chunk_copier::RewriteError;

use super::deadline::Deadline;
use super::worth::{Decision, decide};
use super::{MaintenanceOptions, OnNotRewritten};
use crate::defragment::{
    DefragmentError, DefragmentOptions, DefragmentPlan, Defragmented, Defragmenter, Plans, PlansInParts, TooLarge,
};
use crate::forget::pin_of;
use crate::pass::cost::Requests;

/// Bytes that the name of a container takes which a version has left.
const LEFT_BYTES: usize = 48;
/// A step is not repeated once these names take more than one part in this number of the memory.
const LEFT_ONE_IN: usize = 16;

/// How many of some plans were executed.
enum Executed {
    All,
    Some,
    /// It must stop.
    Stopped,
}

/// Why a newest version was not rewritten. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum NotRewritten {
    /// Its containers are not known.
    #[error("its manifest cannot be read")]
    UnreadableManifest,
    /// Its tables take more memory than there is.
    #[error(
        "defragmenting it needs {} MiB of memory, and may take {} MiB (--memory)",
        needed.div_ceil(1 << 20),
        memory >> 20
    )]
    TooLittleMemory {
        /// Bytes that it may take.
        memory: u64,
        /// Bytes that it needs.
        needed: u64,
    },
    /// Rewriting failed.
    #[error(transparent)]
    Failed(DefragmentError),
}

impl NotRewritten {
    /// Whether something is damaged.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::UnreadableManifest => true,
            Self::TooLittleMemory { .. } => false,
            Self::Failed(error) => error.kind() == ErrorKind::Damaged,
        }
    }
}

/// Newest versions that were rewritten, or would be without `dry_run`.
#[derive(Debug, Default)]
pub struct DefragmentReport {
    /// Versions that were rewritten.
    pub versions: u64,
    /// Containers that these versions do not use any more.
    pub containers: u64,
    /// Bytes that were copied, uncompressed.
    pub bytes: u64,
    /// Bytes of the containers that were written.
    pub stored_bytes: u64,
    /// Bytes that now use another copy, uncompressed.
    pub shared_bytes: u64,
    /// About how many bytes newest versions still have twice or more, uncompressed, each first copy
    /// not counted; at most. As far as the newest index knows.
    pub left_duplicate_bytes: u64,
    /// An estimate of the requests that it takes, beside those for the plan.
    pub requests: Requests,
    /// Versions that were not rewritten, and why.
    pub failed: BTreeMap<JobId, NotRewritten>,
    /// Versions that were not rewritten, because their data is in cold storage.
    pub cold: BTreeSet<JobId>,
    /// How often another task was faster.
    pub overtaken: u64,
    /// Whether it ended early, because it was asked to stop or the time was over.
    pub was_stopped: bool,
    /// Whether it is known that something was left then.
    pub has_left: bool,
    /// The generations that it created.
    pub generations: Vec<(Pin, u32)>,
    /// Whether each rewrite was worth its cost, if that was asked.
    pub decisions: Vec<Decision>,
}

impl DefragmentReport {
    /// Whether damage kept a version from being rewritten.
    pub fn found_damage(&self) -> bool {
        self.failed.values().any(NotRewritten::is_damage)
    }

    /// Whether no version was rewritten.
    pub fn is_empty(&self) -> bool {
        self.versions == 0
    }
}

/// See the module header.
pub(super) struct Defragmentation<'a> {
    context: &'a JobContext,
    /// The same for plans, with a cache of runs of the index. Copied or shared data is read from
    /// the store.
    looking: &'a JobContext,
    options: &'a MaintenanceOptions,
    defragment: DefragmentOptions,
    deadline: &'a Deadline<'a>,
    on_not_rewritten: OnNotRewritten<'a>,
    /// Bytes copied for each version so far: they count for the budgets of later plans.
    spent: HashMap<JobId, u64>,
    /// What each version has left so far. It leaves no container twice, so a step ends for any
    /// plans.
    left: HashMap<JobId, HashSet<ContainerId>>,
    pub(super) report: DefragmentReport,
}

impl<'a> Defragmentation<'a> {
    pub(super) fn new(
        context: &'a JobContext,
        looking: &'a JobContext,
        options: &'a MaintenanceOptions,
        deadline: &'a Deadline<'a>,
        on_not_rewritten: OnNotRewritten<'a>,
    ) -> Self {
        let defragment = options.defragment();
        let (spent, left, report) = (HashMap::new(), HashMap::new(), DefragmentReport::default());
        Self { context, looking, options, defragment, deadline, on_not_rewritten, spent, left, report }
    }

    /// Plans and rewrites until nothing is left to do. Returns whether anything was rewritten.
    pub(super) fn run(&mut self) -> Result<bool, DefragmentError> {
        let mut has_done = false;
        loop {
            if self.must_stop() {
                return Ok(has_done);
            }
            let before = self.report.versions;
            let (looking, defragment) = (self.looking, self.defragment);
            let mut parts = PlansInParts::look(looking, &defragment)?;
            let (mut has_more, mut duplicate_bytes) = (false, 0);
            // Later parts share copies that earlier ones made of the same retired containers.
            let mut defragmenter =
                Defragmenter::new(self.context, &self.defragment).shared_with(self.options.pass.sharing.clone());
            while let Some(plans) = parts.next(&self.spent)? {
                has_more |= plans.has_more;
                self.report.left_duplicate_bytes = duplicate_bytes + plans.duplicate_bytes;
                match self.execute(&mut defragmenter, &plans)? {
                    Executed::All => duplicate_bytes += plans.left_duplicate_bytes,
                    Executed::Some => duplicate_bytes += plans.duplicate_bytes,
                    Executed::Stopped => return Ok(has_done || self.report.versions > before),
                }
                self.report.left_duplicate_bytes = duplicate_bytes;
                if parts.has_more() && self.must_stop() {
                    self.report.has_left = true;
                    return Ok(has_done || self.report.versions > before);
                }
            }
            let is_done = self.report.versions > before;
            has_done |= is_done;
            // Duplicates that memory could not hold are found when the others are gone.
            if self.options.pass.dry_run || !is_done || !has_more {
                return Ok(has_done);
            }
            if !self.may_go_on() {
                self.report.has_left = true;
                return Ok(has_done);
            }
        }
    }

    fn execute(&mut self, defragmenter: &mut Defragmenter, plans: &Plans) -> Result<Executed, DefragmentError> {
        for version in &plans.unreadable {
            self.failed(version.id(), NotRewritten::UnreadableManifest);
        }
        for TooLarge { version, needed, memory } in &plans.too_large {
            self.failed(version.id(), NotRewritten::TooLittleMemory { memory: *memory, needed: *needed });
        }
        let mut are_whole = true;
        for plan in &plans.plans {
            let must_stop = self.must_stop();
            self.report.has_left |= must_stop;
            let (versions, containers) = (self.report.versions, self.report.containers);
            if !must_stop && !self.is_worth_it(plan)? {
                are_whole = false;
                continue;
            }
            if must_stop || !self.rewrite(defragmenter, plan) {
                return Ok(Executed::Stopped);
            }
            are_whole &=
                self.report.versions > versions && self.report.containers - containers == plan.containers.len() as u64;
        }
        Ok(if are_whole { Executed::All } else { Executed::Some })
    }

    /// Whether there is memory for the names of more containers that versions leave.
    fn may_go_on(&self) -> bool {
        let left: usize = self.left.values().map(HashSet::len).sum();
        left * LEFT_BYTES <= self.looking.memory / LEFT_ONE_IN
    }

    /// Bytes that may still be copied.
    fn budget(&self) -> u64 {
        self.options.max_rewrite.map_or(u64::MAX, |most| most.saturating_sub(self.report.bytes))
    }

    /// Whether to rewrite a version now.
    fn is_worth_it(&mut self, plan: &DefragmentPlan) -> Result<bool, DefragmentError> {
        if !self.options.waits() {
            return Ok(true);
        }
        // Nothing is decided about a rewrite that does not come, because of a limit or an error.
        let plan = plan.clone().within(self.budget());
        let Some(plan) = plan.filter(|plan| !self.report.failed.contains_key(&plan.version.id())) else {
            return Ok(true);
        };
        let decision = decide(self.context, &plan)?;
        let is_worth_it = decision.is_worth_it();
        // A round may ask several times. The report says why it rewrote the version, if it did.
        match self.report.decisions.iter_mut().find(|before| before.id == decision.id) {
            Some(before) if before.is_worth_it() => {}
            Some(before) => *before = decision,
            None => self.report.decisions.push(decision),
        }
        Ok(is_worth_it)
    }

    fn must_stop(&mut self) -> bool {
        let must_stop = self.deadline.is_over() || self.context.cancel.is_cancelled();
        self.report.was_stopped |= must_stop;
        must_stop
    }

    /// Remembers and reports a version, once.
    fn failed(&mut self, id: JobId, why: NotRewritten) {
        self.report.failed.entry(id).or_insert_with(|| {
            (self.on_not_rewritten)(id, &why);
            why
        });
    }

    /// Returns whether to go on.
    fn rewrite(&mut self, defragmenter: &mut Defragmenter, plan: &DefragmentPlan) -> bool {
        let budget = self.budget();
        let (report, id) = (&mut self.report, plan.version.id());
        if report.failed.contains_key(&id) || report.cold.contains(&id) {
            return true;
        }
        let left = self.left.entry(id).or_default();
        // Sharing copies nothing, so it is within any budget.
        let Some(plan) = &plan.clone().without(left).and_then(|plan| plan.within(budget)) else { return true };
        let (mut bytes, mut stored_bytes, mut shared_bytes) = (plan.bytes, 0, plan.shared_bytes);
        if !self.options.pass.dry_run {
            match defragmenter.compact(plan) {
                Ok(Defragmented::Done {
                    generation,
                    bytes: copied,
                    stored_bytes: stored,
                    shared_bytes: shared,
                    ..
                }) => {
                    report.generations.push((pin_of(&plan.version), generation));
                    (bytes, stored_bytes, shared_bytes) = (copied, stored, shared);
                }
                Ok(Defragmented::Overtaken) => {
                    report.overtaken += 1;
                    return true;
                }
                Err(DefragmentError::ChunkCopier(RewriteError::Interrupted)) => {
                    report.was_stopped = true;
                    report.has_left = true;
                    return false;
                }
                Err(error) if error.is_cold() => {
                    report.cold.insert(id);
                    return true;
                }
                Err(error) => {
                    self.failed(id, NotRewritten::Failed(error));
                    return true;
                }
            }
        }
        left.extend(plan.containers.iter().map(|usage| usage.container));
        report.versions += 1;
        report.containers += plan.containers.len() as u64;
        report.bytes += bytes;
        *self.spent.entry(id).or_default() += bytes;
        report.stored_bytes += stored_bytes;
        report.shared_bytes += shared_bytes;
        // Shared data is read once, to compare it.
        let read = plan.containers.len() as u64 + shared_bytes.div_ceil(CONTAINER_TARGET as u64);
        report.requests = report.requests.and(Requests::of_copying(read, bytes));
        true
    }
}

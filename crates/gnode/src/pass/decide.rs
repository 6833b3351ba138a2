//! Decides what a pass may delete, from its observations alone.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use larder_format::ids::{ByteCount, ContainerId, ContainerKind, JobId, RunId};
use larder_format::index_manifest::{self, ContainerList, IndexedVersion, Reason};
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_index::IndexSnapshot;
use larder_store::Repository;
use larder_store::rules::Rule;
use larder_store::survey::{ListedContainer, ListedJob};

use super::delete_candidates::{ContainerListing, DeleteCandidates, GoingContainers, Unrecorded};
use super::plan::Plan;
use super::report::{Kept, OpenUploads, WaitingSpace};
use crate::error::PassError;
use crate::known_versions::run_ids;
use crate::reclaim::RetentionView;

/// The observations *before* the leases were listed (steps 1 to 3): rules `SettledBeforeLeases`,
/// `MarksBeforeLeases`, `ContainersBeforeLeases`.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// Jobs that can create nothing new: their register is decided, their lease closed, or, of a
    /// task, the number it claims taken.
    pub(super) settled: HashSet<JobId>,
    /// Generations of versions.
    pub(super) registers: BTreeMap<Pin, Vec<u32>>,
    /// Versions with a genuine mark.
    pub(super) marks: BTreeSet<Pin>,
    /// Entries of pins.
    pub(super) pins: BTreeMap<Pin, Vec<u32>>,
    /// Those that are younger than the minimum age have the time when they are old enough.
    pub(super) containers: ContainerListing,
    /// Closing marks that were read.
    pub(super) dones: BTreeMap<JobId, Done>,
    /// Uploads of jobs whose processes ended without a commit and that are not aborted yet.
    pub(super) waiting: WaitingSpace,
    /// Whether these are all, and not only those of the jobs in `unknown`.
    pub(super) is_listed_whole: bool,
    /// Jobs that may have containers which the index does not know.
    pub(super) unknown: BTreeSet<JobId>,
    /// Objects of runs of the index, with their bytes.
    pub(super) runs: Vec<(RunId, u64)>,
    /// Numbers of indexes.
    pub(super) indexes: Vec<u64>,
    /// Entries of settings and objects of fleet batches that mean nothing any more; looked for only
    /// when everything is listed.
    pub(super) without_meaning: Vec<String>,
}

/// The result of listing the leases (step 4).
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Every job that has any object below `jobs/`.
    pub(super) jobs: BTreeMap<JobId, ListedJob>,
    /// Jobs that were not settled before and may still create references, with their leases.
    pub(super) live: BTreeMap<JobId, Lease>,
    /// Readers that are considered dead.
    pub(super) expired: HashSet<JobId>,
    /// Closing marks of jobs that were not settled before.
    pub(super) dones: BTreeMap<JobId, Done>,
    /// Containers of jobs that are not settled go (not `UnsettledKept`).
    unsettled_go: bool,
    /// Older generations of versions that leases name go (not `NamedGenerationsRetained`).
    named_generations_go: bool,
    /// Jobs are removed that are not closed (not `RemoveOnlyClosed`).
    open_go: bool,
}

impl Leases {
    /// Leaves out rules that tests disable.
    pub(super) fn break_rules(&mut self, repository: &Repository) {
        self.unsettled_go = !repository.keeps(Rule::UnsettledKept);
        self.named_generations_go = !repository.keeps(Rule::NamedGenerationsRetained);
        self.open_go = !repository.keeps(Rule::RemoveOnlyClosed);
        if !repository.keeps(Rule::NamedVersionsRetained) {
            self.live.values_mut().for_each(|lease| lease.pins.clear());
        }
        if !repository.keeps(Rule::AdoptedKept) {
            self.live.values_mut().for_each(|lease| lease.adopts.clear());
        }
    }
}

/// The needs of the index.
#[derive(Debug, Default)]
pub(super) struct IndexNeeds {
    /// The number that the decision is based on.
    pub(super) base: u64,
    /// Objects of its runs.
    pub(super) runs: HashSet<RunId>,
    /// Objects of runs of the previous index that this one has replaced.
    pub(super) superseded: HashSet<RunId>,
    /// Containers that were missing before.
    pub(super) missing: u64,
    /// Containers that were missing when the index was rebuilt. Every container was searched for
    /// their chunks.
    pub(super) searched: HashSet<ContainerId>,
    /// Containers that a rebuild could not read: they may have moved chunks (`UnreadKept`).
    pub(super) unread: HashSet<ContainerId>,
    /// Whether `searched` stands for all containers that there are: only without the rule
    /// `MissingStops`.
    pub(super) trusts_rebuild: bool,
}

impl IndexNeeds {
    /// The needs of the index that a pass is based on.
    pub(super) fn of(base: &IndexSnapshot, repository: &Repository) -> Self {
        let (manifest, head) = (&base.manifest, &base.manifest.head);
        let superseded = manifest.queue.iter().filter(|queued| queued.reason == Reason::Superseded);
        let superseded = superseded.filter_map(|queued| match queued.what {
            index_manifest::QueuedObject::Run(id) => Some(id),
            _ => None,
        });
        Self {
            base: base.number,
            runs: run_ids(manifest).collect(),
            superseded: superseded.collect(),
            missing: head.missing.unwrap_or(0),
            searched: head.searched.iter().flat_map(|searched| searched.ids()).copied().collect(),
            unread: head.unread.iter().flat_map(|unread| unread.ids()).copied().collect(),
            trusts_rebuild: head.rebuilt.is_some() && !repository.keeps(Rule::MissingStops),
        }
    }
}

/// Everything of one job that goes, in this order: leases from `0` on, generations down to the
/// register, closing mark, pins, mark.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) renewals: Vec<u32>,
    /// Its registers and their generations. There is one, or none.
    pub(super) registers: Vec<(Pin, Vec<u32>)>,
    pub(super) has_done: bool,
    pub(super) pins: Vec<(Pin, Vec<u32>)>,
    pub(super) marks: Vec<Pin>,
}

impl Removal {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn objects(&self) -> u64 {
        let numbered = |all: &[(Pin, Vec<u32>)]| all.iter().map(|(_, numbers)| numbers.len()).sum::<usize>();
        let done = usize::from(self.has_done);
        (self.renewals.len() + numbered(&self.registers) + done + numbered(&self.pins) + self.marks.len()) as u64
    }
}

/// The objects to delete.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) containers: GoingContainers,
    pub(super) removals: BTreeMap<JobId, Removal>,
    /// Generations of versions that stay, below the one that holds.
    pub(super) superseded: Vec<(Pin, u32)>,
    pub(super) runs: Vec<(RunId, u64)>,
    pub(super) indexes: Vec<u64>,
    /// Marks of indexes, which go along with these.
    pub(super) index_marks: Vec<u64>,
    /// Entries of settings, and objects of fleet batches.
    pub(super) without_meaning: Vec<String>,
    /// Of the runs, how many only an older index uses.
    pub(super) superseded_runs: usize,
}

impl Decision {
    /// Whether it is not worth an index. Older indexes and their runs go along when there is a
    /// newer one; alone they would cause one index each. So do entries of settings, which are a few
    /// bytes each.
    pub(super) fn is_empty(&self) -> bool {
        let nothing_goes = self.containers.is_empty() && self.removals.is_empty() && self.superseded.is_empty();
        nothing_goes && self.runs.len() == self.superseded_runs
    }

    /// The plan with these deletions.
    pub(super) fn add_to(&self, plan: Plan) -> Plan {
        Plan {
            data_containers: self.containers.data,
            meta_containers: self.containers.metadata,
            container_bytes: ByteCount(self.containers.bytes),
            versions: self.removals.values().map(|removal| removal.marks.len() as u64).sum(),
            entries: self.removals.values().map(Removal::objects).sum::<u64>()
                + self.superseded.len() as u64
                + self.without_meaning.len() as u64,
            index_objects: (self.runs.len() + self.indexes.len() + self.index_marks.len()) as u64,
            ..plan
        }
    }
}

/// The consequence for older generations if this one holds a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Supersedes {
    /// They need not be kept.
    Older,
    /// They are kept as well.
    Nothing,
}

/// Why a generation is retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retained {
    /// It is the newest of a version that is not forgotten.
    Holds,
    /// Only a live lease names its version.
    Named,
}

/// An unfinished decision: proposed when the leases are known, then reduced by every retained
/// version.
#[derive(Debug)]
pub(super) struct Proposal {
    before: Before,
    leases: Leases,
    /// Versions that live leases name (`NamedVersionsRetained`).
    named: BTreeSet<Pin>,
    /// Containers that may go unless a retained version references them.
    candidates: DeleteCandidates,
    /// Jobs that live leases adopt.
    adopted: HashSet<JobId>,
    /// Containers that retained versions need and that are gone although no pass could have deleted
    /// them. Unlisted containers are unknown.
    missing: HashSet<ContainerId>,
    /// Containers in manifests that appeared after the leases were listed. Their jobs may have
    /// begun after that, and their containers were not listed.
    late: HashSet<ContainerId>,
    /// Aborted generations that go (not `AbortedGenerationStays`).
    aborted: Vec<(Pin, u32)>,
    /// Versions that are retained.
    retained: BTreeSet<Pin>,
    /// For versions whose older generations do not count, the generation that holds.
    holding: BTreeMap<Pin, u32>,
}

impl Proposal {
    pub(super) fn new(mut before: Before, leases: Leases) -> Result<Self, PassError> {
        let named = leases.live.values().flat_map(|lease| lease.pins.iter().copied()).collect();
        let adopted: HashSet<JobId> =
            leases.live.values().flat_map(|lease| lease.adopts.iter().map(|pin| pin.job)).collect();
        // A job without any lease was closed and cleaned up before: its containers were listed
        // before its leases were.
        let is_over =
            |job: &JobId| before.settled.contains(job) || !leases.jobs.contains_key(job) || leases.unsettled_go;
        let listed = std::mem::take(&mut before.containers);
        let is_backup = |job: &JobId| leases.live.get(job).is_some_and(|lease| lease.kind == JobKind::Backup);
        let is_open = |job: &JobId| is_backup(job) && !adopted.contains(job);
        let candidates = DeleteCandidates::new(listed, |id| is_over(&id.job) && !adopted.contains(&id.job), is_open)?;
        let (retained, holding) = (BTreeSet::new(), BTreeMap::new());
        let (missing, late) = (HashSet::new(), HashSet::new());
        let aborted = Vec::new();
        Ok(Self { before, leases, named, candidates, adopted, missing, late, aborted, retained, holding })
    }

    /// Uploads of backups that run or were killed, without an end in their lease.
    pub(super) fn open_uploads(&mut self) -> Result<Vec<OpenUploads>, PassError> {
        let of_jobs = self.candidates.uploads()?;
        let of_jobs = of_jobs.into_iter().filter(|(job, _)| !self.before.settled.contains(job));
        let uploads = of_jobs.filter_map(|(job, (containers, bytes))| {
            let lease = self.leases.live.get(&job).filter(|lease| lease.ended != Some(true))?;
            let renewed_ms = self.leases.jobs.get(&job)?.renewed_ms;
            Some(OpenUploads { job, host: lease.host.clone(), containers, bytes: ByteCount(bytes), renewed_ms })
        });
        Ok(uploads.collect())
    }

    /// Whether a version that is listed after the leases has to be read. That is all but those that
    /// were marked before and that no job builds on or reads.
    pub(super) fn must_read(&self, version: &Pin, generations: &[u32]) -> bool {
        generations.first() == Some(&0) && (!self.before.marks.contains(version) || self.named.contains(version))
    }

    /// Whether a version was forgotten before the leases were listed.
    pub(super) fn is_marked(&self, version: &Pin) -> bool {
        self.before.marks.contains(version)
    }

    /// Whether a live lease names a version.
    pub(super) fn is_named(&self, version: &Pin) -> bool {
        self.named.contains(version)
    }

    /// To be called before versions are read: tells which of the listed containers the index has.
    pub(super) fn note_recorded(
        &mut self,
        has_record: impl Fn(&ContainerId) -> Result<bool, PassError>,
    ) -> Result<(), PassError> {
        self.candidates.note_recorded(has_record)
    }

    /// Unneeded containers that no index ever had. References to them may only be hidden.
    pub(super) fn unrecorded(&mut self) -> Result<Vec<Unrecorded>, PassError> {
        self.candidates.unrecorded()
    }

    /// This one stays for now.
    pub(super) fn spare(&mut self, container: &ContainerId) -> Result<(), PassError> {
        self.candidates.strike(container).map(drop)
    }

    /// The observations before the leases were listed.
    pub(super) fn before(&self) -> &Before {
        &self.before
    }

    /// The result of listing the leases.
    pub(super) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Unneeded containers that the index knew and that may go.
    pub(super) fn doom(&mut self, containers: Vec<ListedContainer>) -> Result<(), PassError> {
        self.candidates.extend(containers)
    }

    /// A container that retained versions use.
    pub(super) fn keep(&mut self, container: ContainerId) -> Result<(), PassError> {
        let was_listed = self.before.is_listed_whole || self.before.unknown.contains(&container.job);
        let is_gone = !self.candidates.keep(&container)? && was_listed && self.is_free(&container);
        if is_gone && !self.late.contains(&container) {
            self.missing.insert(container);
        }
        Ok(())
    }

    /// Whether nothing new can reference a container: neither its job, nor jobs that build on its
    /// leftovers.
    pub(super) fn is_free(&self, container: &ContainerId) -> bool {
        let job = &container.job;
        let is_over = self.before.settled.contains(job) || !self.leases.jobs.contains_key(job);
        is_over && !self.adopted.contains(job)
    }

    /// Versions that running backups and defragmentation name: they are about to be built on.
    pub(super) fn bases(&self) -> BTreeSet<Pin> {
        let builds = |lease: &&Lease| lease.kind == JobKind::Backup || lease.kind == JobKind::Task;
        self.leases.live.values().filter(builds).flat_map(|lease| lease.pins.iter().copied()).collect()
    }

    /// Adds the facts about jobs that decide whether their containers may be retired.
    pub(super) fn fill(&self, retention: &mut RetentionView) {
        retention.settled.clone_from(&self.before.settled);
        retention.leased = self.leases.jobs.keys().copied().collect();
        retention.adopted.clone_from(&self.adopted);
    }

    /// Containers that retained versions need and that are gone. `before` is the index's number of
    /// them. Only a complete listing overrides it.
    pub(super) fn missing(&self, before: u64) -> u64 {
        let seen = self.missing.len() as u64;
        if self.before.is_listed_whole { seen } else { seen.max(before) }
    }

    /// Those that were found missing.
    pub(super) fn missing_ids(&self) -> impl Iterator<Item = &ContainerId> {
        self.missing.iter()
    }

    /// A container that something forwards to is not there, or cannot be read.
    pub(super) fn miss(&mut self, container: ContainerId) {
        self.missing.insert(container);
    }

    /// Shows those that may go and that are not known to be needed.
    pub(super) fn each_doomed(
        &mut self,
        mut each: impl FnMut(ContainerId) -> Result<(), PassError>,
    ) -> Result<(), PassError> {
        self.candidates.each_unneeded(|container| each(container.id))
    }

    /// Whether a rebuild searched every container for the chunks of all that are missing.
    fn is_searched(&self, needs: &IndexNeeds) -> bool {
        if needs.trusts_rebuild {
            return true;
        }
        let is_data = |id: &&ContainerId| id.kind == ContainerKind::Data;
        let covers_seen = self.missing.iter().filter(is_data).all(|id| needs.searched.contains(id));
        // For unlisted containers the index has only the number.
        let covers_others = self.before.is_listed_whole || needs.missing <= needs.searched.len() as u64;
        !needs.searched.is_empty() && covers_seen && covers_others
    }

    /// Containers that a rebuild searched for and that are still missing, for the next index.
    pub(super) fn searched(&self, before: &HashSet<ContainerId>) -> Option<ContainerList> {
        let is_data = |id: &&ContainerId| id.kind == ContainerKind::Data;
        match self.before.is_listed_whole {
            true => ContainerList::of(before.iter().copied().filter(|id| self.missing.contains(id))),
            false if self.missing.iter().filter(is_data).all(|id| before.contains(id)) => {
                ContainerList::of(before.iter().copied())
            }
            // Only their number goes into the index, so it would be unknown later which of them are
            // meant.
            false => None,
        }
    }

    /// The generations of a retained version that were listed after the leases, newest first. All
    /// are retained if a live lease names the version (`NamedGenerationsRetained`). Otherwise an
    /// older one does not count if a newer one holds that was there before the leases
    /// (`SupersededBeforeLeases`).
    pub(super) fn generations(&self, version: &Pin, listed: &[u32]) -> Vec<(u32, Supersedes)> {
        let before = self.before.registers.get(version).map_or(&[][..], Vec::as_slice);
        let supersedes = |generation: &u32| match before.contains(generation)
            && (!self.named.contains(version) || self.leases.named_generations_go)
        {
            true => Supersedes::Older,
            false => Supersedes::Nothing,
        };
        listed.iter().rev().map(|generation| (*generation, supersedes(generation))).collect()
    }

    /// A version is retained.
    pub(super) fn retain(&mut self, version: Pin) {
        self.retained.insert(version);
    }

    /// A generation that is retained uses these containers. With each is whether the index of this
    /// pass, or an earlier generation, has named it: it is not new.
    ///
    /// A generation may be retained for a lease alone, of a version that is marked or has a newer
    /// one. Its containers may have been collected before that lease existed: the job looks, and
    /// does without (`RedirectToUnmarked`). So it is no loss if they are gone.
    pub(super) fn retain_generation(
        &mut self,
        version: Pin,
        generation: u32,
        why: Retained,
        containers: &[(ContainerId, bool)],
    ) -> Result<(), PassError> {
        let was_there = self.before.registers.get(&version).is_some_and(|before| before.contains(&generation));
        for (container, had_record) in containers {
            if was_there {
                self.late.remove(container);
            } else if !had_record && !self.missing.contains(container) {
                self.late.insert(*container);
            }
        }
        self.retain(version);
        for (container, _) in containers {
            match why {
                Retained::Holds => self.keep(*container)?,
                Retained::Named => drop(self.candidates.strike(container)?),
            }
        }
        Ok(())
    }

    /// This generation of a retained version holds a manifest. Those below it do not count and may
    /// go, except the register. It was there before the leases: [`Self::generations`] says so, or
    /// the index had it and no lease names the version. Whether its jobs have closed their leases
    /// does not matter. A generation that is created again below one that holds is void, and that
    /// one stays until there is a higher one.
    pub(super) fn supersede(&mut self, version: Pin, holding: u32) {
        self.holding.insert(version, holding);
    }

    /// These generations of a version were aborted, and go although their names must stay taken.
    pub(super) fn drop_aborted(&mut self, version: Pin, generations: &[u32]) {
        self.aborted.extend(generations.iter().filter(|generation| **generation > 0).map(|number| (version, *number)));
    }

    /// Versions that are forgotten and still retained, each with a job that needs it.
    pub(super) fn kept(&self) -> Vec<Kept> {
        let live = self.leases.live.iter();
        let names = live.flat_map(|(job, lease)| lease.pins.iter().map(move |pin| (*pin, *job, lease)));
        let kept = names.filter(|(pin, ..)| self.before.marks.contains(pin) && self.retained.contains(pin));
        kept.map(|(version, by, lease)| Kept { version, by, kind: lease.kind, host: lease.host.clone() }).collect()
    }

    /// Settled jobs that are no longer needed and have an object with the name of a closing mark.
    /// Whether it is one has to be checked (`RemoveOnlyClosed`).
    pub(super) fn closing(&self) -> Vec<JobId> {
        let retained: HashSet<JobId> = self.retained.iter().map(|pin| pin.job).collect();
        let listed = self.leases.jobs.iter();
        listed
            .filter(|(job, listed)| {
                (listed.has_done || self.leases.open_go) && self.before.settled.contains(job) && !retained.contains(job)
            })
            .map(|(job, _)| *job)
            .collect()
    }

    /// How many forgotten versions go now without ever having been in an index: their jobs are
    /// closed.
    pub(super) fn dropped(&self, closed: &HashSet<JobId>, indexed: &[IndexedVersion]) -> u64 {
        let indexed: HashSet<Pin> =
            indexed.iter().map(|version| Pin { series: version.series, job: version.job }).collect();
        let going = self.before.marks.iter().filter(|pin| closed.contains(&pin.job));
        going.filter(|pin| !indexed.contains(pin)).count() as u64
    }

    /// Jobs that are live.
    pub(super) fn live(&self) -> usize {
        self.leases.live.len()
    }

    /// The decision. `registers` was listed after the leases, and `closed` are those of
    /// [`Proposal::closing`] that are closed. `has_record` says whether the next index has a record
    /// of a container.
    ///
    /// No object of a job is removed before each of its containers goes or has a record, because
    /// later passes find them by its leases.
    pub(super) fn decide(
        self,
        registers: &BTreeMap<Pin, Vec<u32>>,
        closed: &HashSet<JobId>,
        needs: &IndexNeeds,
        has_record: impl Fn(&ContainerId) -> Result<bool, PassError>,
    ) -> Result<Decision, PassError> {
        let missing = self.missing(needs.missing);
        let is_searched = self.is_searched(needs);
        let Self { before, leases, mut candidates, holding, aborted, missing: unseen, .. } = self;
        // Only the index knows retired containers. If a container is missing, it is damaged, or
        // this index does not know where its chunks went. They may be in any container that no
        // version names, even of a version that was forgotten or rewritten since
        // (`rebuilt_histories.rs`). A rebuild has searched for the containers that it missed
        // itself, and for no others (`MissingStops`).
        let has_register: HashSet<JobId> = registers.keys().map(|pin| pin.job).collect();
        // Metadata is never redirected.
        let is_metadata = unseen.iter().all(|id| id.kind == ContainerKind::Meta);
        let is_told = is_searched || (is_metadata && (before.is_listed_whole || needs.missing == 0));
        let is_known = |id: &ContainerId| missing == 0 || (is_told && has_register.contains(&id.job));
        let may_go = |id: &ContainerId| is_known(id) && !needs.unread.contains(id);
        candidates.decide(may_go)?;
        let waiting = candidates.jobs_left(|job| before.unknown.contains(job), has_record)?;
        let containers = candidates.going()?;
        let mut removals: BTreeMap<JobId, Removal> = BTreeMap::new();
        for (job, listed) in &leases.jobs {
            // Leases of settled jobs no longer count. Those of closed jobs go with everything else.
            if before.settled.contains(job) || leases.expired.contains(job) {
                let removal = removals.entry(*job).or_default();
                removal.renewals.clone_from(&listed.renewals);
                removal.has_done = closed.contains(job);
            }
        }
        // A generation whose version has no register is a late one, and garbage. It takes two
        // listings: one may miss a register that is created meanwhile, and show objects that are
        // created after that.
        let is_garbage = |generations: &[u32]| generations.first() != Some(&0);
        let was_garbage = |pin: &Pin| before.registers.get(pin).is_some_and(|generations| is_garbage(generations));
        let gone = registers
            .iter()
            .filter(|(pin, generations)| closed.contains(&pin.job) || (is_garbage(generations) && was_garbage(pin)));
        for (pin, generations) in gone {
            removals.entry(pin.job).or_default().registers.push((*pin, generations.clone()));
        }
        // A mark goes with its register, or when it has none (`MarkRemovedLast`). So do pins.
        let goes = |pin: &Pin| match registers.contains_key(pin) {
            true => closed.contains(&pin.job),
            false => closed.contains(&pin.job) || !leases.jobs.contains_key(&pin.job),
        };
        for (pin, numbers) in before.pins.into_iter().filter(|(pin, _)| goes(pin)) {
            removals.entry(pin.job).or_default().pins.push((pin, numbers));
        }
        for pin in before.marks.iter().filter(|pin| goes(pin)) {
            removals.entry(pin.job).or_default().marks.push(*pin);
        }
        removals.retain(|job, removal| !removal.is_empty() && !waiting.contains(job));
        let below = holding.iter().flat_map(|(pin, holding)| {
            let generations = registers.get(pin).into_iter().flatten();
            generations.filter(|generation| (1..*holding).contains(*generation)).map(|generation| (*pin, *generation))
        });
        let superseded = below.chain(aborted).collect();
        let is_over = |job: &JobId| before.settled.contains(job) || !leases.jobs.contains_key(job);
        let runs = before.runs.into_iter().filter(|(id, _)| is_over(&id.job) && !needs.runs.contains(id));
        let runs: Vec<_> = runs.collect();
        let superseded_runs = runs.iter().filter(|(id, _)| needs.superseded.contains(id)).count();
        // Readers of the index that it is based on may still use them for a while.
        let indexes = before.indexes.into_iter().filter(|number| *number < needs.base).collect();
        let (without_meaning, index_marks) = (before.without_meaning, Vec::new());
        let decision =
            Decision { containers, removals, superseded, runs, indexes, index_marks, without_meaning, superseded_runs };
        Ok(decision)
    }
}

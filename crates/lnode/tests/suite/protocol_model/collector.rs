//! The steps of a collecting pass of a G-node: list, decide, publish, delete.
//!
//! Three things a real pass does are drawn more simply, each on the side that deletes more:
//! * Fencing and marking need no memory of the pass: any G-node (or user) may fence or mark at any moment, also late,
//!   on what it listed long ago. They are actions of their own in `model.rs`.
//! * What a pass must have seen *before* it lists the leases (marks, decided registers, containers) it sees all at once
//!   at the last possible moment, [`Protocol::begin`]. Having looked earlier would only show it less to delete.
//! * Listings of leases and of versions are not atomic: every job's entry is read at its own moment, in any order. The
//!   model lets an entry be read just before somebody changes it, or at the end of the listing; any other moment shows
//!   the same as one of these.

use crate::protocol_model::model::Protocol;
use crate::protocol_model::rules::Rule;
use crate::protocol_model::scenario::Kind;
use crate::protocol_model::sets::{Containers, Jobs};
use crate::protocol_model::state::{Bucket, Register, State, resolves};

/// Where a pass stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Idle,
    ListLeases,
    ListVersions,
    /// The decision is published; objects are deleted.
    Deleting,
}

/// The memory of one G-node. A crash wipes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Collector {
    pub(crate) phase: Phase,
    /// What existed when the leases began to be listed, while a redirect may still be decided.
    listed: Containers,
    /// Generations superseded by then; after the leases are listed, less those of versions that a live lease names.
    superseded: Jobs,
    /// Generations above which one holds a manifest, whatever they are themselves.
    replaced: Jobs,
    /// Of these, what may be retired: its job is settled and not adopted.
    movable: Containers,
    /// `aborted` generations that had to stay by then.
    barring: Jobs,
    /// Manifests marked or superseded by then, whoever names them.
    leaving: Jobs,
    /// What a redirect may lead to.
    safe: Containers,
    /// Containers that retained manifests need and that are nowhere, over a rebuilt index.
    missing: Containers,
    /// Entries of the current listing that were read.
    read: Jobs,
    /// Jobs whose register was decided, or whose lease was closed, when the leases began to be listed.
    settled: Jobs,
    /// Versions marked forgotten by then; after the leases are listed, less those that a live lease names.
    forgotten: Jobs,
    /// Jobs whose lease was open, closed, absent when it was listed.
    open: Jobs,
    closed: Jobs,
    gone: Jobs,
    /// Only without [`Rule::LeasesBeforeVersions`]: the versions as they were before the leases.
    versions: Option<Jobs>,
    /// Containers to delete, jobs of which everything goes, of which the lease's objects go, of which a stray mark goes.
    /// Listing the leases proposes them, listing the versions strikes out what is still needed.
    doomed: Containers,
    remove: Jobs,
    remove_lease: Jobs,
    remove_mark: Jobs,
}

/// One step of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassStep {
    Begin,
    /// Lists an open lease and takes it for expired without fencing: of readers, and of backups without [`Rule::Fence`].
    Expire(usize),
    /// All leases not read yet are read, and the versions begin to be listed.
    LeasesListed,
    /// All versions not read yet are read, and the decision is published.
    Publish,
    /// The same, and the first container's chunks are found in the second from now on, which has them as well.
    PublishRedirect(usize, usize),
    /// Every container of the decision. One by one would only leave more for longer.
    DeleteContainers,
    DeleteLease(usize),
    DeleteRegister(usize),
    DeleteDone(usize),
    DeleteMark(usize),
    Crash,
}

/// An entry of a listing that a step is about to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Lease(usize),
    Register(usize),
}

impl Protocol {
    /// The steps a G-node may take now.
    pub(crate) fn pass_steps(&self, state: &State, g: usize, steps: &mut Vec<PassStep>) {
        let pass = &state.g_nodes[g];
        match pass.phase {
            Phase::Idle => steps.push(PassStep::Begin),
            Phase::ListLeases => {
                let unread = |job: &usize| !pass.read.has(*job) && state.bucket.leases[*job].open();
                let expires = |job: &usize| {
                    self.scenario.jobs[*job].kind == Kind::Reader
                        || !self.rules.hold(Rule::Fence) && self.scenario.expirable.has(*job)
                };
                let expired = (0..state.jobs.len()).filter(unread).filter(expires);
                steps.extend(expired.map(PassStep::Expire));
                steps.push(PassStep::LeasesListed);
            }
            Phase::ListVersions => {
                steps.push(PassStep::Publish);
                let pairs = self.scenario.equal.iter().filter(|pair| state.bucket.index.forwards[pair.0].is_none());
                steps.extend(pairs.map(|(old, new)| PassStep::PublishRedirect(*old, *new)));
            }
            Phase::Deleting => self.deletions(state, pass, steps),
        }
    }

    /// Containers go at any time. Of each job: `jobs/<job>/0` goes, then the register, then `jobs/<job>/done` and the mark.
    fn deletions(&self, state: &State, pass: &Collector, steps: &mut Vec<PassStep>) {
        // A crash before this phase would leave nothing behind that not beginning would not leave as well.
        steps.push(PassStep::Crash);
        if !pass.doomed.is_empty() {
            steps.push(PassStep::DeleteContainers);
        }
        let bucket = &state.bucket;
        for job in 0..state.jobs.len() {
            let (lease, all) = (bucket.leases[job], pass.remove.has(job));
            let (registered, marked) = (self.is_registered(state, job), bucket.forgotten.has(job));
            let lease_goes = self.rules.hold(Rule::LeaseRemovedFirst) || !registered && !lease.done;
            if lease.first && (all && lease_goes || pass.remove_lease.has(job)) {
                steps.push(PassStep::DeleteLease(job));
            } else if registered && all {
                steps.push(PassStep::DeleteRegister(job));
            } else if lease.done && all {
                steps.push(PassStep::DeleteDone(job));
            } else if marked && !registered && (all || pass.remove_mark.has(job)) {
                steps.push(PassStep::DeleteMark(job));
            }
            if marked && registered && all && !self.rules.hold(Rule::MarkRemovedLast) {
                steps.push(PassStep::DeleteMark(job));
            }
        }
    }

    /// The G-node takes a step.
    pub(crate) fn take_pass_step(&self, state: &mut State, g: usize, step: PassStep) {
        match step {
            PassStep::Begin => state.g_nodes[g] = self.begin(state),
            PassStep::Expire(job) => {
                if self.scenario.jobs[job].kind == Kind::Reader {
                    state.history.expired_readers.insert(job);
                }
                let pass = &mut state.g_nodes[g];
                pass.read.insert(job);
                // Open, but not live: its lease may be removed.
                pass.open.insert(job);
                pass.settled.insert(job);
            }
            PassStep::LeasesListed => {
                self.read_the_rest(state, g);
                state.g_nodes[g] = self.propose(state, state.g_nodes[g]);
            }
            PassStep::Publish => {
                self.read_the_rest(state, g);
                self.publish(state, g);
            }
            PassStep::PublishRedirect(old, new) => {
                self.read_the_rest(state, g);
                if self.may_redirect(state, &state.g_nodes[g], old, new) {
                    let pass = &mut state.g_nodes[g];
                    pass.doomed = pass.doomed.minus(Containers::at(new));
                    self.redirect(state, old, new);
                }
                self.publish(state, g);
            }
            PassStep::DeleteContainers => {
                state.bucket.containers = state.bucket.containers.minus(state.g_nodes[g].doomed);
            }
            PassStep::DeleteLease(job) => state.bucket.leases[job].first = false,
            PassStep::DeleteRegister(job) => {
                state.bucket.registers[job] = Register::Absent;
                state.history.removed.insert(job);
                self.register_changed(state, job);
            }
            PassStep::DeleteDone(job) => state.bucket.leases[job].done = false,
            PassStep::DeleteMark(job) => state.bucket.forgotten.remove(job),
            PassStep::Crash => state.g_nodes[g] = Collector::default(),
        }
    }

    /// Whether G-node `g` is in the listing that shows `entry` and has not read it yet.
    pub(crate) fn may_read(&self, state: &State, g: usize, entry: Entry) -> bool {
        let pass = &state.g_nodes[g];
        let (listing, job) = match entry {
            Entry::Lease(job) => (Phase::ListLeases, job),
            Entry::Register(job) => (Phase::ListVersions, job),
        };
        pass.phase == listing && !pass.read.has(job)
    }

    /// G-node `g` reads one entry of the listing it is in.
    pub(crate) fn read_entry(&self, state: &mut State, g: usize, job: usize) {
        let (lease, register) = (state.bucket.leases[job], state.bucket.registers[job]);
        let manifest = self.kept_by(state, job);
        let missing = self.missing(state, job);
        let (is_task, is_generation) = (self.scenario.jobs[job].kind == Kind::Rewriting, self.compacts(job).is_some());
        let pass = &mut state.g_nodes[g];
        pass.read.insert(job);
        if pass.phase == Phase::ListLeases {
            let group = match lease {
                lease if lease.open() => &mut pass.open,
                lease if lease.done => &mut pass.closed,
                _ => &mut pass.gone,
            };
            group.insert(job);
            return;
        }
        if register != Register::Absent {
            pass.remove_mark.remove(job);
        }
        let version = pass.versions.map_or(register == Register::Manifest, |versions| versions.has(job));
        if version && !pass.forgotten.has(job) && !is_task {
            let superseded = pass.superseded.has(job);
            if !superseded {
                pass.missing = pass.missing.union(missing);
                pass.doomed = pass.doomed.minus(manifest);
            }
            if !superseded && !self.scenario.equal.is_empty() {
                let counts = !pass.leaving.has(job) || !self.rules.hold(Rule::RedirectToUnmarked);
                pass.safe = if counts { pass.safe.union(manifest) } else { pass.safe };
            }
            // The commit register of a version stays as long as it has any generation.
            if !superseded || !is_generation {
                pass.remove.remove(job);
            }
            if !is_generation {
                let barring: Vec<_> =
                    self.generations(job).filter(|generation| pass.barring.has(*generation)).collect();
                pass.remove = pass.remove.minus(Jobs::of(&barring));
            }
        }
    }

    /// Whether the chunks of another container may be retired for those in `new`.
    fn may_redirect(&self, state: &State, pass: &Collector, old: usize, new: usize) -> bool {
        let allowed = if self.rules.hold(Rule::RedirectToCommitted) { pass.safe } else { pass.listed };
        let (place, reclaimed) = (Containers::at(new), state.bucket.index.reclaimed);
        // The copy was read, at some time since the pass began.
        let verified = place.within(pass.listed);
        let copies = state.bucket.index.copies;
        let movable = Containers::at(old).within(pass.movable.minus(copies)) && !place.within(copies);
        movable
            && verified
            && place.within(allowed)
            && !(self.rules.hold(Rule::NotToRetired) && place.within(reclaimed))
    }

    fn read_the_rest(&self, state: &mut State, g: usize) {
        for job in 0..state.jobs.len() {
            if !state.g_nodes[g].read.has(job) {
                self.read_entry(state, g, job);
            }
        }
        state.g_nodes[g].read = Jobs::default();
    }

    /// A pass begins to list leases, and knows from before what is settled and forgotten and which containers exist.
    fn begin(&self, state: &State) -> Collector {
        let bucket = &state.bucket;
        let (mut settled, mut versions) = (state.history.void, Jobs::default());
        let (mut forgotten, mut superseded, mut replaced) = (bucket.forgotten, Jobs::default(), Jobs::default());
        for job in 0..state.jobs.len() {
            // A generation of a version that is forgotten or gone is as forgotten as that.
            let gone = |version: usize| bucket.forgotten.has(version) || bucket.registers[version] == Register::Absent;
            if self.compacts(job).is_some_and(gone) {
                forgotten.insert(job);
            }
            if bucket.registers[job] == Register::Manifest && self.is_superseded(state, job) {
                superseded.insert(job);
            }
            let is_generation = self.compacts(job).is_some() && bucket.registers[job] != Register::Absent;
            if is_generation && self.is_superseded(state, job) {
                replaced.insert(job);
            }
            // Numbers of the index below the newest are taken, also those that were deleted.
            let number_passed = self.scenario.jobs[job].kind == Kind::Rewriting && state.history.removed.has(job);
            if bucket.registers[job] != Register::Absent || bucket.leases[job].done || number_passed {
                settled.insert(job);
            }
            if bucket.registers[job] == Register::Manifest {
                versions.insert(job);
            }
        }
        Collector {
            phase: Phase::ListLeases,
            settled,
            forgotten,
            superseded,
            replaced,
            barring: self.barring(state),
            leaving: if self.scenario.equal.is_empty() { Jobs::default() } else { forgotten.union(superseded) },
            listed: if self.scenario.equal.is_empty() { Containers::default() } else { bucket.containers },
            doomed: bucket.containers,
            versions: (!self.rules.hold(Rule::LeasesBeforeVersions)).then_some(versions),
            ..Collector::default()
        }
    }

    /// The leases are listed: what may go unless a version still needs it.
    fn propose(&self, state: &State, pass: Collector) -> Collector {
        let late = self.begin(state);
        let settled = if self.rules.hold(Rule::SettledBeforeLeases) {
            pass.settled
        } else {
            pass.settled.union(late.settled) // Also those of an expired reader.
        };
        let marks = if self.rules.hold(Rule::MarksBeforeLeases) { pass.forgotten } else { late.forgotten };
        let before = self.rules.hold(Rule::SupersededBeforeLeases);
        let superseded = if before { pass.superseded } else { late.superseded };
        let containers = if self.rules.hold(Rule::ContainersBeforeLeases) { pass.doomed } else { late.doomed };

        // A lease whose job was settled before it was listed is not live: that job will reference nothing new.
        let live = pass.open.minus(settled);
        let (mut named, mut adopted) = (Jobs::default(), Jobs::default());
        let mut all_generations = Jobs::default();
        for job in live.iter() {
            self.scenario.jobs[job].base.iter().for_each(|base| named.insert(*base));
            // The lease names all whose containers the job may reference.
            let shares = self.scenario.jobs[job].shares.filter(|_| self.rules.hold(Rule::OwnersNamed));
            shares.iter().for_each(|other| named.insert(*other));
            adopted = adopted.union(self.scenario.jobs[job].adopts);
        }
        for version in named.iter() {
            all_generations.insert(version);
            self.generations(version).for_each(|job| all_generations.insert(job));
        }
        let held = |rule, jobs| if self.rules.hold(rule) { jobs } else { Jobs::default() };
        // A job without any lease was closed and cleaned up: its containers were listed before, so was its lease.
        let unsettled = held(Rule::UnsettledKept, Jobs(!0).minus(settled.union(pass.gone)));
        let kept = held(Rule::AdoptedKept, adopted).union(unsettled);
        let not_retired = Containers::of_jobs(held(Rule::RetireNotAdopted, adopted))
            .union(Containers::of_jobs(held(Rule::RetireSettled, Jobs(!0).minus(settled.union(pass.gone)))));
        let closed = if self.rules.hold(Rule::RemoveOnlyClosed) { pass.closed } else { pass.closed.union(pass.open) };
        Collector {
            phase: Phase::ListVersions,
            versions: pass.versions,
            forgotten: marks.minus(held(Rule::NamedVersionsRetained, all_generations)),
            superseded: superseded.minus(held(Rule::NamedGenerationsRetained, all_generations)),
            leaving: pass.leaving,
            listed: pass.listed,
            movable: pass.listed.minus(not_retired),
            doomed: containers.minus(Containers::of_jobs(kept)).minus(state.bucket.index.unread),
            // What lies below a generation that holds may come back late, and means nothing. So nobody needs to have closed.
            remove: settled
                .and(closed.union(pass.replaced.minus(held(Rule::NamedGenerationsRetained, all_generations)))),
            barring: pass.barring,
            remove_lease: settled.and(pass.open.union(pass.closed)),
            remove_mark: pass.gone.and(marks).and(state.bucket.forgotten),
            ..Collector::default()
        }
    }

    /// What the manifest of `job` needs and nobody finds, although a rebuild did not miss it.
    fn missing(&self, state: &State, job: usize) -> Containers {
        let Bucket { index, containers, .. } = &state.bucket;
        if !index.is_rebuilt || !self.rules.hold(Rule::MissingStops) {
            return Containers::default();
        }
        let wanted = state.manifest(job).minus(index.searched);
        let lost = wanted.iter().filter(|at| !resolves(Containers::at(*at), &index.forwards, *containers));
        lost.fold(Containers::default(), |all, at| all.union(Containers::at(at)))
    }

    fn publish(&self, state: &mut State, g: usize) {
        let pass = state.g_nodes[g];
        if !pass.missing.is_empty() {
            state.g_nodes[g] = Collector::default();
            return;
        }
        state.g_nodes[g] = Collector {
            phase: Phase::Deleting,
            doomed: pass.doomed,
            remove: pass.remove,
            remove_lease: pass.remove_lease,
            remove_mark: pass.remove_mark,
            ..Collector::default()
        };
        self.published(state, None);
    }

    /// The next number of the index was created.
    pub(crate) fn published(&self, state: &mut State, winner: Option<usize>) {
        self.number_taken(state, winner);
        if self.rules.hold(Rule::PublishFirst) {
            // Creating index manifest n+1 makes every other pass that began from n lose when it gets so far; until
            // then it changes nothing in the bucket, so it may as well stop now.
            for other in state.g_nodes.iter_mut().filter(|other| other.phase != Phase::Deleting) {
                *other = Collector::default();
            }
        }
    }

    /// Forgets what is already done, so that equal futures are equal states.
    pub(crate) fn tidy(&self, state: &mut State) {
        let mut registered = Jobs::default();
        (0..state.jobs.len()).filter(|job| self.is_registered(state, *job)).for_each(|job| registered.insert(job));
        let bucket = &state.bucket;
        for pass in state.g_nodes.iter_mut().filter(|pass| pass.phase == Phase::Deleting) {
            pass.doomed = pass.doomed.and(bucket.containers);
            for job in 0..state.jobs.len() {
                let lease = bucket.leases[job];
                if lease.absent() && !registered.has(job) && !bucket.forgotten.has(job) {
                    pass.remove.remove(job);
                }
                if pass.remove.has(job) || !lease.first {
                    pass.remove_lease.remove(job);
                }
                if pass.remove.has(job) || !bucket.forgotten.has(job) {
                    pass.remove_mark.remove(job);
                }
            }
            let jobs = pass.remove.union(pass.remove_lease).union(pass.remove_mark);
            if pass.doomed.is_empty() && jobs.is_empty() {
                *pass = Collector::default();
            }
        }
    }
}

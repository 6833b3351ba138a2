//! Generations of a version's manifest, and the index: what counts, and how tasks of the G-node change it.
//!
//! A compaction is a job whose commit register is the next generation of the version it names; of one version a higher number
//! of the job stands for a higher generation. A rewriting is a job whose register is the next number of the index, drawn as
//! `aborted` once somebody else has published it.

use crate::protocol_model::model::Protocol;
use crate::protocol_model::rules::Rule;
use crate::protocol_model::scenario::Kind;
use crate::protocol_model::sets::{Containers, Jobs};
use crate::protocol_model::state::{Register, State};

impl Protocol {
    /// The version of which `job` makes a generation.
    pub(crate) fn compacts(&self, job: usize) -> Option<usize> {
        self.scenario.jobs[job].base.filter(|_| self.scenario.jobs[job].kind == Kind::Compaction)
    }

    /// The compactions of `version`.
    pub(crate) fn generations(&self, version: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.scenario.jobs.len()).filter(move |job| self.compacts(*job) == Some(version))
    }

    /// Whether a higher generation than that of `job` holds a manifest. An `aborted` one supersedes nothing.
    pub(crate) fn is_superseded(&self, state: &State, job: usize) -> bool {
        let version = self.compacts(job).unwrap_or(job);
        let mut higher = self.generations(version).filter(|other| *other > job);
        higher.any(|other| state.bucket.registers[other] == Register::Manifest)
    }

    /// The compaction that wants the same number as `job`.
    fn rival(&self, job: usize) -> Option<usize> {
        let (one, other) = self.scenario.one_generation?;
        [(one, other), (other, one)].into_iter().find(|pair| pair.0 == job).map(|pair| pair.1)
    }

    /// The register of `job` was decided, or deleted: so was that of its rival.
    pub(crate) fn register_changed(&self, state: &mut State, job: usize) {
        let Some(rival) = self.rival(job) else { return };
        state.history.taken.insert(rival);
        state.bucket.registers[rival] = match state.bucket.registers[job] {
            // Whoever did not win finds the name taken.
            Register::Manifest | Register::Aborted => Register::Aborted,
            Register::Absent => Register::Absent,
        };
    }

    /// Whether there is something under the register's name that is not its rival's generation.
    pub(crate) fn is_registered(&self, state: &State, job: usize) -> bool {
        let taken = self.rival(job).is_some_and(|rival| state.bucket.registers[rival] == Register::Manifest);
        state.bucket.registers[job] != Register::Absent && !taken
    }

    /// `aborted` generations that still keep somebody from creating what would be the newest.
    pub(crate) fn barring(&self, state: &State) -> Jobs {
        let bucket = &state.bucket;
        let bars = |job: &usize| {
            let version = self.compacts(*job).is_some_and(|version| bucket.registers[version] == Register::Manifest);
            let aborted = bucket.registers[*job] == Register::Aborted && self.is_registered(state, *job);
            version && aborted && !self.is_superseded(state, *job)
        };
        let jobs: Vec<_> = (0..state.jobs.len()).filter(bars).collect();
        if self.rules.hold(Rule::AbortedGenerationStays) { Jobs::of(&jobs) } else { Jobs::default() }
    }

    /// The job whose manifest is the newest generation of `version`.
    pub(crate) fn newest_generation(&self, state: &State, version: usize) -> usize {
        let holding = self.generations(version).filter(|job| state.bucket.registers[*job] == Register::Manifest);
        holding.last().unwrap_or(version)
    }

    /// Whether the manifest of `job` is what its version is: the newest generation of a version that exists.
    pub(crate) fn is_current(&self, state: &State, job: usize) -> bool {
        let version = self.compacts(job).unwrap_or(job);
        let bucket = &state.bucket;
        self.scenario.jobs[version].kind == Kind::Backup
            && bucket.registers[version] == Register::Manifest
            && !bucket.forgotten.has(version)
            && self.newest_generation(state, version) == job
    }

    /// A version is visible when its manifest is in its register and no mark forgets it. A generation, when it is current.
    pub(crate) fn visible(&self, state: &State, job: usize) -> bool {
        match self.scenario.jobs[job].kind {
            Kind::Backup => state.bucket.registers[job] == Register::Manifest && !state.bucket.forgotten.has(job),
            _ => self.is_current(state, job),
        }
    }

    /// What all visible versions reference.
    pub(crate) fn referenced(&self, state: &State) -> Containers {
        (0..state.jobs.len())
            .filter(|job| self.is_current(state, *job))
            .fold(Containers::default(), |all, job| all.union(state.manifest(job)))
    }

    /// What a retained manifest keeps.
    pub(crate) fn kept_by(&self, state: &State, job: usize) -> Containers {
        let index = &state.bucket.index;
        let inherits = self.rules.hold(Rule::LaterReferencesInherit) || index.ingested.has(job);
        if self.rules.hold(Rule::RedirectIsReference) && inherits {
            index.closure(state.manifest(job))
        } else {
            state.manifest(job)
        }
    }

    /// The next number of the index is taken: by `winner`, or by a pass.
    pub(crate) fn number_taken(&self, state: &mut State, winner: Option<usize>) {
        for job in 0..state.jobs.len() {
            let undecided = state.bucket.registers[job] == Register::Absent && self.began(state, job);
            let kind = self.scenario.jobs[job].kind;
            if Some(job) != winner && kind == Kind::Rewriting && undecided && !state.history.removed.has(job) {
                state.bucket.registers[job] = Register::Aborted;
            }
            if kind == Kind::Compaction && !self.rules.hold(Rule::OwnRegister) && undecided {
                state.history.void.insert(job);
            }
        }
    }

    /// What a rebuild finds out about: what visible versions reference, and all generations of what live leases name.
    fn searched(&self, state: &State) -> Containers {
        let mut needed = self.referenced(state);
        if self.rules.hold(Rule::RebuildAsksLeases) {
            for job in (0..state.jobs.len()).filter(|job| state.bucket.leases[*job].open()) {
                let plan = &self.scenario.jobs[job];
                for version in plan.base.into_iter().chain(plan.shares) {
                    let all = std::iter::once(version).chain(self.generations(version));
                    let held = all.filter(|job| state.bucket.registers[*job] == Register::Manifest);
                    needed = held.fold(needed, |needed, job| needed.union(state.manifest(job)));
                }
            }
        }
        needed
    }

    /// Containers whose chunks are in one that a rebuild could not read, and that is there: the next one finds them.
    pub(crate) fn in_unread(&self, state: &State) -> Containers {
        let unread = state.bucket.index.unread.and(state.bucket.containers);
        let pairs = self.scenario.equal.iter().flat_map(|(one, other)| [(*one, *other), (*other, *one)]);
        let found = pairs.filter(|(_, other)| Containers::at(*other).within(unread));
        found.fold(Containers::default(), |all, (one, _)| all.union(Containers::at(one)))
    }

    /// Containers that a rebuild may fail to read without failing: those that nothing names which it looks for.
    pub(crate) fn unnamed(&self, state: &State) -> Containers {
        state.bucket.containers.minus(self.searched(state))
    }

    /// The newest index is lost, and with it what was retired and where it is now. A new one is made from what there is, as far as it
    /// can be read.
    pub(crate) fn rebuild(&self, state: &mut State, unread: Containers) {
        let needed = self.searched(state);
        let lost = std::mem::take(&mut state.bucket.index);
        state.bucket.deletes_in_flight = lost.reclaimed;
        state.history.rebuilt = true;
        let containers = state.bucket.containers.minus(unread);
        let index = &mut state.bucket.index;
        index.is_rebuilt = true;
        index.unread = if self.rules.hold(Rule::UnreadKept) { unread } else { Containers::default() };
        if self.rules.hold(Rule::RebuiltKeepsCopies) {
            index.copies = containers.union(index.unread);
        }
        let equal = self.scenario.equal.iter().flat_map(|(one, other)| [(*one, *other), (*other, *one)]);
        for (one, other) in equal {
            let [is_needed, has_one] = [needed, containers].map(|all| Containers::at(one).within(all));
            let has_other = Containers::at(other).within(containers);
            let keeps = self.rules.hold(Rule::RebuiltKeepsCopies) || !has_one;
            if is_needed && has_other && keeps {
                index.forwards[one] = Some(other as u8);
            }
        }
        let is_found = |at: &usize| Containers::at(*at).within(containers) || index.forwards[*at].is_some();
        let missing = needed.iter().filter(|at| !is_found(at));
        index.searched = missing.fold(Containers::default(), |all, at| all.union(Containers::at(at)));
        self.published(state, None);
    }

    /// The newest index says from now on that the chunks of `old` are in `new`.
    pub(crate) fn redirect(&self, state: &mut State, old: usize, new: usize) {
        if !self.rules.hold(Rule::LaterReferencesInherit) {
            let there: Vec<_> = (0..state.jobs.len()).filter(|job| self.visible(state, *job)).collect();
            state.bucket.index.ingested = state.bucket.index.ingested.union(Jobs::of(&there));
        }
        let index = &mut state.bucket.index;
        if self.rules.hold(Rule::OneHop) {
            let led_to_old = index.forwards.iter_mut().filter(|place| **place == Some(old as u8));
            led_to_old.for_each(|place| *place = Some(new as u8));
        }
        index.forwards[old] = Some(new as u8);
        index.reclaimed = index.reclaimed.union(Containers::at(old));
    }
}

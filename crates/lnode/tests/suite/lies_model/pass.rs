//! The requests of a pass.

use crate::lies_model::state::{At, Lie, Pass, Set, State};
use crate::lies_model::{Kind, Lies, Rule};

impl Lies {
    /// What the store may answer wrongly to the next request of the pass.
    pub(crate) fn pass_lies(&self, state: &State, is_dead: bool) -> Vec<Lie> {
        let listing = |entries: Set| -> Vec<Lie> {
            let one = entries.iter().map(Lie::Lacks);
            let all = (entries.iter().count() > 1).then_some(Lie::LacksAll);
            one.chain(all).collect()
        };
        match state.pass.at {
            At::Registers | At::Versions => listing(state.registers()),
            At::Jobs | At::Leases | At::LeasesAgain => listing(state.listed_jobs()),
            At::Marks => listing(state.marks),
            At::Containers => listing(state.containers),
            At::Settle(job) if state.dones.has(job) => vec![Lie::NotFound],
            At::Settle(job) if is_dead && !state.registers().has(job) => vec![Lie::NotApplied, Lie::Exists],
            At::Lease(job) | At::LeaseAgain(job) if state.leases.has(job) => vec![Lie::NotFound],
            At::ReadBack(job) | At::Version(job) | At::Register(job) if state.registers().has(job) => {
                vec![Lie::NotFound]
            }
            At::Delete | At::RemoveLease(_) | At::RemoveRegister(_) | At::RemoveDone(_) | At::RemoveMark(_) => {
                vec![Lie::NotApplied]
            }
            _ => Vec::new(),
        }
    }

    /// Whether the pass may take the lease of the job that it looks at for expired.
    pub(crate) fn may_expire(&self, state: &State) -> bool {
        match state.pass.at {
            At::Settle(job) => state.leases.has(job),
            _ => false,
        }
    }

    /// The pass sends its next request.
    pub(crate) fn pass_step(&self, state: &mut State, is_dead: bool, lie: Option<Lie>) {
        let mut pass = state.pass;
        let is_found = lie != Some(Lie::NotFound);
        match pass.at {
            At::Idle => pass = Pass { at: At::Registers, ..Pass::default() },
            At::Registers => {
                pass.registers = Lie::show(lie, state.registers());
                pass.settled = pass.registers;
                pass.at = At::Jobs;
            }
            At::Jobs => {
                pass.jobs = Lie::show(lie, state.listed_jobs());
                pass.at = self.settle_from(&pass, 0);
            }
            At::Settle(job) => {
                pass.at = self.settle_from(&pass, job + 1);
                // One whose `done` is there is not fenced, unless the store says that it is not there.
                if is_dead && (!state.dones.has(job) || !is_found) {
                    if matches!(lie, None | Some(Lie::NotFound)) && !state.registers().has(job) {
                        state.aborted.insert(job);
                    }
                    if self.keeps(Rule::FenceReadBack) {
                        pass.at = At::ReadBack(job);
                    } else {
                        pass.settled.insert(job);
                    }
                } else if state.dones.has(job) && is_found {
                    pass.settled.insert(job);
                }
            }
            At::ReadBack(job) => {
                pass.at = self.settle_from(&pass, job + 1);
                if state.registers().has(job) && is_found {
                    pass.settled.insert(job);
                    pass.registers.insert(job);
                }
            }
            At::Marks => {
                pass.marks = Lie::show(lie, state.marks);
                pass.at = At::Containers;
            }
            At::Containers => {
                pass.listed = Lie::show(lie, state.containers);
                pass.old = state.old;
                pass.at = At::Leases;
            }
            At::Leases => {
                pass.leases = Lie::show(lie, state.listed_jobs());
                let twice = self.keeps(Rule::LeasesListedTwice);
                pass.at = if twice { At::LeasesAgain } else { self.lease_from(&pass, 0) };
            }
            At::LeasesAgain => {
                pass.leases = pass.leases.or(Lie::show(lie, state.listed_jobs()));
                pass.at = self.lease_from(&pass, 0);
            }
            At::Lease(job) | At::LeaseAgain(job) => {
                let is_first = matches!(pass.at, At::Lease(_));
                pass.at = self.lease_from(&pass, job + 1);
                // One that closed since may have committed since. It was there, so its own containers are not touched this time.
                let is_live = self.keeps(Rule::ClosedSinceRetained) || !state.dones.has(job);
                if is_live && state.leases.has(job) && is_found {
                    pass.named = pass.named.or(self.jobs[job].base.map_or(Set::default(), |base| Set::of(&[base])));
                    pass.adopted = pass.adopted.or(self.jobs[job].adopts.map_or(Set::default(), |job| Set::of(&[job])));
                } else if is_live && is_first && self.keeps(Rule::LeaseAskedAgain) {
                    pass.at = At::LeaseAgain(job);
                }
            }
            At::Versions => {
                pass.versions = Lie::show(lie, state.registers());
                pass.at = self.version_from(state, &mut pass, 0);
            }
            At::Version(job) => {
                if state.registers().has(job) && is_found {
                    pass.versions.insert(job);
                    pass.at = self.version_from(state, &mut pass, job + 1);
                } else {
                    // Another pass was faster.
                    pass = Pass::default();
                }
            }
            At::Register(job) => {
                pass.asked.insert(job);
                if state.registers().has(job) && is_found {
                    pass.versions.insert(job);
                } else if self.keeps(Rule::CommittedAccounted) && pass.said_committed.has(job) && !pass.marks.has(job) {
                    // Damage.
                    state.pass = Pass::default();
                    return;
                }
                pass.at = self.decide(state, &mut pass);
            }
            At::Delete => {
                if lie.is_none() {
                    state.containers = state.containers.minus(pass.doomed);
                }
                pass.doomed = Set::default();
                pass.at = self.remove_from(state, &pass, 0);
            }
            At::RemoveLease(job) => {
                if lie.is_none() {
                    state.leases.remove(job);
                }
                pass.at = if pass.removed.has(job) {
                    At::RemoveRegister(job)
                } else {
                    self.remove_from(state, &pass, job + 1)
                };
            }
            At::RemoveRegister(job) => {
                if lie.is_none() {
                    state.manifests.remove(job);
                    state.aborted.remove(job);
                }
                pass.at = At::RemoveDone(job);
            }
            At::RemoveDone(job) => {
                if lie.is_none() {
                    state.dones.remove(job);
                }
                let stays = self.keeps(Rule::RegisterGoneBeforeMark) && state.registers().has(job);
                let next = self.remove_from(state, &pass, job + 1);
                pass.at = if state.marks.has(job) && !stays { At::RemoveMark(job) } else { next };
            }
            At::RemoveMark(job) => {
                if lie.is_none() {
                    state.marks.remove(job);
                }
                pass.at = self.remove_from(state, &pass, job + 1);
            }
        }
        state.pass = pass;
        if matches!(state.pass.at, At::Idle) {
            state.pass = Pass::default();
        }
    }

    fn settle_from(&self, pass: &Pass, from: usize) -> At {
        let open = pass.jobs.minus(pass.registers);
        open.iter().find(|job| *job >= from).map_or(At::Marks, At::Settle)
    }

    fn lease_from(&self, pass: &Pass, from: usize) -> At {
        let open = pass.leases.minus(pass.settled);
        open.iter().find(|job| *job >= from).map_or(At::Versions, At::Lease)
    }

    /// Registers that step 2 showed, and step 5 does not, are asked for by name.
    fn version_from(&self, state: &State, pass: &mut Pass, from: usize) -> At {
        let lacking =
            if self.keeps(Rule::RegistersJoined) { pass.registers.minus(pass.versions) } else { Set::default() };
        match lacking.iter().find(|job| *job >= from) {
            Some(job) => At::Version(job),
            None => self.decide(state, pass),
        }
    }

    /// What goes, and the next request on the way there.
    fn decide(&self, state: &State, pass: &mut Pass) -> At {
        let mut kept = Set::default();
        let mut retained = Set::default();
        // A manifest that is listed is read.
        let versions = pass.versions.and(state.manifests);
        for version in versions.iter().filter(|job| self.jobs[*job].kind == Kind::Backup) {
            if pass.marks.has(version) && !pass.named.has(version) {
                continue;
            }
            retained.insert(version);
            let newer = (0..self.jobs.len()).filter(|job| self.is_generation_of(*job, version) && versions.has(*job));
            let mut is_superseded = false;
            for generation in newer {
                retained.insert(generation);
                kept = kept.or(state.references[generation]);
                is_superseded |= pass.registers.has(generation) && !pass.named.has(version);
            }
            if !is_superseded {
                kept = kept.or(state.references[version]);
            }
        }
        let is_over = pass.settled.or(Set(!0).minus(pass.leases));
        let closed = pass.settled.and(state.dones);
        // What its job said of it, or that it ended and was aborted, makes a container garbage at any age.
        let garbage = closed.minus(state.committed).or(state.ended.and(state.aborted));
        let old = if self.keeps(Rule::OldEnough) { pass.old.or(garbage) } else { Set(!0) };
        pass.said_committed = closed.and(state.committed);
        pass.doomed = pass.listed.and(is_over).and(old).minus(pass.adopted).minus(kept);
        // The name of a register follows from the lease or from `done`. A job that was settled without one may have just committed.
        let unknown = pass.settled.minus(pass.versions).minus(pass.asked).and(state.listed_jobs());
        if self.keeps(Rule::RegisterAsked)
            && let Some(job) = unknown.iter().next()
        {
            return At::Register(job);
        }
        let settled = pass.leases.and(pass.settled);
        pass.unleased = settled;
        pass.removed = settled.and(state.dones).minus(retained);
        // A generation stays as long as its version.
        let generations = (0..self.jobs.len()).filter(|job| self.jobs[*job].kind == Kind::Compaction);
        generations.for_each(|job| pass.removed.remove(job));
        // Nothing of a job is removed before its containers go.
        pass.removed = pass.removed.minus(pass.listed.minus(pass.doomed));
        // Step 6: the decision stands.
        let Pass { doomed, removed, unleased, .. } = *pass;
        *pass = Pass { doomed, removed, unleased, ..Pass::default() };
        At::Delete
    }

    fn remove_from(&self, state: &State, pass: &Pass, from: usize) -> At {
        let goes = |job: &usize| {
            let all =
                pass.removed.has(*job) && !state.listed_jobs().or(state.registers()).and(Set::of(&[*job])).is_empty();
            all || (pass.unleased.has(*job) && state.leases.has(*job))
        };
        (from..self.jobs.len()).find(goes).map_or(At::Idle, At::RemoveLease)
    }
}

//! The requests of a job.

use crate::lies_model::state::{Lie, Set, State};
use crate::lies_model::{Kind, Lies, Rule};

/// One request of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    CreateLease,
    /// The same once more: it must exist.
    Probe,
    /// The base's mark must be absent.
    Mark(usize),
    /// The base's register must hold a manifest.
    Manifest(usize),
    /// The adopted job's register must be empty, its `done` absent, its lease there.
    Undecided(usize),
    NotDone(usize),
    Leased(usize),
    Upload,
    /// What was uploaded must be listed.
    ListOwn,
    Commit,
    /// The register must hold the manifest.
    ReadBack,
    Close,
}

impl Lies {
    /// What a job does under the rules in force.
    pub(crate) fn program(&self, job: usize) -> Vec<Step> {
        let plan = &self.jobs[job];
        let mut steps = vec![Step::CreateLease];
        if self.keeps(Rule::ProbedFirst) {
            steps.push(Step::Probe);
        }
        let looks = if self.keeps(Rule::LooksTwice) { 2 } else { 1 };
        if let Some(base) = plan.base {
            steps.extend(std::iter::repeat_n(Step::Mark(base), looks));
            let at = if self.keeps(Rule::MarksThenRegister) { steps.len() } else { steps.len() - 1 };
            steps.insert(at, Step::Manifest(base));
        }
        if let Some(adopted) = plan.adopts {
            steps.extend(std::iter::repeat_n(Step::Undecided(adopted), looks));
            steps.extend(std::iter::repeat_n(Step::NotDone(adopted), looks));
            steps.push(Step::Leased(adopted));
        }
        steps.push(Step::Upload);
        if self.keeps(Rule::UploadsListed) {
            steps.push(Step::ListOwn);
        }
        steps.push(Step::Commit);
        if self.keeps(Rule::CommitReadBack) {
            steps.push(Step::ReadBack);
        }
        steps.push(Step::Close);
        steps
    }

    /// The next request of `job`.
    pub(crate) fn next_step(&self, state: &State, job: usize) -> Option<Step> {
        let is_over = state.jobs[job].is_over;
        self.programs[job].get(state.jobs[job].at as usize).copied().filter(|_| !is_over)
    }

    /// What the store may answer wrongly.
    pub(crate) fn job_lies(&self, state: &State, job: usize, step: Step) -> Vec<Lie> {
        let registers = state.registers();
        let (there, absent) = (vec![Lie::NotFound], vec![Lie::NotApplied, Lie::Exists]);
        match step {
            Step::CreateLease | Step::Upload => absent,
            Step::Probe if state.leases.has(job) => vec![Lie::NotApplied],
            Step::Probe => absent,
            Step::Mark(base) if state.marks.has(base) => there,
            Step::Manifest(base) if state.manifests.has(base) => there,
            Step::Undecided(adopted) if registers.has(adopted) => there,
            Step::NotDone(adopted) if state.dones.has(adopted) => there,
            Step::Leased(adopted) if state.leases.has(adopted) => there,
            Step::ListOwn if state.containers.has(job) => vec![Lie::LacksAll],
            Step::Commit if !registers.has(job) => absent,
            Step::Commit => vec![Lie::NotApplied],
            Step::ReadBack if registers.has(job) => there,
            Step::Close => absent,
            _ => Vec::new(),
        }
    }

    /// `job` sends its next request.
    pub(crate) fn job_step(&self, state: &mut State, job: usize, step: Step, lie: Option<Lie>) {
        state.jobs[job].at += 1;
        let is_found = lie != Some(Lie::NotFound);
        match step {
            Step::CreateLease => match lie {
                None => state.leases.insert(job),
                Some(Lie::NotApplied) => {}
                // It reads back, and finds nothing.
                Some(_) => state.jobs[job].is_over = true,
            },
            Step::Probe => {
                let exists = lie == Some(Lie::Exists) || (lie.is_none() && state.leases.has(job));
                if lie.is_none() {
                    state.leases.insert(job);
                }
                state.jobs[job].is_over = !exists;
            }
            Step::Mark(base) => self.look(state, job, base, !(state.marks.has(base) && is_found)),
            Step::Manifest(base) => {
                let is_there = state.manifests.has(base) && is_found;
                self.look(state, job, base, is_there);
                if is_there {
                    let newest = self.newest(state, base);
                    state.jobs[job].taken = state.jobs[job].taken.or(state.references[newest]);
                }
            }
            Step::Undecided(adopted) => {
                self.look(state, job, adopted, !(state.registers().has(adopted) && is_found));
            }
            Step::NotDone(adopted) => self.look(state, job, adopted, !(state.dones.has(adopted) && is_found)),
            Step::Leased(adopted) => {
                if state.leases.has(adopted) && is_found {
                    // It reads what it adopts, so what is gone by then is not used.
                    let own = Set::of(&[adopted]).and(state.containers);
                    state.jobs[job].taken = state.jobs[job].taken.or(own);
                }
            }
            Step::Upload => {
                if lie.is_none() {
                    state.containers.insert(job);
                }
                state.jobs[job].is_over |= lie == Some(Lie::Exists);
            }
            Step::ListOwn => {
                let own = Lie::show(lie, state.containers);
                state.jobs[job].is_over |= !own.has(job);
            }
            Step::Commit => self.commit(state, job, lie),
            Step::ReadBack => {
                let is_there = state.manifests.has(job) && is_found;
                state.jobs[job].is_over |= !is_there;
                state.jobs[job].is_saved = is_there;
            }
            Step::Close => {
                if lie.is_none() {
                    state.dones.insert(job);
                }
                state.jobs[job].is_over = true;
            }
        }
        if state.jobs[job].is_over {
            state.jobs[job].at = self.programs[job].len() as u8;
        }
        let has_committed =
            self.programs[job].iter().take(state.jobs[job].at as usize).any(|step| *step == Step::Commit);
        if has_committed {
            state.jobs[job].taken = Set::default();
        }
    }

    /// What fails its look is done without.
    fn look(&self, state: &mut State, job: usize, at: usize, is_good: bool) {
        let is_about = |step: &Step| match step {
            Step::Mark(of) | Step::Manifest(of) => *of == at,
            Step::Undecided(of) | Step::NotDone(of) | Step::Leased(of) => *of == at,
            _ => false,
        };
        if is_good {
            return;
        }
        // The base was read already.
        if self.jobs[job].base == Some(at) {
            state.jobs[job].taken = Set::default();
        }
        if self.jobs[job].kind == Kind::Compaction {
            state.jobs[job].is_over = true;
            return;
        }
        while self.programs[job].get(state.jobs[job].at as usize).is_some_and(is_about) {
            state.jobs[job].at += 1;
        }
    }

    fn commit(&self, state: &mut State, job: usize, lie: Option<Lie>) {
        // A compaction moves everything to its own container.
        let taken = if self.jobs[job].kind == Kind::Compaction { Set::default() } else { state.jobs[job].taken };
        match lie {
            None if !state.registers().has(job) => {
                state.references[job] = taken.with(job);
                state.manifests.insert(job);
                state.committed.insert(job);
            }
            // It finds the register taken, or reads back and finds nothing there.
            None | Some(Lie::Exists) => state.jobs[job].is_over = true,
            Some(_) => {}
        }
        state.jobs[job].is_saved = !state.jobs[job].is_over && !self.keeps(Rule::CommitReadBack);
    }

    /// The job whose manifest is what a version is.
    pub(crate) fn newest(&self, state: &State, version: usize) -> usize {
        let newer = |job: &usize| self.is_generation_of(*job, version) && state.manifests.has(*job);
        (0..self.jobs.len()).rfind(newer).unwrap_or(version)
    }

    /// Whether the register of `job` is a generation of `version`.
    pub(crate) fn is_generation_of(&self, job: usize, version: usize) -> bool {
        self.jobs[job].kind == Kind::Compaction && self.jobs[job].base == Some(version)
    }
}

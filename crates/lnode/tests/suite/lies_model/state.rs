//! The bucket, what each process knows, and the sets both are made of.

/// Most jobs of a scenario.
pub(crate) const JOBS: usize = 3;

/// A set of jobs. A job has one container, which has its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Set(pub(crate) u8);

impl Set {
    pub(crate) fn of(jobs: &[usize]) -> Self {
        Self(jobs.iter().fold(0, |bits, job| bits | 1 << job))
    }

    pub(crate) fn has(self, job: usize) -> bool {
        self.0 & (1 << job) != 0
    }

    pub(crate) fn with(self, job: usize) -> Self {
        Self(self.0 | 1 << job)
    }

    pub(crate) fn insert(&mut self, job: usize) {
        *self = self.with(job);
    }

    pub(crate) fn remove(&mut self, job: usize) {
        self.0 &= !(1 << job);
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..JOBS).filter(move |job| self.has(*job))
    }
}

/// The wrong answer to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Lie {
    /// A listing lacks the entries of one job.
    Lacks(usize),
    /// A listing shows nothing.
    LacksAll,
    /// What was asked for by name is there, and the store says that it is not.
    NotFound,
    /// A create or delete was answered as done and is never applied.
    NotApplied,
    /// A create was answered "exists" though nothing is there.
    Exists,
}

impl Lie {
    /// What a listing shows of `entries`.
    pub(crate) fn show(lie: Option<Self>, entries: Set) -> Set {
        match lie {
            Some(Self::Lacks(job)) => entries.minus(Set::of(&[job])),
            Some(Self::LacksAll) => Set::default(),
            _ => entries,
        }
    }
}

/// Where a pass stands: its next request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum At {
    #[default]
    Idle,
    /// Step 2: list the registers, then the leases.
    Registers,
    Jobs,
    /// Whether a job is settled: its `done` is read, or its register is created as `aborted`.
    Settle(usize),
    /// What the register of a job holds that was to be fenced.
    ReadBack(usize),
    Marks,
    Containers,
    /// Step 4: list the leases, list them again, read each.
    Leases,
    LeasesAgain,
    Lease(usize),
    LeaseAgain(usize),
    /// Step 5: list the versions; ask for those that only step 2 showed.
    Versions,
    Version(usize),
    /// Ask for the register of a settled job.
    Register(usize),
    Delete,
    /// Of a job that goes: lease, register, `done`, mark.
    RemoveLease(usize),
    RemoveRegister(usize),
    RemoveDone(usize),
    RemoveMark(usize),
}

/// What a pass has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pass {
    pub(crate) at: At,
    pub(crate) registers: Set,
    pub(crate) jobs: Set,
    pub(crate) settled: Set,
    /// Jobs of which a closing mark says that they committed.
    pub(crate) said_committed: Set,
    pub(crate) marks: Set,
    pub(crate) listed: Set,
    /// Which of them were old enough.
    pub(crate) old: Set,
    pub(crate) leases: Set,
    pub(crate) named: Set,
    pub(crate) adopted: Set,
    pub(crate) versions: Set,
    /// Jobs whose register was asked for by name.
    pub(crate) asked: Set,
    pub(crate) doomed: Set,
    pub(crate) removed: Set,
    pub(crate) unleased: Set,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    pub(crate) at: u8,
    /// Containers that it references if it commits.
    pub(crate) taken: Set,
    /// It does nothing any more.
    pub(crate) is_over: bool,
    /// It said that its version is saved.
    pub(crate) is_saved: bool,
}

/// Everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// `jobs/<job>/0`
    pub(crate) leases: Set,
    /// `jobs/<job>/done`
    pub(crate) dones: Set,
    /// Registers with `aborted`, and with a manifest. That of a compaction is the next generation of its version.
    pub(crate) aborted: Set,
    pub(crate) manifests: Set,
    /// `forgotten/<series>/<job>`
    pub(crate) marks: Set,
    pub(crate) containers: Set,
    /// Leases that say that their job ended by itself.
    pub(crate) ended: Set,
    /// Containers that are older than the minimum age.
    pub(crate) old: Set,
    /// What manifests reference.
    pub(crate) references: [Set; JOBS],
    pub(crate) jobs: [Job; JOBS],
    pub(crate) pass: Pass,
    /// The store has told its lie.
    pub(crate) has_lied: bool,
    /// For the invariants: versions that somebody forgot, that committed, and whose register was lost.
    pub(crate) forgotten: Set,
    pub(crate) committed: Set,
    pub(crate) lost: Set,
    /// Of these, the ones whose job was closed by then.
    pub(crate) lost_closed: Set,
}

impl State {
    /// Registers that hold anything.
    pub(crate) fn registers(&self) -> Set {
        self.manifests.or(self.aborted)
    }

    /// Jobs with anything below `jobs/`.
    pub(crate) fn listed_jobs(&self) -> Set {
        self.leases.or(self.dones)
    }
}

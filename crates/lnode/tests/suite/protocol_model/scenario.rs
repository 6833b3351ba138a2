//! What may happen in one run of the checker: which jobs there are, what they want, and what may go wrong.

use crate::protocol_model::sets::{CONTAINERS_PER_JOB, Containers, Jobs};

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Uploads containers and commits a version.
    Backup,
    /// Restore or check: reads the version named as its base, commits nothing.
    Reader,
    /// Lays out the version named as its base again: its commit register is the version's next generation.
    Compaction,
    /// Writes one container again and publishes an index that redirects the old one: its commit register is the index's next
    /// number, which any pass of a G-node may take before it.
    Rewriting,
}

/// How far a job has come when the scenario begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Nothing of it exists.
    Nothing,
    /// Its lease and all its containers exist; it may be dead, or slow and about to commit.
    Uploaded,
    /// It committed and closed its lease, of which only `done` is left.
    Closed,
}

/// One job of a scenario. Stopping for good needs no action: every prefix of its steps is explored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) start: Start,
    /// The version it names as base, or reads.
    pub(crate) base: Option<usize>,
    /// A second version, whose first container it shares in the place of what it leaves.
    pub(crate) shares: Option<usize>,
    /// The jobs whose containers it wants to reuse. Ascending order of checks.
    pub(crate) adopts: Jobs,
    /// Containers it uploads and references.
    pub(crate) used: usize,
    /// Containers it uploads after those and does not reference (their file changed while it was read).
    pub(crate) left_over: usize,
    /// Containers whose chunks it moves to its own: of the version it compacts, or any one that it writes again.
    pub(crate) replaces: Containers,
    /// Whether this reader goes through the index for what it does not find.
    pub(crate) resolves: bool,
}

impl Plan {
    /// A backup without base that uploads one container.
    pub(crate) const BACKUP: Self = Self {
        kind: Kind::Backup,
        start: Start::Nothing,
        base: None,
        shares: None,
        adopts: Jobs(0),
        used: 1,
        left_over: 0,
        replaces: Containers(0),
        resolves: false,
    };

    /// A version that lies in the repository from the start.
    pub(crate) const VERSION: Self = Self { start: Start::Closed, ..Self::BACKUP };

    /// A backup that has uploaded everything, also a container that it will not reference.
    pub(crate) const UPLOADED: Self = Self { start: Start::Uploaded, left_over: 1, ..Self::BACKUP };

    /// A restore or check of `version`.
    pub(crate) const fn reader(version: usize) -> Self {
        Self { kind: Kind::Reader, base: Some(version), used: 0, ..Self::BACKUP }
    }

    /// A restore or check of `version` that reads the index.
    pub(crate) const fn resolving_reader(version: usize) -> Self {
        Self { resolves: true, ..Self::reader(version) }
    }

    /// A task that moves what is in the first container of `version` to its own, as a new generation of the manifest.
    pub(crate) fn compaction(version: usize) -> Self {
        Self { kind: Kind::Compaction, base: Some(version), replaces: Containers::one(version, 0), ..Self::BACKUP }
    }

    /// A task that writes the first container of `job` again.
    pub(crate) fn rewriting(job: usize) -> Self {
        Self { kind: Kind::Rewriting, replaces: Containers::one(job, 0), ..Self::BACKUP }
    }

    /// The same job with a base.
    pub(crate) const fn on(self, base: usize) -> Self {
        Self { base: Some(base), ..self }
    }

    /// The same compaction, leading what it moves to a container of another version as well.
    pub(crate) const fn sharing(self, version: usize) -> Self {
        Self { shares: Some(version), ..self }
    }

    /// The same job, adopting others.
    pub(crate) fn adopting(self, jobs: &[usize]) -> Self {
        Self { adopts: Jobs::of(jobs), ..self }
    }
}

/// The bounds of one exploration.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) jobs: Vec<Plan>,
    /// How many G-nodes run. Each starts pass after pass and may stop at any step.
    pub(crate) g_nodes: usize,
    /// Versions a user may forget, once they were committed.
    pub(crate) forgettable: Jobs,
    /// Jobs whose lease some G-node may find expired, at any moment.
    pub(crate) expirable: Jobs,
    /// Jobs whose first create of the register may stay without an answer, and be applied at any later moment.
    pub(crate) unanswered_commit: Jobs,
    /// Jobs whose first create of `jobs/<job>/0` may do the same.
    pub(crate) unanswered_lease: Jobs,
    /// Jobs that may end without a version when all is uploaded.
    pub(crate) retires: Jobs,
    /// G-nodes also fence on leases they listed long ago, after the register was removed.
    pub(crate) late_fences: bool,
    /// Containers that hold the same chunk: reverse dedup may retire the first for the second, as jobs' first containers.
    pub(crate) equal: Vec<(usize, usize)>,
    /// Two compactions that chose the same number: their register is one.
    pub(crate) one_generation: Option<(usize, usize)>,
    /// A generation that is there may become one that cannot be read, when a pass has read it.
    pub(crate) rots: bool,
    /// The store ignores the condition of a create, and overwrites.
    pub(crate) overwrites: bool,
    /// The repository is a copy that lacks what the index gives as the place of what was moved.
    pub(crate) is_copy: bool,
    /// The index may be lost once, and rebuilt.
    pub(crate) index_lost: bool,
    /// But only while no delete of what was retired is under way.
    pub(crate) deleted_first: bool,
    /// Whoever rebuilds it may fail to read a container that no version names.
    pub(crate) unreadable: bool,
}

impl Scenario {
    /// Every backup may be found expired, every version forgotten, every create is answered.
    pub(crate) fn new(jobs: &[Plan], g_nodes: usize) -> Self {
        let of = |kinds: &[Kind]| {
            let jobs: Vec<_> = (0..jobs.len()).filter(|job| kinds.contains(&jobs[*job].kind)).collect();
            Jobs::of(&jobs)
        };
        Self {
            jobs: jobs.to_vec(),
            g_nodes,
            forgettable: of(&[Kind::Backup]),
            expirable: of(&[Kind::Backup, Kind::Compaction]),
            unanswered_commit: Jobs::default(),
            unanswered_lease: Jobs::default(),
            retires: Jobs::default(),
            late_fences: false,
            equal: Vec::new(),
            one_generation: None,
            rots: false,
            overwrites: false,
            is_copy: false,
            index_lost: false,
            deleted_first: false,
            unreadable: false,
        }
    }

    /// A version, and a job that uses it as base.
    pub(crate) fn one_base(g_nodes: usize) -> Self {
        Self::new(&[Plan::VERSION, Plan::BACKUP.on(0)], g_nodes)
    }

    /// A version, a job on it, and a job on that.
    pub(crate) fn base_chain() -> Self {
        Self::new(&[Plan::VERSION, Plan::BACKUP.on(0), Plan::BACKUP.on(1)], 1)
    }

    /// A version, and two jobs that use it as base.
    pub(crate) fn shared_base() -> Self {
        Self::new(&[Plan::VERSION, Plan::BACKUP.on(0), Plan::BACKUP.on(0)], 1)
    }

    /// A job that has uploaded all it wants (and something it does not reference), and one that adopts it. The first may be
    /// dead or slow, or end.
    pub(crate) fn adoption(g_nodes: usize) -> Self {
        let scenario = Self::new(&[Plan::UPLOADED, Plan::BACKUP.adopting(&[0])], g_nodes);
        Self { retires: Jobs::of(&[0]), ..scenario }
    }

    /// Two jobs adopt one.
    pub(crate) fn two_adopters() -> Self {
        let adopted = Plan { left_over: 0, ..Plan::UPLOADED };
        let scenario = Self::new(&[adopted, Plan::BACKUP.adopting(&[0]), Plan::BACKUP.adopting(&[0])], 1);
        Self { forgettable: Jobs::of(&[0]), expirable: Jobs::of(&[0, 1]), ..scenario }
    }

    /// A job adopted another; a third adopts the second, which has uploaded everything, and the first.
    pub(crate) fn adoption_chain() -> Self {
        let first = Plan { left_over: 0, ..Plan::UPLOADED };
        let scenario = Self::new(&[first, first.adopting(&[0]), Plan::BACKUP.adopting(&[0, 1])], 1);
        Self { forgettable: Jobs::of(&[0, 1]), expirable: Jobs::of(&[0, 1]), ..scenario }
    }

    /// The same, where the third adopts only the second.
    pub(crate) fn adoption_of_an_adopter() -> Self {
        let second = Plan { left_over: 0, ..Plan::UPLOADED }.adopting(&[0]);
        let scenario = Self::new(&[Plan::UPLOADED, second, Plan::BACKUP.adopting(&[1])], 1);
        Self { forgettable: Jobs::of(&[1]), ..scenario }
    }

    /// A job on a version has uploaded everything; another on the same version adopts it.
    pub(crate) fn adoption_on_a_base() -> Self {
        Self::new(&[Plan::VERSION, Plan::UPLOADED.on(0), Plan::BACKUP.on(0).adopting(&[1])], 1)
    }

    /// A job is adopted, and once it has committed after all, it is another's base.
    pub(crate) fn adopted_then_base() -> Self {
        let slow = Plan { left_over: 0, ..Plan::UPLOADED };
        let scenario = Self::new(&[slow, Plan::BACKUP.adopting(&[0]), Plan::BACKUP.on(0)], 1);
        Self { forgettable: Jobs::of(&[0]), expirable: Jobs::of(&[0, 1]), ..scenario }
    }

    /// A version and somebody who reads it.
    pub(crate) fn reading(g_nodes: usize) -> Self {
        Self::new(&[Plan::VERSION, Plan::reader(0)], g_nodes)
    }

    /// A version, a job on it, somebody who reads it.
    pub(crate) fn reading_beside_a_backup() -> Self {
        Self::new(&[Plan::VERSION, Plan::BACKUP.on(0), Plan::reader(0)], 1)
    }

    /// A job whose commit may land late, and a job that uses its version as base. G-nodes fence late as well.
    pub(crate) fn late_commit() -> Self {
        let scenario = Self::new(&[Plan::UPLOADED, Plan::BACKUP.on(0)], 1);
        Self { unanswered_commit: Jobs::of(&[0]), late_fences: true, ..scenario }
    }

    /// A job whose lease and whose commit may land late, and a job that adopts it.
    pub(crate) fn late_creates_adopted() -> Self {
        let scenario = Self::new(&[Plan::BACKUP, Plan::BACKUP.adopting(&[0])], 1);
        Self { unanswered_lease: Jobs::of(&[0]), unanswered_commit: Jobs::of(&[0]), ..scenario }
    }

    /// A version of two containers, and a task that lays out one of them again.
    pub(crate) fn compaction(g_nodes: usize) -> Self {
        Self::new(&[Plan { used: 2, ..Plan::VERSION }, Plan::compaction(0)], g_nodes)
    }

    /// Two such tasks that do not know of each other.
    pub(crate) fn one_generation_for_two(g_nodes: usize) -> Self {
        let version = Plan { used: 2, ..Plan::VERSION };
        let scenario = Self::new(&[version, Plan::compaction(0), Plan::compaction(0)], g_nodes);
        Self { one_generation: Some((1, 2)), ..scenario }
    }

    /// The same, and its generation may be created late.
    pub(crate) fn late_generation(g_nodes: usize) -> Self {
        Self { unanswered_commit: Jobs::of(&[1]), ..Self::compaction(g_nodes) }
    }

    /// The same, and a job that uses the version as base.
    pub(crate) fn compacted_base(g_nodes: usize) -> Self {
        Self::new(&[Plan { used: 2, ..Plan::VERSION }, Plan::compaction(0), Plan::BACKUP.on(0)], g_nodes)
    }

    /// The same, and the newer generation cannot be read any more.
    pub(crate) fn rotten_base(g_nodes: usize) -> Self {
        Self { rots: true, ..Self::compacted_base(g_nodes) }
    }

    /// A version and a job on it, in a store that overwrites.
    pub(crate) fn overwriting(g_nodes: usize) -> Self {
        Self { overwrites: true, ..Self::new(&[Plan::VERSION, Plan::BACKUP], g_nodes) }
    }

    /// The same with somebody who reads the version.
    pub(crate) fn compacted_while_read(g_nodes: usize) -> Self {
        Self::new(&[Plan { used: 2, ..Plan::VERSION }, Plan::compaction(0), Plan::reader(0)], g_nodes)
    }

    /// A version is compacted twice.
    pub(crate) fn two_generations(g_nodes: usize) -> Self {
        let second = Plan { replaces: Containers::one(1, 0), ..Plan::compaction(0) };
        Self::new(&[Plan { used: 2, ..Plan::VERSION }, Plan::compaction(0), second], g_nodes)
    }

    /// The same, and the first of its generations may be created late.
    pub(crate) fn late_first_of_two_generations(g_nodes: usize) -> Self {
        Self { unanswered_commit: Jobs::of(&[1]), ..Self::two_generations(g_nodes) }
    }

    /// Two versions, and a task that lays out the first again over containers of its own and of the second.
    pub(crate) fn sharing(g_nodes: usize) -> Self {
        Self::new(&[Plan { used: 2, ..Plan::VERSION }, Plan::VERSION, Plan::compaction(0).sharing(1)], g_nodes)
    }

    /// The same, and the second is rewritten itself.
    pub(crate) fn shared_is_compacted(g_nodes: usize) -> Self {
        let jobs = [Plan::VERSION, Plan::VERSION, Plan::compaction(0).sharing(1), Plan::compaction(1)];
        let scenario = Self::new(&jobs, g_nodes);
        Self { forgettable: Jobs::of(&[1]), expirable: Jobs::of(&[2]), ..scenario }
    }

    /// The same, and what is shared of the second may be retired for what a third version has.
    pub(crate) fn shared_is_retired(g_nodes: usize) -> Self {
        let jobs = [Plan::VERSION, Plan::VERSION, Plan::VERSION, Plan::compaction(0).sharing(1)];
        let scenario = Self::new(&jobs, g_nodes);
        let (forgettable, expirable) = (Jobs::of(&[1, 2]), Jobs::default());
        Self { equal: Self::first_of(&[(1, 2)]), forgettable, expirable, ..scenario }
    }

    /// Two versions that share nothing and hold the same chunk: that of the first may be retired.
    pub(crate) fn reverse_dedup(g_nodes: usize) -> Self {
        Self { equal: Self::first_of(&[(0, 1)]), ..Self::new(&[Plan::VERSION, Plan::VERSION], g_nodes) }
    }

    /// The same, and one goes to the other as the other to the one.
    pub(crate) fn reverse_dedup_to_and_fro(g_nodes: usize) -> Self {
        Self { equal: Self::first_of(&[(0, 1), (1, 0)]), ..Self::reverse_dedup(g_nodes) }
    }

    /// A copy that has what was retired, and lacks what it was retired for.
    pub(crate) fn copied(g_nodes: usize) -> Self {
        let jobs = [Plan::VERSION, Plan::VERSION, Plan::VERSION];
        let scenario = Self { equal: Self::first_of(&[(0, 1)]), ..Self::new(&jobs, g_nodes) };
        Self { is_copy: true, ..scenario }
    }

    /// The same, and the index is lost once.
    pub(crate) fn rebuilt(g_nodes: usize) -> Self {
        Self { index_lost: true, ..Self::reverse_dedup_to_and_fro(g_nodes) }
    }

    /// A container that the rebuild needs and that no version names may be one that it cannot read.
    pub(crate) fn rebuilt_unread(g_nodes: usize) -> Self {
        Self { unreadable: true, ..Self::rebuilt(g_nodes) }
    }

    /// The index is lost while a job runs on the version whose container was retired.
    pub(crate) fn rebuilt_beside_a_job(g_nodes: usize) -> Self {
        Self { index_lost: true, expirable: Jobs::default(), ..Self::redirected_base(g_nodes) }
    }

    /// And while somebody reads it.
    pub(crate) fn rebuilt_beside_a_reader(g_nodes: usize) -> Self {
        Self { index_lost: true, ..Self::redirected_while_read(g_nodes) }
    }

    /// A third has the chunk as well.
    pub(crate) fn reverse_dedup_twice(g_nodes: usize) -> Self {
        let scenario = Self::new(&[Plan::VERSION, Plan::VERSION, Plan::VERSION], g_nodes);
        Self { equal: Self::first_of(&[(0, 1), (1, 2)]), ..scenario }
    }

    /// The old version is the base of a job.
    pub(crate) fn redirected_base(g_nodes: usize) -> Self {
        let scenario = Self::new(&[Plan::VERSION, Plan::VERSION, Plan::BACKUP.on(0)], g_nodes);
        Self { equal: Self::first_of(&[(0, 1)]), ..scenario }
    }

    /// The version with the newer copy is the base of a job, and may be forgotten.
    pub(crate) fn redirected_to_a_base(g_nodes: usize) -> Self {
        let scenario = Self::new(&[Plan::VERSION, Plan::VERSION, Plan::BACKUP.on(1)], g_nodes);
        let forgettable = Jobs::of(&[1]);
        Self { equal: Self::first_of(&[(0, 1)]), forgettable, expirable: Jobs::default(), ..scenario }
    }

    /// The newer copy is that of a job that may never commit.
    pub(crate) fn redirected_to_the_unfinished(g_nodes: usize) -> Self {
        let scenario = Self::new(&[Plan::VERSION, Plan { left_over: 0, ..Plan::UPLOADED }], g_nodes);
        Self { equal: Self::first_of(&[(0, 1)]), ..scenario }
    }

    /// The old copy is that of a job that is adopted.
    pub(crate) fn redirected_adopted(g_nodes: usize) -> Self {
        let adopted = Plan { left_over: 0, ..Plan::UPLOADED };
        let scenario = Self::new(&[adopted, Plan::VERSION, Plan::BACKUP.adopting(&[0])], g_nodes);
        Self { equal: Self::first_of(&[(0, 1)]), ..scenario }
    }

    /// The newer copy is rewritten meanwhile.
    pub(crate) fn redirected_to_the_compacted(g_nodes: usize) -> Self {
        let newer = Plan { used: 2, ..Plan::VERSION };
        let scenario = Self::new(&[Plan::VERSION, newer, Plan::compaction(1)], g_nodes);
        Self { equal: Self::first_of(&[(0, 1)]), ..scenario }
    }

    /// The old version is read by somebody who goes through the index.
    pub(crate) fn redirected_while_read(g_nodes: usize) -> Self {
        let scenario = Self::new(&[Plan::VERSION, Plan::VERSION, Plan::resolving_reader(0)], g_nodes);
        Self { equal: Self::first_of(&[(0, 1)]), ..scenario }
    }

    /// A container of a version is rewritten.
    pub(crate) fn rewriting(g_nodes: usize) -> Self {
        Self::new(&[Plan::VERSION, Plan::rewriting(0)], g_nodes)
    }

    /// The index that makes it count may be created late, or abandoned.
    pub(crate) fn late_index(g_nodes: usize) -> Self {
        let task = Jobs::of(&[1]);
        Self { unanswered_commit: task, retires: task, ..Self::rewriting(g_nodes) }
    }

    /// By two who do not know of each other.
    pub(crate) fn two_rewritings(g_nodes: usize) -> Self {
        Self::new(&[Plan::VERSION, Plan::rewriting(0), Plan::rewriting(0)], g_nodes)
    }

    /// The version is the base of a job.
    pub(crate) fn rewritten_base(g_nodes: usize) -> Self {
        Self::new(&[Plan::VERSION, Plan::rewriting(0), Plan::BACKUP.on(0)], g_nodes)
    }

    /// The first containers of these jobs.
    fn first_of(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
        pairs.iter().map(|(old, new)| (old * CONTAINERS_PER_JOB, new * CONTAINERS_PER_JOB)).collect()
    }
}

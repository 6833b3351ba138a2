//! The rules of the protocol, each of which can be switched off to see what it prevents.

/// One rule. `docs/concurrency.md` tells the story behind each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    // What a job obeys.
    /// The lease is created before the base and the adopted jobs are checked.
    LeaseFirst,
    /// After the lease, the job looks whether its base is forgotten or gone.
    BaseChecked,
    /// That look reads `forgotten/<series>/<base>` first and the base's register second.
    MarkThenRegister,
    /// After the lease, the job reads the register of each job it adopts; a decided one is not adopted.
    AdoptedChecked,
    /// The same look refuses an adopted job whose `jobs/<job>/0` is gone.
    AdoptedLeased,
    /// That look reads the register first and `jobs/<job>/0` second.
    RegisterThenLease,
    /// A job uses containers of itself, of its base's manifest, and of jobs it named and checked; of nobody else.
    OwnersNamed,
    /// All containers are durable before the commit register is created.
    DurableFirst,
    /// The commit register is created with put-if-absent.
    CreateIfAbsent,
    /// `jobs/<job>/done` is written only after the commit's create returned.
    CloseAfterCommit,
    /// `jobs/<job>/done` is never written when a create of the lease or of the register stayed without an answer.
    CloseOnlyAnswered,

    // What a collecting pass obeys.
    /// A job is taken for dead only after `aborted` was created in its register.
    Fence,
    /// Only what was seen settled before the leases were listed counts as settled.
    SettledBeforeLeases,
    /// Only marks seen before the leases were listed count.
    MarksBeforeLeases,
    /// The containers that may be deleted were listed before the leases.
    ContainersBeforeLeases,
    /// The versions are listed after the leases.
    LeasesBeforeVersions,
    /// A forgotten version that a live lease names as base (or as what it reads) is retained.
    NamedVersionsRetained,
    /// Containers of a job that a live lease adopts are kept.
    AdoptedKept,
    /// Containers of a job that is not settled are kept.
    UnsettledKept,
    /// What a pass decided is carried out only after the pass won the next number of the index.
    PublishFirst,
    /// Register entries are removed only when their job closed its lease.
    RemoveOnlyClosed,
    /// `jobs/<job>/0` goes before the register.
    LeaseRemovedFirst,
    /// `forgotten/<series>/<job>` goes after the register.
    MarkRemovedLast,
}

/// The rules in force.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    off: Option<Rule>,
}

impl Rules {
    pub(crate) const ALL: Self = Self { off: None };

    pub(crate) fn without(rule: Rule) -> Self {
        Self { off: Some(rule) }
    }

    pub(crate) fn hold(self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}

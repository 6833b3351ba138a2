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
    /// Both looks ask the store; a cached register of a version proves nothing.
    LooksPastCache,
    /// After the lease, the job reads the register of each job it adopts and adopts none that was aborted.
    AdoptedChecked,
    /// It adopts none that has committed, either.
    CommittedNotAdopted,
    /// It adopts none whose `done` exists.
    ClosedNotAdopted,
    /// It adopts none whose `jobs/<job>/0` is gone.
    AdoptedLeased,
    /// Of these looks, the one at `jobs/<job>/0` comes last.
    LeaseReadLast,
    /// A job uses containers of itself, of its base's manifest, and of jobs it named and checked; of nobody else.
    OwnersNamed,
    /// All containers are durable before the commit register is created.
    DurableFirst,
    /// The commit register is created with put-if-absent.
    CreateIfAbsent,
    /// `jobs/<job>/done` is the last thing a job creates: the commit was answered, or will never be tried.
    CloseLast,
    /// The newest generation of the base is read after the lease, not when the base was chosen.
    GenerationAfterLease,
    /// Nobody builds on a version of which a newer generation than the one found cannot be read.
    NewestOrNothing,
    /// A writing process proves that the store creates conditionally before it relies on that.
    ProbedFirst,
    /// A reader that does not find a container reads the index again before it calls the container lost.
    LookAgain,
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
    /// Of a closed job, `jobs/<job>/0` goes before the register and before `jobs/<job>/done`.
    LeaseRemovedFirst,
    /// `forgotten/<series>/<job>` goes after the register.
    MarkRemovedLast,

    // What tasks that move chunks obey, and a pass because of them.
    /// A compaction is a job of its own whose register is the generation it makes; it is not void with the pass it is part of.
    OwnRegister,
    /// A generation counts as superseded only if the newer one was visible before the leases were listed.
    SupersededBeforeLeases,
    /// An `aborted` generation stays as long as its version, or until there is a higher one.
    AbortedGenerationStays,
    /// A live lease that names a version retains all its generations.
    NamedGenerationsRetained,
    /// Only containers of jobs settled before the leases were listed are retired.
    RetireSettled,
    /// And of jobs that no live lease adopts.
    RetireNotAdopted,
    /// What a redirect leads to is kept for every retained version that references the old place.
    RedirectIsReference,
    /// Also for versions that were committed after the redirect was published.
    LaterReferencesInherit,
    /// A redirect leads to containers that retained versions reference, not to any that exist.
    RedirectToCommitted,
    /// And these versions are not marked, and their generation is not superseded: a lease that names them is not enough.
    RedirectToUnmarked,
    /// A redirect never leads to a container that was retired itself.
    NotToRetired,
    /// When a redirect's target is retired, the redirects that led to it are set again.
    OneHop,
    /// An index that is made from containers and versions alone keeps all copies of a chunk, and none is retired or built on:
    /// of any of them a delete may be under way that nobody remembers.
    RebuiltKeepsCopies,
    /// A rebuild finds out where the chunks are of all generations of all versions that live leases name, marked or not.
    RebuildAsksLeases,
    /// Over a rebuilt index nothing is deleted while a container is missing that a visible version or a live lease needs, unless
    /// that rebuild had found it missing.
    MissingStops,
    /// What a rebuild could not read of containers that no version names is kept.
    UnreadKept,
    /// What was moved goes only when the place that it was moved to is seen in the store.
    ForwardsThere,
    /// An old place goes only after the index that redirects it was published.
    RedirectBeforeRemoval,
    /// Who has created an index looks whether its number is the highest before it counts as published.
    HighestAfterWin,
}

/// The rules in force.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    off: [Option<Rule>; 2],
}

impl Rules {
    pub(crate) const ALL: Self = Self { off: [None, None] };

    pub(crate) fn without(rule: Rule) -> Self {
        Self { off: [Some(rule), None] }
    }

    pub(crate) fn without_both(one: Rule, other: Rule) -> Self {
        Self { off: [Some(one), Some(other)] }
    }

    pub(crate) fn hold(self, rule: Rule) -> bool {
        !self.off.contains(&Some(rule))
    }
}

//! The rules of the safety protocol by name, as `docs/concurrency.md` states them.
//!
//! Code asks [`Repository::keeps`](crate::Repository::keeps) at the place where a rule is kept, if
//! the rule can be broken in the real code. The others are broken in the models only.
//! Without the feature `breakable-rules` the answer is the constant `true`, and the question costs
//! nothing. Tests turn the feature on and take one rule away, to show that the simulation finds the
//! loss which the rule prevents. No released program has the feature.

/// One rule of the protocol. Every variant is documented in `docs/concurrency.md` with the loss
/// that it prevents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    // Rules of a job.
    /// The lease is created before the base and the adopted jobs are checked.
    LeaseFirst,
    /// After the lease the job checks that its base is neither forgotten nor gone.
    BaseChecked,
    /// That check reads the forget mark first and the register second.
    MarkThenRegister,
    /// Both checks ask the store, never a cache.
    LooksPastCache,
    /// A job that was aborted is not adopted.
    AdoptedChecked,
    /// A job that committed is not adopted.
    CommittedNotAdopted,
    /// A job with a closing mark is not adopted.
    ClosedNotAdopted,
    /// A job whose first lease object is gone is not adopted.
    AdoptedLeased,
    /// Of the checks on an adopted job, its first lease object is read last.
    LeaseReadLast,
    /// A job adopts only jobs whose lease names the layout that it writes itself.
    OneLayout,
    /// A job references its own containers, those of its bases and those of adopted jobs, and no
    /// others.
    OwnersNamed,
    /// All containers are durable before the register is created.
    DurableFirst,
    /// The closing mark is the last object that a job creates.
    CloseLast,
    /// No closing mark while a create of the lease or the register is unanswered.
    CloseOnlyAnswered,
    /// The newest generation of a base is read after the lease.
    GenerationAfterLease,
    /// No job builds on a version that has an unreadable object above the generation found.
    NewestOrNothing,
    /// A writing job proves that the store creates conditionally before it relies on that.
    ProbedFirst,
    /// Files and proved data are taken over unread only from a version that this machine made, or
    /// that the user names.
    WitnessedOnly,
    /// A reader that misses a container reads the index again before it reports a loss.
    LookAgain,

    // Rules of a collecting pass.
    /// A job counts as dead only after `aborted` is in its register.
    Fence,
    /// Only jobs that were settled before the leases were listed count as settled.
    SettledBeforeLeases,
    /// Only marks that were seen before the leases were listed count.
    MarksBeforeLeases,
    /// Containers that may be deleted were listed before the leases.
    ContainersBeforeLeases,
    /// The versions are listed after the leases.
    LeasesBeforeVersions,
    /// A version that a live lease names is retained.
    NamedVersionsRetained,
    /// Containers of a job that a live lease adopts are kept.
    AdoptedKept,
    /// Containers of a job that is not settled are kept.
    UnsettledKept,
    /// A decision is executed only after its index is published.
    PublishFirst,
    /// A decision is executed only after `indexed/<n>` names the attempt of its index.
    MarkedBeforeRemoval,
    /// An unreadable index without a mark is passed over only after its mark was won as void.
    VoidOrMarked,
    /// Registers are removed only when their job closed its lease.
    RemoveOnlyClosed,
    /// Of a closed job the first lease object goes before register and closing mark.
    LeaseRemovedFirst,
    /// The forget mark goes after the register.
    MarkRemovedLast,
    /// A closing mark that says `committed`, or a pin, without its register and without an
    /// explanation is damage and stops the pass.
    CommittedAccounted,
    /// Containers that no index ever had are deleted only when they are old enough by the store's
    /// clock.
    OldEnough,
    /// No single answer of the store causes a deletion: every listing that a deletion depends on is
    /// confirmed by a second request.
    AskedTwice,

    // Rules of tasks that move chunks.
    /// Defragmenting makes a job of its own for each generation.
    OwnRegister,
    /// An older generation is superseded only if the newer one was visible before the leases were
    /// listed.
    SupersededBeforeLeases,
    /// A later generation supersedes lower ones only after this or an earlier pass proved it, or if
    /// this process wrote it.
    ProvedBeforeRetired,
    /// An `aborted` generation stays as long as its version, or until a higher one holds a
    /// manifest.
    AbortedGenerationStays,
    /// A live lease that names a version retains all its generations.
    NamedGenerationsRetained,
    /// A container is retired only if its job was settled before the leases were listed.
    RetireSettled,
    /// A container is not retired while a live lease adopts its job.
    RetireNotAdopted,
    /// A container with users in both layouts is never arranged or retired.
    LayoutsApart,
    /// A version that references a retired container keeps the redirect targets of its chunks.
    RedirectIsReference,
    /// So does a version that is committed after the redirect was published.
    LaterReferencesInherit,
    /// A redirect target is only a container of a retained version, or one of the task itself.
    RedirectToCommitted,
    /// A redirect target is only a container of a version that is not marked, in its newest
    /// generation.
    RedirectToUnmarked,
    /// A redirect target is never a retired container.
    NotToRetired,
    /// A redirect target never redirects again.
    OneHop,
    /// Before a moved container is deleted, the containers that it forwards to are seen in the
    /// store.
    ForwardsThere,
    /// A rebuilt index keeps all copies of a chunk.
    RebuiltKeepsCopies,
    /// A pass that lost its index rebuilds it before it looks at anything else.
    RebuiltFirst,
    /// A rebuild searches all generations of all versions that live leases name.
    RebuildAsksLeases,
    /// Nothing is deleted over a rebuilt index while a container is missing that a visible version
    /// or a live lease needs.
    MissingStops,
    /// A retired container is deleted only after the index that redirects its chunks is published.
    RedirectBeforeRemoval,
    /// A pass that created an index checks that no higher one exists.
    HighestAfterWin,
    /// A series is not arranged while a manifest of it counts that is not in the index.
    UnsettledLeft,

    // Rules of a fleet batch.
    /// The register of a task is created once, and only the attempt in it counts.
    OneWinner,
    /// The version of an image is fenced before a register says that it was not saved.
    FencedBeforeNamed,
    /// A worker asks for the lease of its batch, after its registers and before it commits.
    BatchAsked,
    /// The place of a chunk is told when its container is durable.
    PlacedWhenDurable,
    /// The place that another task told is compared with the table of the container.
    PlaceConfirmed,
    /// Bytes of the second read are stored only with the fingerprint of the scan.
    SecondReadChecked,
    /// An image uses containers of a storing job only if its lease adopts that job.
    StoreAdopted,
}

//! The manifest of the index that a pass publishes. Pure.
//!
//! Its queue names all objects that the pass decided to delete, containers that tasks retired, and
//! runs that the index no longer uses. The pass also decided again about undone deletions of the
//! previous queue.

use std::collections::HashSet;

use larder_format::ids::{JobId, RunId};
use larder_format::index_manifest::{IndexManifest, PassStatistics, Queued, QueuedObject, Reason};
use larder_format::lease::Pin;
use larder_job::Identity;
use larder_store::survey::ListedContainer;

use super::decide::Decision;
use super::plan::Plan;
use crate::known_versions::{Written, run_ids};

/// The publisher of an index, and the time.
pub(super) struct Publisher<'a> {
    pub(super) job: JobId,
    pub(super) identity: &'a Identity,
    /// Milliseconds since the epoch.
    pub(super) time_ms: u64,
    /// The number of the index.
    pub(super) number: u64,
}

/// The manifest after the base, with a decision as its queue.
pub(super) fn next_manifest(
    base: &IndexManifest,
    by: &Publisher<'_>,
    decision: &Decision,
    plan: &Plan,
    written: Written,
) -> IndexManifest {
    let mut manifest = base.clone();
    manifest.head.pass = by.job;
    manifest.head.time_ms = by.time_ms;
    manifest.head.host.clone_from(&by.identity.host);
    manifest.head.program.clone_from(&by.identity.program);
    manifest.head.statistics = PassStatistics {
        chunks: manifest.head.statistics.chunks,
        containers: written.containers,
        versions_ingested: written.ingested,
        containers_queued: plan.data_containers + plan.meta_containers,
        bytes_queued: plan.container_bytes.0,
        ..PassStatistics::default()
    };
    manifest.head.next_version = written.next_version;
    manifest.head.next_container = written.next_container;
    manifest.head.next_age = written.next_age;
    (manifest.versions, manifest.runs) = (written.versions, written.runs);
    manifest.queue = queue(decision, by.number);
    manifest
}

fn queue(decision: &Decision, number: u64) -> Vec<Queued> {
    let containers = decision.containers.iter().map(|container| QueuedObject::Container(container.id));
    let jobs = decision.removals.values().flat_map(|removal| &removal.registers);
    let jobs = jobs.map(|(Pin { series, job }, _)| QueuedObject::Job { series: *series, job: *job });
    let generations = decision.superseded.iter().map(|(pin, generation)| QueuedObject::Generation {
        series: pin.series,
        job: pin.job,
        generation: *generation,
    });
    let runs = decision.runs.iter().map(|(id, _)| QueuedObject::Run(*id));
    let indexes = decision.indexes.iter().map(|number| QueuedObject::Index(*number));
    let reason = |what: &QueuedObject| match what {
        QueuedObject::Container(_) | QueuedObject::Job { .. } | QueuedObject::Run(_) => Reason::Collected,
        QueuedObject::Generation { .. } | QueuedObject::Index(_) => Reason::Superseded,
    };
    let queued = |what| Queued { reason: reason(&what), what, decided: number };
    containers.chain(jobs).chain(generations).chain(runs).chain(indexes).map(queued).collect()
}

/// Queues containers that tasks retired.
pub(super) fn queue_retired(manifest: &mut IndexManifest, retired: &[ListedContainer], number: u64) {
    let moved = |container: &ListedContainer| Queued {
        what: QueuedObject::Container(container.id),
        reason: Reason::Moved,
        decided: number,
    };
    manifest.queue.extend(retired.iter().map(moved));
    manifest.head.statistics.containers_queued += retired.len() as u64;
    manifest.head.statistics.bytes_queued += retired.iter().map(|container| container.bytes).sum::<u64>();
}

/// Queues the runs of the base that the next index does not use. Readers of the base may want them
/// for a while: the next pass that publishes deletes them.
pub(super) fn queue_superseded_runs(manifest: &mut IndexManifest, base: &IndexManifest, number: u64) {
    let used: HashSet<RunId> = run_ids(manifest).collect();
    let before: HashSet<RunId> = run_ids(base).collect();
    let mut gone: Vec<_> = before.into_iter().filter(|id| !used.contains(id)).collect();
    gone.sort_unstable();
    let superseded = |id| Queued { what: QueuedObject::Run(id), reason: Reason::Superseded, decided: number };
    manifest.queue.extend(gone.into_iter().map(superseded));
}

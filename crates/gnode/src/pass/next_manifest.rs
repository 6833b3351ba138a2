//! The manifest of the index that a pass publishes.
//!
//! Its queue names the objects that the pass decided to delete, containers that tasks retired, and
//! runs that the index no longer uses. Of many containers it names one for each job: the next pass
//! lists the jobs of those that are named. The pass also decided again about undone deletions of
//! the previous queue.

use std::collections::HashSet;

use larder_format::ids::{JobId, RunId};
use larder_format::index_manifest::{IndexManifest, PassStatistics, Queued, QueuedObject, Reason};
use larder_format::lease::Pin;
use larder_job::Identity;
use larder_lifecycle::arrange::RetiredContainers;
use larder_store::survey::ListedContainer;

use super::decide::Decision;
use super::plan::Plan;
use crate::error::PassError;
use crate::known_versions::{Written, run_ids};

/// Containers that are named each. The whole queue is in memory, in this process and in others.
const QUEUED_MOST: usize = 10_000;

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
    decision: &mut Decision,
    plan: &Plan,
    written: Written,
) -> Result<IndexManifest, PassError> {
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
    manifest.queue = queue(decision, by.number)?;
    Ok(manifest)
}

/// The first [`QUEUED_MOST`] of these containers, and of the others one for each job. Those of a
/// job are neighbours.
fn queued_containers(
    containers: impl Iterator<Item = Result<ListedContainer, PassError>>,
) -> Result<Vec<QueuedObject>, PassError> {
    let (mut queued, mut last) = (Vec::new(), None);
    for container in containers {
        let id = container?.id;
        let is_first = last.replace(id.job) != Some(id.job);
        if queued.len() < QUEUED_MOST || is_first {
            queued.push(QueuedObject::Container(id));
        }
    }
    Ok(queued)
}

fn queue(decision: &mut Decision, number: u64) -> Result<Vec<Queued>, PassError> {
    let containers = queued_containers(decision.containers.iter())?.into_iter();
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
    Ok(containers.chain(jobs).chain(generations).chain(runs).chain(indexes).map(queued).collect())
}

/// Queues containers that a task retired.
pub(super) fn queue_retired(
    manifest: &mut IndexManifest,
    retired: &mut RetiredContainers,
    number: u64,
) -> Result<(), PassError> {
    manifest.head.statistics.containers_queued += retired.len();
    manifest.head.statistics.bytes_queued += retired.bytes();
    let all = retired.batches().flat_map(|batch| match batch {
        Ok(batch) => batch.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error.into())],
    });
    let moved = |what| Queued { what, reason: Reason::Moved, decided: number };
    manifest.queue.extend(queued_containers(all)?.into_iter().map(moved));
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use larder_format::ids::{ContainerId, ContainerKind};
    use larder_index::IndexSnapshot;

    use super::*;

    /// This number of jobs with a hundred containers each.
    fn of_jobs(jobs: u32) -> Vec<ContainerId> {
        let of_job = |job: u32| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&job.to_be_bytes());
            (0..100).map(move |seq| ContainerId { kind: ContainerKind::Data, job: JobId(id), seq })
        };
        (0..jobs).flat_map(of_job).collect()
    }

    fn named(queued: impl IntoIterator<Item = QueuedObject>) -> Vec<ContainerId> {
        let name = |queued| match queued {
            QueuedObject::Container(id) => id,
            other => panic!("{other:?}"),
        };
        queued.into_iter().map(name).collect()
    }

    fn jobs(ids: &[ContainerId]) -> BTreeSet<JobId> {
        ids.iter().map(|id| id.job).collect()
    }

    /// The next pass lists the jobs of the queue, so each job must be there.
    #[test]
    fn of_many_containers_each_job_is_named() {
        let queued = |ids: &[ContainerId]| {
            let listed = ids.iter().map(|id| Ok(ListedContainer { id: *id, bytes: 1 }));
            named(queued_containers(listed).expect("no file"))
        };
        let (few, many) = (of_jobs(100), of_jobs(300));
        assert_eq!(queued(&few), few);
        let queued = queued(&many);
        assert_eq!(queued.len(), QUEUED_MOST + 200);
        assert_eq!(jobs(&queued), jobs(&many));
    }

    /// Arranging retires half of a large series at once. All of them count, and few are named.
    #[test]
    fn of_many_retired_containers_each_job_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let many = of_jobs(300);
        let mut manifest = (*IndexSnapshot::empty().manifest).clone();
        // Of each task as many.
        for task in 1..=2 {
            let mut retired = RetiredContainers::new(folder.path(), 0);
            many.iter().try_for_each(|id| retired.push(ListedContainer { id: *id, bytes: 3 })).expect("written");
            queue_retired(&mut manifest, &mut retired, 7).expect("read");
            let queued = named(manifest.queue.iter().map(|queued| queued.what));
            assert_eq!(queued.len(), task * (QUEUED_MOST + 200));
            let last = &queued[(task - 1) * (QUEUED_MOST + 200)..];
            assert_eq!((&last[..QUEUED_MOST], jobs(last)), (&many[..QUEUED_MOST], jobs(&many)));
        }
        assert!(manifest.queue.iter().all(|queued| (queued.reason, queued.decided) == (Reason::Moved, 7)));
        let statistics = &manifest.head.statistics;
        assert_eq!((statistics.containers_queued, statistics.bytes_queued), (60_000, 180_000));
    }
}

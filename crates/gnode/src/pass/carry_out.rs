//! Deletes what was decided. The decision is published, and stays true whoever carries it out, how often and when.

use std::ops::ControlFlow;

use futures::StreamExt;
use larder_format::ids::{ByteCount, JobId};
use larder_format::names::{self, LeaseObject};
use larder_store::rules::Rule;
use larder_store::{Repository, StoreError};

use super::decide::{Decision, Removal};
use super::report::Done;

/// Deletions under way at once.
const CONCURRENT_DELETIONS: usize = 32;

/// Carries out a decision. `stop` is asked between objects; says whether everything was done.
pub(super) async fn carry_out(
    repository: &Repository,
    decision: Decision,
    stop: &(dyn Fn() -> bool + Sync),
    done: &mut Done,
) -> Result<ControlFlow<()>, StoreError> {
    let store = repository.store();
    let containers =
        decision.containers.into_iter().take_while(|_| !stop()).map(|container| async move {
            store.delete(&names::container(container.id)).await.map(|()| container.bytes)
        });
    let mut containers = futures::stream::iter(containers).buffer_unordered(CONCURRENT_DELETIONS);
    while let Some(bytes) = containers.next().await {
        done.containers += 1;
        done.container_bytes = ByteCount(done.container_bytes.0 + bytes?);
    }
    let removals = decision.removals.into_iter().take_while(|_| !stop());
    let removals = removals.map(|(job, removal)| remove(repository, job, removal));
    let mut removals = futures::stream::iter(removals).buffer_unordered(CONCURRENT_DELETIONS);
    while let Some(objects) = removals.next().await {
        done.entries += objects?;
    }
    let generations = decision.superseded.into_iter();
    let generations = generations.map(|(pin, generation)| names::version(pin.series, pin.job, generation));
    let runs = decision.runs.into_iter().map(|(id, _)| names::run(id));
    let indexes = decision.indexes.into_iter().map(names::index);
    let index_marks = decision.index_marks.into_iter().map(names::indexed);
    let objects = generations
        .chain(runs)
        .chain(indexes)
        .chain(index_marks)
        .chain(decision.settings)
        .take_while(|_| !stop())
        .map(|name| async move { store.delete(&name).await });
    let mut objects = futures::stream::iter(objects).buffer_unordered(CONCURRENT_DELETIONS);
    while let Some(deleted) = objects.next().await {
        deleted?;
        done.entries += 1;
    }
    Ok(if stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}

/// Removes what is left of a job, one object after the other: the lease first (`LeaseRemovedFirst`), the mark last
/// (`MarkRemovedLast`).
async fn remove(repository: &Repository, job: JobId, removal: Removal) -> Result<u64, StoreError> {
    let objects = removal.objects();
    let mut renewals = removal.renewals;
    renewals.sort_unstable();
    let mut names: Vec<String> = renewals.into_iter().map(|number| names::lease(job, number)).collect();
    for (pin, mut generations) in removal.registers {
        generations.sort_unstable();
        names.extend(generations.into_iter().rev().map(|number| names::version(pin.series, pin.job, number)));
    }
    names.extend(removal.has_done.then(|| names::lease_done(job)));
    for (pin, numbers) in removal.pins {
        names.extend(numbers.into_iter().map(|number| names::pin(pin.series, pin.job, number)));
    }
    names.extend(removal.marks.into_iter().map(|pin| names::forgotten(pin.series, pin.job)));
    // What tests take away.
    if !repository.keeps(Rule::LeaseRemovedFirst) {
        names.sort_by_key(|name| names::parse_lease(name).is_some_and(|(_, lease)| lease != LeaseObject::Done));
    }
    if !repository.keeps(Rule::MarkRemovedLast) {
        names.sort_by_key(|name| names::parse_forgotten(name).is_none());
    }
    for name in names {
        repository.store().delete(&name).await?;
    }
    Ok(objects)
}

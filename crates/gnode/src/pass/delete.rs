//! Executes the deletions of a decision. The decision is published, and stays true whichever pass
//! executes it, how often and when.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use larder_format::chain;
use larder_format::ids::{ByteCount, JobId};
use larder_format::names::{self, LeaseObject};
use larder_job::Cancel;
use larder_store::rules::Rule;
use larder_store::survey::ListedContainer;
use larder_store::{Repository, RepositoryError, StoreError, StoreErrorKind};
use parking_lot::Mutex;

use super::decide::{Decision, Removal};
use super::report::{Done, PassReport, Undeleted};
use crate::error::PassError;

/// Deletions under way at once.
const CONCURRENT_DELETIONS: usize = 32;

/// After this many refusals without any deletion, containers of a job that had one are not tried,
/// nor objects of other kinds.
///
/// Missing rights to delete are found with few requests, and locked containers of one job do not
/// block those of others.
const REFUSALS_MAX: usize = 64;

/// The deletions of a pass that failed.
#[derive(Debug, Default)]
struct Failed {
    undeleted: Vec<Undeleted>,
    has_deleted: bool,
    /// Refusals, as long as nothing was deleted.
    in_vain: Arc<AtomicUsize>,
    /// Jobs of containers that the store refused to delete, as long as nothing was deleted.
    locked: Arc<Mutex<HashSet<JobId>>>,
    /// The first deletion that the store refused.
    refused: Option<StoreError>,
}

impl Failed {
    /// An object was deleted.
    fn deleted(&mut self) {
        self.has_deleted = true;
        self.in_vain.store(0, Ordering::Relaxed);
    }

    /// Objects of another kind are tried.
    fn begin(&self) {
        self.in_vain.store(0, Ordering::Relaxed);
    }

    /// Notes a deletion that failed; an error that will meet every other deletion too ends the
    /// pass.
    fn note(&mut self, failed: RepositoryError) -> Result<(), RepositoryError> {
        match failed {
            RepositoryError::Store(error) if is_of_one(error.kind) => {
                tracing::warn!(%error, "an object could not be deleted; the next pass tries again");
                self.undeleted.push(Undeleted { name: error.name.clone(), why: chain(&error) });
                if !self.has_deleted {
                    self.in_vain.fetch_add(1, Ordering::Relaxed);
                }
                if error.kind == StoreErrorKind::PermissionDenied {
                    self.refused.get_or_insert(error);
                }
                Ok(())
            }
            failed => Err(failed),
        }
    }
}

/// Whether a failure of this kind is an answer about one object: it was not deleted, and will not
/// be. Other kinds hold for all objects.
fn is_of_one(kind: StoreErrorKind) -> bool {
    use StoreErrorKind::{Invalid, PermissionDenied, Unreadable};
    // The store refuses to delete an immutable object, or one under a retention period. It refuses
    // all objects to credentials that may not delete. A deletion without an answer may still be
    // applied: it ends the pass, and nothing after it is removed.
    matches!(kind, Unreadable | Invalid | PermissionDenied)
}

/// Executes a decision. `cancel` is asked between objects; returns whether everything was tried.
///
/// Objects that cannot be deleted are left to the next pass, and named in the report. An error when
/// the store refuses to delete anything.
pub(super) async fn delete(
    repository: &Repository,
    decision: Decision,
    cancel: &Cancel,
    report: &mut PassReport,
) -> Result<ControlFlow<()>, PassError> {
    let mut failed = Failed::default();
    let end = delete_all(repository, decision, cancel, &mut report.done, &mut failed).await;
    if let Some(refused) = failed.refused.filter(|_| !failed.has_deleted) {
        return Err(refused.into());
    }
    report.undeleted.append(&mut failed.undeleted);
    end
}

async fn delete_all(
    repository: &Repository,
    mut decision: Decision,
    cancel: &Cancel,
    done: &mut Done,
    failed: &mut Failed,
) -> Result<ControlFlow<()>, PassError> {
    let store = repository.store();
    let in_vain = failed.in_vain.clone();
    let locked = failed.locked.clone();
    let is_refused = || in_vain.load(Ordering::Relaxed) >= REFUSALS_MAX;
    let may_go = |container: &ListedContainer| !is_refused() || !locked.lock().contains(&container.id.job);
    let may_go = |container: &Result<ListedContainer, PassError>| container.as_ref().map_or(true, may_go);
    let containers = decision.containers.iter().take_while(|_| !cancel.is_cancelled()).filter(may_go);
    let containers = containers.map(|container| async move {
        let container = container?;
        let deleted = store.delete(&names::container(container.id)).await;
        Ok::<_, PassError>((container.id.job, deleted.map(|()| container.bytes)))
    });
    let mut containers = futures::stream::iter(containers).buffer_unordered(CONCURRENT_DELETIONS);
    while let Some(deleted) = containers.next().await {
        let (job, deleted) = deleted?;
        if deleted.is_err() {
            locked.lock().insert(job);
        }
        match deleted {
            Ok(bytes) => {
                failed.deleted();
                done.containers += 1;
                done.container_bytes = ByteCount(done.container_bytes.0 + bytes);
            }
            Err(error) => failed.note(error.into())?,
        }
    }
    drop(containers);
    failed.begin();
    let stop = || cancel.is_cancelled() || is_refused();
    let removals = decision.removals.into_iter().take_while(|_| !stop());
    let removals = removals.map(|(job, removal)| remove(repository, job, removal));
    let mut removals = futures::stream::iter(removals).buffer_unordered(CONCURRENT_DELETIONS);
    while let Some(removed) = removals.next().await {
        match removed {
            Ok(objects) => {
                failed.deleted();
                done.entries += objects;
            }
            // Objects after it in the order of removal stay too.
            Err(error) => failed.note(error)?,
        }
    }
    failed.begin();
    let generations = decision.superseded.into_iter();
    let generations = generations.map(|(pin, generation)| names::version(pin.series, pin.job, generation));
    let runs = decision.runs.into_iter().map(|(id, _)| names::run(id));
    let indexes = decision.indexes.into_iter().map(names::index);
    let index_marks = decision.index_marks.into_iter().map(names::indexed);
    let objects = generations
        .chain(runs)
        .chain(indexes)
        .chain(index_marks)
        .chain(decision.without_meaning)
        .take_while(|_| !stop())
        .map(|name| async move { store.delete(&name).await });
    let mut objects = futures::stream::iter(objects).buffer_unordered(CONCURRENT_DELETIONS);
    while let Some(deleted) = objects.next().await {
        match deleted {
            Ok(()) => {
                failed.deleted();
                done.entries += 1;
            }
            Err(error) => failed.note(error.into())?,
        }
    }
    Ok(if stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}

/// Removes the objects of a job, one after the other: the lease first (`LeaseRemovedFirst`), the
/// mark last (`MarkRemovedLast`).
async fn remove(repository: &Repository, job: JobId, removal: Removal) -> Result<u64, RepositoryError> {
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
    if !repository.keeps(Rule::MarkRemovedLast) {
        for pin in &removal.marks {
            repository.store().delete(&names::forgotten(pin.series, pin.job)).await?;
        }
    }
    // Rules that tests disable.
    if !repository.keeps(Rule::LeaseRemovedFirst) {
        names.sort_by_key(|name| names::parse_lease(name).is_some_and(|(_, lease)| lease != LeaseObject::Done));
    }
    for name in names {
        repository.store().delete(&name).await?;
    }
    for pin in removal.marks {
        // A delete that was only acknowledged must not bring the version back (`AskedTwice`). The
        // next pass continues.
        if repository.keeps(Rule::AskedTwice) && repository.has_register(pin, 0).await? {
            continue;
        }
        repository.store().delete(&names::forgotten(pin.series, pin.job)).await?;
    }
    Ok(objects)
}

//! Publishing an index: all that it decides counts, or nothing.
//!
//! Invariants (`docs/concurrency.md`, "How a pass publishes")
//! * One pass wins a number. Its manifest has a random attempt id, so reading back tells the
//!   outcome of a create without an answer.
//! * The winner checks whether there is a higher one. Numbers of deleted indexes can be won again,
//!   by a pass that slept for long, and such an index does not count (`HighestAfterWin`). Of lower
//!   numbers that it skipped, none may come to count any more.
//! * The runs that it wrote are in the store, seen in a listing or asked for by name: an
//!   acknowledgement may have been wrong.
//! * Then it creates the mark that names its attempt, and looks for marks of others: names of
//!   deleted marks can be won again too. Only after that, decisions are executed
//!   (`MarkedBeforeRemoval`).

use std::collections::HashSet;
use std::sync::Arc;

use larder_format::ids::RunId;
use larder_format::index_manifest::IndexManifest;
use larder_format::index_mark::IndexMark;
use larder_format::names;
use larder_store::repository::random;
use larder_store::rules::Rule;
use larder_store::{Repository, RepositoryError, StoreError, StoreErrorKind};

use crate::current::Turn;
use crate::error::IndexError;
use crate::mark::{Mark, contest, list_marks, read_mark};
use crate::snapshot::{IndexSnapshot, attempt_at, listed};

/// The outcome of an attempt to publish an index.
#[derive(Debug)]
pub enum Published {
    /// It is the newest index, and its mark says so.
    Won {
        /// As it is stored.
        snapshot: IndexSnapshot,
        /// Whether every attempt to create it was answered. When not, one of them may land again
        /// after the index was deleted, and the pass must leave its lease open
        /// (`CloseOnlyAnswered`).
        all_answered: bool,
    },
    /// Another pass has the number, or has made it void: nothing of this one counts, and its
    /// containers and runs are orphans of its job.
    Lost,
    /// It was created, but another number counts: of a pass that built on it, or because its own
    /// number was in use long ago. The pass executes nothing of its decision and deletes nothing,
    /// not even its own objects: the next pass knows them.
    Overtaken {
        /// The other number.
        highest: u64,
    },
}

/// Publishes `manifest` under the number of a turn, which its head and attempt id are set to fit.
/// Runs and versions are sorted.
///
/// Every object that the manifest references must be durable, and the turn be from a
/// [`Current`](crate::Current) of before the decision. An error leaves the outcome open: the caller
/// looks at the newest index again, and deletes nothing until it knows.
pub async fn publish(
    repository: &Repository,
    turn: &Turn,
    mut manifest: IndexManifest,
) -> Result<Published, IndexError> {
    let number = turn.number;
    manifest.sort();
    manifest.head.number = number;
    manifest.head.attempt = random(repository.entropy())?;
    let attempt = manifest.head.attempt;
    let bytes = manifest.encode(repository.keys(), random(repository.entropy())?)?;
    let all_answered = match repository.store().create(&names::index(number), bytes.into()).await {
        Ok(created) => created.all_answered,
        Err(error) if error.kind == StoreErrorKind::AlreadyExists => return Ok(Published::Lost),
        // The outcome is open. The object there now tells, if there is one; otherwise the create
        // may still be applied.
        Err(error) => match attempt_at(repository, number).await {
            Ok(Some(there)) if there == attempt => false,
            Ok(Some(_)) => return Ok(Published::Lost),
            Ok(None) | Err(_) => return Err(error.into()),
        },
    };
    let (numbers, runs) = listed(repository).await?;
    if repository.keeps(Rule::HighestAfterWin)
        && let Some(highest) = other_index(repository, turn, numbers).await?
    {
        return Ok(Published::Overtaken { highest });
    }
    if repository.keeps(Rule::AskedTwice)
        && let Some(run) = unwritten_run(repository, &manifest, &runs).await?
    {
        // Without a mark the next pass might take this index for the newest.
        contest(repository, number, IndexMark::Void).await?;
        return Err(RepositoryError::from(run).into());
    }
    if repository.keeps(Rule::MarkedBeforeRemoval) {
        match contest(repository, number, IndexMark::Counts(attempt)).await? {
            // An object that does not open may have been the mark of this attempt: a pass that
            // built on the index took it for that.
            Mark::Unreadable => {}
            Mark::Genuine(IndexMark::Counts(marked)) if marked == attempt => {}
            Mark::Genuine(_) => return Ok(Published::Lost),
        }
        // Marks and indexes, since one listing may be wrong.
        if repository.keeps(Rule::HighestAfterWin) {
            let other = match other_mark(repository, turn).await? {
                None => other_index(repository, turn, listed(repository).await?.0).await?,
                other => other,
            };
            if let Some(highest) = other {
                return Ok(Published::Overtaken { highest });
            }
        }
    }
    Ok(Published::Won { snapshot: IndexSnapshot { number, manifest: Arc::new(manifest) }, all_answered })
}

/// The error for a run that this pass wrote and that the store does not have, although it said so
/// (`AskedTwice`).
async fn unwritten_run(
    repository: &Repository,
    manifest: &IndexManifest,
    listed: &[(RunId, u64)],
) -> Result<Option<StoreError>, IndexError> {
    let listed: HashSet<RunId> = listed.iter().map(|(id, _)| *id).collect();
    let own = manifest.runs.iter().map(|run| run.id).filter(|id| id.job == manifest.head.pass);
    for id in own.filter(|id| !listed.contains(id)) {
        match repository.store().without_cache().size(&names::run(id)).await {
            Ok(_) => {}
            Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(Some(error)),
            Err(error) => return Err(RepositoryError::from(error).into()),
        }
    }
    Ok(None)
}

/// A number that counts, or may come to count, beside that of a turn. Lower ones that were skipped
/// are made void.
async fn other_index(repository: &Repository, turn: &Turn, numbers: Vec<u64>) -> Result<Option<u64>, IndexError> {
    let others = numbers.into_iter().rev().filter(|other| *other != turn.number && !turn.passed.contains(other));
    for other in others {
        let is_void = match other > turn.number {
            true => matches!(read_mark(repository, other).await?, Some(Mark::Genuine(IndexMark::Void))),
            // Objects that existed when the turn was taken were seen, and those below its base
            // existed before.
            false if other <= turn.base || turn.seen.contains(&other) => true,
            false => {
                let mark = contest(repository, other, IndexMark::Void).await?;
                matches!(mark, Mark::Genuine(IndexMark::Void))
            }
        };
        if !is_void {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

/// A mark that says of another number that it counts, and that was not there when the turn was
/// taken.
async fn other_mark(repository: &Repository, turn: &Turn) -> Result<Option<u64>, IndexError> {
    let marks = list_marks(repository).await?;
    let is_new = |other: &u64| {
        *other != turn.number && *other > turn.base && !turn.seen.contains(other) && !turn.passed.contains(other)
    };
    for other in marks.into_iter().rev().filter(is_new) {
        if matches!(read_mark(repository, other).await?, Some(Mark::Genuine(IndexMark::Counts(_)))) {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

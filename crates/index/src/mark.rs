//! Marks that say which index counts (`larder_format::index_mark`).
//!
//! A mark is created after its index, and no decision of the index is executed before. So an index
//! without a mark may be lost or passed over without harm, and one with a mark is missed when it is
//! gone. The create has one winner: the attempt whose index counts, or the word that the number is
//! void.

use larder_format::index_mark::IndexMark;
use larder_format::mark::MARK_MAX;
use larder_format::names;
use larder_store::repository::random;
use larder_store::{Repository, RepositoryError, StoreError, StoreErrorKind, StoreOp};

use crate::error::IndexError;

/// How often a mark is created and read again that is taken and gone in turns.
const CONTESTS: u32 = 3;

/// The object with the name of a mark.
#[derive(Debug)]
pub(crate) enum Mark {
    /// A mark.
    Genuine(IndexMark),
    /// Something that does not open: planted, or a mark that was damaged.
    Unreadable,
}

/// The numbers of all marks, rising. Asks the store, never a cache.
pub(crate) async fn list_marks(repository: &Repository) -> Result<Vec<u64>, RepositoryError> {
    let objects = repository.store().without_cache().list(names::INDEXED).await?;
    let mut numbers: Vec<u64> = objects.iter().filter_map(|object| names::parse_indexed(&object.name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads a mark; `None` when it is not there. Asks the store, never a cache.
pub(crate) async fn read_mark(repository: &Repository, number: u64) -> Result<Option<Mark>, RepositoryError> {
    let name = names::indexed(number);
    let bytes = match repository.store().without_cache().get_up_to(&name, MARK_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let error = RepositoryError::from(error);
            return if error.is_of_object() { Ok(Some(unreadable(error))) } else { Err(error) };
        }
    };
    Ok(Some(match IndexMark::decode(repository.keys(), number, &bytes) {
        Ok(mark) => Mark::Genuine(mark),
        Err(source) => unreadable(RepositoryError::Damaged { name, source }),
    }))
}

fn unreadable(error: RepositoryError) -> Mark {
    tracing::warn!(%error, "not a mark of an index");
    Mark::Unreadable
}

/// Creates the mark of a number, if absent, and returns the present content. It is read back,
/// because a store may acknowledge a create that it did not apply. An error leaves the outcome
/// open.
pub(crate) async fn contest(repository: &Repository, number: u64, wanted: IndexMark) -> Result<Mark, IndexError> {
    let name = names::indexed(number);
    let mut taken = 0;
    for _ in 0..CONTESTS {
        let bytes = wanted.encode(repository.keys(), number, random(repository.entropy())?)?;
        let error = repository.store().create(&name, bytes.into()).await.err();
        // Of a create without an answer the object tells, unless there is none: then it may still
        // come.
        match (read_mark(repository, number).await?, error) {
            (Some(mark), _) => return Ok(mark),
            (None, Some(error)) if error.kind != StoreErrorKind::AlreadyExists => return Err(error.into()),
            (None, error) => taken += u32::from(error.is_some()),
        }
    }
    if taken < CONTESTS {
        return Err(IndexError::Unstable { attempts: CONTESTS });
    }
    let source = Some("its name is taken by something that is no object, a folder perhaps; remove that".into());
    let error = StoreError { op: StoreOp::Read, name, kind: StoreErrorKind::Unreadable, source };
    Err(RepositoryError::from(error).into())
}

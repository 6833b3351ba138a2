//! Whether another pass was faster. Then the observations of this pass no longer hold, and its
//! findings prove nothing.

use larder_index::{Current, IndexError, IndexSnapshot};
use larder_store::Repository;

use super::report::{Outcome, PassReport};
use crate::error::PassError;

/// Whether there is a newer index than this one.
pub(super) async fn is_overtaken(repository: &Repository, base: &IndexSnapshot) -> Result<bool, IndexError> {
    Ok(Current::look(repository).await?.snapshot.number > base.number)
}

/// The result of a pass, or that it was overtaken. The runs of its index are gone when two other
/// passes published meanwhile: then it was only too slow. Damage that it found without publishing
/// may be a deletion by a faster pass.
pub(super) async fn unless_overtaken(
    repository: &Repository,
    base: &IndexSnapshot,
    result: Result<PassReport, PassError>,
) -> Result<PassReport, PassError> {
    match result {
        Err(PassError::Index(error)) if error.is_damage() => match is_overtaken(repository, base).await {
            Ok(true) => Err(PassError::Overtaken),
            _ => Err(error.into()),
        },
        Ok(report) if report.outcome == Outcome::Nothing && report.found_damage() => {
            Ok(if is_overtaken(repository, base).await? { report.lost() } else { report })
        }
        result => result,
    }
}

//! Stops a pass when the repository is older than this machine remembers it (`RolledBack`).
//!
//! A pass over an earlier state decides rightly about that state. But if the storage shows the
//! newer one again, what the newer one needs is gone.

use larder_format::lease::Pin;
use larder_index::IndexSnapshot;
use larder_job::{JobContext, RolledBack};
use larder_state::{Seen, SeenIndex};

use super::options::PassOptions;
use crate::error::PassError;
use crate::roll_back::seen_as;

/// Compares the index that the pass builds on with the one that this machine had seen before it
/// looked, and notes it.
pub(super) fn expect_index(
    context: &JobContext,
    options: &PassOptions,
    seen: &Seen,
    newest: &IndexSnapshot,
    is_rebuilt: bool,
) -> Result<(), PassError> {
    let newest = SeenIndex { is_own: is_rebuilt || options.accept_state, ..seen_as(newest) };
    let machine = &context.machine;
    let lost = seen.lost_index(newest).filter(|_| !is_rebuilt);
    if let (Some(lost), false) = (&lost, options.accept_state) {
        return Err(PassError::RolledBack(lost.clone()));
    }
    let is_own = || newest.is_own || machine.seen().index.is_some_and(|seen| seen.is_own && seen.is(&newest));
    if options.own_index_only && newest.number > 0 && !is_own() {
        return Err(PassError::ForeignIndex { number: newest.number });
    }
    if options.dry_run {
        return Ok(());
    }
    if lost.is_some() || is_rebuilt {
        machine.change(|seen| seen.index = Some(newest));
    } else if newest.number > 0 {
        machine.note_index(newest);
    }
    Ok(())
}

/// Looks for the newest versions that this machine made. `is_there` says which of them the listings
/// have, or a mark for them.
pub(super) async fn expect_versions(
    context: &JobContext,
    options: &PassOptions,
    is_there: impl Fn(&Pin) -> bool,
) -> Result<(), PassError> {
    let lost = context.lost_versions(is_there).await?;
    match lost.first() {
        None => {}
        Some(version) if !options.accept_state => {
            return Err(PassError::RolledBack(RolledBack::Version { version: *version }));
        }
        Some(_) if options.dry_run => {}
        Some(_) => context.machine.forget_series(lost),
    }
    Ok(())
}

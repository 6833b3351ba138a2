//! Stops a pass when the repository is older than this machine remembers it (`RolledBack`).
//!
//! A pass over an earlier state decides rightly about that state. But if the storage shows the
//! newer one again, what the newer one needs is gone.

use std::collections::BTreeMap;

use larder_format::lease::Pin;
use larder_index::IndexSnapshot;
use larder_job::{JobContext, RolledBack};
use larder_state::SeenIndex;

use super::decide::Before;
use super::options::PassOptions;
use crate::error::PassError;

/// An index, as a machine remembers it.
pub(super) fn seen(index: &IndexSnapshot) -> SeenIndex {
    SeenIndex { number: index.number, attempt: index.manifest.head.attempt }
}

/// Compares the index that the pass builds on with the one that this machine saw last, and notes
/// it.
pub(super) fn expect_index(
    context: &JobContext,
    options: &PassOptions,
    newest: &IndexSnapshot,
) -> Result<(), PassError> {
    let newest = seen(newest);
    match context.machine.lost_index(newest) {
        Some(lost) if !options.accept_state => return Err(PassError::RolledBack(lost)),
        Some(_) if !options.dry_run => context.machine.change(|seen| seen.index = Some(newest)),
        None if !options.dry_run && newest.number > 0 => context.machine.note_index(newest),
        Some(_) | None => {}
    }
    Ok(())
}

/// Looks for the newest versions that this machine made.
pub(super) async fn expect_versions(
    context: &JobContext,
    options: &PassOptions,
    registers: &BTreeMap<Pin, Vec<u32>>,
    before: &Before,
) -> Result<(), PassError> {
    let is_there = |version: &Pin| registers.contains_key(version) || before.marks.contains(version);
    let lost = context.lost_versions(is_there).await?;
    match lost.first() {
        None => {}
        Some(version) if !options.accept_state => {
            return Err(PassError::RolledBack(RolledBack::Version { version: *version }));
        }
        Some(_) if options.dry_run => {}
        Some(_) => context.machine.forget_versions(lost),
    }
    Ok(())
}

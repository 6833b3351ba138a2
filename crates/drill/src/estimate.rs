//! What a drill would take, without one.
//!
//! Everything is done that reads metadata: the choice of the sample, the plan of the restore, and
//! the walk of the comparison. Only contents are neither fetched nor written.

use std::path::Path;
use std::sync::Arc;

use larder_format::entry::{Entry, EntryKind};
use larder_format::manifest::Manifest;
use larder_job::JobContext;
use larder_lnode::{PlannedFetches, RestoreError, RestoreOptions, restore};
use larder_reader::{PlacedEntry, RecordCursor, VersionReader};
use larder_source::target::{Target, TargetOptions};
use larder_store::catalog::Version;

use crate::error::{DrillError, NoRoom};
use crate::report::{Amount, SnapshotReport};
use crate::run::{Drill, DrillOptions, begun};
use crate::scratch::lacks_room;

/// The work of a drill of one version.
#[derive(Debug, Default)]
pub struct ExpectedDrill {
    /// Files of the sample.
    pub sample: Amount,
    /// The fetches that a drill would take besides what the estimate took itself.
    pub fetches: PlannedFetches,
    /// The scratch folder has less space than the drill needs.
    pub no_room: Option<NoRoom>,
    /// Findings of the estimate: items that cannot be read. The drill would fail.
    pub mismatches: u64,
}

/// Counts the requests of a drill that restores. It writes nothing, and its own requests are those
/// that the drill takes as well.
pub fn estimate(
    context: &JobContext,
    version: &Version,
    options: &DrillOptions,
    scratch: &Path,
) -> Result<ExpectedDrill, DrillError> {
    begun(context, version, options, |drill, manifest| expected(drill, manifest, scratch))
}

fn expected(drill: &Drill<'_>, manifest: Manifest, scratch: &Path) -> Result<ExpectedDrill, DrillError> {
    let reader = VersionReader::new(drill.context, manifest).fetching(drill.options.fetch.clone());
    let mut report = SnapshotReport::default();
    let chosen = Arc::new(drill.choose(&reader, &mut report)?);
    let mut target_options = TargetOptions::default();
    target_options.dry_run = true;
    // Nothing is there, as in a new scratch folder.
    let folder = scratch.join(format!("larder-drill-{}-estimate", drill.version.id()));
    let target = Target::open(&folder, target_options).map_err(RestoreError::from)?;
    let options = RestoreOptions { estimate: true, ..drill.restore_options(&chosen) };
    let planned = restore(drill.context, drill.version, &target, &options)?;
    let mut cursor = reader.data_cursor();
    drill.walk(
        &reader,
        |_| {},
        |PlacedEntry { entry, data_offset }| match chosen.has(&entry.path) {
            true => follow(&entry, data_offset, &mut cursor),
            false => Ok(()),
        },
    )?;
    let mut fetches = planned.planned;
    fetches.is_about |= planned.errors > 0 || planned.cold_files > 0 || report.mismatches > 0;
    let no_room = lacks_room(scratch, chosen.files.files + chosen.others, chosen.files.bytes)
        .map_err(|source| DrillError::Scratch { folder: scratch.to_owned(), source })?;
    Ok(ExpectedDrill { sample: chosen.files, fetches, no_room, mismatches: report.mismatches + planned.damaged })
}

/// Reads the recipe of a file, as its comparison does.
fn follow(entry: &Entry, data_offset: u64, cursor: &mut RecordCursor) -> Result<(), DrillError> {
    let EntryKind::File { .. } = entry.kind else { return Ok(()) };
    let mut left = entry.stored_bytes();
    if left > 0 {
        cursor.seek(data_offset)?;
    }
    while left > 0 {
        let Some(record) = cursor.next_record()? else { break };
        left = left.saturating_sub(u64::from(record.chunk.size));
    }
    Ok(())
}

//! `larder drill --estimate`.

use std::path::PathBuf;

use larder_drill::{DrillError, DrillOptions, Sample};
use larder_job::JobContext;
use larder_store::catalog::Version;

use super::report::Named;
use super::scratch;
use crate::app::App;
use crate::args::DrillArgs;
use crate::durations;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Estimate, Meter, MeterKind};
use crate::refs::shown;
use crate::sizes;

/// Shows what a drill of these snapshots takes: what this one has taken, and the contents.
pub(super) fn run(
    app: &App,
    args: &DrillArgs,
    context: &JobContext,
    found: &[Version],
    failed: Vec<(Named, Failure)>,
    seed: u64,
) -> Result<Exit, Failure> {
    let mut meter = Meter::start_as(MeterKind::Restore, true, &app.out);
    let context = JobContext { progress: meter.progress(), ..context.clone() };
    let scratch: PathBuf = scratch(app, args);
    let (mut is_damaged, mut is_full, mut is_exact) = (!failed.is_empty(), false, failed.is_empty());
    let mut requests = larder_store::StoreStats::default();
    let (mut files, mut bytes) = (0, 0);
    for version in found {
        let fetch = app.fetching(&args.fetch)?;
        let options = DrillOptions { sample: args.sample, seed, scratch: None, live: None, fetch };
        match larder_drill::estimate(&context, version, &options, &scratch) {
            Ok(expected) => {
                (files, bytes) = (files + expected.sample.files, bytes + expected.sample.bytes);
                requests.reads += expected.fetches.requests;
                requests.bytes_down += expected.fetches.bytes;
                requests.sizes += expected.fetches.looks;
                is_exact &= !expected.fetches.is_about;
                is_damaged |= expected.mismatches > 0;
                if let Some(no_room) = expected.no_room {
                    let failure = Failure::from(DrillError::from(no_room)).while_doing(&shown(&version.summary));
                    app.out.warn(&failure.message);
                    is_full = true;
                }
            }
            Err(error) => {
                let failure = Failure::from(error);
                if failure.exit != Exit::Damage {
                    meter.stop();
                    return Err(failure);
                }
                app.out.warn(&failure.while_doing(&shown(&version.summary)).message);
                (is_damaged, is_exact) = (true, false);
            }
        }
    }
    meter.stop();
    let taken = context.repository.store().stats();
    requests = larder_store::StoreStats {
        reads: taken.reads + requests.reads,
        bytes_down: taken.bytes_down + requests.bytes_down,
        sizes: taken.sizes.saturating_sub(requests.sizes),
        ..taken
    };
    if !app.out.is_json() {
        let (snapshots, files) = (sizes::count(found.len() as u64, "snapshot"), sizes::count(files, "file"));
        app.out.line(format!("would drill {snapshots}: {files} ({})", sizes::show(bytes)))?;
    }
    let is_drawn = !matches!(args.sample, Sample::Part(part) if part >= 1.0);
    let seconds = durations::expected(app, &context.repository, &[durations::DRILL], [&requests; 2]);
    let estimate = Estimate { is_exact, seconds, seed: is_drawn.then_some(seed), ..Estimate::exactly(requests) };
    estimate.show(&app.out, app.prices().as_ref())?;
    Ok(match is_damaged {
        true => Exit::Damage,
        false if is_full => Exit::Full,
        false => Exit::Done,
    })
}

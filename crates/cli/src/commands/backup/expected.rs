//! `larder backup --estimate`: turns the expected work into bounds of requests, bytes and time.
//!
//! Only reading tells which data is new. So the least is nothing, and the most is that all of it is
//! new and cannot be compressed. Earlier runs of the series say what to expect in between.

use larder_job::JobContext;
use larder_lnode::{BackupOptions, ExpectedWork, Input, expected_work};
use larder_store::{Repository, StoreStats};

use crate::app::App;
use crate::commands::storing::Storing;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machine;
use crate::output::Estimate;
use crate::{sizes, time};

/// A run counts for an estimate if it read at least this part of the present work.
const LIKE_SHARE: u64 = 100;
/// Stored metadata of an entry as usual.
const LIKELY_ENTRY_BYTES: u64 = 200;

pub(super) fn run(app: &App, repository: &Repository, input: Input, options: &BackupOptions) -> Result<Exit, Failure> {
    let Input::Tree(walk) = input else {
        return Err(Failure::usage("only a backup of files can be estimated: other input has to be read"));
    };
    let context = app.reading(repository.clone());
    let context = JobContext {
        cancel: app.interrupts.job_begins(),
        machine: machine::witness(&app.global, &app.out, repository),
        ..context
    };
    let work = expected_work(&context, walk, options)?;
    let estimate = bounds(&work, &repository.store().stats());
    if !app.out.is_json() {
        say(app, &work)?;
    }
    estimate.show(&app.out, app.prices().as_ref())?;
    Ok(Exit::Done)
}

fn bounds(work: &ExpectedWork, taken: &StoreStats) -> Estimate {
    let storing = Storing {
        bytes: work.bytes_to_read,
        entries: work.entries_to_store,
        versions: work.versions,
        base_metadata_bytes: work.base_metadata_bytes,
    };
    let most_new = storing.most_stored();
    // A run that read little says little about one that reads much.
    let like = work.earlier.iter().filter(|run| run.read_bytes >= work.bytes_to_read / LIKE_SHARE);
    let metadata = work.entries_to_store * LIKELY_ENTRY_BYTES;
    let likely = like.clone().filter(|run| run.read_bytes > 0).map(|run| {
        let share = run.stored_bytes as f64 / run.read_bytes as f64;
        ((work.bytes_to_read as f64 * share) as u64 + metadata).min(most_new)
    });
    // One run is no range.
    let likely: Vec<u64> = Some(likely.collect()).filter(|runs: &Vec<u64>| runs.len() > 1).unwrap_or_default();
    let seconds = like.map(|run| {
        let (took, times) = (run.took_ms as f64 / 1000.0, work.bytes_to_read as f64 / run.read_bytes.max(1) as f64);
        (took * times.min(1.0), took * times.max(1.0))
    });
    let seconds = seconds.reduce(|(a, b), (low, high)| (a.min(low), b.max(high)));
    Estimate {
        low: StoreStats::default(),
        high: storing.most(taken),
        stored: Some((0, most_new)),
        likely: likely.iter().min().copied().zip(likely.iter().max().copied()),
        seconds,
        is_exact: false,
        repository: None,
        seed: None,
    }
}

fn say(app: &App, work: &ExpectedWork) -> Result<(), Failure> {
    let (files, bytes) = (sizes::count(work.files, "file"), sizes::show(work.bytes));
    let (to_read, bytes_to_read) = (sizes::count(work.files_to_read, "file"), sizes::show(work.bytes_to_read));
    app.out.line(format!("found {files} ({bytes}); would read {to_read} ({bytes_to_read})"))?;
    match work.base {
        Some(id) => {
            let when = time::show(id.unix_ms());
            app.out.line(format!("compared with snapshot {} of {when}", id.short()))?;
        }
        None => app.out.line("compared with no snapshot: this machine has none in the series")?,
    }
    if work.problems > 0 {
        app.out.warn(&format!("{} could not be examined", sizes::count(work.problems, "item")));
    }
    Ok(())
}

//! `larder import`: shows what `larder_import` makes of the originals of other programs.

mod borg;
mod report;
#[cfg(feature = "import-restic")]
mod restic;
mod tar;

use std::time::Instant;

use larder_format::roles::Roles;
use larder_import::ImportError;
use larder_import::compare::compare;
use larder_import::original::{ImportedBefore, Original};
use larder_job::{Clock, JobContext, SystemClock};
use larder_lnode::transfer::CopyOptions;
use larder_lnode::{BackupError, EntrySource};
use larder_store::catalog::Version;

use self::report::Done;
use super::copy::expect_witness;
use crate::app::App;
use crate::args::{FilterArgs, ImportArgs, ImportOptions, ImportSource};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machine;
use crate::output::{Meter, MeterKind};
use crate::refs::Versions;

pub(super) fn run(app: &App, args: &ImportArgs) -> Result<Exit, Failure> {
    match &args.source {
        ImportSource::Tar(args) => tar::run(app, args),
        ImportSource::Borg(args) => borg::run(app, args),
        #[cfg(feature = "import-restic")]
        ImportSource::Restic(args) => restic::run(app, args),
    }
}

/// An original that is about to be imported.
struct Wanted {
    /// Its name in messages.
    name: String,
    original: Original,
    series: String,
}

/// The run of the command.
struct Importing<'a> {
    app: &'a App,
    options: &'a ImportOptions,
    context: &'a JobContext,
    before: ImportedBefore<'a>,
    done: Done,
    /// The last import failed because its original could not be read.
    is_source_damaged: bool,
}

/// Opens the repository, and runs an import with a meter.
fn with_importing(
    app: &App,
    options: &ImportOptions,
    work: impl FnOnce(&mut Importing<'_>) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let opened = app.open()?;
    opened.repository.require(Roles::BACKUP, "an import")?;
    if options.compare {
        opened.repository.require(Roles::RESTORE, "--compare, which reads contents,")?;
    }
    let machine = machine::witness(&app.global, &app.out, &opened.repository);
    expect_witness(app, &opened.repository, &machine, "each run would import everything again")?;
    // With the tags that they were made with, which their witness covers.
    let here = Versions::load(app, &opened.repository, &FilterArgs::default())?;
    let mut meter = Meter::start(MeterKind::Backup, &app.out);
    let context = JobContext { machine, ..app.context(opened.repository.clone(), meter.progress()) };
    let before = ImportedBefore::new(&context, here.all());
    let mut importing =
        Importing { app, options, context: &context, before, done: Done::default(), is_source_damaged: false };
    let result = work(&mut importing);
    meter.stop();
    here.warn_of_damage(app);
    if result.is_ok() || importing.done.imported > 0 {
        importing.tell(meter.elapsed())?;
    }
    importing.tell_failures();
    result?;
    Ok(importing.exit())
}

impl Importing<'_> {
    /// Whether an original has a snapshot in its series already.
    fn is_there(&mut self, wanted: &Wanted) -> bool {
        let Some(version) = self.before.version_of(&wanted.original, &wanted.series) else { return false };
        self.done.imported_before += 1;
        self.done.not_whole_before += u64::from(version.summary.statistics.errors > 0);
        true
    }

    /// Says so if nothing fits what was asked for.
    fn expect_some(&self, is_nothing: bool, what: &str) {
        if is_nothing {
            self.app.out.warn(&format!("no {what} fits the options"));
        }
    }

    /// Imports one original.
    fn one(&mut self, wanted: &Wanted, entries: Box<dyn EntrySource>) -> Result<(), Failure> {
        super::backup::expect_series_name(&wanted.series)?;
        let options = CopyOptions {
            program: format!("larder {}", env!("CARGO_PKG_VERSION")),
            compression: self.app.compression(),
            layout: super::series::expect_layout(
                self.app,
                &self.context.repository,
                &wanted.series,
                self.options.layout,
            )?,
            index_memory: self.app.global.memory() / 4,
            scratch: self.app.scratch(),
        };
        let again = self.options.compare.then(|| entries.again());
        let (started, started_ms) = (Instant::now(), SystemClock.now_ms());
        let report = wanted.original.import(self.context, &wanted.series, entries, &options);
        self.is_source_damaged = matches!(report, Err(BackupError::Input { .. }));
        let report = report.map_err(|error| self.interrupted_or(error.into()))?;
        let Some(summary) = report.version.clone() else { return Ok(()) };
        self.done.imported += 1;
        self.done.errors += report.statistics.errors;
        let version = self.before.add(summary);
        let compared = again.map(|original| self.compared(&version, original)).transpose()?;
        self.tell_one(wanted, &report, compared.as_ref(), started_ms, started.elapsed())
    }

    /// Reads a new snapshot back.
    fn compared(&mut self, version: &Version, original: Box<dyn EntrySource>) -> Result<report::Comparison, Failure> {
        let compared = compare(self.context, version, original).map_err(|error| self.interrupted_or(error.into()))?;
        self.done.different += compared.different.len() as u64;
        for path in &compared.different {
            let message = "it is not the same in the snapshot".to_owned();
            let during = larder_job::Activity::Read;
            self.context.progress.problem(&larder_job::Problem { path: path.clone(), during, message });
        }
        Ok(compared)
    }

    /// A failure; an interruption if one was asked for.
    fn interrupted_or(&self, failure: Failure) -> Failure {
        match self.context.cancel.is_cancelled() {
            true => Failure { exit: Exit::Interrupted, ..failure },
            false => failure,
        }
    }

    fn failed(&self, error: ImportError) -> Failure {
        self.interrupted_or(error.into())
    }

    /// How archives are read.
    fn read_options(&self, time_ms: u64) -> larder_import::tar::ReadOptions {
        larder_import::tar::ReadOptions {
            scratch: self.app.scratch(),
            memory: self.app.global.memory() / 4,
            cancel: self.context.cancel.clone(),
            made: larder_format::entry::Timestamp {
                seconds: i64::try_from(time_ms / 1000).unwrap_or(i64::MAX),
                nanos: (time_ms % 1000) as u32 * 1_000_000,
            },
        }
    }
}

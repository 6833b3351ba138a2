//! `larder drill`: chooses the snapshots and the scratch folder, and reports what
//! `larder_drill::drill` finds.

mod estimate;
mod html;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_drill::{DrillError, DrillOptions, drill};
use larder_format::ids::{JobId, SeriesKey};
use larder_format::roles::Roles;
use larder_gnode::roll_back::lost_versions;
use larder_job::{Clock, JobContext, NoProgress, SystemClock};
use larder_lnode::RestoreError;
use larder_store::catalog::Version;
use larder_store::repository::{SystemEntropy, random};

use crate::app::App;
use crate::args::DrillArgs;
use crate::environment;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::machine;
use crate::output::{Meter, MeterKind};
use crate::refs::{Versions, shown};
use report::{Drilled, Named, Report};

/// Largest seed: every program that reads JSON keeps it exactly.
const SEED_MAX: u64 = (1 << 53) - 1;

pub(super) fn run(app: &App, args: &DrillArgs) -> Result<Exit, Failure> {
    let written = args.report.as_deref().map(Written::open).transpose()?;
    let opened = app.open()?;
    opened.repository.require(Roles::RESTORE, "a drill")?;
    let versions = Versions::load(app, &opened.repository, &args.filter)?;
    let found = chosen(app, args, &versions)?;
    versions.warn_of_damage(app);
    let mut context = app.context(opened.repository.clone(), Arc::new(NoProgress));
    // A copy in the cache would hide that the object in the store is gone.
    context.repository = context.repository.through(context.repository.store().without_cache());
    context.machine = machine::remembering(&app.global, &app.out, &opened.repository);
    let failed = unreadable(app, args, &context, &versions)?;
    if found.is_empty() && failed.is_empty() {
        return Err(versions.nothing_fits());
    }
    let seed = args
        .seed
        .unwrap_or_else(|| random(&SystemEntropy).map_or_else(|_| SystemClock.now_ms(), u64::from_le_bytes) & SEED_MAX);
    if args.estimate {
        return estimate::run(app, args, &context, &found, failed, seed);
    }
    let scratch = if args.no_write { None } else { Some(scratch(app, args)) };
    let mut meter = Meter::start(MeterKind::Restore, &app.out);
    context.progress = meter.progress();
    let repository = context.repository.clone();
    let store = repository.store();
    let mut report = Report {
        time_ms: SystemClock.now_ms(),
        host: this_host(),
        repository: app.location()?.to_string(),
        seed,
        sample: args.sample,
        writes: !args.no_write,
        compares: args.compare_source,
        snapshots: Vec::new(),
        failed,
        unfinished: Vec::new(),
        requests: store.stats(),
        seconds: 0.0,
        prices: app.prices(),
    };
    for version in &found {
        let live = live(app, args, version).then(|| PathBuf::from("/"));
        let options = DrillOptions {
            sample: args.sample,
            seed,
            scratch: scratch.clone(),
            live,
            fetch: app.fetching(&args.fetch)?,
        };
        match drill(&context, version, &options) {
            Ok(found) => report.snapshots.push(Drilled { snapshot: (&version.summary).into(), report: found }),
            Err(error) => {
                // The others may be whole, or smaller. Whatever else failed holds for them, too.
                let is_of_snapshot = depends_on_snapshot(&error);
                let failure = Failure::from(error);
                let is_damage = failure.exit == Exit::Damage;
                if !is_damage && (!report.has_anything() || failure.exit == Exit::Interrupted) {
                    meter.stop();
                    return Err(failure);
                }
                let failure = failure.while_doing(&shown(&version.summary));
                app.out.warn(&failure.message);
                let list = if is_damage { &mut report.failed } else { &mut report.unfinished };
                list.push(((&version.summary).into(), failure));
                if !is_damage && !is_of_snapshot {
                    break;
                }
            }
        }
    }
    meter.stop();
    report.requests = store.stats();
    report.seconds = meter.elapsed().as_secs_f64();
    // Findings are told, whatever becomes of the file.
    report.show(&app.out)?;
    match written.map(|written| written.write(&report)).transpose() {
        Err(failure) if report.exit() == Exit::Damage => app.out.warn(&failure.message),
        result => drop(result?),
    }
    Ok(report.exit())
}

/// Whether a drill of another snapshot may do better.
fn depends_on_snapshot(error: &DrillError) -> bool {
    match error {
        DrillError::NoRoom(_) | DrillError::ScratchFile { .. } => true,
        DrillError::Restore(error) => matches!(error, RestoreError::Target(_) | RestoreError::Forgotten { .. }),
        DrillError::Repository(_) | DrillError::Scratch { .. } => false,
    }
}

/// Snapshots that cannot be drilled because their manifests are damaged or missing. Without names,
/// a drill is of the newest ones: an older one in the place of a lost one would hide the loss.
fn unreadable(
    app: &App,
    args: &DrillArgs,
    context: &JobContext,
    versions: &Versions,
) -> Result<Vec<(Named, Failure)>, Failure> {
    let series: BTreeMap<_, _> =
        versions.all().into_iter().map(|version| (version.series, version.summary.series)).collect();
    let named = |of: Option<SeriesKey>, id: JobId| {
        let series = of.and_then(|of| series.get(&of).cloned()).unwrap_or_default();
        Named { id, series, time_ms: id.unix_ms() }
    };
    let damaged = versions.damaged().iter().map(|version| {
        let of = larder_format::names::parse_version(&version.name).map(|(series, ..)| series);
        (named(of, version.id), Failure::new(Exit::Damage, chain(&version.error)))
    });
    let mut failed: Vec<_> = damaged.collect();
    if !args.snapshot.is_empty() {
        return Ok(failed);
    }
    let wanted: Vec<_> = args.filter.series.iter().map(|series| context.repository.keys().series_key(series)).collect();
    for lost in app.block_on(lost_versions(context))? {
        if wanted.is_empty() || wanted.contains(&lost.series) {
            let why = "its manifest is missing, and nobody has forgotten it";
            let failure = Failure::new(Exit::Damage, why);
            app.out.warn(&format!("snapshot {} cannot be restored: {why}; `larder check` says more", lost.job.short()));
            failed.push((named(Some(lost.series), lost.job), failure));
        }
    }
    Ok(failed)
}

/// The named snapshots, or the newest one of each series.
fn chosen(app: &App, args: &DrillArgs, versions: &Versions) -> Result<Vec<Version>, Failure> {
    let found = versions.find_all(app, &args.snapshot)?;
    if args.all || !args.snapshot.is_empty() {
        return Ok(found);
    }
    // Oldest first, so the last one of a series stays.
    let newest: BTreeMap<_, _> = found.into_iter().map(|version| (version.series, version)).collect();
    let mut newest: Vec<Version> = newest.into_values().collect();
    newest.sort_by_key(Version::rank);
    Ok(newest)
}

/// The folder below which the scratch folder is made. Files are restored there at full size, so the
/// usual folder for temporary files comes last: it often is memory.
fn scratch(app: &App, args: &DrillArgs) -> PathBuf {
    args.scratch.clone().or_else(|| app.scratch()).unwrap_or_else(std::env::temp_dir)
}

/// Whether the live files of a snapshot are on this machine.
fn live(app: &App, args: &DrillArgs, version: &Version) -> bool {
    let is_here = version.summary.host == this_host();
    if args.compare_source && !is_here {
        let host = crate::output::safe(&version.summary.host);
        app.out.warn(&format!("{} is of {host}, so live files are not compared", shown(&version.summary)));
    }
    args.compare_source && is_here
}

/// The host name that backups of this machine record.
fn this_host() -> String {
    let given = environment::variable("LARDER_HOST").map(|host| host.to_string_lossy().into_owned());
    given.unwrap_or_else(environment::host)
}

/// The form of a written report.
#[derive(Debug, Clone, Copy)]
enum Form {
    Json,
    Html,
}

impl Form {
    fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => Ok(Self::Json),
            Some("html" | "htm") => Ok(Self::Html),
            _ => Err(Failure::usage(format!("{}: a report is a file .json or .html", path.display()))),
        }
    }

    fn render(self, report: &Report) -> String {
        match self {
            Self::Json => format!("{:#}\n", serde_json::Value::Object(report.json())),
            Self::Html => html::render(report),
        }
    }
}

/// The file of a report, opened before the drill: an error after hours would come too late. It
/// names files, so only this user may read it.
#[derive(Debug)]
struct Written {
    form: Form,
    path: PathBuf,
    file: std::fs::File,
}

impl Written {
    fn open(path: &Path) -> Result<Self, Failure> {
        use std::os::unix::fs::OpenOptionsExt;
        let form = Form::of(path)?;
        let opened = std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = opened.map_err(|error| Self::failed(path, &error))?;
        Ok(Self { form, path: path.to_owned(), file })
    }

    fn write(mut self, report: &Report) -> Result<(), Failure> {
        use std::io::Write;
        let text = self.form.render(report);
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|error| Self::failed(&self.path, &error))
    }

    fn failed(path: &Path, error: &std::io::Error) -> Failure {
        Failure::of(Exit::Failed, error).while_doing(&format!("cannot write the report {}", path.display()))
    }
}

//! `larder drill`: chooses the snapshots and the scratch folder, and reports what
//! `larder_drill::drill` finds.

mod html;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use larder_drill::{DrillOptions, drill};
use larder_format::roles::Roles;
use larder_job::{Clock, SystemClock};
use larder_store::catalog::Version;
use larder_store::repository::{SystemEntropy, random};

use crate::app::App;
use crate::args::DrillArgs;
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Meter, MeterKind};
use crate::refs::{Versions, shown};
use report::{Drilled, Report};

/// Largest seed: every program that reads JSON keeps it exactly.
const SEED_MAX: u64 = (1 << 53) - 1;

pub(super) fn run(app: &App, args: &DrillArgs) -> Result<Exit, Failure> {
    let written = args.report.as_deref().map(Form::of).transpose()?;
    let opened = app.open()?;
    opened.repository.require(Roles::RESTORE, "a drill")?;
    let versions = Versions::load(app, &opened.repository, &args.filter)?;
    let found = chosen(app, args, &versions)?;
    versions.warn_of_damage(app);
    if found.is_empty() {
        return Err(versions.nothing_fits());
    }
    let seed = args
        .seed
        .unwrap_or_else(|| random(&SystemEntropy).map_or_else(|_| SystemClock.now_ms(), u64::from_le_bytes) & SEED_MAX);
    let scratch = if args.no_write { None } else { Some(scratch(app, args)) };
    let mut meter = Meter::start(MeterKind::Restore, &app.out);
    let mut context = app.context(opened.repository.clone(), meter.progress());
    // A copy in the cache would hide that the object in the store is gone.
    context.repository = context.repository.through(context.repository.store().without_cache());
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
        failed: Vec::new(),
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
                let failure = Failure::from(error);
                // The others may be whole. Everything else holds for them, too.
                if failure.exit != Exit::Damage {
                    meter.stop();
                    return Err(failure);
                }
                let failure = failure.while_doing(&shown(&version.summary));
                app.out.warn(&failure.message);
                report.failed.push(((&version.summary).into(), failure));
            }
        }
    }
    meter.stop();
    report.requests = store.stats();
    report.seconds = meter.elapsed().as_secs_f64();
    if let (Some(form), Some(path)) = (written, &args.report) {
        write(path, &form.render(&report))?;
    }
    report.show(&app.out)?;
    Ok(report.exit())
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

/// It names files, so only this user may read it.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let opened = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        Failure::of(Exit::Failed, &error).while_doing(&format!("cannot write the report {}", path.display()))
    })
}

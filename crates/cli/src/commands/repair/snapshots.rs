//! `larder repair snapshots`: reports the snapshots that `larder_rewrite::repair::salvage` saved.

use larder_format::lease::Pin;
use larder_format::mark::Forgotten;
use larder_format::roles::Roles;
use larder_gnode::forget::{Replaced, Replacement, replace};
use larder_job::JobContext;
use larder_rewrite::repair::{
    Losses, SalvageOptions, SalvageOutcome, SalvageReport, SalvagedVersion, replaced, salvage,
};
use larder_store::catalog::Version;
use larder_store::forget_marks::OwnedVersion;
use serde_json::{Map, Value, json};

use super::{read_data, unseen};
use crate::app::App;
use crate::args::RepairSnapshotsArgs;
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machine;
use crate::output::{Meter, MeterKind, safe, summary};
use crate::refs::Versions;
use crate::sizes;

pub(super) fn run(app: &App, args: &RepairSnapshotsArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    opened.repository.require(Roles::OPERATE.and(Roles::RESTORE), "repairing snapshots")?;
    let (versions, _) = Versions::load_tagged(app, &opened.repository, &args.filter)?;
    let filter = &args.filter;
    let is_everything = args.ids.is_empty()
        && filter.host.is_empty()
        && filter.tag.is_empty()
        && filter.path.is_empty()
        && filter.series.is_empty();
    let found = versions.find_all(app, &args.ids)?;
    if found.is_empty() && !is_everything {
        return Err(Failure::new(Exit::Failed, "no snapshot fits").advise("`larder snapshots` lists what there is"));
    }
    let options = SalvageOptions {
        read_data: read_data(&args.read),
        versions: if is_everything { Vec::new() } else { found.iter().map(Version::id).collect() },
        dry_run: args.dry_run,
        program: format!("larder {}", env!("CARGO_PKG_VERSION")),
        compression: app.compression(),
    };
    let mut meter = Meter::start(MeterKind::Repair, &app.out);
    let context = app.context(opened.repository.clone(), meter.progress());
    let context = JobContext { machine: machine::witness(&app.global, &app.out, &opened.repository), ..context };
    let result = salvage(&context, &options);
    meter.stop();
    let report = result?;
    let mut forgot = Vec::new();
    let mut failure = None;
    if args.forget && !args.dry_run {
        let mark = Forgotten {
            time_ms: context.clock.now_ms(),
            host: environment::host(),
            reason: "what was left of it was saved".to_owned(),
        };
        let pairs: Vec<Replaced> = found.iter().filter_map(|old| pair(old, &report)).collect();
        let Replacement { forgot: done, unheld } =
            replace(&context, &pairs, &mark, || replaced(&context, &report, &options))?;
        for (id, error) in unheld {
            let failed = Failure::from(error).while_doing(&format!("what was saved of {} may go", id.short()));
            app.out.item_error(&id.short(), "forget", &failed.message);
            failure.get_or_insert(failed);
        }
        for (id, error) in done.failed {
            let failed = Failure::from(error).while_doing(&format!("snapshot {} was not forgotten", id.short()));
            app.out.item_error(&id.short(), "forget", &failed.message);
            failure.get_or_insert(failed);
        }
        forgot = done.done;
        let gone = found.iter().map(|version| OwnedVersion::from(version).version);
        context.machine.forget_versions(gone.filter(|version| forgot.contains(&version.job)));
    }
    let forgot: Vec<String> = forgot.iter().map(ToString::to_string).collect();
    if app.out.is_json() {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("message_type", json!("summary"));
        put("dry_run", json!(args.dry_run));
        put("snapshots", json!(report.versions.iter().map(version_json).collect::<Vec<_>>()));
        put("forgotten", json!(forgot));
        put("total_duration", json!(meter.elapsed().as_secs_f64()));
        summary::put_requests(&mut object, &opened.repository.store().stats());
        app.out.json(&object)?;
    } else {
        print(app, args, &report, forgot.len() as u64)?;
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    let is_lost = |version: &SalvagedVersion| {
        matches!(version.outcome, SalvageOutcome::NothingLeft | SalvageOutcome::Unreadable(_))
    };
    Ok(if report.versions.iter().any(is_lost) { Exit::Damage } else { Exit::Done })
}

/// A damaged version and the saved one. The saved one has the tags of that time: a version that got
/// others meanwhile stays.
fn pair(old: &Version, report: &SalvageReport) -> Option<Replaced> {
    let salvaged = report.versions.iter().find(|version| version.id == old.id())?;
    let (SalvageOutcome::Saved(new) | SalvageOutcome::SavedBefore(new)) = salvaged.outcome else { return None };
    let owned = OwnedVersion::from(old);
    let version = Pin { job: new, ..owned.version };
    Some(Replaced { old: owned, new: OwnedVersion { version, ..owned }, tags: old.summary.tags.clone() })
}

fn print(app: &App, args: &RepairSnapshotsArgs, report: &SalvageReport, forgot: u64) -> Result<(), Failure> {
    for version in &report.versions {
        app.out.line(format!("snapshot {}{}: {}", version.id.short(), series(version), outcome(version)))?;
    }
    let of = report.check.versions;
    match report.versions.len() as u64 {
        0 => app.out.info(format!("{}, none of them damaged{}", sizes::count(of, "snapshot"), unseen(&args.read)))?,
        damaged => app.out.info(format!("{damaged} of {} damaged", sizes::count(of, "snapshot")))?,
    }
    if forgot > 0 {
        app.out.info(format!("forgot {}", sizes::count(forgot, "snapshot")))?;
    }
    let is_new = |version: &SalvagedVersion| matches!(version.outcome, SalvageOutcome::Saved(_));
    if !args.forget && report.versions.iter().any(is_new) {
        app.out.info("the damaged snapshots are still there; `larder repair snapshots --forget` forgets them")?;
    }
    Ok(())
}

fn series(version: &SalvagedVersion) -> String {
    if version.series.is_empty() { String::new() } else { format!(" ({})", safe(&version.series)) }
}

fn outcome(version: &SalvagedVersion) -> String {
    let Losses { files_damaged, files_lost, gaps, bytes_lost } = version.losses;
    let mut losses = Vec::new();
    if files_damaged > 0 {
        losses.push(format!("{} with holes", sizes::count(files_damaged, "file")));
    }
    if files_lost > 0 {
        losses.push(format!("{} left out", sizes::count(files_lost, "file")));
    }
    if gaps > 0 {
        losses.push(format!("{} of the tree unknown", sizes::count(gaps, "part")));
    }
    losses.push(format!("{} lost", sizes::show(bytes_lost)));
    let losses = losses.join(", ");
    match &version.outcome {
        SalvageOutcome::Saved(id) => format!("saved as {}: {losses}", id.short()),
        SalvageOutcome::Planned => format!("would be saved: {losses}"),
        SalvageOutcome::SavedBefore(id) => format!("was saved as {} before", id.short()),
        SalvageOutcome::NothingLost => "no file suffers from the damage; nothing to save".to_owned(),
        SalvageOutcome::NothingLeft => "nothing of it is left; `larder forget` removes it".to_owned(),
        SalvageOutcome::Forgotten => "it was forgotten during the repair".to_owned(),
        SalvageOutcome::Unreadable(why) => {
            format!("cannot be saved: {}; `larder forget {}` removes it", safe(why), version.id)
        }
    }
}

fn version_json(version: &SalvagedVersion) -> Value {
    let Losses { files_damaged, files_lost, gaps, bytes_lost } = version.losses;
    let (name, saved_as, message) = match &version.outcome {
        SalvageOutcome::Saved(id) => ("saved", Some(id), None),
        SalvageOutcome::Planned => ("would_be_saved", None, None),
        SalvageOutcome::SavedBefore(id) => ("saved_before", Some(id), None),
        SalvageOutcome::NothingLost => ("nothing_lost", None, None),
        SalvageOutcome::NothingLeft => ("nothing_left", None, None),
        SalvageOutcome::Forgotten => ("forgotten", None, None),
        SalvageOutcome::Unreadable(why) => ("unreadable", None, Some(why)),
    };
    json!({
        "snapshot_id": version.id.to_string(),
        "short_id": version.id.short(),
        "series": version.series,
        "outcome": name,
        "saved_as": saved_as.map(ToString::to_string),
        "message": message,
        "files_damaged": files_damaged,
        "files_lost": files_lost,
        "gaps": gaps,
        "bytes_lost": bytes_lost,
    })
}

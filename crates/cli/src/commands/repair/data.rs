//! `larder repair --from PATH`: reports the chunks that `larder_rewrite::repair::heal` restored.

use std::os::unix::ffi::OsStringExt;

use larder_format::roles::Roles;
use larder_rewrite::repair::{HealOptions, HealOutcome, HealReport, HealedVersion, heal};
use larder_source::{Roots, Walk, WalkOptions};
use serde_json::{Map, Value, json};

use super::{read_data, unseen};
use crate::app::App;
use crate::args::RepairDataArgs;
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Meter, MeterKind, absolute, safe, summary};
use crate::sizes;

pub(super) fn run(app: &App, args: &RepairDataArgs) -> Result<Exit, Failure> {
    let paths: Vec<Vec<u8>> = args.from.iter().map(|path| path.clone().into_vec()).collect();
    let roots = Roots::new(&paths, &environment::current_dir()?)?;
    for path in roots.paths() {
        let path = std::path::PathBuf::from(std::ffi::OsString::from_vec(path.clone()));
        if let Err(error) = std::fs::symlink_metadata(&path) {
            let doing = format!("cannot look at {}", absolute(path.into_os_string().as_encoded_bytes()));
            return Err(Failure::of(Exit::Failed, &error).while_doing(&doing).advise("nothing was changed"));
        }
    }
    let repository = app.open()?.repository;
    repository.require(Roles::OPERATE.and(Roles::RESTORE), "repairing data")?;
    let options = HealOptions {
        read_data: read_data(&args.read),
        versions: Vec::new(),
        dry_run: args.dry_run,
        compression: app.compression(),
    };
    let mut meter = Meter::start(MeterKind::Repair, &app.out);
    let context = app.context(repository.clone(), meter.progress());
    let result = heal(&context, Walk::new(roots, WalkOptions::default()), &options);
    meter.stop();
    let report = result?;
    if app.out.is_json() {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("message_type", json!("summary"));
        put("dry_run", json!(args.dry_run));
        put("chunks_lost", json!(report.lost));
        put("chunks_found", json!(report.found));
        put("bytes_found", json!(report.found_bytes));
        put("snapshots", json!(report.versions.iter().map(version_json).collect::<Vec<_>>()));
        put("total_duration", json!(meter.elapsed().as_secs_f64()));
        summary::put_requests(&mut object, &repository.store().stats());
        app.out.json(&object)?;
    } else {
        print(app, args, &report)?;
    }
    Ok(if report.versions.iter().all(HealedVersion::is_whole) { Exit::Done } else { Exit::Damage })
}

fn print(app: &App, args: &RepairDataArgs, report: &HealReport) -> Result<(), Failure> {
    let out = &app.out;
    for version in &report.versions {
        let series = if version.series.is_empty() { String::new() } else { format!(" ({})", safe(&version.series)) };
        out.line(format!("snapshot {}{series}: {}", version.id.short(), outcome(version)))?;
    }
    let looked_at = sizes::count(report.check.versions, "snapshot");
    if report.versions.is_empty() {
        return out.info(format!("{looked_at}, none of them damaged{}", unseen(&args.read)));
    }
    let lost = sizes::count(report.lost, "lost chunk");
    let found = format!("{} of {lost} found, {}", report.found, sizes::show(report.found_bytes));
    out.info(found)?;
    let is_healed = |version: &HealedVersion| version.outcome == HealOutcome::Healed;
    if report.versions.iter().any(is_healed) {
        out.info("the next pass (`larder optimize`) deletes damaged objects that no snapshot uses")?;
    }
    if !report.versions.iter().all(HealedVersion::is_whole) && !args.dry_run {
        out.line("Not everything was put back; `larder check` names what is still lost, `larder repair snapshots` saves what is left.")?;
    }
    Ok(())
}

fn outcome(version: &HealedVersion) -> String {
    let (found, lost) = (version.found, sizes::count(version.lost, "lost chunk"));
    let metadata = if version.lost_metadata { "; it also lost metadata, which are not put back" } else { "" };
    match &version.outcome {
        HealOutcome::Healed if version.is_whole() => format!("whole again: {lost} put back"),
        HealOutcome::Healed => format!("{found} of {lost} put back{metadata}"),
        HealOutcome::Planned if version.is_whole() => format!("would be whole again: {lost} found"),
        HealOutcome::Planned => format!("{found} of {lost} would be put back{metadata}"),
        HealOutcome::NotFound => format!("none of {lost} found{metadata}"),
        HealOutcome::Overtaken => "forgotten or rewritten by another command; run the repair again".to_owned(),
        HealOutcome::Beyond(why) => format!("cannot be put back: {}", safe(why)),
    }
}

fn version_json(version: &HealedVersion) -> Value {
    let (name, message) = match &version.outcome {
        HealOutcome::Healed => ("healed", None),
        HealOutcome::Planned => ("would_be_healed", None),
        HealOutcome::NotFound => ("not_found", None),
        HealOutcome::Overtaken => ("overtaken", None),
        HealOutcome::Beyond(why) => ("beyond", Some(why)),
    };
    json!({
        "snapshot_id": version.id.to_string(),
        "short_id": version.id.short(),
        "series": version.series,
        "outcome": name,
        "message": message,
        "chunks_lost": version.lost,
        "chunks_found": version.found,
        "lost_metadata": version.lost_metadata,
        "is_whole": version.is_whole(),
    })
}

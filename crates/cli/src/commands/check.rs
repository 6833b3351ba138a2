//! `larder check`: prints what `larder_lnode::check` found, and what to do about it.

use larder_lnode::check::{AffectedVersion, Damage, ReadData};
use larder_lnode::{CheckOptions, CheckReport, check};
use larder_store::StoreStats;
use larder_store::catalog::Version;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::CheckArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Meter, MeterKind, Output, absolute, safe, summary};
use crate::refs::Versions;
use crate::{sizes, time};

pub(super) fn run(app: &App, args: &CheckArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    let versions = Versions::load(app, &opened.repository, &args.filter)?;
    let is_everything = args.ids.is_empty() && is_unfiltered(args);
    let found = versions.find_all(app, &args.ids)?;
    let read_data = match (args.read_data, args.read_data_subset) {
        (true, _) => ReadData::All,
        (false, Some(part)) => part,
        (false, None) => ReadData::None,
    };
    if found.is_empty() && !is_everything {
        return Err(Failure::new(Exit::Failed, "no snapshot fits").advise("`larder snapshots` lists what there is"));
    }
    let chosen = if is_everything { Vec::new() } else { found.iter().map(Version::id).collect() };
    let options = CheckOptions { read_data, versions: chosen };
    let mut meter = Meter::start(MeterKind::Check, &app.out);
    let context = app.context(opened.repository.clone(), meter.progress());
    let result = check(&context, &options);
    meter.stop();
    let report = result?;
    let ended =
        Ended { report: &report, known: &found, read_data, meter: &meter, requests: opened.repository.store().stats() };
    if app.out.is_json() {
        ended.print_json(&app.out)?
    } else {
        ended.print(&app.out)?
    }
    Ok(if report.damages.is_empty() { Exit::Done } else { Exit::Damage })
}

fn is_unfiltered(args: &CheckArgs) -> bool {
    let filter = &args.filter;
    filter.host.is_empty() && filter.tag.is_empty() && filter.path.is_empty() && filter.series.is_empty()
}

/// Everything there is to say at the end.
struct Ended<'a> {
    report: &'a CheckReport,
    known: &'a [Version],
    read_data: ReadData,
    meter: &'a Meter,
    requests: StoreStats,
}

impl Ended<'_> {
    fn print_json(&self, out: &Output) -> Result<(), Failure> {
        let report = self.report;
        for damage in &report.damages {
            out.item_error(&damage.object, "check", &damage.why);
        }
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("message_type", json!("summary"));
        put("num_errors", json!(report.damages.len()));
        let containers = report.damages.iter().map(|damage| &damage.object);
        let containers: Vec<_> =
            containers.filter(|name| larder_format::names::parse_container(name).is_some()).collect();
        put("broken_packs", json!(containers));
        put("suggest_repair_index", json!(false));
        put("suggest_prune", json!(false));
        put("versions", json!(report.versions));
        put("containers", json!(report.containers));
        put("containers_read", json!(report.containers_read));
        put("bytes_read", json!(report.bytes_read));
        put("unused_containers", json!(report.unused_containers));
        put("unused_bytes", json!(report.unused_bytes));
        put("total_duration", json!(self.meter.elapsed().as_secs_f64()));
        let forgotten: Vec<_> = report.forgotten.iter().map(ToString::to_string).collect();
        put("forgotten", json!(forgotten));
        put("damages", json!(report.damages.iter().map(damage_json).collect::<Vec<_>>()));
        summary::put_requests(&mut object, &self.requests);
        out.json(&object)
    }

    fn print(&self, out: &Output) -> Result<(), Failure> {
        let report = self.report;
        for damage in &report.damages {
            self.print_damage(out, damage)?;
        }
        let versions = sizes::count(report.versions, "snapshot");
        let containers = sizes::count(report.containers, "container");
        let duration = time::show_duration(self.meter.elapsed());
        out.info(format!("checked {versions}, {containers} in {duration}"))?;
        if self.read_data != ReadData::None {
            let (read, bytes) = (sizes::count(report.containers_read, "container"), sizes::show(report.bytes_read));
            out.info(format!("read and verified {read}, {bytes}"))?;
        }
        for id in &report.forgotten {
            out.info(format!("snapshot {} was forgotten meanwhile; that is no damage", id.short()))?;
        }
        if report.unused_containers > 0 {
            let containers = sizes::count(report.unused_containers, "container");
            let bytes = sizes::show(report.unused_bytes);
            out.info(format!("{containers} ({bytes}) of interrupted or running backups; that is no damage"))?;
        }
        if report.damages.is_empty() {
            let depth = if self.read_data == ReadData::None { "the structure is whole" } else { "no damage was found" };
            return out.info(depth);
        }
        out.line(format!(
            "{} found. What to do:",
            sizes::count(report.damages.len() as u64, "damaged or missing object")
        ))?;
        for advice in ADVICE {
            out.line(format!("  {advice}"))?;
        }
        Ok(())
    }

    fn print_damage(&self, out: &Output, damage: &Damage) -> Result<(), Failure> {
        out.line(format!("DAMAGED  {}: {}", safe(&damage.object), safe(&damage.why)))?;
        if damage.affected.is_empty() {
            out.line("  no snapshot needs it")?;
        }
        for affected in &damage.affected {
            self.print_affected(out, affected)?;
        }
        Ok(())
    }

    fn print_affected(&self, out: &Output, affected: &AffectedVersion) -> Result<(), Failure> {
        let when = self.known.iter().find(|version| version.id() == affected.id);
        let when = when.map_or_else(String::new, |version| format!(" of {}", time::show(version.summary.time_ms)));
        let series = if affected.series.is_empty() { String::new() } else { format!(" ({})", safe(&affected.series)) };
        let files = match affected.files_count {
            0 => "cannot be restored".to_owned(),
            count => sizes::count(count, "file") + " cannot be restored whole:",
        };
        out.line(format!("  snapshot {}{when}{series}: {files}", affected.id.short()))?;
        for file in &affected.files {
            out.line(format!("    {}", absolute(file)))?;
        }
        match affected.files_count.saturating_sub(affected.files.len() as u64) {
            0 => Ok(()),
            more => out.line(format!("    and {more} more")),
        }
    }
}

/// What helps after damage, in the order in which to try it.
const ADVICE: [&str; 3] = [
    "1. Everything not named above is whole and can be restored: `larder restore` goes on past damaged files and names them.",
    "2. Back up the damaged files under a new --series with --no-similar, while they still exist: that shares nothing with what is damaged.",
    "3. If the storage keeps old versions or replicas of its objects, put the named objects back as they were and check again.",
];

fn damage_json(damage: &Damage) -> Value {
    let affected: Vec<_> = damage
        .affected
        .iter()
        .map(|affected| {
            let files: Vec<_> = affected.files.iter().map(|file| absolute(file)).collect();
            json!({
                "snapshot_id": affected.id.to_string(),
                "short_id": affected.id.short(),
                "series": affected.series,
                "files": files,
                "files_count": affected.files_count,
            })
        })
        .collect();
    json!({"object": damage.object, "message": damage.why, "affected": affected})
}

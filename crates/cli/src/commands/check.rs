//! `larder check`: prints the findings of `larder_rewrite::check`, with advice.

use std::num::NonZeroU32;

use larder_fleet::{SharedCheck, SharedCheckOptions, SharedCheckReport};
use larder_format::names;
use larder_format::roles::Roles;
use larder_gnode::pass::PassError;
use larder_gnode::proof::{IndexState, Proof, prove_after};
use larder_gnode::roll_back::{accept, rolled_back};
use larder_job::{JobContext, RolledBack};
use larder_rewrite::check::{AffectedVersion, CheckError, Damage, PlannedContent, ReadData, check_with};
use larder_rewrite::{CheckOptions, CheckReport, check};
use larder_store::catalog::Version;
use larder_store::{Repository, StoreStats};
use serde_json::{Map, Value, json};

use super::fleet::POLL;
use crate::app::{App, config_words};
use crate::args::CheckArgs;
use crate::durations;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machine;
use crate::output::{Estimate, Meter, MeterKind, Output, absolute, safe, summary};
use crate::refs::Versions;
use crate::{sizes, time};

/// Findings about the index that are shown.
const DISAGREEMENTS_SHOWN: usize = 20;

pub(super) fn run(app: &App, args: &CheckArgs) -> Result<Exit, Failure> {
    // The lease of an estimate would be an object that the check after it reads.
    let opened = if args.estimate { app.rehearse()? } else { app.open()? };
    if args.read_data || args.read_data_subset.is_some() {
        opened.repository.require(Roles::RESTORE, "--read-data")?;
    }
    let versions = Versions::load(app, &opened.repository, &args.filter)?;
    let is_everything = args.ids.is_empty() && is_unfiltered(args);
    let found = versions.find_all(app, &args.ids)?;
    let read_data = match (args.read_data, args.read_data_subset) {
        (true, _) => ReadData::All,
        (false, Some(part)) => part,
        (false, None) => ReadData::None,
    };
    if found.is_empty() && !is_everything {
        return Err(versions.nothing_fits());
    }
    let chosen = if is_everything { Vec::new() } else { found.iter().map(Version::id).collect() };
    let options = CheckOptions { read_data, versions: chosen, estimate: args.estimate };
    let shared = args.workers.filter(|_| !args.estimate).and_then(NonZeroU32::new);
    if args.workers.is_some() && read_data == ReadData::None {
        return Err(Failure::usage("--workers shares the reading of content: add --read-data")
            .advise("or --read-data-subset for a part of it"));
    }
    let mut meter = Meter::start(MeterKind::Check, &app.out);
    let context = app.context(opened.repository.clone(), meter.progress());
    let machine = machine::remembering(&app.global, &app.out, &opened.repository);
    let machine = if args.estimate { machine.only_looking() } else { machine };
    let context = JobContext { machine, ..context };
    let mut workers = None;
    let mut report = match shared {
        None => check(&context, &options)?,
        Some(workers_max) => {
            let of = SharedCheckOptions { workers: workers_max, claim: args.claim_timeout, poll: POLL };
            let mut shared = SharedCheck::new(of);
            let report = check_with(&context, &options, &mut shared);
            shared.tidy(&context);
            workers = Some(shared.report().clone());
            report?
        }
    };
    let opens_index = opened.repository.keys().secrets().index.is_some();
    let index = match is_everything && !args.no_index && opens_index {
        true => prove_index(app, &context, &mut report)?,
        false => IndexState::Skipped,
    };
    if let Some(problem) = opened.repository.config_problem() {
        let why = format!("{}; a copy in a key is used, and `larder repair config` restores it", config_words(problem));
        report.damages.push(Damage { object: names::CONFIG.to_owned(), why, affected: Vec::new() });
    }
    let rolled_back = match is_everything {
        true => find_roll_back(app, &context, args.accept_state, &report)?,
        false => Vec::new(),
    };
    add_unlisted(app, &mut report);
    meter.stop();
    let requests = opened.repository.store().stats();
    let is_whole = report.damages.is_empty() && index.disagreements() == 0 && rolled_back.is_empty();
    if args.estimate {
        estimate(app, &opened.repository, &report.planned, is_whole)?;
        return Ok(if is_whole { Exit::Done } else { Exit::Damage });
    }
    let ended = Ended {
        report: &report,
        index: &index,
        known: &found,
        read_data,
        meter: &meter,
        requests,
        rolled_back: &rolled_back,
        workers: workers.unwrap_or_default(),
        sees_all_domains: opened.repository.keys().is_for_all_domains(),
    };
    if app.out.is_json() {
        ended.print_json(&app.out)?
    } else {
        ended.print(&app.out)?
    }
    Ok(if is_whole { Exit::Done } else { Exit::Damage })
}

/// Shows what a check takes: what this one has taken, and the content.
fn estimate(app: &App, repository: &Repository, planned: &PlannedContent, is_whole: bool) -> Result<(), Failure> {
    let taken = repository.store().stats();
    let with = |containers: u64, bytes: u64| StoreStats {
        reads: taken.reads + containers,
        bytes_down: taken.bytes_down + bytes,
        ..taken
    };
    let PlannedContent { containers, bytes } = *planned;
    let (low, high) = (with(containers.0, bytes.0), with(containers.1, bytes.1));
    let estimate = Estimate {
        low,
        high,
        seconds: durations::expected(app, repository, &[durations::CHECK], [&low, &high]),
        is_exact: is_whole && containers.0 == containers.1 && bytes.0 == bytes.1,
        ..Estimate::exactly(taken)
    };
    estimate.show(&app.out, app.prices().as_ref())?;
    if !is_whole {
        app.out.warn("the structure is damaged; `larder check` without --estimate says how");
    }
    Ok(())
}

/// Compares the index with the stored objects.
fn prove_index(app: &App, context: &JobContext, report: &mut CheckReport) -> Result<IndexState, Failure> {
    match app.block_on(prove_after(context, report)) {
        Err(PassError::Interrupted) => Err(CheckError::Interrupted.into()),
        result => Ok(result?),
    }
}

/// Compares the repository with the memory of this machine. Gives what no other finding names.
fn find_roll_back(
    app: &App,
    context: &JobContext,
    is_accepted: bool,
    report: &CheckReport,
) -> Result<Vec<RolledBack>, Failure> {
    let mut found = app.block_on(rolled_back(context))?;
    if is_accepted {
        app.block_on(accept(context, &found))?;
        return Ok(Vec::new());
    }
    // The index may know of the same loss.
    found.retain(|lost| {
        let object = match lost {
            RolledBack::Version { version } => names::version(version.series, version.job, 0),
            RolledBack::Index { seen, .. } => names::index(seen.number),
            RolledBack::Closing { domain } => names::closed(*domain),
        };
        report.damages.iter().all(|damage| damage.object != object)
    });
    Ok(found)
}

fn index_json(index: &IndexState) -> Value {
    let IndexState::Compared(Proof { number, check }) = index else { return Value::Null };
    let problems: Vec<_> = check.disagreements.iter().map(ToString::to_string).collect();
    json!({
        "number": number,
        "snapshots": check.versions,
        "snapshots_not_in_index": check.not_ingested,
        "containers": check.containers,
        "chunks": check.chunks,
        "unlisted_containers": check.unlisted,
        "disagreements": check.count,
        "problems": problems,
    })
}

/// Adds objects that listings could not examine, unless they were reported already.
fn add_unlisted(app: &App, report: &mut CheckReport) {
    for error in app.unlisted.take() {
        if report.damages.iter().all(|damage| damage.object != error.name) {
            let why = error.source.as_ref().map_or_else(|| error.kind.to_string(), ToString::to_string);
            report.damages.push(Damage { object: error.name, why, affected: Vec::new() });
        }
    }
}

fn is_unfiltered(args: &CheckArgs) -> bool {
    let filter = &args.filter;
    filter.host.is_empty() && filter.tag.is_empty() && filter.path.is_empty() && filter.series.is_empty()
}

/// The report at the end.
struct Ended<'a> {
    report: &'a CheckReport,
    index: &'a IndexState,
    known: &'a [Version],
    read_data: ReadData,
    meter: &'a Meter,
    requests: StoreStats,
    rolled_back: &'a [RolledBack],
    workers: SharedCheckReport,
    /// Whether the key opens the snapshots of every domain.
    sees_all_domains: bool,
}

impl Ended<'_> {
    fn print_json(&self, out: &Output) -> Result<(), Failure> {
        for damage in &self.report.damages {
            out.item_error(&damage.object, "check", &damage.why);
        }
        out.json(&self.json())
    }

    fn json(&self) -> Map<String, Value> {
        let report = self.report;
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("message_type", json!("summary"));
        let errors = (report.damages.len() + self.rolled_back.len()) as u64 + self.index.disagreements();
        put("num_errors", json!(errors));
        put("rolled_back", self.rolled_back.iter().map(|lost| json!(lost.to_string())).collect());
        let containers = report.damages.iter().map(|damage| &damage.object);
        let containers: Vec<_> =
            containers.filter(|name| larder_format::names::parse_container(name).is_some()).collect();
        put("broken_packs", json!(containers));
        put("suggest_repair_index", json!(self.index.wants_rebuild()));
        put("suggest_prune", json!(false));
        put("versions", json!(report.versions));
        put("containers", json!(report.containers));
        put("containers_read", json!(report.containers_read));
        put("bytes_read", json!(report.bytes_read));
        put("workers", json!(self.workers.readers.len()));
        put("containers_read_by_workers", json!(self.workers.containers_of_others));
        put("worker_was_wrong", json!(self.workers.worker_was_wrong));
        put("unused_containers", json!(report.unused_containers));
        put("unused_bytes", json!(report.unused_bytes));
        put("cold_containers", json!(report.cold_containers));
        put("cold_bytes", json!(report.cold_bytes));
        put("total_duration", json!(self.meter.elapsed().as_secs_f64()));
        let forgotten: Vec<_> = report.forgotten.iter().map(ToString::to_string).collect();
        put("forgotten", json!(forgotten));
        put("index", index_json(self.index));
        put("damages", json!(report.damages.iter().map(damage_json).collect::<Vec<_>>()));
        summary::put_requests(&mut object, &self.requests);
        object
    }

    fn print(&self, out: &Output) -> Result<(), Failure> {
        out.keep_summary(|| Value::Object(self.json()));
        let report = self.report;
        for damage in &report.damages {
            self.print_damage(out, damage)?;
        }
        for lost in self.rolled_back {
            out.line(format!("ROLLED BACK  {lost}"))?;
        }
        let versions = sizes::count(report.versions, "snapshot");
        let containers = sizes::count(report.containers, "container");
        let duration = time::show_duration(self.meter.elapsed());
        out.info(format!("checked {versions}, {containers} in {duration}"))?;
        if self.read_data != ReadData::None {
            let (read, bytes) = (sizes::count(report.containers_read, "container"), sizes::show(report.bytes_read));
            out.info(format!("read and verified {read}, {bytes}"))?;
            if self.workers.ranges_of_others > 0 {
                let (workers, containers) = (self.workers.readers.len() as u64, self.workers.containers_of_others);
                let containers = sizes::count(containers, "container");
                out.info(format!("{} read {containers} of them", sizes::count(workers, "worker")))?;
            }
            if self.workers.worker_was_wrong {
                out.info("a worker was wrong about a container, so this process read everything itself")?;
            }
        }
        if report.cold_containers > 0 {
            let containers = sizes::count(report.cold_containers, "container");
            let bytes = sizes::show(report.cold_bytes);
            out.remark(&format!(
                "note: {containers} ({bytes}) in cold storage could not be verified. This is not damage."
            ));
        }
        for id in &report.forgotten {
            out.info(format!("snapshot {} was forgotten during the check. This is not damage.", id.short()))?;
        }
        if report.unused_containers > 0 {
            let containers = sizes::count(report.unused_containers, "container");
            let bytes = sizes::show(report.unused_bytes);
            let (are, belong) = if report.unused_containers == 1 { ("is", "belongs") } else { ("are", "belong") };
            out.info(if self.sees_all_domains {
                format!(
                    "{containers} ({bytes}) {are} not referenced by any snapshot; passes delete what is old enough. This is not damage."
                )
            } else {
                format!(
                    "{containers} ({bytes}) {belong} to other domains or {are} not referenced by any snapshot; this key cannot tell which. This is not damage."
                )
            })?;
        }
        self.print_index(out)?;
        let disagreements = self.index.disagreements();
        if report.damages.is_empty() && disagreements == 0 && self.rolled_back.is_empty() {
            let depth = if self.read_data == ReadData::None { "the structure is whole" } else { "no damage was found" };
            return out.info(depth);
        }
        let damages = sizes::count(report.damages.len() as u64, "damaged or missing object");
        let disagreements = sizes::count(disagreements, "disagreement") + " with the index";
        let found = match (report.damages.is_empty(), self.index.disagreements() == 0) {
            (false, false) => format!("{damages} and {disagreements}"),
            (false, true) => damages,
            (true, false) => disagreements,
            (true, true) => "an earlier state of the repository".to_owned(),
        };
        out.line(format!("{found} found. What to do:"))?;
        self.advice().iter().enumerate().try_for_each(|(number, text)| out.line(format!("  {}. {text}", number + 1)))
    }

    fn print_index(&self, out: &Output) -> Result<(), Failure> {
        let IndexState::Compared(Proof { number, check }) = self.index else { return Ok(()) };
        for disagreement in check.disagreements.iter().take(DISAGREEMENTS_SHOWN) {
            out.line(format!("INDEX    {}", safe(&disagreement.to_string())))?;
        }
        match check.count.saturating_sub(DISAGREEMENTS_SHOWN as u64) {
            0 => {}
            more => out.line(format!("INDEX    and {more} more"))?,
        }
        if *number > 0 && check.count == 0 {
            let [versions, containers, chunks] =
                [(check.versions, "snapshot"), (check.containers, "container"), (check.chunks, "chunk")]
                    .map(|(count, what)| sizes::count(count, what));
            out.info(format!("index {number} agrees with {versions}, {containers}, {chunks}"))?;
            if check.unlisted > 0 {
                let unlisted = sizes::count(check.unlisted, "container");
                out.info(format!(
                    "{unlisted} could not be read when a pass first saw them: the next pass will add their chunks to it"
                ))?;
            }
            if check.not_ingested > 0 {
                let behind = sizes::count(check.not_ingested, "snapshot");
                out.info(format!("the next pass (`larder optimize`) will add {behind} to it"))?;
            }
        }
        Ok(())
    }

    /// Remedies, in the order in which to try them.
    fn advice(&self) -> Vec<&'static str> {
        let damages = &self.report.damages;
        let mut advice = Vec::new();
        if damages.iter().any(|damage| !damage.affected.is_empty()) {
            advice.extend(ADVICE_DAMAGE);
            advice.extend(if self.read_data == ReadData::None { ADVICE_REPAIR } else { ADVICE_REPAIR_READING });
            advice.push(ADVICE_ANOTHER_SERIES);
        }
        if damages.iter().any(|damage| !damage.affected.is_empty() && damage.object.starts_with(names::VERSIONS)) {
            advice.push(ADVICE_MANIFEST);
        }
        // Objects that no snapshot needs.
        let harmless =
            |prefix: &str| damages.iter().any(|damage| damage.affected.is_empty() && damage.object.starts_with(prefix));
        if harmless(names::DATA) || harmless(names::META) {
            advice.push(ADVICE_CONTAINER);
        }
        if harmless(names::KEYS) {
            advice.push(ADVICE_KEY);
        }
        if harmless(names::PINS) {
            advice.push(ADVICE_PIN);
        }
        if harmless(names::SETTINGS) {
            advice.push(ADVICE_SETTINGS);
        }
        if [names::JOBS, names::VERSIONS, names::FORGOTTEN].into_iter().any(harmless) {
            advice.push(ADVICE_HARMLESS);
        }
        if self.index.wants_rebuild() {
            advice.push(ADVICE_INDEX);
        }
        if !self.rolled_back.is_empty() {
            advice.extend(ADVICE_ROLLED_BACK);
        }
        advice
    }

    fn print_damage(&self, out: &Output, damage: &Damage) -> Result<(), Failure> {
        out.line(format!("DAMAGED  {}: {}", safe(&damage.object), safe(&damage.why)))?;
        if damage.affected.is_empty() {
            let is_container = names::parse_container(&damage.object).is_some();
            out.line(if is_container {
                "  no snapshot needs what is damaged of it"
            } else {
                "  no snapshot needs it"
            })?;
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

/// Advice on what this machine remembers.
const ADVICE_ROLLED_BACK: [&str; 2] = [
    "The storage may show an earlier state of the repository. Look at the location first, and whether it is an old copy. Do not run passes elsewhere.",
    "If the repository was put back on purpose, or another machine collected the snapshot, `larder check --accept-state` makes this machine forget it.",
];

/// Remedies for damage to snapshots, in the order in which to try them.
const ADVICE_DAMAGE: [&str; 2] = [
    "Everything not named above is whole and can be restored: `larder restore` skips damaged parts and names the files.",
    "If the storage keeps old versions or replicas of its objects, put the named objects back as they were and check again.",
];

/// The repairs of snapshots.
const ADVICE_REPAIR: [&str; 2] = [
    "Where the files still exist, `larder repair --from PATH` puts their contents back into the snapshots that lost them.",
    "`larder repair snapshots` saves what is left of damaged snapshots as new ones.",
];

/// The same for damage that only a look at the data may show.
const ADVICE_REPAIR_READING: [&str; 2] = [
    "Where the files still exist, `larder repair --from PATH --read-data` puts their contents back into the snapshots that lost them.",
    "`larder repair snapshots --read-data` saves what is left of damaged snapshots as new ones.",
];

/// The last remedy.
const ADVICE_ANOTHER_SERIES: &str = "Back up the damaged files under a new --series with --no-similar, while they still exist: that shares nothing with what is damaged.";

/// Advice on lost manifests.
const ADVICE_MANIFEST: &str = "Without its manifest nothing is left of a snapshot. `larder forget ID` removes it, or `larder repair index` where the manifest is missing. Until then passes may refuse to delete.";

/// Advice on containers with only other parts needed.
const ADVICE_CONTAINER: &str = "Leave the containers where they are: what snapshots need of them is whole. A pass deletes them when no snapshot uses them.";

/// Advice on objects that are no keys.
const ADVICE_KEY: &str = "`larder key remove ID` removes what is no key.";

/// Advice on pins.
const ADVICE_PIN: &str =
    "`larder pin ID` or `larder unpin ID` replaces it. Until then the snapshot cannot be forgotten.";

/// Advice on settings.
const ADVICE_SETTINGS: &str = "`larder series show SERIES` (or --default) shows what holds without the settings that cannot be read, `larder series set` replaces them.";

/// Advice on leases, marks and generations that nothing needs.
const ADVICE_HARMLESS: &str = "Objects that no snapshot needs may keep passes (`larder optimize`) from deleting; when no backup or restore is running, remove them by hand.";

/// Advice on an index that is wrong or cannot be read.
const ADVICE_INDEX: &str =
    "`larder repair index` rebuilds the index from snapshots and containers. Backups and restores work without it.";

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

//! `larder backup`: chooses the input and the name of the series; the work is
//! `larder_lnode::backup`.

mod expected;
pub(super) mod image;
mod input;
mod naming;
mod scan;

use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_format::manifest::Statistics;
use larder_format::names;
use larder_format::roles::Roles;
use larder_gnode::retention::GroupBy;
use larder_job::{Clock, JobContext, SystemClock};
use larder_lnode::{BackupOptions, BackupReport, Base, Input, MapOutcome, WhyBase, backup};
use larder_source::Walk;
use larder_store::{Repository, StoreStats};
use serde_json::{Value, json};

use self::image::Wanted;
use self::input::Source;
pub(super) use self::input::check;
pub(super) use self::naming::default_series;
use self::scan::Scan;
use crate::app::App;
use crate::args::{BackupArgs, FilterArgs};
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machine;
use crate::output::{Meter, MeterKind, Output, safe, summary};
use crate::refs::{self, Versions};
use crate::small_process::{self, Peak};
use crate::{allocator, sizes, time};

pub(super) fn run(app: &App, args: &BackupArgs) -> Result<Exit, Failure> {
    input::check(args)?;
    refs::new_tags(&args.tag)?;
    let host = args.host.clone().unwrap_or_else(environment::host);
    // The repository is opened first, so that a wrong password fails before a dump of a database.
    let opened = app.open()?;
    if app.global.total_memory.is_some() {
        small_process::page_out();
    }
    opened.repository.require(Roles::BACKUP, "a backup")?;
    if args.paranoid {
        opened.repository.require(Roles::RESTORE, "--paranoid, which reads contents,")?;
    }
    if let Some(wanted) = Wanted::of(&args.image)? {
        return image::run(app, &opened.repository, args, host, &wanted);
    }
    let layout_of = |series: &String| super::series::expect_layout(app, &opened.repository, series, args.layout);
    // Inputs that can be refused by name alone are too.
    let layout = args.series.as_ref().map(layout_of).transpose()?;
    let Source { input, paths, default_name, scan } = input::open(app, args)?;
    let by_group = || {
        let by = args.group_by.unwrap_or(GroupBy { series: false, host: true, paths: true, tags: false });
        let tags: Vec<String> = args.tag.iter().flat_map(|tags| refs::split_tags(tags)).collect();
        naming::series_of_group(by, &host, &default_name, &tags)
    };
    let series = args.series.clone().unwrap_or_else(by_group);
    let layout = layout.map_or_else(|| layout_of(&series), Ok)?;
    let options = options(app, &opened.repository, args, host, series, paths, layout)?;
    if args.estimate {
        return expected::run(app, &opened.repository, input, &options);
    }
    let performed = perform(app, &opened.repository, input, scan, options)?;
    performed.tell(app, serde_json::Map::new())?;
    let report = &performed.report;
    let has_predecessor =
        report.bases.iter().any(|base| matches!(base.why, WhyBase::Newest | WhyBase::Own | WhyBase::Before));
    let is_stream = args.stdin || args.stdin_from_command;
    if has_predecessor && naming::is_unnamed(args) && naming::is_nearly_new(&report.statistics, is_stream) {
        let what = if is_stream { "streams without a name" } else { "lists from standard input" };
        app.out.warn(&format!(
            "this has little in common with the snapshot before it: all {what} share the series {}, and `forget` treats \
             them as one; name it with --series",
            safe(&performed.options.series)
        ));
    }
    if args.stdin && report.statistics.logical_bytes == 0 {
        app.out.warn("standard input was empty");
    }
    Ok(performed.exit())
}

/// Refuses names that a series cannot have.
pub(super) fn expect_series_name(series: &str) -> Result<(), Failure> {
    if series.is_empty() {
        return Err(Failure::usage("a series needs a name"));
    }
    if series.starts_with(larder_fleet::inventory::RESERVED) {
        let reserved = larder_fleet::inventory::RESERVED;
        return Err(Failure::usage(format!("series that begin with {reserved} belong to the program")));
    }
    Ok(())
}

/// The options of a backup.
fn options(
    app: &App,
    repository: &Repository,
    args: &BackupArgs,
    host: String,
    series: String,
    paths: Vec<Vec<u8>>,
    layout: Option<Layout>,
) -> Result<BackupOptions, Failure> {
    expect_series_name(&series)?;
    let options = BackupOptions {
        host,
        user: environment::user(),
        tags: refs::new_tags(&args.tag)?,
        paths,
        time_ms: args.time,
        program: format!("larder {}", env!("CARGO_PKG_VERSION")),
        compression: app.compression(),
        force: args.force,
        paranoid: args.paranoid,
        dry_run: args.dry_run,
        skip_if_unchanged: args.skip_if_unchanged,
        ignore_ctime: args.ignore_ctime,
        ignore_inode: args.ignore_inode,
        base: parent(app, repository, args)?,
        trust_newest: args.trust_newest,
        merge_after: args.merge_after.0,
        find_similar: !args.no_similar,
        layout: layout.unwrap_or_default(),
        layout_of_settings: layout.is_none(),
        index_memory: app.global.memory() / 2,
        scratch: app.scratch(),
        ..BackupOptions::new(series)
    };
    // A small process keeps no such buffers anyway.
    let with_base = app.global.total_memory.is_none().then_some(allocator::return_containers as fn());
    let (write, read) = small_process::budgets(app);
    Ok(BackupOptions { write, read, with_base, ..options })
}

/// Runs a backup with a meter. `scan`: the same tree once more, for totals.
pub(super) fn perform(
    app: &App,
    repository: &Repository,
    input: Input,
    scan: Option<Walk>,
    options: BackupOptions,
) -> Result<Performed, Failure> {
    let started_ms = SystemClock.now_ms();
    let mut meter = Meter::start(MeterKind::Backup, &app.out);
    let context = app.context(repository.clone(), meter.progress());
    let context = JobContext { machine: machine::witness(&app.global, &app.out, repository), ..context };
    let scan = scan.map(|walk| Scan::start(walk, meter.progress()));
    let result = backup(&context, input, &options);
    drop(scan);
    meter.stop();
    let report = result.map_err(|error| {
        // A source that fails because it was stopped is an interruption.
        let failure = Failure::from(error);
        if context.cancel.is_cancelled() { Failure { exit: Exit::Interrupted, ..failure } } else { failure }
    })?;
    Ok(Performed {
        errors: report.statistics.errors.max(meter.errors()),
        options,
        report,
        started_ms,
        seconds: meter.elapsed().as_secs_f64(),
        requests: repository.store().stats(),
        peak: app.global.total_memory.and_then(Peak::of),
    })
}

/// The version to compare with, if one was named.
fn parent(app: &App, repository: &Repository, args: &BackupArgs) -> Result<Option<JobId>, Failure> {
    let Some(given) = &args.parent else { return Ok(None) };
    let reference = refs::parse(given)?;
    if reference.path.is_some() {
        return Err(Failure::usage("--parent names a snapshot, without a path"));
    }
    let versions = Versions::load_named(app, repository, &FilterArgs::default(), &[&reference.snapshot])?;
    versions.find(app, &reference.snapshot).map(|version| Some(version.id()))
}

/// A backup that has ended, and its report.
pub(super) struct Performed {
    options: BackupOptions,
    pub(super) report: BackupReport,
    errors: u64,
    started_ms: u64,
    seconds: f64,
    requests: StoreStats,
    /// With `--total-memory`, what the process took.
    peak: Option<Peak>,
}

impl Performed {
    /// Prints the report. `more` are further keys of its JSON.
    pub(super) fn tell(&self, app: &App, more: serde_json::Map<String, Value>) -> Result<(), Failure> {
        if let Some(warning) = self.peak.as_ref().and_then(Peak::warning) {
            app.out.warn(&warning);
        }
        if app.out.is_json() {
            return app.out.json(&self.json(more));
        }
        app.out.keep_summary(|| self.json(more));
        self.print(&app.out)
    }

    /// The exit code of the command.
    pub(super) fn exit(&self) -> Exit {
        match () {
            () if !self.report.missing.is_empty() || self.report.may_miss_more => Exit::Damage,
            () if self.errors > 0 || self.wrong_at().is_some() => Exit::Partly,
            () => Exit::Done,
        }
    }

    /// Where a map of changes was wrong.
    fn wrong_at(&self) -> Option<u64> {
        self.report.map.as_ref().and_then(|map| match map.outcome {
            MapOutcome::Wrong { offset } => Some(offset),
            MapOutcome::Used | MapOutcome::Unusable(_) => None,
        })
    }

    fn json(&self, more: serde_json::Map<String, Value>) -> Value {
        let mut object = summary::statistics(&self.report.statistics);
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("message_type", json!("summary"));
        put("series", json!(self.options.series));
        put("backup_start", json!(time::rfc3339(self.started_ms)));
        put("backup_end", json!(time::rfc3339(SystemClock.now_ms())));
        put("total_duration", json!(self.seconds));
        put("dry_run", json!(self.options.dry_run));
        put("error_count", json!(self.errors));
        if let Some(version) = &self.report.version {
            put("snapshot_id", json!(version.id.to_string()));
        }
        if let Some(base) = self.report.bases.first() {
            put("parent", json!(base.id.to_string()));
        }
        let why = |base: &Base| match base.why {
            WhyBase::Asked => "asked",
            WhyBase::Newest => "newest",
            WhyBase::Own => "own",
            WhyBase::Before => "before",
            WhyBase::Similar => "similar",
        };
        let base = |base: &Base| json!({ "id": base.id.to_string(), "series": base.series, "why": why(base) });
        put("bases", self.report.bases.iter().map(base).collect());
        let adopted: Vec<_> = self.report.adopted.iter().map(ToString::to_string).collect();
        put("adopted_jobs", json!(adopted));
        let missing: Vec<_> = self.report.missing.iter().map(|id| names::container(*id)).collect();
        put("missing_objects", json!(missing));
        put("index_unreadable", json!(self.report.may_miss_more));
        if let Some(map) = &self.report.map {
            let (name, problem) = match &map.outcome {
                MapOutcome::Used => ("used", None),
                MapOutcome::Unusable(why) => ("unusable", Some(*why)),
                MapOutcome::Wrong { .. } => ("wrong", None),
            };
            put("map", json!(name));
            put("map_checked_bytes", json!(map.checked_bytes));
            problem.into_iter().for_each(|problem| put("map_problem", json!(problem)));
            self.wrong_at().into_iter().for_each(|offset| put("map_wrong_at", json!(offset)));
        }
        if let Some(peak) = &self.peak {
            put("memory_bytes", json!(peak.bytes));
        }
        summary::put_requests(&mut object, &self.requests);
        object.extend(more);
        Value::Object(object)
    }

    fn compared_with(&self) -> String {
        let similar = |base: &Base| format!("{} ({})", safe(&base.series), base.id.short());
        match &*self.report.bases {
            [] => "first snapshot".to_owned(),
            [base, ..] if base.why != WhyBase::Similar => format!("compared with {}", base.id.short()),
            bases => format!("similar to {}", bases.iter().map(similar).collect::<Vec<_>>().join(", ")),
        }
    }

    fn print(&self, out: &Output) -> Result<(), Failure> {
        let Statistics {
            files_new,
            files_changed,
            files_unmodified,
            dirs_new,
            dirs_changed,
            dirs_unmodified,
            others,
            ..
        } = &self.report.statistics;
        let statistics = &self.report.statistics;
        out.info(format!("series {}, {}", safe(&self.options.series), self.compared_with()))?;
        if !self.report.adopted.is_empty() {
            out.info("uploads of an interrupted run were reused")?;
        }
        out.info(format!("Files:  {files_new:>9} new, {files_changed:>9} changed, {files_unmodified:>9} unmodified"))?;
        out.info(format!("Dirs:   {dirs_new:>9} new, {dirs_changed:>9} changed, {dirs_unmodified:>9} unmodified"))?;
        if *others > 0 {
            let kinds = if *others == 1 { "link, device or FIFO" } else { "links, devices, FIFOs" };
            out.info(format!("Others: {others:>9} {kinds}"))?;
        }
        let (added, stored) = (sizes::show(statistics.added_bytes), sizes::show(statistics.stored_bytes));
        out.info(match self.options.dry_run {
            true => format!("Would add to the repository: {added}, before compression"),
            false => format!("Added to the repository: {added} ({stored} stored)"),
        })?;
        if let Some(permille) = statistics.skip_permille.filter(|permille| *permille > 0) {
            let share = sizes::percent_of_thousand(permille);
            out.info(format!("{share} of what the newest snapshot does not have is in the one before it"))?;
        }
        let files = sizes::count(summary::files(statistics), "file");
        let duration = time::show_duration(std::time::Duration::from_secs_f64(self.seconds.max(0.0)));
        out.info(format!("processed {files}, {} in {duration}", sizes::show(statistics.logical_bytes)))?;
        match &self.report.version {
            Some(version) => out.info(format!("snapshot {} saved", version.id.short()))?,
            None if self.options.dry_run => out.info("dry run: no snapshot was made")?,
            None => out.info("nothing changed: no snapshot was made")?,
        }
        if let Some(first) = self.report.missing.first() {
            let what = match self.report.missing.len() - 1 {
                0 => "is missing or damaged",
                1 => "and 1 other object are missing or damaged",
                count => &format!("and {count} other objects are missing or damaged"),
            };
            let stored = if self.options.dry_run { "would be" } else { "was" };
            out.warn(&format!(
                "{} {what}; earlier snapshots need them. Their data {stored} stored again for this snapshot",
                names::container(*first)
            ));
            out.warn("`larder check` lists the damaged snapshots, and `larder help repair` the ways to repair them");
        }
        if self.report.may_miss_more {
            out.warn(
                "the index cannot be read, so this snapshot may share data that is missing: run `larder repair index`, then `larder check`",
            );
        }
        if let Some(offset) = self.wrong_at() {
            out.warn(&format!(
                "the map of changes is wrong: data at byte {offset} or behind it changed without being in the map. The whole image was read, so this snapshot is right"
            ));
            out.warn("earlier snapshots that were made with such maps may have old data there");
        }
        if self.errors > 0 {
            let problems = sizes::count(self.errors, "item");
            out.warn(&format!("{problems} could not be read, or changed while being read: see the messages above"));
        }
        Ok(())
    }
}

//! `larder restore`: chooses the snapshot and the target; the work is `larder_lnode::restore`.

mod thaw;

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_format::manifest::Manifest;
use larder_format::roles::Roles;
use larder_job::{JobContext, NoProgress};
use larder_lnode::restore::Selection;
use larder_lnode::{DeleteRefusal, RestoreError, RestoreOptions, RestoreReport, restore_reading};
use larder_reader::Reading;
use larder_source::target::{FullDirectories, Omit, Overwrite, OwnerMode, Target, TargetError, TargetOptions};
use larder_source::{PathMatcher, PathText, Verdict};
use larder_store::catalog::Version;
use larder_store::{Location, StoreStats};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::{Global, OverwriteName, RestoreArgs};
use crate::durations;
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Estimate, Meter, MeterKind, Output, absolute, summary};
use crate::patterns::{self, Patterns};
use crate::refs::{self, Versions};
use crate::{sizes, time};

pub(super) fn run(app: &App, args: &RestoreArgs) -> Result<Exit, Failure> {
    let reference = refs::parse(&args.snapshot)?;
    let selection = Wanted::new(args, reference.path.clone())?;
    let opened = app.open()?;
    opened.repository.require(Roles::RESTORE, "a restore")?;
    let versions = Versions::load_named(app, &opened.repository, &args.filter, &[&reference.snapshot])?;
    let version = versions.find(app, &reference.snapshot)?;
    let mut target_options = TargetOptions::default();
    target_options.overwrite = overwrite(args.overwrite);
    target_options.sparse = args.sparse;
    target_options.owners = owners(args);
    target_options.omit = omitted(args)?;
    target_options.dry_run = args.dry_run || args.estimate || args.plan;
    (target_options.protected, target_options.spared) = (repositories(app)?, own_folders(app));
    target_options.scratch = app.scratch();
    let options = RestoreOptions {
        subpath: reference.path.clone(),
        selection: selection.map(|wanted| Arc::new(wanted) as Arc<dyn Selection>),
        delete: args.delete,
        delete_incomplete: args.force,
        sync: args.sync,
        verify: args.verify && !args.dry_run,
        estimate: args.estimate,
        plan: args.plan,
        fetch: app.fetching(&args.fetch)?,
    };
    let of = format!("{} of {}", version.id().short(), time::show(version.summary.time_ms));
    if !args.estimate && !args.plan {
        app.out.info(format!("restoring {of} into {}", PathText(args.target.as_os_str().as_encoded_bytes())))?;
    }
    let mut meter = Meter::start_as(MeterKind::Restore, args.dry_run || args.plan, &app.out);
    let context = app.context(opened.repository.clone(), meter.progress());
    let begun = refs::begin(app, &context, version, &args.filter, &reference.snapshot);
    let (version, reading, manifest) = begun.inspect_err(|_| meter.stop())?;
    // Nothing is deleted for a snapshot with unread items, and that includes folders in the way.
    let deletes = args.delete && (args.force || manifest.summary.statistics.errors == 0);
    target_options.full_directories = if deletes { FullDirectories::Remove } else { FullDirectories::Keep };
    let target = match Target::open(&args.target, target_options.clone()) {
        Ok(target) => target,
        Err(error) => {
            meter.stop();
            reading.end();
            return Err(error.into());
        }
    };
    let restore = Restore { app, args, context: &context, reading: &reading, manifest: &manifest, options: &options };
    let result = match args.thaw {
        true => thaw::run(&restore, &target, target_options),
        false => restore.once(&target).map_err(Stopped::Restore),
    };
    reading.end();
    meter.stop();
    let result = result.map_err(|error| match error {
        Stopped::Thaw(failure) => failure,
        Stopped::Restore(RestoreError::NoSuchPath { path }) => {
            let message = format!("{} has no {}", refs::shown(&version.summary), absolute(&path));
            Failure::new(Exit::Failed, message)
                .advise("`larder ls` or `larder find` shows what it has; paths begin with /")
        }
        Stopped::Restore(RestoreError::Target(TargetError::Io { action, path, source })) => {
            TargetError::Io { action, path: in_full(&args.target, &path), source }.into()
        }
        Stopped::Restore(error) => error.into(),
    });
    let report = result?;
    if args.plan {
        let plan = thaw::Plan::read(app, &opened.repository, &report.needed)?;
        plan.show(&app.out, app.prices().as_ref(), args.thaw_days)?;
        return Ok(if report.damaged > 0 { Exit::Damage } else { Exit::Done });
    }
    if let Some(refusal) = report.delete_refused {
        app.out.warn(&refusal_words(refusal));
    }
    if args.estimate {
        let mut requests = opened.repository.store().stats();
        requests.reads += report.planned.requests;
        requests.sizes = requests.sizes.saturating_sub(report.planned.looks);
        requests.bytes_down += report.planned.bytes;
        let is_exact = !report.planned.is_about && report.errors == 0;
        let kinds = [durations::RESTORE, durations::DRILL];
        let seconds = durations::expected(app, &opened.repository, &kinds, [&requests; 2]);
        Estimate { is_exact, seconds, ..Estimate::exactly(requests) }.show(&app.out, app.prices().as_ref())?;
    }
    let ended = Ended {
        args,
        version: &version,
        target: &target,
        report: &report,
        meter: &meter,
        requests: opened.repository.store().stats(),
    };
    if args.estimate {
        // Shown above; damage that it met counts.
    } else if app.out.is_json() {
        app.out.json(&ended.json())?
    } else {
        ended.print(&app.out)?
    }
    Ok(ended.exit())
}

/// One restore, which may take several runs.
struct Restore<'a> {
    app: &'a App,
    args: &'a RestoreArgs,
    context: &'a JobContext,
    reading: &'a Reading,
    manifest: &'a Manifest,
    options: &'a RestoreOptions,
}

impl Restore<'_> {
    /// One run over everything. What is right already is not written again.
    fn once(&self, target: &Target) -> Result<RestoreReport, RestoreError> {
        restore_reading(self.context, self.reading, self.manifest.clone(), target, self.options)
    }

    /// A dry run that names the needed containers, and shows nothing.
    fn plan(&self, target: &Target) -> Result<RestoreReport, RestoreError> {
        let options = RestoreOptions { plan: true, delete: false, verify: false, ..self.options.clone() };
        let context = JobContext { progress: Arc::new(NoProgress), ..self.context.clone() };
        restore_reading(&context, self.reading, self.manifest.clone(), target, &options)
    }
}

/// The whole path of something below the target.
fn in_full(target: &Path, path: &[u8]) -> Vec<u8> {
    let target = std::path::absolute(target).unwrap_or_else(|_| target.to_owned());
    target.join(OsStr::from_bytes(path)).into_os_string().into_vec()
}

/// Why a restore ended early.
enum Stopped {
    Restore(RestoreError),
    Thaw(Failure),
}

/// The folders of the repository, and of the others of the configuration.
fn repositories(app: &App) -> Result<Vec<PathBuf>, Failure> {
    let configured = app.configured.config.iter().flat_map(|config| &config.repositories);
    let others = configured.filter_map(|repository| repository.location.value.parse().ok());
    let local = |location| if let Location::Local(path) = location { Some(path) } else { None };
    Ok(std::iter::once(app.location()?).chain(others).filter_map(local).collect())
}

/// The folders of the state and of the cache.
fn own_folders(app: &App) -> Vec<PathBuf> {
    // They are there also if this command does without them.
    let global = Global { no_state: false, no_cache: false, ..app.global.clone() };
    environment::state_dir(&global).into_iter().chain(environment::cache_dir(&global)).collect()
}

fn overwrite(name: OverwriteName) -> Overwrite {
    match name {
        OverwriteName::Always => Overwrite::Always,
        OverwriteName::IfChanged => Overwrite::IfChanged,
        OverwriteName::IfNewer => Overwrite::IfNewer,
        OverwriteName::Never => Overwrite::Never,
    }
}

fn owners(args: &RestoreArgs) -> OwnerMode {
    match (args.no_owner, args.numeric_owner) {
        (true, _) => OwnerMode::None,
        (false, true) => OwnerMode::ById,
        (false, false) => OwnerMode::ByName,
    }
}

/// The parts of the snapshot that the options leave out.
fn omitted(args: &RestoreArgs) -> Result<Omit, Failure> {
    let mut omit = Omit::default();
    omit.set_ids = args.no_setid;
    omit.devices = args.no_devices;
    omit.xattrs.include = patterns::of_names(&args.include_xattr)?;
    omit.xattrs.exclude = patterns::of_names(&args.exclude_xattr)?;
    Ok(omit)
}

/// The selection by patterns. They apply to paths below the root of the restore, as in restic: for
/// `SNAPSHOT:/home`, `/u` means `/home/u`.
struct Wanted {
    includes: Vec<PathMatcher>,
    excludes: Vec<PathMatcher>,
    top: Vec<u8>,
}

impl Wanted {
    fn new(args: &RestoreArgs, top: Option<Vec<u8>>) -> Result<Option<Self>, Failure> {
        let includes = Patterns {
            exact: &args.include,
            any_case: &args.iinclude,
            exact_files: &args.include_file,
            any_case_files: &args.iinclude_file,
        };
        let excludes = Patterns {
            exact: &args.exclude,
            any_case: &args.iexclude,
            exact_files: &args.exclude_file,
            any_case_files: &args.iexclude_file,
        };
        let wanted =
            Self { includes: includes.matchers()?, excludes: excludes.matchers()?, top: top.unwrap_or_default() };
        Ok((!wanted.includes.is_empty() || !wanted.excludes.is_empty()).then_some(wanted))
    }

    /// The path below the root of the restore; `None` for that root and paths above it.
    fn below<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        match self.top.as_slice() {
            b"" => Some(path),
            top => path.strip_prefix(top).and_then(|rest| rest.strip_prefix(b"/")),
        }
    }
}

impl Selection for Wanted {
    fn wants(&self, path: &[u8], is_directory: bool) -> bool {
        let Some(path) = self.below(path) else { return self.includes.is_empty() };
        let is_included = || self.includes.iter().any(|list| list.matches(path, is_directory) == Verdict::Match);
        (self.includes.is_empty() || is_included()) && !self.excludes.iter().any(|list| list.is_match(path))
    }

    fn may_want_below(&self, path: &[u8]) -> bool {
        let Some(path) = self.below(path) else { return true };
        let may_be_included = || self.includes.iter().any(|list| list.matches(path, true) != Verdict::No);
        (self.includes.is_empty() || may_be_included()) && !self.excludes.iter().any(|list| list.is_match(path))
    }
}

/// The message for items that the snapshot does not have.
const DELETED: &str = "deleted, because not in the snapshot";
const DELETES: &str = "would be deleted, because not in the snapshot";

/// Why `--delete` deletes nothing, and the way around it.
fn refusal_words(refusal: DeleteRefusal) -> String {
    match refusal {
        DeleteRefusal::Unread(count) => {
            let items = sizes::count(count, "item");
            format!(
                "nothing is deleted: the backup could not read {items}, which the snapshot lacks; --force deletes all the same"
            )
        }
        DeleteRefusal::Hidden => "nothing is deleted: damaged metadata hides what the snapshot has".to_owned(),
    }
}

/// The report at the end.
struct Ended<'a> {
    args: &'a RestoreArgs,
    version: &'a Version,
    target: &'a Target,
    report: &'a RestoreReport,
    meter: &'a Meter,
    requests: StoreStats,
}

impl Ended<'_> {
    fn errors(&self) -> u64 {
        self.report.errors.max(self.meter.errors())
    }

    /// Lost data of the repository, and differences found by verifying, count as damage. Other
    /// errors, lost metadata and a refusal to delete count as an incomplete restore.
    fn exit(&self) -> Exit {
        let is_lossy = self.target.notes().summary().iter().any(|note| note.kind.is_loss() && note.count > 0);
        if self.report.mismatches > 0 || self.report.damaged > 0 {
            Exit::Damage
        } else if self.errors() > 0 || is_lossy || self.report.cold_files > 0 || self.report.delete_refused.is_some() {
            Exit::Partly
        } else {
            Exit::Done
        }
    }

    fn json(&self) -> Value {
        let report = self.report;
        // The size of a part of a snapshot is known only at the end.
        let (files, bytes) = self.meter.totals();
        let total_files = files.max(report.files_restored + report.files_up_to_date + report.files_kept);
        let total_bytes = bytes.max(report.bytes_restored);
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("message_type", json!("summary"));
        put("snapshot_id", json!(self.version.id().to_string()));
        put("target", json!(self.args.target.to_string_lossy()));
        put("dry_run", json!(self.args.dry_run));
        put("seconds_elapsed", json!(self.meter.elapsed().as_secs()));
        put("total_duration", json!(self.meter.elapsed().as_secs_f64()));
        put("total_files", json!(total_files));
        put("total_bytes", json!(total_bytes));
        put("files_restored", json!(report.files_restored));
        put("files_skipped", json!(report.files_up_to_date + report.files_kept));
        put("files_up_to_date", json!(report.files_up_to_date));
        put("files_kept", json!(report.files_kept));
        put("others_restored", json!(report.others));
        put("files_deleted", json!(report.deleted));
        put("delete_refused", json!(report.delete_refused.is_some()));
        put("bytes_restored", json!(report.bytes_restored));
        put("error_count", json!(self.errors()));
        put("damaged", json!(report.damaged));
        put("verified", json!(self.args.verify && !self.args.dry_run && report.cold_files == 0));
        put("mismatches", json!(report.mismatches));
        put("cold_files", json!(report.cold_files));
        put("cold_containers", json!(report.cold.len()));
        let notes: Vec<_> = self
            .target
            .notes()
            .summary()
            .iter()
            .map(|note| {
                let examples: Vec<_> = note
                    .examples
                    .iter()
                    .map(|example| json!({"path": absolute(&example.path), "detail": example.detail}))
                    .collect();
                let (meaning, is_loss) = (note.kind.meaning(), note.kind.is_loss());
                json!({"count": note.count, "meaning": meaning, "is_loss": is_loss, "examples": examples})
            })
            .collect();
        put("notes", json!(notes));
        summary::put_fetched(&mut object, &report.fetched);
        summary::put_requests(&mut object, &self.requests);
        Value::Object(object)
    }

    fn print(&self, out: &Output) -> Result<(), Failure> {
        let report = self.report;
        let would = if self.args.dry_run { "would restore" } else { "restored" };
        out.info(format!(
            "{would} {} ({}) and {} in {}",
            sizes::count(report.files_restored, "file"),
            sizes::show(report.bytes_restored),
            sizes::count(report.others, "other item"),
            time::show_duration(self.meter.elapsed()),
        ))?;
        for (count, what) in [
            (report.files_up_to_date, "up to date already"),
            (report.files_kept, "kept as they were"),
            (report.deleted, if self.args.dry_run { DELETES } else { DELETED }),
        ] {
            if count > 0 {
                out.info(format!("{} {what}", sizes::count(count, "item")))?;
            }
        }
        let is_nothing = report.files_restored + report.others + report.files_up_to_date + report.files_kept == 0;
        if is_nothing && self.errors() == 0 && self.args.selects() {
            out.warn("nothing in the snapshot is included and not excluded; `larder find` says where things are");
        }
        if self.args.verify && report.mismatches == 0 && report.cold_files == 0 && !self.args.dry_run {
            out.info("read again and compared: everything is as in the snapshot")?;
        }
        if out.verbose() > 0 {
            out.info(summary::fetched(&report.fetched))?;
        }
        for note in self.target.notes().summary() {
            let example = note.examples.first().map(|example| {
                let detail = if example.detail.is_empty() { String::new() } else { format!(" ({})", example.detail) };
                format!(", for instance {}{detail}", absolute(&example.path))
            });
            let text =
                format!("{} {}{}", sizes::count(note.count, "item"), note.kind.meaning(), example.unwrap_or_default());
            if note.kind.is_loss() { out.warn(&text) } else { out.remark(&format!("note: {text}")) }
        }
        if report.mismatches > 0 {
            out.warn(&format!("read again and compared: {}", sizes::count(report.mismatches, "difference")));
        }
        if report.damaged > 0 {
            let damaged = sizes::count(report.damaged, "item");
            out.warn(&format!("{damaged} of the snapshot cannot be read any more; `larder check` says what to do"));
        }
        if report.cold_files > 0 {
            let (files, objects) = (report.cold_files, report.cold.len() as u64);
            let (files, objects) = (sizes::count(files, "file"), sizes::count(objects, "object"));
            let how = match self.args.thaw {
                true => "they were asked for; run the command again later",
                false => "`larder restore --thaw` asks for them and waits",
            };
            out.warn(&format!("{files} not restored, because {objects} in cold storage cannot be read: {how}"));
        }
        if self.errors() > 0 {
            out.warn(&format!("{} could not be restored: see the messages above", sizes::count(self.errors(), "item")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn wanted(options: &[&str], top: Option<&str>) -> Wanted {
        let line = ["larder", "restore", "latest", "--target", "x"].into_iter().chain(options.iter().copied());
        let cli = crate::args::Cli::try_parse_from(line).expect("a good command line");
        let crate::args::Command::Restore(args) = cli.command else { panic!("restore") };
        Wanted::new(&args, top.map(|top| top.as_bytes().to_vec())).expect("good").expect("patterns")
    }

    #[test]
    fn includes_and_excludes_combine() {
        let wanted = wanted(&["--include", "*.txt", "--exclude", "b.txt"], None);
        assert!(wanted.wants(b"x/a.txt", false));
        assert!(!wanted.wants(b"x/b.txt", false));
        assert!(!wanted.wants(b"x", true));
        assert!(wanted.may_want_below(b"x"));
    }

    #[test]
    fn anchored_patterns_are_about_the_restored_root() {
        let wanted = wanted(&["--include", "/u/docs"], Some("home"));
        assert!(wanted.wants(b"home/u/docs/a", false));
        assert!(!wanted.wants(b"home/home/u/docs", false));
        assert!(wanted.may_want_below(b"home") && wanted.may_want_below(b"home/u"));
        assert!(!wanted.may_want_below(b"home/v"));
    }
}

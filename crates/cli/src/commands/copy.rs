//! `larder copy`: shows what `larder_lnode::transfer` copies and `larder_gnode::mirror` forgets.

mod estimate;
mod report;
mod source;

use std::collections::HashSet;

use larder_format::ids::JobId;
use larder_format::lease::Pin;
use larder_format::mark::Forgotten;
use larder_format::roles::Roles;
use larder_gnode::first_seen::unconfirmed;
use larder_gnode::forget::create_decided;
use larder_gnode::mirror::{Kept, MirrorQuestion, Mirrored, mirror};
use larder_gnode::roll_back::rolled_back;
use larder_job::{Clock, JobContext, Machine, Progress, SystemClock};
use larder_lnode::transfer::selection::{Choice, Refusal, Selection, latest_of_series};
use larder_lnode::transfer::{CopyError, CopyOptions, copy};
use larder_reader::ReadError;
use larder_store::Repository;
use larder_store::catalog::Version;
use larder_store::forget_marks::OwnedVersion;

use crate::app::App;
use crate::args::{CopyArgs, FilterArgs};
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machine;
use crate::output::{Meter, MeterKind};
use crate::refs::{self, Versions, shown};
use estimate::{Taken, Work};

/// Refuses options that no run can have.
pub(super) fn check(args: &CopyArgs) -> Result<(), Failure> {
    match args.latest {
        Some(0) => Err(Failure::usage("--latest is at least 1")),
        _ => Ok(()),
    }
}

pub(super) fn run(app: &App, args: &CopyArgs) -> Result<Exit, Failure> {
    check(args)?;
    let other = source::source(app, args)?;
    let opened = app.open()?;
    opened.repository.require(Roles::BACKUP, "copying snapshots here")?;
    if args.delete {
        opened.repository.require(Roles::OPERATE, "--delete")?;
    }
    let machine = machine::witness(&app.global, &app.out, &opened.repository);
    expect_witness(app, &opened.repository, &machine, "each run would copy everything again")?;
    let from = other.open().map_err(|failure| failure.while_doing("the repository to copy from"))?.repository;
    from.require(Roles::RESTORE, "copying from a repository")?;
    if opened.repository.config().repository == from.config().repository {
        return Err(Failure::usage("both are the same repository, or one is a plain copy of the other")
            .advise("a plain copy is brought up to date with rsync, rclone or the tools of the storage"));
    }
    let (versions, _) = Versions::load_tagged(&other, &from, &args.filter)?;
    let unconfirmed = app.block_on(unconfirmed(&from, &versions.admitted, SystemClock.now_ms()))?;
    let (found, named) = chosen(&other, args, &versions, &unconfirmed)?;
    // A profile may copy from a repository before the first backup into it.
    if versions.has_none() {
        app.out.remark("note: the other repository has no snapshots");
    } else if found.is_empty() && !args.delete {
        return Err(versions.nothing_fits());
    }
    // With the tags that they were made with, which their witness covers.
    let here_versions = Versions::load(app, &opened.repository, &FilterArgs::default())?;
    let mut meter = Meter::start(MeterKind::Backup, &app.out);
    // Two repositories share the memory of one command.
    let context = app.context(opened.repository.clone(), meter.progress());
    let destination = JobContext { machine, memory: context.memory / 2, ..context };
    let reading = other.reading(from);
    let source = JobContext { memory: reading.memory / 2, cancel: destination.cancel.clone(), ..reading };
    let of_source = versions.all();
    let from = source.repository.config().repository;
    let of_here = here_versions.all().len() as u64;
    let selection = Selection::new(&destination, from, &of_source, here_versions.all(), &unconfirmed);
    let (source, destination) = (&source, &destination);
    let taken = Taken::of(source, destination);
    let (here, work) = (of_here, Work::default());
    let mut copying =
        Copying { app, args, other: &other, source, destination, selection, here, work, done: Done::default() };
    let result = copying.all(&found, &named, &taken, &*meter.progress());
    meter.stop();
    versions.warn_of_damage(&other);
    here_versions.warn_of_damage(app);
    // Objects of the source that could not be listed.
    let exit_of_source = other.final_exit(Exit::Done);
    let result = result.and_then(|()| match args.delete {
        true => copying.delete(&versions, exit_of_source),
        false => Ok(()),
    });
    if !(args.estimate && app.out.is_json()) {
        copying.tell(meter.elapsed())?;
    }
    copying.tell_failures();
    result?;
    if args.estimate {
        copying.show_estimate(&taken)?;
    }
    Ok(match copying.exit() {
        Exit::Done | Exit::Partly if exit_of_source != Exit::Done => exit_of_source,
        exit => exit,
    })
}

/// What is copied has to be found again: an operator signs it, or this machine recognises it.
pub(super) fn expect_witness(
    app: &App,
    repository: &Repository,
    machine: &Machine,
    else_: &str,
) -> Result<(), Failure> {
    if repository.keys().can_sign() {
        return Ok(());
    }
    if !machine.has_witness() {
        let why = format!("this key does not sign, and this machine remembers nothing: {else_}");
        return Err(Failure::new(Exit::Failed, why).advise("use --state with a folder that stays, or a key file"));
    }
    app.out.remark("note: this key does not sign, so policies will keep all copies that are older than a day");
    Ok(())
}

/// The snapshots that the command is about, and those of them that were named by id. The meaning of
/// `latest` depends on times and tags, which may be forged.
fn chosen(
    other: &App,
    args: &CopyArgs,
    versions: &Versions,
    unconfirmed: &HashSet<Pin>,
) -> Result<(Vec<Version>, HashSet<JobId>), Failure> {
    let mut found = versions.find_all(other, &args.ids)?;
    let by_id: Vec<String> = args.ids.iter().filter(|text| !text.starts_with("latest")).cloned().collect();
    let named = match by_id.as_slice() {
        [] => HashSet::new(),
        by_id => versions.find_all(other, by_id)?.iter().map(Version::id).collect(),
    };
    let counted: HashSet<JobId> = versions.all().iter().map(Version::id).collect();
    if let Some(refused) = found.iter().find(|version| !counted.contains(&version.id())) {
        return Err(Failure::new(
            Exit::Failed,
            format!("{} does not count, and is not copied", shown(&refused.summary)),
        ));
    }
    if let Some(count) = args.latest {
        found = latest_of_series(found, count, &versions.all(), unconfirmed);
    }
    Ok((found, named))
}

/// What the command did.
#[derive(Debug, Default)]
struct Done {
    copied: u64,
    copied_before: u64,
    came_from_here: u64,
    refused: Vec<(Version, Refusal)>,
    failures: Vec<(JobId, Failure)>,
    /// With `--dry-run`, those that would be forgotten.
    forgotten: Vec<JobId>,
    kept: Vec<(JobId, Kept)>,
}

/// The run of the command.
struct Copying<'a> {
    app: &'a App,
    args: &'a CopyArgs,
    other: &'a App,
    source: &'a JobContext,
    destination: &'a JobContext,
    selection: Selection<'a>,
    /// Versions of this repository.
    here: u64,
    /// Of an estimate: what the copies take at most.
    work: Work,
    done: Done,
}

impl Copying<'_> {
    fn all(
        &mut self,
        found: &[Version],
        named: &HashSet<JobId>,
        taken: &Taken,
        progress: &dyn Progress,
    ) -> Result<(), Failure> {
        let choices = self.selection.choose(found, |version| named.contains(&version.id()), self.args.mix_series);
        let mut wanted = Vec::new();
        for (version, choice) in choices {
            match choice {
                Choice::Copy => wanted.push(version),
                Choice::CopiedBefore(_) => self.done.copied_before += 1,
                Choice::CameFromHere => self.done.came_from_here += 1,
                Choice::Refused(refusal) => self.done.refused.push((version, refusal)),
            }
        }
        for version in &wanted {
            let statistics = &version.summary.statistics;
            progress.expect(files_of(version), statistics.logical_bytes);
        }
        progress.expectation_is_complete();
        for version in wanted {
            if self.args.estimate {
                self.done.copied += 1;
                self.add_work(&version, taken)?;
                continue;
            }
            if self.args.dry_run {
                self.done.copied += 1;
                self.tell_planned(&version)?;
                continue;
            }
            match self.one(&version) {
                Ok(()) => {}
                // The others may be whole.
                Err(failure) if failure.exit == Exit::Damage => {
                    let id = version.id();
                    let failure = failure.while_doing(&format!("snapshot {} was not copied", id.short()));
                    self.done.failures.push((id, failure));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    fn one(&mut self, version: &Version) -> Result<(), Failure> {
        let options = CopyOptions {
            program: format!("larder {}", env!("CARGO_PKG_VERSION")),
            compression: self.app.compression(),
            layout: self.args.layout,
            index_memory: self.app.global.memory() / 4,
            scratch: self.app.scratch(),
        };
        let (started, started_ms) = (std::time::Instant::now(), SystemClock.now_ms());
        let before = self.selection.base_of(version);
        let report = match copy(self.source, version, self.destination, before.as_ref(), &options) {
            Ok(report) => report,
            Err(CopyError::Read(error @ ReadError::Forgotten { .. })) => {
                self.app.out.remark(&format!("note: {error}"));
                return Ok(());
            }
            Err(error) => {
                let failure = Failure::from(error);
                let is_interrupted = self.destination.cancel.is_cancelled();
                return Err(if is_interrupted { Failure { exit: Exit::Interrupted, ..failure } } else { failure });
            }
        };
        self.done.copied += 1;
        self.tell_one(version, &report, started_ms, started.elapsed())?;
        if let Some(summary) = report.version {
            let series = self.destination.repository.keys().series_key(&summary.series);
            self.selection.add(Version { summary, series, generation: 0, made_ms: 0, manifest_bytes: 0 });
        }
        Ok(())
    }

    /// Forgets copies of snapshots that the other repository does not have any more.
    fn delete(&mut self, versions: &Versions, exit_of_source: Exit) -> Result<(), Failure> {
        let stopped = |exit, why: &str| Err(Failure::new(exit, format!("{why}; --delete forgot nothing")));
        if !self.done.failures.is_empty() || !self.done.refused.is_empty() {
            self.app.out.warn("some snapshots were not copied, so --delete forgot nothing");
            return Ok(());
        }
        if exit_of_source != Exit::Done || versions.has_unreadable() {
            return stopped(Exit::Damage, "snapshots of the repository to copy from cannot be read");
        }
        let machine = machine::remembering(&self.other.global, &self.app.out, &self.source.repository);
        let remembering = JobContext { machine, ..self.source.clone() };
        if let Some(lost) = self.app.block_on(rolled_back(&remembering))?.first() {
            return stopped(Exit::Damage, &format!("the repository to copy from is older than it was: {lost}"));
        }
        // A later listing may know more, and has the tags that repairs gave and nobody can take.
        let any = FilterArgs::default();
        let again = Versions::load(self.other, &self.source.repository, &any)?;
        if again.has_unreadable() || self.other.final_exit(Exit::Done) != Exit::Done {
            return stopped(Exit::Damage, "snapshots of the repository to copy from cannot be read");
        }
        let there = [again.all_and_refused(), versions.all_and_refused()].concat();
        // A repository that lost everything, or hides it, is no reason to lose the copies too.
        if there.is_empty() {
            return stopped(Exit::Failed, "the repository to copy from has no snapshots");
        }
        let repository = &self.destination.repository;
        let lines = self.app.block_on(repository.pin_lines())?;
        let question = MirrorQuestion {
            source: &self.source.repository,
            versions: &there,
            copies: self.selection.copies(),
            lines: &lines,
            filter: &refs::filter(&self.args.filter)?,
        };
        let mirrored = self.app.block_on(mirror(&question))?;
        if mirrored.is_unreliable() {
            return stopped(Exit::Damage, "a listing of the repository to copy from lacked snapshots that are there");
        }
        let Mirrored { gone, kept } = mirrored;
        self.done.kept = kept;
        if self.args.dry_run || self.args.estimate {
            self.done.forgotten = gone.iter().map(Version::id).collect();
            return Ok(());
        }
        self.forget(repository, &gone);
        Ok(())
    }

    fn forget(&mut self, repository: &Repository, gone: &[Version]) {
        let mark = Forgotten {
            time_ms: SystemClock.now_ms(),
            host: environment::host(),
            reason: format!("{}: its original was forgotten", environment::user()),
        };
        let owned: Vec<OwnedVersion> = gone.iter().map(OwnedVersion::from).collect();
        // One that got other tags since the decision stays.
        let decided = gone.iter().map(|copy| (copy.into(), mark.clone(), Some(copy.summary.tags.clone()))).collect();
        let forgot = self.app.block_on(create_decided(repository, decided));
        let done = owned.iter().map(|owned| owned.version).filter(|version| forgot.done.contains(&version.job));
        self.destination.machine.forget_versions(done);
        self.done.forgotten = forgot.done;
        for (id, error) in forgot.failed {
            let failure = Failure::from(error).while_doing(&format!("snapshot {} was not forgotten", id.short()));
            self.done.failures.push((id, failure));
        }
    }

    fn exit(&self) -> Exit {
        let Done { failures, refused, .. } = &self.done;
        match () {
            () if failures.iter().any(|(_, failure)| failure.exit == Exit::Damage) => Exit::Damage,
            () if failures.is_empty() && refused.is_empty() => Exit::Done,
            () => Exit::Partly,
        }
    }
}

/// Files of a snapshot, with all names of hard links.
fn files_of(version: &Version) -> u64 {
    let statistics = &version.summary.statistics;
    statistics.files_new + statistics.files_changed + statistics.files_unmodified
}

//! `larder rewrite`: the work is `larder_rewrite::change`.

use std::collections::HashSet;

use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_format::lease::Pin;
use larder_format::mark::Forgotten;
use larder_format::roles::Roles;
use larder_gnode::first_seen::unconfirmed;
use larder_gnode::forget::{Replaced, Replacement, pin_of, replace};
use larder_job::JobContext;
use larder_rewrite::change::{ChangeOptions, ChangeOutcome, ChangedVersion, LeftOut, change, stands};
use larder_rewrite::repair::RepairError;
use larder_source::Excludes;
use larder_store::Repository;
use larder_store::catalog::Version;
use larder_store::forget_marks::OwnedVersion;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::RewriteArgs;
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machine;
use crate::output::{Meter, MeterKind, safe, summary};
use crate::patterns::Patterns;
use crate::refs::{Versions, new_tags, shown};
use crate::{sizes, time};

/// When the contents of files that were left out are gone.
const UNTIL: &str = "the contents that were left out leave the storage with the next `larder optimize --max-unused 0`, \
     except from containers that the newest and older snapshots share; old versions of objects and copies of the \
     repository still have them";

/// The same for series in the layout `lifecycle`.
const UNTIL_IN_LIFECYCLE: &str =
    "in the layout lifecycle, use `larder series set SERIES --holes 0` before, which lets passes copy used containers";

pub(super) fn run(app: &App, args: &RewriteArgs) -> Result<Exit, Failure> {
    let patterns = Patterns {
        exact: &args.exclude,
        any_case: &args.iexclude,
        exact_files: &args.exclude_file,
        any_case_files: &args.iexclude_file,
    };
    if args.new_series.as_ref().is_some_and(String::is_empty) {
        return Err(Failure::usage("a series needs a name"));
    }
    if args.new_host.as_ref().is_some_and(String::is_empty) {
        return Err(Failure::usage("a host needs a name"));
    }
    let options = ChangeOptions {
        excludes: Excludes { patterns: patterns.matchers()?, ..Excludes::default() },
        host: args.new_host.clone(),
        time_ms: args.new_time,
        series: args.new_series.clone(),
        add_tags: new_tags(&args.new_tag)?,
        dry_run: args.dry_run,
        program: format!("larder {}", env!("CARGO_PKG_VERSION")),
        compression: app.compression(),
    };
    let opened = app.open()?;
    opened.repository.require(Roles::OPERATE, "rewriting snapshots")?;
    let (versions, pins) = Versions::load_tagged(app, &opened.repository, &args.filter)?;
    let found = versions.find_all(app, &args.ids)?;
    if found.is_empty() {
        return Err(versions.nothing_fits());
    }
    let moves = [(args.new_time.is_some(), "--new-time"), (args.new_series.is_some(), "--new-series")];
    if let Some((_, option)) = moves.iter().find(|(is_given, _)| *is_given)
        && found.len() > 1
        && args.ids.is_empty()
        && args.filter.is_empty()
    {
        let why = format!(
            "{option} would be that of all {}; nothing was rewritten",
            sizes::count(found.len() as u64, "snapshot")
        );
        return Err(Failure::usage(why).advise("name the snapshots, or use --host, --tag, --path or --series"));
    }
    if args.forget
        && let Some(pinned) =
            found.iter().find(|version| pins.get(&pin_of(version)).is_some_and(|line| line.forbids_forgetting()))
    {
        let why = format!("{} is pinned, so it cannot be forgotten; nothing was rewritten", shown(&pinned.summary));
        return Err(Failure::new(Exit::Failed, why).advise("`larder unpin` lets it be forgotten"));
    }
    let meter = Meter::start(MeterKind::Repair, &app.out);
    let context = app.context(opened.repository.clone(), meter.progress());
    let context = JobContext { machine: machine::witness(&app.global, &app.out, &opened.repository), ..context };
    let mut rewriting =
        Rewriting { app, args, context, rewritten: Vec::new(), forgotten: Vec::new(), failures: Vec::new() };
    let result = rewriting.all(&found, &versions, &options);
    let seconds = meter.elapsed().as_secs_f64();
    drop(meter);
    rewriting.tell(&opened.repository, seconds)?;
    result?;
    versions.warn_of_damage(app);
    rewriting.end()
}

/// The run of the command.
struct Rewriting<'a> {
    app: &'a App,
    args: &'a RewriteArgs,
    context: JobContext,
    rewritten: Vec<(Version, ChangedVersion)>,
    forgotten: Vec<JobId>,
    failures: Vec<(JobId, Failure)>,
}

impl Rewriting<'_> {
    /// Rewrites all, the oldest first. An old version is forgotten as soon as the new one is there.
    fn all(&mut self, found: &[Version], versions: &Versions, options: &ChangeOptions) -> Result<(), Failure> {
        let mut sorted: Vec<&Version> = found.iter().collect();
        sorted.sort_by_key(|version| version.id());
        let others = versions.all();
        // The new version is signed, and so its time counts for policies.
        let unconfirmed = match self.args.new_time {
            None => {
                let now_ms = self.context.clock.now_ms();
                self.app.block_on(unconfirmed(&self.context.repository, found, now_ms))?
            }
            Some(_) => HashSet::new(),
        };
        for version in sorted {
            if unconfirmed.contains(&pin_of(version)) {
                let why = "the storage does not confirm its time, and a rewritten snapshot would have it confirmed";
                self.fail(version.id(), Failure::new(Exit::Failed, format!("{why}; --new-time states one")));
                continue;
            }
            // Somebody gave a version the id of another one. Nothing is decided by such an id.
            if others.iter().filter(|other| other.id() == version.id()).count() > 1 {
                self.fail(version.id(), Failure::new(Exit::Failed, "several snapshots have this id"));
                continue;
            }
            let changed = match change(&self.context, version, &others, options) {
                Ok(changed) => changed,
                Err(error) => {
                    let failure = Failure::from(error);
                    if failure.exit != Exit::Damage {
                        return Err(failure);
                    }
                    self.fail(version.id(), failure);
                    continue;
                }
            };
            if let ChangeOutcome::Unusable(why) = changed.outcome {
                self.fail(version.id(), Failure::new(Exit::Failed, why));
            }
            let new = match changed.outcome {
                ChangeOutcome::Made(new) | ChangeOutcome::MadeBefore(new) => Some(new),
                _ => None,
            };
            self.rewritten.push((version.clone(), changed));
            if let Some(new) = new.filter(|_| self.args.forget) {
                self.forget(version, new)?;
            }
        }
        Ok(())
    }

    fn fail(&mut self, id: JobId, failure: Failure) {
        self.failures.push((id, failure.while_doing(&format!("snapshot {} was not rewritten", id.short()))));
    }

    /// Forgets a version, once its successor was found in the store.
    fn forget(&mut self, version: &Version, new: JobId) -> Result<(), Failure> {
        let repository = &self.context.repository;
        let series = self.args.new_series.as_ref().unwrap_or(&version.summary.series);
        let series = repository.keys().series_key_in(version.summary.domain, series);
        let new = Pin { series, job: new };
        let domain = version.summary.domain;
        let mark = Forgotten {
            time_ms: self.context.clock.now_ms(),
            host: environment::host(),
            reason: format!("{}: rewritten as {}", environment::user(), new.job),
        };
        let owned = OwnedVersion::from(version);
        // A tag that it got meanwhile is not in the new one.
        let tags = version.summary.tags.clone();
        let replaced = Replaced { old: owned, new: OwnedVersion { domain, version: new }, tags };
        let mut is_there = true;
        let Replacement { forgot, unheld } = replace(&self.context, &[replaced], &mark, || {
            is_there = stands(&self.context, new)?;
            Ok::<_, RepairError>(is_there.then_some(owned.version.job).into_iter().collect())
        })?;
        for (_, error) in unheld {
            let why = format!("the new snapshot {} cannot be relied on, so the old one stays", new.job.short());
            self.fail(version.id(), Failure::from(error).while_doing(&why));
        }
        if !is_there {
            let missing = format!("the new snapshot {} is gone or damaged, so the old one stays", new.job.short());
            self.fail(version.id(), Failure::new(Exit::Damage, missing));
        }
        self.context.machine.forget_versions(forgot.done.iter().map(|_| owned.version));
        self.forgotten.extend(forgot.done);
        for (id, error) in forgot.failed {
            let failure = Failure::from(error).while_doing(&format!("snapshot {} was not forgotten", id.short()));
            self.failures.push((id, failure));
        }
        Ok(())
    }

    fn left_out(&self) -> LeftOut {
        self.rewritten.iter().fold(LeftOut::default(), |sum, (_, changed)| LeftOut {
            entries: sum.entries + changed.left_out.entries,
            bytes: sum.bytes + changed.left_out.bytes,
        })
    }

    fn tell(&self, repository: &Repository, seconds: f64) -> Result<(), Failure> {
        let out = &self.app.out;
        if out.is_json() {
            let mut object = Map::new();
            let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
            put("message_type", json!("summary"));
            put("dry_run", json!(self.args.dry_run));
            put("snapshots", self.rewritten.iter().map(|(version, changed)| json_of(version, changed)).collect());
            put("forgotten", self.forgotten.iter().map(ToString::to_string).collect());
            put("total_duration", json!(seconds));
            summary::put_requests(&mut object, &repository.store().stats());
            return out.json(&object);
        }
        for (version, changed) in &self.rewritten {
            let (id, series) = (version.id().short(), safe(&version.summary.series));
            if let Some(outcome) = text_of(self.args, changed) {
                out.line(format!("snapshot {id} ({series}): {outcome}"))?;
            }
        }
        let is_new =
            |changed: &ChangedVersion| matches!(changed.outcome, ChangeOutcome::Made(_) | ChangeOutcome::Planned);
        let count = self.rewritten.iter().filter(|(_, changed)| is_new(changed)).count() as u64;
        let verb = if self.args.dry_run { "would rewrite" } else { "rewrote" };
        out.info(format!("{verb} {}", sizes::count(count, "snapshot")))?;
        if !self.forgotten.is_empty() {
            out.info(format!("forgot {}", sizes::count(self.forgotten.len() as u64, "snapshot")))?;
        }
        let is_made = |(_, changed): &(Version, ChangedVersion)| {
            matches!(changed.outcome, ChangeOutcome::Made(_) | ChangeOutcome::MadeBefore(_) | ChangeOutcome::Planned)
        };
        match self.left_out().entries {
            0 => {}
            _ if !self.rewritten.iter().any(is_made) => {}
            _ if self.args.dry_run => {}
            _ if self.args.forget && !self.failures.is_empty() => {
                out.info("some old snapshots stay, and with them what was left out")?;
            }
            _ if self.args.forget => {
                out.info(UNTIL)?;
                if self.rewritten.iter().any(|(version, _)| version.summary.layout == Layout::Lifecycle) {
                    out.info(UNTIL_IN_LIFECYCLE)?;
                }
            }
            _ => out.info("the old snapshots still have what was left out; `--forget` forgets them")?,
        }
        Ok(())
    }

    /// How the command ends: with a failure if nothing was done, else partly.
    fn end(mut self) -> Result<Exit, Failure> {
        let is_damage = self.failures.iter().any(|(_, failure)| failure.exit == Exit::Damage);
        let tried = self.rewritten.iter().filter(|(_, changed)| !matches!(changed.outcome, ChangeOutcome::Unusable(_)));
        let last = if tried.count() == 0 { self.failures.pop() } else { None };
        for (id, failure) in &self.failures {
            self.app.out.item_error(&id.short(), "rewrite", &failure.message);
        }
        match last {
            Some((_, failure)) => Err(failure),
            None if is_damage => Ok(Exit::Damage),
            None if !self.failures.is_empty() => Ok(Exit::Partly),
            None => Ok(Exit::Done),
        }
    }
}

fn text_of(args: &RewriteArgs, changed: &ChangedVersion) -> Option<String> {
    let LeftOut { entries, bytes } = changed.left_out;
    let mut how = Vec::new();
    if entries > 0 {
        how.push(format!("without {} ({})", sizes::count(entries, "item"), sizes::show(bytes)));
    }
    how.extend(args.new_host.as_ref().map(|host| format!("host {}", safe(host))));
    how.extend(args.new_time.map(|at| format!("time {}", time::show(at))));
    how.extend(args.new_series.as_ref().map(|series| format!("series {}", safe(series))));
    if !args.new_tag.is_empty() {
        how.push(format!("more tags: {}", safe(&args.new_tag.join(","))));
    }
    let how = how.join(", ");
    Some(match changed.outcome {
        ChangeOutcome::Made(new) => format!("rewritten as {}, {how}", new.short()),
        ChangeOutcome::MadeBefore(new) => format!("was rewritten as {} before", new.short()),
        ChangeOutcome::Planned => format!("would be rewritten: {how}"),
        ChangeOutcome::NothingLeft => "nothing of it would be left; `larder forget` removes it".to_owned(),
        // It is an error, or needs no word.
        ChangeOutcome::Unusable(_) | ChangeOutcome::Same => return None,
    })
}

fn json_of(version: &Version, changed: &ChangedVersion) -> Value {
    let (name, new, message) = match changed.outcome {
        ChangeOutcome::Made(new) => ("rewritten", Some(new), None),
        ChangeOutcome::Planned => ("would_be_rewritten", None, None),
        ChangeOutcome::MadeBefore(new) => ("rewritten_before", Some(new), None),
        ChangeOutcome::Same => ("unchanged", None, None),
        ChangeOutcome::NothingLeft => ("nothing_left", None, None),
        ChangeOutcome::Unusable(why) => ("unusable", None, Some(why)),
    };
    json!({
        "snapshot_id": version.id().to_string(),
        "short_id": version.id().short(),
        "series": version.summary.series,
        "outcome": name,
        "new_snapshot_id": new.map(|new| new.to_string()),
        "message": message,
        "entries_left_out": changed.left_out.entries,
        "bytes_left_out": changed.left_out.bytes,
    })
}

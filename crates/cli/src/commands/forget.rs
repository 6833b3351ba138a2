//! `larder forget`: shows which snapshots a policy keeps and why, and marks the rest.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use larder_format::ids::{ByteCount, JobId};
use larder_format::lease::Pin;
use larder_format::mark::Forgotten;
use larder_format::roles::Roles;
use larder_gnode::exclusive_bytes::SharesBudget;
use larder_gnode::forget::{Judged, JudgedGroup, Question, create_decided, decide, pin_of};
use larder_gnode::retention::{GroupKey, Policy, Reason};
use larder_job::JobContext;
use larder_store::Repository;
use larder_store::catalog::Version;
use larder_store::forget_marks::OwnedVersion;
use larder_store::pins::PinLine;
use serde_json::{Map, Value, json};

use super::optimize;
use super::reclaimable::Free;
use crate::app::App;
use crate::args::{FilterArgs, ForgetArgs};
use crate::durations;
use crate::environment;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machine;
use crate::output::{Align, Estimate, Table, absolute, names_host, safe, summary};
use crate::refs::{Versions, split_tags};
use crate::{sizes, time};

pub(super) fn run(app: &App, args: &ForgetArgs) -> Result<Exit, Failure> {
    let filter = FilterArgs::from(&args.filter);
    let opened = if args.estimate { app.rehearse()? } else { app.open()? };
    opened.repository.require(Roles::OPERATE, "forgetting a snapshot")?;
    let (versions, _) = Versions::load_tagged(app, &opened.repository, &filter)?;
    let policy = policy(app, args, &versions)?;
    let mut context = app.reading(opened.repository.clone());
    context.machine = machine::remembering(&app.global, &app.out, &opened.repository);
    if args.estimate {
        context.machine = context.machine.only_looking();
    }
    // The decision must use the objects in the store, not cached copies.
    context.repository = context.repository.through(context.repository.store().without_cache());
    let chosen = if args.ids.is_empty() {
        refuse_without_rules(args, &policy)?;
        if versions.admitted.is_empty() && !filter.is_empty() {
            // A typing error would never be noticed otherwise.
            app.out.warn(&versions.nothing_fits().message);
        }
        by_policy(app, args, &versions, &policy, &context)?
    } else {
        if !policy.is_empty() {
            return Err(Failure::usage(
                "snapshots were named, and a policy given as well: only one of them can decide",
            ));
        }
        by_name(app, args, &versions)?
    };
    if args.estimate {
        return chosen.estimate(app, args, &context, &opened.repository);
    }
    let free = if args.dry_run { chosen.free(app, &context, &versions)? } else { None };
    // A policy keeps pinned snapshots; names may be those of some.
    let mut refused = if args.dry_run && chosen.is_by_name { chosen.pinned(app, &context)? } else { Refused::new() };
    if app.out.is_json() {
        // The output reports the result, so the marks are made first.
        if !args.dry_run {
            (refused, _) = chosen.apply(app, &context)?;
        }
        chosen.write_json(app, args, free.as_deref(), &refused)?;
    } else {
        chosen.show(app, args, free.as_deref(), &refused)?;
        if !args.dry_run {
            let done;
            (refused, done) = chosen.apply(app, &context)?;
            app.out.info(format!("forgot {}", sizes::count(done, "snapshot")))?;
        }
    }
    chosen.warn_of_unconfirmed(app);
    versions.warn_of_damage(app);
    let exit = chosen.end(app, refused)?;
    if args.prune && args.dry_run {
        app.out.remark("a pass may free more, for instance what was forgotten before; `larder optimize --dry-run` says what it finds");
    } else if args.prune {
        let of_pass = optimize::pass(app, &opened.repository, &args.pass, false)?;
        return Ok(if of_pass == Exit::Done { exit } else { of_pass });
    }
    Ok(exit)
}

/// Advice about a pinned snapshot.
const UNPIN: &str = "`larder unpin` lets it be forgotten";

/// Versions that could not be forgotten, with the reasons.
type Refused = BTreeMap<JobId, Failure>;

/// The chosen action.
struct Selection {
    groups: Vec<JudgedGroup>,
    /// Unreadable versions, known only by their names.
    unreadable: Vec<Pin>,
    reason: String,
    is_by_name: bool,
}

/// Whether the options say what to keep. A rule that keeps 0 snapshots says nothing.
pub(super) fn has_rules(args: &ForgetArgs) -> bool {
    !args.keep_id.is_empty() || !rules(args, Vec::new()).is_empty()
}

fn policy(app: &App, args: &ForgetArgs, versions: &Versions) -> Result<Policy, Failure> {
    let ids: Result<Vec<JobId>, Failure> = args.keep_id.iter().map(|text| Ok(versions.find(app, text)?.id())).collect();
    Ok(rules(args, ids?))
}

fn rules(args: &ForgetArgs, ids: Vec<JobId>) -> Policy {
    Policy {
        last: args.keep_last.unwrap_or_default(),
        hourly: args.keep_hourly.unwrap_or_default(),
        daily: args.keep_daily.unwrap_or_default(),
        weekly: args.keep_weekly.unwrap_or_default(),
        monthly: args.keep_monthly.unwrap_or_default(),
        yearly: args.keep_yearly.unwrap_or_default(),
        within: args.keep_within,
        within_hourly: args.keep_within_hourly,
        within_daily: args.keep_within_daily,
        within_weekly: args.keep_within_weekly,
        within_monthly: args.keep_within_monthly,
        within_yearly: args.keep_within_yearly,
        tags: args.keep_tag.iter().map(|tags| split_tags(tags)).filter(|tags| !tags.is_empty()).collect(),
        ids,
        size: args.keep_size.map(ByteCount),
    }
}

fn refuse_without_rules(args: &ForgetArgs, policy: &Policy) -> Result<(), Failure> {
    let is_filtered = !FilterArgs::from(&args.filter).is_empty();
    match (policy.is_empty(), args.unsafe_allow_remove_all, is_filtered) {
        (false, ..) | (true, true, true) => Ok(()),
        (true, true, false) => Err(Failure::usage("--unsafe-allow-remove-all needs --host, --tag, --path or --series")
            .advise("nothing was forgotten")),
        (true, false, _) => Err(Failure::usage("neither snapshots nor a policy were given")
            .advise("nothing was forgotten; name snapshots, or say what to keep, for instance --keep-daily 7")),
    }
}

fn by_policy(
    app: &App,
    args: &ForgetArgs,
    versions: &Versions,
    policy: &Policy,
    context: &JobContext,
) -> Result<Selection, Failure> {
    let question = Question {
        policy,
        group_by: args.group_by,
        zone: TimeZone::system(),
        now_ms: context.clock.now_ms(),
        budget: SharesBudget::of_memory(context.memory / 2),
    };
    let groups = app.block_on(async {
        let pinned: BTreeMap<Pin, PinLine> = context.repository.pinned().await?;
        decide(&context.repository, &question, versions.admitted.clone(), &pinned).await
    })?;
    if !args.unsafe_allow_remove_all
        && let Some(group) = groups.iter().find(|group| group.loses_all())
    {
        let (count, key) = (sizes::count(group.versions.len() as u64, "snapshot"), key_text(&group.key));
        return Err(Failure::new(
            Exit::Failed,
            format!("the policy keeps none of {count}{key}; nothing was forgotten"),
        )
        .advise("name the snapshots to forget them all, or use --unsafe-allow-remove-all"));
    }
    let reason = format!("{}: no rule of a policy keeps it", environment::user());
    Ok(Selection { groups, unreadable: Vec::new(), reason, is_by_name: false })
}

fn by_name(app: &App, args: &ForgetArgs, versions: &Versions) -> Result<Selection, Failure> {
    let (mut found, mut unreadable): (Vec<Version>, Vec<Pin>) = (Vec::new(), Vec::new());
    for text in &args.ids {
        match versions.find_unreadable(text) {
            Some(pin) if !unreadable.contains(&pin) => unreadable.push(pin),
            Some(_) => {}
            None => {
                let version = versions.find(app, text)?;
                if !found.iter().any(|known| known.id() == version.id()) {
                    found.push(version);
                }
            }
        }
    }
    found.sort_by_key(Version::rank);
    let versions = found.into_iter().map(|version| Judged { version, reasons: Vec::new() }).collect();
    let groups = vec![JudgedGroup { key: GroupKey::default(), versions }];
    Ok(Selection { groups, unreadable, reason: format!("{}: by name", environment::user()), is_by_name: true })
}

impl Selection {
    /// The space that forgetting each group would free, and finally all of them; `None` when it
    /// cannot be known.
    fn free(&self, app: &App, context: &JobContext, versions: &Versions) -> Result<Option<Vec<u64>>, Failure> {
        let Some(free) = Free::read(app, context, versions)? else { return Ok(None) };
        let gone = |group: &JudgedGroup| -> Vec<Version> {
            let gone = group.versions.iter().filter(|judged| !judged.is_kept());
            gone.map(|judged| judged.version.clone()).collect()
        };
        let groups: Vec<Vec<Version>> = self.groups.iter().map(gone).collect();
        let lists: Vec<&[Version]> = groups.iter().map(Vec::as_slice).collect();
        let free = free.of_each_and_all(app, context, &lists)?;
        Ok(free.map(|(each, together)| [each, vec![together]].concat()))
    }

    fn write_json(&self, app: &App, args: &ForgetArgs, free: Option<&[u64]>, refused: &Refused) -> Result<(), Failure> {
        let groups = self.groups.iter().enumerate().map(|(at, group)| {
            let free = args.dry_run.then(|| json!(free.and_then(|free| free.get(at))));
            json_of(group, self, free, refused)
        });
        app.out.json(&groups.collect::<Vec<_>>())
    }

    fn show(&self, app: &App, args: &ForgetArgs, free: Option<&[u64]>, refused: &Refused) -> Result<(), Failure> {
        if !self.is_by_name {
            for group in &self.groups {
                let (kept, gone): (Vec<_>, Vec<_>) = group.versions.iter().partition(|judged| judged.is_kept());
                let key = key_text(&group.key);
                let shown = [("keep", kept, true), ("forget", gone, false)];
                for (what, versions, with_reasons) in shown.into_iter().filter(|(_, versions, _)| !versions.is_empty())
                {
                    let count = sizes::count(versions.len() as u64, "snapshot");
                    app.out.info(format!("{what} {count}{key}:"))?;
                    print_table(app, &versions, with_reasons && !args.compact, args.compact)?;
                    app.out.info("")?;
                }
            }
        }
        if args.dry_run {
            let free = free.and_then(<[u64]>::last).map_or_else(
                || "what that frees cannot be known".to_owned(),
                |free| format!("which frees {}", sizes::show(*free)),
            );
            app.out.info(format!(
                "{} would be forgotten, {free}",
                sizes::count(self.count() - refused.len() as u64, "snapshot")
            ))?;
        }
        Ok(())
    }

    /// Warns of versions that only their maker's word dates. They are forged, or were made in
    /// another way than a backup of the present.
    fn warn_of_unconfirmed(&self, app: &App) {
        let unconfirmed = self.groups.iter().flat_map(|group| &group.versions).filter(|judged| judged.is_unconfirmed());
        let count = unconfirmed.count() as u64;
        if count > 0 {
            app.out.warn(&format!(
                "the storage does not confirm the claimed time of {}; such a snapshot counts for no rule, and \
                 `larder forget ID` forgets it",
                sizes::count(count, "snapshot")
            ));
        }
    }

    fn count(&self) -> u64 {
        let gone = self.groups.iter().flat_map(|group| &group.versions).filter(|judged| !judged.is_kept());
        (gone.count() + self.unreadable.len()) as u64
    }

    /// Those that are pinned, with the failures that a real run would have.
    fn pinned(&self, app: &App, context: &JobContext) -> Result<Refused, Failure> {
        let pinned: BTreeMap<Pin, PinLine> = app.block_on(context.repository.pinned())?;
        let named = self.groups.iter().flat_map(|group| &group.versions).map(|judged| pin_of(&judged.version));
        let is_pinned = named.filter(|pin| pinned.get(pin).is_some_and(PinLine::forbids_forgetting));
        let failure = |pin: Pin| {
            Failure::new(Exit::Failed, format!("snapshot {} would not be forgotten: it is pinned", pin.job.short()))
                .advise(UNPIN)
        };
        Ok(is_pinned.map(|pin| (pin.job, failure(pin))).collect())
    }

    /// Rehearses the command, and shows what that took.
    fn estimate(
        &self,
        app: &App,
        args: &ForgetArgs,
        context: &JobContext,
        repository: &Repository,
    ) -> Result<Exit, Failure> {
        let (refused, done) = self.apply(app, context)?;
        if !app.out.is_json() {
            app.out.info(format!("would forget {}", sizes::count(done, "snapshot")))?;
        }
        let exit = self.end(app, refused)?;
        if args.prune {
            let options = args.pass.options(&app.global, false);
            let of_pass = optimize::rehearse(app, repository, options, durations::FORGET_AND_PRUNE)?;
            return Ok(if of_pass == Exit::Done { exit } else { of_pass });
        }
        let requests = repository.store().stats();
        let seconds = durations::expected(app, repository, &[durations::FORGET], [&requests; 2]);
        Estimate { seconds, ..Estimate::rehearsed(requests) }.show(&app.out, app.prices().as_ref())?;
        Ok(exit)
    }

    /// Makes the marks, and counts them. A failure of one does not stop the others.
    fn apply(&self, app: &App, context: &JobContext) -> Result<(Refused, u64), Failure> {
        let gone = self.groups.iter().flat_map(|group| &group.versions).filter(|judged| !judged.is_kept());
        // Who names a snapshot means it with any tags.
        let tags = |version: &Version| (!self.is_by_name).then(|| version.summary.tags.clone());
        let gone = gone.map(|judged| (OwnedVersion::from(&judged.version), tags(&judged.version)));
        let unreadable = self.unreadable.iter().copied().map(|pin| (OwnedVersion::from(pin), None));
        let gone: Vec<_> = gone.chain(unreadable).collect();
        let mark =
            Forgotten { time_ms: context.clock.now_ms(), host: environment::host(), reason: self.reason.clone() };
        let marks = gone.iter().map(|(owned, tags)| (*owned, mark.clone(), tags.clone())).collect();
        let forgot = app.block_on(create_decided(&context.repository, marks));
        // A pass elsewhere may collect them, and then no mark says that they were forgotten.
        let done = gone.iter().map(|(owned, _)| owned.version).filter(|version| forgot.done.contains(&version.job));
        context.machine.forget_versions(done);
        let failure =
            |id: JobId, error| Failure::from(error).while_doing(&format!("snapshot {} was not forgotten", id.short()));
        let done = forgot.done.len() as u64;
        Ok((forgot.failed.into_iter().map(|(id, error)| (id, failure(id, error))).collect(), done))
    }

    /// How the command ends. If some were forgotten, they stay so, and a pass may collect them. If
    /// none was, the first reason is reported.
    fn end(&self, app: &App, mut refused: Refused) -> Result<Exit, Failure> {
        let first = if refused.len() as u64 == self.count() { refused.pop_first() } else { None };
        let is_whole = refused.is_empty();
        for (id, failure) in refused {
            let advice = failure.advice.map_or_else(String::new, |advice| format!("; {advice}"));
            app.out.item_error(&id.short(), "forget", &format!("{}{advice}", failure.message));
        }
        match first {
            Some((_, failure)) => Err(failure),
            None if is_whole => Ok(Exit::Done),
            None => Ok(Exit::Partly),
        }
    }
}

/// ` of series host:/home`, for the end of a sentence.
fn key_text(key: &GroupKey) -> String {
    let mut parts = Vec::new();
    parts.extend(key.series.as_ref().map(|series| format!("series {}", safe(series))));
    parts.extend(key.host.as_ref().map(|host| format!("host {}", safe(host))));
    parts.extend(key.tags.as_ref().map(|tags| format!("tags [{}]", safe(&tags.join(", ")))));
    let paths = |paths: &Vec<Vec<u8>>| paths.iter().map(|path| absolute(path)).collect::<Vec<_>>().join(", ");
    parts.extend(key.paths.as_ref().map(|all| format!("paths [{}]", paths(all))));
    if parts.is_empty() { String::new() } else { format!(" of {}", parts.join(", ")) }
}

fn json_of(group: &JudgedGroup, chosen: &Selection, free: Option<Value>, refused: &Refused) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
    let GroupKey { series, host, paths, tags, domain: _ } = &group.key;
    let paths = paths.as_ref().map(|paths| paths.iter().map(|path| absolute(path)).collect::<Vec<_>>());
    put("series", json!(series));
    put("host", json!(host));
    put("paths", json!(paths));
    put("tags", json!(tags));
    let of = |is_chosen: &dyn Fn(&Judged) -> bool| -> Vec<_> {
        let chosen = group.versions.iter().filter(|judged| is_chosen(judged));
        chosen.map(|judged| summary::version(&judged.version)).collect()
    };
    put("keep", json!(of(&Judged::is_kept)));
    put("remove", json!(of(&|judged| !judged.is_kept() && !refused.contains_key(&judged.version.id()))));
    // Unreadable ones that were named are in no group.
    let of_group = group.versions.iter().map(|judged| judged.version.id());
    let failed = of_group.chain(chosen.unreadable.iter().map(|pin| pin.job)).filter_map(|id| {
        let failure = refused.get(&id)?;
        Some(json!({"id": id.to_string(), "message": failure.message}))
    });
    put("failed", json!(failed.collect::<Vec<_>>()));
    let reasons = group.versions.iter().filter(|judged| judged.is_kept()).map(|judged| {
        let matches: Vec<_> = judged.reasons.iter().map(ToString::to_string).collect();
        json!({"snapshot": summary::version(&judged.version), "matches": matches})
    });
    put("reasons", json!(reasons.collect::<Vec<_>>()));
    let unreadable = chosen.unreadable.iter().filter(|pin| !refused.contains_key(&pin.job));
    let unreadable: Vec<_> = unreadable.map(|pin| pin.job.to_string()).collect();
    put("remove_unreadable", json!(unreadable));
    if let Some(free) = free {
        put("free_bytes", free);
    }
    Value::Object(object)
}

fn print_table(app: &App, versions: &[&Judged], with_reasons: bool, is_compact: bool) -> Result<(), Failure> {
    let mut columns = vec![("ID", Align::Left), ("Time", Align::Left), ("Host", Align::Cut), ("Tags", Align::Cut)];
    if with_reasons {
        columns.push(("Reasons", Align::Cut));
    }
    columns.extend([("Series", Align::Cut), ("Size", Align::Right)]);
    let mut table = Table::new(&columns).optional(&["Tags", "Size", "Host"]);
    for judged in versions {
        let summary = &judged.version.summary;
        let mut row =
            vec![summary.id.short(), time::show(summary.time_ms), safe(&summary.host), safe(&summary.tags.join(","))];
        if with_reasons {
            row.push(judged.reasons.iter().map(reason_text).collect::<Vec<_>>().join(", "));
        }
        row.extend([safe(&summary.series), sizes::show(summary.statistics.logical_bytes)]);
        table.row(row);
    }
    if versions.iter().all(|judged| names_host(&judged.version.summary)) {
        table.leave_out("Host");
    }
    if is_compact || versions.iter().all(|judged| judged.version.summary.tags.is_empty()) {
        table.leave_out("Tags");
    }
    if is_compact {
        table.leave_out("Size");
    }
    if app.out.is_quiet() { Ok(()) } else { app.out.table(table) }
}

fn reason_text(reason: &Reason) -> String {
    match reason {
        Reason::Size(size) => format!("within {}", sizes::show(size.0)),
        other => safe(&other.to_string()),
    }
}

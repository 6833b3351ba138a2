//! `larder snapshots`.

use std::collections::{BTreeMap, HashMap};

use larder_format::ids::JobId;
use larder_format::lease::Pin;
use larder_gnode::forget::pin_of;
use larder_job::JobContext;
use larder_store::catalog::Version;
use larder_store::pins::PinLine;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::{GroupBy, SnapshotsArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::foreign_verbs;
use crate::output::{Align, Table, absolute, cut, names_host, safe, summary};

use super::reclaimable::Free;
use crate::refs::{TAG_SHOWN, Versions};
use crate::{sizes, time};

pub(super) fn run(app: &App, args: &SnapshotsArgs) -> Result<Exit, Failure> {
    let ids = match &*args.ids {
        // `list KIND`, as restic has it. There are no locks.
        [kind] if kind == "locks" => return Ok(Exit::Done),
        [kind] if kind == "snapshots" => &[],
        ids => ids,
    };
    if let Some(failure) = ids.iter().find_map(|id| foreign_verbs::listing(id)) {
        return Err(failure);
    }
    let opened = app.open()?;
    let (versions, mut pinned) = Versions::load_tagged(app, &opened.repository, &args.filter)?;
    pinned.retain(|_, line| line.forbids_forgetting());
    let mut found = versions.find_all(app, ids)?;
    found.sort_by_key(Version::rank);
    let by = if args.group_by.is_empty() { vec![GroupBy::Series] } else { args.group_by.clone() };
    if let Some(count) = args.latest.or(args.last.then_some(1)) {
        found = newest_of_each(found, &by, count);
    }
    let context = app.reading(opened.repository);
    let free = match args.no_free {
        true => None,
        false => free(app, &versions, &context)?,
    };
    let known = Known { pinned, free };
    if args.group_by.is_empty() {
        print_list(app, &found, &known, args.compact)?;
    } else {
        print_groups(app, &found, &by, &known, args.compact)?;
    }
    versions.warn_of_damage(app);
    Ok(Exit::Done)
}

/// Facts about versions besides their summaries.
struct Known {
    pinned: BTreeMap<Pin, PinLine>,
    /// Bytes that forgetting each version alone would free; `None` when it was not asked for or
    /// cannot be known.
    free: Option<HashMap<JobId, u64>>,
}

impl Known {
    fn free(&self, version: &Version) -> Option<u64> {
        self.free.as_ref()?.get(&version.id()).copied()
    }

    fn json(&self, version: &Version) -> Map<String, Value> {
        let mut object = summary::version(version);
        object.insert("pinned".to_owned(), json!(self.pinned.contains_key(&pin_of(version))));
        if self.free.is_some() {
            object.insert("free_bytes".to_owned(), json!(self.free(version)));
        }
        object
    }
}

/// The space that forgetting each version alone would free.
fn free(app: &App, versions: &Versions, context: &JobContext) -> Result<Option<HashMap<JobId, u64>>, Failure> {
    let Some(free) = Free::read(app, context, versions)? else { return Ok(None) };
    let all = versions.all();
    let each: Vec<&[Version]> = all.chunks(1).collect();
    let free = free.of_groups(app, context, &each)?;
    Ok(free.map(|free| all.iter().map(Version::id).zip(free).collect()))
}

/// The common properties of the versions of one group.
type GroupKey = Vec<(&'static str, GroupValue)>;

/// A common property of the snapshots of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum GroupValue {
    One(String),
    Several(Vec<String>),
}

impl GroupValue {
    fn json(&self) -> Value {
        match self {
            Self::One(value) => json!(value),
            Self::Several(values) => json!(values),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::One(value) => safe(value),
            Self::Several(values) => safe(&values.join(", ")),
        }
    }
}

fn group_key(version: &Version, by: &[GroupBy]) -> GroupKey {
    let summary = &version.summary;
    by.iter()
        .map(|by| match by {
            GroupBy::Host => ("hostname", GroupValue::One(summary.host.clone())),
            GroupBy::Series => ("series", GroupValue::One(summary.series.clone())),
            GroupBy::Tags => ("tags", GroupValue::Several(summary.tags.clone())),
            GroupBy::Paths => ("paths", GroupValue::Several(summary.paths.iter().map(|path| absolute(path)).collect())),
        })
        .collect()
}

fn newest_of_each(versions: Vec<Version>, by: &[GroupBy], count: usize) -> Vec<Version> {
    let mut seen: BTreeMap<GroupKey, usize> = BTreeMap::new();
    let mut kept: Vec<Version> = versions
        .into_iter()
        .rev()
        .filter(|version| {
            let seen = seen.entry(group_key(version, by)).or_default();
            *seen += 1;
            *seen <= count
        })
        .collect();
    kept.reverse();
    kept
}

fn print_list(app: &App, versions: &[Version], known: &Known, is_compact: bool) -> Result<(), Failure> {
    if app.out.is_json() {
        let all: Vec<_> = versions.iter().map(|version| known.json(version)).collect();
        return app.out.json(&all);
    }
    if versions.is_empty() {
        return app.out.info("no snapshots");
    }
    print_table(app, versions, known, is_compact)?;
    app.out.info(sizes::count(versions.len() as u64, "snapshot"))
}

fn print_groups(
    app: &App,
    versions: &[Version],
    by: &[GroupBy],
    known: &Known,
    is_compact: bool,
) -> Result<(), Failure> {
    let mut groups: BTreeMap<GroupKey, Vec<Version>> = BTreeMap::new();
    for version in versions {
        groups.entry(group_key(version, by)).or_default().push(version.clone());
    }
    if app.out.is_json() {
        let groups: Vec<_> = groups
            .iter()
            .map(|(key, versions)| {
                let key: Map<String, Value> =
                    key.iter().map(|(name, value)| ((*name).to_owned(), value.json())).collect();
                json!({"group_key": key, "snapshots": versions.iter().map(|version| known.json(version)).collect::<Vec<_>>()})
            })
            .collect();
        return app.out.json(&groups);
    }
    for (key, versions) in &groups {
        let key: Vec<_> = key.iter().map(|(name, value)| format!("{name} [{}]", value.text())).collect();
        app.out.line(format!("snapshots of {}:", key.join(", ")))?;
        print_table(app, versions, known, is_compact)?;
        app.out.line(sizes::count(versions.len() as u64, "snapshot"))?;
        app.out.line("")?;
    }
    Ok(())
}

/// The columns that a narrow terminal leaves out, in this order, and that a compact table does not
/// have.
const OPTIONAL: [&str; 5] = ["Stored", "Added", "Tags", "Domain", "Host"];

fn print_table(app: &App, versions: &[Version], known: &Known, is_compact: bool) -> Result<(), Failure> {
    let mut columns = vec![
        ("ID", Align::Left),
        ("Time", Align::Left),
        ("Host", Align::Cut),
        ("Domain", Align::Cut),
        ("Tags", Align::Cut),
        ("Series", Align::Cut),
        ("Size", Align::Right),
        ("Added", Align::Right),
        ("Stored", Align::Right),
    ];
    let is_pinned = |version: &Version| known.pinned.contains_key(&pin_of(version));
    let any_pinned = versions.iter().any(is_pinned);
    columns.extend(known.free.as_ref().map(|_| ("Free", Align::Right)));
    columns.extend(any_pinned.then_some(("Pin", Align::Left)));
    let mut table = Table::new(&columns).optional(&OPTIONAL);
    for version in versions {
        let summary = &version.summary;
        let statistics = &summary.statistics;
        let mut row = vec![
            summary.id.short(),
            time::show(summary.time_ms),
            safe(&summary.host),
            safe(&summary.domain_name),
            cut(&safe(&summary.tags.join(",")), TAG_SHOWN),
            safe(&summary.series),
            sizes::show(statistics.logical_bytes),
            sizes::show(statistics.added_bytes),
            sizes::show(statistics.stored_bytes),
        ];
        row.extend(known.free.as_ref().map(|_| known.free(version).map_or_else(|| "?".to_owned(), sizes::show)));
        row.extend(any_pinned.then(|| if is_pinned(version) { "pinned".to_owned() } else { String::new() }));
        table.row(row);
    }
    if versions.iter().all(|version| version.summary.domain_name.is_empty()) {
        table.leave_out("Domain");
    }
    if versions.iter().all(|version| names_host(&version.summary)) {
        table.leave_out("Host");
    }
    if versions.iter().all(|version| version.summary.tags.is_empty()) {
        table.leave_out("Tags");
    }
    if is_compact {
        // The host stays if no series names it: otherwise two snapshots would look the same.
        OPTIONAL.into_iter().filter(|head| *head != "Host").for_each(|head| table.leave_out(head));
    }
    app.out.table(table)
}

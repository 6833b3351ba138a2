//! `larder stats`.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::layout::Layout;
use larder_reader::{RepositoryStats, stats};
use larder_store::catalog::Version;
use serde_json::{Map, Value, json};

use super::reclaimable::Free;
use crate::app::App;
use crate::args::{StatsArgs, StatsBy};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Align, Table, safe};
use crate::refs::Versions;
use crate::restic;
use crate::sizes;

pub(super) fn run(app: &App, args: &StatsArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    let versions = match args.by {
        Some(StatsBy::Tag) => Versions::load_tagged(app, &opened.repository, &args.filter)?.0,
        _ => Versions::load(app, &opened.repository, &args.filter)?,
    };
    let found = versions.find_all(app, &args.ids)?;
    let context = app.reading(opened.repository);
    let total = stats(&context, &found)?;
    let free = Free::read(app, &context, &versions)?;
    let free_of = |versions: &[Version]| match &free {
        Some(free) => free.of_one(app, &context, versions),
        None => Ok(None),
    };
    let mut groups = Vec::new();
    if let Some(by) = args.by {
        let named = grouped(&found, by);
        let lists: Vec<&[Version]> = named.iter().map(|(_, versions)| versions.as_slice()).collect();
        // A version may have several tags.
        let all_free = match &free {
            Some(free) if by != StatsBy::Tag => free.of_groups(app, &context, &lists)?,
            _ => None,
        };
        for (number, (name, versions)) in named.iter().enumerate() {
            let alone = match &all_free {
                Some(all_free) => all_free.get(number).copied(),
                None => free_of(versions)?,
            };
            groups.push(Group {
                name: name.clone(),
                stats: stats(&context, versions)?,
                free: alone,
                layouts: layouts(versions),
            });
        }
    }
    if app.out.is_json() {
        let mut object = json_of(&total);
        object.insert("free_bytes".to_owned(), json!(free_of(&found)?));
        object.insert("layouts".to_owned(), json!(layouts(&found)));
        put_history(&mut object, &found);
        if args.by.is_some() {
            let groups: Vec<_> = groups
                .iter()
                .map(|Group { name, stats, free, layouts }| {
                    let mut object = json_of(stats);
                    object.insert("free_bytes".to_owned(), json!(free));
                    object.insert("layouts".to_owned(), json!(layouts));
                    object.insert("name".to_owned(), json!(name));
                    object
                })
                .collect();
            object.insert("groups".to_owned(), json!(groups));
        }
        let value = match restic::is_on() {
            true => restic::stats(&object, args.mode.as_deref()),
            false => Value::Object(object),
        };
        app.out.json(&value)?;
    } else {
        print_total(app, &total, &layouts(&found), free_of(&found)?)?;
        print_history(app, &History::of(&found))?;
        if args.by.is_some() {
            app.out.line("")?;
            print_groups(app, &groups)?;
        }
    }
    versions.warn_of_damage(app);
    Ok(Exit::Done)
}

/// The numbers of each group with `--by`.
struct Group {
    name: String,
    stats: RepositoryStats,
    free: Option<u64>,
    layouts: Vec<&'static str>,
}

/// Layouts to report; `None`: all are standard.
fn special_layouts<'l, 's>(layouts: &'l [&'s str]) -> Option<&'l [&'s str]> {
    (!layouts.is_empty() && layouts != [Layout::Standard.name()]).then_some(layouts)
}

/// The layouts that these versions have.
fn layouts(versions: &[Version]) -> Vec<&'static str> {
    let all: BTreeSet<Layout> = versions.iter().map(|version| version.summary.layout).collect();
    all.into_iter().map(Layout::name).collect()
}

/// Snapshots in the order of time, everything else by name.
fn grouped(versions: &[Version], by: StatsBy) -> Vec<(String, Vec<Version>)> {
    if by == StatsBy::Snapshot {
        let mut versions = versions.to_vec();
        versions.sort_by_key(Version::rank);
        return versions.into_iter().map(|version| (version.id().short(), vec![version])).collect();
    }
    let mut groups: BTreeMap<String, Vec<Version>> = BTreeMap::new();
    for version in versions {
        let summary = &version.summary;
        let names = match by {
            StatsBy::Series | StatsBy::Snapshot => vec![summary.series.clone()],
            StatsBy::Host => vec![summary.host.clone()],
            StatsBy::Tag => summary.tags.clone(),
        };
        for name in names {
            groups.entry(name).or_default().push(version.clone());
        }
    }
    groups.into_iter().collect()
}

fn json_of(stats: &RepositoryStats) -> Map<String, Value> {
    let stored = stats.stored_data_bytes + stats.stored_meta_bytes;
    let value = json!({
        "snapshots_count": stats.versions,
        "total_file_count": stats.files,
        "total_size": stats.logical_bytes,
        "total_uncompressed_size": stats.unique_bytes,
        "logical_bytes": stats.logical_bytes,
        "unique_bytes": stats.unique_bytes,
        "stored_bytes": stored,
        "stored_data_bytes": stats.stored_data_bytes,
        "stored_meta_bytes": stats.stored_meta_bytes,
        "containers": stats.containers,
        "repository_bytes": stats.repository_bytes,
        "repository_objects": stats.repository_objects,
        "compression_ratio": ratio(stats.unique_bytes, stored),
        "deduplication_ratio": ratio(stats.logical_bytes, stats.unique_bytes),
    });
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// The use of history by the backups of these versions.
fn put_history(object: &mut Map<String, Value>, versions: &[Version]) {
    let History { read, predicted, right, wrong } = History::of(versions);
    for (key, value) in [
        ("read_bytes", read),
        ("predicted_bytes", predicted),
        ("predictions_right", right),
        ("predictions_wrong", wrong),
    ] {
        object.insert(key.to_owned(), json!(value));
    }
}

/// Sums of the chunks that backups read, and of those that their bases predicted.
#[derive(Debug, Default)]
struct History {
    read: u64,
    predicted: u64,
    right: u64,
    wrong: u64,
}

impl History {
    fn of(versions: &[Version]) -> Self {
        versions.iter().map(|version| &version.summary.statistics).fold(Self::default(), |sum, backup| Self {
            read: sum.read + backup.read_bytes,
            predicted: sum.predicted + backup.predicted_bytes,
            right: sum.right + backup.predictions_right,
            wrong: sum.wrong + backup.predictions_wrong,
        })
    }
}

fn ratio(whole: u64, part: u64) -> Option<f64> {
    (part > 0).then(|| (whole as f64 / part as f64 * 1000.0).round() / 1000.0)
}

fn print_total(app: &App, stats: &RepositoryStats, layouts: &[&str], free: Option<u64>) -> Result<(), Failure> {
    let stored = stats.stored_data_bytes + stats.stored_meta_bytes;
    // Less than one means that containers hold data of other snapshots, so it is no ratio of these.
    let times = |ratio: Option<f64>| {
        ratio.filter(|ratio| *ratio >= 1.0).map_or_else(String::new, |ratio| format!(", {ratio:.2} to 1"))
    };
    let lines = [
        format!(
            "Snapshots   {:>12}   {}{}",
            stats.versions,
            sizes::count(stats.files, "file"),
            special_layouts(layouts).map_or_else(String::new, |layouts| format!(", layout {}", layouts.join(" and ")))
        ),
        format!("Logical     {:>12}   restored files", sizes::show(stats.logical_bytes)),
        format!(
            "Unique      {:>12}   in whole containers, uncompressed{}",
            sizes::show(stats.unique_bytes),
            times(ratio(stats.logical_bytes, stats.unique_bytes))
        ),
        format!(
            "Stored      {:>12}   in whole containers{}",
            sizes::show(stored),
            times(ratio(stats.unique_bytes, stored))
        ),
        format!("  data      {:>12}", sizes::show(stats.stored_data_bytes)),
        format!(
            "  metadata  {:>12}   {}",
            sizes::show(stats.stored_meta_bytes),
            sizes::count(stats.containers, "container")
        ),
        format!(
            "Free        {:>12}   if these snapshots were forgotten",
            free.map_or_else(|| "?".to_owned(), sizes::show)
        ),
        format!(
            "Repository  {:>12}   in {} (total)",
            sizes::show(stats.repository_bytes),
            sizes::count(stats.repository_objects, "object")
        ),
    ];
    lines.iter().try_for_each(|line| app.out.line(line))
}

/// Prints nothing where no base predicted anything.
fn print_history(app: &App, history: &History) -> Result<(), Failure> {
    let History { read, predicted, right, wrong } = history;
    if right + wrong == 0 {
        return Ok(());
    }
    let (predicted, read) = (sizes::show(*predicted), sizes::show(*read));
    app.out.line(format!("Predicted   {predicted:>12}   of {read} read by backups: {right} hits, {wrong} misses"))
}

fn print_groups(app: &App, groups: &[Group]) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("Name", Align::Cut),
        ("Layout", Align::Left),
        ("Snapshots", Align::Right),
        ("Files", Align::Right),
        ("Logical", Align::Right),
        ("Unique", Align::Right),
        ("Stored", Align::Right),
        ("Free", Align::Right),
    ])
    .optional(&["Layout", "Files", "Unique"]);
    for Group { name, stats, free, layouts } in groups {
        table.row(vec![
            safe(name),
            layouts.join(","),
            stats.versions.to_string(),
            stats.files.to_string(),
            sizes::show(stats.logical_bytes),
            sizes::show(stats.unique_bytes),
            sizes::show(stats.stored_data_bytes + stats.stored_meta_bytes),
            free.map_or_else(|| "?".to_owned(), sizes::show),
        ]);
    }
    if groups.iter().all(|group| special_layouts(&group.layouts).is_none()) {
        table.leave_out("Layout");
    }
    app.out.table(table)
}

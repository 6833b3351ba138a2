//! `larder stats`.

use std::collections::BTreeMap;

use larder_lnode::stats::{RepositoryStats, stats};
use larder_store::catalog::Version;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::{StatsArgs, StatsBy};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Align, Table, safe};
use crate::refs::Versions;
use crate::sizes;

pub(super) fn run(app: &App, args: &StatsArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    let versions = Versions::load(app, &opened.repository, &args.filter)?;
    let found = versions.find_all(app, &args.ids)?;
    let context = app.reading(opened.repository);
    let total = stats(&context, &found)?;
    let mut groups = Vec::new();
    if let Some(by) = args.by {
        for (name, versions) in grouped(&found, by) {
            groups.push((name, stats(&context, &versions)?));
        }
    }
    if app.out.is_json() {
        let mut object = json_of(&total);
        if args.by.is_some() {
            let groups: Vec<_> = groups
                .iter()
                .map(|(name, stats)| {
                    let mut object = json_of(stats);
                    object.insert("name".to_owned(), json!(name));
                    object
                })
                .collect();
            object.insert("groups".to_owned(), json!(groups));
        }
        app.out.json(&object)?;
    } else {
        print_total(app, &total)?;
        if args.by.is_some() {
            app.out.line("")?;
            print_groups(app, &groups)?;
        }
    }
    versions.warn_of_damage(app);
    Ok(Exit::Done)
}

fn grouped(versions: &[Version], by: StatsBy) -> BTreeMap<String, Vec<Version>> {
    let mut groups: BTreeMap<String, Vec<Version>> = BTreeMap::new();
    for version in versions {
        let summary = &version.summary;
        let names = match by {
            StatsBy::Snapshot => vec![version.id().short()],
            StatsBy::Series => vec![summary.series.clone()],
            StatsBy::Host => vec![summary.host.clone()],
            StatsBy::Tag => summary.tags.clone(),
        };
        for name in names {
            groups.entry(name).or_default().push(version.clone());
        }
    }
    groups
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

fn ratio(whole: u64, part: u64) -> Option<f64> {
    (part > 0).then(|| (whole as f64 / part as f64 * 1000.0).round() / 1000.0)
}

fn print_total(app: &App, stats: &RepositoryStats) -> Result<(), Failure> {
    let stored = stats.stored_data_bytes + stats.stored_meta_bytes;
    let times = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("   {ratio:.2} to 1"));
    let lines = [
        format!("Snapshots   {:>12}   {}", stats.versions, sizes::count(stats.files, "file")),
        format!("Logical     {:>12}", sizes::show(stats.logical_bytes)),
        format!(
            "Unique      {:>12}{}",
            sizes::show(stats.unique_bytes),
            times(ratio(stats.logical_bytes, stats.unique_bytes))
        ),
        format!("Stored      {:>12}{}", sizes::show(stored), times(ratio(stats.unique_bytes, stored))),
        format!("  data      {:>12}", sizes::show(stats.stored_data_bytes)),
        format!(
            "  metadata  {:>12}   {}",
            sizes::show(stats.stored_meta_bytes),
            sizes::count(stats.containers, "container")
        ),
        format!(
            "Repository  {:>12}   {}, whoever uses them",
            sizes::show(stats.repository_bytes),
            sizes::count(stats.repository_objects, "object")
        ),
    ];
    lines.iter().try_for_each(|line| app.out.line(line))
}

fn print_groups(app: &App, groups: &[(String, RepositoryStats)]) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("Name", Align::Left),
        ("Snapshots", Align::Right),
        ("Files", Align::Right),
        ("Logical", Align::Right),
        ("Unique", Align::Right),
        ("Stored", Align::Right),
    ]);
    for (name, stats) in groups {
        table.row(vec![
            safe(name),
            stats.versions.to_string(),
            stats.files.to_string(),
            sizes::show(stats.logical_bytes),
            sizes::show(stats.unique_bytes),
            sizes::show(stats.stored_data_bytes + stats.stored_meta_bytes),
        ]);
    }
    table.lines().iter().try_for_each(|line| app.out.line(line))
}

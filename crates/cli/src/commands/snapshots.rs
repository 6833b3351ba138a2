//! `larder snapshots`.

use std::collections::BTreeMap;

use larder_store::catalog::Version;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::args::{GroupBy, SnapshotsArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Align, Table, absolute, safe, summary};
use crate::refs::Versions;
use crate::{sizes, time};

pub(super) fn run(app: &App, args: &SnapshotsArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    let versions = Versions::load(app, &opened.repository, &args.filter)?;
    let mut found = versions.find_all(app, &args.ids)?;
    found.sort_by_key(|version| (version.summary.time_ms, version.id()));
    let by = if args.group_by.is_empty() { vec![GroupBy::Series] } else { args.group_by.clone() };
    if let Some(count) = args.latest {
        found = newest_of_each(found, &by, count);
    }
    if args.group_by.is_empty() {
        print_list(app, &found)?;
    } else {
        print_groups(app, &found, &by)?;
    }
    versions.warn_of_damage(app);
    Ok(Exit::Done)
}

/// What the versions of one group have in common.
type GroupKey = Vec<(&'static str, Vec<String>)>;

fn group_key(version: &Version, by: &[GroupBy]) -> GroupKey {
    let summary = &version.summary;
    by.iter()
        .map(|by| match by {
            GroupBy::Host => ("hostname", vec![summary.host.clone()]),
            GroupBy::Series => ("series", vec![summary.series.clone()]),
            GroupBy::Tags => ("tags", summary.tags.clone()),
            GroupBy::Paths => ("paths", summary.paths.iter().map(|path| absolute(path)).collect()),
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

fn print_list(app: &App, versions: &[Version]) -> Result<(), Failure> {
    if app.out.is_json() {
        let all: Vec<_> = versions.iter().map(summary::version).collect();
        return app.out.json(&all);
    }
    if versions.is_empty() {
        return app.out.info("no snapshots");
    }
    print_table(app, versions)?;
    app.out.info(sizes::count(versions.len() as u64, "snapshot"))
}

fn print_groups(app: &App, versions: &[Version], by: &[GroupBy]) -> Result<(), Failure> {
    let mut groups: BTreeMap<GroupKey, Vec<Version>> = BTreeMap::new();
    for version in versions {
        groups.entry(group_key(version, by)).or_default().push(version.clone());
    }
    if app.out.is_json() {
        let groups: Vec<_> = groups
            .iter()
            .map(|(key, versions)| {
                let key: Map<String, Value> = key
                    .iter()
                    .map(|(name, values)| match *name {
                        "hostname" | "series" => ((*name).to_owned(), json!(values.first())),
                        _ => ((*name).to_owned(), json!(values)),
                    })
                    .collect();
                json!({"group_key": key, "snapshots": versions.iter().map(summary::version).collect::<Vec<_>>()})
            })
            .collect();
        return app.out.json(&groups);
    }
    for (key, versions) in &groups {
        let key: Vec<_> = key.iter().map(|(name, values)| format!("{name} [{}]", safe(&values.join(", ")))).collect();
        app.out.line(format!("snapshots of {}:", key.join(", ")))?;
        print_table(app, versions)?;
        app.out.line(sizes::count(versions.len() as u64, "snapshot"))?;
        app.out.line("")?;
    }
    Ok(())
}

fn print_table(app: &App, versions: &[Version]) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("Time", Align::Left),
        ("Host", Align::Left),
        ("Tags", Align::Left),
        ("Series", Align::Left),
        ("Size", Align::Right),
        ("Added", Align::Right),
        ("Shared", Align::Right),
    ]);
    for version in versions {
        let summary = &version.summary;
        let statistics = &summary.statistics;
        table.row(vec![
            summary.id.short(),
            time::show(summary.time_ms),
            safe(&summary.host),
            safe(&summary.tags.join(",")),
            safe(&summary.series),
            sizes::show(statistics.logical_bytes),
            sizes::show(statistics.stored_bytes),
            sizes::show(summary::shared(statistics)),
        ]);
    }
    table.lines().iter().try_for_each(|line| app.out.line(line))
}

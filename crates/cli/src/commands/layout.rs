//! `larder layout`: the triangle of categories of a series, its volumes, and the space that
//! forgetting each snapshot frees.

mod svg;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_format::manifest::Summary;
use larder_lifecycle::lifecycle_map::{
    Categories, CategorizedVersion, Category, CategorySize, Freed, Last, Progress, Volume, categories,
};
use larder_store::catalog::Version;
use serde_json::{Value, json};

use super::reclaimable::Free;
use crate::app::App;
use crate::args::{FilterArgs, LayoutArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Align, Table, safe};
use crate::refs::Versions;
use crate::{sizes, time};

/// This number of columns fits on a terminal; a larger triangle is shown as a list.
const COLUMNS_MAX: usize = 10;

pub(super) fn run(app: &App, args: &LayoutArgs) -> Result<Exit, Failure> {
    let opened = app.open()?;
    let filter = FilterArgs { series: vec![args.series.clone()], ..FilterArgs::default() };
    let mut versions = Versions::load(app, &opened.repository, &filter)?;
    let domain = args.domain.as_deref().unwrap_or_default();
    versions.admitted.retain(|version| version.summary.domain_name == domain);
    let Some(key) = versions.admitted.last().map(|version| version.series) else {
        versions.warn_of_damage(app);
        return Err(super::series::no_such(&args.series));
    };
    let context = app.reading(opened.repository);
    let is_standard = || {
        let message =
            format!("series {} is in the layout {}: it has no categories", safe(&args.series), Layout::Standard);
        Failure::new(Exit::Failed, message).advise("`larder stats` says how much it takes")
    };
    let needing_rebuild = app.block_on(super::series::series_needing_rebuild(&context.repository));
    let needs_rebuild = needing_rebuild.contains(&key);
    let picture = match Free::read(app, &context, &versions)? {
        Some(free) => {
            let found = free.categories(key).ok_or_else(is_standard)?;
            let each: Vec<&[Version]> = versions.admitted.chunks(1).collect();
            Picture::new(args.series.clone(), found, &versions.admitted, free.of_groups(app, &context, &each)?)
        }
        // Then the freed space is unknown, but the places of data are known.
        None => {
            let found = app.block_on(categories(&context.repository, &versions.admitted))?.remove(&key);
            Picture::new(args.series.clone(), &found.ok_or_else(is_standard)?, &versions.admitted, None)
        }
    };
    let picture = Picture { needs_rebuild, ..picture };
    if let Some(path) = &args.svg {
        std::fs::write(path, svg::draw(&picture)).map_err(|error| {
            Failure::of(Exit::Failed, &error).while_doing(&format!("cannot write {}", path.display()))
        })?;
    }
    if app.out.is_json() {
        app.out.json(&picture.json())?;
    } else {
        picture.print(app)?;
        if let Some(path) = &args.svg {
            app.out.info(format!("drawn into {}", path.display()))?;
        }
    }
    versions.warn_of_damage(app);
    Ok(Exit::Done)
}

/// The data to show.
struct Picture {
    series: String,
    index: u64,
    versions: Vec<Shown>,
    triangle: BTreeMap<Category, CategorySize>,
    volumes: BTreeMap<Last, Volume>,
    /// Whether passes cannot arrange it, because the index was rebuilt.
    needs_rebuild: bool,
}

/// A snapshot, and the space that forgetting it alone would free, if known: all bytes, and the data
/// among them.
struct Shown {
    version: CategorizedVersion,
    time_ms: u64,
    /// Of the chunks that its base does not have, the share (permille) that the version before the
    /// base has, if it was measured.
    skip_permille: Option<u32>,
    freed: Option<(u64, Freed)>,
}

impl Picture {
    /// `free`: the space that forgetting each of the versions alone frees, data and metadata.
    fn new(series: String, categories: &Categories, versions: &[Version], free: Option<Vec<u64>>) -> Self {
        let summaries: HashMap<JobId, &Summary> =
            versions.iter().map(|version| (version.id(), &version.summary)).collect();
        let free: HashMap<JobId, u64> = versions.iter().map(Version::id).zip(free.unwrap_or_default()).collect();
        let shown = categories.versions.iter().zip(categories.freed_alone()).map(|(version, freed)| Shown {
            version: *version,
            time_ms: summaries.get(&version.id).map_or(0, |summary| summary.time_ms),
            skip_permille: summaries.get(&version.id).and_then(|summary| summary.statistics.skip_permille),
            freed: free.get(&version.id).map(|bytes| (*bytes, freed)),
        });
        Self {
            series,
            index: categories.index,
            versions: shown.collect(),
            triangle: categories.triangle(),
            volumes: categories.volumes(),
            needs_rebuild: false,
        }
    }

    /// Numbers of versions that stored existing data, or are retained.
    fn firsts(&self) -> Vec<u32> {
        let retained = self.versions.iter().map(|shown| shown.version.number);
        let firsts: BTreeSet<u32> = self.triangle.keys().map(|category| category.first).chain(retained).collect();
        firsts.into_iter().collect()
    }

    /// The last versions of categories, rising; active ones come after all others.
    fn lasts(&self) -> Vec<Last> {
        let lasts = self.triangle.keys().map(|category| category.last).chain(self.volumes.keys().copied());
        lasts.chain([Last::Open]).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn retained(&self, number: u32) -> Option<&Shown> {
        self.versions.iter().find(|shown| shown.version.number == number)
    }

    /// The progress of passes, in words.
    fn progress(&self) -> String {
        let arranged = self.versions.iter().filter(|shown| shown.version.progress == Progress::Arranged).count();
        let all = self.versions.len();
        match (self.index, all - arranged) {
            _ if self.needs_rebuild => super::series::order_advice(&self.series),
            (0, _) => "no pass was made yet: everything is as it was stored".to_owned(),
            (_, 0) => format!("all of {} arranged", sizes::count(all as u64, "snapshot")),
            _ => format!(
                "{arranged} of {} arranged; what the others need is known by container only, until the next pass",
                sizes::count(all as u64, "snapshot")
            ),
        }
    }

    fn json(&self) -> Value {
        let snapshots: Vec<_> = self
            .versions
            .iter()
            .map(|shown| {
                let freed = shown.freed.as_ref();
                json!({
                    "id": shown.version.id.to_string(),
                    "number": shown.version.number,
                    "time": time::rfc3339(shown.time_ms),
                    "state": state(shown.version.progress),
                    "free_bytes": freed.map(|(bytes, _)| bytes),
                    "free_data_containers": freed.map(|(_, data)| data.containers),
                    "free_data_bytes": freed.map(|(_, data)| data.bytes.0),
                    "skip_permille": shown.skip_permille,
                })
            })
            .collect();
        let categories: Vec<_> = self
            .triangle
            .iter()
            .map(|(category, size)| {
                json!({
                    "first": category.first,
                    "last": last_json(category.last),
                    "bytes": size.bytes.0,
                    "needed_bytes": size.needed.0,
                    "extents": size.extents,
                    "containers": size.containers,
                })
            })
            .collect();
        let volumes: Vec<_> = self
            .volumes
            .iter()
            .map(|(last, volume)| {
                json!({
                    "last": last_json(*last),
                    "containers": volume.containers,
                    "stored_bytes": volume.object_bytes.0,
                    "bytes": volume.bytes.0,
                    "needed_bytes": volume.needed.0,
                })
            })
            .collect();
        json!({
            "series": self.series,
            "layout": Layout::Lifecycle.name(),
            "index": self.index,
            "needs_rebuild": self.needs_rebuild,
            "snapshots": snapshots,
            "categories": categories,
            "volumes": volumes,
        })
    }

    fn print(&self, app: &App) -> Result<(), Failure> {
        app.out.line(format!("Series {}, layout {}: {}", safe(&self.series), Layout::Lifecycle, self.progress()))?;
        app.out.line("")?;
        let print = |table: Table| app.out.table(table);
        print(self.snapshots_table())?;
        app.out.line("")?;
        app.out.line("Categories, by first and last snapshot (bytes of data, uncompressed):")?;
        match self.lasts().len() <= COLUMNS_MAX {
            true => print(self.matrix())?,
            false => print(self.list())?,
        }
        app.out.line("")?;
        app.out.line("Volumes, by last snapshot:")?;
        print(self.volumes_table())
    }

    fn snapshots_table(&self) -> Table {
        let mut table = Table::new(&[
            ("No", Align::Right),
            ("ID", Align::Left),
            ("Time", Align::Left),
            ("State", Align::Left),
            ("Free", Align::Right),
            ("Data", Align::Right),
            ("Containers", Align::Right),
            ("Skipped", Align::Right),
        ])
        .optional(&["Skipped", "Containers"]);
        for shown in &self.versions {
            let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
            table.row(vec![
                shown.version.number.to_string(),
                shown.version.id.short(),
                time::show(shown.time_ms),
                state(shown.version.progress).to_owned(),
                or_unknown(shown.freed.map(|(bytes, _)| sizes::show(bytes))),
                or_unknown(shown.freed.map(|(_, data)| sizes::show(data.bytes.0))),
                or_unknown(shown.freed.map(|(_, data)| data.containers.to_string())),
                shown.skip_permille.map_or_else(String::new, sizes::percent_of_thousand),
            ]);
        }
        table
    }

    fn matrix(&self) -> Table {
        let lasts = self.lasts();
        let names: Vec<String> = lasts.iter().map(|last| last_text(*last)).collect();
        let mut columns = vec![("First".to_owned(), Align::Right)];
        columns.extend(names.iter().map(|name| (name.clone(), Align::Right)));
        let mut table = Table::with_heads(columns);
        for first in self.firsts() {
            let mut row = vec![self.first_text(first)];
            row.extend(lasts.iter().map(|last| {
                let size = self.triangle.get(&Category { first, last: *last });
                size.map_or_else(String::new, |size| sizes::show(size.bytes.0))
            }));
            table.row(row);
        }
        table
    }

    fn list(&self) -> Table {
        let mut table = Table::new(&[
            ("First", Align::Right),
            ("Last", Align::Right),
            ("Size", Align::Right),
            ("Needed", Align::Right),
            ("Extents", Align::Right),
            ("Containers", Align::Right),
        ]);
        for (category, size) in &self.triangle {
            table.row(vec![
                self.first_text(category.first),
                last_text(category.last),
                sizes::show(size.bytes.0),
                sizes::show(size.needed.0),
                size.extents.to_string(),
                size.containers.to_string(),
            ]);
        }
        table
    }

    fn volumes_table(&self) -> Table {
        let mut table = Table::new(&[
            ("Last", Align::Right),
            ("Containers", Align::Right),
            ("Stored", Align::Right),
            ("Data", Align::Right),
            ("Needed", Align::Right),
        ]);
        for (last, volume) in &self.volumes {
            let share = volume.needed.0 as f64 * 100.0 / volume.bytes.0.max(1) as f64;
            table.row(vec![
                last_text(*last),
                volume.containers.to_string(),
                sizes::show(volume.object_bytes.0),
                sizes::show(volume.bytes.0),
                format!("{share:.1} %"),
            ]);
        }
        table
    }

    /// A forgotten snapshot may have stored data that others use.
    fn first_text(&self, number: u32) -> String {
        if self.retained(number).is_some() { number.to_string() } else { format!("({number})") }
    }
}

fn state(progress: Progress) -> &'static str {
    match progress {
        Progress::Committed => "new",
        Progress::Ingested => "ingested",
        Progress::Arranged => "arranged",
    }
}

fn last_text(last: Last) -> String {
    match last {
        Last::Version(number) => number.to_string(),
        Last::Open => "active".to_owned(),
    }
}

fn last_json(last: Last) -> Value {
    match last {
        Last::Version(number) => json!(number),
        Last::Open => Value::Null,
    }
}

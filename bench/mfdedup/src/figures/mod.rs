//! Pages: one for each figure, with a section for each set, and one with the targets over all.

mod duplicates;
mod restores;
mod space;
mod targets;
mod work;

use clap::ValueEnum as _;
use larder_bench_common::page::Page;
use larder_bench_common::plot::{Axis, Floor, Labels, Line, lines};
use larder_bench_common::table::Table;

use crate::run::{Results, Track, run};
use crate::sets::Set;
use crate::{Figure, Settings};

/// Writes a figure's section about one set.
type Section = fn(&mut Page, &Results, &Settings) -> anyhow::Result<()>;

/// Name of the page, its title, and what fills it.
fn content(figure: Figure) -> (&'static str, &'static str, Section) {
    match figure {
        Figure::Fig2 => ("fig2", "Figure 2: what the chunks of a version are", duplicates::fig2),
        Figure::Fig7 => ("fig7", "Figure 7: actual deduplication ratio", space::fig7),
        Figure::Fig8 => ("fig8", "Figure 8: backup throughput, and memory of fingerprint tables", work::fig8),
        Figure::Fig9 => ("fig9", "Figure 9: restore speed on the slow disk (modelled)", restores::fig9),
        Figure::Fig10 => ("fig10", "Figure 10: seeks of a restore", restores::fig10),
        Figure::Fig11 => ("fig11", "Figure 11: read amplification", restores::fig11),
        Figure::Fig12 => ("fig12", "Figure 12: arranging and collecting", work::fig12),
        Figure::Fig13 => ("fig13", "Figure 13: volumes and active categories", space::fig13),
        Figure::Holes => ("holes", "Larder's model by the share of a container that may have left", work::holes),
        Figure::Real | Figure::Disk | Figure::All => ("summary", "The targets, over all sets", targets::summary),
    }
}

const ALL: [Figure; 10] = [
    Figure::Fig2,
    Figure::Fig7,
    Figure::Fig8,
    Figure::Fig9,
    Figure::Fig10,
    Figure::Fig11,
    Figure::Fig12,
    Figure::Fig13,
    Figure::Holes,
    Figure::All,
];

pub(crate) fn make(figure: Figure, settings: &Settings) -> anyhow::Result<()> {
    match figure {
        Figure::Real => return real(settings),
        Figure::Disk => return disk(settings),
        _ => {}
    }
    let sets: Vec<Set> = settings.set.map_or_else(|| Set::MADE.to_vec(), |set| vec![set]);
    let figures = if figure == Figure::All { ALL.to_vec() } else { vec![figure] };
    let mut pages = Vec::new();
    for figure in figures {
        let (name, title, section) = content(figure);
        // A page about one set does not replace the one about all.
        let name = settings.set.map_or_else(|| name.to_owned(), |set| format!("{name}-{}", short(set)));
        pages.push((Page::new(&name, title, &settings.words(), &settings.out)?, section));
    }
    for set in sets {
        let results = run(settings, set)?;
        for (page, section) in &mut pages {
            let (first, last) = (&results.versions[0], &results.versions[results.versions.len() - 1]);
            let megabytes = |bytes| larder_bench_common::megabytes(bytes).round();
            page.say(&format!(
                "## {set}\n\n{} versions of {} to {} MB.",
                results.versions.len(),
                megabytes(first.bytes),
                megabytes(last.bytes)
            ));
            section(page, &results, settings)?;
        }
    }
    pages.into_iter().try_for_each(|(page, _)| page.finish())
}

/// The page about the real nodes. Data for it lies in memory, so it is not one of all.
fn real(settings: &Settings) -> anyhow::Result<()> {
    let sets: Vec<Set> = settings.set.map_or_else(|| Set::MADE.to_vec(), |set| vec![set]);
    let name = settings.set.map_or_else(|| "real".to_owned(), |set| format!("real-{}", short(set)));
    let mut page = Page::new(&name, "Larder's own nodes in both layouts", &settings.words(), &settings.out)?;
    for set in sets {
        page.say(&format!("## {set}"));
        crate::real::section(&mut page, settings, set)?;
    }
    page.finish()
}

/// The page about a real disk.
fn disk(settings: &Settings) -> anyhow::Result<()> {
    let sets: Vec<Set> = settings.set.map_or_else(|| Set::MADE.to_vec(), |set| vec![set]);
    let name = settings.set.map_or_else(|| "disk".to_owned(), |set| format!("disk-{}", short(set)));
    let mut page = Page::new(&name, "The newest version on a real disk", &settings.words(), &settings.out)?;
    crate::real_disk::page(&mut page, settings, &sets)?;
    page.finish()
}

/// The set's name in file names.
fn short(set: Set) -> String {
    set.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Versions with a row of their own in tables, besides the last.
fn is_shown(version: usize, versions: usize) -> bool {
    [1, 2, 3, 5, 10].contains(&version) || version.is_multiple_of(10) || version == versions
}

/// A value by version.
fn line(name: &str, values: impl IntoIterator<Item = f64>) -> Line {
    Line::new(name, values.into_iter().enumerate().map(|(place, value)| ((place + 1) as f64, value)))
}

/// A value of every track by version.
fn track_lines(tracks: &[&Track], value: impl Fn(&Track, usize) -> f64) -> Vec<Line> {
    tracks.iter().map(|track| line(&track.name, (0..track.stored.len()).map(|place| value(track, place)))).collect()
}

/// A table with a row for each shown version and a column for each line.
fn by_version(page: &mut Page, all: &[Line], digits: usize) {
    let mut table = Table::new(std::iter::once("version").chain(all.iter().map(|line| line.name.as_str())));
    let versions = all.first().map_or(0, |line| line.points.len());
    for place in (0..versions).filter(|place| is_shown(place + 1, versions)) {
        let values = all.iter().map(|line| format!("{:.digits$}", line.points[place].1));
        table.row(std::iter::once((place + 1).to_string()).chain(values));
    }
    page.table(&table);
}

/// Points of a plot's line at most, more or less: plots are kept in the tree.
const POINTS: usize = 24;

fn plot(page: &mut Page, set: Set, name: &str, title: &str, y: &str, all: &[Line]) -> anyhow::Result<()> {
    let thin = |line: &Line| {
        let (count, step) = (line.points.len(), line.points.len().div_ceil(POINTS).max(1));
        let shown = |place: &usize| place.is_multiple_of(step) || place + 1 == count;
        Line::new(line.name.clone(), (0..count).filter(shown).map(|place| line.points[place]))
    };
    let all: Vec<Line> = all.iter().map(thin).collect();
    let title = format!("{set}: {title}");
    let labels = Labels { title: &title, x: "version", y };
    page.plot(&format!("{}-{name}", short(set)), &lines(&labels, Axis::Linear, Floor::Zero, &all))
}

/// Places of the versions in steady state: all whose backup was followed by a deletion, or the later half when there are none.
fn steady(results: &Results, settings: &Settings) -> std::ops::Range<usize> {
    let versions = results.versions.len();
    let from = if versions > settings.keep { settings.keep } else { versions / 2 };
    from..versions
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count.max(1))
}

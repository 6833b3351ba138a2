//! Figures 7 and 13.

use larder_bench_common::megabytes;
use larder_bench_common::page::Page;
use larder_bench_common::plot::{Labels, bars};
use larder_bench_common::table::Table;

use super::{by_version, plot, short, track_lines};
use crate::Settings;
use crate::run::{EXACT, LARDER, Results, Track};

/// Bytes of the retained versions for a byte stored, after a version.
pub(super) fn ratio(results: &Results, track: &Track, place: usize) -> f64 {
    results.versions[place].retained as f64 / track.stored[place].max(1) as f64
}

pub(super) fn fig7(page: &mut Page, results: &Results, _: &Settings) -> anyhow::Result<()> {
    page.say("Bytes of all retained versions, for a byte in containers, volumes and categories. Recipes are not counted for anybody.");
    let tracks: Vec<&Track> = results.tracks[..=LARDER].iter().collect();
    let all = track_lines(&tracks, |track, place| ratio(results, track, place));
    by_version(page, &all, 2);
    plot(page, results.set, "ratio", "actual deduplication ratio", "x", &all)?;
    let last = results.versions.len() - 1;
    let mut table = Table::new(["at the end", "stored MB", "ratio", "x exact"]);
    for track in tracks {
        let own = ratio(results, track, last);
        table.row([
            track.name.clone(),
            format!("{:.1}", megabytes(track.stored[last])),
            format!("{own:.2}"),
            format!("{:.4}", own / ratio(results, &results.tracks[EXACT], last)),
        ]);
    }
    page.table(&table);
    page.say("The paper: MFDedup is very close to exact deduplication, and 1.12 to 2.19 times the others.");
    Ok(())
}

pub(super) fn fig13(page: &mut Page, results: &Results, _: &Settings) -> anyhow::Result<()> {
    page.say("MFDedup with nothing deleted: volumes by the last version that has their chunks, active categories by their first version.");
    let newest = results.versions[results.versions.len() - 1].bytes;
    let mut table = Table::new(["what", "number", "least MB", "mean MB", "most MB", "most, % of the newest version"]);
    for (what, sizes) in [("volumes", &results.volumes), ("active categories", &results.active)] {
        let bytes = || sizes.iter().map(|(_, bytes)| *bytes);
        let most = bytes().max().unwrap_or(0);
        table.row([
            what.to_owned(),
            sizes.len().to_string(),
            format!("{:.2}", megabytes(bytes().min().unwrap_or(0))),
            format!("{:.2}", megabytes(bytes().sum()) / sizes.len().max(1) as f64),
            format!("{:.2}", megabytes(most)),
            format!("{:.2}", most as f64 * 100.0 / newest.max(1) as f64),
        ]);
    }
    page.table(&table);
    for (name, x, sizes) in
        [("volumes", "last version", &results.volumes), ("active", "first version", &results.active)]
    {
        let title = format!("{}: {name}", results.set);
        let labels = Labels { title: &title, x, y: "MB" };
        let step = sizes.len().div_ceil(12).max(1);
        let bar = |(place, (version, bytes)): (usize, &(u32, u64))| {
            let name = if place.is_multiple_of(step) { version.to_string() } else { String::new() };
            (name, vec![megabytes(*bytes)])
        };
        let all: Vec<_> = sizes.iter().enumerate().map(bar).collect();
        page.plot(&format!("{}-{name}", short(results.set)), &bars(&labels, &[name], &all))?;
    }
    page.say("The paper: the largest active category is 16.99 % (WEB), 46.46 % (CHM), 18.49 % (VMS) and 51.87 % (SYN) of the newest version.");
    Ok(())
}

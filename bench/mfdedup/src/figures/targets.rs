//! What was to be reached, beside what was measured.

use larder_bench_common::page::Page;
use larder_bench_common::table::Table;

use super::restores::{amplification, speed};
use super::space::ratio;
use super::work::{moved, seconds};
use super::{mean, steady};
use crate::Settings;
use crate::disk::Disk;
use crate::run::{CAPPING, CAPPING_CMA, EXACT, HAR, HAR_CMA, LARDER, LARDER_ZERO, MFDEDUP, Results, Track};

/// Ways whose figures stand in the columns.
const WAYS: [usize; 3] = [MFDEDUP, LARDER_ZERO, LARDER];

pub(super) fn summary(page: &mut Page, results: &Results, settings: &Settings) -> anyhow::Result<()> {
    let last = results.versions.len() - 1;
    let ways = WAYS.map(|way| &results.tracks[way]);
    let mut table = Table::new(
        std::iter::once("at the end, or mean of later versions").chain(ways.iter().map(|way| way.name.as_str())),
    );
    let mut row = |what: &str, value: &dyn Fn(&Track) -> String| {
        table.row(std::iter::once(what.to_owned()).chain(ways.iter().map(|way| value(way))));
    };
    let share = |part: f64, whole: f64| part / whole.max(1e-9);
    for (name, rival) in [
        ("exact, perfect GC (>= 0.99)", EXACT),
        ("HAR, perfect GC (>= 1.12)", HAR),
        ("HAR, CMA (>= 1.12)", HAR_CMA),
        ("Capping, perfect GC (>= 1.12)", CAPPING),
        ("Capping, CMA (>= 1.12)", CAPPING_CMA),
    ] {
        let rival = ratio(results, &results.tracks[rival], last);
        row(&format!("ratio x {name}"), &|way| format!("{:.3}", share(ratio(results, way, last), rival)));
    }
    // Means over the last versions: between passes, and after them.
    let of = |place: usize| results.versions[place].bytes;
    let newest = |track: &Track| track.at_end(|place, read| speed(of(place), &read.usual));
    row("newest restored x HAR (>= 2.6)", &|way| format!("{:.2}", newest(way) / newest(&results.tracks[HAR])));
    let once = |track: &Track| track.at_end(|place, read| speed(of(place), &read.once));
    row("the same if HAR wrote out of order", &|way| format!("{:.2}", once(way) / once(&results.tracks[HAR])));
    let plain = |place: usize| of(place) as f64 / 1e6 / Disk::SLOW.plain_seconds(of(place));
    row("newest restored x plain read (>= 1)", &|way| {
        format!("{:.2}", way.at_end(|place, read| speed(of(place), &read.usual) / plain(place)))
    });
    let bound = results.tracks[HAR].at_end(|place, read| plain(place) / speed(of(place), &read.usual));
    row("a plain read x HAR", &|_| format!("{bound:.2}"));
    row("amplification, newest (<= 1.0 and 1.1)", &|way| {
        format!("{:.3}", way.at_end(|place, read| amplification(of(place), &read.usual)))
    });
    row("amplification, most of the retained", &|way| {
        let of = |(version, restored): &(u32, crate::schemes::Restored)| {
            amplification(results.versions[*version as usize - 1].bytes, &restored.usual)
        };
        format!("{:.3}", way.retained.iter().map(of).fold(0.0, f64::max))
    });
    row("extents read, newest; oldest retained", &|way| {
        let extents = |place: usize| way.retained.get(place).map_or(0, |(_, restored)| restored.usual.extents);
        format!("{}; {}", extents(way.retained.len().saturating_sub(1)), extents(0))
    });
    row("seeks, newest; oldest retained", &|way| {
        let seeks = |place: usize| way.retained.get(place).map_or(0, |(_, restored)| restored.usual.seeks);
        format!("{}; {}", seeks(way.retained.len().saturating_sub(1)), seeks(0))
    });
    let steady = steady(results, settings);
    let average = |value: &dyn Fn(usize) -> f64| mean(steady.clone().map(value));
    let written = |track: &Track| average(&|place| moved(track, place) as f64);
    row("arranging: bytes moved x MFDedup's (<= 0.25)", &|way| {
        format!("{:.3}", share(written(way), written(&results.tracks[MFDEDUP])))
    });
    let time = |track: &Track| average(&|place| seconds(track, place));
    for (name, rival) in [("exact", EXACT), ("HAR", HAR)] {
        row(&format!("arranging: time x perfect GC of {name} (< 1)"), &|way| {
            format!("{:.2}", share(time(way), time(&results.tracks[rival])))
        });
    }
    row("tables, bytes a distinct chunk of a version (<= 80)", &|way| {
        let chunks = results.versions.iter().map(|version| version.distinct).max().unwrap_or(1);
        format!("{:.1}", *way.tables.iter().max().unwrap_or(&0) as f64 / chunks as f64)
    });
    row("deleting the oldest: bytes read and written (0)", &|way| {
        let most = way.collected.iter().map(|work| work.read.bytes + work.written).max();
        most.unwrap_or(0).to_string()
    });
    row("deleting the oldest: objects deleted, most", &|way| {
        way.collected.iter().map(|work| work.deleted).max().unwrap_or(0).to_string()
    });
    page.table(&table);
    let kinds = results.versions.iter().fold(crate::run::Kinds::default(), |mut sum, version| {
        sum += version.kinds;
        sum
    });
    page.say(&format!(
        "Skip duplicates: {:.3} % of all duplicates.",
        kinds.skip as f64 * 100.0 / kinds.duplicates().max(1) as f64
    ));
    Ok(())
}

//! Figures 8 and 12: what backing up costs, and keeping order.

use larder_bench_common::megabytes;
use larder_bench_common::page::Page;
use larder_bench_common::table::Table;

use super::restores::{amplification, speed};
use super::space::ratio;
use super::{by_version, mean, plot, steady, track_lines};
use crate::Settings;
use crate::disk::{Disk, Work};
use crate::run::{CAPPING, EXACT, HAR, LARDER, LARDER_ZERO, MFDEDUP, Results, Track};
use crate::schemes::Restored;

pub(super) fn fig8(page: &mut Page, results: &Results, settings: &Settings) -> anyhow::Result<()> {
    page.say(
        "MB a second of one thread's CPU time for cutting, naming, and finding duplicates with what the scheme decides beside. Tables are the \
         same hash tables in memory for all; counted are 40 bytes for an entry, and 16 for one of a base of Larder's, as the program has them. \
         Nothing is written.",
    );
    let tracks: Vec<&Track> = [EXACT, HAR, CAPPING, MFDEDUP, LARDER].map(|place| &results.tracks[place]).into();
    let rate = |place: usize, seconds: f64| megabytes(results.versions[place].bytes) / seconds.max(1e-9);
    let front = |place: usize| results.versions[place].stages.total().as_secs_f64();
    let all = track_lines(&tracks, |track, place| rate(place, front(place) + track.lookup[place].as_secs_f64()));
    by_version(page, &all, 0);
    plot(page, results.set, "throughput", "backup throughput", "MB/s", &all)?;
    let steady = steady(results, settings);
    let mut table = Table::new([
        "means of later versions",
        "duplicates found, us a chunk",
        "MB/s",
        "tables, most MB",
        "bytes a chunk of the version",
    ]);
    for (track, line) in tracks.iter().zip(&all) {
        let most = track.tables.iter().copied().max().unwrap_or(0);
        let chunks = results.versions.iter().map(|version| version.distinct).max().unwrap_or(1);
        let microseconds =
            |place: usize| track.lookup[place].as_secs_f64() * 1e6 / results.versions[place].chunks as f64;
        table.row([
            track.name.clone(),
            format!("{:.3}", mean(steady.clone().map(microseconds))),
            format!("{:.0}", mean(steady.clone().map(|place| line.points[place].1))),
            format!("{:.2}", megabytes(most as u64)),
            format!("{:.1}", most as f64 / chunks as f64),
        ]);
    }
    page.table(&table);
    page.say("The paper: throughput equal for all; tables of 6.27 to 46.35 MB (NDF) and 26.81 to 64.45 MB (all of 20 versions).");
    Ok(())
}

/// All work of a version: arranging and collecting.
pub(super) fn work(track: &Track, place: usize) -> [&Work; 2] {
    [&track.arranged[place], &track.collected[place]]
}

pub(super) fn seconds(track: &Track, place: usize) -> f64 {
    work(track, place).iter().map(|work| Disk::SLOW.work_seconds(work)).sum()
}

/// Bytes written by it.
pub(super) fn moved(track: &Track, place: usize) -> u64 {
    work(track, place).iter().map(|work| work.written).sum()
}

pub(super) fn fig12(page: &mut Page, results: &Results, settings: &Settings) -> anyhow::Result<()> {
    page.say(
        "Seconds of the slow disk (modelled) after each version: arranging, or perfect collection of what the deletion of the oldest version left. \
         Choosing what to do is not counted, nor what reading recipes costs, for anybody.",
    );
    let tracks: Vec<&Track> =
        [EXACT, HAR, CAPPING, MFDEDUP, LARDER_ZERO, LARDER].map(|place| &results.tracks[place]).into();
    let all = track_lines(&tracks, seconds);
    by_version(page, &all, 2);
    plot(page, results.set, "seconds", "arranging, and perfect GC (modelled)", "s", &all)?;
    let steady = steady(results, settings);
    let bytes = mean(steady.clone().map(|place| megabytes(results.versions[place].bytes)));
    let paper = &results.tracks[MFDEDUP];
    let mut table = Table::new([
        "means of later versions",
        "read MB",
        "written MB",
        "written, % of a version",
        "written, % of MFDedup's",
        "seconds",
        "% of exact's GC",
        "objects deleted",
    ]);
    let average = |value: &dyn Fn(usize) -> f64| mean(steady.clone().map(value));
    let written = |track: &Track| average(&|place| megabytes(moved(track, place)));
    for track in &tracks {
        let read = |place: usize| work(track, place).iter().map(|work| megabytes(work.read.bytes)).sum::<f64>();
        let deleted = |place: usize| work(track, place).iter().map(|work| work.deleted as f64).sum::<f64>();
        table.row([
            track.name.clone(),
            format!("{:.1}", average(&read)),
            format!("{:.1}", written(track)),
            format!("{:.1}", written(track) * 100.0 / bytes),
            format!("{:.1}", written(track) * 100.0 / written(paper).max(1e-9)),
            format!("{:.2}", average(&|place| seconds(track, place))),
            format!(
                "{:.0}",
                average(&|place| seconds(track, place)) * 100.0 / average(&|place| seconds(tracks[0], place)).max(1e-9)
            ),
            format!("{:.1}", average(&deleted)),
        ]);
    }
    page.table(&table);
    let total = |track: &Track| (0..track.stored.len()).map(|place| seconds(track, place)).sum::<f64>();
    let totals: Vec<String> = tracks.iter().map(|track| format!("{} {:.1} s", track.name, total(track))).collect();
    page.say(&format!("Over all versions: {}.", totals.join(", ")));
    page.say(
        "The paper: arranging takes 45 % (WEB), 37 % (CHM), 109 % (VMS) and 25 % (SYN) of the time of perfect GC.",
    );
    Ok(())
}

pub(super) fn holes(page: &mut Page, results: &Results, settings: &Settings) -> anyhow::Result<()> {
    page.say(
        "Means of later versions; ratio and reads at the end, the newest version as a mean over the last 8, between passes and after them. \
         \"Moved\" is what arranging writes beside MFDedup's, \"time\" what it takes beside exact deduplication's perfect GC (modelled). \
         Containers are of 4 MiB and a pass follows every version unless said.",
    );
    let (steady, last) = (steady(results, settings), results.versions.len() - 1);
    let average = |value: &dyn Fn(usize) -> f64| mean(steady.clone().map(value));
    let paper = average(&|place| moved(&results.tracks[MFDEDUP], place) as f64).max(1e-9);
    let exact = &results.tracks[EXACT];
    let gc = average(&|place| seconds(exact, place)).max(1e-9);
    let mut table = Table::new([
        "holes",
        "ratio x exact",
        "moved",
        "time",
        "amplification",
        "most of the retained",
        "MB/s, newest",
        "extents, newest",
        "MB/s, oldest retained",
        "extents, oldest retained",
    ]);
    for track in [LARDER_ZERO].into_iter().chain(LARDER + 1..results.tracks.len()).map(|place| &results.tracks[place]) {
        let oldest = track.retained.first();
        let of =
            |(version, restored): &(u32, Restored)| (results.versions[*version as usize - 1].bytes, restored.usual);
        let (oldest_bytes, oldest) = oldest.map(of).unwrap_or_default();
        let all = track.retained.iter().map(of).map(|(bytes, reading)| amplification(bytes, &reading));
        table.row([
            track.name.clone(),
            format!("{:.3}", ratio(results, track, last) / ratio(results, exact, last)),
            format!("{:.3}", average(&|place| moved(track, place) as f64) / paper),
            format!("{:.2}", average(&|place| seconds(track, place)) / gc),
            format!("{:.3}", track.at_end(|place, read| amplification(results.versions[place].bytes, &read.usual))),
            format!("{:.3}", all.fold(0.0, f64::max)),
            format!("{:.0}", track.at_end(|place, read| speed(results.versions[place].bytes, &read.usual))),
            format!("{:.0}", track.at_end(|_, read| read.usual.extents as f64)),
            format!("{:.0}", speed(oldest_bytes, &oldest)),
            oldest.extents.to_string(),
        ]);
    }
    page.table(&table);
    Ok(())
}

//! Figures 9, 10 and 11: what a restore of the newest version costs after every version, and of every retained one at the end.

use larder_bench_common::page::Page;
use larder_bench_common::plot::Line;
use larder_bench_common::table::Table;

use super::{by_version, line, plot, track_lines};
use crate::Settings;
use crate::disk::{Disk, Reading};
use crate::run::{CAPPING, EXACT, HAR, HAR_CMA, LARDER, LARDER_ZERO, MEMORIES, MFDEDUP, Results, Track};

/// MB of the stream a second.
pub(super) fn speed(bytes: u64, reading: &Reading) -> f64 {
    bytes as f64 / 1e6 / Disk::SLOW.reading_seconds(reading).max(1e-9)
}

/// Bytes read for a byte of the stream.
pub(super) fn amplification(bytes: u64, reading: &Reading) -> f64 {
    reading.bytes as f64 / bytes.max(1) as f64
}

/// The tracks without Capping's markers, which are like HAR's: eight lines can be told apart, one is for the plain read.
fn shown(results: &Results) -> Vec<&Track> {
    [EXACT, HAR, HAR_CMA, CAPPING, MFDEDUP, LARDER_ZERO, LARDER].map(|place| &results.tracks[place]).into()
}

fn usual(results: &Results, value: impl Fn(u64, &Reading) -> f64) -> Vec<Line> {
    track_lines(&shown(results), |track, place| value(results.versions[place].bytes, &track.newest[place].usual))
}

/// A table of every retained version at the end.
fn retained(page: &mut Page, results: &Results, digits: usize, value: impl Fn(u64, &Reading) -> f64) {
    let tracks = shown(results);
    let mut table = Table::new(std::iter::once("version").chain(tracks.iter().map(|track| track.name.as_str())));
    let count = results.tracks[EXACT].retained.len();
    for place in (0..count).filter(|place| place.is_multiple_of(count.div_ceil(7)) || place + 1 == count) {
        let version = results.tracks[EXACT].retained[place].0;
        let bytes = results.versions[version as usize - 1].bytes;
        let values = tracks.iter().map(|track| format!("{:.digits$}", value(bytes, &track.retained[place].1.usual)));
        table.row(std::iter::once(version.to_string()).chain(values));
    }
    page.table(&table);
}

pub(super) fn fig9(page: &mut Page, results: &Results, settings: &Settings) -> anyhow::Result<()> {
    page.say(&format!(
        "MB of the stream a second: 10 ms for every seek, 180 MB/s between. HAR, Capping and exact deduplication restore in the order of the \
         stream, by whole containers, with memory for {} % of the version and a cache that knows the future; the layouts by lifecycle in \
         the order of the disk, as the paper's does. \"fread\" reads as many bytes as the version has in one go.",
        settings.cache_percent
    ));
    page.say("The newest version, after every version:");
    let mut all = usual(results, speed);
    all.push(line("fread", results.versions.iter().map(|v| v.bytes as f64 / 1e6 / Disk::SLOW.plain_seconds(v.bytes))));
    by_version(page, &all, 0);
    plot(page, results.set, "speed", "restore of the newest version (modelled)", "MB/s", &all)?;
    page.say("Every retained version, at the end:");
    retained(page, results, 0, speed);
    page.say(
        "The newest version at the end by memory for containers (% of the version), and if everybody wrote out of order and read every \
         container once, in the order of the disk:",
    );
    let bytes = results.versions[results.versions.len() - 1].bytes;
    let tracks = shown(results);
    let mut table = Table::new(std::iter::once("memory").chain(tracks.iter().map(|track| track.name.as_str())));
    for (place, percent) in MEMORIES.iter().enumerate() {
        let cell = |track: &&Track| format!("{:.1}", speed(bytes, &track.by_memory[place].usual));
        table.row(std::iter::once(format!("{percent} %")).chain(tracks.iter().map(cell)));
    }
    let cell = |track: &&Track| format!("{:.1}", speed(bytes, &track.by_memory[0].once));
    table.row(std::iter::once("out of order".to_owned()).chain(tracks.iter().map(cell)));
    page.table(&table);
    page.say("The paper, beside HAR: 11.64 x (WEB), 4.54 x (CHM), 2.63 x (VMS), 3.73 x (SYN).");
    Ok(())
}

pub(super) fn fig10(page: &mut Page, results: &Results, _: &Settings) -> anyhow::Result<()> {
    page.say(
        "Moves of the head; gaps of less than 1.8 MB are read over. What was written together lies together. The newest version, after every \
         version:",
    );
    let seeks = |_, reading: &Reading| reading.seeks as f64;
    let all = usual(results, seeks);
    by_version(page, &all, 0);
    plot(page, results.set, "seeks", "seeks of a restore of the newest version", "seeks", &all)?;
    page.say("Every retained version, at the end:");
    retained(page, results, 0, seeks);
    page.say("Extents that do not touch, read for every retained version at the end:");
    retained(page, results, 0, |_, reading| reading.extents as f64);
    page.say("Objects opened for it: containers, or volumes and active categories:");
    retained(page, results, 0, |_, reading| reading.objects as f64);
    page.say("The paper: thousands of seeks for HAR and Capping, 20 for MFDedup.");
    Ok(())
}

pub(super) fn fig11(page: &mut Page, results: &Results, _: &Settings) -> anyhow::Result<()> {
    page.say("Bytes read for a byte of the stream. The newest version, after every version:");
    let all = usual(results, amplification);
    by_version(page, &all, 3);
    plot(page, results.set, "amplification", "read amplification, newest version", "bytes a byte", &all)?;
    page.say("Every retained version, at the end:");
    retained(page, results, 3, amplification);
    page.say("The paper: MFDedup's is 34.32 % of Capping's and 50.19 % of HAR's on average, and less than 1 by internal duplicates.");
    Ok(())
}

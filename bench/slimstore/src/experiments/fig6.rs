//! Figure 6: merging long-lived runs into superchunks, by how much of the file repeats.

use larder_chunking::Algorithm;

use super::fig5::SKIPPING;
use super::{INDEX_MEMORY, Page, REPEATS, begin_page, spec, throughput};
use crate::Settings;
use crate::backup::{CONTAINER_BYTES, Detail, Front, Larder, Outcome, Output, With, front};
use crate::plot::{Axis, Floor, Labels, Line, lines};
use crate::sdb::{Duplication, SDb};
use crate::table::Table;

/// The papers' cutter, which is slow enough to be skipped, and Larder's, which is not.
const ALGORITHMS: [Algorithm; 2] = [Algorithm::FastCdc, Algorithm::MinCdc];
const DUPLICATION: [f64; 7] = [0.65, 0.70, 0.75, 0.80, 0.84, 0.90, 0.95];
/// Versions in all; those after the merging has come into effect are counted.
const VERSIONS: usize = 12;
/// First version counted, from 0: its base is the first that may hold superchunks of age 5.
const COUNTED: usize = 7;
/// Place of the way that factors are multiples of.
const REFERENCE: usize = 1;

struct Way {
    name: &'static str,
    with: With,
    outcome: Outcome,
    all_bytes: u64,
    all_stored: u64,
    merged: (u64, u64),
    proved: u64,
}

pub(crate) fn fig6(settings: &Settings) -> anyhow::Result<()> {
    let mut page = begin_page("fig6", "Figure 6: history-aware merging", settings)?;
    page.say(&format!(
        "Chunks of 4 KiB, {VERSIONS} versions, of which {} to {VERSIONS} are counted: chunks duplicate for five versions are merged then. \
         A superchunk here is a view over chunks that stay where they are, proved by one MAC; in the paper it is stored as a chunk of its own. \
         MB a second of real CPU time of one thread, the least disturbed of three runs. Ratio: share of all versions' bytes that is not stored. \
         Mean piece: bytes of the counted versions by pieces looked at, a proved run being one. Factors are multiples of the second way: skip \
         chunking alone, where the cutter is slow enough for it, else cutting everything. \"Back to back\" \
         are superchunks over chunks that lie so in one container and are equally old, of at most 1 MiB; the others take any chunks in a row, \
         of at most 128 KiB.",
        COUNTED + 1
    ));
    for algorithm in ALGORITHMS {
        page.say(&format!("## {algorithm}"));
        with_cutter(settings, &mut page, algorithm)?;
    }
    page.say("The paper, at 0.95: 125 to 155 MB/s (+24 %) for 0.9 % of the ratio; less speed and more loss at lower duplication.");
    page.finish()
}

fn with_cutter(settings: &Settings, page: &mut Page, algorithm: Algorithm) -> anyhow::Result<()> {
    let mut table = Table::new(["duplication, way", "MB/s", "factor", "ratio", "proved by runs", "mean piece KiB"]);
    let (mut speed, mut sizes): (Vec<Line>, Vec<Line>) = (Vec::new(), Vec::new());
    let front = front(algorithm, 4 << 10)?;
    for duplication in DUPLICATION {
        let mut ways = run(settings, &front, duplication);
        for _ in 1..REPEATS {
            for (way, again) in ways.iter_mut().zip(run(settings, &front, duplication)) {
                way.outcome = way.outcome.least(again.outcome);
            }
        }
        let reference = throughput(&ways[REFERENCE].outcome);
        for (index, way) in ways.iter().enumerate() {
            let pieces = way.outcome.chunks - way.merged.1 + way.merged.0;
            let mean = way.outcome.bytes as f64 / pieces as f64 / 1024.0;
            table.row([
                format!("{duplication:.2} {}", way.name),
                format!("{:.0}", throughput(&way.outcome)),
                format!("{:.2}", throughput(&way.outcome) / reference),
                format!("{:.5}", 1.0 - way.all_stored as f64 / way.all_bytes as f64),
                format!("{:.1} %", way.proved as f64 / way.outcome.bytes as f64 * 100.0),
                format!("{mean:.1}"),
            ]);
            if speed.len() <= index {
                speed.push(Line::new(way.name, []));
                sizes.push(Line::new(way.name, []));
            }
            speed[index].points.push((duplication, throughput(&way.outcome)));
            sizes[index].points.push((duplication, mean));
        }
    }
    page.table(&table);
    let title = format!("Merging, throughput ({algorithm})");
    let labels = Labels { title: &title, x: "duplication between neighbouring versions", y: "MB/s of CPU time" };
    page.plot(&format!("{algorithm}-a-speed"), &lines(&labels, Axis::Linear, Floor::Zero, &speed))?;
    let title = format!("Mean piece that is looked at ({algorithm})");
    let labels = Labels { title: &title, x: "duplication between neighbouring versions", y: "KiB" };
    page.plot(&format!("{algorithm}-b-mean-piece"), &lines(&labels, Axis::Linear, Floor::Zero, &sizes))
}

/// One run of all ways over the same bytes, taking turns version by version.
fn run(settings: &Settings, front: &Front, duplication: f64) -> Vec<Way> {
    let base = if front.chunker.is_worth_predicting() { SKIPPING } else { With::default() };
    let reference = if base.skipping { "skipping" } else { "cutting, again" };
    let ways = [
        ("cutting", With::default()),
        (reference, base),
        ("+ merging after 5", base.merging_after(5)),
        ("+ merging after 2", base.merging_after(2)),
        ("+ merging after 1", base.merging_after(1)),
        ("+ merging 5, proofs", With { proofs: true, ..base.merging_after(5) }),
        ("+ back to back after 5", base.merging_together(5)),
        ("+ back to back after 1", base.merging_together(1)),
    ];
    let mut runs: Vec<_> = ways
        .into_iter()
        .map(|(name, with)| {
            let outcome = Outcome::default();
            let way = Way { name, with, outcome, all_bytes: 0, all_stored: 0, merged: (0, 0), proved: 0 };
            (way, Larder::new(INDEX_MEMORY), Output::new(CONTAINER_BYTES))
        })
        .collect();
    let mut sdb = SDb::new(spec(settings, 2, 12.0, Duplication::Fixed(duplication)));
    for version in 0..VERSIONS {
        if version > 0 {
            sdb.advance();
        }
        let files: Vec<&[u8]> = sdb.files().collect();
        for (way, larder, output) in &mut runs {
            let outcome = larder.back_up(front, &files, way.with, Detail::Whole, output);
            if version >= COUNTED {
                way.outcome += outcome;
                way.proved += larder.proved_bytes();
                way.merged.0 += larder.proved_runs().0;
                way.merged.1 += larder.proved_runs().1;
            }
            way.all_bytes += outcome.bytes;
            way.all_stored = output.stored_bytes();
        }
    }
    runs.into_iter().map(|(way, ..)| way).collect()
}

//! Figure 5: skip chunking with three cutters, by chunk size and by how much of the file repeats.

use larder_chunking::Algorithm;

use super::{INDEX_MEMORY, Page, REPEATS, begin_page, spec, throughput};
use crate::Settings;
use crate::backup::{CONTAINER_BYTES, Detail, Front, Larder, Outcome, Output, Stages, With, front};
use crate::plot::{Axis, Floor, Labels, Line, bars, lines};
use crate::sdb::{Duplication, SDb, Spec};
use crate::table::Table;

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Rabin, Algorithm::FastCdc, Algorithm::MinCdc];
const SIZES_KIB: [u32; 5] = [4, 8, 16, 32, 64];
const DUPLICATION: [f64; 7] = [0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95];
/// Versions that are backed up; the first, which has no history, is not counted.
const VERSIONS: usize = 4;

pub(super) const SKIPPING: With = With { skipping: true, merging: None, proofs: false };

/// One way of backing up, and what its versions came to.
struct Side {
    with: With,
    whole: Outcome,
    by_stage: Stages,
    skips: (u64, u64),
    scanned: u64,
}

/// Without and with skip chunking, the least disturbed of several runs.
fn compare(front: &Front, spec: &Spec) -> [Side; 2] {
    let mut best = compare_once(front, spec.clone());
    for _ in 1..REPEATS {
        for (best, again) in best.iter_mut().zip(compare_once(front, spec.clone())) {
            best.whole = best.whole.least(again.whole);
            best.by_stage = if again.by_stage.total() < best.by_stage.total() { again.by_stage } else { best.by_stage };
        }
    }
    best
}

/// On the same bytes, taking turns version by version.
fn compare_once(front: &Front, spec: Spec) -> [Side; 2] {
    let mut sides = [With::default(), SKIPPING].map(|with| {
        let side = Side { with, whole: Outcome::default(), by_stage: Stages::default(), skips: (0, 0), scanned: 0 };
        // A pair each: one is timed as a whole, the other by stage.
        (
            side,
            [Detail::Whole, Detail::ByStage]
                .map(|detail| (detail, Larder::new(INDEX_MEMORY), Output::new(CONTAINER_BYTES))),
        )
    });
    let mut sdb = SDb::new(spec);
    for version in 0..VERSIONS {
        if version > 0 {
            sdb.advance();
        }
        let files: Vec<&[u8]> = sdb.files().collect();
        for (side, runs) in &mut sides {
            for (detail, larder, output) in runs {
                let outcome = larder.back_up(front, &files, side.with, *detail, output);
                if version > 0 && *detail == Detail::Whole {
                    side.whole += outcome;
                    side.skips.0 += larder.skips().hits;
                    side.skips.1 += larder.skips().misses;
                    side.scanned += larder.skips().scanned_bytes;
                } else if version > 0 {
                    side.by_stage += outcome.stages;
                }
            }
        }
    }
    sides.map(|(side, _)| side)
}

pub(crate) fn fig5(settings: &Settings) -> anyhow::Result<()> {
    let mut page = begin_page("fig5", "Figure 5: history-aware skip chunking", settings)?;
    page.say(
        "Throughput of cutting, naming and looking up, in MB a second of real CPU time of one thread, on data in memory; versions 2 to 4, \
         the least disturbed of three runs. \
         Nothing is compressed, sealed or uploaded. Ratio: share of these versions' bytes that is not stored. Scanned: bytes that skipping leaves to the cutter. Names are keyed BLAKE3 across \
         vector lanes, several times faster than the paper's SHA-1: what is left when chunking is gone is smaller here, so factors are larger.",
    );
    let mut table = sides_table("cutter, chunk");
    let (mut speed, mut ratios, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for algorithm in ALGORITHMS {
        let (mut speeds, mut ratio) = (Speeds::default(), Vec::new());
        for kib in SIZES_KIB {
            let front = front(algorithm, kib << 10)?;
            let sides = compare(&front, &spec(settings, 4, 12.0, Duplication::Spread));
            table.row(row(format!("{algorithm} {kib} KiB"), &sides));
            let [without, with] = &sides;
            speeds.push(f64::from(kib), &sides);
            ratio.push((f64::from(kib), with.whole.ratio()));
            if kib == 4 {
                for (name, side) in [("without", without), ("with", with)] {
                    shares.push((format!("{algorithm}\n{name}"), side.by_stage, side.whole.bytes));
                }
            }
        }
        speed.extend(speeds.lines(algorithm));
        ratios.push(Line::new(algorithm.to_string(), ratio));
    }
    page.say("## By chunk size");
    page.table(&table);
    let labels =
        Labels { title: "Skip chunking, throughput by chunk size", x: "mean chunk (KiB)", y: "MB/s of CPU time" };
    page.plot("a-speed-by-size", &lines(&labels, Axis::Doubling, Floor::Zero, &speed))?;
    let labels =
        Labels { title: "Deduplication ratio by chunk size", x: "mean chunk (KiB)", y: "share of bytes not stored" };
    page.plot("b-ratio-by-size", &lines(&labels, Axis::Doubling, Floor::Data, &ratios))?;
    by_duplication(settings, &mut page)?;
    breakdown(&mut page, &shares)?;
    page.say(
        "The paper: factor 2 for Rabin and 1.5 for FastCDC at equal ratio; chunking falls from about 60 % (Rabin) and 40 % (FastCDC) of the CPU \
         time to about 2 %. For MinCDC Larder itself does not predict single chunks: to confirm one of its cuts costs as much as to make it.",
    );
    page.finish()
}

/// A table of [`row`]s.
fn sides_table(first: &str) -> Table {
    let figures = ["without MB/s", "with MB/s", "factor", "ratio without", "ratio with", "hits", "misses", "scanned"];
    Table::new(std::iter::once(first).chain(figures))
}

/// Speeds of a cutter, to be drawn as two lines.
#[derive(Default)]
struct Speeds {
    without: Vec<(f64, f64)>,
    with: Vec<(f64, f64)>,
}

impl Speeds {
    fn push(&mut self, x: f64, [without, with]: &[Side; 2]) {
        self.without.push((x, throughput(&without.whole)));
        self.with.push((x, throughput(&with.whole)));
    }

    fn lines(self, algorithm: Algorithm) -> [Line; 2] {
        [Line::new(algorithm.to_string(), self.without), Line::new(format!("{algorithm} + skipping"), self.with)]
    }
}

fn row(name: String, [without, with]: &[Side; 2]) -> [String; 9] {
    [
        name,
        format!("{:.0}", throughput(&without.whole)),
        format!("{:.0}", throughput(&with.whole)),
        format!("{:.2}", throughput(&with.whole) / throughput(&without.whole)),
        format!("{:.4}", without.whole.ratio()),
        format!("{:.4}", with.whole.ratio()),
        with.skips.0.to_string(),
        with.skips.1.to_string(),
        format!("{:.1} %", with.scanned as f64 / with.whole.bytes as f64 * 100.0),
    ]
}

fn by_duplication(settings: &Settings, page: &mut Page) -> anyhow::Result<()> {
    let mut table = sides_table("cutter, duplication");
    let mut speed = Vec::new();
    for algorithm in ALGORITHMS {
        let front = front(algorithm, 4 << 10)?;
        let mut speeds = Speeds::default();
        for duplication in DUPLICATION {
            let sides = compare(&front, &spec(settings, 2, 16.0, Duplication::Fixed(duplication)));
            table.row(row(format!("{algorithm} {duplication:.2}"), &sides));
            speeds.push(duplication, &sides);
        }
        speed.extend(speeds.lines(algorithm));
    }
    page.say("## By duplication of the file, chunks of 4 KiB");
    page.table(&table);
    let labels = Labels {
        title: "Skip chunking, throughput by duplication (4 KiB)",
        x: "duplication between neighbouring versions",
        y: "MB/s of CPU time",
    };
    page.plot("c-speed-by-duplication", &lines(&labels, Axis::Linear, Floor::Zero, &speed))
}

fn breakdown(page: &mut Page, shares: &[(String, Stages, u64)]) -> anyhow::Result<()> {
    let mut table = Table::new(["4 KiB", "chunking", "naming", "look-up", "CPU s/GB"]);
    let mut parts = Vec::new();
    for (name, stages, bytes) in shares {
        let per_gb = |time: std::time::Duration| time.as_secs_f64() / (*bytes as f64 / 1e9);
        let total = stages.total().as_secs_f64().max(1e-9);
        let percent = |time: std::time::Duration| format!("{:.0} %", time.as_secs_f64() / total * 100.0);
        table.row([
            name.replace('\n', ", "),
            percent(stages.chunking),
            percent(stages.fingerprinting),
            percent(stages.lookup),
            format!("{:.2}", per_gb(stages.total())),
        ]);
        let values = [stages.chunking, stages.fingerprinting, stages.lookup].map(per_gb).to_vec();
        parts.push((name.clone(), values));
    }
    page.say("## Where the CPU time goes (timed apart from the runs above)");
    page.table(&table);
    let labels = Labels { title: "CPU time by stage (4 KiB)", x: "", y: "CPU seconds a GB" };
    page.plot("d-breakdown", &bars(&labels, &["chunking", "naming, loop", "look-up, recipe"], &parts))
}

//! Figure 7: throughput and ratio by version, beside SiLo, Sparse Indexing and an exact index, with one cutter for all.

use larder_chunking::Algorithm;

use super::{INDEX_MEMORY, Page, REPEATS, begin_page, rate, spec, throughput};
use crate::Settings;
use crate::backup::{
    CONTAINER_BYTES, Detail, Detector, Exact, Front, Larder, Outcome, Output, SiLo, SparseIndexing, Stages, With,
    detect, front,
};
use crate::clock::Link;
use crate::plot::{Axis, Floor, Labels, Line, lines};
use crate::sdb::{Duplication, SDb};
use crate::table::Table;

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Rabin, Algorithm::FastCdc, Algorithm::MinCdc];
/// Chunks of this age, in versions, are merged in the paper's way. Versions before this (from 0) have no such superchunks to go
/// by, those after [`MERGED`] have.
const MERGE_AFTER: u32 = 5;
const MERGED: usize = 7;
/// Places of the rivals that the targets name.
const SILO: usize = 1;
const SPARSE: usize = 2;

/// Who backs up.
enum Way {
    /// Pieces are cut and named before, by the same cutter for all of these.
    Rival(Box<dyn Detector>),
    Larder(Box<Larder>, With),
}

struct Run {
    name: &'static str,
    way: Way,
    output: Output,
    by_version: Vec<Outcome>,
    before: Outcome,
    after: Outcome,
}

impl Run {
    fn rival(name: &'static str, detector: impl Detector + 'static) -> Self {
        Self::new(name, Way::Rival(Box::new(detector)))
    }

    fn larder(name: &'static str, with: With) -> Self {
        Self::new(name, Way::Larder(Box::new(Larder::new(INDEX_MEMORY)), with))
    }

    fn new(name: &'static str, way: Way) -> Self {
        let output = Output::new(CONTAINER_BYTES);
        Self { name, way, output, by_version: Vec::new(), before: Outcome::default(), after: Outcome::default() }
    }

    fn resident_bytes(&self) -> usize {
        match &self.way {
            Way::Rival(detector) => detector.resident_bytes(),
            Way::Larder(larder, _) => larder.resident_bytes(),
        }
    }

    fn all(&self) -> Outcome {
        let mut all = Outcome::default();
        self.by_version.iter().for_each(|outcome| all += *outcome);
        all
    }
}

/// Larder in the last way is as it is: single chunks are predicted where the cutter is slow enough for it.
fn runs(front: &Front) -> Vec<Run> {
    let skipping = With { skipping: front.chunker.is_worth_predicting(), ..With::default() };
    let merging = skipping.merging_at_once();
    vec![
        Run::rival("exact index", Exact::new()),
        Run::rival("SiLo", SiLo::new()),
        Run::rival("Sparse Indexing", SparseIndexing::new()),
        Run::larder("Larder, look-up only", With::default()),
        Run::larder("+ skipping, if worth it", skipping),
        Run::larder("+ runs of four", merging),
        Run::larder("+ proofs: Larder as it is", With { proofs: true, ..merging }),
        Run::larder("skipping, merging after 5", skipping.merging_after(MERGE_AFTER)),
        Run::larder("skipping, merging back to back", skipping.merging_together(1)),
    ]
}

/// All ways over all versions, of each version the least disturbed of several runs.
fn compare(settings: &Settings, front: &Front) -> Vec<Run> {
    let mut best = compare_once(settings, front);
    for _ in 1..REPEATS {
        for (best, again) in best.iter_mut().zip(compare_once(settings, front)) {
            for (best, again) in best.by_version.iter_mut().zip(again.by_version) {
                *best = best.least(again);
            }
        }
    }
    for Run { by_version, before, after, .. } in &mut best {
        by_version[1..MERGE_AFTER as usize].iter().for_each(|outcome| *before += *outcome);
        by_version[MERGED..].iter().for_each(|outcome| *after += *outcome);
    }
    best
}

/// Taking turns version by version.
fn compare_once(settings: &Settings, front: &Front) -> Vec<Run> {
    let mut runs = runs(front);
    let mut sdb = SDb::new(spec(settings, 4, 12.0, Duplication::Spread));
    for version in 0..settings.versions {
        if version > 0 {
            sdb.advance();
        }
        let files: Vec<&[u8]> = sdb.files().collect();
        let mut stages = Stages::default();
        let pieces: Vec<_> = files.iter().map(|file| front.run(file, &mut stages)).collect();
        for Run { way, output, by_version, .. } in &mut runs {
            let outcome = match way {
                Way::Rival(detector) => {
                    let mut outcome = detect(&mut **detector, &pieces, output);
                    outcome.stages += stages;
                    outcome
                }
                Way::Larder(larder, with) => larder.back_up(front, &files, *with, Detail::Whole, output),
            };
            by_version.push(outcome);
        }
    }
    runs
}

/// MB a second when the node waits for everything it reads from the slow store, one request after the other. Simulated.
fn waiting(outcome: &Outcome) -> f64 {
    rate(outcome.bytes, outcome.stages.total().as_secs_f64() + Link::SLOW.seconds(outcome.traffic))
}

pub(crate) fn fig7(settings: &Settings) -> anyhow::Result<()> {
    anyhow::ensure!(settings.versions > MERGED, "figure 7 needs more than {MERGED} versions");
    let mut page = begin_page("fig7", "Figure 7: beside SiLo and Sparse Indexing", settings)?;
    page.say(&format!(
        "Chunks of {} KiB from one cutter for all, {} versions. MB a second of real CPU time of one thread for cutting, naming, looking \
         up and writing the recipe, of each version the least disturbed of three runs; every job starts with empty caches. The rivals' cutting and naming is timed once and counted for each of \
         them. Ratio: share of all versions' bytes that is not stored. Reads: requests to the store while deciding, a version. Waiting: \
         MB a second if each of these takes 30 ms and comes at 90 MB/s, one after the other (simulated; not overlapped, for nobody). \
         Resident: memory a node must keep between jobs. Early: versions 2 to {MERGE_AFTER}; late: versions {} and later, when merging after five versions is in effect. \
         All maps by fingerprint hash eight bytes of it, those of the rivals too.",
        settings.chunk_kib,
        settings.versions,
        MERGED + 1
    ));
    for algorithm in ALGORITHMS {
        let runs = compare(settings, &front(algorithm, settings.chunk_kib << 10)?);
        let late = |run: usize| throughput(&runs[run].after);
        let mut table = Table::new([
            "way",
            "early MB/s",
            "late MB/s",
            "x SiLo",
            "x Sparse",
            "early x SiLo",
            "early x Sparse",
            "ratio",
            "reads",
            "late, waiting MB/s",
            "resident MB",
        ]);
        for run in &runs {
            let all = run.all();
            let early = throughput(&run.before);
            table.row([
                run.name.to_owned(),
                format!("{early:.0}"),
                format!("{:.0}", throughput(&run.after)),
                format!("{:.2}", throughput(&run.after) / late(SILO)),
                format!("{:.2}", throughput(&run.after) / late(SPARSE)),
                format!("{:.2}", early / throughput(&runs[SILO].before)),
                format!("{:.2}", early / throughput(&runs[SPARSE].before)),
                format!("{:.5}", all.ratio()),
                format!("{:.1}", all.traffic.requests as f64 / settings.versions as f64),
                format!("{:.0}", waiting(&run.after)),
                format!("{:.2}", run.resident_bytes() as f64 / 1e6),
            ]);
        }
        page.say(&format!("## {algorithm}"));
        page.table(&table);
        if algorithm == settings.chunker {
            plots(&mut page, algorithm, &runs)?;
        }
    }
    page.say(
        "The paper: 1.32 x SiLo and 1.39 x Sparse Indexing before version 6, 1.63 x and 1.72 x after it, for 1.5 % of the ratio. Here a \
         superchunk is a view over chunks, so nothing of the ratio is given for it.",
    );
    page.finish()
}

fn plots(page: &mut Page, algorithm: Algorithm, runs: &[Run]) -> anyhow::Result<()> {
    let by_version = |value: fn(&Outcome) -> f64| -> Vec<Line> {
        let line = |run: &Run| {
            let points = run
                .by_version
                .iter()
                .enumerate()
                .skip(1)
                .map(|(version, outcome)| ((version + 1) as f64, value(outcome)));
            Line::new(run.name, points)
        };
        runs.iter().map(line).collect()
    };
    let title = format!("Backup throughput by version ({algorithm})");
    let labels = Labels { title: &title, x: "version", y: "MB/s of CPU time" };
    page.plot("a-throughput", &lines(&labels, Axis::Linear, Floor::Zero, &by_version(throughput)))?;
    let labels =
        Labels { title: "Share of each version that is not stored", x: "version", y: "share of bytes not stored" };
    page.plot("b-ratio", &lines(&labels, Axis::Linear, Floor::Data, &by_version(Outcome::ratio)))
}

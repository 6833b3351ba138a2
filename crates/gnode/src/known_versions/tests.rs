//! The times in the rows of versions.

use larder_format::ids::SeriesKey;

use super::*;

fn version(number: u8) -> Pin {
    Pin { series: SeriesKey([1; 16]), job: JobId([number; 16]) }
}

/// What a pass knows that builds on these rows and lists these times.
fn pass(rows: &[IndexedVersion], made_ms: &[(Pin, u64)]) -> KnownVersions {
    let mut known = KnownVersions {
        versions: rows.iter().map(|row| (Pin { series: row.series, job: row.job }, *row)).collect(),
        lifespans: Lifespans::new(0, &std::env::temp_dir(), 1 << 20),
        next_version: 1 + rows.len() as u32,
        retained: BTreeSet::new(),
        ingested: 0,
        newly_proved: 0,
        newly_settled: 0,
        settled: Default::default(),
        dropped: 0,
        held: HashSet::new(),
        counting: PerLayout::default(),
        series: SeriesChanges::new(false),
        sketches: Sketches::new(),
        made_ms: BTreeMap::new(),
        is_full: false,
    };
    known.note_made(made_ms.iter().copied().collect());
    known
}

fn contents() -> Contents {
    Contents { containers: Vec::new(), sketch: Sketch::default(), layout: Layout::Standard }
}

fn seen(rows: &[IndexedVersion]) -> Vec<u64> {
    rows.iter().map(|row| row.seen_ms).collect()
}

#[test]
fn rows_have_the_earliest_time_of_each_version() {
    // The store tells the time of one, and the other is as old as the pass that sees it.
    let mut first = pass(&[], &[(version(1), 500), (version(2), 0)]);
    first.ingest(version(1), 0, false, contents()).expect("there is room");
    first.ingest(version(2), 0, false, contents()).expect("there is room");
    let rows = first.rows(900);
    assert_eq!(seen(&rows), [500, 900]);
    // A copy made both later, and another generation is not another version.
    let mut copied = pass(&rows, &[(version(1), 1000), (version(2), 1000)]);
    copied.ingest(version(1), 1, true, contents()).expect("there is room");
    copied.retain(version(2));
    let rows = copied.rows(1100);
    assert_eq!((seen(&rows), rows[0].generation), (vec![500, 900], 1));
    // A listing that tells an earlier time is believed, and one without times changes nothing.
    assert_eq!(seen(&pass(&rows, &[(version(1), 400)]).rows(1200)), [400, 900]);
    assert_eq!(seen(&pass(&rows, &[]).rows(1200)), [500, 900]);
}

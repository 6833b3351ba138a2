//! Selects, among many series, those to compare with a stream. They share samples with it according
//! to the index, or the index does not have them yet (SlimStore section IV-A: the similar-file
//! index).
//!
//! Without an index, or with few series, all of them. The index saves reads and decides nothing:
//! sketches are compared as always.

use std::collections::HashMap;

use larder_format::ids::SeriesKey;
use larder_format::lease::Pin;
use larder_format::sketch::Sketch;
use larder_index::{IndexError, IndexIo, IndexSnapshot, LookupOptions, Streams, TableView};
use larder_job::JobContext;
use larder_reader::without_index;
use larder_store::RepositoryError;
use larder_store::newest_versions::ListedSeries;

/// This number of series is read without asking the index, which costs some consecutive requests.
const ALL_MAX: usize = 64;
/// Heads that are looked at without an index: those of the series that were backed up last.
const NEWEST_MAX: usize = 256;
/// The number of series with shared samples to read: those with most.
const LIKELY_MAX: usize = 16;

/// Drops series that cannot be like the stream. Returns whether another sketch could keep others.
pub(super) fn narrow(
    context: &JobContext,
    stream: &Sketch,
    series: &mut ListedSeries,
) -> Result<bool, RepositoryError> {
    if series.len() <= ALL_MAX {
        return Ok(false);
    }
    // A key that may only back up does not open the index.
    if context.repository.keys().secrets().index.is_none() {
        series.keep_newest(NEWEST_MAX);
        return Ok(false);
    }
    match context.executor.block_on(shared(context, stream)) {
        Ok(Some(Known { newest, likely })) => {
            series.retain(|version| {
                newest.get(&version.series).is_none_or(|known| *known != version) || likely.contains(&version.series)
            });
            Ok(true)
        }
        Ok(None) => Ok(false),
        Err(error) => without_index(error, "all series are looked at").map(|()| false),
    }
}

struct Known {
    /// The newest version that the index has of each series.
    newest: HashMap<SeriesKey, Pin>,
    likely: Vec<SeriesKey>,
}

/// The knowledge of the index, if there is one.
async fn shared(context: &JobContext, stream: &Sketch) -> Result<Option<Known>, IndexError> {
    let repository = &context.repository;
    let snapshot = IndexSnapshot::newest(repository).await?.snapshot;
    if snapshot.number == 0 {
        return Ok(None);
    }
    let (mut newest, mut numbers) = (HashMap::new(), HashMap::new());
    // Versions come by rising number; the newest is the one whose job began last.
    for row in &snapshot.manifest.versions {
        let version = Pin { series: row.series, job: row.job };
        let known = newest.entry(row.series).or_insert(version);
        if known.job <= row.job {
            *known = version;
            numbers.insert(row.series, row.number);
        }
    }
    let io = IndexIo { repository: repository.clone(), executor: context.executor.clone() };
    let streams: TableView<Streams> = TableView::new(io, &snapshot.manifest.runs, LookupOptions::default());
    let mut counts: HashMap<SeriesKey, usize> = HashMap::new();
    for (key, number) in streams.streams_of(stream.samples()).await? {
        // Otherwise only an older version had it. A rewritten version has a number above the
        // newest's.
        if numbers.get(&key.series).is_some_and(|newest| *newest <= number) {
            *counts.entry(key.series).or_default() += 1;
        }
    }
    let mut likely: Vec<_> = counts.into_iter().collect();
    // Among equals the newest comes first, as in the comparison of sketches.
    likely.sort_by_key(|(series, count)| std::cmp::Reverse((*count, newest.get(series).map(|version| version.job))));
    likely.truncate(LIKELY_MAX);
    Ok(Some(Known { newest, likely: likely.into_iter().map(|(series, _)| series).collect() }))
}

//! Which of many series are worth a look when a stream's like is wanted: those that the index says share samples with it, and those
//! that the index does not have yet (SlimStore section IV-A: the similar-file index).
//!
//! Without an index, or with few series, all of them. The index saves reads and decides nothing: sketches are compared as ever.

use std::collections::HashMap;

use larder_format::ids::SeriesKey;
use larder_format::lease::Pin;
use larder_format::sketch::Sketch;
use larder_index::{IndexError, IndexIo, IndexSnapshot, LookupOptions, Streams, TableView};
use larder_job::JobContext;
use larder_reader::without_index;
use larder_store::RepositoryError;
use larder_store::newest_versions::ListedSeries;

/// So many series are read without asking the index: asking costs some requests, one after the other.
const ALL_MAX: usize = 64;
/// Of those that share samples, so many are read: the ones with most.
const LIKELY_MAX: usize = 16;

/// Drops series that cannot be like the stream.
pub(super) fn narrow(context: &JobContext, stream: &Sketch, series: &mut ListedSeries) -> Result<(), RepositoryError> {
    if series.len() <= ALL_MAX {
        return Ok(());
    }
    match context.executor.block_on(shared(context, stream)) {
        Ok(Some(Known { newest, likely })) => {
            series.retain(|version| {
                newest.get(&version.series).is_none_or(|known| *known != version) || likely.contains(&version.series)
            });
            Ok(())
        }
        Ok(None) => Ok(()),
        Err(error) => without_index(error, "all series are looked at"),
    }
}

struct Known {
    /// The newest version that the index has of each series.
    newest: HashMap<SeriesKey, Pin>,
    likely: Vec<SeriesKey>,
}

/// What the index knows, if there is one.
async fn shared(context: &JobContext, stream: &Sketch) -> Result<Option<Known>, IndexError> {
    let repository = &context.repository;
    let snapshot = IndexSnapshot::newest(repository).await?.snapshot;
    if snapshot.number == 0 {
        return Ok(None);
    }
    let (mut newest, mut numbers) = (HashMap::new(), HashMap::new());
    // They come by rising number; newest is who began last.
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
        // Else only an older version had it. One that was rewritten has a number above the newest's.
        if numbers.get(&key.series).is_some_and(|newest| *newest <= number) {
            *counts.entry(key.series).or_default() += 1;
        }
    }
    let mut likely: Vec<_> = counts.into_iter().collect();
    // Of equals the newest comes first, as where sketches are compared.
    likely.sort_by_key(|(series, count)| std::cmp::Reverse((*count, newest.get(series).map(|version| version.job))));
    likely.truncate(LIKELY_MAX);
    Ok(Some(Known { newest, likely: likely.into_iter().map(|(series, _)| series).collect() }))
}

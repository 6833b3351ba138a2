//! The differences of a backup between layouts: chosen once for a job, by [`of`].
//!
//! `standard` shares chunks between all series, and a pass finds duplicates that a backup has
//! missed. `lifecycle` shares them within a series only, and no pass looks for more, so a backup
//! must find all duplicates by itself.

use std::fmt;
use std::path::PathBuf;

use larder_dedup::{Asked, GroupFilter, NewFile, OlderChunks, SpillingIndex};
use larder_format::layout::Layout;
use larder_format::manifest::Summary;
use larder_format::sketch::Sketch;

use super::BackupOptions;
use super::bases::BaseSegments;
use super::overflow::Overflow;

/// See the module header.
pub(super) trait LayoutPolicy: fmt::Debug + Send + Sync {
    /// The layout that the version records.
    fn layout(&self) -> Layout;

    /// Whether a series without versions looks for similar versions of others.
    fn finds_similar(&self, options: &BackupOptions) -> bool;

    /// The number of versions before the newest that may serve as bases too.
    fn bases_before(&self) -> usize;

    /// Whether an older version may be followed, when another machine made the newest.
    fn follows_older(&self) -> bool;

    /// Whether a version of `series` may share chunks with a base of this layout.
    fn shares_with(&self, base: &Summary, series: &str) -> bool;

    /// The sketch of the version's chunks for backups of other series.
    fn sketch_for_others(&self, sketch: Sketch) -> Sketch;

    /// The filter for the chunks of a base, in about `budget` bytes of memory.
    fn base_filter(
        &self,
        segments: BaseSegments,
        budget: usize,
        scratch: &Option<PathBuf>,
    ) -> GroupFilter<BaseSegments>;

    /// Whether the first base is always asked first: chunks of several bases are then named as in
    /// the first.
    fn asks_in_order(&self) -> bool;

    /// The filter for the job's own chunks that left its memory. `index` and `loaded` are bytes.
    fn older_chunks(
        &self,
        overflow: Overflow,
        index: usize,
        loaded: usize,
        scratch: &Option<PathBuf>,
    ) -> OlderChunks<Overflow>;
}

/// The policy of a layout.
pub(super) fn of(layout: Layout) -> &'static dyn LayoutPolicy {
    match layout {
        Layout::Standard => &Standard,
        Layout::Lifecycle => &Lifecycle,
    }
}

#[derive(Debug)]
struct Standard;

impl LayoutPolicy for Standard {
    fn layout(&self) -> Layout {
        Layout::Standard
    }

    fn finds_similar(&self, options: &BackupOptions) -> bool {
        options.find_similar
    }

    fn bases_before(&self) -> usize {
        0
    }

    fn follows_older(&self) -> bool {
        true
    }

    fn shares_with(&self, _: &Summary, _: &str) -> bool {
        true
    }

    fn sketch_for_others(&self, sketch: Sketch) -> Sketch {
        sketch
    }

    /// Finds chunks that come in runs, when memory is short. Others are stored again, and a pass
    /// deduplicates them.
    fn base_filter(&self, segments: BaseSegments, budget: usize, _: &Option<PathBuf>) -> GroupFilter<BaseSegments> {
        GroupFilter::new(segments, budget)
    }

    fn asks_in_order(&self) -> bool {
        false
    }

    fn older_chunks(
        &self,
        overflow: Overflow,
        index: usize,
        loaded: usize,
        _: &Option<PathBuf>,
    ) -> OlderChunks<Overflow> {
        OlderChunks::new(overflow, index, loaded)
    }
}

#[derive(Debug)]
struct Lifecycle;

impl LayoutPolicy for Lifecycle {
    fn layout(&self) -> Layout {
        Layout::Lifecycle
    }

    fn finds_similar(&self, _: &BackupOptions) -> bool {
        false
    }

    /// Two, when too much is lost without them. Releases of several lines, backed up in turn, find
    /// in the third base the chunks of their line. A fourth base gained nothing on any measured
    /// set.
    fn bases_before(&self) -> usize {
        2
    }

    /// Never: the chunks of an older version may have left the series with the newest.
    fn follows_older(&self) -> bool {
        false
    }

    fn shares_with(&self, base: &Summary, series: &str) -> bool {
        base.series == series
    }

    /// Nothing: no other series builds on it.
    fn sketch_for_others(&self, _: Sketch) -> Sketch {
        Sketch::default()
    }

    /// Finds all chunks. Files hold the part of the index that exceeds memory.
    fn base_filter(
        &self,
        segments: BaseSegments,
        budget: usize,
        scratch: &Option<PathBuf>,
    ) -> GroupFilter<BaseSegments> {
        let index = SpillingIndex::new(budget / 2, files_in(scratch.clone()), Asked::Afterwards);
        GroupFilter::exact(segments, index, budget / 2)
    }

    fn asks_in_order(&self) -> bool {
        true
    }

    fn older_chunks(
        &self,
        overflow: Overflow,
        index: usize,
        loaded: usize,
        scratch: &Option<PathBuf>,
    ) -> OlderChunks<Overflow> {
        let index = SpillingIndex::new(index, files_in(scratch.clone()), Asked::Meanwhile);
        OlderChunks::exact(overflow, index, loaded)
    }
}

/// Creates files in a folder, if there is one.
fn files_in(folder: Option<PathBuf>) -> NewFile {
    Box::new(move || match &folder {
        Some(folder) => larder_spill::unnamed(folder),
        None => Err(std::io::ErrorKind::Unsupported.into()),
    })
}

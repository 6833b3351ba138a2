//! The places of chunks whose containers are gone, for one stream and many segments at a time.
//!
//! A segment alone names chunks all over the index's table of chunks, so separate questions would
//! each cost the whole table. Here a reader resolves such a segment together with later ones. These
//! are the expected segments, or else a stretch that doubles with every question. Memory bounds one
//! question ([`Moved::sought_max`]) and the kept answers. A stream with more chunks is read in
//! several windows, each with one question.
//!
//! Shared by the readers of one version, on any threads. Kept answers are of one state of
//! [`Moved`]; a change of it forgets them all.
//!
//! Not here: asking the index (`chunk_resolver`), reading segments (`recipe_reader`).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use larder_format::ids::ContainerId;
use larder_format::segment::ChunkRecord;
use parking_lot::Mutex;

use crate::chunk_resolver::{Found, Sought};

/// A segment's number within its stream.
pub(crate) type SegmentNumber = u32;

/// Segments of the first question beside the expected ones.
const AHEAD_MIN: SegmentNumber = 4;

/// A record whose chunk is elsewhere.
#[derive(Debug, Clone, Copy)]
struct Place {
    record: u32,
    /// Its number among the containers.
    container: u32,
    offset: u32,
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Resolved(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// How often places had changed when these answers were found.
    changes: u64,
    segments: HashMap<SegmentNumber, Box<[Place]>>,
    containers: Vec<ContainerId>,
    numbers: HashMap<ContainerId, u32>,
    /// Chunks that are kept.
    chunks: usize,
    /// Segments that will be read, rising.
    expected: Arc<[Range<SegmentNumber>]>,
    /// Whether no others will be read.
    are_all: bool,
    /// The least number of segments of the next question.
    ahead: SegmentNumber,
}

impl Resolved {
    /// Announces that these segments will be read, in rising order; `are_all`: and hardly any
    /// others.
    pub(crate) fn expect(&self, segments: &[Range<SegmentNumber>], are_all: bool) {
        let mut state = self.0.lock();
        (state.expected, state.are_all) = (segments.into(), are_all);
    }

    /// Sets the records of a segment to the places of their chunks; `false`: they are not resolved
    /// yet.
    pub(super) fn apply(&self, segment: SegmentNumber, changes: u64, records: &mut [ChunkRecord]) -> bool {
        let state = self.0.lock();
        if state.changes != changes {
            return false;
        }
        let Some(places) = state.segments.get(&segment) else { return false };
        for place in places {
            let container = state.containers.get(place.container as usize);
            if let (Some(record), Some(container)) = (records.get_mut(place.record as usize), container) {
                (record.chunk.container, record.chunk.offset) = (*container, place.offset);
            }
        }
        true
    }

    /// The segments to ask about together with this one, which is the first of them.
    pub(super) fn ahead(&self, segment: SegmentNumber, end: SegmentNumber) -> Vec<Range<SegmentNumber>> {
        let mut state = self.0.lock();
        let behind = segment.saturating_add(1);
        let this = segment..behind;
        let mut ahead = vec![this];
        ahead.extend(
            state
                .expected
                .iter()
                .map(|range| range.start.max(behind)..range.end.min(end))
                .filter(|range| !range.is_empty()),
        );
        let is_expected = state.expected.iter().any(|range| range.contains(&segment));
        if !is_expected || !state.are_all {
            let least = state.ahead.max(AHEAD_MIN);
            state.ahead = least.saturating_mul(2);
            let last = ahead.last().map_or(behind, |last| last.end);
            ahead.push(last..segment.saturating_add(least).min(end).max(last));
        }
        ahead
    }

    /// Stores the answers for segments, each with the number of its requested records.
    pub(super) fn put(
        &self,
        changes: u64,
        chunks_max: usize,
        segments: &[SegmentNumber],
        sought: &mut [Sought],
        found: &Found,
    ) {
        let mut state = self.0.lock();
        let state = &mut *state;
        if changes < state.changes {
            // Another thread knows more.
            return;
        }
        if state.changes != changes || state.chunks + sought.len() > chunks_max {
            state.changes = changes;
            state.segments.clear();
            state.containers.clear();
            state.numbers.clear();
            state.chunks = 0;
        }
        for segment in segments {
            state.segments.entry(*segment).or_default();
        }
        sought.sort_unstable_by_key(|chunk| (chunk.group, chunk.at));
        for of_one in sought.chunk_by(|a, b| a.group == b.group) {
            let places = of_one.iter().filter_map(|chunk| {
                let (container, offset) = chunk.place(found)?;
                let container = *state.numbers.entry(container).or_insert_with(|| {
                    state.containers.push(container);
                    state.containers.len() as u32 - 1
                });
                Some(Place { record: chunk.at, container, offset })
            });
            state.segments.insert(of_one[0].group, places.collect());
        }
        state.chunks += sought.len();
    }

    /// The first of these segments without an answer; the end, when all have one.
    pub(super) fn through(&self, segments: Range<SegmentNumber>, changes: u64) -> SegmentNumber {
        let state = self.0.lock();
        let is_known = |segment: &SegmentNumber| state.changes == changes && state.segments.contains_key(segment);
        segments.clone().find(|segment| !is_known(segment)).unwrap_or(segments.end)
    }
}

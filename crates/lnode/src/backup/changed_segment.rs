//! A segment of the base that has changed: its unchanged runs are proved one by one.
//!
//! Each run (a superchunk) has a MAC. Of runs behind one another, only the last chunks can end at
//! other places now, so only these are confirmed. Between runs, data is cut in the ordinary way.
//! Bytes that were inserted or removed move all runs behind them. The lengths of the chunks just
//! cut tell the new place: two in a row that the segment has once are those of the segment.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use larder_chunking::{Chunker, RunMac, StreamEnd};
use larder_dedup::{Cut, History, HistoryCutter, Tools};
use larder_format::Fingerprint;
use larder_format::segment::{ChunkRecord, Segment, Superchunk};
use larder_writer::{KnownRun, tail_of};

use super::proof_check::is_cut_as_before;
use super::read_window::Pieces;

/// A changed segment, part by part.
#[derive(Debug)]
pub(super) struct Changed {
    /// Its number in the base.
    number: u32,
    records: Arc<Vec<ChunkRecord>>,
    /// Where each record begins in the segment, and the segment's end.
    offsets: Vec<usize>,
    superchunks: Vec<Superchunk>,
}

/// The part of a stream that was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CutPart {
    /// The bytes that all pieces cover.
    pub(super) bytes: usize,
    /// The bytes that were inserted (or removed: negative) before the last run that was proved.
    pub(super) moved: i64,
    /// Whether the segment has runs, and all were proved: so it is likely to be unchanged.
    pub(super) has_all_runs: bool,
}

impl Changed {
    pub(super) fn new(number: u32, segment: Segment) -> Self {
        let mut offsets = Vec::with_capacity(segment.records.len() + 1);
        offsets.push(0);
        let ends = segment.records.iter().scan(0, |end, record| {
            *end += record.chunk.size as usize;
            Some(*end)
        });
        offsets.extend(ends);
        Self { number, records: Arc::new(segment.records), offsets, superchunks: segment.superchunks }
    }

    /// Cuts `data`, which begins where the segment was expected, up to the segment's end. Unchanged
    /// superchunks are reused whole, and the data between them is cut in the ordinary way. A cut
    /// that misses a superchunk's beginning misses all of it.
    pub(super) fn cut(
        &self,
        data: &[u8],
        end: StreamEnd,
        tools: Tools<'_>,
        empty: &RunMac,
        pieces: &mut Pieces,
    ) -> CutPart {
        let chunker = tools.chunker;
        let mut past = Past::new(self, tools);
        let mut places = None;
        // Bytes inserted so far, and those before the last run that was proved.
        let (mut shift, mut moved) = (0_isize, 0);
        let mut proved = 0;
        // The first length that was cut since the last proved run.
        let mut cut_from = pieces.lengths.len();
        let (mut at, mut next) = (0, 0);
        while let Some(superchunk) = self.superchunks.get(next) {
            let begin = self.offsets[superchunk.first];
            let expected = begin.saturating_add_signed(shift);
            at += past.cut(&data[at..], end, expected.saturating_sub(at), pieces);
            if at != expected {
                let places = places.get_or_insert_with(|| self.unique_pairs());
                if let [.., before, last] = pieces.lengths[cut_from..]
                    && let Some(record) = places.get(&(before, last)).copied().flatten()
                {
                    shift = at as isize - self.offsets[record + 1] as isize;
                }
            }
            if Some(at) != begin.checked_add_signed(shift) {
                next += 1;
                continue;
            }
            let equal = self.equal_runs(next, &data[at..], empty);
            let known = self.confirmed(next..next + equal, &data[at..], end, chunker);
            for superchunk in &self.superchunks[next..next + known] {
                let records = superchunk.first..superchunk.first + superchunk.records;
                let first = pieces.lengths.len();
                pieces.lengths.extend(self.records[records.clone()].iter().map(|record| record.chunk.size));
                pieces.known.push(KnownRun {
                    chunks: first..pieces.lengths.len(),
                    records: self.records.clone(),
                    first: records.start,
                    segment: self.number,
                    mac: Some(superchunk.mac),
                });
                at += self.offsets[records.end] - self.offsets[records.start];
                (moved, cut_from) = (shift as i64, pieces.lengths.len());
                past.next = records.end;
            }
            proved += known;
            // The run behind equal ones was tried, or it is too near to the end.
            next += if self.is_behind(next, next + equal) { equal + 1 } else { equal.max(1) };
        }
        let whole = self.offsets.last().map_or(0, |end| end.saturating_add_signed(shift));
        at += past.cut(&data[at..], end, whole.saturating_sub(at), pieces);
        let has_all_runs = proved > 0 && proved == self.superchunks.len() && shift == 0;
        CutPart { bytes: at, moved, has_all_runs }
    }

    /// Whether the run `next` begins where the one before it ends. The first of a stretch does.
    fn is_behind(&self, first: usize, next: usize) -> bool {
        let Some(superchunk) = self.superchunks.get(next) else { return false };
        let before = next.checked_sub(1).filter(|before| *before >= first);
        before.is_none_or(|before| {
            let before = &self.superchunks[before];
            before.first + before.records == superchunk.first
        })
    }

    /// The number of runs from `first` on, one behind the other, that `data` begins with.
    fn equal_runs(&self, first: usize, data: &[u8], empty: &RunMac) -> usize {
        let mut at = 0;
        let runs = self.superchunks[first..].iter().enumerate();
        let equal = runs.take_while(|(number, superchunk)| {
            let length = self.offsets[superchunk.first + superchunk.records] - self.offsets[superchunk.first];
            let run = data.get(at..at + length).filter(|_| self.is_behind(first, first + number));
            at += length;
            run.is_some_and(|run| {
                let mut mac = empty.clone();
                mac.update(run);
                mac.finish() == superchunk.mac
            })
        });
        equal.count()
    }

    /// The number of these equal runs, from the first on, that are cut as before.
    fn confirmed(&self, runs: Range<usize>, data: &[u8], end: StreamEnd, chunker: &dyn Chunker) -> usize {
        let max = chunker.params().max;
        let is_confirmed = |runs: &[Superchunk]| {
            let [first, ..] = runs else { return true };
            let past_end = runs.last().map_or(0, |last| last.first + last.records);
            let bytes = self.offsets[past_end] - self.offsets[first.first];
            let sizes = self.records[first.first..past_end].iter().map(|record| record.chunk.size);
            let is_decided = end == StreamEnd::Reached || bytes + max as usize <= data.len();
            is_decided && is_cut_as_before(&tail_of(sizes, max), bytes, data, chunker)
        };
        let all = &self.superchunks[runs];
        (1..=all.len()).rev().find(|count| is_confirmed(&all[..*count])).unwrap_or(0)
    }

    /// The second of two records in a row, by their lengths; `None` for lengths that occur several
    /// times.
    fn unique_pairs(&self) -> HashMap<(u32, u32), Option<usize>> {
        let mut pairs = HashMap::with_capacity(self.records.len());
        for (first, pair) in self.records.windows(2).enumerate() {
            let lengths = (pair[0].chunk.size, pair[1].chunk.size);
            pairs.entry(lengths).and_modify(|place| *place = None).or_insert(Some(first + 1));
        }
        pairs
    }
}

/// Cuts the data between superchunks. If the chunker is slow, it predicts the segment's chunks one
/// by one (skip chunking).
struct Past<'a> {
    changed: &'a Changed,
    tools: Tools<'a>,
    cutter: Option<HistoryCutter>,
    cuts: Vec<Cut>,
    /// The record expected next.
    next: usize,
    places: HashMap<Fingerprint, usize>,
}

impl<'a> Past<'a> {
    fn new(changed: &'a Changed, tools: Tools<'a>) -> Self {
        let cutter = tools.chunker.is_worth_predicting().then(HistoryCutter::new);
        let mut places = HashMap::new();
        if cutter.is_some() {
            // The first of equal chunks is the better place to continue from.
            for (place, record) in changed.records.iter().enumerate().rev() {
                places.insert(record.chunk.fingerprint, place);
            }
        }
        Self { changed, tools, cutter, cuts: Vec::new(), next: 0, places }
    }

    fn cut(&mut self, data: &[u8], end: StreamEnd, stop: usize, pieces: &mut Pieces) -> usize {
        let Some(mut cutter) = self.cutter.take() else {
            return self.tools.chunker.cut_until(data, end, stop, &mut pieces.lengths);
        };
        let mut cuts = std::mem::take(&mut self.cuts);
        cuts.clear();
        let Ok(consumed) = cutter.cut(self.tools, self, data, end, stop, &mut cuts);
        for cut in &cuts {
            let chunk = pieces.lengths.len();
            pieces.lengths.push(cut.length);
            let Some(place) = cut.known.and_then(|known| self.places.get(&known.chunk.fingerprint)) else { continue };
            match pieces.known.last_mut() {
                Some(run) if run.mac.is_none() && run.chunks.end == chunk && run.first + run.chunks.len() == *place => {
                    run.chunks.end += 1
                }
                _ => pieces.known.push(KnownRun {
                    chunks: chunk..chunk + 1,
                    records: self.changed.records.clone(),
                    first: *place,
                    segment: self.changed.number,
                    mac: None,
                }),
            }
        }
        (self.cuts, self.cutter) = (cuts, Some(cutter));
        consumed
    }
}

impl History for Past<'_> {
    type Error = std::convert::Infallible;

    fn expect(&mut self, most: usize, run: &mut Vec<ChunkRecord>) -> Result<(), Self::Error> {
        run.extend(self.changed.records.iter().skip(self.next).take(most));
        Ok(())
    }

    fn pass(&mut self, count: usize) {
        self.next += count;
    }

    fn find(&mut self, fingerprint: &Fingerprint, size: u32) -> Result<Option<ChunkRecord>, Self::Error> {
        let expected = self.changed.records.get(self.next).filter(|record| record.chunk.fingerprint == *fingerprint);
        let place = if expected.is_some() { Some(self.next) } else { self.places.get(fingerprint).copied() };
        let found = place.map(|place| (place, self.changed.records[place]));
        let Some((place, record)) = found.filter(|(_, record)| record.chunk.size == size) else { return Ok(None) };
        self.next = place + 1;
        Ok(Some(record))
    }
}

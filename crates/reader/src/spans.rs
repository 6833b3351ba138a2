//! Parts of two data streams of one repository that are equal by their recipes.
//!
//! A shared segment is equal; elsewhere chunks are compared by their fingerprints. No content is
//! read. Equal bytes that were cut differently count as different.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use larder_format::Fingerprint;
use larder_format::segment::ChunkRecord;
use larder_store::RepositoryError;

use crate::recipe_reader::{RecipeReader, SegmentPlace};
use crate::version::VersionReader;

/// Parts of one file that are told apart. What is behind them counts as different.
const PARTS_MAX: usize = 1 << 16;

/// Segments and chunks of one file that are remembered, each. Contents of more are counted as if
/// the other file lacked them.
const REMEMBERED_MAX: usize = 1 << 20;

/// Bytes of two files that the other one lacks, by whole chunks. Holes do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unshared {
    /// Bytes of the older one that the newer one lacks.
    pub removed: u64,
    /// Bytes of the newer one that the older one lacks.
    pub added: u64,
}

/// See the module header.
#[derive(Debug)]
pub struct Spans {
    old: Side,
    new: Side,
}

impl Spans {
    /// Compares the data streams of two versions.
    pub fn new(old: &VersionReader, new: &VersionReader) -> Self {
        Self { old: Side::new(old.data_names()), new: Side::new(new.data_names()) }
    }

    /// The number of next stream bytes known to be equal, at most `most`; 0 when the next chunks
    /// differ.
    pub(crate) fn same_span(&mut self, a: u64, b: u64, most: u64) -> Result<u64, RepositoryError> {
        let (Some(old), Some(new)) = (self.old.recipe.segment_around(a)?, self.new.recipe.segment_around(b)?) else {
            return Ok(0);
        };
        if old.fingerprint == new.fingerprint && a - old.start == b - new.start {
            return Ok((old.end - a).min(most));
        }
        let (old, new) = (self.old.records_from(old, a)?, self.new.records_from(new, b)?);
        let mut span = 0;
        for (old, new) in old.iter().zip(new) {
            let differs = old.chunk.fingerprint != new.chunk.fingerprint || old.chunk.size != new.chunk.size;
            if differs || span >= most {
                break;
            }
            span += u64::from(old.chunk.size);
        }
        Ok(span.min(most))
    }

    /// The parts that two files have in common at equal offsets, by the ranges of their stored
    /// bytes in the two streams: offsets in the files, adjacent ones merged. At most a bounded
    /// number from the beginning.
    pub fn common_parts(&mut self, old: Range<u64>, new: Range<u64>) -> Result<Vec<Range<u64>>, RepositoryError> {
        let common = (old.end - old.start).min(new.end - new.start);
        let mut parts: Vec<Range<u64>> = Vec::new();
        let mut at = 0;
        while at < common {
            match self.same_span(old.start + at, new.start + at, common - at)? {
                0 => at += self.next_common_cut(old.start + at, new.start + at, common - at)?,
                span => {
                    let is_full = parts.len() >= PARTS_MAX;
                    match parts.last_mut() {
                        Some(last) if last.end == at => last.end += span,
                        _ if is_full => return Ok(parts),
                        _ => parts.push(at..at + span),
                    }
                    at += span;
                }
            }
        }
        Ok(parts)
    }

    /// The bytes of each of two files whose chunks the other one lacks at any offset, by the ranges
    /// of their stored bytes in the two streams.
    pub fn unshared(&mut self, old: Range<u64>, new: Range<u64>) -> Result<Unshared, RepositoryError> {
        let (of_old, of_new) = (self.old.segments(&old)?, self.new.segments(&new)?);
        let (a, b) = (self.old.chunks(&old, &of_new)?, self.new.chunks(&new, &of_old)?);
        let removed = self.old.lacking(&old, &of_new, &b)?;
        Ok(Unshared { removed, added: self.new.lacking(&new, &of_old, &a)? })
    }

    /// Bytes to the next place where both streams begin a chunk; `most` when there is none before.
    fn next_common_cut(&mut self, a: u64, b: u64, most: u64) -> Result<u64, RepositoryError> {
        let (mut old, mut new) = (self.old.chunk_at(a)?, self.new.chunk_at(b)?);
        while old != new {
            if old.min(new) >= most {
                return Ok(most);
            }
            match old < new {
                true => old += self.old.chunk_at(a + old)?,
                false => new += self.new.chunk_at(b + new)?,
            }
        }
        Ok(old.min(most))
    }
}

/// One of two streams.
#[derive(Debug)]
struct Side {
    recipe: RecipeReader,
    segment: Option<(u32, Arc<Vec<ChunkRecord>>)>,
    /// Stream offsets at which the records of that segment begin.
    starts: Vec<u64>,
}

impl Side {
    fn new(recipe: RecipeReader) -> Self {
        Self { recipe, segment: None, starts: Vec::new() }
    }

    /// The fingerprints of all segments that are a part of a range.
    fn segments(&mut self, range: &Range<u64>) -> Result<HashSet<Fingerprint>, RepositoryError> {
        let mut found = HashSet::new();
        let mut at = range.start;
        while at < range.end && found.len() < REMEMBERED_MAX {
            let Some(place) = self.recipe.segment_around(at)? else { break };
            if range.start <= place.start && place.end <= range.end {
                found.insert(place.fingerprint);
            }
            at = place.end;
        }
        Ok(found)
    }

    /// The chunks of a range, but for those of segments that the other file has too.
    fn chunks(
        &mut self,
        range: &Range<u64>,
        shared: &HashSet<Fingerprint>,
    ) -> Result<HashSet<Fingerprint>, RepositoryError> {
        let mut found = HashSet::new();
        self.visit(range, shared, |fingerprint, _| {
            if found.len() < REMEMBERED_MAX {
                found.insert(fingerprint);
            }
        })?;
        Ok(found)
    }

    /// The bytes of chunks of a range that are not among others.
    fn lacking(
        &mut self,
        range: &Range<u64>,
        shared: &HashSet<Fingerprint>,
        others: &HashSet<Fingerprint>,
    ) -> Result<u64, RepositoryError> {
        let mut bytes = 0;
        self.visit(range, shared, |fingerprint, length| {
            if !others.contains(&fingerprint) {
                bytes += length;
            }
        })?;
        Ok(bytes)
    }

    /// Visits the chunks of a range that are not in shared segments, with their bytes in it.
    fn visit(
        &mut self,
        range: &Range<u64>,
        shared: &HashSet<Fingerprint>,
        mut visitor: impl FnMut(Fingerprint, u64),
    ) -> Result<(), RepositoryError> {
        let mut at = range.start;
        while at < range.end {
            let Some(place) = self.recipe.segment_around(at)? else { return Ok(()) };
            let is_whole = range.start <= place.start && place.end <= range.end;
            if !(is_whole && shared.contains(&place.fingerprint)) {
                let mut start = place.start;
                for record in self.recipe.segment(place.number)?.iter() {
                    let end = start + u64::from(record.chunk.size);
                    let length = end.min(range.end).saturating_sub(start.max(range.start));
                    if length > 0 {
                        visitor(record.chunk.fingerprint, length);
                    }
                    start = end;
                }
            }
            at = place.end;
        }
        Ok(())
    }

    /// The records of a segment from the one that begins at `offset`; none when no record begins
    /// there.
    fn records_from(&mut self, place: SegmentPlace, offset: u64) -> Result<&[ChunkRecord], RepositoryError> {
        if self.segment.as_ref().is_none_or(|(number, _)| *number != place.number) {
            let records = self.recipe.segment(place.number)?;
            self.starts.clear();
            let mut start = place.start;
            for record in records.iter() {
                self.starts.push(start);
                start += u64::from(record.chunk.size);
            }
            self.segment = Some((place.number, records));
        }
        let records = self.segment.as_ref().map_or(&[][..], |(_, records)| records.as_slice());
        Ok(self.starts.binary_search(&offset).map_or(&[], |first| &records[first..]))
    }

    /// Bytes of the chunk that begins at `offset`. Where none begins, no chunk ends.
    fn chunk_at(&mut self, offset: u64) -> Result<u64, RepositoryError> {
        let Some(place) = self.recipe.segment_around(offset)? else { return Ok(u64::from(u32::MAX)) };
        let first = self.records_from(place, offset)?.first();
        Ok(first.map_or(u64::from(u32::MAX), |record| u64::from(record.chunk.size)))
    }
}

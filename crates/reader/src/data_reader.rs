//! File contents in stream order, for pipes and comparisons: chunks from the containers that
//! `container_cache` has at hand.
//!
//! Restores to disk do not use it: they go by container (`restore/`).

use std::io;
use std::ops::Range;

use larder_chunking::Fingerprinter;
use larder_format::segment::ChunkRecord;
use larder_store::RepositoryError;

use crate::container_cache::Containers;
use crate::read_lease::is_missing;
use crate::recipe_reader::{RecordCursor, damaged};
use crate::resolved::SegmentNumber;
use crate::version::VersionReader;

/// The part of the data stream that will be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Nearly all of this range: looking ahead pays, across files.
    Range(Range<u64>),
    /// Single files: looking ahead ends with each.
    Files,
}

/// See the module header.
pub(crate) struct DataReader {
    cursor: RecordCursor,
    containers: Containers,
    reach: Reach,
    /// How often places had changed when the plan was made.
    changes: u64,
    /// The range that the plan serves in the end.
    planned: Range<u64>,
    /// The first segment behind the plan: places are known for a bounded number of chunks at a
    /// time.
    window_end: SegmentNumber,
    /// Whether the next read is in the plan.
    is_planned: bool,
    /// The last segment announced to the containers.
    entered: Option<SegmentNumber>,
    fingerprinter: Fingerprinter,
}

impl std::fmt::Debug for DataReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataReader").field("offset", &self.cursor.offset()).finish_non_exhaustive()
    }
}

impl DataReader {
    pub(crate) fn new(reader: &VersionReader, reach: Reach) -> Self {
        let context = &reader.context;
        let recipe = reader.data_recipe();
        Self {
            cursor: reader.data_cursor(),
            containers: Containers::new(context, reader.manifest(), recipe, &reader.options, &reader.counters),
            reach,
            changes: 0,
            planned: 0..0,
            window_end: 0,
            is_planned: false,
            entered: None,
            fingerprinter: Fingerprinter::new(context.repository.keys().fingerprint()),
        }
    }

    /// Goes to an offset at which a file with this many stored bytes begins.
    pub(crate) fn seek(&mut self, offset: u64, stored: u64) -> Result<(), RepositoryError> {
        let end = offset.saturating_add(stored);
        // A plan is read from its beginning to its end; a place behind the reader is not in it any
        // more.
        let was_planned = self.is_planned;
        self.is_planned = self.planned.contains(&offset);
        if !self.is_planned {
            let wanted = match &self.reach {
                Reach::Range(range) if self.planned.is_empty() && range.contains(&offset) => Some(offset..range.end),
                Reach::Range(_) => None,
                Reach::Files => Some(offset..end),
            };
            if let Some(wanted) = wanted {
                self.plan(wanted)?;
            }
        }
        if self.is_planned {
            self.planned.start = end;
        }
        if was_planned != self.is_planned {
            self.entered = None;
        }
        match self.cursor.seek(offset)? {
            true => Ok(()),
            false => {
                let node = self.cursor.reader().recipe().nodes.first().map(|node| node.chunk);
                let source = larder_format::DecodeError::Invalid {
                    what: "recipe",
                    why: "a file's contents do not begin where its entry says",
                };
                Err(match node {
                    Some(chunk) => damaged(&chunk, source),
                    None => RepositoryError::Damaged { name: "the version's manifest".to_owned(), source },
                })
            }
        }
    }

    fn plan(&mut self, wanted: Range<u64>) -> Result<(), RepositoryError> {
        let recipe = self.cursor.reader();
        let Some((first, _)) = recipe.segment_at(wanted.start)? else { return Ok(()) };
        let last = recipe.segment_at(wanted.end.saturating_sub(1));
        let end = match last {
            Ok(Some((last, _))) => last.saturating_add(1),
            Ok(None) => recipe.segments(),
            // A reader that continues until there will meet it.
            Err(error) if error.is_damage() => recipe.segments(),
            Err(error) => return Err(error),
        };
        let is_range = self.reach != Reach::Files;
        let window_end = recipe.expect(first..end, is_range)?;
        self.containers.plan(first..window_end, window_end < end || !is_range)?;
        (self.planned, self.window_end) = (wanted, window_end);
        self.changes = self.cursor.reader().chunks().moved().changes();
        (self.is_planned, self.entered) = (true, None);
        Ok(())
    }

    /// Plans the rest, from a place in the stream on.
    fn plan_rest(&mut self, from: u64) -> Result<(), RepositoryError> {
        let planned = self.planned.clone();
        let end = planned.end.min(self.cursor.reader().bytes());
        self.plan(from..end)?;
        self.planned = planned;
        Ok(())
    }

    /// Appends the next chunk of the stream to `out`; `false` at the end.
    pub(crate) fn next_chunk(&mut self, out: &mut Vec<u8>) -> Result<bool, RepositoryError> {
        let from = self.cursor.offset();
        let Some(mut record) = self.cursor.next_record()? else { return Ok(false) };
        loop {
            let (segment, place, records) = self.cursor.last();
            let records = records.clone();
            if self.is_planned && segment >= self.window_end {
                self.plan_rest(from)?;
            }
            if self.entered != Some(segment) {
                self.containers.enter(segment, &records, place, self.is_planned);
                self.entered = Some(segment);
            }
            self.containers.look_ahead();
            let moved = self.cursor.reader().chunks().clone();
            match self.read_there(&record, out) {
                Ok(()) => {
                    self.containers.used(&record.chunk, place);
                    return Ok(true);
                }
                // It may have been moved, or another copy may be right (`WrongIsAbsent`): the
                // newest index is asked for it, and for the plan's reads after it.
                Err(error)
                    if (is_missing(&error) || error.is_damage())
                        && moved.moved().learn([record.chunk.container])? =>
                {
                    if self.is_planned && moved.moved().changes() != self.changes {
                        self.plan_rest(from)?;
                    }
                    record = self.cursor.again()?.unwrap_or(record);
                    self.entered = None;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn read_there(&mut self, record: &ChunkRecord, out: &mut Vec<u8>) -> Result<(), RepositoryError> {
        let chunk = record.chunk;
        let outside = |why| damaged(&chunk, larder_format::DecodeError::Invalid { what: "chunk record", why });
        let not_there = || outside("it lies outside of its container");
        let frame = self.containers.frame(chunk.container, chunk.offset)?.ok_or_else(not_there)?;
        let from = (chunk.offset - frame.payload_offset) as usize;
        let bytes = frame.raw.get(from..from + chunk.size as usize);
        let bytes = bytes.ok_or_else(|| outside("it lies across the border of a frame"))?;
        if self.fingerprinter.one(bytes) != chunk.fingerprint {
            return Err(outside("the bytes there have another fingerprint"));
        }
        out.extend_from_slice(bytes);
        Ok(())
    }
}

/// The logical content of one file: stored runs from the stream, zeros for the holes.
pub struct ContentReader<'a> {
    data: Option<&'a mut DataReader>,
    data_offset: u64,
    stored: u64,
    /// The remaining runs, the next last: length, and whether it is stored.
    runs: Vec<(u64, bool)>,
    buffer: Vec<u8>,
    taken: usize,
    started: bool,
}

impl<'a> ContentReader<'a> {
    /// A reader for `entry`, whose stored bytes begin at `data_offset`.
    pub(crate) fn new(data: &'a mut DataReader, entry: &larder_format::entry::Entry, data_offset: u64) -> Self {
        let mut runs = Vec::new();
        if let larder_format::entry::EntryKind::File { size, extents } = &entry.kind {
            match extents {
                None => runs.push((*size, true)),
                Some(extents) => {
                    let mut end = 0;
                    for extent in extents {
                        runs.push((extent.offset - end, false));
                        runs.push((extent.length, true));
                        end = extent.offset + extent.length;
                    }
                    runs.push((size - end, false));
                }
            }
        }
        runs.reverse();
        let stored = entry.stored_bytes();
        Self { data: Some(data), data_offset, stored, runs, buffer: Vec::new(), taken: 0, started: false }
    }
}

impl ContentReader<'_> {
    /// Leaves out the holes: reads return the stored bytes only.
    pub fn skip_holes(&mut self) {
        self.runs.retain(|(_, stored)| *stored);
    }
}

impl io::Read for ContentReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.runs.last().is_some_and(|(length, _)| *length == 0) {
            self.runs.pop();
        }
        let Some((length, stored)) = self.runs.last_mut() else { return Ok(0) };
        let wanted = usize::try_from(*length).unwrap_or(usize::MAX).min(out.len());
        if !*stored {
            out[..wanted].fill(0);
            *length -= wanted as u64;
            return Ok(wanted);
        }
        if self.taken == self.buffer.len() {
            self.buffer.clear();
            self.taken = 0;
            let Some(data) = &mut self.data else { return Ok(0) };
            if !self.started {
                data.seek(self.data_offset, self.stored).map_err(io::Error::other)?;
                self.started = true;
            }
            if !data.next_chunk(&mut self.buffer).map_err(io::Error::other)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let count = wanted.min(self.buffer.len() - self.taken);
        out[..count].copy_from_slice(&self.buffer[self.taken..self.taken + count]);
        self.taken += count;
        *length -= count as u64;
        Ok(count)
    }
}

//! Places of the chunks of a file in a temporary file, so that the recipe is not needed any more.
//!
//! The numbers of segments are those of the recipe. A damaged row gives a place whose bytes have
//! another fingerprint.

use std::io;
use std::ops::Range;
use std::path::Path;

use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::{ChunkRef, Fingerprint};
use larder_spill::{Row, RowFile, RowReader, RowWriter};

use super::segment::Segment;
use crate::resolved::SegmentNumber;

/// The state of places in the temporary file: they never change.
pub(super) const KEPT: u64 = u64::MAX;

/// A chunk in a row.
#[derive(Debug, Clone, Copy)]
struct Placed(ChunkRef);

impl Row for Placed {
    const BYTES: usize = 32 + 4 + 16 + 12;

    fn encode(&self, row: &mut RowWriter<'_>) {
        let ChunkRef { fingerprint, container, offset, size } = &self.0;
        row.bytes(&fingerprint.0);
        row.u32(u32::from(container.kind == ContainerKind::Meta));
        row.bytes(&container.job.0);
        row.u32(container.seq);
        row.u32(*offset);
        row.u32(*size);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        let fingerprint = Fingerprint(row.bytes());
        let kind = if row.u32() == 0 { ContainerKind::Data } else { ContainerKind::Meta };
        let job = JobId(row.bytes());
        let container = ContainerId { kind, job, seq: row.u32() };
        Self(ChunkRef { fingerprint, container, offset: row.u32(), size: row.u32() })
    }
}

/// A segment of the file.
#[derive(Debug, Clone, Copy)]
struct Kept {
    number: SegmentNumber,
    start: u64,
    end: u64,
    first_row: u64,
    rows: u64,
}

/// See the module header. Memory: 40 bytes for each segment, which is about 2 MiB of data.
#[derive(Debug)]
pub(super) struct KeptPlaces {
    rows: RowFile<Placed>,
    /// In the order of the stream.
    segments: Vec<Kept>,
    /// The last segment, not among them yet: later runs of the file may have more of its chunks.
    last: Option<Segment>,
}

impl KeptPlaces {
    /// None yet, in a temporary file without a name in `folder`.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        Ok(Self { rows: RowFile::new(larder_spill::unnamed(folder)?), segments: Vec::new(), last: None })
    }

    /// Adds the places of some chunks of a segment, in stream order. Only these were verified. The
    /// others of the segment count as long as nothing is said of them.
    pub(super) fn push(&mut self, segment: &Segment, verified: Range<usize>) -> io::Result<()> {
        match &mut self.last {
            Some(last) if last.number == segment.number => {
                last.chunks[verified.clone()].copy_from_slice(&segment.chunks[verified]);
                Ok(())
            }
            _ => {
                self.finish()?;
                let Segment { number, start, changes, .. } = *segment;
                self.last = Some(Segment::new(number, start, changes, segment.chunks.clone()));
                Ok(())
            }
        }
    }

    /// Nothing more will be added.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let Some(segment) = self.last.take() else { return Ok(()) };
        let first_row = self.rows.rows();
        self.rows.append(segment.chunks.iter().copied().map(Placed))?;
        let rows = segment.chunks.len() as u64;
        let (number, start, end) = (segment.number, segment.start, segment.end());
        self.segments.push(Kept { number, start, end, first_row, rows });
        Ok(())
    }

    fn find(&self, offset: u64) -> Option<&Kept> {
        let after = self.segments.partition_point(|segment| segment.start <= offset);
        self.segments[..after].last().filter(|segment| offset < segment.end)
    }

    /// The number of the segment that holds the stream byte at `offset`.
    pub(super) fn segment_at(&self, offset: u64) -> Option<SegmentNumber> {
        self.find(offset).map(|segment| segment.number)
    }

    /// The segment that holds the stream byte at `offset`. Its places are the last known.
    pub(super) fn read(&self, offset: u64) -> io::Result<Option<Segment>> {
        let Some(kept) = self.find(offset) else { return Ok(None) };
        let rows = self.rows.read(kept.first_row..kept.first_row + kept.rows)?;
        let chunks = rows.into_iter().map(|Placed(chunk)| chunk).collect();
        Ok(Some(Segment::new(kept.number, kept.start, KEPT, chunks)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_come_back_as_they_were() {
        let chunk = |seed: u8| ChunkRef {
            fingerprint: Fingerprint([seed; 32]),
            container: ContainerId { kind: ContainerKind::Data, job: JobId([seed; 16]), seq: u32::from(seed) * 7 },
            offset: u32::from(seed) * 1000,
            size: 100,
        };
        let folder = tempfile::tempdir().unwrap();
        let mut kept = KeptPlaces::new(folder.path()).unwrap();
        let segments = [
            Segment::new(3, 1000, 1, (0..5).map(chunk).collect()),
            Segment::new(4, 1500, 1, vec![chunk(9)]),
            Segment::new(8, 9000, 1, (20..30).map(chunk).collect()),
        ];
        for segment in &segments {
            kept.push(segment, 0..1).unwrap();
            kept.push(segment, 0..segment.chunks.len()).unwrap();
        }
        kept.finish().unwrap();
        for segment in &segments {
            for offset in [segment.start, segment.end() - 1] {
                let read = kept.read(offset).unwrap().unwrap();
                assert_eq!((read.number, read.start, &read.chunks), (segment.number, segment.start, &segment.chunks));
            }
        }
        for outside in [0, 999, 1600, 8999, 10_000] {
            assert!(kept.read(outside).unwrap().is_none(), "{outside}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// A file with holes has several runs in one segment. Between two of them, chunks may be found
    /// elsewhere, and each counts where it was verified.
    #[test]
    fn every_chunk_is_where_it_was_verified() {
        let chunk = |seed: u8, container: u8| ChunkRef {
            fingerprint: Fingerprint([seed; 32]),
            container: ContainerId { kind: ContainerKind::Data, job: JobId([container; 16]), seq: 1 },
            offset: 0,
            size: 100,
        };
        let folder = tempfile::tempdir().unwrap();
        let mut kept = KeptPlaces::new(folder.path()).unwrap();
        let at = |container| Segment::new(3, 0, 1, (0..6).map(|seed| chunk(seed, container)).collect());
        kept.push(&at(1), 0..2).unwrap();
        kept.push(&at(2), 3..5).unwrap();
        kept.finish().unwrap();
        let read = kept.read(0).unwrap().unwrap();
        let containers: Vec<u8> = read.chunks.iter().map(|chunk| chunk.container.job.0[0]).collect();
        assert_eq!(containers, [1, 1, 1, 2, 2, 1]);
    }
}

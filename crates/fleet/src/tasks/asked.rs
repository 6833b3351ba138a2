//! The chunks that an image asked for, in the order of its scan.

use std::collections::VecDeque;

use larder_format::Fingerprint;
use larder_format::fleet::{ChunkRun, ScanItem, Scans};
use larder_index::Cursor;

use super::join::damaged_record;
use crate::error::FleetError;
use crate::exchange::{Decided, OutputCursor};
use crate::shared::Batch;

/// A chunk that an image asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) number: u32,
    /// Offset in the data of the image.
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) fingerprint: Fingerprint,
}

/// Goes over the chunks that an image asked for.
pub(super) struct AskedChunks<'a> {
    items: OutputCursor<'a>,
    segment: VecDeque<Asked>,
    number: u32,
    offset: u64,
    /// Size of the last chunk that was asked for.
    last: u32,
}

impl<'a> AskedChunks<'a> {
    pub(super) fn new(batch: &'a Batch<'a>, task: &'a Decided) -> Self {
        let items = OutputCursor::new::<Scans>(batch, task, 0..=u64::MAX);
        Self { items, segment: Default::default(), number: 0, offset: 0, last: 0 }
    }

    pub(super) fn next(&mut self) -> Result<Option<Asked>, FleetError> {
        loop {
            if let Some(asked) = self.segment.pop_front() {
                return Ok(Some(asked));
            }
            if !self.items.advance()? {
                return Ok(None);
            }
            let item = ScanItem::decode(self.items.value().unwrap_or_default()).map_err(damaged_record("scan"))?;
            match item {
                ScanItem::Keep { bytes, .. } => self.offset += bytes,
                ScanItem::Segment(segment) => segment.runs.iter().for_each(|run| self.run(run)),
            }
        }
    }

    fn run(&mut self, run: &ChunkRun) {
        match run {
            ChunkRun::Asked(chunks) => {
                for (size, fingerprint) in chunks {
                    let (number, offset) = (self.number, self.offset);
                    self.segment.push_back(Asked { number, offset, size: *size, fingerprint: *fingerprint });
                    self.number += 1;
                    self.offset += u64::from(*size);
                    self.last = *size;
                }
            }
            ChunkRun::Repeated(count) => self.offset += u64::from(*count) * u64::from(self.last),
            ChunkRun::Base { bytes, .. } => self.offset += bytes,
        }
    }
}

//! Ranges of the base's data stream that are reused unread: whole segments as they are, and records
//! of segments at the ends.
//!
//! Invariant: a reused range is written before anything else, so that the stream stays in the order
//! of the entries.

use larder_format::segment::Segment;

use super::Sequencer;
use crate::backup::BackupError;

/// A range of the base's data stream that is reused unread, still growing.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReusedRange {
    from: u64,
    to: u64,
}

impl Sequencer {
    /// Reuses `length` bytes at `offset` of the base's data stream. Adjacent ranges are merged.
    pub(super) fn reuse(&mut self, offset: u64, length: u64) -> Result<(), BackupError> {
        if length == 0 {
            return Ok(());
        }
        match &mut self.reused {
            Some(range) if range.to == offset => range.to += length,
            _ => {
                self.flush_reused()?;
                self.reused = Some(ReusedRange { from: offset, to: offset + length });
            }
        }
        Ok(())
    }

    /// Writes the records of the reused range: whole segments as they are, the others record by
    /// record.
    pub(super) fn flush_reused(&mut self) -> Result<(), BackupError> {
        let Some(ReusedRange { from, to }) = self.reused.take() else { return Ok(()) };
        let Some(mut reader) = self.unread.take() else { return Ok(()) };
        let mut position = from;
        while position < to {
            let Some((number, start)) = reader.segment_at(position)? else { break };
            let Some((segment, _)) = reader.segment_ref(number)? else { break };
            let end = start + segment.bytes;
            let is_whole = position == start && end <= to;
            // A large file has its own segments: the segment before it ends there.
            if is_whole && (self.data.is_at_segment_start() || segment.proof.is_some()) {
                self.statistics.chunks += u64::from(segment.chunks);
                self.sketcher.unseen(&segment.samples, segment.bytes, segment.chunks, start);
                self.data.push_segment(segment, &mut self.sink)?;
                position = end;
                continue;
            }
            let mut at = start;
            let Some(Segment { records, superchunks }) = reader.whole_segment(number)? else { break };
            let mut superchunks = superchunks.iter().peekable();
            for (place, record) in records.iter().enumerate() {
                if let Some(superchunk) = superchunks.next_if(|superchunk| superchunk.first == place) {
                    let records = &records[place..place + superchunk.records];
                    let bytes: u64 = records.iter().map(|record| u64::from(record.chunk.size)).sum();
                    if at >= position && at + bytes <= to {
                        self.data.keep_superchunk(superchunk.records, superchunk.mac);
                    }
                }
                if at >= position && at < to {
                    self.sketcher.chunk(&record.chunk.fingerprint, record.chunk.size, Some(at));
                    self.push_data(*record, None)?;
                }
                at += u64::from(record.chunk.size);
            }
            position = end.min(to);
        }
        if let Some(base) = &mut self.data.base
            && let Some((number, start)) = reader.segment_at(to)?
        {
            // The next bytes have changed: they probably resemble those that followed in the base.
            let mut at = start;
            let group = reader.segment(number)?;
            let passed = group.iter().take_while(|record| {
                let before = at < to;
                at += u64::from(record.chunk.size);
                before
            });
            base.expect(number, passed.count() as u32)?;
        }
        self.stream_bytes += to - from;
        self.unread = Some(reader);
        Ok(())
    }
}

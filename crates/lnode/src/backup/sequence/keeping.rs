//! Ranges of the base's data stream that are taken over unread: whole segments as they are, and records of those that are cut through.
//!
//! Invariant: what is kept is written before anything else comes, so that the stream stays in the order of the entries.

use larder_writer::MetaSink;

use super::{Sequencer, followed};
use crate::backup::BackupError;

/// A range of the base's data stream that is taken over unread, still growing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    from: u64,
    to: u64,
}

impl Sequencer {
    /// Takes over `length` bytes at `offset` of the base's data stream. Neighbours are taken over together.
    pub(super) fn keep(&mut self, offset: u64, length: u64) -> Result<(), BackupError> {
        if length == 0 {
            return Ok(());
        }
        match &mut self.kept {
            Some(kept) if kept.to == offset => kept.to += length,
            _ => {
                self.flush_kept()?;
                self.kept = Some(Kept { from: offset, to: offset + length });
            }
        }
        Ok(())
    }

    /// Writes the records of the range taken over: whole segments as they are, the others record by record.
    pub(super) fn flush_kept(&mut self) -> Result<(), BackupError> {
        let Some(Kept { from, to }) = self.kept.take() else { return Ok(()) };
        let Some(mut reader) = self.unread.take() else { return Ok(()) };
        let mut position = from;
        while position < to {
            let Some((number, start)) = reader.segment_at(position)? else { break };
            let Some((segment, _)) = reader.segment_ref(number)? else { break };
            let end = start + segment.bytes;
            let is_whole = position == start && end <= to;
            // Segments of a large file are its own: what is before them ends there.
            if is_whole && (self.data.is_at_segment_start() || segment.proof.is_some()) {
                self.statistics.chunks += u64::from(segment.chunks);
                let candidate = followed(&mut self.data_base)?;
                let mut sink = MetaSink {
                    packer: &mut self.meta_packer,
                    fingerprinter: &self.cutting.fingerprinter,
                    usage: &mut self.usage,
                    added_bytes: &mut self.statistics.added_bytes,
                    comparison: self.comparison.as_ref().map(|comparison| comparison as _),
                };
                self.data.border(candidate, &mut sink)?;
                self.sketcher.unseen(&segment.samples, segment.bytes, segment.chunks, start);
                self.data.push_segment(segment, &mut sink)?;
                position = end;
                continue;
            }
            let mut at = start;
            for record in reader.segment(number)?.iter() {
                if at >= position && at < to {
                    self.sketcher.chunk(&record.chunk.fingerprint, record.chunk.size, Some(at));
                    self.push_data(*record, None)?;
                }
                at += u64::from(record.chunk.size);
            }
            position = end.min(to);
        }
        if let Some(base) = &mut self.data_base
            && let Some((number, start)) = reader.segment_at(to)?
        {
            // What follows was changed: it is likely to resemble what followed in the base.
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

//! Reading a range of keys of the outputs that a register names.
//!
//! Objects of this process are read as a whole, and compared with the digest of what it wrote:
//! another machine of the domain could make such an object, if it can also delete. What other
//! processes wrote is a hint, whatever it says. It is read in pieces of what the memory allows.
//!
//! Scans decide what a version holds, so a damaged one is an error. Everything else is about space
//! only: the records of a task end where its first object cannot be read, and people are told.
//!
//! The outputs of several tasks are merged. If they take more memory at once than they may, they
//! are read one after the other instead, and sorted once more within that memory.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use bytes::Bytes;
use larder_format::DecodeError;
use larder_format::fleet::{FleetRecord, OutputRef, Scans};
use larder_format::ids::RunId;
use larder_format::names;
use larder_format::run::{Block, RecordLayout, RunIndex, RunKey, prefix};
use larder_index::{Cursor, IndexError, Merge, Sorted, Tombstones};
use larder_store::{RepositoryError, StoreError, StoreErrorKind, StoreOp};

use crate::error::FleetError;
use crate::exchange::Decided;
use crate::exchange::write::unpacked;
use crate::memory::Budget;
use crate::shared::Batch;

/// An opened object, and its blocks that are still to be read.
struct Open {
    name: String,
    index: RunIndex,
    left: std::ops::Range<usize>,
    /// A part of the object, and where it begins.
    bytes: Bytes,
    from: u64,
}

/// See the module header.
pub(crate) struct OutputCursor<'a> {
    batch: &'a Batch<'a>,
    task: &'a Decided,
    layout: RecordLayout,
    range: RangeInclusive<u64>,
    /// Bytes to read at once.
    piece: u64,
    /// Whether it may end early.
    is_hint: bool,
    refs: VecDeque<OutputRef>,
    open: Option<Open>,
    block: Option<Block>,
    /// The present record of the block.
    at: usize,
    /// The record after it.
    next: usize,
}

/// Whether an object is damaged, gone, or of another domain.
fn is_about_objects(error: &IndexError) -> bool {
    error.is_damage() || matches!(error, IndexError::Repository(error) if error.is_foreign())
}

/// The records of several tasks, by rising key.
pub(crate) enum Merged<'a> {
    AtOnce(Merge<OutputCursor<'a>>),
    Sorted(Sorted),
}

impl Merged<'_> {
    fn cursor(&self) -> &dyn Cursor {
        match self {
            Self::AtOnce(merge) => merge,
            Self::Sorted(sorted) => sorted,
        }
    }
}

impl Cursor for Merged<'_> {
    fn advance(&mut self) -> Result<bool, IndexError> {
        match self {
            Self::AtOnce(merge) => merge.advance(),
            Self::Sorted(sorted) => sorted.advance(),
        }
    }

    fn key(&self) -> &[u8] {
        self.cursor().key()
    }

    fn value(&self) -> Option<&[u8]> {
        self.cursor().value()
    }
}

impl<'a> OutputCursor<'a> {
    /// The records of one kind whose keys begin with 8 bytes in `range`.
    pub(crate) fn new<R: FleetRecord>(batch: &'a Batch<'a>, task: &'a Decided, range: RangeInclusive<u64>) -> Self {
        Self::with::<R>(batch, task, range, batch.budget().piece)
    }

    fn with<R: FleetRecord>(batch: &'a Batch<'a>, task: &'a Decided, range: RangeInclusive<u64>, piece: u64) -> Self {
        let is_wanted = |output: &&OutputRef| {
            output.kind == R::KIND && output.first <= *range.end() && output.last >= *range.start()
        };
        let refs = task.record.outputs.iter().filter(is_wanted).copied().collect();
        let is_hint = R::KIND != Scans::KIND;
        Self { batch, task, layout: R::LAYOUT, range, piece, is_hint, refs, open: None, block: None, at: 0, next: 0 }
    }

    /// The records of several tasks.
    pub(crate) fn merged<R: FleetRecord>(
        batch: &'a Batch<'a>,
        tasks: impl IntoIterator<Item = &'a Decided>,
        range: RangeInclusive<u64>,
    ) -> Result<Merged<'a>, FleetError> {
        let tasks: Vec<&'a Decided> = tasks.into_iter().collect();
        let (budget, count) = (batch.budget(), tasks.len());
        let piece = budget.piece_of(count);
        let sources: Vec<Self> =
            tasks.into_iter().map(|task| Self::with::<R>(batch, task, range.clone(), piece)).collect();
        if count <= 1 || sources.iter().map(Self::reading).sum::<u64>() <= budget.merged_at_once() {
            return Ok(Merged::AtOnce(Merge::new(sources, Tombstones::Drop)));
        }
        let mut sorter = batch.sorter::<R>(budget.merged_at_once() as usize)?;
        // Of equal keys, a merge gives the record of the first source, and a sorter the last one
        // pushed.
        for mut source in sources.into_iter().rev() {
            while source.advance()? {
                sorter.push(source.key(), source.value())?;
            }
        }
        Ok(Merged::Sorted(sorter.finish()?))
    }

    /// The most memory that reading it takes.
    fn reading(&self) -> u64 {
        let at_once = if self.task.digests.is_some() { u64::MAX } else { self.piece };
        let unpacked = |output: &OutputRef| unpacked(output.records, self.layout).max(output.object_bytes);
        let reading = |output: &OutputRef| Budget::reading(output.object_bytes, unpacked(output), at_once);
        self.refs.iter().map(reading).max().unwrap_or(0)
    }

    fn open(&self, output: &OutputRef) -> Result<Option<Open>, IndexError> {
        let Some(attempt) = self.task.record.attempt else { return Ok(None) };
        let context = self.batch.context;
        let (repository, executor) = (&context.repository, &context.executor);
        let name = names::fleet_output(self.batch.id, self.task.task, attempt, output.number);
        if context.cancel.is_cancelled() {
            let (op, kind) = (StoreOp::Read, StoreErrorKind::Interrupted);
            return Err(StoreError { op, name, kind, source: None }.into());
        }
        let damaged = |source| RepositoryError::Damaged { name: name.clone(), source };
        let id = RunId { job: self.batch.id, seq: output.number };
        let key = RunKey::of_fleet(repository.keys(), self.task.record.domain, &name, id).map_err(damaged)?;
        let is_whole = self.task.digests.is_some() || output.object_bytes <= self.piece;
        let from = if is_whole { 0 } else { output.object_bytes.saturating_sub(u64::from(output.tail_bytes)) };
        let bytes = executor.block_on(async {
            match from {
                0 => repository.store().get_up_to(&name, output.object_bytes).await,
                _ => repository.store().get_range(&name, from..output.object_bytes).await,
            }
        })?;
        if let Some(digests) = &self.task.digests
            && digests.get(output.number as usize) != Some(blake3::hash(&bytes).as_bytes())
        {
            let why = "it is not what this process wrote";
            return Err(damaged(DecodeError::Invalid { what: "output of a fleet task", why }).into());
        }
        let index = RunIndex::decode(&key, &bytes, output.object_bytes).map_err(damaged)?;
        let left = index.blocks_within(*self.range.start(), *self.range.end());
        Ok(Some(Open { name, index, left, bytes, from }))
    }

    /// Reads the piece that begins with a block.
    fn read_piece(&mut self, number: usize) -> Result<(), IndexError> {
        let (context, piece) = (self.batch.context, self.piece);
        let Some(open) = &mut self.open else { return Ok(()) };
        // The last one is not needed any more.
        open.bytes = Bytes::new();
        let from = open.index.bytes_of(number..number + 1).start;
        let fits = |end: &usize| open.index.bytes_of(number..end + 1).end - from <= piece;
        let end = (number + 1..open.left.end).take_while(fits).last().unwrap_or(number);
        let range = open.index.bytes_of(number..end + 1);
        (open.bytes, open.from) =
            (context.executor.block_on(context.repository.store().get_range(&open.name, range))?, from);
        Ok(())
    }

    /// The next block of the open object.
    fn next_block(&mut self) -> Result<Option<Block>, IndexError> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let Some(number) = open.left.next() else { return Ok(None) };
        let range = open.index.bytes_of(number..number + 1);
        if range.start < open.from || range.end > open.from + open.bytes.len() as u64 {
            self.read_piece(number)?;
        }
        let Some(open) = &self.open else { return Ok(None) };
        let damaged = |source| RepositoryError::Damaged { name: open.name.clone(), source };
        let sealed = open.bytes.get((range.start - open.from) as usize..(range.end - open.from) as usize);
        let sealed = sealed.ok_or_else(|| damaged(DecodeError::Truncated { what: "output of a fleet task" }))?;
        Ok(Some(open.index.open_block(number, sealed, Vec::new()).map_err(damaged)?))
    }
}

impl OutputCursor<'_> {
    /// What the task left cannot be read from here on.
    fn end_early(&mut self, error: &IndexError) {
        let task = self.task.task;
        tracing::warn!(%task, %error, "what a task left cannot be read; the batch goes on without it");
        let note = format!("what task {task} left cannot be read, so that chunks may be stored twice ({error})");
        self.batch.context.progress.note(&note);
        (self.block, self.open) = (None, None);
        self.refs.clear();
    }

    fn next_record(&mut self) -> Result<bool, IndexError> {
        loop {
            if let Some(block) = &self.block
                && self.next < block.count()
            {
                self.at = self.next;
                self.next += 1;
                match prefix(block.key(self.at)) {
                    head if head > *self.range.end() => self.next = block.count(),
                    head if head >= *self.range.start() => return Ok(true),
                    _ => {}
                }
                continue;
            }
            match self.next_block()? {
                Some(block) => (self.block, self.next) = (Some(block), 0),
                None => {
                    self.block = None;
                    let Some(output) = self.refs.pop_front() else { return Ok(false) };
                    self.open = self.open(&output)?;
                }
            }
        }
    }
}

impl Cursor for OutputCursor<'_> {
    fn advance(&mut self) -> Result<bool, IndexError> {
        match self.next_record() {
            Err(error) if self.is_hint && is_about_objects(&error) => {
                self.end_early(&error);
                Ok(false)
            }
            advanced => advanced,
        }
    }

    fn key(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| block.key(self.at))
    }

    fn value(&self) -> Option<&[u8]> {
        self.block.as_ref().and_then(|block| block.value(self.at))
    }
}

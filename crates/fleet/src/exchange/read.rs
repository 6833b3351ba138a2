//! Reading a range of keys of the outputs that a register names.
//!
//! Objects of this process are read as a whole, and compared with the digest of what it wrote:
//! another machine of the domain could make such an object, if it can also delete. What other
//! processes wrote is a hint, whatever it says. It is read in pieces of what the memory allows.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use bytes::Bytes;
use larder_format::DecodeError;
use larder_format::fleet::{FleetRecord, OutputRef};
use larder_format::ids::RunId;
use larder_format::names;
use larder_format::run::{Block, RunIndex, RunKey, prefix};
use larder_index::{Cursor, IndexError, Merge, Tombstones};
use larder_store::RepositoryError;

use crate::exchange::Decided;
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
    range: RangeInclusive<u64>,
    refs: VecDeque<OutputRef>,
    open: Option<Open>,
    block: Option<Block>,
    /// The present record of the block.
    at: usize,
    /// The record after it.
    next: usize,
}

/// The records of several tasks, by rising key.
pub(crate) type Merged<'a> = Merge<OutputCursor<'a>>;

impl<'a> OutputCursor<'a> {
    /// The records of one kind whose keys begin with 8 bytes in `range`.
    pub(crate) fn new<R: FleetRecord>(batch: &'a Batch<'a>, task: &'a Decided, range: RangeInclusive<u64>) -> Self {
        let is_wanted = |output: &&OutputRef| {
            output.kind == R::KIND && output.first <= *range.end() && output.last >= *range.start()
        };
        let refs = task.record.outputs.iter().filter(is_wanted).copied().collect();
        Self { batch, task, range, refs, open: None, block: None, at: 0, next: 0 }
    }

    /// The records of several tasks.
    pub(crate) fn merged<R: FleetRecord>(
        batch: &'a Batch<'a>,
        tasks: impl IntoIterator<Item = &'a Decided>,
        range: RangeInclusive<u64>,
    ) -> Merged<'a> {
        let cursor = |task| Self::new::<R>(batch, task, range.clone());
        Merge::new(tasks.into_iter().map(cursor).collect(), Tombstones::Drop)
    }

    fn open(&self, output: &OutputRef) -> Result<Option<Open>, IndexError> {
        let Some(attempt) = self.task.record.attempt else { return Ok(None) };
        let context = self.batch.context;
        let (repository, executor) = (&context.repository, &context.executor);
        let name = names::fleet_output(self.batch.id, self.task.task, attempt, output.number);
        let damaged = |source| RepositoryError::Damaged { name: name.clone(), source };
        let id = RunId { job: self.batch.id, seq: output.number };
        let key = RunKey::of_fleet(repository.keys(), self.task.record.domain, &name, id).map_err(damaged)?;
        let is_whole = self.task.digests.is_some() || output.object_bytes <= self.batch.budget().piece;
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
        let (context, piece) = (self.batch.context, self.batch.budget().piece);
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

impl Cursor for OutputCursor<'_> {
    fn advance(&mut self) -> Result<bool, IndexError> {
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

    fn key(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| block.key(self.at))
    }

    fn value(&self) -> Option<&[u8]> {
        self.block.as_ref().and_then(|block| block.value(self.at))
    }
}

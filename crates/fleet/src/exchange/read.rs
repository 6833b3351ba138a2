//! Reading a range of keys of the outputs that a register names.
//!
//! Each object is read as a whole. Those of this process are compared with the digest of what it
//! wrote: another machine of the domain could make such an object, if it can also delete. What
//! other processes wrote is a hint, whatever it says.

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
    bytes: Bytes,
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
        let bytes = executor.block_on(repository.store().get_up_to(&name, output.object_bytes))?;
        if let Some(digests) = &self.task.digests
            && digests.get(output.number as usize) != Some(blake3::hash(&bytes).as_bytes())
        {
            let why = "it is not what this process wrote";
            return Err(damaged(DecodeError::Invalid { what: "output of a fleet task", why }).into());
        }
        let index = RunIndex::decode(&key, &bytes, output.object_bytes).map_err(damaged)?;
        let left = index.blocks_within(*self.range.start(), *self.range.end());
        Ok(Some(Open { name, index, left, bytes }))
    }

    /// The next block of the open object.
    fn next_block(&mut self) -> Result<Option<Block>, IndexError> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let Some(number) = open.left.next() else { return Ok(None) };
        let range = open.index.bytes_of(number..number + 1);
        let damaged = |source| RepositoryError::Damaged { name: open.name.clone(), source };
        let sealed = open.bytes.get(range.start as usize..range.end as usize);
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

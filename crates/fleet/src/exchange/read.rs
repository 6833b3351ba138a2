//! Reading a range of keys of the outputs that a register names.

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

/// Bytes of one request for blocks.
const SPAN_BYTES: u64 = 256 << 10;

/// Which records of a task to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender<'a> {
    /// The task.
    pub(crate) task: &'a Decided,
    /// Whether the bytes must be those that this process wrote. Another machine of the domain could
    /// make such objects, if it can also delete.
    pub(crate) is_own: bool,
}

/// An opened object, and its blocks that are still to be read.
struct Open {
    name: String,
    index: RunIndex,
    left: std::ops::Range<usize>,
    /// Fetched bytes, and the offset of the first one in the object.
    span: Bytes,
    from: u64,
}

/// See the module header.
pub(crate) struct OutputCursor<'a> {
    batch: &'a Batch<'a>,
    sender: Sender<'a>,
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
    pub(crate) fn new<R: FleetRecord>(batch: &'a Batch<'a>, sender: Sender<'a>, range: RangeInclusive<u64>) -> Self {
        let outputs = &sender.task.record.outputs;
        let is_wanted = |output: &&OutputRef| {
            output.kind == R::KIND && output.first <= *range.end() && output.last >= *range.start()
        };
        let refs = outputs.iter().filter(is_wanted).copied().collect();
        Self { batch, sender, range, refs, open: None, block: None, at: 0, next: 0 }
    }

    /// The records of several tasks.
    pub(crate) fn merged<R: FleetRecord>(
        batch: &'a Batch<'a>,
        tasks: impl IntoIterator<Item = &'a Decided>,
        range: RangeInclusive<u64>,
    ) -> Merged<'a> {
        let cursor = |task| Self::new::<R>(batch, Sender { task, is_own: false }, range.clone());
        Merge::new(tasks.into_iter().map(cursor).collect(), Tombstones::Drop)
    }

    fn open(&self, output: &OutputRef) -> Result<Option<Open>, IndexError> {
        let Sender { task, is_own } = self.sender;
        let Some(attempt) = task.record.attempt else { return Ok(None) };
        let context = self.batch.context;
        let (repository, executor) = (&context.repository, &context.executor);
        let name = names::fleet_output(self.batch.id, task.task, attempt, output.number);
        let damaged = |source| RepositoryError::Damaged { name: name.clone(), source };
        let wrong = |why| damaged(DecodeError::Invalid { what: "output of a fleet task", why });
        let id = RunId { job: self.batch.id, seq: output.number };
        let key = RunKey::of_fleet(repository.keys(), task.record.domain, &name, id).map_err(damaged)?;
        let (span, from) = match is_own {
            true => {
                let bytes = executor.block_on(repository.store().get_up_to(&name, output.object_bytes))?;
                let digest = task.digests.get(output.number as usize);
                if digest != Some(blake3::hash(&bytes).as_bytes()) {
                    return Err(wrong("it is not what this process wrote").into());
                }
                (bytes, 0)
            }
            false => {
                let count = u64::from(output.tail_bytes);
                let (tail, object_bytes) = executor.block_on(repository.store().get_tail(&name, count))?;
                if object_bytes != output.object_bytes {
                    return Err(wrong("it is not as long as the register of its task says").into());
                }
                (tail, output.object_bytes.saturating_sub(count))
            }
        };
        let index = RunIndex::decode(&key, &span, output.object_bytes).map_err(damaged)?;
        let left = index.blocks_within(*self.range.start(), *self.range.end());
        Ok(Some(Open { name, index, left, span, from }))
    }

    /// The next block of the open object.
    fn next_block(&mut self) -> Result<Option<Block>, IndexError> {
        let context = self.batch.context;
        let Some(open) = &mut self.open else { return Ok(None) };
        let Some(number) = open.left.next() else { return Ok(None) };
        let wanted = open.index.bytes_of(number..number + 1);
        let end = open.from + open.span.len() as u64;
        if wanted.start < open.from || wanted.end > end {
            let mut last = number + 1;
            while last < open.left.end && open.index.bytes_of(number..last + 1).end - wanted.start <= SPAN_BYTES {
                last += 1;
            }
            let span = open.index.bytes_of(number..last);
            open.from = span.start;
            open.span = context.executor.block_on(context.repository.store().get_range(&open.name, span))?;
        }
        let from = (wanted.start - open.from) as usize;
        let damaged = |source| RepositoryError::Damaged { name: open.name.clone(), source };
        let sealed = open.span.get(from..from + (wanted.end - wanted.start) as usize);
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

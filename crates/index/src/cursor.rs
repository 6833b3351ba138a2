//! Records in order of their keys, one at a time: the common part of scans, merges and sorters.

use larder_format::run::Block;

use crate::error::IndexError;

/// Goes over records by rising key, each key once.
pub trait Cursor {
    /// Moves to the next record, at first to the first; `false` when there is none.
    fn advance(&mut self) -> Result<bool, IndexError>;

    /// The key of the record. Only after an advance that said `true`.
    fn key(&self) -> &[u8];

    /// Its value; `None` is a tombstone.
    fn value(&self) -> Option<&[u8]>;
}

impl<C: Cursor + ?Sized> Cursor for Box<C> {
    fn advance(&mut self) -> Result<bool, IndexError> {
        (**self).advance()
    }

    fn key(&self) -> &[u8] {
        (**self).key()
    }

    fn value(&self) -> Option<&[u8]> {
        (**self).value()
    }
}

/// A block and which of its records count.
pub(crate) struct BlockPart {
    pub(crate) block: Block,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Brings blocks in order.
pub(crate) trait BlockSource {
    /// The next block; `buffer` is memory to use.
    fn next_block(&mut self, buffer: Vec<u8>) -> Result<Option<BlockPart>, IndexError>;
}

/// Goes over the records of blocks.
pub(crate) struct BlockCursor<S> {
    source: S,
    part: Option<BlockPart>,
    at: usize,
}

impl<S: BlockSource> BlockCursor<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, part: None, at: 0 }
    }

    pub(crate) fn into_source(self) -> S {
        self.source
    }
}

const BEFORE: &str = "an advance said that there is a record";

impl<S: BlockSource> Cursor for BlockCursor<S> {
    fn advance(&mut self) -> Result<bool, IndexError> {
        self.at += 1;
        while self.part.as_ref().is_none_or(|part| self.at >= part.to) {
            let buffer = self.part.take().map_or_else(Vec::new, |part| part.block.into_buffer());
            match self.source.next_block(buffer)? {
                Some(part) => {
                    self.at = part.from;
                    self.part = Some(part);
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn key(&self) -> &[u8] {
        self.part.as_ref().expect(BEFORE).block.key(self.at)
    }

    fn value(&self) -> Option<&[u8]> {
        self.part.as_ref().expect(BEFORE).block.value(self.at)
    }
}

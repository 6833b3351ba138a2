//! What tasks leave for one another: records by rising key, in objects of some megabytes.
//!
//! A task writes its outputs under the name of its attempt ([`Outputs`]), and then its register. A
//! receiver reads a range of keys of these outputs ([`OutputCursor`]). Sorting in between is that
//! of the index (`larder_index::Sorter`): sealed files without a name, within a budget.

mod read;
mod write;

pub(crate) use read::{Merged, OutputCursor};
pub(crate) use write::{Decided, Facts, Outputs};

use larder_index::{Cursor, IndexError};

/// The records of a cursor that a predicate admits by their keys.
pub(crate) struct Only<C, F> {
    records: C,
    admits: F,
}

impl<C: Cursor, F: Fn(&[u8]) -> bool> Only<C, F> {
    pub(crate) fn new(records: C, admits: F) -> Self {
        Self { records, admits }
    }
}

impl<C: Cursor, F: Fn(&[u8]) -> bool> Cursor for Only<C, F> {
    fn advance(&mut self) -> Result<bool, IndexError> {
        while self.records.advance()? {
            if (self.admits)(self.records.key()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn key(&self) -> &[u8] {
        self.records.key()
    }

    fn value(&self) -> Option<&[u8]> {
        self.records.value()
    }
}

#[cfg(test)]
mod tests;

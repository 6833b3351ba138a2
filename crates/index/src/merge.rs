//! Merging sorted records of several ages: for each key, the newest holds.

use larder_format::run::prefix;

use crate::cursor::Cursor;
use crate::error::IndexError;

/// The treatment of tombstones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tombstones {
    /// They are passed on: there are older runs for which they stand.
    Keep,
    /// They hide older records and are left out themselves.
    Drop,
}

/// Merges cursors.
#[derive(Debug)]
pub struct Merge<C> {
    /// Newest first.
    sources: Vec<C>,
    /// Sources that have a record, by falling key and then by falling age: the next one is the
    /// last.
    order: Vec<(u64, usize)>,
    tombstones: Tombstones,
    has_begun: bool,
}

impl<C: Cursor> Merge<C> {
    /// Merges `sources`, the newest first.
    pub fn new(sources: Vec<C>, tombstones: Tombstones) -> Self {
        Self { sources, order: Vec::new(), tombstones, has_begun: false }
    }

    /// The number of its sources.
    pub(crate) fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Its sources, advanced as far as the merge has read them.
    pub(crate) fn into_sources(self) -> Vec<C> {
        self.sources
    }

    /// Moves a source on and puts it where it belongs.
    fn advance_source(&mut self, source: usize) -> Result<(), IndexError> {
        if !self.sources[source].advance()? {
            return Ok(());
        }
        let key = self.sources[source].key();
        let head = prefix(key);
        let mut place = self.order.len();
        while let Some((other_head, other)) = place.checked_sub(1).map(|before| self.order[before]) {
            let other_is_later =
                other_head > head || other_head == head && (self.sources[other].key(), other) > (key, source);
            if other_is_later {
                break;
            }
            place -= 1;
        }
        self.order.insert(place, (head, source));
        Ok(())
    }

    /// Moves all sources with the current key on.
    fn leave(&mut self) -> Result<(), IndexError> {
        let Some((head, current)) = self.order.pop() else { return Ok(()) };
        while let Some(&(other_head, other)) = self.order.last() {
            if other_head != head || self.sources[other].key() != self.sources[current].key() {
                break;
            }
            self.order.pop();
            self.advance_source(other)?;
        }
        self.advance_source(current)
    }

    fn current(&self) -> &C {
        let (_, source) = self.order.last().expect("an advance said that there is a record");
        &self.sources[*source]
    }
}

impl<C: Cursor> Cursor for Merge<C> {
    fn advance(&mut self) -> Result<bool, IndexError> {
        if self.has_begun {
            self.leave()?;
        } else {
            self.has_begun = true;
            for source in 0..self.sources.len() {
                self.advance_source(source)?;
            }
        }
        while self.tombstones == Tombstones::Drop && !self.order.is_empty() && self.current().value().is_none() {
            self.leave()?;
        }
        Ok(!self.order.is_empty())
    }

    fn key(&self) -> &[u8] {
        self.current().key()
    }

    fn value(&self) -> Option<&[u8]> {
        self.current().value()
    }
}

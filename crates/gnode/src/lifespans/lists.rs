//! Lists of numbers, one behind the other in pages, and small memories of what was computed for
//! them. A container has the place of its list instead of the list.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use larder_spill::{Pages, Row, RowReader, RowWriter};

use super::TableError;

/// The place of a list. Equal places are equal lists; equal lists may have several places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ListId(pub(super) u32);

impl ListId {
    /// The empty list.
    pub(super) const EMPTY: Self = Self(0);
}

#[derive(Debug, Clone, Copy)]
struct Word(u32);

impl Row for Word {
    const BYTES: usize = 4;

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.u32(self.0);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self(row.u32())
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Lists {
    /// Each list is behind its length. The first list is empty.
    words: Pages<Word>,
    /// The places of lists that were added lately, so that most equal lists are stored once.
    known: HashMap<Box<[u32]>, ListId>,
    /// Bytes that these take, about.
    known_bytes: usize,
    known_most: usize,
}

/// Bytes of a known list beside its numbers.
const KNOWN_BYTES: usize = 48;

impl Lists {
    /// No lists. They take about `memory` bytes at most.
    pub(super) fn new(folder: &Path, memory: usize) -> Self {
        let words = Pages::new(folder, memory / 2);
        Self { words, known: HashMap::new(), known_bytes: 0, known_most: memory / 2 }
    }

    /// Adds a list.
    pub(super) fn add(&mut self, list: &[u32]) -> Result<ListId, TableError> {
        if list.is_empty() {
            return Ok(ListId::EMPTY);
        }
        if self.words.is_empty() {
            self.words.push(&Word(0))?;
        }
        let place = ListId(u32::try_from(self.words.len()).map_err(|_| TableError::Full)?);
        self.words.push(&Word(u32::try_from(list.len()).map_err(|_| TableError::Full)?))?;
        for word in list {
            self.words.push(&Word(*word))?;
        }
        Ok(place)
    }

    /// The place of a list, which is added if it is not known.
    pub(super) fn place_of(&mut self, list: &[u32]) -> Result<ListId, TableError> {
        if let Some(place) = self.known.get(list) {
            return Ok(*place);
        }
        let place = self.add(list)?;
        self.known_bytes += size_of_val(list) + KNOWN_BYTES;
        if self.known_bytes > self.known_most {
            self.known.clear();
            self.known_bytes = size_of_val(list) + KNOWN_BYTES;
        }
        self.known.insert(list.into(), place);
        Ok(place)
    }

    /// A list.
    pub(super) fn list(&mut self, place: ListId) -> io::Result<Vec<u32>> {
        if place == ListId::EMPTY {
            return Ok(Vec::new());
        }
        let begin = u64::from(place.0);
        let len = u64::from(self.words.get(begin)?.0);
        Ok(self.words.read(begin + 1..begin + 1 + len)?.into_iter().map(|word| word.0).collect())
    }

    /// Bytes of all lists, wherever they are.
    pub(super) fn bytes(&self) -> u64 {
        self.words.len() * Word::BYTES as u64
    }

    /// Bytes that are in memory.
    #[cfg(test)]
    pub(super) fn bytes_in_memory(&self) -> usize {
        self.words.bytes_in_memory() + self.known_bytes
    }
}

/// What was computed for some lists: of many, those that were asked for lately.
#[derive(Debug)]
pub(super) struct Memo<T>(HashMap<ListId, T>);

/// Values of a memo at most. Most containers have one of few lists.
const MEMO_MOST: usize = 4096;

impl<T: Copy> Memo<T> {
    pub(super) fn new() -> Self {
        Self(HashMap::new())
    }

    /// The value of a list, computed if it is not known.
    pub(super) fn of<E>(&mut self, list: ListId, compute: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        if let Some(value) = self.0.get(&list) {
            return Ok(*value);
        }
        let value = compute()?;
        if self.0.len() >= MEMO_MOST {
            self.0.clear();
        }
        self.0.insert(list, value);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_back_and_equal_ones_are_mostly_stored_once() {
        let folder = std::env::temp_dir();
        let mut lists = Lists::new(&folder, 8 << 10);
        let list = |number: u32| (0..number % 50).map(|value| value * number).collect::<Vec<_>>();
        let places: Vec<ListId> =
            (0..2000).map(|number| lists.place_of(&list(number)).expect("there is room")).collect();
        assert!(lists.bytes_in_memory() <= 48 << 10, "{}", lists.bytes_in_memory());
        for (number, place) in (0..).zip(&places) {
            assert_eq!(lists.list(*place).expect("read"), list(number));
        }
        assert_eq!(lists.place_of(&list(1999)).expect("known"), places[1999]);
        assert!(lists.place_of(&list(7)).expect("forgotten") != places[7]);
        assert_eq!(lists.place_of(&[]).expect("there"), ListId::EMPTY);
    }
}

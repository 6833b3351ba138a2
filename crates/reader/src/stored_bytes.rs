//! The stored bytes of files, read one after the other, with parts left out.
//!
//! As restores do, every chunk is verified against its fingerprint before its bytes are returned.

use std::ops::Range;

use larder_store::RepositoryError;

use crate::data_reader::{DataReader, Reach};
use crate::recipe_reader::{RecipeReader, damaged};
use crate::version::VersionReader;

/// Bytes that are planned ahead at a time when parts are left out. The rest may be left out too.
const WINDOW_BYTES: u64 = 32 << 20;

/// See the module header.
#[derive(Debug)]
pub struct StoredBytes {
    data: DataReader,
    recipe: RecipeReader,
    /// All is read, in order.
    is_all: bool,
    /// The rest of the present file, in the data stream.
    rest: Range<u64>,
    /// Bytes before this are planned.
    planned: u64,
    /// Whether a chunk begins where the rest does.
    is_at_cut: bool,
    buffer: Vec<u8>,
    taken: usize,
}

impl StoredBytes {
    /// A reader of a version. `is_all`: all files will be read, in order and whole.
    pub fn new(version: &VersionReader, is_all: bool) -> Self {
        let reach = if is_all { Reach::Range(0..u64::MAX) } else { Reach::Files };
        Self {
            data: DataReader::new(version, reach),
            recipe: version.data_names(),
            is_all,
            rest: 0..0,
            planned: 0,
            is_at_cut: true,
            buffer: Vec::new(),
            taken: 0,
        }
    }

    /// Goes to a file, by the range of its stored bytes in the data stream.
    pub fn go_to(&mut self, file: Range<u64>) {
        (self.rest, self.planned, self.taken, self.is_at_cut) = (file, 0, 0, true);
        self.buffer.clear();
    }

    /// Leaves out the next bytes of the file, at most the rest of it.
    pub fn pass(&mut self, bytes: u64) {
        let held = (self.buffer.len() - self.taken) as u64;
        let to = self.rest.start.saturating_add(bytes).min(self.rest.end);
        if bytes < held {
            self.taken += bytes as usize;
            self.rest.start = to;
        } else {
            self.go_to(to..self.rest.end);
            self.is_at_cut = false;
        }
    }

    /// Reads on in the file; 0 at its end.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, RepositoryError> {
        if self.rest.is_empty() || out.is_empty() {
            return Ok(0);
        }
        if self.taken == self.buffer.len() {
            self.fill()?;
        }
        let rest = usize::try_from(self.rest.end - self.rest.start).unwrap_or(usize::MAX);
        let count = out.len().min(self.buffer.len() - self.taken).min(rest);
        out[..count].copy_from_slice(&self.buffer[self.taken..self.taken + count]);
        self.taken += count;
        self.rest.start += count as u64;
        Ok(count)
    }

    /// Reads the chunk that holds the next byte.
    fn fill(&mut self) -> Result<(), RepositoryError> {
        let at = self.rest.start;
        self.buffer.clear();
        self.taken = 0;
        if at >= self.planned {
            let first = if self.is_at_cut { at } else { self.chunk_around(at)? };
            let left = self.rest.end - first;
            let planned = if self.is_all { left } else { left.min(WINDOW_BYTES) };
            self.data.seek(first, planned)?;
            self.planned = first + planned;
            self.taken = (at - first) as usize;
        }
        // All of it will be read, or passed.
        self.is_at_cut = true;
        if !self.data.next_chunk(&mut self.buffer)? || self.buffer.len() <= self.taken {
            let source = larder_format::DecodeError::Invalid {
                what: "recipe",
                why: "it ends before the contents that the entries name",
            };
            let node = self.recipe.recipe().nodes.last().map(|node| node.chunk);
            return Err(match node {
                Some(chunk) => damaged(&chunk, source),
                None => RepositoryError::Damaged { name: "the version's manifest".to_owned(), source },
            });
        }
        Ok(())
    }

    /// The start of the chunk that holds a byte of the stream.
    fn chunk_around(&mut self, offset: u64) -> Result<u64, RepositoryError> {
        let Some((number, mut start)) = self.recipe.segment_at(offset)? else { return Ok(offset) };
        for record in self.recipe.segment(number)?.iter() {
            let end = start + u64::from(record.chunk.size);
            if end > offset {
                break;
            }
            start = end;
        }
        Ok(start)
    }
}

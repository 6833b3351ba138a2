//! Contents of an open file.

use std::sync::Arc;

use larder_reader::{Contents, PlacedEntry};

use super::Tree;
use crate::error::TreeError;
use crate::opened::Opened;

/// An open file. Its snapshot stays protected until it is dropped.
#[derive(Debug)]
pub struct OpenFile {
    opened: Arc<Opened>,
    contents: Contents,
    path: Vec<u8>,
}

impl OpenFile {
    pub(super) fn new(opened: Arc<Opened>, placed: &PlacedEntry) -> Self {
        Self { opened, contents: Contents::of_entry(placed), path: placed.entry.path.clone() }
    }

    /// The first data, or hole, at or behind an offset. `None`: there is none, or the offset is not
    /// in the file. The end of a file counts as a hole.
    pub fn seek(&self, offset: u64, for_data: bool) -> Option<u64> {
        let size = self.contents.size();
        if offset >= size {
            return None;
        }
        let found = self.contents.pieces(offset..size).find(|piece| piece.stored.is_some() == for_data);
        found.map(|piece| piece.range.start).or((!for_data).then_some(size))
    }
}

impl Tree {
    /// Reads bytes of an open file: fewer at its end.
    ///
    /// # Errors
    /// The data is damaged or missing, or the store gives no answer.
    pub fn read(&self, file: &OpenFile, offset: u64, length: u32) -> Result<Vec<u8>, TreeError> {
        let end = offset.saturating_add(u64::from(length)).min(file.contents.size());
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        let data = self.pins.data(&file.opened);
        for piece in file.contents.pieces(offset..end) {
            let Some(stored) = piece.stored else { continue };
            let part = (piece.range.start - offset) as usize..(piece.range.end - offset) as usize;
            self.met(&file.opened, &file.path, data.read_at(stored, &mut bytes[part]))?;
        }
        Ok(bytes)
    }

    /// Closes a file.
    pub fn close(&self, file: &OpenFile) {
        self.pins.touch(&file.opened);
    }
}

//! Contents of files.

use std::sync::Arc;

use larder_format::entry::EntryKind;
use larder_reader::{Contents, PlacedEntry};
use larder_store::byte_lru::ByteLru;
use parking_lot::Mutex;

use super::Tree;
use crate::error::TreeError;
use crate::inode::Inode;
use crate::opened::Opened;

/// Bytes of memory for places of files that were opened lately.
const RECENT_BYTES: usize = 1 << 20;
/// Bytes of memory for a file without its path and runs, about.
const FILE_BYTES: usize = 200;

/// Where the contents of a file are.
#[derive(Debug)]
struct Placed {
    contents: Contents,
    path: Vec<u8>,
}

impl Placed {
    fn of(placed: &PlacedEntry) -> Self {
        Self { contents: Contents::of_entry(placed), path: placed.entry.path.clone() }
    }
}

/// The places of files that were opened lately, by inode. Inodes of snapshots never change.
pub(super) struct Recent(Mutex<ByteLru<u64, Arc<Placed>>>);

impl Default for Recent {
    fn default() -> Self {
        Self(Mutex::new(ByteLru::new(RECENT_BYTES)))
    }
}

/// An open file. Its snapshot stays protected until it is dropped.
#[derive(Debug)]
pub struct OpenFile {
    opened: Arc<Opened>,
    placed: Arc<Placed>,
}

impl OpenFile {
    /// The first data, or hole, at or behind an offset. `None`: there is none, or the offset is not
    /// in the file. The end of a file counts as a hole.
    pub fn seek(&self, offset: u64, for_data: bool) -> Option<u64> {
        let size = self.placed.contents.size();
        if offset >= size {
            return None;
        }
        let found = self.placed.contents.pieces(offset..size).find(|piece| piece.stored.is_some() == for_data);
        found.map(|piece| piece.range.start).or((!for_data).then_some(size))
    }
}

impl Tree {
    /// Opens a file. One that was opened lately needs no look at the metadata, so it may be opened
    /// for each read.
    ///
    /// # Errors
    /// It is no regular file, or its snapshot was forgotten, or the store gives no answer.
    pub fn open(&self, inode: u64) -> Result<OpenFile, TreeError> {
        let Inode::Entry { slot, position } = Inode::of(inode) else { return Err(TreeError::IsAFolder) };
        let recent = self.recent.0.lock().get(&inode);
        if let Some(placed) = recent {
            let slot = self.slot_numbered(slot)?;
            return Ok(OpenFile { opened: self.pin(&slot.version)?, placed });
        }
        let (_, opened, entry) = self.entry(slot, position)?;
        match entry.kind {
            EntryKind::File { .. } => {}
            EntryKind::Directory => return Err(TreeError::IsAFolder),
            _ => return Err(TreeError::Unsuitable),
        }
        let placed = self.met(&opened, &entry.path, opened.metadata.placed(position))?;
        let placed = Arc::new(Placed::of(&placed.ok_or(TreeError::NotFound)?));
        let bytes = FILE_BYTES + placed.path.len() + placed.contents.memory();
        self.recent.0.lock().put(inode, placed.clone(), bytes);
        Ok(OpenFile { opened, placed })
    }

    /// Reads bytes of an open file: fewer at its end.
    ///
    /// # Errors
    /// The data is damaged or missing, or the store gives no answer.
    pub fn read(&self, file: &OpenFile, offset: u64, length: u32) -> Result<Vec<u8>, TreeError> {
        let end = offset.saturating_add(u64::from(length)).min(file.placed.contents.size());
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        let data = self.pins.data(&file.opened);
        for piece in file.placed.contents.pieces(offset..end) {
            let Some(stored) = piece.stored else { continue };
            let part = (piece.range.start - offset) as usize..(piece.range.end - offset) as usize;
            self.met(&file.opened, &file.placed.path, data.read_at(stored, &mut bytes[part]))?;
        }
        Ok(bytes)
    }

    /// Closes a file.
    pub fn close(&self, file: &OpenFile) {
        self.pins.touch(&file.opened);
    }
}

//! Snapshots of volumes as a backup reads them: of a store that is open here, or of its server.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::Arc;

use larder_lnode::ReadAt;
use larder_nbd::client::{self, ClientError};
use larder_nbd::{BASE_ALLOCATION, Extent};
use larder_volume::Store;

use super::control::Client;
use crate::exit::Exit;
use crate::failure::Failure;

/// Bytes of a request to a server. Several are on their way at once.
const PIECE: usize = 256 << 10;
/// Bytes that one question about zeros covers.
const WINDOW: u64 = 1 << 30;

/// A snapshot of a store that is open here. Blocks of zeros are not on the disk.
pub(super) struct SnapshotImage {
    store: Arc<Store>,
    snapshot: u32,
    size: u64,
}

impl SnapshotImage {
    pub(super) fn new(store: Arc<Store>, snapshot: u32, size: u64) -> Self {
        Self { store, snapshot, size }
    }
}

impl ReadAt for SnapshotImage {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.store.read_snapshot(self.snapshot, offset, buffer).map_err(io::Error::other)
    }
}

/// A snapshot of a store that is served. Zeros are not sent.
pub(super) struct ServedImage {
    device: client::Client,
    has_map: bool,
    /// Stretches of the part that was asked about last: end, and whether it is zeros.
    known: RefCell<(u64, Vec<(u64, bool)>)>,
}

impl ServedImage {
    /// Connects to the server of a store.
    pub(super) fn open(store: &Path, export: &str, size: u64) -> Result<Self, Failure> {
        let contexts = vec![BASE_ALLOCATION.to_owned()];
        let options = client::Options { export: export.to_owned(), contexts, ..Default::default() };
        let device = Client::attach(store, &options)?;
        if device.size() != size {
            return Err(Failure::new(Exit::Failed, format!("the server has another snapshot {export}")));
        }
        let has_map = device.contexts().next().is_some();
        Ok(Self { device, has_map, known: RefCell::default() })
    }

    /// Whether a place is zeros, and the end of the stretch that it is in.
    fn stretch(&self, offset: u64) -> Result<(u64, bool), ClientError> {
        if !self.has_map {
            return Ok((self.device.size(), false));
        }
        let mut known = self.known.borrow_mut();
        if !known.1.last().is_some_and(|(end, _)| (known.0..*end).contains(&offset)) {
            let length = WINDOW.min(self.device.size() - offset) as u32;
            let (mut end, mut stretches) = (offset, Vec::new());
            for extent in self.device.block_status(BASE_ALLOCATION, offset, length)? {
                end += extent.length;
                stretches.push((end, extent.flags & Extent::ZERO != 0));
            }
            *known = (offset, stretches);
        }
        let at = known.1.partition_point(|(end, _)| *end <= offset);
        Ok(known.1.get(at).copied().unwrap_or((self.device.size(), false)))
    }

    fn fill(&self, mut offset: u64, mut buffer: &mut [u8]) -> Result<(), ClientError> {
        while !buffer.is_empty() {
            let (end, is_zero) = self.stretch(offset)?;
            let length = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
            let (part, rest) = buffer.split_at_mut(length);
            if is_zero {
                part.fill(0);
            } else {
                self.read(offset, part)?;
            }
            (offset, buffer) = (offset + length as u64, rest);
        }
        Ok(())
    }

    fn read(&self, offset: u64, part: &mut [u8]) -> Result<(), ClientError> {
        let mut asked = Vec::new();
        for at in (0..part.len()).step_by(PIECE) {
            let length = PIECE.min(part.len() - at) as u32;
            asked.push(self.device.submit_read(offset + at as u64, length)?);
        }
        for (piece, ticket) in part.chunks_mut(PIECE).zip(asked) {
            piece.copy_from_slice(&self.device.wait(ticket)?);
        }
        Ok(())
    }
}

impl ReadAt for ServedImage {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.fill(offset, buffer).map_err(io::Error::other)
    }
}

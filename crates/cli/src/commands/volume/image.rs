//! Snapshots of volumes as a backup reads them: of a store that is open here, or of its server.

use std::io;
use std::path::Path;
use std::sync::Arc;

use larder_source::image::{Image, NbdImage, Stops};
use larder_volume::Store;

use super::control::Client;
use crate::exit::Exit;
use crate::failure::Failure;

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

impl Image for SnapshotImage {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.store.read_snapshot(self.snapshot, offset, buffer).map_err(io::Error::other)
    }
}

/// Opens a snapshot of a store that is served.
pub(super) fn served(store: &Path, export: &str, size: u64) -> Result<NbdImage, Failure> {
    let device = Client::attach(store, &NbdImage::options(export, &[]))?;
    if device.size() != size {
        return Err(Failure::new(Exit::Failed, format!("the server has another snapshot {export}")));
    }
    Ok(NbdImage::over(device, "the server of the store", &Stops::default()))
}

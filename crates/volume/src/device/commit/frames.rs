//! Sealing compressed frames, and writing them: beside the compression of the next ones.

use std::sync::Arc;

use larder_format::container::{ContainerSealer, FrameLocation, IdentifiedFrame, seal_identified};

use crate::disk::DiskFile;
use crate::error::VolumeError;
use crate::store::container_path;

/// Bytes of neighbouring frames that are written at once: half of what a processor's second cache
/// has. A call of the system for each frame would cost as much as to copy some frames.
const PIECE: usize = 512 << 10;

/// A frame that has a place.
pub(super) struct Ready {
    /// Number of its container.
    pub(super) container: u32,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) sealer: Arc<ContainerSealer>,
    pub(super) location: FrameLocation,
    pub(super) frame: IdentifiedFrame,
}

/// Seals frames, and writes them in their order, not synced.
pub(super) fn write(frames: Vec<Ready>) -> Result<(), VolumeError> {
    let mut frames = frames.into_iter().peekable();
    let mut piece = Vec::new();
    while let Some(first) = frames.next() {
        let Ready { container, file, sealer, location, frame } = first;
        piece.clear();
        piece.extend_from_slice(&seal_identified(&sealer, location.number, frame)?.bytes);
        let follows = |next: &Ready| next.container == container;
        while piece.len() < PIECE
            && let Some(next) = frames.next_if(follows)
        {
            debug_assert_eq!(next.location.object_offset, location.object_offset + piece.len() as u64);
            piece.extend_from_slice(&seal_identified(&sealer, next.location.number, next.frame)?.bytes);
        }
        let written = file.write_at(location.object_offset, &piece);
        written.map_err(VolumeError::io(container_path(container)))?;
    }
    Ok(())
}

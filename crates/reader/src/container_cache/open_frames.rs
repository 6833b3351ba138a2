//! The last opened frames, so that neighbours in the stream need not open them again.

use std::sync::Arc;

use larder_format::compress::Decompressor;
use larder_format::container::FrameLocation;
use larder_format::ids::ContainerId;
use larder_store::byte_lru::ByteLru;

/// A frame's part of the payload.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    /// Where it begins in the payload.
    pub(crate) payload_offset: u32,
    pub(crate) raw: Arc<Vec<u8>>,
}

/// See the module header.
pub(super) struct OpenedFrames {
    frames: ByteLru<(ContainerId, u32), Arc<Vec<u8>>>,
    decompressor: Decompressor,
    scratch: Vec<u8>,
}

impl OpenedFrames {
    pub(super) fn new(bytes: usize) -> Self {
        Self { frames: ByteLru::new(bytes), decompressor: Decompressor::new(), scratch: Vec::new() }
    }

    /// A frame opened before, or by `open`: into the second buffer, with the first one as scratch.
    pub(super) fn get<E>(
        &mut self,
        container: ContainerId,
        frame: &FrameLocation,
        open: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>, &mut Decompressor) -> Result<(), E>,
    ) -> Result<Opened, E> {
        let (payload_offset, key) = (frame.payload_offset, (container, frame.number));
        if let Some(raw) = self.frames.get(&key) {
            return Ok(Opened { payload_offset, raw });
        }
        let mut raw = Vec::new();
        open(&mut self.scratch, &mut raw, &mut self.decompressor)?;
        let raw = Arc::new(raw);
        self.frames.put(key, raw.clone(), raw.len());
        Ok(Opened { payload_offset, raw })
    }
}

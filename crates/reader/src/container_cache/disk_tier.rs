//! The disk tier: frames of containers that are needed again, but not soon, in one temporary file.
//!
//! A container goes there once, without frames that nothing needs any more, and stays until its
//! last use. Frames are read one at a time, and the container never returns to memory. Frames stay
//! sealed as in the store, so opening one detects damage to the file. Damage costs another read
//! from the store.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder_format::container::{FrameLocation, FrameOpener};
use larder_store::container_reader::OpenContainer;

/// The unit of allocation in the file, in bytes.
pub(super) const BLOCK: u64 = 64 << 10;

/// Bytes that the disk tier takes for `bytes`.
pub(super) fn rounded(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// See the module header.
#[derive(Debug)]
pub(super) struct DiskTier {
    file: File,
    /// Blocks that were used and are free again.
    free: Vec<u32>,
    /// Blocks that were ever used.
    end: u32,
}

/// The part of a container on disk.
#[derive(Debug)]
pub(super) struct Spilled {
    /// Its frames in rising order, each with its place among the bytes.
    frames: Vec<(FrameLocation, u64)>,
    /// Opens them.
    pub(super) opener: FrameOpener,
    blocks: Vec<u32>,
    /// Their bytes.
    pub(super) bytes: u64,
}

impl DiskTier {
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: larder_spill::unnamed(folder)?, free: Vec::new(), end: 0 })
    }

    /// Writes the frames of a container that hold any of the `wanted` payload bytes; `None`: all
    /// that were read. The caller limits the amount.
    pub(super) fn spill(&mut self, container: &OpenContainer, wanted: Option<&[Range<u32>]>) -> io::Result<Spilled> {
        let is_wanted = |frame: &FrameLocation| {
            let range = frame.payload_range();
            wanted.is_none_or(|wanted| wanted.iter().any(|wanted| wanted.start < range.end && range.start < wanted.end))
        };
        let (_, parts) = container.sealed_parts();
        let (mut frames, mut bytes) = (Vec::new(), Vec::new());
        for frame in container.index.frames().iter().filter(|frame| is_wanted(frame)) {
            if let Some(sealed) = sealed(parts, frame) {
                frames.push((*frame, bytes.len() as u64));
                bytes.extend_from_slice(sealed);
            }
        }
        let blocks: Vec<u32> = bytes.chunks(BLOCK as usize).map(|_| self.block()).collect();
        let opener = container.index.opener().clone();
        let spilled = Spilled { frames, opener, blocks, bytes: bytes.len() as u64 };
        let write = |(at, range): (u64, Range<u64>)| {
            self.file.write_all_at(&bytes[range.start as usize..range.end as usize], at)
        };
        let written: io::Result<()> = spilled.stretches(0..spilled.bytes).try_for_each(write);
        match written {
            Ok(()) => Ok(spilled),
            Err(error) => {
                self.forget(spilled);
                Err(error)
            }
        }
    }

    /// Reads a frame as it was sealed into `sealed`; the result may differ from the written bytes.
    pub(super) fn read(
        &self,
        spilled: &Spilled,
        frame: &FrameLocation,
        place: u64,
        sealed: &mut Vec<u8>,
    ) -> io::Result<()> {
        let length = frame.entry.sealed_len;
        sealed.resize(length as usize, 0);
        for (at, range) in spilled.stretches(place..place + u64::from(length)) {
            let (from, to) = (range.start - place, range.end - place);
            self.file.read_exact_at(&mut sealed[from as usize..to as usize], at)?;
        }
        Ok(())
    }

    /// The frames are not needed any more.
    pub(super) fn forget(&mut self, spilled: Spilled) {
        self.free.extend(spilled.blocks);
    }

    fn block(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }
}

impl Spilled {
    /// The frame that holds a byte of the payload, and its place; `None`: it is not on disk.
    pub(super) fn frame_at(&self, offset: u32) -> Option<(FrameLocation, u64)> {
        let after = self.frames.partition_point(|(frame, _)| frame.payload_offset <= offset);
        self.frames[..after].last().filter(|(frame, _)| offset < frame.payload_range().end).copied()
    }

    /// Where in the file a range of the bytes is: offset in the file and range, for each contiguous
    /// stretch.
    fn stretches(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
        let mut from = range.start / BLOCK;
        let blocks = self.blocks.get(from as usize..range.end.div_ceil(BLOCK) as usize).unwrap_or_default();
        blocks.chunk_by(|a, b| a.checked_add(1) == Some(*b)).map(move |run| {
            let first = from * BLOCK;
            from += run.len() as u64;
            let part = first.max(range.start)..(from * BLOCK).min(range.end);
            (u64::from(run[0]) * BLOCK + (part.start - first), part)
        })
    }
}

/// The bytes of a frame, if they were read.
fn sealed<'a>(parts: &'a [(u64, bytes::Bytes)], frame: &FrameLocation) -> Option<&'a [u8]> {
    let range = frame.object_range();
    let (offset, bytes) = parts[..parts.partition_point(|(offset, _)| *offset <= range.start)].last()?;
    bytes.get((range.start - offset) as usize..(range.end - offset) as usize)
}

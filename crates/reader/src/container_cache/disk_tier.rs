//! The disk tier: frames of containers that are needed again, but not soon, in one temporary file.
//!
//! A container goes there once, without frames that nothing needs any more, and stays until its
//! last use. Frames are read one at a time, and the container never returns to memory. Frames stay
//! sealed as in the store, so opening one detects damage to the file. Damage costs another read
//! from the store.
//!
//! Random access (`random`) keeps single frames in the same file format. All calls may come from
//! several threads at once. A read beside a write of the same blocks returns bytes that do not
//! open.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder_format::container::{FrameLocation, FrameOpener};
use larder_store::container_reader::OpenContainer;
use parking_lot::Mutex;

/// The unit of allocation in the file, in bytes.
pub(super) const BLOCK: u64 = 64 << 10;

/// Bytes that the disk tier takes for `bytes`.
pub(crate) fn rounded(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct DiskTier {
    file: File,
    room: Mutex<Room>,
}

#[derive(Debug, Default)]
struct Room {
    /// Blocks that were used and are free again.
    free: Vec<u32>,
    /// Blocks that were ever used.
    end: u32,
}

impl Room {
    fn block(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }
}

/// Bytes on disk.
#[derive(Debug)]
pub(crate) struct Stored {
    blocks: Vec<u32>,
    /// Their number.
    pub(crate) bytes: u64,
}

/// The part of a container on disk.
#[derive(Debug)]
pub(super) struct Spilled {
    /// Its frames in rising order, each with its place among the bytes.
    frames: Vec<(FrameLocation, u64)>,
    /// Opens them.
    pub(super) opener: FrameOpener,
    stored: Stored,
}

impl DiskTier {
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: larder_spill::unnamed(folder)?, room: Mutex::default() })
    }

    /// Writes bytes. The caller limits the amount.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<Stored> {
        let blocks = {
            let mut room = self.room.lock();
            bytes.chunks(BLOCK as usize).map(|_| room.block()).collect()
        };
        let stored = Stored { blocks, bytes: bytes.len() as u64 };
        let write = |(at, range): (u64, Range<u64>)| {
            self.file.write_all_at(&bytes[range.start as usize..range.end as usize], at)
        };
        let written: io::Result<()> = stored.stretches(0..stored.bytes).try_for_each(write);
        match written {
            Ok(()) => Ok(stored),
            Err(error) => {
                self.release(&stored);
                Err(error)
            }
        }
    }

    /// Reads a range of what was written; the result may differ from it.
    pub(crate) fn read_range(&self, stored: &Stored, range: Range<u64>, out: &mut Vec<u8>) -> io::Result<()> {
        out.resize((range.end - range.start) as usize, 0);
        for (at, part) in stored.stretches(range.clone()) {
            let (from, to) = (part.start - range.start, part.end - range.start);
            self.file.read_exact_at(&mut out[from as usize..to as usize], at)?;
        }
        Ok(())
    }

    /// The bytes are not needed any more: their blocks are free, once.
    pub(crate) fn release(&self, stored: &Stored) {
        self.room.lock().free.extend_from_slice(&stored.blocks);
    }

    /// Writes the frames of a container that hold any of the `wanted` payload bytes; `None`: all
    /// that were read. The caller limits the amount.
    pub(super) fn spill(&self, container: &OpenContainer, wanted: Option<&[Range<u32>]>) -> io::Result<Spilled> {
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
        let stored = self.write(&bytes)?;
        Ok(Spilled { frames, opener: container.index.opener().clone(), stored })
    }

    /// Reads a frame as it was sealed into `sealed`; the result may differ from the written bytes.
    pub(super) fn read(
        &self,
        spilled: &Spilled,
        frame: &FrameLocation,
        place: u64,
        sealed: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.read_range(&spilled.stored, place..place + u64::from(frame.entry.sealed_len), sealed)
    }

    /// The frames are not needed any more.
    pub(super) fn forget(&self, spilled: Spilled) {
        self.release(&spilled.stored);
    }
}

impl Spilled {
    /// Bytes of its frames.
    pub(super) fn bytes(&self) -> u64 {
        self.stored.bytes
    }

    /// The frame that holds a byte of the payload, and its place; `None`: it is not on disk.
    pub(super) fn frame_at(&self, offset: u32) -> Option<(FrameLocation, u64)> {
        let after = self.frames.partition_point(|(frame, _)| frame.payload_offset <= offset);
        self.frames[..after].last().filter(|(frame, _)| offset < frame.payload_range().end).copied()
    }
}

impl Stored {
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

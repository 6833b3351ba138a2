//! The disk tier: containers that are needed again, but not soon, in one temporary file.
//!
//! What lies there is sealed as it is in the store. Whatever is wrong with the file costs reading from the store again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use larder_chunking::Fingerprinter;
use larder_format::Fingerprint;
use larder_format::ids::ContainerId;
use larder_store::Repository;
use larder_store::container_reader::OpenContainer;

use super::scratch;

/// The file is given out in blocks of so many bytes.
pub(super) const BLOCK: u64 = 64 << 10;

/// What the disk tier takes for so many bytes.
pub(super) fn rounded(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// See the module header.
#[derive(Debug)]
pub(super) struct DiskTier {
    file: Arc<File>,
    /// Blocks that were used and are free again.
    free: Vec<u32>,
    /// Blocks that were ever used.
    end: u32,
}

/// A container on disk.
#[derive(Debug)]
pub(super) struct Spilled {
    id: ContainerId,
    object_len: u64,
    /// Offset in the object and length of each part.
    parts: Vec<(u64, usize)>,
    blocks: Vec<u32>,
    sum: Fingerprint,
}

impl DiskTier {
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: Arc::new(scratch::unnamed(folder)?), free: Vec::new(), end: 0 })
    }

    /// Writes a container. How much there may be is not decided here.
    pub(super) fn spill(&mut self, container: &OpenContainer, summer: &Fingerprinter) -> io::Result<Spilled> {
        let (object_len, sealed) = container.sealed_parts();
        let mut bytes = Vec::with_capacity(container.bytes_held() as usize);
        sealed.iter().for_each(|(_, part)| bytes.extend_from_slice(part));
        let blocks: Vec<u32> = bytes.chunks(BLOCK as usize).map(|_| self.block()).collect();
        for (from, run) in runs(&blocks) {
            let (from, to) = (from * BLOCK as usize, (from + run.len()) * BLOCK as usize);
            let written = self.file.write_all_at(&bytes[from..to.min(bytes.len())], u64::from(run[0]) * BLOCK);
            if let Err(error) = written {
                self.free.extend(&blocks);
                return Err(error);
            }
        }
        let parts = sealed.iter().map(|(offset, part)| (*offset, part.len())).collect();
        Ok(Spilled { id: container.index.id, object_len, parts, blocks, sum: summer.one(&bytes) })
    }

    fn block(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }

    /// What is there is not needed any more.
    pub(super) fn forget(&mut self, spilled: &Spilled) {
        self.free.extend(&spilled.blocks);
    }

    /// What reads without the tier being at hand.
    pub(super) fn file(&self) -> Arc<File> {
        self.file.clone()
    }
}

impl Spilled {
    /// Reads the container back; `None` when it is not what was written.
    pub(super) fn read(&self, file: &File, repository: &Repository, summer: &Fingerprinter) -> Option<OpenContainer> {
        let total = self.parts.iter().map(|(_, length)| *length).sum();
        let mut bytes = vec![0; total];
        for (from, run) in runs(&self.blocks) {
            let (from, to) = (from * BLOCK as usize, (from + run.len()) * BLOCK as usize);
            let read = file.read_exact_at(&mut bytes[from..to.min(total)], u64::from(run[0]) * BLOCK);
            if let Err(error) = read {
                tracing::warn!(%error, "the disk tier cannot be read");
                return None;
            }
        }
        if summer.one(&bytes) != self.sum {
            tracing::warn!("the disk tier gives back other bytes than were written");
            return None;
        }
        let mut rest = Bytes::from(bytes);
        let parts = self.parts.iter().map(|(offset, length)| (*offset, rest.split_to(*length))).collect();
        repository.reopen_container(self.id, self.object_len, parts).ok()
    }
}

/// Stretches of blocks that follow one another, each with the place of its first.
fn runs(blocks: &[u32]) -> impl Iterator<Item = (usize, &[u32])> {
    let mut from = 0;
    blocks.chunk_by(|a, b| a.checked_add(1) == Some(*b)).map(move |run| {
        let place = from;
        from += run.len();
        (place, run)
    })
}

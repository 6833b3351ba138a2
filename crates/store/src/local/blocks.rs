//! Reading and writing past the page cache: which files do so, and memory that begins at a block's
//! border.
//!
//! Containers are written once and read seldom. Through the page cache, each of their bytes costs
//! the allocation of a page and the eviction of another, which was in use. On a virtual machine,
//! that is a quarter of a first backup's CPU time. So large pieces of large files go past it
//! (`O_DIRECT`), through an aligned buffer.
//!
//! Nothing relies on it: if the file system refuses, data goes through the cache.

use std::fs::File;

use parking_lot::Mutex;
use rustix::fs::OFlags;

/// Pieces below this size (bytes) go through the page cache: metadata containers and manifests are
/// read again soon.
pub(super) const DIRECT_MIN: usize = 1 << 20;

/// Alignment of memory, offset and length that every block device takes.
pub(super) const BLOCK: usize = 4096;

/// Bytes of one request. Larger ones hardly gain, and the buffer would leave the core's cache.
pub(super) const STEP: usize = 1 << 20;

const _: () = assert!(STEP.is_multiple_of(BLOCK) && STEP <= DIRECT_MIN);

/// Buffers that are kept for the next file: no more than files were ever used at once.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    spare: Mutex<Vec<Buffer>>,
}

impl Buffers {
    /// Lets `work` read or write whole blocks of the file through [`STEP`] bytes of aligned memory.
    /// `None` where the file system cannot do so (tmpfs, some network and FUSE mounts). Afterwards
    /// the file is as it was opened.
    pub(super) fn past_cache<T>(&self, file: &File, work: impl FnOnce(&mut [u8]) -> T) -> Option<T> {
        let flags = rustix::fs::fcntl_getfl(file).ok()?;
        rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
        let spare = self.spare.lock().pop();
        let mut buffer = spare.unwrap_or_default();
        let done = work(buffer.blocks());
        self.spare.lock().push(buffer);
        // If this fails, the transfer of partial blocks fails too, and that is reported.
        let _ = rustix::fs::fcntl_setfl(file, flags);
        Some(done)
    }

    /// How many are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.spare.lock().len()
    }
}

/// Memory that begins at a block's border.
#[derive(Debug)]
struct Buffer(Vec<u8>);

impl Default for Buffer {
    fn default() -> Self {
        Self(vec![0; STEP + BLOCK])
    }
}

impl Buffer {
    fn blocks(&mut self) -> &mut [u8] {
        let from = self.0.as_ptr().align_offset(BLOCK);
        self.0.get_mut(from..from + STEP).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_at_a_block() {
        for _ in 0..3 {
            let mut buffer = Buffer::default();
            let blocks = buffer.blocks();
            assert_eq!((blocks.as_ptr() as usize % BLOCK, blocks.len()), (0, STEP));
        }
    }
}

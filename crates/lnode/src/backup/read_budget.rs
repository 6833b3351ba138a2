//! How much memory a backup takes for the bytes of large files.

/// Sizes of the pieces in which large files are read, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadBudget {
    /// Bytes that are read and cut at once.
    pub block: usize,
    /// The bytes of one file that are held, beside blocks under way. A segment of the base that is
    /// longer is not compared as a whole: it is cut, and its chunks are found. `None`: as many as
    /// the segments have, for each thread. They have some 2 MiB, and 8 MiB at most.
    pub window: Option<usize>,
}

/// Blocks under way beside those that threads cut: one waits, and one is sequenced.
const MORE_BLOCKS: usize = 2;

impl ReadBudget {
    /// The least memory, for one thread. Some 95 % of all segments fit into the window.
    pub const SMALL: Self = Self::small(1);
    const SMALL_BLOCK: usize = 512 << 10;
    const SMALL_WINDOW: usize = 4 << 20;

    /// The least memory with which `threads` threads have work. Each compares segments of its own.
    pub const fn small(threads: usize) -> Self {
        Self { block: Self::SMALL_BLOCK, window: Some(threads.saturating_mul(Self::SMALL_WINDOW)) }
    }

    /// The bytes of [`Self::small`]: for a window, and for blocks under way.
    pub const fn small_bytes(threads: usize) -> usize {
        let blocks = threads.saturating_add(MORE_BLOCKS).saturating_mul(Self::SMALL_BLOCK);
        threads.saturating_mul(Self::SMALL_WINDOW).saturating_add(blocks)
    }
}

impl Default for ReadBudget {
    /// As fast as the machine: enough chunks to fingerprint several at once, small enough for the
    /// cache.
    fn default() -> Self {
        Self { block: 2 << 20, window: None }
    }
}

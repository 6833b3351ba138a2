//! [`Lower`]: content outside of a store.

use std::io;
use std::ops::Range;

/// Content outside of the store that a volume is over, such as a version of a repository. It
/// never changes.
pub trait Lower: Send + Sync {
    /// Fills the buffer from an offset. The range is within [`Self::len`].
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Bytes. The volume reads as zeros behind them.
    fn len(&self) -> u64;

    /// Whether a range is known to be zeros. It may go beyond the end.
    fn is_zero(&self, range: Range<u64>) -> bool;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

//! What an order of candidates is, and the search that every kernel must equal.
//!
//! Callers: the MinCDC chunker, the self-test and the tests.

use std::fmt::Debug;

use crate::params::Algorithm;

/// A keyed order of the windows that end at the candidates.
pub(crate) trait Order: Copy + Send + Sync + 'static {
    /// Bytes before a candidate that give its hash. A multiple of four.
    const WINDOW: usize;

    /// The algorithm that cuts by this order.
    const ALGORITHM: Algorithm;

    /// An implementation of the search. All give the same answer.
    type Kernel: Copy + Debug + PartialEq + Send + Sync + 'static;

    /// Draws the key of the order from the repository's seed.
    fn from_seed(seed: &[u8; 32]) -> Self;

    /// Hash of the first [`Order::WINDOW`] bytes.
    fn of(&self, bytes: &[u8]) -> u32;

    /// All kernels this machine runs, the slowest first. The first is the reference.
    fn kernels() -> impl Iterator<Item = Self::Kernel>;

    /// Position of the last smallest hash. `bytes` holds at least one window.
    fn last_smallest(&self, kernel: Self::Kernel, bytes: &[u8]) -> usize;
}

/// The reference. Its answers are right by definition.
pub(crate) fn reference<O: Order>(order: &O, bytes: &[u8]) -> usize {
    let mut best = 0;
    let mut smallest = u32::MAX;
    for (position, window) in bytes.windows(O::WINDOW).enumerate() {
        let value = order.of(window);
        if value <= smallest {
            smallest = value;
            best = position;
        }
    }
    best
}

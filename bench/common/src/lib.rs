//! What the benches that rerun papers have in common: cutting and naming, two rivals' rules, a clock, the
//! product's own nodes over a store in memory, and pages with tables and plots.
//!
//! `bench/slimstore` and `bench/mfdedup` use it; nothing else does. CPU time is real and of one thread; random numbers come from seeds that
//! callers give.

pub mod clock;
pub mod front;
pub mod names;
pub mod node;
pub mod page;
pub mod plot;
pub mod rewriting;
pub mod rng;
pub mod table;

/// Secret of the harness's chunkers and names. It is no secret.
pub const SEED: [u8; 32] = *b"larder slimstore bench, not keys";

/// MB of so many bytes, as all pages count them.
#[must_use]
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

//! The schemes that are compared, over the same chunks: who stores what where, what that costs to keep, and what a restore reads.
//!
//! No scheme holds bytes, only names, sizes and places. [`Classic`] is what has containers and an index of everything: exact
//! deduplication, HAR and Capping, each with perfect collection or by container markers. [`MfDedup`] is the paper's layout, [`Larder`] the
//! rules of the `lifecycle` layout as a model.

mod classic;
mod larder;
mod log;
mod mfdedup;
mod neighbours;
mod opt;
#[cfg(test)]
mod tests;

use larder_bench_common::front::Piece;

pub(crate) use classic::{Classic, Collection, Rule};
pub(crate) use larder::{Larder, Lifecycle};
pub(crate) use mfdedup::MfDedup;
pub(crate) use neighbours::Bases;

use crate::disk::{Reading, Work};

/// Bytes of an entry in a table of fingerprints: a fingerprint of 32 bytes and a place of 8.
pub(crate) const ENTRY: usize = 40;

/// Number of a version, from 1.
pub(crate) type Number = u32;

/// One way to store versions. A driver backs up, deletes what is over the retention, and lets it arrange, in this order.
pub(crate) trait Scheme {
    fn name(&self) -> String;

    /// The next version: every piece is found or stored.
    fn back_up(&mut self, version: Number, pieces: &[Piece]);

    /// Deletes a version, not the newest, and frees what that frees.
    fn delete(&mut self, version: Number) -> Work;

    /// Puts in order what the newest version left behind.
    fn arrange(&mut self) -> Work;

    /// Bytes that are stored.
    fn stored(&self) -> u64;

    /// Bytes of the tables of fingerprints that a backup needs in memory.
    fn table_bytes(&self) -> usize;

    /// What a restore reads. `memory` is for containers that are needed again, where the scheme writes in order.
    fn restore(&self, version: Number, memory: u64) -> Restored;

    /// The version's chunks, looked up where the layout says they lie; a chunk that is not there is left out.
    #[cfg(test)]
    fn content(&self, version: Number) -> Vec<Piece>;
}

/// What restores of a version read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Restored {
    /// As the scheme does it: rivals in the order of the stream with a cache of containers, layouts by lifecycle in that of the disk.
    pub(crate) usual: Reading,
    /// Everything once, in the order of the disk, written to wherever it belongs.
    pub(crate) once: Reading,
}

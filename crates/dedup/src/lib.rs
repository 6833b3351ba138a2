//! Finding duplicates, and grouping records into segments and recipe nodes. No I/O but on temporary
//! files that it is given.
//!
//! * [`GroupFilter`]: is a chunk among those of a base version (grouped by segment) or of an
//!   unfinished job (grouped by container)? It follows the stream with a cursor, so most duplicates
//!   cost one comparison. When the stream departs from the expectation, it finds its place again by
//!   fingerprint.
//! * [`HistoryCutter`]: cuts and finds chunks by what followed the last duplicate in the history,
//!   unscanned.
//! * [`SpillingIndex`]: every chunk, exactly, for a [`GroupFilter`] whose stream does not repeat
//!   itself in order.
//! * [`OwnChunks`], [`OlderChunks`]: is it among those this job has stored itself? [`Bloom`]:
//!   surely not.
//! * [`Segmenter`] and [`NodeCutter`]: where segments and nodes end, by content alone, so that
//!   versions share them.
//!
//! * [`Sketcher`] and [`choose`]: which other streams a new one resembles.
//! * [`chain`]: asks such filters one after the other.
//! * [`Tries`]: whether a kind of prediction is worth trying.
//!
//! Input: fingerprints in stream order, a loader for groups, and files for data without room in
//! memory. Output: chunk records. Everything is bounded by a budget given at construction.
//! Implements section IV of the SlimStore paper.

mod bloom;
pub mod chain;
mod group_filter;
mod history;
mod own_chunks;
mod sampled_index;
mod segmenter;
mod sketch;
mod spilling_index;
mod tries;

pub use bloom::Bloom;
pub use group_filter::{AHEAD_MAX, Group, GroupFilter, Held, LoadGroup};
pub use history::{Cut, History, HistoryCutter, Skips, Tools};
pub use own_chunks::{KeepGroups, OWN_GROUP, OlderChunks, OwnChunks};
pub use sampled_index::{NoteGroups, SampledIndex, sample};
pub use segmenter::{NodeCutter, SAMPLED_ONE_IN, Segmenter, is_sampled, samples_of};
pub use sketch::{SKETCH_HEAD, Sketcher, choose};
pub use spilling_index::{Asked, NewFile, SpillingIndex};
pub use tries::Tries;

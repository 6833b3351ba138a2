//! Finding duplicates, and grouping what is found into segments and recipe nodes. No I/O.
//!
//! * [`GroupFilter`]: is a chunk among those of a base version (grouped by segment) or of an unfinished job (grouped by
//!   container)? It follows the stream with a cursor, so most duplicates cost one comparison, and finds its place again by
//!   fingerprint when the stream departs from what was expected.
//! * [`HistoryCutter`]: cuts and finds chunks by what followed the last duplicate in the history, unscanned.
//! * [`OwnChunks`]: is it among those this job has stored itself?
//! * [`Segmenter`] and [`NodeCutter`]: where segments and nodes end, by content alone, so that versions share them.
//!
//! * [`Sketcher`] and [`choose`]: which other streams a new one resembles.
//! * [`chain`]: asks such filters one after the other.
//!
//! What flows in: fingerprints in stream order, and a loader for groups. What flows out: chunk records. Everything is
//! bounded by a budget given at construction. Carries `DESIGN.md` section 4 (steps 3 and 4), SlimStore section IV.

pub mod chain;
mod group_filter;
mod history;
mod own_chunks;
mod sampled_index;
mod segmenter;
mod sketch;

pub use group_filter::{AHEAD_MAX, Group, GroupFilter, Held, LoadGroup};
pub use history::{Cut, History, HistoryCutter, Skips, Tools};
pub use own_chunks::OwnChunks;
pub use sampled_index::{SampledIndex, sample};
pub use segmenter::{NodeCutter, Segmenter, samples_of};
pub use sketch::{SKETCH_HEAD, Sketcher, choose};

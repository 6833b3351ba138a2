//! What memory has no room for: files without a name, rows of a fixed size in them, and sorted runs
//! of rows.
//!
//! * [`unnamed`], [`unnamed_in`]: a temporary file that is gone with the process.
//! * [`Row`], [`RowFile`]: rows by their number.
//! * [`SortedRuns`]: rows by their key, in sorted runs that are merged.
//!
//! Guarantees: a row that was written is read back as it was, or an error is returned. Memory is
//! bounded by constants and by one key for each page of a run. What an error costs is for the
//! caller to decide: most go on with less knowledge.
//!
//! This crate knows no other. The crates `index`, `dedup`, `reader`, `lnode` and `rewrite` use it;
//! the first two do not know `job`.

mod rows;
mod runs;
mod unnamed;

pub use rows::{Row, RowFile, RowReader, RowWriter};
pub use runs::{KeyedRow, SortedRuns};
pub use unnamed::{unnamed, unnamed_in};

//! Data that exceeds memory: files without a name, rows of a fixed size in them, and sorted runs of
//! rows.
//!
//! * [`unnamed`], [`unnamed_in`]: a temporary file that is gone with the process.
//! * [`Row`], [`RowFile`]: rows by their number.
//! * [`SortedRuns`]: rows by their key, in sorted runs that are merged.
//! * [`RecordSorter`]: records of any length, sorted by their keys.
//! * [`RowSorter`]: rows in any order become rows in their order.
//! * [`Pages`]: rows by their number that can be changed. Pages beyond the memory are in a file.
//! * [`KeyedPages`]: rows by their key, in such pages.
//!
//! Guarantees: a written row is read back unchanged, or an error is returned. Memory is bounded by
//! constants and by one key for each page of a run. The caller decides the consequence of an error:
//! most continue with less knowledge.
//!
//! This crate depends on no other. Of the crates that use it, `index`, `dedup`, `source` and
//! `volume` do not depend on `job`.

mod keyed_pages;
mod pages;
mod records;
mod row_sorter;
mod rows;
mod runs;
mod unnamed;

pub use keyed_pages::KeyedPages;
pub use pages::Pages;
pub use records::{Record, RecordIter, RecordSorter, RecordWriter, SortedRecords};
pub use row_sorter::{RowSorter, SortedRows};
pub use rows::{Row, RowFile, RowReader, RowWriter};
pub use runs::{KeyedRow, SortedRuns};
pub use unnamed::{unnamed, unnamed_in};

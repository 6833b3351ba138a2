//! The tables of a store: page runs on disk, and what changed since in memory.

mod merge;
mod run_file;
mod tables;

pub(crate) use merge::{Record, RunWriter, newest};
pub(crate) use run_file::{PageCache, RunFile, Scan};
pub(crate) use tables::{Memtables, Runs, block_key, block_of_key, chunk_key, place_of, value_of};

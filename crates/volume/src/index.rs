//! The tables of a store: page runs on disk, and what changed since in memory.

mod batch;
mod generation;
mod keep;
mod key_map;
mod merge;
mod ranges;
mod removal;
mod run_file;
mod tables;
mod view;

pub(crate) use generation::Runs;
pub(crate) use keep::{Bounds, Judged};
pub(crate) use key_map::KeyMap;
pub(crate) use merge::{Record, RunWriter, Source, newest, summed};
pub(crate) use ranges::Ranges;
pub(crate) use removal::Removals;
pub(crate) use run_file::{PageCache, RunFile, Scan, path as run_path};
pub(crate) use tables::{Memtables, block_key, block_of_key, chunk_key, place_key, place_of, value_of};
pub(crate) use view::View;

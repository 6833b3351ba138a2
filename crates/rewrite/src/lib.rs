//! Checks, copies and repairs versions.
//!
//! * [`check()`]: whether the repository is whole.
//! * [`chunk_copier`]: copies chunks and rewrites recipes, for maintenance.
//! * [`repair`]: restores lost chunks from files, and saves the rest of damaged versions.
//!
//! This crate never deletes an object, and never changes the index. Only a repair commits, as a job
//! like a backup. Above: `gnode`, `cli`. Below: `lnode` (repairs read files as a backup does),
//! `reader`, `writer`, `job`.

pub mod check;
pub mod chunk_copier;
#[cfg(test)]
mod kind_tests;
pub mod repair;

pub use check::{CheckOptions, CheckReport, check};

//! Checks, copies and repairs versions.
//!
//! * [`check()`]: whether the repository is whole.
//! * [`chunk_copier`]: copies chunks and rewrites recipes, for maintenance.
//! * [`repair`]: restores lost chunks from files, and saves the rest of damaged versions.
//! * [`change()`]: makes versions without some paths, or with other facts for people.
//!
//! This crate never deletes an object, and never changes the index. Only repairs and changes
//! commit, as jobs like a backup. Above: `gnode`, `cli`. Below: `lnode` (repairs read files as a
//! backup does), `reader`, `writer`, `job`.

pub mod change;
pub mod check;
pub mod chunk_copier;
mod derived;
mod error;
#[cfg(test)]
mod kind_tests;
pub mod repair;
mod rewriting;

pub use change::change;
pub use check::{CheckOptions, CheckReport, check};

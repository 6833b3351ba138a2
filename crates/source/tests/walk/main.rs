//! All tests of walking and reading, in one program: a program for each would take longer to build than to run.
//!
//! `cargo test -p larder-source --test walk NAME` runs those whose path has `NAME` in it.

mod attributes;
mod excludes;
mod order;
mod races;
mod read_changes;
mod read_files;
mod roots;
mod support;

//! All tests of what a restore writes, in one program: a program for each would take longer to build than to run.
//!
//! `cargo test -p larder-source --test target NAME` runs those whose path has `NAME` in it.

mod escapes;
mod files;
mod folders;
mod full_disk;
mod links;
mod metadata;
mod omit;
mod roundtrip;
mod sparse;
mod support;
mod treediff;
mod verify;

//! All tests of this crate through its public interface, in one program: a program for each would take longer to build than to run.
//!
//! `cargo test -p larder-lnode --test suite NAME` runs those whose path has `NAME` in it.

mod ahead;
mod arranged;
mod arranging_model;
mod assembling;
mod check;
mod chunk_copier;
mod copying;
mod crash_sweep;
mod diffing;
mod fleet_model;
mod fleet_workers_model;
mod full_vision;
mod images;
mod index_model;
mod layouts_model;
mod lengths;
mod lies_model;
mod moved;
mod neighbours;
mod old_trees;
mod order;
mod paranoid;
mod prediction;
mod protocol_model;
mod reading;
mod restoring;
mod roundtrip;
mod similar;
mod support;
mod trust_model;
mod unanswered;
mod windows;
mod witnessed;

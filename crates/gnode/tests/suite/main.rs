//! All tests of this crate through its public interface, in one program: a program for each would take longer to build than to run.
//!
//! `cargo test -p larder-gnode --test suite NAME` runs those whose path has `NAME` in it.

mod accounted;
mod append_only;
mod arranging;
mod arranging_at_once;
mod arranging_damage;
mod at_once;
mod categories;
mod check_workers;
mod collecting;
mod compaction;
mod converting;
mod converting_damage;
mod crash_sweep;
mod daemon;
mod estimates;
mod exact_across_series;
mod fifty_versions;
mod fleet;
mod fleet_faults;
mod fleet_properties;
mod fleet_rounds;
mod fleet_rules;
mod fleet_workers;
mod forged_generations;
mod forged_places;
mod generations;
mod ingesting;
mod layouts_apart;
mod lost_index;
mod maintenance;
mod many_series;
mod metadata_left;
mod mfdedup_pitfalls;
mod mirroring;
mod one_lie;
mod one_memory;
mod pass_workers;
#[path = "../../../lnode/tests/suite/support/mod.rs"]
mod pipelines;
mod proportion;
mod random_access;
mod reading_moved;
mod rebuilt_beside_jobs;
mod rebuilt_histories;
mod reclaim;
mod reclaim_at_once;
mod reclaim_rules;
mod repairing_versions;
mod scattered_metadata;
mod shares;
mod sharing;
mod steady_requests;
mod support;
mod volumes;

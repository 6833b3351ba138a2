//! The safety protocol between jobs and deletion (`docs/concurrency.md`), model-checked.
//!
//! The model has a bucket with atomic creates, reads and deletes of single objects and listings that are *not* atomic,
//! jobs that may stop or be slow at any step, users who forget versions, and G-nodes that may take any lease for expired at
//! any moment, may stop at any step and may run beside one another. The checker tries every interleaving of a scenario.
//! Object names are those of `larder_format::names`; one letter stands for a job's id and the series is left out.
//!
//! Two groups of tests. Here: under all rules the invariants hold in every scenario, and what should be possible is.
//! In `without_rules.rs`: switch off any one rule and the checker finds the loss that the rule prevents. `tasks.rs` has both for
//! tasks of the G-node that move chunks: compaction, reverse dedup, rewriting.
//!
//! Not drawn, because no step depends on it: renewals (whether a lease is *thought* expired is open anyway), the content
//! of containers, the number of the index (winning the next is one step, `Publish`), and clocks.

mod collector;
mod generations;
mod job;
mod model;
mod properties;
mod rules;
mod scenario;
mod sets;
mod state;
mod tasks;
mod without_rules;

use stateright::{Checker, Model, Property};

use crate::protocol_model::model::Protocol;
use crate::protocol_model::properties::*;
use crate::protocol_model::rules::Rules;
use crate::protocol_model::scenario::Scenario;

/// Explores every state of the scenario under all rules.
fn holds(scenario: Scenario, witnesses: Vec<Property<Protocol>>) {
    explore(Protocol { witnesses, ..Protocol::new(scenario, Rules::ALL) });
}

/// The same, and from every state one quiet pass must clean up.
fn holds_and_cleans_up(scenario: Scenario, witnesses: Vec<Property<Protocol>>) {
    explore(Protocol { witnesses, look_for_leaks: true, ..Protocol::new(scenario, Rules::ALL) });
}

fn explore(protocol: Protocol) {
    let checker = protocol.checker().symmetry().spawn_dfs().join();
    assert!(checker.is_done(), "some states were not explored");
    checker.assert_properties();
}

#[test]
fn a_base_stays_for_the_job_that_checked_it() {
    holds_and_cleans_up(
        Scenario::one_base(1),
        vec![collected(), outlives_base(), does_without_base(), notices_fence()],
    );
}

#[test]
fn a_base_stays_beside_two_g_nodes() {
    holds(Scenario::one_base(2), vec![collected(), outlives_base(), does_without_base(), notices_fence()]);
}

#[test]
fn a_base_stays_when_it_was_built_on_another() {
    holds_and_cleans_up(
        Scenario::base_chain(),
        vec![collected(), outlives_base(), does_without_base(), notices_fence()],
    );
}

#[test]
fn a_base_stays_for_two_jobs() {
    holds(Scenario::shared_base(), vec![collected(), outlives_base(), does_without_base(), notices_fence()]);
}

#[test]
fn adopted_containers_stay() {
    holds_and_cleans_up(Scenario::adoption(1), vec![adopted_from_the_dead(), adopted_from_the_slow(), collected()]);
}

#[test]
fn adopted_containers_stay_beside_two_g_nodes() {
    holds(Scenario::adoption(2), vec![adopted_from_the_dead(), adopted_from_the_slow(), collected()]);
}

#[test]
fn adopted_containers_stay_for_two_adopters() {
    holds(Scenario::two_adopters(), vec![adopted_from_the_dead(), adopted_from_the_slow(), collected()]);
}

#[test]
fn adopted_containers_stay_along_a_chain() {
    holds(Scenario::adoption_chain(), vec![adopted_from_the_dead(), adopted_from_the_slow(), collected()]);
}

#[test]
fn an_adopter_of_an_adopter_needs_only_what_it_named() {
    holds(Scenario::adoption_of_an_adopter(), vec![adopted_from_the_dead(), adopted_from_the_slow()]);
}

#[test]
fn an_adopter_shares_the_base_of_the_adopted() {
    holds(Scenario::adoption_on_a_base(), vec![adopted_from_the_dead(), adopted_from_the_slow(), outlives_base()]);
}

#[test]
fn a_slow_job_is_adopted_and_then_a_base() {
    holds(Scenario::adopted_then_base(), vec![adopted_from_the_dead(), adopted_from_the_slow(), outlives_base()]);
}

#[test]
fn what_is_read_stays() {
    holds_and_cleans_up(Scenario::reading(1), vec![reads_to_the_end(), collected()]);
}

#[test]
fn what_is_read_stays_beside_two_g_nodes() {
    holds(Scenario::reading(2), vec![reads_to_the_end(), collected()]);
}

#[test]
fn readers_and_backups_share_a_version() {
    holds(Scenario::reading_beside_a_backup(), vec![reads_to_the_end(), outlives_base(), collected()]);
}

#[test]
fn a_create_without_answer_may_land_at_any_time() {
    holds_and_cleans_up(Scenario::late_commit(), vec![late_create_wins(), outlives_base(), collected()]);
}

#[test]
fn leases_and_commits_of_an_adopted_job_may_land_at_any_time() {
    holds_and_cleans_up(
        Scenario::late_creates_adopted(),
        vec![late_create_wins(), adopted_from_the_dead(), collected()],
    );
}

/// Two G-nodes beside three jobs, or beside creates that land late.
#[test]
#[ignore = "tens of minutes and some gigabytes; meant for --release"]
fn two_g_nodes_beside_everything() {
    let scenarios = [
        Scenario::reading_beside_a_backup(),
        Scenario::late_commit(),
        Scenario::late_creates_adopted(),
        Scenario::base_chain(),
        Scenario::adoption_on_a_base(),
        Scenario::shared_base(),
        Scenario::adopted_then_base(),
        Scenario::adoption_chain(),
        Scenario::two_adopters(),
    ];
    for scenario in scenarios {
        holds(Scenario { g_nodes: 2, ..scenario }, Vec::new());
    }
}

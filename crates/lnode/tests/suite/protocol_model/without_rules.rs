//! Without any one rule something is lost: the checker finds how. Each test names the rule and the loss; the steps that
//! the checker finds are told in `docs/concurrency.md`. `protocol_model.rs` explores the same scenarios with the rule.

use stateright::{Checker, HasDiscoveries, Model};

use crate::protocol_model::model::Protocol;
use crate::protocol_model::properties::{FENCED, PINNED, REMOVED, WHOLE};
use crate::protocol_model::rules::{Rule, Rules};
use crate::protocol_model::scenario::Scenario;

/// Without `rule`, the scenario breaks `property`. Breadth first, so that the counterexample is a shortest one.
#[track_caller]
pub(crate) fn breaks(rule: Rule, scenario: Scenario, property: &'static str) {
    let protocol = Protocol::new(scenario, Rules::without(rule));
    let search = protocol.checker().finish_when(HasDiscoveries::AllOf([property].into()));
    let checker = search.spawn_bfs().join();
    let found = checker.discovery(property);
    assert!(found.is_some(), "{rule:?} prevents nothing: without it, still {property}");
}

/// The same without two rules, of which one alone keeps `property`.
#[track_caller]
pub(crate) fn breaks_without_both(one: Rule, other: Rule, scenario: Scenario, property: &'static str) {
    let search = |rules| {
        let checker = Protocol::new(scenario.clone(), rules).checker();
        checker.finish_when(HasDiscoveries::AllOf([property].into())).spawn_bfs().join()
    };
    assert!(
        search(Rules::without(one)).discovery(property).is_none(),
        "{one:?} is not alone, and still not {property}"
    );
    assert!(search(Rules::without_both(one, other)).discovery(property).is_some(), "{other:?} prevents nothing");
}

#[test]
fn lease_after_the_looks() {
    breaks(Rule::LeaseFirst, Scenario::one_base(1), WHOLE);
    breaks(Rule::LeaseFirst, Scenario::adoption(1), WHOLE);
    breaks(Rule::LeaseFirst, Scenario::reading(1), PINNED);
}

#[test]
fn base_not_looked_at_after_the_lease() {
    breaks(Rule::BaseChecked, Scenario::one_base(1), WHOLE);
    breaks(Rule::BaseChecked, Scenario::reading(1), PINNED);
}

#[test]
fn register_of_the_base_read_before_its_mark() {
    breaks(Rule::MarkThenRegister, Scenario::one_base(1), WHOLE);
    breaks(Rule::MarkThenRegister, Scenario::reading(1), PINNED);
}

#[test]
fn register_of_the_base_read_from_a_cache() {
    breaks(Rule::LooksPastCache, Scenario::one_base(1), WHOLE);
}

#[test]
fn aborted_job_adopted() {
    breaks(Rule::AdoptedChecked, Scenario::adoption(1), WHOLE);
}

#[test]
fn committed_job_adopted() {
    breaks(Rule::CommittedNotAdopted, Scenario::adoption(1), WHOLE);
}

#[test]
fn closed_job_adopted() {
    breaks(Rule::ClosedNotAdopted, Scenario::adoption(1), WHOLE);
}

#[test]
fn cleaned_up_job_adopted() {
    breaks(Rule::AdoptedLeased, Scenario::adoption(1), WHOLE);
}

#[test]
fn lease_of_the_adopted_not_read_last() {
    breaks(Rule::LeaseReadLast, Scenario::adoption(1), WHOLE);
}

#[test]
fn containers_of_a_job_that_was_not_named() {
    breaks(Rule::OwnersNamed, Scenario::adoption_of_an_adopter(), WHOLE);
}

#[test]
fn commit_before_the_containers_are_durable() {
    breaks(Rule::DurableFirst, Scenario::one_base(1), WHOLE);
}

#[test]
fn commit_that_overwrites() {
    breaks(Rule::CreateIfAbsent, Scenario::one_base(1), WHOLE);
    breaks(Rule::CreateIfAbsent, Scenario::one_base(1), FENCED);
}

#[test]
fn lease_closed_before_the_commit() {
    breaks(Rule::CloseLast, Scenario::one_base(1), WHOLE);
}

#[test]
fn lease_closed_with_a_create_unanswered() {
    breaks(Rule::CloseOnlyAnswered, Scenario::late_commit(), WHOLE);
    breaks(Rule::CloseOnlyAnswered, Scenario::late_commit(), REMOVED);
}

#[test]
fn expired_job_not_fenced() {
    breaks(Rule::Fence, Scenario::one_base(1), WHOLE);
    breaks(Rule::Fence, Scenario::adoption(1), WHOLE);
}

#[test]
fn job_settled_after_the_leases_were_listed() {
    breaks(Rule::SettledBeforeLeases, Scenario::adoption(1), WHOLE);
}

#[test]
fn mark_seen_after_the_leases_were_listed() {
    breaks(Rule::MarksBeforeLeases, Scenario::one_base(1), WHOLE);
    breaks(Rule::MarksBeforeLeases, Scenario::reading(1), PINNED);
}

#[test]
fn containers_listed_after_the_leases() {
    breaks(Rule::ContainersBeforeLeases, Scenario::one_base(1), WHOLE);
}

#[test]
fn versions_listed_before_the_leases() {
    breaks(Rule::LeasesBeforeVersions, Scenario::one_base(1), WHOLE);
    breaks(Rule::LeasesBeforeVersions, Scenario::adoption(1), WHOLE);
}

#[test]
fn named_version_not_retained() {
    breaks(Rule::NamedVersionsRetained, Scenario::one_base(1), WHOLE);
    breaks(Rule::NamedVersionsRetained, Scenario::reading(1), PINNED);
}

#[test]
fn adopted_containers_not_kept() {
    breaks(Rule::AdoptedKept, Scenario::adoption(1), WHOLE);
}

#[test]
fn containers_of_running_jobs_not_kept() {
    breaks(Rule::UnsettledKept, Scenario::one_base(1), WHOLE);
}

#[test]
fn two_passes_carried_out() {
    breaks(Rule::PublishFirst, Scenario::one_base(2), WHOLE);
}

#[test]
fn register_removed_while_its_job_may_still_commit() {
    breaks(Rule::RemoveOnlyClosed, Scenario::one_base(1), WHOLE);
    breaks(Rule::RemoveOnlyClosed, Scenario::one_base(1), FENCED);
}

#[test]
fn lease_removed_after_its_register_and_done() {
    breaks(Rule::LeaseRemovedFirst, Scenario::adoption(1), WHOLE);
}

#[test]
fn mark_removed_before_the_register() {
    breaks(Rule::MarkRemovedLast, Scenario::one_base(1), WHOLE);
}

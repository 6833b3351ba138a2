//! What tasks of the G-node must obey when they move chunks: generations, reverse dedup, rewriting, the index.
//!
//! First that nothing is lost under all rules, then what is lost without any one of them.

use crate::protocol_model::properties::*;
use crate::protocol_model::rules::Rule;
use crate::protocol_model::scenario::Scenario;
use crate::protocol_model::without_rules::{breaks, breaks_without_both};
use crate::protocol_model::{holds, holds_and_cleans_up};

#[test]
fn a_version_lives_on_in_a_newer_generation() {
    holds_and_cleans_up(Scenario::compaction(1), vec![lives_in_a_newer_generation(), fenced_generation(), collected()]);
}

#[test]
fn a_version_lives_on_in_a_newer_generation_beside_two_g_nodes() {
    holds(Scenario::compaction(2), vec![lives_in_a_newer_generation(), fenced_generation(), collected()]);
}

#[test]
fn a_version_is_compacted_twice() {
    holds(Scenario::two_generations(1), vec![lives_in_a_newer_generation(), fenced_generation(), collected()]);
}

#[test]
fn what_a_newer_generation_replaced_is_removed() {
    holds(
        Scenario::late_first_of_two_generations(1),
        vec![replaced_without_closing(), late_create_wins(), collected()],
    );
}

#[test]
fn a_generation_without_answer_may_land_at_any_time() {
    holds(Scenario::late_generation(1), vec![lives_in_a_newer_generation(), late_create_wins(), collected()]);
}

#[test]
fn two_tasks_want_one_generation() {
    holds(Scenario::one_generation_for_two(1), vec![lives_in_a_newer_generation(), fenced_generation(), collected()]);
}

#[test]
fn a_base_is_compacted() {
    holds(Scenario::compacted_base(1), vec![lives_in_a_newer_generation(), outlives_base(), collected()]);
}

#[test]
fn the_newest_generation_of_a_base_cannot_be_read() {
    holds(Scenario::rotten_base(1), vec![does_without_the_rotten(), lives_in_a_newer_generation(), collected()]);
}

#[test]
fn a_copy_lacks_what_was_moved_to() {
    holds(Scenario::copied(1), vec![lives_in_what_was_retired(), collected()]);
}

#[test]
fn a_store_that_overwrites_is_refused() {
    holds(Scenario::overwriting(1), vec![refuses_the_store()]);
}

#[test]
fn what_is_read_is_compacted() {
    holds(Scenario::compacted_while_read(1), vec![lives_in_a_newer_generation(), reads_to_the_end()]);
}

#[test]
fn a_version_shares_with_another() {
    let witnesses = vec![lives_in_what_it_shares(), does_without_sharing(), fenced_generation(), collected()];
    holds_and_cleans_up(Scenario::sharing(1), witnesses);
}

#[test]
fn what_is_shared_is_left_by_the_other() {
    holds(Scenario::shared_is_compacted(1), vec![lives_in_what_it_shares(), does_without_sharing(), collected()]);
}

#[test]
fn what_is_shared_is_retired() {
    let witnesses = vec![lives_in_what_it_shares(), shares_what_was_retired(), collected()];
    holds(Scenario::shared_is_retired(1), witnesses);
}

#[test]
fn a_version_lives_in_what_another_left() {
    holds_and_cleans_up(Scenario::reverse_dedup(1), vec![lives_in_what_others_left(), collected()]);
}

#[test]
fn a_version_lives_in_what_another_left_beside_two_g_nodes() {
    holds(Scenario::reverse_dedup(2), vec![lives_in_what_others_left(), collected()]);
}

#[test]
fn copies_are_not_retired_for_each_other() {
    holds(Scenario::reverse_dedup_to_and_fro(2), vec![lives_in_what_others_left(), collected()]);
}

#[test]
fn chunks_move_twice() {
    holds(Scenario::reverse_dedup_twice(1), vec![lives_in_what_others_left(), collected()]);
}

#[test]
fn a_base_is_redirected() {
    holds(Scenario::redirected_base(1), vec![lives_in_what_others_left(), outlives_base(), collected()]);
}

#[test]
fn a_redirect_leads_to_a_base() {
    holds(Scenario::redirected_to_a_base(2), vec![lives_in_what_others_left(), outlives_base(), collected()]);
}

#[test]
fn a_redirect_never_leads_to_the_unfinished() {
    holds(Scenario::redirected_to_the_unfinished(2), vec![lives_in_what_others_left(), collected()]);
}

#[test]
fn what_is_adopted_is_redirected() {
    holds(Scenario::redirected_adopted(1), vec![adopted_from_the_dead(), collected()]);
}

#[test]
fn a_redirect_leads_to_what_is_compacted() {
    holds(Scenario::redirected_to_the_compacted(1), vec![lives_in_a_newer_generation(), collected()]);
}

#[test]
fn what_is_read_is_redirected() {
    holds(Scenario::redirected_while_read(1), vec![lives_in_what_others_left(), reads_to_the_end()]);
}

#[test]
fn a_container_is_written_anew() {
    holds_and_cleans_up(Scenario::rewriting(1), vec![lives_in_what_was_written_anew(), void_rewriting(), collected()]);
}

#[test]
fn a_container_is_written_anew_beside_two_g_nodes() {
    holds(Scenario::rewriting(2), vec![lives_in_what_was_written_anew(), void_rewriting(), collected()]);
}

#[test]
fn a_container_is_written_anew_by_two() {
    holds(Scenario::two_rewritings(1), vec![lives_in_what_was_written_anew(), void_rewriting(), collected()]);
}

#[test]
fn a_base_is_written_anew() {
    holds(Scenario::rewritten_base(1), vec![lives_in_what_was_written_anew(), outlives_base(), collected()]);
}

#[test]
fn an_index_without_answer_may_land_at_any_time() {
    holds(Scenario::late_index(1), vec![lives_in_what_was_written_anew(), late_create_wins(), collected()]);
}

#[test]
fn a_lost_index_is_made_anew() {
    holds(Scenario::rebuilt(1), vec![lives_in_what_others_left(), collected()]);
}

#[test]
fn a_lost_index_is_made_anew_beside_two_g_nodes() {
    holds(Scenario::rebuilt(2), vec![lives_in_what_others_left(), collected()]);
}

#[test]
fn a_lost_index_is_rebuilt_beside_a_job() {
    holds(Scenario::rebuilt_beside_a_job(1), vec![rebuilt_for_a_job(), outlives_base(), collected()]);
}

#[test]
fn a_lost_index_is_rebuilt_beside_a_reader() {
    holds(Scenario::rebuilt_beside_a_reader(1), vec![lives_in_what_others_left(), reads_to_the_end()]);
}

#[test]
fn a_rebuild_that_cannot_read_a_container_keeps_it() {
    holds(Scenario::rebuilt_unread(1), vec![lives_in_what_was_unread(), collected()]);
}

/// Two G-nodes beside three jobs.
#[test]
#[ignore = "minutes and some gigabytes; meant for --release"]
fn two_g_nodes_beside_every_task() {
    let scenarios = [
        Scenario::two_generations(2),
        Scenario::compacted_while_read(2),
        Scenario::compacted_base(2),
        Scenario::sharing(2),
        Scenario::shared_is_compacted(2),
        Scenario::shared_is_retired(2),
        Scenario::reverse_dedup_twice(2),
        Scenario::redirected_while_read(2),
        Scenario::redirected_base(2),
        Scenario::redirected_to_the_compacted(2),
        Scenario::late_index(2),
        Scenario::two_rewritings(2),
        Scenario::rewritten_base(2),
        Scenario::redirected_adopted(2),
    ];
    for scenario in scenarios {
        holds(scenario, Vec::new());
    }
}

#[test]
fn compaction_not_fenced() {
    breaks(Rule::Fence, Scenario::compaction(1), WHOLE);
}

#[test]
fn generation_that_overwrites() {
    breaks(Rule::CreateIfAbsent, Scenario::compaction(1), WHOLE);
}

#[test]
fn generation_void_with_its_pass() {
    breaks(Rule::OwnRegister, Scenario::compaction(1), WHOLE);
}

#[test]
fn aborted_generation_removed() {
    breaks(Rule::AbortedGenerationStays, Scenario::one_generation_for_two(1), WHOLE);
}

#[test]
fn generation_of_the_base_read_before_the_lease() {
    breaks(Rule::GenerationAfterLease, Scenario::compacted_base(1), WHOLE);
    breaks(Rule::GenerationAfterLease, Scenario::compacted_while_read(1), PINNED);
}

#[test]
fn superseded_after_the_leases_were_listed() {
    breaks(Rule::SupersededBeforeLeases, Scenario::compacted_base(1), WHOLE);
}

#[test]
fn generations_of_named_versions_not_retained() {
    breaks(Rule::NamedGenerationsRetained, Scenario::compacted_base(1), WHOLE);
    breaks(Rule::NamedGenerationsRetained, Scenario::compacted_while_read(1), PINNED);
}

/// What a compaction that shares obeys is what a job obeys that has a second base: without any one of these rules the generation
/// comes to reference what is collected.
#[test]
fn sharing_without_any_one_rule() {
    let rules = [
        Rule::LeaseFirst,
        Rule::BaseChecked,
        Rule::MarkThenRegister,
        Rule::LooksPastCache,
        Rule::OwnersNamed,
        Rule::DurableFirst,
        Rule::CreateIfAbsent,
        Rule::OwnRegister,
        Rule::Fence,
        Rule::MarksBeforeLeases,
        Rule::ContainersBeforeLeases,
        Rule::LeasesBeforeVersions,
        Rule::NamedVersionsRetained,
        Rule::UnsettledKept,
    ];
    for rule in rules {
        breaks(rule, Scenario::sharing(1), WHOLE);
    }
}

#[test]
fn sharing_beside_two_passes_carried_out() {
    breaks(Rule::PublishFirst, Scenario::sharing(2), WHOLE);
}

#[test]
fn sharing_what_the_other_leaves_without_any_one_rule() {
    for rule in [Rule::GenerationAfterLease, Rule::SupersededBeforeLeases, Rule::NamedGenerationsRetained] {
        breaks(rule, Scenario::shared_is_compacted(1), WHOLE);
    }
}

#[test]
fn sharing_what_is_retired_without_any_one_rule() {
    for rule in [Rule::RedirectIsReference, Rule::LaterReferencesInherit] {
        breaks(rule, Scenario::shared_is_retired(1), WHOLE);
    }
}

#[test]
fn redirect_not_counted_as_reference() {
    breaks(Rule::RedirectIsReference, Scenario::reverse_dedup(1), WHOLE);
    breaks(Rule::RedirectIsReference, Scenario::rewriting(1), WHOLE);
}

#[test]
fn redirect_not_counted_for_versions_that_came_later() {
    breaks(Rule::LaterReferencesInherit, Scenario::redirected_base(1), WHOLE);
    breaks(Rule::LaterReferencesInherit, Scenario::rewritten_base(1), WHOLE);
}

#[test]
fn redirect_to_an_uncommitted_container() {
    breaks(Rule::RedirectToCommitted, Scenario::redirected_to_the_unfinished(2), WHOLE);
}

#[test]
fn redirect_to_what_only_a_lease_retains() {
    breaks(Rule::RedirectToUnmarked, Scenario::redirected_to_a_base(2), WHOLE);
}

#[test]
fn redirect_to_a_container_that_was_retired() {
    breaks(Rule::NotToRetired, Scenario::reverse_dedup_to_and_fro(1), WHOLE);
}

#[test]
fn redirect_that_leads_to_a_redirect() {
    breaks(Rule::OneHop, Scenario::reverse_dedup_twice(1), WHOLE);
}

#[test]
fn redirects_of_two_passes() {
    breaks(Rule::PublishFirst, Scenario::reverse_dedup(2), WHOLE);
}

#[test]
fn container_gone_before_its_redirect() {
    breaks(Rule::RedirectBeforeRemoval, Scenario::rewriting(1), WHOLE);
}

#[test]
fn index_of_a_number_that_was_used_long_ago() {
    breaks(Rule::HighestAfterWin, Scenario::rewriting(1), WHOLE);
}

#[test]
fn reader_that_does_not_look_again() {
    breaks(Rule::LookAgain, Scenario::redirected_while_read(1), FOUND);
}

#[test]
fn container_of_a_running_job_retired() {
    breaks(Rule::RetireSettled, Scenario::redirected_adopted(1), WHOLE);
}

#[test]
fn adopted_container_retired() {
    breaks(Rule::RetireNotAdopted, Scenario::redirected_adopted(1), WHOLE);
}

#[test]
fn rebuilt_index_that_gives_copies_up() {
    breaks(Rule::RebuiltKeepsCopies, Scenario::rebuilt(1), WHOLE);
}

#[test]
fn rebuild_that_does_not_ask_leases() {
    breaks(Rule::RebuildAsksLeases, Scenario::rebuilt_beside_a_job(1), WHOLE);
    breaks(Rule::RebuildAsksLeases, Scenario::rebuilt_beside_a_reader(1), PINNED);
}

/// The second line, where deletes are done: what a rebuild did not look for is missed, and nothing is deleted until the next one.
#[test]
fn deletes_while_something_is_missing_over_a_rebuilt_index() {
    let scenario = Scenario { deleted_first: true, ..Scenario::rebuilt_beside_a_job(1) };
    breaks_without_both(Rule::RebuildAsksLeases, Rule::MissingStops, scenario, KEPT);
}

#[test]
fn rebuild_that_forgets_what_it_cannot_read() {
    breaks(Rule::UnreadKept, Scenario::rebuilt_unread(1), KEPT);
}

#[test]
fn base_whose_newest_generation_cannot_be_read() {
    breaks(Rule::NewestOrNothing, Scenario::rotten_base(1), WHOLE);
}

#[test]
fn moved_container_deleted_where_its_new_place_is_not() {
    breaks(Rule::ForwardsThere, Scenario::copied(1), WHOLE);
}

#[test]
fn store_that_overwrites() {
    breaks(Rule::ProbedFirst, Scenario::overwriting(1), FENCED);
    breaks(Rule::ProbedFirst, Scenario::overwriting(1), WHOLE);
}

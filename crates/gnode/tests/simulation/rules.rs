//! Rules of the protocol that the simulation shows to be needed. Each is broken in the real code, and a loss is found:
//! alone (`RULES`) or together with a rule that prevents the same loss (`TWINS`). `UNSEEN` lists the rules without a finding.

use larder_store::rules::Rule;

/// Rules that are broken one at a time, each in the situation that is aimed at it, and found within `SEEDS`. The seed that finds a
/// broken rule passes while the rule is kept.
pub const RULES: &[Rule] = &[
    Rule::LeaseFirst,
    Rule::BaseChecked,
    Rule::AdoptedChecked,
    Rule::CommittedNotAdopted,
    Rule::GenerationAfterLease,
    Rule::NewestOrNothing,
    Rule::ProbedFirst,
    Rule::DurableFirst,
    Rule::CloseLast,
    Rule::CloseOnlyAnswered,
    Rule::Fence,
    Rule::MarksBeforeLeases,
    Rule::LeasesBeforeVersions,
    Rule::NamedVersionsRetained,
    Rule::NamedGenerationsRetained,
    Rule::AdoptedKept,
    Rule::UnsettledKept,
    Rule::PublishFirst,
    Rule::MarkedBeforeRemoval,
    Rule::VoidOrMarked,
    Rule::RemoveOnlyClosed,
    Rule::MarkRemovedLast,
    Rule::CommittedAccounted,
    Rule::OldEnough,
    Rule::AskedTwice,
    Rule::AbortedGenerationStays,
    Rule::RetireSettled,
    Rule::RetireNotAdopted,
    Rule::RedirectIsReference,
    Rule::LaterReferencesInherit,
    Rule::NotToRetired,
    Rule::OneHop,
    Rule::RebuiltKeepsCopies,
    Rule::RebuiltFirst,
    Rule::RedirectBeforeRemoval,
    Rule::ContainersBeforeLeases,
    Rule::HighestAfterWin,
];

/// Rules that are found only while a second one is broken too: each of the two prevents what the other does. The seed that finds one
/// passes while only the second is broken.
const TWINS: &[(Rule, Rule)] = &[
    (Rule::ContainersBeforeLeases, Rule::AskedTwice),
    (Rule::HighestAfterWin, Rule::AskedTwice),
    (Rule::SettledBeforeLeases, Rule::AskedTwice),
];

/// The rule that is broken along with this one.
pub fn twin(rule: Rule) -> Option<Rule> {
    TWINS.iter().find(|(one, _)| *one == rule).map(|(_, twin)| *twin)
}

/// Rules that are broken in the real code and were not found, and which only the models in `crates/lnode/tests/suite` show.
/// `LARDER_SIM_RULES` asks for them by name.
///
/// * `MarkThenRegister`: the job reads the base's newest manifest after both looks (`GenerationAfterLease`), and a pass that removes the
///   mark has removed that manifest before.
/// * `ClosedNotAdopted`: a job that closes without a commit found nothing new in its stream, so it uploaded nothing to adopt. Of any other
///   closed job the register is taken, or its lease is gone.
/// * `AdoptedLeased`, `LeaseReadLast`, `LeaseRemovedFirst`: containers must come back after a clean-up while their deletion is pending a
///   second time, and a job must begin before the clean-up and look after it. 500 seeds do not show it, nor with `AskedTwice` broken.
/// * `SettledBeforeLeases`: a seed in 460 showed it before listings were made side by side. Now 300 seeds do not, with `AskedTwice`
///   broken too.
/// * `SupersededBeforeLeases`: a job and a compaction of its base must both begin and get that far between two requests of a pass. 500
///   seeds do not show it, nor with `AskedTwice` broken.
/// * `MissingStops`, `RebuildAsksLeases`: each prevents what the other does in the model. 5,000 seeds do not show the second, nor 400
///   with both broken: a job stores again what it sees missing.
/// * `OneLayout`, `LayoutsApart`: each prevents what the other does, so the model breaks both. 400 seeds with both broken do not show it.
/// * `ProvedBeforeRetired`: no process of the simulation forges a generation, so every walk succeeds. `forged_generations.rs` has those
///   that fail, and the loss without the rule.
/// * `ForwardsThere`: a pass over a copy must come between the retirement and the deletion of a container. 2,000 seeds do not show it;
///   `rebuilt_beside_jobs.rs` does, with the rule and without.
/// * `UnsettledLeft`: what manifests name that are not in the index is held, and arranging neither drops nor retires it.
pub const UNSEEN: &[Rule] = &[
    Rule::MarkThenRegister,
    Rule::ClosedNotAdopted,
    Rule::AdoptedLeased,
    Rule::LeaseReadLast,
    Rule::LeaseRemovedFirst,
    Rule::SettledBeforeLeases,
    Rule::SupersededBeforeLeases,
    Rule::MissingStops,
    Rule::RebuildAsksLeases,
    Rule::OneLayout,
    Rule::LayoutsApart,
    Rule::ProvedBeforeRetired,
    Rule::UnsettledLeft,
    Rule::ForwardsThere,
];

/// Rules without a switch, because the code has no step that could be left out: nothing here has a cache or reads an index twice to
/// show a loss, tasks have no other register, and there is one place that decides what may be led where.
pub const WITHOUT_SWITCH: &[Rule] = &[
    Rule::LooksPastCache,
    Rule::LookAgain,
    Rule::OwnersNamed,
    Rule::OwnRegister,
    Rule::RedirectToCommitted,
    Rule::RedirectToUnmarked,
];

/// Seeds in which a broken rule is searched for. Most are found within thirty; every change of the code moves the number.
pub const SEEDS: u64 = 5_000;

/// The rules that `LARDER_SIM_RULES` names, or those that are found.
pub fn asked() -> Vec<Rule> {
    let asked = std::env::var("LARDER_SIM_RULES").unwrap_or_default();
    if asked.is_empty() {
        return RULES.to_vec();
    }
    let is_asked = |rule: &Rule| asked.split(',').any(|name| name == format!("{rule:?}"));
    RULES.iter().chain(UNSEEN).copied().filter(is_asked).collect()
}

/// The seeds that found the rules when this was written, where it was not one of the first. Only a matter of time: a change of the
/// code moves the seeds, and then the others find them.
const LAST_SEEDS: &[(Rule, u64)] = &[
    (Rule::AdoptedChecked, 53),
    (Rule::CloseOnlyAnswered, 40),
    (Rule::MarksBeforeLeases, 15),
    (Rule::PublishFirst, 57),
    (Rule::MarkedBeforeRemoval, 9),
    (Rule::VoidOrMarked, 141),
    (Rule::AskedTwice, 48),
    (Rule::RetireNotAdopted, 252),
    (Rule::LaterReferencesInherit, 310),
    (Rule::RebuiltFirst, 34),
    (Rule::ContainersBeforeLeases, 26),
];

/// The seed to begin with when a rule is searched for.
pub fn last_seed(rule: Rule) -> u64 {
    LAST_SEEDS.iter().find(|(one, _)| *one == rule).map_or(0, |(_, seed)| *seed)
}

//! Which rules of the protocol the simulation shows to be needed: each is broken in the real code, alone, and a loss is found.

use larder_store::rules::Rule;

/// Rules that are broken one at a time, each in the situation that is aimed at it, and found within so many seeds. The very seed that
/// finds a rule passes while the rule is kept.
pub const RULES: &[(Rule, u64)] = &[
    (Rule::LeaseFirst, 100),
    (Rule::BaseChecked, 100),
    (Rule::AdoptedChecked, 100),
    (Rule::CommittedNotAdopted, 400),
    (Rule::GenerationAfterLease, 100),
    (Rule::NewestOrNothing, 100),
    (Rule::ProbedFirst, 50),
    (Rule::DurableFirst, 50),
    (Rule::CloseLast, 50),
    (Rule::CloseOnlyAnswered, 200),
    (Rule::Fence, 300),
    (Rule::MarksBeforeLeases, 100),
    (Rule::ContainersBeforeLeases, 600),
    (Rule::LeasesBeforeVersions, 100),
    (Rule::NamedVersionsRetained, 50),
    (Rule::NamedGenerationsRetained, 50),
    (Rule::AdoptedKept, 200),
    (Rule::UnsettledKept, 50),
    (Rule::PublishFirst, 100),
    (Rule::MarkedBeforeRemoval, 100),
    (Rule::VoidOrMarked, 150),
    (Rule::RemoveOnlyClosed, 100),
    (Rule::MarkRemovedLast, 50),
    (Rule::CommittedAccounted, 50),
    (Rule::OldEnough, 50),
    (Rule::AskedTwice, 150),
    (Rule::AbortedGenerationStays, 50),
    (Rule::GiveUpSettled, 150),
    (Rule::GiveUpNotAdopted, 500),
    (Rule::RedirectIsReference, 50),
    (Rule::LaterReferencesInherit, 400),
    (Rule::NotToGivenUp, 100),
    (Rule::OneHop, 100),
    (Rule::ForwardsThere, 200),
    (Rule::RebuiltKeepsCopies, 100),
    (Rule::RebuiltFirst, 100),
    (Rule::RebuildAsksLeases, 100),
    (Rule::RedirectBeforeRemoval, 50),
];

/// Rules that are broken in the real code and were not found, and which only the models in `crates/lnode/tests/suite` show.
/// `LARDER_SIM_RULES` asks for them by name.
///
/// * `MarkThenRegister`: the job reads the base's newest manifest after both looks (`GenerationAfterLease`), and whoever removed the mark
///   had removed that before.
/// * `ClosedNotAdopted`: a job that closes without a commit found nothing new in its stream, so it uploaded nothing to adopt. Of any other
///   closed job the register is taken, or its lease is gone.
/// * `AdoptedLeased`, `LeaseReadLast`, `LeaseRemovedFirst`: containers must come back after a clean-up while their deletion is pending a
///   second time, and a job must begin before the clean-up and look after it.
/// * `SettledBeforeLeases`: not in the first 600 seeds. A job must begin and look at one that looks dead between two requests of a pass.
/// * `SupersededBeforeLeases`: a job and a compaction of its base must both begin and get that far between two requests of a pass.
/// * `HighestAfterWin`: another pass that uses the number takes the runs of the sleeper for orphans, and who publishes asks for its
///   runs (`AskedTwice`).
/// * `MissingStops`: the model finds its loss only without `RebuildAsksLeases`, too.
/// * `OneLayout`, `LayoutsApart`: each prevents what the other does, so the model breaks both.
/// * `UnsettledLeft`: what manifests name that are not in the index is held, and arranging neither drops nor retires it.
pub const UNSEEN: &[Rule] = &[
    Rule::MarkThenRegister,
    Rule::ClosedNotAdopted,
    Rule::AdoptedLeased,
    Rule::LeaseReadLast,
    Rule::LeaseRemovedFirst,
    Rule::SettledBeforeLeases,
    Rule::SupersededBeforeLeases,
    Rule::HighestAfterWin,
    Rule::MissingStops,
    Rule::OneLayout,
    Rule::LayoutsApart,
    Rule::UnsettledLeft,
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

/// Seeds in which a rule is looked for that was not found before.
const UNSEEN_SEEDS: u64 = 10_000;

/// The rules that `LARDER_SIM_RULES` names, or those that are found.
pub fn asked() -> Vec<(Rule, u64)> {
    let asked = std::env::var("LARDER_SIM_RULES").unwrap_or_default();
    if asked.is_empty() {
        return RULES.to_vec();
    }
    let unseen = UNSEEN.iter().map(|rule| (*rule, UNSEEN_SEEDS));
    let is_asked = |rule: &Rule| asked.split(',').any(|name| name == format!("{rule:?}"));
    RULES.iter().copied().chain(unseen).filter(|(rule, _)| is_asked(rule)).collect()
}

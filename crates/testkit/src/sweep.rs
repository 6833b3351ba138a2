//! How densely a test sweeps over the operations of a job.

/// Which operations of a range a long sweep tries: each `step`th, or all if `LARDER_SWEEPS` is
/// `whole`. Then these tests take at least twice as long.
pub fn sweep(operations: impl Iterator<Item = u64>, step: usize) -> impl Iterator<Item = u64> {
    let is_whole = std::env::var_os("LARDER_SWEEPS").is_some_and(|density| density == "whole");
    operations.step_by(if is_whole { 1 } else { step })
}

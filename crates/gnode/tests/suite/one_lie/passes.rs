//! Passes, the first and later ones, with every task, in both layouts.

use larder_format::layout::Layout;
use larder_gnode::defragment::{Budget, DefragmentOptions, Defragmenter, plans};
use larder_gnode::pass;

use super::*;

pub(super) const LAYOUTS: [Layout; 2] = [Layout::Standard, Layout::Lifecycle];

fn run(context: &JobContext, options: &PassOptions) -> Did {
    // It may fail.
    let _ = context.executor.block_on(pass::run(context, options));
    Did::default()
}

/// A backup under way is not taken for dead.
fn patient() -> PassOptions {
    PassOptions { dead_after: PassOptions::default().dead_after, ..eager() }
}

#[test]
fn the_first_pass() {
    for layout in LAYOUTS {
        let stage = Stage::fresh(layout).with_a_running_backup(layout);
        tell_every_lie(&stage, |_, context| run(context, &patient()));
    }
}

#[test]
fn a_later_pass() {
    let stage = Stage::grown(Layout::Standard).with_a_running_backup(Layout::Standard);
    tell_every_lie(&stage, |_, context| run(context, &patient()));
}

#[test]
fn a_later_pass_that_arranges() {
    let stage = Stage::grown(Layout::Lifecycle).with_a_running_backup(Layout::Lifecycle);
    tell_every_lie(&stage, |_, context| run(context, &patient()));
}

#[test]
fn a_pass_that_aborts() {
    for stage in [Stage::fresh(Layout::Standard), Stage::grown(Layout::Standard)] {
        let stage = stage.with_a_running_backup(Layout::Standard);
        tell_every_lie(&stage, |_, context| run(context, &eager()));
    }
}

#[test]
fn a_pass_with_the_default_options() {
    for layout in LAYOUTS {
        let stage = Stage::grown(layout).with_a_running_backup(layout);
        tell_every_lie(&stage, |_, context| run(context, &PassOptions::default()));
    }
}

#[test]
fn a_pass_that_lists_only_what_is_new() {
    let stage = Stage::grown(Layout::Standard).with_a_running_backup(Layout::Standard);
    tell_every_lie(&stage, |_, context| run(context, &PassOptions { reclaim: None, ..pass_options() }));
}

#[test]
fn a_compaction() {
    let stage = Stage::grown(Layout::Standard).with_a_running_backup(Layout::Standard);
    let options = DefragmentOptions { budget: Budget::of_version(100), ..DefragmentOptions::default() };
    let mut is_anything_done = false;
    let compact = |context: &JobContext| {
        let Ok(plans) = plans(context, &options) else { return 0 };
        let mut compactor = Defragmenter::new(context, &options);
        plans.plans.iter().filter(|plan| compactor.compact(plan).is_ok()).count()
    };
    is_anything_done |= compact(&stage.scene.fork().context()) > 0;
    assert!(is_anything_done);
    tell_every_lie(&stage, |_, context| {
        compact(context);
        Did::default()
    });
}

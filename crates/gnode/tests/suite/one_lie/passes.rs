//! Passes, the first and later ones, with every task, in both layouts.

use super::*;
use larder_format::layout::Layout;

const LAYOUTS: [Layout; 2] = [Layout::Standard, Layout::Lifecycle];

fn pass(context: &Context, options: &PassOptions) {
    // It may fail.
    let _ = context.runtime.block_on(larder_gnode::pass::run(&surroundings(context.repository.clone()), options));
}

/// As people run it, but without the age that hides mistakes: a backup under way is not taken for dead.
fn patient() -> PassOptions {
    PassOptions { dead_after: PassOptions::default().dead_after, ..eager() }
}

#[test]
fn the_first_pass() {
    for layout in LAYOUTS {
        let stage = Stage::fresh(layout).with_a_running_backup(layout);
        tell_every_lie(&stage, SOME, |_, context| pass(context, &patient()));
    }
}

#[test]
fn a_later_pass() {
    let stage = Stage::grown(Layout::Standard).with_a_running_backup(Layout::Standard);
    tell_every_lie(&stage, SOME, |_, context| pass(context, &patient()));
}

#[test]
fn a_later_pass_that_arranges() {
    let stage = Stage::grown(Layout::Lifecycle).with_a_running_backup(Layout::Lifecycle);
    tell_every_lie(&stage, SOME, |_, context| pass(context, &patient()));
}

#[test]
fn a_pass_that_aborts() {
    let stage = Stage::grown(Layout::Standard).with_a_running_backup(Layout::Standard);
    tell_every_lie(&stage, SOME, |_, context| pass(context, &eager()));
}

#[test]
#[ignore = "minutes: every entry of every listing"]
fn every_lie_to_every_pass() {
    for layout in LAYOUTS {
        for stage in [Stage::fresh(layout), Stage::grown(layout)] {
            let stage = stage.with_a_running_backup(layout);
            for options in [patient(), eager(), pass_options()] {
                tell_every_lie(&stage, ALL, |_, context| pass(context, &options));
            }
        }
    }
}

//! Repairs of the index and of snapshots.

use super::*;
use larder_format::layout::Layout;

#[test]
fn a_rebuild_of_the_index() {
    let stage = Stage::grown(Layout::Standard);
    tell_every_lie(&stage, SOME, |_, context| {
        let _ = context.runtime.block_on(larder_gnode::repair::rebuild(&surroundings(context.repository.clone())));
    });
}

//! Versions that a clock made which was ahead.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use larder_format::ids::JobId;
use larder_gnode::exclusive_bytes::SharesBudget;
use larder_gnode::forget::{Question, decide};
use larder_gnode::retention::{GroupBy, Keep, Policy};

use crate::support::*;

/// Guards against: a policy keeps a version of next year, and forgets those of each night until then.
#[test]
fn a_version_of_the_future_displaces_nothing_until_its_time_has_come() {
    let scene = Scene::new();
    let ids: Vec<JobId> = (0..3).map(|edition| scene.version("a", edition)).collect();
    let kept = |now_ms: u64| -> Vec<JobId> {
        let policy = Policy { last: Keep::AtMost(1), ..Policy::default() };
        let question = Question {
            policy: &policy,
            group_by: GroupBy::default(),
            zone: TimeZone::UTC,
            now_ms,
            budget: SharesBudget::of_memory(1 << 20),
        };
        let (repository, pinned) = (scene.context().repository, BTreeMap::new());
        let groups = scene.runtime.block_on(decide(&repository, &question, scene.versions(), &pinned)).unwrap();
        let kept = groups.iter().flat_map(|group| &group.versions).filter(|judged| judged.is_kept());
        kept.map(|judged| judged.version.id()).collect()
    };
    let hour = 60 * 60 * 1000;
    let made_ms: Vec<u64> = scene.versions().iter().map(|version| version.rank().0).collect();
    assert!(made_ms.is_sorted() && made_ms[2] - made_ms[0] < hour / 2, "{made_ms:?}");
    assert_eq!(kept(made_ms[2]), ids[2..]);
    // Clocks differ.
    assert_eq!(kept(made_ms[2] - hour), ids[2..]);
    // All are of the future, and none stands for another.
    assert_eq!(kept(made_ms[0] - hour - 1), ids);
    // The last two are.
    if made_ms[0] < made_ms[1] {
        assert_eq!(kept(made_ms[1] - hour - 1), ids);
    }
}

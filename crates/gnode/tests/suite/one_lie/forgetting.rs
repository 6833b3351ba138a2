//! Forgetting by a policy, pins and keys: nothing goes that would be kept if the truth were known.

use jiff::tz::TimeZone;
use larder_format::key_file::{KeyFields, Unlock};
use larder_format::layout::Layout;
use larder_gnode::exclusive_bytes::SharesBudget;
use larder_gnode::forget::{Question, create_marks, decide, pin_of};
use larder_gnode::retention::{GroupBy, Keep, Policy};
use larder_store::Repository;
use larder_store::forget_marks::OwnedVersion;
use larder_store::rules::Rule;
use std::sync::Arc;

use super::*;

/// Forgets by a policy as the command line does.
fn forget_by(context: &JobContext, policy: &Policy) {
    let repository = &context.repository;
    let question = Question {
        policy,
        group_by: GroupBy::default(),
        zone: TimeZone::UTC,
        now_ms: context.clock.now_ms(),
        budget: SharesBudget::of_memory(1 << 20),
    };
    let decided = context.executor.block_on(async {
        let catalog = repository.catalog().await?;
        let pinned = repository.pinned().await?;
        decide(repository, &question, catalog.versions, &pinned).await
    });
    // It may fail; and what keeps nothing of a group is refused.
    let Ok(groups) = decided else { return };
    if groups.iter().any(larder_gnode::forget::JudgedGroup::loses_all) {
        return;
    }
    let gone = groups.iter().flat_map(|group| &group.versions).filter(|judged| !judged.is_kept());
    let marks = gone.map(|judged| (OwnedVersion::from(&judged.version), stage::mark())).collect();
    context.executor.block_on(create_marks(repository, marks));
}

/// Versions a1 to a6, of which the newest and one between are forgotten, and one is pinned.
fn stage_with_marks() -> Stage {
    let stage = Stage::several(Layout::Standard);
    let versions = stage.scene.versions();
    let of_a: Vec<&Version> = versions.iter().filter(|version| version.summary.series == "a").collect();
    let repository = stage.scene.context().repository;
    stage.scene.runtime.block_on(repository.pin(pin_of(of_a[0]), 1, "host", "test")).unwrap();
    stage.forgotten(&[of_a[3].id(), of_a[5].id()])
}

#[test]
fn forgetting_by_a_policy() {
    let stage = stage_with_marks();
    let at_most = Keep::AtMost;
    let policies = [
        Policy { last: at_most(1), ..Policy::default() },
        Policy { last: at_most(2), ..Policy::default() },
        Policy { daily: at_most(1), last: at_most(1), ..Policy::default() },
    ];
    for policy in policies {
        let truth = stage.scene.fork();
        forget_by(&truth.context(), &policy);
        let (truth, before) = (truth.marked(), stage.scene.marked());
        assert!(truth.len() > before.len(), "the policy lets something go");
        tell_every_lie(&stage, |scene, context| {
            forget_by(context, &policy);
            let wrong = scene.marked();
            let wrong =
                wrong.difference(&truth).map(|id| format!("snapshot {id} was forgotten, and the policy keeps it"));
            Did { wrong: wrong.collect(), ..Did::default() }
        });
    }
}

/// Without the question by name a single answer is enough.
#[test]
fn forgetting_by_what_is_listed() {
    let stage = stage_with_marks();
    let policy = Policy { last: Keep::AtMost(1), ..Policy::default() };
    let truth = stage.scene.fork();
    forget_by(&truth.context(), &policy);
    let truth = truth.marked();
    let (_, lost) = lies_that_cost(&stage, |scene, context| {
        let repository = context.repository.without_rule(Rule::AskedTwice);
        forget_by(&JobContext { repository, ..context.clone() }, &policy);
        let wrong = scene.marked().difference(&truth).map(ToString::to_string).collect();
        Did { wrong, ..Did::default() }
    });
    assert!(!lost.is_empty());
}

/// A version that somebody was told is pinned is not forgotten afterwards.
#[test]
fn pins() {
    let stage = stage_with_marks();
    let version = stage.scene.versions().into_iter().rfind(|version| version.summary.series == "b").unwrap();
    let pin = pin_of(&version);
    tell_every_lie(&stage, |scene, context| {
        let mut did = Did::default();
        let is_told = context.executor.block_on(context.repository.pin(pin, 2, "host", "test")).is_ok();
        let honest = scene.context().repository;
        if is_told && scene.runtime.block_on(honest.forget(pin, &stage::mark())).is_ok() {
            did.wrong.push("a version that was said to be pinned could be forgotten".to_owned());
        }
        did
    });
    // Of one that is pinned, nobody forgets anything.
    let repository = stage.scene.context().repository;
    stage.scene.runtime.block_on(repository.pin(pin, 2, "host", "test")).unwrap();
    tell_every_lie(&stage, |scene, context| {
        let _ = context.executor.block_on(context.repository.forget(pin, &stage::mark()));
        let is_marked = scene.marked().contains(&pin.job);
        Did {
            wrong: is_marked.then(|| "a pinned version is forgotten".to_owned()).into_iter().collect(),
            ..Did::default()
        }
    });
}

/// Whatever a store answers, some password opens the repository afterwards.
#[test]
fn keys() {
    let stage = Stage::fresh(Layout::Standard);
    let fields = || KeyFields::for_tests();
    let opens = |scene: &Scene, passwords: &[&[u8]]| {
        let opened = passwords.iter().any(|password| {
            let opened =
                Repository::open(store_over(scene.memory.store()), password, Arc::new(larder_testkit::entropy()));
            scene.runtime.block_on(opened).is_ok()
        });
        // As it was, so that the password of all tests opens it again.
        scene.runtime.block_on(async {
            for (name, bytes) in stage.scene.memory.contents().await {
                scene.memory.put(&name, bytes).await;
            }
        });
        let wrong = (!opened).then(|| "no password opens the repository".to_owned());
        Did { wrong: wrong.into_iter().collect(), ..Did::default() }
    };
    tell_every_lie(&stage, |scene, context| {
        let _ = context.executor.block_on(context.repository.change_password(PASSWORD, b"another", fields()));
        opens(scene, &[PASSWORD, b"another"])
    });
    tell_every_lie(&stage, |scene, context| {
        let repository = scene.context().repository;
        let only = scene.runtime.block_on(repository.list_keys()).unwrap().keys[0].id;
        let _ = context.executor.block_on(context.repository.remove_key(only));
        let _ = context.executor.block_on(context.repository.add_key(Unlock::Password(b"second"), fields()));
        opens(scene, &[PASSWORD, b"second"])
    });
}

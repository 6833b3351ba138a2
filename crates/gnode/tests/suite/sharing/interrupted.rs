//! A version begins to share while others forget, collect or crash.

use super::*;

/// What a compaction that shares does when something happens before any one of its operations.
fn whatever_happens(
    happens: impl Fn(&Scene) + Clone + Send + Sync + 'static,
    keeps: impl Fn(&Version) -> bool,
    is_in_the_way: bool,
) {
    let scene = two_series();
    let contents = scene.contents();
    let plan = scene.plans(&EXACT).pop().unwrap();
    let kept: BTreeSet<JobId> =
        scene.versions().iter().filter(|version| keeps(version)).map(|version| version.id()).collect();
    let outcomes = parking_lot::Mutex::new(BTreeSet::new());
    at_every_operation(
        &scene,
        happens,
        |scene, store| defragment::compact(&scene.context_at(store), &plan, &EXACT),
        |scene, result: Result<Defragmented, DefragmentError>, at| {
            // It may fail over what is deleted under it, when its own version is gone.
            match result {
                Ok(Defragmented::Done { .. }) => outcomes.lock().insert("done"),
                Ok(Defragmented::Overtaken) => outcomes.lock().insert("overtaken"),
                Err(error) if kept.contains(&plan.version.id()) => panic!("{at}: {error}"),
                Err(_) => outcomes.lock().insert("failed"),
            };
            for pass in 0..3 {
                let left = scene.contents_without_index();
                assert!(kept.iter().all(|id| left[id] == contents[id]), "{at}, after {pass} passes");
                scene.collect();
            }
            assert_eq!(scene.contents().len(), kept.len(), "{at}");
        },
    );
    // Early it is in the way, late it is not.
    let outcomes = outcomes.lock();
    assert!(outcomes.contains("done") && (outcomes.len() > 1) == is_in_the_way, "{outcomes:?}");
}

#[test]
fn a_version_shares_with_one_that_is_forgotten_meanwhile() {
    let forget = |scene: &Scene| {
        scene.forget(scene.newest("b").id());
        scene.collect();
    };
    whatever_happens(forget, |version| version.summary.series == "a", true);
}

#[test]
fn a_version_that_shares_is_forgotten_meanwhile() {
    let forget = |scene: &Scene| {
        scene.forget(scene.newest("a").id());
        scene.collect();
    };
    whatever_happens(forget, |version| version.summary.series == "b", true);
}

/// What it shares is left by the other, and collected if nobody else keeps it.
#[test]
fn a_version_shares_with_one_that_is_rewritten_meanwhile() {
    let lay_out = |scene: &Scene| {
        let context = scene.context();
        relay_all(&context, &scene.newest("b"));
        scene.collect();
    };
    whatever_happens(lay_out, |_| true, true);
}

#[test]
fn passes_run_while_a_version_begins_to_share() {
    whatever_happens(Scene::collect, |_| true, false);
}

/// A pass that meets the compaction between any two of its own steps.
#[test]
fn a_pass_meets_a_compaction_that_shares() {
    let scene = two_series();
    let contents = scene.contents();
    let (of_a, of_b) = (scene.newest("a").id(), scene.newest("b").id());
    for forgets_other in [false, true] {
        at_every_operation(
            &scene,
            move |scene| {
                scene.compact_all(&EXACT);
                if forgets_other {
                    scene.forget(of_b);
                }
            },
            |scene, store| {
                let options =
                    PassOptions { dead_after: NEVER, min_age: std::time::Duration::ZERO, ..PassOptions::default() };
                scene.runtime.handle().block_on(pass::run(&scene.context_at(store), &options))
            },
            |scene, result, at| {
                result.unwrap_or_else(|error| panic!("{at}: {error}"));
                for _ in 0..2 {
                    assert!(scene.contents_without_index()[&of_a] == contents[&of_a], "{at}");
                    scene.collect();
                }
                assert!(scene.contents_without_index()[&of_a] == contents[&of_a], "{at}");
            },
        );
    }
}

#[test]
fn a_compaction_that_shares_is_cut_at_any_operation() {
    let scene = two_series();
    let contents = scene.contents();
    let plan = scene.plans(&EXACT).pop().unwrap();
    let (context, faults) = scene.faulty(&scene.fork().memory);
    let before = faults.count();
    defragment::compact(&context, &plan, &EXACT).unwrap();
    let operations = faults.count() - before;
    for n in 0..operations {
        for stop in [Stop::Before, Stop::After] {
            let at = format!("cut at operation {n} of {operations}, {stop:?}");
            let cut = scene.fork();
            let (context, faults) = cut.faulty(&cut.memory);
            faults.stop_at(faults.count() + n, stop);
            let result = defragment::compact(&context, &plan, &EXACT);
            assert!(result.is_err() || n + 1 == operations, "{at}");
            assert!(cut.contents_without_index() == contents, "{at}");
            cut.pass_with(&PassOptions {
                dead_after: Duration::ZERO,
                min_age: std::time::Duration::ZERO,
                ..PassOptions::default()
            })
            .unwrap();
            assert!(cut.contents_without_index() == contents, "{at}");
            cut.compact_all(&EXACT);
            cut.collect();
            assert!(cut.contents_without_index() == contents, "{at}");
            let (held, exact) = cut.held();
            assert_eq!(held, exact, "{at}");
        }
    }
}

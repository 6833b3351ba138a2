//! The promise: a pass that finds no index where there has been one decides nothing without it. It alone knew what was retired, and
//! deletes of that may come at any time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use larder_format::ids::{ContainerId, JobId};
use larder_format::lease::{JobKind, Lease};
use larder_format::names;
use larder_gnode::pass::{Outcome, PassError, PassOptions, run};
use larder_gnode::reclaim::Exact;
use larder_index::{Current, Published, publish};
use larder_job::{JobContext, SystemClock};
use larder_testkit::{Fault, OpKind, Stop, Times, When};

/// Containers that were retired and whose deletes the store has not applied yet.
struct Late {
    objects: Vec<(String, bytes::Bytes)>,
}

impl Late {
    /// Makes a pass of which all deletes of containers are late.
    fn pass(scene: &Scene) -> Self {
        let before = scene.runtime.block_on(scene.memory.contents());
        scene.optimize(Exact::Never);
        let gone: Vec<ContainerId> = scene.reclaimed().into_keys().collect();
        let objects: Vec<_> = gone
            .into_iter()
            .map(names::container)
            .filter_map(|name| before.get(&name).map(|bytes| (name.clone(), bytes.clone())))
            .collect();
        for (name, bytes) in &objects {
            scene.runtime.block_on(scene.memory.put(name, bytes.clone()));
        }
        assert!(!objects.is_empty(), "something was retired");
        Self { objects }
    }

    fn apply(&self, scene: &Scene) {
        for (name, _) in &self.objects {
            scene.runtime.block_on(scene.memory.remove(name));
        }
    }
}

/// Two versions with something in common, of which one container was retired: the rest of it lies in what the pass wrote.
fn moved() -> Scene {
    let scene = Scene::new();
    scene.alone("a", &[("one", 1, 90_000), ("two", 2, 60_000)]);
    scene.alone("b", &[("one", 1, 90_000), ("three", 3, 80_000)]);
    scene.alone("a", &[("new", 4, 50_000)]);
    scene.alone("b", &[("new", 5, 50_000)]);
    scene
}

/// The containers are in their places, so nothing is missing; then the deletes are applied.
#[test]
fn deletes_that_come_after_a_pass_without_the_index_lose_nothing() {
    let scene = moved();
    let contents = scene.contents();
    let late = Late::pass(&scene);
    scene.lose_index();
    for reclaim in [None, thorough(Exact::Always).reclaim] {
        scene.pass_with(&PassOptions { reclaim, ..pass_options() }).unwrap();
    }
    late.apply(&scene);
    assert_eq!(scene.rebuild().lost_chunks, 0);
    assert!(scene.contents() == contents);
}

/// Nothing was written: one version was led to a container of another, which is forgotten.
#[test]
fn what_others_were_led_to_stays_without_the_index() {
    let (scene, first, second) = twins();
    let contents = scene.contents();
    let late = Late::pass(&scene);
    scene.lose_index();
    scene.forget(second);
    for _ in 0..2 {
        scene.optimize(Exact::Always);
    }
    late.apply(&scene);
    assert_eq!(scene.rebuild().lost_chunks, 0);
    assert!(scene.contents()[&first] == contents[&first]);
}

/// Also when whoever lost the index lost the mark with it, as long as passes have removed leases.
#[test]
fn leases_that_passes_removed_say_that_there_was_an_index() {
    let scene = moved();
    let contents = scene.contents();
    let late = Late::pass(&scene);
    scene.lose_index();
    scene.lose_marks();
    assert!(scene.optimize(Exact::Always).rebuilt.is_some());
    late.apply(&scene);
    assert_eq!(scene.rebuild().lost_chunks, 0);
    assert!(scene.contents() == contents);
}

#[test]
fn a_new_repository_has_lost_nothing() {
    let scene = moved();
    let dry = PassOptions { dry_run: true, ..thorough(Exact::Never) };
    assert_eq!(scene.pass_with(&dry).unwrap().plan.versions_ingested, 4);
    let report = scene.optimize(Exact::Never);
    assert_eq!((report.outcome, report.rebuilt), (Outcome::Published(1), None));
    assert_eq!(scene.optimize(Exact::Never).rebuilt, None);
}

/// A dry run changes nothing, and what it would show without the index is not what a pass would do.
#[test]
fn a_dry_run_says_that_the_index_is_gone() {
    let scene = moved();
    scene.optimize(Exact::Never);
    scene.lose_index();
    let before = scene.runtime.block_on(scene.memory.contents());
    let dry = PassOptions { dry_run: true, ..thorough(Exact::Never) };
    assert!(matches!(scene.pass_with(&dry), Err(PassError::LostIndex)));
    assert_eq!(scene.runtime.block_on(scene.memory.contents()), before);
    assert_eq!(scene.optimize(Exact::Never).rebuilt, Some(2));
    assert!(scene.pass_with(&dry).is_ok());
}

/// Cut anywhere, a pass that rebuilds the index has lost nothing, and the next one goes on.
#[test]
fn a_pass_that_heals_may_be_cut_anywhere() {
    let scene = moved();
    let contents = scene.contents();
    let late = Late::pass(&scene);
    scene.lose_index();
    let mut operations = 0;
    loop {
        let cut = scene.fork();
        let (context, faults) = cut.faulty(&cut.memory);
        faults.stop_at(faults.count() + operations, Stop::After);
        let options = thorough(Exact::Always);
        let is_over = cut.runtime.block_on(run(&context, &options)).is_ok();
        late.apply(&cut);
        cut.optimize(Exact::Always);
        // An index that was rebuilt when all was in its place does not lead to what went since.
        assert_eq!(cut.rebuild().lost_chunks, 0, "after {operations} operations");
        assert!(cut.contents() == contents, "after {operations} operations");
        if is_over {
            break;
        }
        operations += 1;
    }
    assert!(operations > 20, "{operations}");
}

/// A pass that read the index before it was lost publishes afterwards: what was decided meanwhile is not in it, so it must not be the
/// newest.
#[test]
fn a_pass_that_began_before_the_loss_is_overtaken() {
    let scene = moved();
    for edition in 0..3 {
        scene.version("c", edition);
        scene.optimize(Exact::Never);
    }
    let repository = scene.repository(scene.memory.store());
    let current = scene.runtime.block_on(Current::settle(&repository)).unwrap();
    let turn = current.turn().unwrap();
    let base = current.base().unwrap();
    let lease = Lease { claims: Some(turn.number), ..scene.context().lease(JobKind::Task, "") };
    let job = JobId([9; 16]);
    scene.runtime.block_on(repository.open_lease(job, lease)).unwrap();
    scene.lose_index();
    let report = scene.optimize(Exact::Never);
    assert_eq!(report.rebuilt, Some(base.number + 2));
    let late = scene.runtime.block_on(publish(&repository, &turn, (*base.manifest).clone())).unwrap();
    assert!(matches!(late, Published::Overtaken { .. }), "{late:?}");
}

/// Why there is the mark: deletes of leases may be as late as those of containers, and then nothing else tells that there was an index.
#[test]
fn without_the_mark_chunks_would_be_lost() {
    let scene = moved();
    let before = scene.runtime.block_on(scene.memory.contents());
    let late = Late::pass(&scene);
    scene.lose_index();
    for (name, bytes) in before.iter().filter(|(name, _)| name.starts_with(names::JOBS)) {
        scene.runtime.block_on(scene.memory.put(name, bytes.clone()));
    }
    let marked = scene.fork();
    scene.lose_marks();
    for (scene, is_marked) in [(scene, false), (marked, true)] {
        // Who gives the same up again copies it again.
        let collects = PassOptions { reclaim: None, ..pass_options() };
        assert_eq!(scene.pass_with(&collects).unwrap().rebuilt.is_some(), is_marked);
        late.apply(&scene);
        assert_eq!(scene.rebuild().lost_chunks == 0, is_marked);
    }
}

/// Two G-nodes start at once on a repository that has no index yet, and the first index takes a moment.
#[test]
fn a_first_index_that_is_on_its_way_is_not_lost() {
    let scene = moved();
    let contents = scene.contents();
    let (context, faults) = scene.faulty(&scene.memory);
    let slowly = Fault::Delay(Duration::from_secs(1));
    faults.add(When::kind(OpKind::Put).path(&names::index(1)), slowly, Times::Always);
    // By the time of the store, or whoever holds the lease would be considered dead.
    let at = |repository| JobContext { clock: Arc::new(SystemClock), ..scene.context_of(repository) };
    let (first, second) = (at(context.repository), at(scene.repository(scene.memory.store())));
    let options = thorough(Exact::Always);
    let (first, second) = scene.runtime.block_on(async { tokio::join!(run(&first, &options), run(&second, &options)) });
    assert!(matches!(first.unwrap().outcome, Outcome::Published(1) | Outcome::Lost));
    match second {
        Ok(report) => assert_eq!(report.rebuilt, None),
        Err(error) => assert!(matches!(error, PassError::Overtaken), "{error}"),
    }
    for _ in 0..2 {
        scene.pass_with(&PassOptions { dead_after: Duration::ZERO, ..thorough(Exact::Always) }).unwrap();
    }
    assert!(scene.contents() == contents);
    let (held, needed) = scene.held_and_needed();
    assert_eq!(held, needed);
}

/// The first pass of all dies, and the next ones leave nothing of it: also when it dies between its index and the mark of that.
#[test]
fn a_first_pass_cut_at_any_operation_leaves_nothing_for_good() {
    let scene = moved();
    let contents = scene.contents();
    let run = |scene: &Scene, cut: Option<(u64, Stop)>| {
        let (context, faults) = scene.faulty(&scene.memory);
        let opened = faults.count();
        if let Some((n, stop)) = cut {
            faults.stop_at(opened + n, stop);
        }
        (scene.runtime.block_on(run(&context, &thorough(Exact::Always))), faults.count() - opened)
    };
    let (_, operations) = run(&scene.fork(), None);
    for n in 0..operations {
        for stop in [Stop::Before, Stop::After] {
            let at = format!("cut at operation {n} of {operations}, {stop:?}");
            let cut = scene.fork();
            assert!(run(&cut, Some((n, stop))).0.is_err(), "{at}");
            let options = PassOptions { dead_after: Duration::ZERO, ..thorough(Exact::Always) };
            let next: Vec<_> = (0..3).map(|_| cut.pass_with(&options).unwrap()).collect();
            assert!(cut.contents() == contents, "{at}");
            let (held, needed) = cut.held_and_needed();
            assert!(next.iter().all(|report| report.rebuilt.is_none()), "{at}");
            assert_eq!((held, cut.garbage()), (needed, Default::default()), "{at}");
        }
    }
}

/// The newest index alone is gone, and the one before it is there: nobody takes that one for the truth, and the loss is told.
#[test]
fn the_newest_index_alone_is_missed() {
    for forgets in [false, true] {
        let (scene, first, second) = twins();
        let contents = scene.contents();
        let collects = PassOptions { reclaim: None, ..pass_options() };
        assert_eq!(scene.pass_with(&collects).unwrap().outcome, Outcome::Published(1));
        scene.optimize(Exact::Never);
        let reclaimed = scene.reclaimed();
        assert!(!reclaimed.is_empty(), "chunks of one are in the container of the other");
        scene.runtime.block_on(scene.memory.remove(&names::index(2)));
        let dry = PassOptions { dry_run: true, ..collects.clone() };
        assert!(matches!(scene.pass_with(&dry), Err(PassError::LostIndex)));
        if forgets {
            scene.forget(second);
        }
        let reports: Vec<_> = (0..3).map(|_| scene.pass_with(&collects).unwrap()).collect();
        assert_eq!(reports[0].rebuilt, Some(3), "it is told");
        assert!(reports.iter().skip(1).all(|report| report.rebuilt.is_none()));
        assert_eq!(scene.rebuild().lost_chunks, 0);
        assert!(scene.contents()[&first] == contents[&first]);
    }
}

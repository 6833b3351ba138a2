//! One round of maintenance: the order of its tasks, a pass that loses, its time limit and its
//! budget.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use larder_format::ids::JobId;
use larder_gnode::maintenance::{self, Ended, MaintenanceError, MaintenanceOptions, MaintenanceReport, Task};
use larder_gnode::pass::Outcome;
use larder_gnode::repair::{RebuildEnded, rebuild_until_won};
use larder_job::{Clock, JobContext};
use object_store::ObjectStore;

/// Bytes of a file of [`two_series`].
const FILE: u64 = 60_000;

/// Stands still until it is set.
#[derive(Debug, Clone, Default)]
struct Set(Arc<AtomicU64>);

impl Clock for Set {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn only<const N: usize>(tasks: [Task; N]) -> MaintenanceOptions {
    MaintenanceOptions { tasks: tasks.into(), pass: pass_options(), ..MaintenanceOptions::default() }
}

fn maintain_with(
    context: &JobContext,
    options: &MaintenanceOptions,
    on_not_rewritten: impl Fn(JobId),
) -> Result<MaintenanceReport, MaintenanceError> {
    maintenance::run(context, options, &|id, _| on_not_rewritten(id))
}

fn maintain(context: &JobContext, options: &MaintenanceOptions) -> MaintenanceReport {
    maintain_with(context, options, |id| panic!("{id} was not rewritten")).unwrap()
}

/// Two series that do not know of each other and have five files in common. Each has one file of
/// its own.
fn two_series() -> Scene {
    let scene = Scene::new();
    for (series, own) in [("a", 10), ("b", 20)] {
        let common = ["1", "2", "3", "4", "5"].into_iter().zip(1..);
        let files: Vec<_> = common.chain([("own", own)]).map(|(name, seed)| (name, seed, FILE as usize)).collect();
        scene.alone(series, &files);
    }
    scene
}

/// The same, and the index has them.
fn two_indexed_series() -> Scene {
    let scene = two_series();
    assert!(matches!(maintain(&scene.context(), &only([Task::Collect])).pass.outcome, Outcome::Published(_)));
    scene
}

/// Containers that a pass may delete.
fn unused_containers(scene: &Scene) -> usize {
    scene.garbage().iter().filter(|name| larder_format::names::parse_container(name).is_some()).count()
}

#[test]
fn the_pass_deletes_what_defragmentation_left_in_the_same_round() {
    let scene = two_indexed_series();
    let contents = scene.contents();
    let report = maintain(&scene.context(), &only([Task::Defragment, Task::Collect]));
    assert_eq!((report.defragmented.versions, report.defragmented.shared_bytes), (1, 5 * FILE));
    assert!(report.pass.done.containers > 0, "{report:?}");
    assert_eq!(report.ended(false), Ended::Done);
    assert_eq!(unused_containers(&scene), 0);
    assert!(scene.contents() == contents);
}

#[test]
fn duplicates_that_only_the_new_index_shows_are_removed_in_the_same_round() {
    let scene = two_series();
    let contents = scene.contents();
    let report = maintain(&scene.context(), &only([]));
    assert_eq!((report.defragmented.versions, report.defragmented.shared_bytes), (1, 5 * FILE));
    assert_eq!(report.pass.plan.versions_ingested, 3, "both versions, and the new generation");
    assert!(matches!(report.pass.outcome, Outcome::Published(_)) && report.pass.done.containers > 0, "{report:?}");
    assert_eq!(unused_containers(&scene), 0);
    assert!(scene.contents() == contents);
    let again = maintain(&scene.context(), &only([]));
    assert_eq!((again.pass.outcome, again.defragmented.versions), (Outcome::Nothing, 0));
}

#[test]
fn only_the_tasks_that_are_wanted_are_done() {
    let scene = two_indexed_series();
    let collected = maintain(&scene.context(), &only([Task::Collect]));
    assert_eq!((collected.defragmented.versions, collected.pass.outcome), (0, Outcome::Nothing));
    let defragmented = maintain(&scene.context(), &only([Task::Defragment]));
    assert_eq!((defragmented.defragmented.versions, defragmented.pass.outcome), (1, Outcome::Nothing));
    assert!(unused_containers(&scene) > 0, "no pass ran");
}

#[test]
fn a_dry_run_tells_both_and_changes_nothing() {
    let scene = two_indexed_series();
    let before = scene.runtime.block_on(scene.memory.paths());
    let mut options = only([]);
    options.pass.dry_run = true;
    let report = maintain(&scene.context(), &options);
    assert_eq!((report.defragmented.versions, report.pass.outcome), (1, Outcome::Planned));
    assert!(report.planning.reads > 0);
    assert_eq!(scene.runtime.block_on(scene.memory.paths()), before);
}

/// A store in front of the scene's, at which something happens before the first object below a
/// folder is created.
fn before_any_below(
    scene: &Scene,
    folder: &'static str,
    hook: impl Fn(&Scene) + Send + Sync + 'static,
) -> Arc<Between> {
    let (other, hook) = (Arc::new(scene.same()), Arc::new(hook));
    let between = Between::new(scene.memory.store(), move || {
        let (scene, hook) = (other.clone(), hook.clone());
        async move { tokio::task::spawn_blocking(move || hook(&scene)).await.unwrap() }
    });
    between.happens_before_any_below(folder);
    between
}

#[test]
fn a_pass_that_loses_starts_again() {
    let scene = two_series();
    let between = before_any_below(&scene, "index/", |scene| drop(scene.pass().unwrap()));
    let report = maintain(&scene.context_at(between.clone()), &only([Task::Collect]));
    assert!(between.has_happened());
    assert_ne!(report.pass.outcome, Outcome::Lost);
    assert_eq!(report.pass.plan.versions_ingested, 0, "the other pass did that");
    assert!(!report.wants_retry());
    scene.is_clean("after the second attempt");
}

#[test]
fn a_rebuild_of_the_index_that_loses_starts_again() {
    let scene = two_series();
    let between = before_any_below(&scene, "index/", |scene| drop(scene.pass().unwrap()));
    let context = scene.context_at(between.clone());
    let rebuilt = scene.runtime.block_on(rebuild_until_won(&context)).unwrap();
    assert!(between.has_happened());
    assert_eq!((rebuilt.number, rebuilt.versions, rebuilt.ended()), (Some(2), 2, RebuildEnded::Done));
}

#[test]
fn without_time_nothing_is_asked_of_the_store() {
    let scene = two_series();
    let between = Between::new(scene.memory.store(), || async {});
    let context = scene.context_at(between.clone());
    let before = between.count();
    let report = maintain(&context, &MaintenanceOptions { max_duration: Some(Duration::ZERO), ..only([]) });
    assert_eq!(between.count(), before);
    assert_eq!((report.pass.outcome, report.defragmented.was_stopped), (Outcome::Stopped, true));
    assert!(report.is_unfinished() && !report.defragmented.has_left);
    assert_eq!(report.ended(false), Ended::Done, "that was asked for");
}

#[test]
fn no_task_starts_when_the_one_before_it_has_used_up_the_time() {
    let scene = two_indexed_series();
    let clock = Set::default();
    let later = clock.clone();
    // The new generation.
    let between = before_any_below(&scene, "versions/", move |_| later.0.store(60_000, Ordering::SeqCst));
    let context = JobContext { clock: Arc::new(clock.clone()), ..scene.context_at(between) };
    let limited = |most| MaintenanceOptions { max_duration: Some(Duration::from_secs(most)), ..only([]) };
    let report = maintain(&context, &limited(60));
    assert_eq!((report.defragmented.versions, report.pass.outcome), (1, Outcome::Stopped));
    assert_eq!(report.elapsed, Duration::from_secs(60));
    assert!(report.is_unfinished() && unused_containers(&scene) > 0);
    // Each round has all of its time.
    let report = maintain(&context, &limited(60));
    assert!(matches!(report.pass.outcome, Outcome::Published(_)) && !report.is_unfinished());
    assert_eq!(unused_containers(&scene), 0);
}

#[test]
fn nothing_is_copied_beyond_the_budget() {
    let scene = two_indexed_series();
    let rewritten = |max_rewrite| {
        let report = maintain(&scene.context(), &MaintenanceOptions { max_rewrite, ..only([Task::Defragment]) });
        (report.defragmented.versions, report.defragmented.bytes)
    };
    assert_eq!(rewritten(Some(FILE - 1)), (0, 0));
    assert_eq!(rewritten(Some(FILE)), (1, FILE));
}

#[test]
fn a_version_that_cannot_be_read_is_told_once_and_is_damage() {
    let scene = two_series();
    let newest = scene.versions().pop().unwrap();
    let name = larder_format::names::version(newest.series, newest.id(), newest.generation);
    let flipped = scene.memory.change(&name, |bytes| *bytes.last_mut().unwrap() ^= 1);
    assert!(scene.runtime.block_on(flipped));
    let told = RefCell::new(Vec::new());
    let report = maintain_with(&scene.context(), &only([Task::Defragment]), |id| told.borrow_mut().push(id)).unwrap();
    assert_eq!(told.into_inner(), [newest.id()]);
    assert_eq!(report.defragmented.failed.keys().copied().collect::<Vec<_>>(), [newest.id()]);
    assert_eq!(report.ended(false), Ended::Damage);
}

#[test]
fn a_round_that_is_cancelled_is_interrupted() {
    let scene = two_series();
    let before: Arc<dyn ObjectStore> = scene.memory.store();
    let context = scene.context_at(before);
    context.cancel.cancel();
    let report = maintain(&context, &only([Task::Defragment]));
    assert_eq!(report.ended(true), Ended::Interrupted);
    assert!(matches!(maintain_with(&context, &only([]), |_| ()), Err(MaintenanceError::Pass(_))));
}

//! The promise: uploads of a dead job that backups in both layouts took over stay whole for both (`OneLayout`, `LayoutsApart`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use larder_format::ids::JobId;
use larder_format::layout::Layout;
use larder_gnode::pass::{self, PassOptions, PassReport};
use larder_job::JobContext;
use larder_lnode::BackupReport;
use larder_store::rules::Rule;
use larder_testkit::{Failure, Fault, OpKind, Times, When};

/// A backup of these bytes in this layout, which the series takes if it has no version.
fn backup_as(
    scene: &Scene,
    context: &JobContext,
    bytes: &[u8],
    layout: Layout,
) -> Result<BackupReport, larder_lnode::BackupError> {
    let root = scene.source("s");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("file"), bytes).unwrap();
    backup_with(context, &root, "s", |options| {
        options.layout = layout;
        options.force = true;
    })
}

/// A series without versions, and a backup in the standard layout that uploaded everything and died.
fn with_dead_job() -> Scene {
    let scene = Scene::new();
    let (context, faults) = scene.faulty(&scene.memory);
    faults.add(When::kind(OpKind::Put).path("versions/"), Fault::FailBefore(Failure::Status(403)), Times::Always);
    backup_as(&scene, &context, &pieces(&[1; 60]), Layout::Standard).expect_err("it cannot commit");
    scene
}

fn without_one_layout(context: JobContext) -> JobContext {
    JobContext { repository: context.repository.without_rule(Rule::OneLayout), ..context }
}

/// What of the pieces is of this edition.
fn mostly(edition: u64) -> Vec<u8> {
    let mut editions = [edition; 60];
    editions[..20].fill(1);
    pieces(&editions)
}

/// A standard backup is running that took the dead job's uploads over, when another one takes them over in the layout `lifecycle`; the
/// latter is indexed first or second.
fn with_two_adopters(lifecycle_first: bool) -> (Scene, JobId, JobId) {
    let scene = Arc::new(with_dead_job());
    let other = scene.clone();
    let fast = Arc::new(std::sync::Mutex::new(None));
    let told = fast.clone();
    let between = Between::new(scene.memory.store(), move || {
        let (scene, told) = (other.clone(), told.clone());
        async move {
            let fast = tokio::task::spawn_blocking(move || {
                let context = without_one_layout(scene.context());
                let report = backup_as(&scene, &context, &mostly(2), Layout::Lifecycle).unwrap();
                assert!(!report.adopted.is_empty());
                if lifecycle_first {
                    passes(&scene, None, Duration::from_secs(1 << 30));
                }
                report.version.unwrap().id
            });
            *told.lock().unwrap() = Some(fast.await.unwrap());
        }
    });
    between.happens_before_any_below("versions");
    let context = without_one_layout(scene.context_at(between));
    let slow = backup_as(&scene, &context, &pieces(&[1; 60]), Layout::Standard).unwrap();
    assert_eq!(slow.adopted.len(), 1);
    let fast = fast.lock().unwrap().take().unwrap();
    (scene.same(), slow.version.unwrap().id, fast)
}

/// A pass that leaves nothing over, without a rule if one is named.
fn passes(scene: &Scene, without: Option<Rule>, dead_after: Duration) -> PassReport {
    let repository = scene.repository(scene.memory.store());
    let repository = match without {
        Some(rule) => repository.without_rule(rule),
        None => repository,
    };
    let options =
        PassOptions { dead_after, reclaim: thorough(larder_gnode::reclaim::Exact::Always).reclaim, ..thoroughly() };
    scene.runtime.handle().block_on(pass::run(&scene.context_of(repository), &options)).unwrap()
}

#[test]
fn a_job_adopts_only_jobs_of_its_own_layout() {
    let scene = with_dead_job();
    let standard = scene.fork();
    let report = backup_as(&standard, &standard.context(), &pieces(&[1; 60]), Layout::Standard).unwrap();
    assert_eq!(report.adopted.len(), 1);
    let lifecycle = backup_as(&scene, &scene.context(), &pieces(&[1; 60]), Layout::Lifecycle).unwrap();
    assert_eq!(lifecycle.adopted, []);
}

/// Passes after two adopters in two layouts: whether everything stays readable.
fn stays_whole(lifecycle_first: bool, without: Option<Rule>) -> bool {
    let (scene, slow, fast) = with_two_adopters(lifecycle_first);
    let expected = scene.contents();
    assert!(expected.contains_key(&slow) && expected.contains_key(&fast));
    let mut edition = 2;
    for round in 0..4 {
        let report = passes(&scene, without, Duration::ZERO);
        if without.is_none() {
            assert!(!report.found_damage(), "round {round}: {report:?}");
            scene.index_agrees(&format!("round {round}"));
        }
        for (id, contents) in &expected {
            let version = scene.versions().into_iter().find(|version| version.id() == *id).unwrap();
            // What is lost makes reading panic.
            let read = std::panic::AssertUnwindSafe(|| read_announced(&scene.context(), &version));
            let read = std::panic::catch_unwind(read).unwrap_or(Ok(Contents::new()));
            if !read.is_ok_and(|read| read == *contents) {
                return false;
            }
        }
        if round % 2 == 0 {
            edition += 1;
            backup_as(&scene, &scene.context(), &mostly(edition), Layout::Lifecycle).unwrap();
        }
    }
    true
}

#[test]
fn a_container_of_versions_in_both_layouts_stays_whole_whichever_is_indexed_first() {
    assert!(stays_whole(true, None));
    assert!(stays_whole(false, None));
}

#[test]
fn without_the_rule_a_version_in_the_other_layout_loses_its_chunks() {
    assert!(!stays_whole(true, Some(Rule::LayoutsApart)));
}

//! The promise: what was committed and is only hidden, or lost before its first pass, makes a pass stop; and what no index ever had is
//! not deleted while it is young.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::time::Duration;

use crate::support::*;
use larder_format::ids::JobId;
use larder_format::names;
use larder_gnode::forget::pin_of;
use larder_gnode::pass::{PassError, PassOptions, PassReport};
use larder_store::rules::Rule;
use larder_testkit::{Failure, Fault, OpKind, Times, When};

/// Two versions that the index has, and one that it does not have. Its register is hidden. Gives the id and the register.
fn with_hidden_register() -> (Scene, JobId, String, bytes::Bytes) {
    let scene = Scene::new();
    scene.version("a", 0);
    scene.version("b", 0);
    scene.pass().unwrap();
    let id = scene.version("a", 1);
    let version = scene.versions().into_iter().find(|version| version.id() == id).unwrap();
    let name = names::version(version.series, id, 0);
    let bytes = scene.runtime.block_on(scene.memory.contents()).remove(&name).unwrap();
    scene.runtime.block_on(scene.memory.remove(&name));
    (scene, id, name, bytes)
}

fn put_back(scene: &Scene, name: &str, bytes: &bytes::Bytes) {
    scene.runtime.block_on(scene.memory.put(name, bytes.clone()));
}

/// A backup that uploads everything and cannot commit.
fn failed_backup(scene: &Scene, series: &str, edition: u64) {
    scene.write(series, edition);
    let (context, faults) = scene.faulty(&scene.memory);
    faults.add(When::kind(OpKind::Put).path("versions/"), Fault::FailBefore(Failure::Status(403)), Times::Always);
    scene.backup(&context, series).expect_err("it cannot commit");
}

#[test]
fn a_closing_mark_without_its_register_stops_the_pass() {
    let (scene, id, name, bytes) = with_hidden_register();
    let refused = scene.pass().expect_err("nothing explains that it is gone");
    assert!(matches!(&refused, PassError::LostManifest { name: lost, .. } if *lost == name), "{refused}");
    put_back(&scene, &name, &bytes);
    scene.pass().unwrap();
    assert!(scene.contents().contains_key(&id));
    scene.is_clean("the register is back");
}

#[test]
fn without_the_rule_a_hidden_register_costs_the_version() {
    let (scene, _, name, bytes) = with_hidden_register();
    let repository = scene.repository(scene.memory.store()).without_rule(Rule::CommittedAccounted);
    scene
        .runtime
        .block_on(larder_gnode::pass::run(&scene.context_of(repository), &pass_options()))
        .expect("nothing stops it");
    put_back(&scene, &name, &bytes);
    let version = scene.versions().into_iter().find(|version| names::version(version.series, version.id(), 0) == name);
    assert!(read_announced(&scene.context(), &version.unwrap()).is_err());
}

#[test]
fn a_pin_without_its_register_stops_the_pass() {
    let (scene, id, name, bytes) = with_hidden_register();
    put_back(&scene, &name, &bytes);
    let context = scene.context();
    let version = scene.versions().into_iter().find(|version| version.id() == id).unwrap();
    scene.runtime.block_on(context.repository.pin(pin_of(&version), 0, "h", "keep")).unwrap();
    scene.runtime.block_on(scene.memory.remove(&name));
    scene.runtime.block_on(scene.memory.remove(&names::lease_done(id)));
    let refused = scene.pass_with(&PassOptions { dead_after: Duration::from_secs(1 << 30), ..pass_options() });
    assert!(matches!(refused, Err(PassError::LostManifest { .. })), "{refused:?}");
}

#[test]
fn check_names_a_register_that_a_closing_mark_speaks_of() {
    let (scene, id, name, _) = with_hidden_register();
    let report = larder_rewrite::check(&scene.context(), &Default::default()).unwrap();
    let found: Vec<_> = report.damages.iter().map(|damage| damage.object.clone()).collect();
    assert_eq!(found, [name]);
    assert_eq!(report.damages[0].affected[0].id, id);
}

#[test]
fn what_no_index_ever_had_waits_for_its_age() {
    let (scene, id, name, bytes) = with_hidden_register();
    // Nothing speaks for it any more.
    for object in scene.runtime.block_on(scene.memory.contents()).into_keys() {
        if object.starts_with(&format!("jobs/{id}/")) {
            scene.runtime.block_on(scene.memory.remove(&object));
        }
    }
    let day = PassOptions {
        min_age: Duration::from_secs(86_400),
        listing: larder_gnode::pass::Listing::Whole,
        ..pass_options()
    };
    let fork = scene.fork();
    let report = fork.pass_with(&day).unwrap();
    assert!(report.waiting.containers > 0 && report.waiting.bytes.0 > 0);
    put_back(&fork, &name, &bytes);
    assert!(fork.contents().contains_key(&id), "it was only hidden");
    let at_once = PassOptions { min_age: Duration::ZERO, ..day.clone() };
    assert_eq!(scene.fork().pass_with(&at_once).unwrap().waiting.containers, 0);
    let repository = scene.repository(scene.memory.store()).without_rule(Rule::OldEnough);
    scene.runtime.block_on(larder_gnode::pass::run(&scene.context_of(repository), &day)).unwrap();
    scene.is_clean("without the rule it is gone at once");
}

/// What nobody needs. The aborted register of the job stays for good, because the job never closed its lease.
fn left(scene: &Scene) -> Vec<String> {
    scene.garbage().into_iter().filter(|name| !name.starts_with(names::VERSIONS)).collect()
}

/// Space of a backup that failed: it is adopted, or freed once a later version is there, or told.
#[test]
fn a_failed_backup_gives_its_space_back() {
    let day = PassOptions { min_age: Duration::from_secs(86_400), ..pass_options() };
    let scene = Scene::new();
    scene.version("a", 0);
    scene.pass().unwrap();
    failed_backup(&scene, "a", 1);
    let told = scene.pass_with(&day).unwrap();
    assert!(told.waiting.containers > 0 && told.waiting.until_ms > 0, "{told:?}");
    assert_eq!(told.plan.fenced, []);
    // Its uploads are taken over.
    let adopter = scene.fork();
    adopter.write("a", 1);
    let report = adopter.backup(&adopter.context(), "a").unwrap();
    assert_eq!(report.adopted.len(), 1);
    adopter.pass_with(&day).unwrap();
    adopter.pass_with(&day).unwrap();
    assert_eq!(left(&adopter), Vec::<String>::new());
    // Another edition is committed: nobody needs them.
    let other = scene.fork();
    other.version("a", 2);
    let freed = other.pass_with(&day).unwrap();
    assert_eq!((freed.plan.fenced.len(), freed.waiting.containers), (1, 0));
    other.pass_with(&day).unwrap();
    assert_eq!(left(&other), Vec::<String>::new());
    // Asked for at once.
    let at_once = scene.pass().unwrap();
    assert_eq!((at_once.plan.fenced.len(), at_once.waiting.containers), (1, 0));
}

/// What another backup took over of a killed one is needed: only the rest waits for the killed one.
#[test]
fn uploads_that_a_version_uses_are_not_those_of_a_killed_backup() {
    let patient = PassOptions { dead_after: Duration::from_secs(86_400_000), ..pass_options() };
    let scene = Scene::new();
    scene.version("a", 0);
    scene.pass().unwrap();
    failed_backup(&scene, "a", 1);
    scene.as_if_killed();
    let bytes = |report: &PassReport| report.open_uploads.iter().map(|uploads| uploads.bytes.0).sum::<u64>();
    let before = bytes(&scene.fork().pass_with(&patient).unwrap());
    let adopting = scene.backup(&scene.context(), "a").unwrap();
    assert_eq!(adopting.adopted.len(), 1);
    for _ in 0..3 {
        let report = scene.pass_with(&patient).unwrap();
        assert!(bytes(&report) < before / 4, "{report:?}, {before} before");
    }
}

/// A version that is forgotten before any pass knew it is no interrupted job: its space comes back at once.
#[test]
fn what_is_forgotten_young_goes_at_once() {
    let day = PassOptions { min_age: Duration::from_secs(86_400), ..pass_options() };
    let scene = Scene::new();
    let first = scene.version("a", 0);
    scene.version("a", 1);
    scene.forget(first);
    let report = scene.pass_with(&day).unwrap();
    assert_eq!((report.waiting.containers, report.plan.versions), (0, 1), "{report:?}");
    assert!(report.done.containers > 0, "{report:?}");
    scene.is_clean("the version that stays is whole");
}

/// `aborted` that is only said to have been created fences nobody.
#[test]
fn an_abort_mark_that_the_store_lost_fences_nobody() {
    let scene = Scene::new();
    scene.version("a", 0);
    failed_backup(&scene, "a", 1);
    let (context, faults) = scene.faulty(&scene.memory);
    faults.add(When::kind(OpKind::Put).path("versions/"), Fault::FailBefore(Failure::Status(412)), Times::Always);
    let before = scene.garbage();
    let report = scene.runtime.block_on(larder_gnode::pass::run(&context, &pass_options()));
    let report = report.unwrap();
    assert_eq!(report.plan.fenced, []);
    let data = |names: std::collections::BTreeSet<String>| {
        names.into_iter().filter(|name| name.starts_with("data/") || name.starts_with("meta/")).collect::<Vec<_>>()
    };
    assert_eq!(data(scene.garbage()), data(before));
}

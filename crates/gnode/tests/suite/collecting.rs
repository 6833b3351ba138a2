//! The promise: after a pass there is exactly what the visible versions need, in whatever order they were forgotten.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::time::Duration;

use crate::support::*;
use larder_format::ids::SettingsOf;
use larder_format::names;
use larder_gnode::pass::{self, Listing, Outcome, PassError, PassOptions};
use larder_rewrite::check::ReadData;
use larder_rewrite::{CheckOptions, check};
use larder_store::settings::SettingsChange;
use larder_testkit::data::Rng;
use larder_testkit::{Failure, Fault, FaultStore, OpKind, Times, When};

#[test]
fn a_pass_without_anything_to_do_leaves_no_trace() {
    let scene = Scene::new();
    scene.version("a", 0);
    // What is left of a job that is over is swept up once.
    assert_eq!(scene.pass().unwrap().outcome, Outcome::Published(1));
    scene.is_clean("after the first pass");
    let before = scene.runtime.block_on(scene.memory.paths());
    let report = scene.pass().unwrap();
    assert_eq!((report.outcome, report.plan.deletions()), (Outcome::Nothing, 0));
    assert_eq!(scene.runtime.block_on(scene.memory.paths()), before);
    // Nor do old indexes make new ones.
    for _ in 0..3 {
        scene.version("a", 1);
        assert!(matches!(scene.pass().unwrap().outcome, Outcome::Published(_)));
    }
    scene.is_clean("after several passes");
    for _ in 0..3 {
        assert_eq!(scene.pass().unwrap().outcome, Outcome::Nothing);
    }
}

/// One object that the store does not delete costs the others nothing, and goes with the next pass.
#[test]
fn what_cannot_be_deleted_is_left_to_the_next_pass() {
    for what in ["meta/", "versions/", "jobs/"] {
        let scene = Scene::new();
        let gone = scene.version("a", 0);
        scene.version("a", 5);
        scene.forget(gone);
        let (store, faults) = FaultStore::new(scene.memory.store());
        let path = if what == "versions/" { what.to_owned() } else { format!("{what}{gone}") };
        faults.add(When::kind(OpKind::Delete).path(&path), Fault::FailBefore(Failure::Status(403)), Times::Always);
        let context = scene.context_at(store);
        let pass = || scene.runtime.block_on(pass::run(&context, &pass_options())).unwrap();
        let report = pass();
        assert!(matches!(report.outcome, Outcome::Published(_)), "{what}: {report:?}");
        // Another pass at once would be refused the same: a daemon waits for its time.
        assert!(!report.is_unfinished && !report.undeleted.is_empty(), "{what}: {report:?}");
        assert!(report.undeleted.iter().all(|object| object.name.starts_with(what)), "{what}: {:?}", report.undeleted);
        assert!(report.done.containers + report.done.entries > 0, "{what}: {report:?}");
        faults.clear();
        let report = pass();
        assert_eq!((report.undeleted.len(), report.is_unfinished), (0, false), "{what}");
        scene.is_clean(what);
    }
}

/// Story S5 of deletion: a container used by N-1 and N, and N is forgotten first. Every order, the newest too, and backups between.
#[test]
fn versions_are_forgotten_in_any_order() {
    for seed in 0..12 {
        let scene = Scene::new();
        let mut rng = Rng::new(seed);
        let mut ids: Vec<_> = (0..5).map(|edition| scene.version("a", edition)).collect();
        ids.push(scene.version("b", 1));
        let all = scene.contents();
        let mut edition = 10;
        while !ids.is_empty() {
            for _ in 0..=rng.below(2) {
                if !ids.is_empty() {
                    scene.forget(ids.swap_remove(rng.below(ids.len() as u64) as usize));
                }
            }
            let report = scene.pass().unwrap();
            assert!(report.plan.deletions() > 0);
            scene.is_clean(&format!("seed {seed}, {} left", ids.len()));
            let left = scene.contents();
            assert!(ids.iter().all(|id| all.get(id).is_none_or(|contents| left.get(id) == Some(contents))));
            if rng.one_in(4) && edition < 13 {
                ids.push(scene.version("a", edition));
                edition += 1;
            }
        }
        assert_eq!(scene.versions().len(), 0);
        let report = check(&scene.context(), &CheckOptions { read_data: ReadData::All, ..CheckOptions::default() });
        assert_eq!(report.unwrap().unused_containers, 0);
    }
}

/// Story S6: two series share containers, and one of them is forgotten.
#[test]
fn what_series_share_stays_for_the_others() {
    let scene = Scene::new();
    let a = scene.version("a", 0);
    std::fs::rename(scene.source("a"), scene.source("b")).unwrap();
    // Nearly everything of b is found in a.
    let b = scene.backup(&scene.context(), "b").unwrap().version.unwrap();
    assert!(b.statistics.stored_bytes < 60_000, "{}", b.statistics.stored_bytes);
    let before = scene.contents();
    scene.forget(a);
    let report = scene.pass().unwrap();
    assert_eq!(report.plan.versions, 1);
    assert_eq!(scene.contents()[&b.id], before[&b.id]);
    scene.is_clean("after a");
    scene.forget(b.id);
    scene.pass().unwrap();
    scene.is_clean("after both");
}

#[test]
fn a_dry_run_says_what_would_be_done_and_changes_nothing() {
    let scene = Scene::new();
    let first = scene.version("a", 0);
    scene.version("a", 1);
    scene.forget(first);
    let before = scene.runtime.block_on(scene.memory.contents());
    let options = PassOptions { dry_run: true, ..pass_options() };
    let planned = scene.pass_with(&options).unwrap();
    assert_eq!(planned.outcome, Outcome::Planned);
    assert_eq!(scene.runtime.block_on(scene.memory.contents()), before);
    let done = scene.pass().unwrap();
    // A dry run adds no version to the index, which tells the bytes of all containers.
    assert!(done.plan.reclaimed.data_bytes > planned.plan.reclaimed.data_bytes);
    let mut expected = planned.plan.clone();
    expected.reclaimed.data_bytes = done.plan.reclaimed.data_bytes;
    assert_eq!(done.plan, expected);
    assert_eq!(done.done.containers, planned.plan.data_containers + planned.plan.meta_containers);
    assert_eq!(done.done.container_bytes, planned.plan.container_bytes);
    assert!(done.done.container_bytes.0 > 0);
    scene.is_clean("after the pass");
}

/// Story S3: a job dies and its containers stay. They are collected when it is considered dead, and not before.
#[test]
fn what_a_dead_job_uploaded_goes_when_it_is_thought_dead() {
    let scene = Scene::new();
    scene.version("a", 0);
    scene.write("a", 1);
    let (context, faults) = scene.faulty(&scene.memory);
    let dead = larder_testkit::Fault::FailBefore(larder_testkit::Failure::Status(403));
    faults.add(
        larder_testkit::When::kind(larder_testkit::OpKind::Put).path("versions/"),
        dead,
        larder_testkit::Times::Always,
    );
    scene.backup(&context, "a").expect_err("it cannot commit");
    scene.as_if_killed();
    let report = scene.pass().unwrap();
    assert_eq!((report.live_jobs, report.plan.data_containers), (1, 0));
    let at_once = PassOptions { dead_after: Duration::ZERO, ..pass_options() };
    let dry = scene.pass_with(&PassOptions { dry_run: true, ..at_once.clone() }).unwrap();
    let report = scene.pass_with(&at_once).unwrap();
    assert_eq!((report.plan.fenced.len(), report.live_jobs, report.plan.data_containers), (1, 0, 1));
    assert_eq!(dry.plan, report.plan);
    // The fence stays for good: the job never said that it was over, and may still come to commit.
    let left = scene.garbage();
    assert!(left.len() == 1 && left.iter().all(|name| name.starts_with("versions/")), "{left:?}");
    scene.version("a", 2);
    scene.pass().unwrap();
    assert_eq!(scene.garbage(), left);
}

#[test]
fn what_cannot_be_read_stops_a_pass_before_it_deletes_anything() {
    let scene = Scene::new();
    let first = scene.version("a", 0);
    let second = scene.version("a", 1);
    scene.forget(first);
    let manifest = scene.runtime.block_on(scene.memory.paths()).into_iter();
    let manifest =
        manifest.filter(|name| name.starts_with("versions/")).find(|name| name.contains(&second.to_string()));
    let manifest = manifest.unwrap();
    let whole = scene.runtime.block_on(scene.memory.get(&manifest)).unwrap();
    scene.runtime.block_on(scene.memory.change(&manifest, |bytes| bytes.truncate(100)));
    let before = scene.runtime.block_on(scene.memory.contents());
    let refused = scene.pass().unwrap_err();
    assert!(matches!(&refused, PassError::UnreadableManifest { name, .. } if *name == manifest), "{refused}");
    assert_eq!(scene.runtime.block_on(scene.memory.contents()), before);
    scene.runtime.block_on(scene.memory.put(&manifest, whole));
    // A lease that does not open: a job may be running that needs what nobody knows.
    let planted = larder_format::names::lease(larder_format::ids::JobId([9; 16]), 0);
    scene.runtime.block_on(scene.memory.put(&planted, "garbage"));
    let refused = scene.pass().unwrap_err();
    assert!(matches!(&refused, PassError::UnreadableLease { name, .. } if *name == planted), "{refused}");
    scene.runtime.block_on(scene.memory.remove(&planted));
    scene.pass().unwrap();
    scene.is_clean("when all can be read");
}

/// Whoever may only create objects makes a pass delete nothing that is needed.
/// Its containers look like garbage, since no manifest names them; but a manifest that went without a mark was lost.
#[test]
fn a_manifest_that_was_lost_stops_a_pass_before_it_deletes_anything() {
    let scene = Scene::new();
    let ids = [0, 1].map(|edition| scene.version("a", edition));
    scene.pass().unwrap();
    let contents = scene.contents();
    let version = scene.versions().into_iter().find(|version| version.id() == ids[0]).unwrap();
    let name = names::version(version.series, version.id(), 0);
    let manifest = scene.runtime.block_on(scene.memory.get(&name)).unwrap();
    scene.runtime.block_on(scene.memory.remove(&name));
    scene.version("a", 2);
    let before = scene.runtime.block_on(scene.memory.paths());
    for _ in 0..2 {
        match scene.pass() {
            Err(PassError::LostManifest { id, name: lost }) => assert_eq!((id, &lost), (ids[0], &name)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(scene.runtime.block_on(scene.memory.paths()), before);
    // Somebody finds it again.
    scene.runtime.block_on(scene.memory.put(&name, manifest));
    let newest = scene.contents();
    assert!(ids.iter().all(|id| newest[id] == contents[id]));
    scene.pass().unwrap();
    assert!(scene.contents() == newest);
}

#[test]
fn planted_marks_and_closing_marks_are_not_believed() {
    let scene = Scene::new();
    let id = scene.version("a", 0);
    let version = &scene.versions()[0];
    let before = scene.contents();
    let mark = larder_format::names::forgotten(version.series, id);
    scene.runtime.block_on(scene.memory.put(&mark, "garbage"));
    scene.pass().unwrap();
    assert_eq!(scene.contents(), before);
    // A closing mark of a job that runs.
    scene.write("a", 1);
    let (context, faults) = scene.faulty(&scene.memory);
    faults.add(
        larder_testkit::When::kind(larder_testkit::OpKind::Put).path("versions/"),
        larder_testkit::Fault::FailBefore(larder_testkit::Failure::Status(403)),
        larder_testkit::Times::Always,
    );
    scene.backup(&context, "a").expect_err("it cannot commit");
    scene.as_if_killed();
    let lease = scene
        .runtime
        .block_on(scene.memory.paths())
        .into_iter()
        .find(|name| name.ends_with("/0") && name.starts_with("jobs/"));
    let done = lease.unwrap().replace("/0", "/done");
    scene.runtime.block_on(scene.memory.put(&done, "garbage"));
    let report = scene.pass().unwrap();
    assert_eq!((report.live_jobs, report.plan.data_containers), (1, 0));
}

/// A job that never said that it was over may still create its register once more. What stays of a forgotten version keeps that
/// from bringing it back: its register, and the mark that hides it.
#[test]
fn a_version_whose_job_never_closed_its_lease_stays_hidden_for_good() {
    let scene = Scene::new();
    let id = scene.version("a", 0);
    scene.version("b", 0);
    scene.runtime.block_on(scene.memory.remove(&larder_format::names::lease_done(id)));
    scene.forget(id);
    for _ in 0..3 {
        let report = scene.pass().unwrap();
        assert_eq!(report.plan.versions, 0);
        assert_eq!(scene.versions().len(), 1);
        let left = scene.garbage();
        let prefixes: Vec<_> = left.iter().filter_map(|name| name.split('/').next()).collect();
        assert_eq!(prefixes, ["forgotten", "pins", "versions"], "{left:?}");
    }
}

/// Settings that were set again: of each line the newest that opens stays, and what does not open above it.
#[test]
fn settings_that_others_took_the_place_of_go_with_a_pass() {
    let scene = Scene::new();
    scene.version("a", 0);
    scene.pass().unwrap();
    // Alone they are not worth an index.
    scene.version("a", 1);
    let repository = scene.repository(scene.memory.store());
    let set = |series: Option<&str>, percent: u8| {
        let change = SettingsChange { holes_percent: Some(percent), ..SettingsChange::default() };
        scene.runtime.block_on(repository.set_settings(series, change, 1, "host")).unwrap();
    };
    let entries = || -> Vec<String> {
        let names = scene.runtime.block_on(scene.memory.paths());
        names.into_iter().filter(|name| name.starts_with(names::SETTINGS)).collect()
    };
    (1..4).for_each(|percent| set(Some("a"), percent));
    (4..6).for_each(|percent| set(None, percent));
    let own = |number| names::settings(SettingsOf::Series(repository.keys().series_key("a")), number);
    scene.runtime.block_on(scene.memory.put(&own(9), "written by a later program"));
    let planned = |listing: Listing| {
        scene.pass_with(&PassOptions { dry_run: true, listing, ..pass_options() }).unwrap().plan.entries
    };
    assert_eq!((planned(Listing::Whole), entries().len()), (planned(Listing::New) + 3, 6));
    scene.pass_with(&PassOptions { listing: Listing::Whole, ..pass_options() }).unwrap();
    let mut left = vec![own(2), own(9), names::settings(SettingsOf::Default, 1)];
    left.sort();
    let mut there = entries();
    there.sort();
    assert_eq!(there, left);
    let holds = scene.runtime.block_on(repository.settings(repository.keys().series_key("a"))).unwrap();
    assert_eq!(holds.holes_percent, 3);
}

/// A folder of one job that is locked does not keep the space of others.
#[test]
fn many_locked_containers_of_one_job_do_not_keep_those_of_others() {
    let scene = Scene::new();
    let small = scene.repository(scene.memory.store()).with_container_payload(1024);
    scene.write("a", 0);
    std::fs::write(scene.source("a").join("more"), larder_testkit::data::random(77, 300_000)).unwrap();
    let locked = scene.backup(&scene.context_of(small), "a").unwrap().version.unwrap().id;
    let free = scene.version("b", 0);
    scene.version("c", 0);
    scene.pass().unwrap();
    scene.forget(locked);
    scene.forget(free);
    let left = |job| {
        let listed = scene.runtime.block_on(scene.context().repository.list_containers()).unwrap();
        listed.iter().filter(|container| container.id.job == job).count()
    };
    let count = left(locked);
    assert!(count > 70, "{count}");
    let (store, faults) = FaultStore::new(scene.memory.store());
    let folder = format!("data/{locked}");
    faults.add(When::kind(OpKind::Delete).path(&folder), Fault::FailBefore(Failure::Status(403)), Times::Always);
    let context = scene.context_at(store);
    let report = scene.runtime.block_on(pass::run(&context, &pass_options())).unwrap();
    assert!(report.undeleted.len() > 64, "{report:?}");
    assert_eq!(left(free), 0);
}

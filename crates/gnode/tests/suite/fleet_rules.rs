//! Rules of a batch that the simulation does not break: each has a scene of the real code in which it alone saves an image, and
//! without it the same scene loses one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use larder_fleet::{BatchReport, FleetError, STORE_SERIES, batches, read_plan};
use larder_format::fleet::Stage;
use larder_format::lease::Pin;
use larder_format::names;
use larder_gnode::pass::{self, PassOptions};
use larder_job::JobContext;
use larder_reader::VersionReader;
use larder_store::RepositoryError;
use larder_store::forget_marks::OwnedVersion;
use larder_store::rules::Rule;
use larder_testkit::{Fault, FaultStore, OpKind, Times, When, data};
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;

use crate::fleet::{Given, batch_with, chunks, given};
use crate::support::*;

/// Two hosts with the same disk. The first stores all chunks, and the second waits for them.
fn twins() -> Vec<Given> {
    let bytes = data::random(1, 300_000);
    vec![given("a", "one", bytes.clone()), given("b", "two", bytes)]
}

/// A batch over this store, without these rules.
fn batch_without(scene: &Scene, store: Arc<dyn ObjectStore>, images: &[Given], broken: &[Rule]) -> BatchReport {
    let context = scene.context_at(store);
    let repository = broken.iter().fold(context.repository.clone(), |repository, rule| repository.without_rule(*rule));
    let report = batch_with(&JobContext { repository, ..context }, scene, images, 2).unwrap();
    assert!(report.ended_by.is_none(), "{:?}", report.ended_by);
    report
}

/// Whether the newest version of an image can be read, and has its bytes.
fn restores(scene: &Scene, image: &Given) -> bool {
    let context = scene.context();
    let of_image = |series: &str| series.strip_prefix("vm/") == Some(image.name);
    let version = versions(&context).into_iter().filter(|version| of_image(&version.summary.series));
    let version = version.max_by_key(|version| version.id()).unwrap();
    let (mut bytes, mut is_read) = (Vec::new(), true);
    let visited =
        VersionReader::open(&context, &version).unwrap().visit_contents::<RepositoryError>(b"", |_, content| {
            is_read &= content.read_to_end(&mut bytes).is_ok();
            Ok(())
        });
    visited.is_ok() && is_read && bytes == *image.bytes
}

/// A store at which this happens to the scene before the first object with this in its name is created.
fn before(
    scene: &Scene,
    store: Arc<dyn ObjectStore>,
    text: impl Into<String>,
    hook: impl Fn(&Scene) + Send + Sync + 'static,
) -> Arc<Between> {
    let (scene, hook) = (Arc::new(scene.same()), Arc::new(hook));
    let between = Between::new(store, move || {
        let (scene, hook) = (scene.clone(), hook.clone());
        async move { tokio::task::spawn_blocking(move || hook(&scene)).await.unwrap() }
    });
    between.happens_before_any_named(text);
    between
}

fn data_containers(scene: &Scene) -> BTreeSet<String> {
    scene
        .runtime
        .handle()
        .block_on(scene.memory.paths())
        .into_iter()
        .filter(|path| path.starts_with(names::DATA))
        .collect()
}

/// The store takes its time with containers. All of them are there when the first places are told.
#[test]
fn places_are_told_when_their_containers_are_there() {
    for is_broken in [false, true] {
        let scene = Scene::new();
        let (slow, faults) = FaultStore::new(scene.memory.store());
        // Without the rule, they can come afterwards, however slow this machine is.
        let late = if is_broken { Fault::Until("/done/place/", 1) } else { Fault::Delay(Duration::from_millis(100)) };
        faults.add(When::kind(OpKind::Put).path(names::DATA), late, Times::Always);
        let told = Arc::new(Mutex::new(BTreeSet::new()));
        let at = told.clone();
        let store = before(&scene, slow, "/done/place/", move |scene| *at.lock() = data_containers(scene));
        let images = twins();
        let broken = [Rule::PlacedWhenDurable];
        batch_without(&scene, store.clone(), &images, if is_broken { &broken } else { &[] });
        assert!(store.has_happened() && images.iter().all(|image| restores(&scene, image)));
        let all = data_containers(&scene);
        assert!(!all.is_empty());
        assert_eq!(*told.lock() != all, is_broken, "places in containers that nobody has");
    }
}

/// The containers are gone before those who wait for their chunks hear of them: these store them themselves.
#[test]
fn a_place_that_nothing_confirms_is_not_used() {
    for is_broken in [false, true] {
        let scene = Scene::new();
        let store = before(&scene, scene.memory.store(), "/done/resolve/", |scene| {
            let (store, gone) = (scene.memory.store(), data_containers(scene));
            scene.runtime.handle().block_on(async {
                for path in gone {
                    store.delete(&path.into()).await.unwrap();
                }
            });
        });
        let images = twins();
        let broken = [Rule::PlaceConfirmed];
        let report = batch_without(&scene, store.clone(), &images, if is_broken { &broken } else { &[] });
        assert!(store.has_happened() && report.images[1].result.is_ok());
        assert_eq!(restores(&scene, &images[1]), !is_broken);
    }
}

/// A guest writes to the disk of the image that owns all chunks, between its scan and its second read. Nothing of it is stored, it
/// is named, and the image that waits for it stores the chunks.
#[test]
fn bytes_that_changed_since_the_scan_are_not_stored() {
    for is_broken in [false, true] {
        let scene = Scene::new();
        let mut images = twins();
        images[0].spoiled = Some((images[0].bytes.len() as u64, false));
        let broken = [Rule::SecondReadChecked];
        let report = batch_without(&scene, scene.memory.store(), &images, if is_broken { &broken } else { &[] });
        assert!(report.images[1].result.is_ok() && restores(&scene, &images[1]));
        match &report.images[0].result {
            Ok(_) => assert!(is_broken && !restores(&scene, &images[0]), "named as saved"),
            Err(failure) => {
                assert!(!is_broken && failure.stage == Stage::Store, "{failure:?}");
                assert!(matches!(failure.error, Some(FleetError::Changed { .. })), "{failure:?}");
                let (distinct, count) = chunks(&scene);
                assert_eq!(distinct, count, "only the other image stored");
            }
        }
    }
}

/// The job of the first host looks dead when the second one begins, and is fenced. The version that used its containers is
/// forgotten, and a pass collects them just before the second host commits.
#[test]
fn chunks_of_a_job_that_the_lease_does_not_adopt_are_not_used() {
    for is_broken in [false, true] {
        let scene = Scene::new();
        let mut images = twins();
        images[1].round = 1;
        let fenced = before(&scene, scene.memory.store(), "/out/scan/0/1/", |scene| {
            let context = scene.context();
            let repository = &context.repository;
            let batch = batches(repository, &context.executor).unwrap()[0];
            let job = read_plan(&context, batch).unwrap().unwrap().hosts[0].store;
            let series = repository.keys().series_key(STORE_SERIES);
            let version = OwnedVersion { domain: repository.keys().domain(), version: Pin { series, job } };
            context.executor.block_on(repository.fence(version, 0)).unwrap();
        });
        let series = scene.context().repository.keys().series_key("vm/b");
        let store = before(&scene, fenced.clone(), format!("{}{series}/", names::VERSIONS), |scene| {
            for version in scene.versions() {
                scene.forget(version.id());
            }
            // No lease of the batch looks dead to it.
            let dead_after = Duration::from_secs(1 << 30);
            let options = PassOptions { dead_after, listing: pass::Listing::Whole, ..pass_options() };
            scene.pass_with(&options).unwrap();
        });
        let broken = [Rule::StoreAdopted];
        let report = batch_without(&scene, store.clone(), &images, if is_broken { &broken } else { &[] });
        assert!(fenced.has_happened() && store.has_happened() && report.images[1].result.is_ok(), "{report:?}");
        assert_eq!(restores(&scene, &images[1]), !is_broken);
    }
}

//! The promises of fleet batches: each image becomes an ordinary version; what images share, among each other and with other
//! series, is stored once; an image that fails leaves the others; and nothing that happens meanwhile costs any version a byte.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use larder_fleet::{
    BatchReport, FleetError, FleetImage, FleetOptions, OpenedImage, Sources, StageId, batches, clean, run, status,
};
use larder_format::compress::Compression;
use larder_format::fleet::Stage;
use larder_format::ids::{ContainerKind, JobId};
use larder_format::names;
use larder_gnode::pass::{self, PassOptions};
use larder_job::JobContext;
use larder_source::image::{Changes, Image};
use larder_testkit::{OpKind, data};

/// An image in memory. From its `spoiled_from`th read byte on, it fails or has other bytes.
struct Disk {
    bytes: Arc<Vec<u8>>,
    read: AtomicU64,
    spoiled_from: u64,
    fails: bool,
}

impl Image for Disk {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let before = self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        buffer.copy_from_slice(&self.bytes[offset as usize..offset as usize + buffer.len()]);
        match before >= self.spoiled_from {
            true if self.fails => Err(io::Error::other("the disk is gone")),
            true => {
                buffer.iter_mut().for_each(|byte| *byte ^= 1);
                Ok(())
            }
            false => Ok(()),
        }
    }
}

/// One image of a batch.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) name: &'static str,
    pub(crate) host: &'static str,
    pub(crate) bytes: Arc<Vec<u8>>,
    /// After this number of bytes, reads are wrong, or fail.
    pub(crate) spoiled: Option<(u64, bool)>,
    pub(crate) changes: Vec<Changes>,
    pub(crate) round: u32,
}

pub(crate) fn given(name: &'static str, host: &'static str, bytes: Vec<u8>) -> Given {
    Given { name, host, bytes: Arc::new(bytes), spoiled: None, changes: Vec::new(), round: 0 }
}

pub(crate) struct Disks<'a>(pub(crate) &'a [Given]);

impl Sources for Disks<'_> {
    fn open(&mut self, number: usize, _job: JobId) -> Result<OpenedImage, String> {
        let Given { bytes, spoiled, changes, name, .. } = &self.0[number];
        if bytes.is_empty() {
            return Err("there is no such disk".to_owned());
        }
        let (spoiled_from, fails) = spoiled.unwrap_or((u64::MAX, false));
        let image = Disk { bytes: bytes.clone(), read: AtomicU64::new(0), spoiled_from, fails };
        Ok(OpenedImage {
            image: Box::new(image),
            path: name.as_bytes().to_vec(),
            shown: format!("/{name}").into_bytes(),
            extents: None,
            changes: changes.clone(),
            no_map: None,
            ending: None,
        })
    }

    fn remark(&mut self, _number: usize, remark: &str) {
        panic!("{remark}");
    }
}

pub(crate) fn batch_with(
    context: &JobContext,
    scene: &Scene,
    images: &[Given],
    partitions: u32,
) -> Result<BatchReport, FleetError> {
    batch_within(context, scene, images, partitions, 4 << 20)
}

pub(crate) fn batch_within(
    context: &JobContext,
    scene: &Scene,
    images: &[Given],
    partitions: u32,
    memory: usize,
) -> Result<BatchReport, FleetError> {
    run(context, &fleet_images(images), &mut Disks(images), &options(scene, partitions, memory))
}

/// As an inventory names them. Those of host `any` are shared.
pub(crate) fn fleet_images(images: &[Given]) -> Vec<FleetImage> {
    let image = |image: &Given| FleetImage {
        round: image.round,
        name: image.name.to_owned(),
        host: image.host.to_owned(),
        is_any: image.host == "any",
        series: format!("vm/{}", image.name),
        source: "memory".to_owned(),
    };
    images.iter().map(image).collect()
}

pub(crate) fn options(scene: &Scene, partitions: u32, memory: usize) -> FleetOptions {
    FleetOptions {
        memory,
        write: larder_writer::WriteBudget::default(),
        read: larder_lnode::ReadBudget::default(),
        before_stage: None,
        scratch: scene.dir.path().to_owned(),
        compression: Compression::DEFAULT,
        user: "user".to_owned(),
        tags: Vec::new(),
        time_ms: None,
        program: "test".to_owned(),
        verify_every: None,
        force: false,
        partitions: NonZeroU32::new(partitions),
    }
}

/// A stage of the first round, before anybody waited.
fn stage(stage: Stage) -> StageId {
    StageId { round: 0, stage, waited: 0 }
}

fn batch(scene: &Scene, images: &[Given]) -> BatchReport {
    let report = batch_with(&scene.context(), scene, images, 3).unwrap();
    assert!(report.ended_by.is_none(), "{:?}", report.ended_by);
    report
}

/// The bytes of the newest version of each image's series.
pub(crate) fn newest(scene: &Scene) -> BTreeMap<String, Vec<u8>> {
    let context = scene.context();
    let mut found = BTreeMap::new();
    let mut all = versions(&context);
    all.sort_by_key(|version| version.id());
    for version in all.iter().filter(|version| version.summary.series.starts_with("vm/")) {
        let bytes = contents_of(&context, version).into_values().next().unwrap();
        found.insert(version.summary.series["vm/".len()..].to_owned(), bytes);
    }
    found
}

pub(crate) fn is_saved(scene: &Scene, images: &[Given]) {
    let newest = newest(scene);
    for image in images {
        assert!(newest.get(image.name).is_some_and(|bytes| *bytes == *image.bytes), "{}", image.name);
    }
}

/// Nothing is left but what versions need. Passes remove what batches left only when they list everything.
pub(crate) fn is_clean(scene: &Scene, at: &str) {
    clean(&scene.repository(scene.memory.store()), &scene.runtime.handle().clone().into()).unwrap();
    scene.is_clean(at);
}

/// Fingerprints in all data containers, and how many chunks there are.
pub(crate) fn chunks(scene: &Scene) -> (usize, usize) {
    let repository = scene.repository(scene.memory.store());
    let (mut distinct, mut count) = (BTreeSet::new(), 0);
    scene.runtime.handle().block_on(async {
        for object in repository.store().list(names::DATA).await.unwrap() {
            let id = names::parse_container(&object.name).unwrap();
            assert_eq!(id.kind, ContainerKind::Data);
            for chunk in repository.read_container_index(id).await.unwrap().chunk_refs() {
                distinct.insert(chunk.fingerprint.0);
                count += 1;
            }
        }
    });
    (distinct.len(), count)
}

/// Some of it in all of them, some in two, some twice in one, some of its own.
pub(crate) fn three() -> Vec<Given> {
    let common = data::random(1, 300_000);
    let of_two = data::random(2, 200_000);
    let image = |own: u64, parts: &[&[u8]]| [&data::random(own, 150_000)[..], &parts.concat()].concat();
    vec![
        given("a", "one", image(10, &[&common, &of_two, &of_two])),
        given("b", "two", image(11, &[&common])),
        given("c", "one", image(12, &[&of_two, &vec![0; 400_000], &common])),
    ]
}

#[test]
fn images_become_ordinary_versions_and_share_what_they_have_in_common() {
    let scene = Scene::new();
    let images = three();
    let report = batch(&scene, &images);
    assert_eq!(report.images.iter().filter(|image| image.result.is_ok()).count(), 3);
    is_saved(&scene, &images);
    let (distinct, count) = chunks(&scene);
    assert_eq!(distinct, count, "every chunk is stored once");
    // A plain backup of the same series builds on it, and stores nothing.
    let context = scene.context();
    let last = versions(&context);
    assert!(last.iter().all(|version| version.summary.statistics.files_new == 1));
    let repository = scene.repository(scene.memory.store());
    let executor = scene.runtime.handle().clone().into();
    assert_eq!(batches(&repository, &executor).unwrap(), [report.batch]);
    let said = status(&repository, &executor, report.batch).unwrap().unwrap();
    assert_eq!(said.stages[&stage(Stage::Finish)].done, 3);
    // A pass that lists everything removes what the batch left; so does `clean`.
    let fork = scene.fork();
    fork.pass().unwrap();
    fork.is_clean("after a pass");
    assert_eq!(clean(&repository, &executor).unwrap().batches, 1);
    assert!(batches(&repository, &executor).unwrap().is_empty());
    is_saved(&scene, &images);
}

/// Bytes of all metadata containers.
fn recipe_bytes(scene: &Scene) -> u64 {
    let repository = scene.repository(scene.memory.store());
    let listed = scene.runtime.handle().block_on(repository.store().list(names::META)).unwrap();
    listed.iter().map(|object| object.size).sum()
}

/// A segment of a recipe that several images of a host have is stored once, in a first batch too. It stays when the version
/// goes that was the first to have it.
#[test]
fn images_of_a_host_share_segments_of_recipes() {
    let common = data::random(1, 12_000_000);
    let day = |day: u64| {
        let mut common = common.clone();
        for place in (500_000..common.len()).step_by(1_000_000) {
            common[place..place + 4096].copy_from_slice(&data::random(100 * day + place as u64, 4096));
        }
        let image = |own: u64| [&common[..], &data::random(own, 300_000)].concat();
        vec![given("a", "one", image(10)), given("b", "one", image(11)), given("c", "one", image(12))]
    };
    let first_recipes = |count: usize| {
        let scene = Scene::new();
        let mut bytes = 0;
        for number in 0..2 {
            let images = &day(number)[..count];
            batch(&scene, images);
            is_saved(&scene, images);
            if number == 0 {
                bytes = recipe_bytes(&scene);
            }
        }
        let of_first = scene.versions().into_iter().filter(|version| version.summary.series == "vm/a");
        of_first.for_each(|version| scene.forget(version.id()));
        scene.pass().unwrap();
        is_saved(&scene, &day(1)[1..count]);
        is_clean(&scene, "after forgetting the first image");
        bytes
    };
    // Each has its own last segment and its own manifest.
    let (alone, all) = (first_recipes(1), first_recipes(3));
    assert!(all < alone * 2, "{all} bytes for three, {alone} for one");
}

/// The oracle: a set of fingerprints. Whatever the partitions, the memory for sorting (a few hundred records, or all of them) and
/// the duplicates are, each distinct chunk is stored once.
#[test]
fn a_batch_stores_what_exact_deduplication_stores() {
    for seed in 0..4 {
        let mut draw = data::random(900 + seed, 64).into_iter();
        let mut next = |below: u8| u64::from(draw.next().unwrap() % below);
        let names = ["a", "b", "c", "d", "e"];
        let images: Vec<_> = names[..2 + next(4) as usize]
            .iter()
            .map(|name| {
                // Parts come from a small stock, so they return within and across images.
                let part = |next: &mut dyn FnMut(u8) -> u64| data::random(next(4), 40_000 + 20_000 * next(5) as usize);
                let parts: Vec<_> = (0..=next(5)).map(|_| part(&mut next)).collect();
                given(name, if next(2) == 0 { "one" } else { "two" }, parts.concat())
            })
            .collect();
        let (mut counts, origin) = (BTreeSet::new(), Scene::new());
        for (partitions, memory) in [(1, 1), (1, 4 << 20), (2, 1), (7, 1)] {
            let scene = origin.fork();
            let report = batch_within(&scene.context(), &scene, &images, partitions, memory).unwrap();
            assert!(report.ended_by.is_none());
            is_saved(&scene, &images);
            let (distinct, count) = chunks(&scene);
            assert_eq!(distinct, count, "seed {seed}, {partitions} partitions, {memory} bytes");
            counts.insert(count);
        }
        assert_eq!(counts.len(), 1, "seed {seed}");
    }
}

/// The index knows them, and their version stays because the new one's lease names it.
#[test]
fn chunks_of_other_series_and_of_the_last_batch_are_not_stored_again() {
    let scene = Scene::new();
    scene.version("a", 0);
    scene.pass().unwrap();
    let before = chunks(&scene);
    let files: Vec<u8> = scene.contents().into_values().next().unwrap().into_values().max_by_key(Vec::len).unwrap();
    // Cut alike from its first byte on.
    let images = [given("x", "one", [&files[..], &data::random(5, 100_000)].concat())];
    batch(&scene, &images);
    is_saved(&scene, &images);
    let after = chunks(&scene);
    assert_eq!(after.0 - before.0, after.1 - before.1, "only what is new was stored");
    let new_bytes = versions(&scene.context())
        .iter()
        .find(|version| version.summary.series == "vm/x")
        .unwrap()
        .summary
        .statistics
        .added_bytes;
    assert!(new_bytes < 130_000, "{new_bytes}");
    // Its containers are those of another series, which is forgotten.
    scene.pass().unwrap();
    let other = versions(&scene.context()).iter().find(|version| version.summary.series == "a").unwrap().id();
    scene.forget(other);
    scene.pass().unwrap();
    is_saved(&scene, &images);
    // The next batch finds everything.
    let again = [images[0].clone(), given("y", "two", images[0].bytes.to_vec())];
    let stored = chunks(&scene);
    batch(&scene, &again);
    is_saved(&scene, &again);
    assert_eq!(chunks(&scene), stored, "nothing was new");
}

#[test]
fn without_changes_nothing_is_read_twice_and_with_a_map_nothing_that_it_leaves_out() {
    let scene = Scene::new();
    let mut bytes = data::random(3, 4 << 20);
    let first = batch(&scene, &[given("a", "one", bytes.clone())]);
    let id = first.images[0].result.as_ref().unwrap().id;
    bytes[1_000_000..1_001_000].copy_from_slice(&data::random(4, 1000));
    let mut image = given("a", "one", bytes);
    image.changes =
        vec![Changes { since: id, size: image.bytes.len() as u64, ranges: vec![0..0, 1_000_000..1_001_000] }];
    let second = batch(&scene, std::slice::from_ref(&image));
    is_saved(&scene, std::slice::from_ref(&image));
    let version = second.images[0].result.as_ref().unwrap();
    assert_eq!(version.base, Some(id));
    let map = second.images[0].map.as_ref().unwrap();
    let read = version.statistics.read_bytes - map.checked_bytes;
    assert!((1000..200_000).contains(&read), "{read}");
    assert!(second.images[0].reread_bytes < 60_000, "{}", second.images[0].reread_bytes);
    // Without a map, all is read, and unchanged segments are recognised.
    image.changes.clear();
    let third = batch(&scene, std::slice::from_ref(&image));
    let version = third.images[0].result.as_ref().unwrap();
    assert_eq!((version.statistics.new_chunks, third.images[0].reread_bytes), (0, 0));
    assert_eq!(version.statistics.read_bytes, 4 << 20);
    is_saved(&scene, std::slice::from_ref(&image));
}

#[test]
fn an_image_that_fails_leaves_the_others_and_is_named() {
    let scene = Scene::new();
    let mut images = three();
    images.push(given("gone", "two", Vec::new()));
    let mut cut = given("cut", "two", data::random(20, 300_000));
    cut.spoiled = Some((0, true));
    images.push(cut);
    let report = batch(&scene, &images);
    is_saved(&scene, &images[..3]);
    let failed: Vec<_> = report.images[3..].iter().map(|image| image.result.as_ref().unwrap_err()).collect();
    assert!(failed.iter().all(|failure| failure.stage == Stage::Scan));
    assert!(failed[0].error.as_ref().unwrap().to_string().contains("no such disk"));
    assert_eq!(newest(&scene).len(), 3);
    let repository = scene.repository(scene.memory.store());
    let said = status(&repository, &scene.runtime.handle().clone().into(), report.batch).unwrap().unwrap();
    let aborted: Vec<_> = said.stages[&stage(Stage::Scan)].aborted.iter().map(|(task, _)| task.number).collect();
    assert_eq!(aborted, [3, 4]);
    scene.pass().unwrap();
    is_clean(&scene, "after a batch with failures");
}

/// It is interrupted before its first version: the next one adopts what it stored.
#[test]
fn a_batch_that_ended_early_is_not_stored_again() {
    let scene = Scene::new();
    let images = three();
    let context = scene.context();
    let cancel = context.cancel.clone();
    let between = Between::new(scene.memory.store(), move || {
        cancel.cancel();
        async {}
    });
    between.happens_before_any_below(names::VERSIONS.trim_end_matches('/'));
    let context = JobContext { repository: scene.repository(between), ..context };
    let report = batch_with(&context, &scene, &images, 1).unwrap();
    assert!(report.ended_by.is_some() && report.images.iter().filter(|image| image.result.is_ok()).count() <= 1);
    let stored = chunks(&scene);
    let report = batch(&scene, &images);
    assert!(report.images.iter().all(|image| image.result.is_ok()));
    is_saved(&scene, &images);
    assert_eq!(chunks(&scene), stored, "nothing was stored again");
    scene.pass().unwrap();
    is_saved(&scene, &images);
}

/// The first image of each chunk stores it. If it is lost after the election, one of those that wait does.
#[test]
fn chunks_of_an_owner_that_fails_are_stored_by_those_that_wait() {
    for fails in [true, false] {
        let scene = Scene::new();
        let shared = data::random(1, 500_000);
        let image = |own: u64| [&shared[..], &data::random(own, 50_000)].concat();
        let mut images: Vec<_> = ["a", "b", "c", "d"]
            .iter()
            .zip(10..)
            .map(|(name, own)| given(name, if own < 12 { "one" } else { "two" }, image(own)))
            .collect();
        // All of it is read once.
        images[0].spoiled = Some((images[0].bytes.len() as u64, fails));
        // And the one that is promoted fails too.
        images[1].spoiled = Some((images[1].bytes.len() as u64 + 50_000, fails));
        let report = batch(&scene, &images);
        let states: Vec<_> =
            report.images.iter().map(|image| image.result.as_ref().map_err(|failure| failure.stage).err()).collect();
        assert_eq!(states, [Some(Stage::Store), Some(Stage::Store), None, None], "{fails}");
        is_saved(&scene, &images[2..]);
        scene.pass().unwrap();
        is_saved(&scene, &images[2..]);
        is_clean(&scene, "after a batch with a lost owner");
    }
}

/// I2 and `OwnersNamed`: a batch shares containers with a series that is forgotten and collected at any moment of it.
#[test]
fn what_a_batch_shares_may_go_at_any_moment_of_it() {
    let scene = Scene::new();
    scene.version("a", 0);
    scene.pass().unwrap();
    let files: Vec<u8> = scene.contents().into_values().next().unwrap().into_values().max_by_key(Vec::len).unwrap();
    let images = [
        given("x", "one", [&files[..], &data::random(5, 20_000)].concat()),
        given("y", "two", [&files[..], &data::random(5, 20_000), &data::random(6, 20_000)].concat()),
    ];
    let saved = std::cell::Cell::new(0);
    at_every_operation(
        &scene,
        |scene| {
            let repository = scene.repository(scene.memory.store());
            let options = PassOptions { dead_after: Duration::from_secs(1 << 30), ..pass_options() };
            scene.runtime.handle().block_on(async {
                for version in repository.catalog().await.unwrap().versions {
                    if version.summary.series == "a" {
                        forget(&repository, version.id()).await;
                    }
                }
                pass::run(&scene.context_of(repository), &options).await.unwrap();
            });
        },
        |scene, store| batch_with(&scene.context_at(store), scene, &images, 1),
        |scene, result, at| {
            let report = result.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(report.ended_by.is_none(), "{at}: {:?}", report.ended_by);
            assert!(report.images.iter().all(|image| image.result.is_ok()), "{at}: {:?}", report.images);
            is_saved(scene, &images);
            scene.pass().unwrap();
            is_saved(scene, &images);
            is_clean(scene, at);
            saved.set(saved.get() + 1);
        },
    );
    assert!(saved.get() > 30, "{}", saved.get());
}

/// A pass takes all jobs of a batch for dead. Images may lose their versions, and nothing else is lost.
#[test]
fn a_batch_that_is_fenced_saves_images_whole_or_not() {
    let scene = Scene::new();
    scene.version("a", 0);
    let mut images = three();
    // It shares chunks with what an earlier round stored.
    images[1].round = 1;
    let lost = std::cell::Cell::new(0);
    at_every_operation(
        &scene,
        |scene| {
            let options = PassOptions { dead_after: Duration::ZERO, ..pass_options() };
            let context = scene.context();
            scene.runtime.handle().block_on(async { pass::run(&context, &options).await.unwrap() });
        },
        |scene, store| batch_with(&scene.context_at(store), scene, &images, 1),
        |scene, result, at| {
            if let Ok(report) = result {
                let newest = newest(scene);
                for (image, said) in images.iter().zip(&report.images) {
                    match &said.result {
                        Ok(_) => assert!(newest.get(image.name) == Some(&image.bytes), "{at}: {}", image.name),
                        Err(_) => lost.set(lost.get() + 1),
                    }
                }
            }
            assert!(!scene.contents().is_empty(), "{at}");
            scene.pass().unwrap();
            newest(scene);
        },
    );
    assert!(lost.get() > 0);
}

/// Known data comes from all over a repository, in another order.
#[test]
fn the_table_of_a_container_is_read_once_for_an_image() {
    const PIECE: usize = 64 << 10;
    const PIECES: usize = 64;
    let scene = Scene::new();
    let small = scene.repository(scene.memory.store()).with_container_payload(4 * PIECE);
    let known = data::random(1, PIECES * PIECE);
    let order = (0..PIECES).map(|place| place * 21 % PIECES);
    let mixed: Vec<u8> = order.flat_map(|piece| known[piece * PIECE..(piece + 1) * PIECE].to_vec()).collect();
    batch_with(&scene.context_of(small), &scene, &[given("a", "one", known)], 1).unwrap();
    scene.pass().unwrap();
    let images = [given("b", "one", mixed)];
    let (context, faults) = scene.faulty(&scene.memory);
    batch_with(&context, &scene, &images, 1).unwrap();
    let mut reads: BTreeMap<String, usize> = BTreeMap::new();
    for read in faults.log().into_iter().filter(|op| op.kind == OpKind::Get && op.path.starts_with(names::DATA)) {
        *reads.entry(read.path).or_default() += 1;
    }
    assert!(reads.len() > 12 && reads.values().all(|count| *count == 1), "{reads:?}");
    is_saved(&scene, &images);
}

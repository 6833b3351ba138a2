//! The promise: at any offset, from several threads, in both layouts and whatever passes did, a file is what a dump of it is. Memory is
//! bounded, one fetch serves all that need it, and nothing waits for the fetch of another.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails here")]

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::reading_moved::{Change, edit, optimize};
use crate::support::*;
use larder_format::ids::ContainerKind;
use larder_format::layout::Layout;
use larder_format::names;
use larder_format::recipe::SegmentRef;
use larder_format::segment::{ChunkRecord, Segment};
use larder_gnode::defragment::{self, DefragmentOptions, Defragmenter};
use larder_gnode::pass::PassOptions;
use larder_gnode::reclaim::Exact;
use larder_job::{Cancel, JobContext};
use larder_reader::{FetchOptions, RandomError, RandomReader, Reading, VersionReader};
use larder_store::catalog::Version;
use larder_testkit::data::{self, Rng};
use larder_testkit::{Fault, OpKind, Times, When};
use proptest::prelude::*;

/// Opens a file of a version with so much memory and disk for frames.
fn opened(context: &JobContext, version: &Version, path: &[u8], memory: usize, disk: u64) -> RandomReader {
    let options = FetchOptions { cache_memory: Some(memory), cache_disk: disk, ..FetchOptions::default() };
    let reader = VersionReader::open(context, version).unwrap().fetching(options);
    let file = reader.random_file(Some(path)).unwrap();
    RandomReader::open(reader, &file).unwrap()
}

/// Opens it with the announcement that serving it takes.
fn announced(context: &JobContext, version: &Version, disk: u64) -> (RandomReader, Reading) {
    let (reader, reading) = VersionReader::announce(context, version).unwrap();
    let options = FetchOptions { cache_memory: Some(1 << 20), cache_disk: disk, ..FetchOptions::default() };
    let reader = reader.fetching(options);
    let file = reader.random_file(None).unwrap();
    (RandomReader::open(reader, &file).unwrap(), reading)
}

fn read(random: &RandomReader, offset: u64, length: usize) -> Result<Vec<u8>, RandomError> {
    let mut bytes = vec![0xaa; length];
    random.read_at(offset, &mut bytes).map(|()| bytes)
}

/// Random reads of random lengths and one sequential read, from several threads at once.
fn agrees(random: &RandomReader, expected: &[u8], seed: u64, at: &str) {
    assert_eq!(random.size(), expected.len() as u64, "{at}");
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let mut rng = Rng::new(seed ^ thread);
                for _ in 0..25 {
                    let offset = rng.below(expected.len() as u64 + 1);
                    let most = if rng.one_in(4) { 200_000 } else { 9_000 };
                    let length = rng.below((expected.len() as u64 - offset).min(most) + 1);
                    let range = offset as usize..(offset + length) as usize;
                    let bytes = read(random, offset, range.len()).unwrap();
                    assert!(bytes == expected[range.clone()], "{at}: {range:?}");
                }
            });
        }
        scope.spawn(move || {
            for (number, part) in expected.chunks(30_000).enumerate() {
                assert!(read(random, number as u64 * 30_000, part.len()).unwrap() == part, "{at}: part {number}");
            }
        });
    });
    let mut end = 0;
    for stretch in random.stretches(0..u64::MAX, usize::MAX) {
        assert_eq!(stretch.offset, end, "{at}");
        end += stretch.length;
        let bytes = &expected[stretch.offset as usize..end as usize];
        assert!(!stretch.is_hole || bytes.iter().all(|byte| *byte == 0), "{at}: {stretch:?}");
    }
    assert_eq!(end, random.size(), "{at}");
}

/// A run of a file: what it holds, and its length in pages.
type Run = (u8, usize);

/// Random bytes, text, zeros that are stored, and holes, one after the other.
fn write_runs(path: &std::path::Path, runs: &[Run]) {
    let file = std::fs::File::create(path).unwrap();
    let mut at = 0;
    for (kind, pages) in runs {
        let length = pages * 4096;
        let seed = u64::from(*kind) / 4;
        let bytes = match kind % 4 {
            0 => data::random(seed, length),
            1 => data::text(seed, length),
            2 => vec![0; length],
            _ => Vec::new(),
        };
        file.write_all_at(&bytes, at).unwrap();
        at += length as u64;
    }
    file.set_len(at + 1234).unwrap();
}

#[derive(Debug, Clone)]
enum Step {
    /// A version of a series with this content of its two files.
    Version(Vec<Run>),
    Forget(usize),
    Defragment,
    Pass,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let runs = prop::collection::vec((any::<u8>(), 1_usize..40), 1..8);
    let step = prop_oneof![
        4 => runs.prop_map(Step::Version),
        1 => any::<usize>().prop_map(Step::Forget),
        1 => Just(Step::Defragment),
        2 => Just(Step::Pass),
    ];
    prop::collection::vec(step, 3..9)
}

fn take(scene: &Scene, series: &str, layout: Layout, number: usize, step: &Step) {
    let context = scene.context();
    let root = scene.source(series);
    match step {
        Step::Version(runs) => {
            std::fs::create_dir_all(root.join("folder")).unwrap();
            write_runs(&root.join("folder/a"), runs);
            let turned: Vec<Run> = runs.iter().rev().copied().collect();
            write_runs(&root.join("folder/b"), &turned);
            std::fs::write(root.join("number"), number.to_string()).unwrap();
            backup_with(&context, &root, series, |options| {
                options.layout = layout;
                options.force = true;
            })
            .unwrap();
        }
        Step::Forget(which) => {
            let versions = scene.versions();
            if versions.len() > 1 {
                scene.forget(versions[which % versions.len()].id());
            }
        }
        Step::Defragment => {
            let options = DefragmentOptions::default();
            let mut defragmenter = Defragmenter::new(&context, &options);
            for plan in defragment::plans(&context, &options).unwrap().plans {
                defragmenter.compact(&plan).unwrap();
            }
        }
        Step::Pass => {
            let options = PassOptions { arrange: arranging(0.0).arrange, ..thorough(Exact::Always) };
            scene.pass_with(&options).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_offset_of_any_version_is_what_a_dump_has(
        steps in steps(),
        is_lifecycle in any::<bool>(),
        memory in prop_oneof![Just(64 << 10), Just(1 << 20), Just(8 << 20)],
        disk in prop_oneof![Just(0_u64), Just(1 << 20), Just(64 << 20)],
        seed in any::<u64>(),
    ) {
        let scene = Scene::new();
        let layout = if is_lifecycle { Layout::Lifecycle } else { Layout::Standard };
        take(&scene, "s", layout, 99, &Step::Version(vec![(0, 20), (3, 10), (4, 5)]));
        let first = scene.versions().remove(0);
        // It is open, with its places, while everything changes.
        let context = scene.context();
        let (reader, reading) = VersionReader::announce(&context, &first).unwrap();
        let path = contents_of(&context, &first).into_keys().find(|path| path.ends_with(b"/folder/a")).unwrap();
        let before = contents_of(&context, &first)[&path].clone();
        let file = reader.random_file(Some(&path)).unwrap();
        let open = RandomReader::open(reader, &file).unwrap();
        agrees(&open, &before, seed, "at first");
        for (number, step) in steps.iter().enumerate() {
            take(&scene, "s", layout, number, step);
            agrees(&open, &before, seed ^ number as u64, &format!("the first after {number}"));
        }
        drop(open);
        reading.end();
        for version in scene.versions() {
            for (path, expected) in contents_of(&context, &version) {
                if path.ends_with(b"/a") || path.ends_with(b"/b") || path.ends_with(b"number") {
                    let random = opened(&context, &version, &path, memory, disk);
                    agrees(&random, &expected, seed, &String::from_utf8_lossy(&path));
                }
            }
        }
    }
}

/// A version of one stream.
fn image(scene: &Scene, bytes: &[u8]) -> Version {
    let input = larder_lnode::Input::Stream {
        path: b"images/disk".to_vec(),
        reader: Box::new(std::io::Cursor::new(bytes.to_vec())),
        size: None,
    };
    let options = larder_lnode::BackupOptions {
        host: "host".to_owned(),
        user: "user".to_owned(),
        program: "test".to_owned(),
        ..larder_lnode::BackupOptions::new("image")
    };
    larder_lnode::backup(&scene.context(), input, &options).unwrap();
    scene.versions().pop().unwrap()
}

#[test]
fn threads_that_need_one_frame_fetch_it_once() {
    let scene = Scene::new();
    let bytes = data::random(1, 3_000_000);
    let version = image(&scene, &bytes);
    let (context, faults) = scene.faulty(&scene.memory);
    let options = FetchOptions { prefetch: 0, ..FetchOptions::default() };
    let reader = VersionReader::open(&context, &version).unwrap().fetching(options);
    let file = reader.random_file(None).unwrap();
    let random = RandomReader::open(reader, &file).unwrap();
    faults.add(When::kind(OpKind::Get).path("data/"), Fault::Delay(Duration::from_millis(200)), Times::Always);
    let before = faults.log().len();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (random, bytes) = (&random, &bytes);
            scope.spawn(move || {
                let at = thread * 30_000;
                assert!(read(random, at, 100).unwrap() == bytes[at as usize..at as usize + 100]);
            });
        }
    });
    let fetched = faults.log()[before..].iter().filter(|op| op.path.contains("data/")).count();
    assert_eq!(fetched, 2, "the tables and one frame: {:#?}", &faults.log()[before..]);
}

#[test]
fn what_is_at_hand_waits_for_no_fetch() {
    let scene = Scene::new();
    let bytes = data::random(1, 3_000_000);
    let version = image(&scene, &bytes);
    let (context, faults) = scene.faulty(&scene.memory);
    let random = opened(&context, &version, b"images/disk", 8 << 20, 0);
    assert!(read(&random, 0, 4096).unwrap() == bytes[..4096]);
    faults.add(When::kind(OpKind::Get).path("data/"), Fault::Delay(Duration::from_secs(3)), Times::Always);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (random, is_done, bytes) = (&random, &is_done, &bytes);
        let before = faults.count();
        scope.spawn(move || {
            // In one chunk, so that it has nothing to wait for but its fetch.
            assert!(read(random, 2_000_000, 1).unwrap() == bytes[2_000_000..2_000_001]);
            is_done.store(true, Ordering::SeqCst);
        });
        while faults.count() == before {
            std::thread::yield_now();
        }
        for _ in 0..100 {
            assert!(read(random, 100, 4096).unwrap() == bytes[100..4196]);
        }
        assert!(!is_done.load(Ordering::SeqCst), "hits waited for a fetch");
    });
}

/// Frames that exceed the memory go, and the disk keeps them.
#[test]
fn memory_is_bounded_and_the_disk_is_below_it() {
    let scene = Scene::new();
    let bytes = data::random(1, 12_000_000);
    let version = image(&scene, &bytes);
    let requests = |memory: usize, disk: u64| {
        let (context, faults) = scene.faulty(&scene.memory);
        let random = opened(&context, &version, b"images/disk", memory, disk);
        let mut twice = Vec::new();
        for _ in 0..2 {
            let before = faults.count();
            // Far apart, so that nothing is read ahead.
            for at in [0_u64, 8, 2, 10, 4, 6].map(|million| million * 1_000_000) {
                assert!(read(&random, at, 5000).unwrap() == bytes[at as usize..at as usize + 5000]);
            }
            twice.push(faults.count() - before);
        }
        (twice[1], random.cached_on_disk())
    };
    assert_eq!(requests(8 << 20, 0), (0, 0));
    let (again, _) = requests(1 << 20, 0);
    assert!(again >= 4, "{again}: six frames do not fit into two");
    let (again, on_disk) = requests(1 << 20, 64 << 20);
    assert_eq!(again, 0);
    assert!((6 * 500_000..8 << 20).contains(&on_disk), "{on_disk}");
    let (again, on_disk) = requests(1 << 20, 2 << 20);
    assert!(again >= 2 && on_disk <= 2 << 20, "{again} {on_disk}");
}

#[test]
fn streams_are_read_ahead_in_few_requests() {
    let scene = Scene::new();
    let bytes = data::random(1, 24_000_000);
    let version = image(&scene, &bytes);
    let (context, faults) = scene.faulty(&scene.memory);
    let random = opened(&context, &version, b"images/disk", 32 << 20, 0);
    faults.add(When::kind(OpKind::Get).path("data/"), Fault::Delay(Duration::from_millis(5)), Times::Always);
    let before = faults.count();
    for (number, part) in bytes.chunks(65_536).enumerate() {
        assert!(read(&random, number as u64 * 65_536, part.len()).unwrap() == part);
    }
    let requests = faults.count() - before;
    let frames = bytes.len() as u64 / (512 << 10);
    assert!(requests < frames, "{requests} requests for {frames} frames");
}

/// What a version needs stays while it is served, and goes afterwards.
#[test]
fn forgetting_and_passes_do_not_disturb_what_is_served() {
    let scene = Scene::new();
    let bytes = data::random(1, 3_000_000);
    let version = image(&scene, &bytes);
    let context = scene.context();
    let (random, reading) = announced(&context, &version, 0);
    assert!(read(&random, 0, 100).unwrap() == bytes[..100]);
    scene.forget(version.id());
    scene.pass().unwrap();
    scene.pass().unwrap();
    agrees(&random, &bytes, 5, "forgotten while it is served");
    reading.expect_lease().unwrap();
    drop(random);
    reading.end();
    scene.pass().unwrap();
    scene.pass().unwrap();
    let paths = scene.runtime.block_on(scene.memory.paths());
    assert!(!paths.iter().any(|path| path.starts_with("data/")), "{paths:?}");
}

#[test]
fn a_hydrated_file_needs_nothing_of_the_repository() {
    let scene = Scene::new();
    let mut bytes = data::mixed(1, 5_000_000);
    bytes[1_000_000..3_000_000].fill(0);
    let mut version = image(&scene, &bytes);
    // Versions share metadata, so that there is more of it than the caches keep.
    for number in 0..6 {
        let at = number * 800_000;
        bytes[at..at + 50_000].copy_from_slice(&data::random(number as u64, 50_000));
        version = image(&scene, &bytes);
    }
    let context = JobContext { memory: 4 << 10, ..scene.context() };
    let (random, reading) = announced(&context, &version, 64 << 20);
    let mut seen = Vec::new();
    let hydrated = random.hydrate(&Cancel::default(), |done, all| seen.push((done, all))).unwrap();
    assert_eq!(hydrated.bytes, bytes.len() as u64);
    assert_eq!(hydrated.on_disk, random.cached_on_disk());
    assert_eq!(seen.last(), Some(&(bytes.len() as u64, bytes.len() as u64)));
    assert!(seen.is_sorted() && seen.len() > 1);
    reading.end();
    scene.versions().iter().for_each(|version| scene.forget(version.id()));
    scene.pass().unwrap();
    scene.pass().unwrap();
    let paths = scene.runtime.block_on(scene.memory.paths());
    assert!(!paths.iter().any(|path| path.starts_with("data/") || path.starts_with("meta/")), "{paths:?}");
    agrees(&random, &bytes, 5, "from the disk");
}

/// Readers that are open while passes retire their containers, and some that are opened afterwards.
#[test]
fn retired_containers_are_found_through_the_index() {
    let scene = Scene::new();
    let root = scene.source("s");
    let path = [&root.as_os_str().as_encoded_bytes()[1..], b"/file"].concat();
    let mut open = Vec::new();
    for number in 0..9 {
        edit(&root, Change::Pages(6), number);
        backup(&scene.context(), &root, "s").unwrap();
        let version = scene.versions().pop().unwrap();
        // Without a lease, and with all of its places known.
        let random = opened(&scene.context(), &version, &path, 1 << 20, 0);
        let bytes = std::fs::read(root.join("file")).unwrap();
        agrees(&random, &bytes, 1, "at first");
        open.push((random, bytes, version.id()));
        optimize(&scene);
    }
    let (mut redirected, mut later_redirected) = (0, 0);
    for (random, bytes, id) in open {
        agrees(&random, &bytes, 2, "open all the time");
        redirected += random.fetched().redirected;
        let version = scene.versions().into_iter().find(|version| version.id() == id).unwrap();
        let later = opened(&scene.context(), &version, &path, 1 << 20, 0);
        agrees(&later, &bytes, 3, "opened afterwards");
        later_redirected += later.fetched().redirected;
    }
    assert!(redirected > 100 && later_redirected > 100, "{redirected} {later_redirected}");
}

/// Bytes from a wrong place are noticed, wherever a recipe says they are.
#[test]
fn bytes_of_another_place_are_refused() {
    let scene = Scene::new();
    let bytes = data::random(1, 600_000);
    let version = image(&scene, &bytes);
    let mut beside = |_: &mut SegmentRef, segment: &mut Segment| {
        let is_data = |record: &&mut ChunkRecord| record.chunk.container.kind == ContainerKind::Data;
        for record in segment.records.iter_mut().filter(is_data) {
            record.chunk.offset += 1;
        }
    };
    forge_over(&scene.context(), &version, &HashMap::new(), &mut beside, |_| {});
    let (context, forged) = (scene.context(), scene.now(&version));
    assert_eq!(forged.generation, 1);
    let random = opened(&context, &forged, b"images/disk", 1 << 20, 0);
    for at in (0..bytes.len() as u64).step_by(10_000) {
        let error = read(&random, at, 1).unwrap_err();
        assert!(matches!(&error, RandomError::Repository(error) if error.is_damage()), "{error}");
    }
}

#[test]
fn hydration_says_when_the_disk_cache_is_too_small() {
    let scene = Scene::new();
    let bytes = data::random(1, 5_000_000);
    let version = image(&scene, &bytes);
    let context = scene.context();
    let cancelled = Cancel::default();
    cancelled.cancel();
    for disk in [0, 1 << 20] {
        let (random, reading) = announced(&context, &version, disk);
        let error = random.hydrate(&Cancel::default(), |_, _| ()).unwrap_err();
        assert!(matches!(error, RandomError::NotKept { .. }), "{error}");
        // It is served as before.
        agrees(&random, &bytes, 5, "after a failure");
        reading.end();
    }
    let (random, reading) = announced(&context, &version, 64 << 20);
    assert!(matches!(random.hydrate(&cancelled, |_, _| ()), Err(RandomError::Interrupted)));
    agrees(&random, &bytes, 5, "after an interruption");
    reading.end();
}

/// A pass that takes the reader for dead removes its lease.
#[test]
fn a_lost_lease_is_noticed() {
    let scene = Scene::new();
    let version = image(&scene, &data::random(1, 100_000));
    let context = JobContext { renew_every: Duration::from_secs(1), ..scene.context() };
    let (_, reading) = VersionReader::announce(&context, &version).unwrap();
    let renewals = || {
        let paths = scene.runtime.block_on(scene.memory.paths());
        paths.into_iter().filter(|path| path.starts_with("jobs/") && !path.contains(&version.id().to_string()))
    };
    let first = renewals().next().unwrap();
    while renewals().count() < 2 {
        std::thread::sleep(Duration::from_millis(10));
    }
    reading.expect_lease().unwrap();
    scene.runtime.block_on(scene.memory.remove(&first));
    let before = renewals().count();
    while renewals().count() < before + 2 {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(reading.expect_lease().unwrap_err().id, version.id());
}

#[test]
fn errors_name_what_could_be_meant() {
    let scene = Scene::new();
    scene.fill("s", &[("one", 1, 1000), ("two", 2, 0)]);
    let root = scene.source("s");
    std::os::unix::fs::symlink("one", root.join("link")).unwrap();
    std::fs::hard_link(root.join("one"), root.join("same")).unwrap();
    scene.backup(&scene.context(), "s").unwrap();
    let context = scene.context();
    let version = scene.versions().remove(0);
    let reader = VersionReader::open(&context, &version).unwrap();
    let path = |name: &str| [&root.as_os_str().as_encoded_bytes()[1..], name.as_bytes()].concat();
    match reader.random_file(None) {
        Err(RandomError::SeveralFiles { candidates, has_more: false }) => {
            assert_eq!(candidates, [path("/one"), path("/two")]);
        }
        other => panic!("{other:?}"),
    }
    assert!(
        matches!(reader.random_file(Some(&path(""))), Err(RandomError::Folder { candidates, .. }) if candidates.len() == 2)
    );
    assert!(matches!(reader.random_file(Some(&path("/link"))), Err(RandomError::NotAFile { .. })));
    assert!(matches!(reader.random_file(Some(&path("/absent"))), Err(RandomError::NoSuchFile { .. })));
    let same = reader.random_file(Some(&path("/same"))).unwrap();
    let random = RandomReader::open(VersionReader::open(&context, &version).unwrap(), &same).unwrap();
    assert!(read(&random, 0, 1000).unwrap() == data::random(1, 1000));
    assert!(matches!(read(&random, 1, 1000), Err(RandomError::BeyondEnd { .. })));
    assert!(matches!(read(&random, u64::MAX, 1), Err(RandomError::BeyondEnd { .. })));
    read(&random, 1000, 0).unwrap();
    let empty = opened(&context, &version, &path("/two"), 1 << 20, 0);
    assert_eq!((empty.size(), empty.stretches(0..10, 9)), (0, Vec::new()));
}

/// Each problem that was told.
#[derive(Debug, Default)]
struct Problems(parking_lot::Mutex<Vec<String>>);

impl larder_job::Progress for Problems {
    fn problem(&self, problem: &larder_job::Problem) {
        self.0.lock().push(String::from_utf8_lossy(&problem.path).into_owned());
    }
}

/// The parts of a file whose chunks are in a damaged frame cannot be read. All others can.
#[test]
fn damage_costs_the_ranges_that_it_concerns() {
    let scene = Scene::new();
    let bytes = data::random(1, 12_000_000);
    let version = image(&scene, &bytes);
    let context = scene.context();
    let reader = VersionReader::open(&context, &version).unwrap();
    let mut cursor = reader.data_cursor();
    let mut chunks = Vec::new();
    while let Some(record) = cursor.next_record().unwrap() {
        chunks.push(record.chunk);
    }
    let container = chunks[0].container;
    let tables = scene.runtime.block_on(context.repository.read_container_index(container)).unwrap();
    let frame = tables.frames()[3];
    let name = names::container(container);
    let change = |object: &mut Vec<u8>| object[frame.object_offset as usize + 1000] ^= 1;
    assert!(scene.runtime.block_on(scene.memory.change(&name, change)));
    let mut is_damaged = vec![false; bytes.len()];
    let mut at = 0;
    for chunk in &chunks {
        let end = at + chunk.size as usize;
        if chunk.container == container && frame.payload_range().contains(&chunk.offset) {
            is_damaged[at..end].fill(true);
        }
        at = end;
    }
    assert!(is_damaged.iter().filter(|damaged| **damaged).count() > 400_000);
    for disk in [0, 64 << 20] {
        let problems = Arc::new(Problems::default());
        let context = JobContext { progress: problems.clone(), ..scene.context() };
        let random = opened(&context, &version, b"images/disk", 2 << 20, disk);
        for (number, part) in bytes.chunks(10_000).enumerate() {
            let at = number * 10_000;
            let expects_damage = is_damaged[at..at + part.len()].iter().any(|damaged| *damaged);
            match read(&random, at as u64, part.len()) {
                Ok(read) => assert!(!expects_damage && read == part, "{at}"),
                Err(RandomError::Repository(error)) => assert!(expects_damage && error.is_damage(), "{at}: {error}"),
                Err(error) => panic!("{at}: {error}"),
            }
        }
        assert_eq!(*problems.0.lock(), std::slice::from_ref(&name), "it is named once");
        assert!(matches!(
            random.hydrate(&Cancel::default(), |_, _| ()),
            Err(RandomError::Repository(_) | RandomError::NotKept { .. })
        ));
    }
    // The container is gone: its ranges are, and no others.
    scene.runtime.block_on(scene.memory.remove(&name));
    let random = opened(&context, &version, b"images/disk", 2 << 20, 0);
    let mut at = 0;
    for chunk in &chunks {
        let read = read(&random, at, chunk.size as usize);
        assert_eq!(read.is_ok(), chunk.container != container, "{at}");
        at += u64::from(chunk.size);
    }
}

/// Files of one version share segments and frames.
#[test]
fn files_that_share_frames_are_told_apart() {
    let scene = Scene::new();
    scene.fill("s", &[("a", 1, 300_000), ("b", 2, 300_000), ("c", 3, 300_000)]);
    scene.backup(&scene.context(), "s").unwrap();
    let (context, version) = (scene.context(), scene.versions().remove(0));
    let expected: BTreeMap<_, _> = contents_of(&context, &version);
    for (path, bytes) in expected.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        let random = opened(&context, &version, path, 1 << 20, 1 << 20);
        agrees(&random, bytes, 9, "one of three");
        let hydrating = opened(&context, &version, path, 1 << 20, 64 << 20);
        hydrating.hydrate(&Cancel::default(), |_, _| ()).unwrap();
        agrees(&hydrating, bytes, 9, "one of three, hydrated");
    }
}

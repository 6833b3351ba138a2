//! Images with a map of changes: what did not change is not read, and every byte comes back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::Range;
use std::sync::Arc;

use crate::support::*;
use larder_format::Fingerprint;
use larder_format::entry::Extent;
use larder_format::ids::JobId;
use larder_format::keys::Secret;
use larder_format::layout::Layout;
use larder_format::manifest::Manifest;
use larder_format::recipe::decode_node;
use larder_format::witness_key::WitnessKey;
use larder_job::{JobContext, Machine, Progress};
use larder_lnode::{
    BackupOptions, BackupReport, ImageInput, Input, MapOutcome, MapReport, MapTrust, ReadBudget, backup,
};
use larder_source::image::{Changes, Image};
use larder_store::chunk_reader::ChunkReader;
use larder_testkit::{Memory, data};
use parking_lot::Mutex;
use proptest::prelude::*;

/// An image that counts the bytes that are read of it.
#[derive(Clone)]
struct Disk {
    bytes: Arc<Vec<u8>>,
    read: Arc<Mutex<u64>>,
}

impl Disk {
    fn of(bytes: &[u8]) -> Self {
        Self { bytes: Arc::new(bytes.to_vec()), read: Arc::default() }
    }
}

impl Image for Disk {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        *self.read.lock() += buffer.len() as u64;
        buffer.copy_from_slice(&self.bytes[offset as usize..][..buffer.len()]);
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl Progress for Notes {
    fn note(&self, text: &str) {
        self.0.lock().push(text.to_owned());
    }
}

fn scene(runtime: &tokio::runtime::Runtime) -> (JobContext, Arc<Notes>) {
    let store = larder_store::Store::from_object_store(Memory::new().store(), "", &Default::default()).unwrap();
    let notes = Arc::new(Notes::default());
    (JobContext { progress: notes.clone(), ..context(runtime, init(runtime, store)) }, notes)
}

/// Backs an image up. Gives the report, the version's chunks, and the bytes that were read.
fn store(
    context: &JobContext,
    options: &BackupOptions,
    bytes: &[u8],
    changes: Option<Changes>,
) -> (BackupReport, Vec<(u32, Fingerprint)>, u64) {
    store_sparse(context, options, bytes, None, changes, MapTrust::Full)
}

/// The same for an image with holes, and a map that is checked.
fn store_sparse(
    context: &JobContext,
    options: &BackupOptions,
    bytes: &[u8],
    extents: Option<Vec<Extent>>,
    changes: Option<Changes>,
    trust: MapTrust,
) -> (BackupReport, Vec<(u32, Fingerprint)>, u64) {
    let disk = Disk::of(bytes);
    let data = extents.as_ref().map_or(bytes.len() as u64, |runs| runs.iter().map(|run| run.length).sum());
    let input = Input::Image(ImageInput {
        path: b"disk".to_vec(),
        image: Box::new(disk.clone()),
        extents,
        changes: changes.into_iter().collect(),
        trust,
    });
    let report = backup(context, input, options).unwrap();
    let id = report.version.as_ref().unwrap().id;
    let manifest = manifest_of(context, id);
    let (chunks, read) = (chunks_of(context, &manifest), *disk.read.lock());
    let statistics = &report.statistics;
    assert_eq!((statistics.logical_bytes, statistics.stream_bytes), (bytes.len() as u64, data));
    assert_eq!(statistics.chunks, chunks.len() as u64);
    assert!(statistics.read_bytes <= read, "{statistics:?}");
    (report, chunks, read)
}

fn manifest_of(context: &JobContext, id: JobId) -> Manifest {
    let version = versions(context).into_iter().find(|version| version.id() == id).unwrap();
    context.executor.block_on(context.repository.manifest(&version)).unwrap()
}

/// Sizes and names of the chunks of a version's data.
fn chunks_of(context: &JobContext, manifest: &Manifest) -> Vec<(u32, Fingerprint)> {
    let cache = NonZeroUsize::new(64 << 20).unwrap();
    let reader = ChunkReader::new(context.repository.clone(), cache, cache);
    let read = |chunk: &larder_format::ChunkRef| context.executor.block_on(reader.read(chunk)).unwrap();
    let nodes = manifest.data.nodes.iter().flat_map(|node| decode_node(&read(&node.chunk)).unwrap());
    let records = nodes.flat_map(|row| row.decode(&row.chain().map(read).collect::<Vec<_>>()).unwrap().records);
    records.map(|record| (record.chunk.size, record.chunk.fingerprint)).collect()
}

fn restored(context: &JobContext, id: JobId) -> Vec<u8> {
    let version = versions(context).into_iter().find(|version| version.id() == id).unwrap();
    let mut restored = Vec::new();
    larder_reader::VersionReader::open(context, &version)
        .unwrap()
        .visit_contents(b"", |_, content| {
            content.read_to_end(&mut restored).unwrap();
            Ok::<_, larder_store::RepositoryError>(())
        })
        .unwrap();
    restored
}

fn alone(series: &str) -> BackupOptions {
    BackupOptions { find_similar: false, ..options(series) }
}

fn changes_since(report: &BackupReport, ranges: Vec<Range<u64>>) -> Option<Changes> {
    let version = report.version.as_ref().unwrap();
    Some(Changes { since: version.id, size: version.statistics.stream_bytes, ranges })
}

/// A change of an image: where, how many bytes, whether only the map says so, and how far the map says more.
type Change = (prop::sample::Index, usize, bool, usize);

fn changes() -> impl Strategy<Value = (Vec<Change>, bool, i64)> {
    let change = (any::<prop::sample::Index>(), 1..150_000_usize, any::<bool>(), 0..70_000_usize);
    let resized = prop_oneof![Just(0), -2_000_000..2_000_000_i64];
    (prop::collection::vec(change, 0..6), any::<bool>(), resized)
}

/// The changed image, and the map. Aligned as blocks of a volume are, or not at all.
fn changed(
    base: &[u8],
    (changes, aligned, resized): &(Vec<Change>, bool, i64),
    seed: u64,
) -> (Vec<u8>, Vec<Range<u64>>) {
    let mut bytes = base.to_vec();
    let align = if *aligned { 65536 } else { 1 };
    let size = (bytes.len() as i64 + resized).max(0) as usize / align * align;
    let grown = size.saturating_sub(bytes.len());
    bytes.truncate(size);
    let noise = pseudo_random(grown, seed ^ 99);
    bytes.extend_from_slice(&noise);
    let mut map = Vec::new();
    for (number, (place, length, is_same, more)) in changes.iter().enumerate() {
        let from = place.index(size + 1) / align * align;
        let to = (from + length).next_multiple_of(align).min(size);
        if !is_same {
            bytes[from..to].copy_from_slice(&pseudo_random(to - from, seed + number as u64));
        }
        map.push(from.saturating_sub(*more) as u64..(to + more) as u64);
    }
    (bytes, map)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn an_image_with_a_map_is_stored_as_one_read_as_a_whole(
        kilobytes in 0..7000_usize,
        repeats in any::<bool>(),
        rounds in prop::collection::vec(changes(), 1..4),
        is_lifecycle in any::<bool>(),
    ) {
        let runtime = runtime();
        let (context, notes) = scene(&runtime);
        let mut bytes = if repeats { data::mixed(5, kilobytes * 1000) } else { pseudo_random(kilobytes * 1000, 5) };
        let layout = if is_lifecycle { Layout::Lifecycle } else { Layout::Standard };
        let of_series = BackupOptions { layout, ..alone("series") };
        let (mut report, ..) = store(&context, &of_series, &bytes, None);
        for (round, change) in rounds.iter().enumerate() {
            let (next, map) = changed(&bytes, change, round as u64 * 10 + 1);
            let (made, chunks, _) = store(&context, &of_series, &next, changes_since(&report, map));
            prop_assert!(restored(&context, made.version.as_ref().unwrap().id) == next, "round {}", round);
            let (_, expected, _) = store(&context, &alone(&format!("alone {round}")), &next, None);
            // Where contents repeat, cuts may be forced.
            prop_assert!(repeats || chunks == expected, "round {}", round);
            (bytes, report) = (next, made);
        }
        prop_assert!(notes.0.lock().is_empty());
    }
}

/// Goal: only the changed bytes are read, and little around them.
#[test]
fn what_did_not_change_is_not_read() {
    let runtime = runtime();
    let (context, notes) = scene(&runtime);
    let mut bytes = pseudo_random(30_000_000, 1);
    let (first, _, read) = store(&context, &alone("series"), &bytes, None);
    assert!(read >= 30_000_000 && first.statistics.read_bytes == 30_000_000);
    let map = vec![1_000_000..1_065_536, 20_000_000..20_065_536];
    for range in &map {
        bytes[range.start as usize..range.end as usize].copy_from_slice(&pseudo_random(65_536, range.start));
    }
    let (second, chunks, read) = store(&context, &alone("series"), &bytes, changes_since(&first, map));
    assert!((131_072..400_000).contains(&read), "{read}");
    let statistics = &second.statistics;
    assert!((131_072..300_000).contains(&statistics.read_bytes), "{statistics:?}");
    assert!(restored(&context, second.version.as_ref().unwrap().id) == bytes);
    // Nothing changed: only the head is read, which chooses the cut.
    let (third, again, read) = store(&context, &alone("series"), &bytes, changes_since(&second, Vec::new()));
    assert!(again == chunks && third.statistics.read_bytes == 0 && third.statistics.new_chunks == 0);
    assert!(read < 80_000, "{read}");
    assert_eq!(notes.0.lock().len(), 0);
    assert!(restored(&context, third.version.unwrap().id) == bytes);
}

/// Goal: contents in which cuts never meet do not make everything behind a change be read.
#[test]
fn cuts_are_forced_where_contents_repeat() {
    let runtime = runtime();
    let (context, _) = scene(&runtime);
    let mut bytes = vec![0; 40_000_000];
    let (first, ..) = store(&context, &alone("series"), &bytes, None);
    bytes[5_000..5_512].fill(1);
    let changed = 5_000..5_512;
    let map = changes_since(&first, vec![changed]);
    let (second, _, read) = store(&context, &alone("series"), &bytes, map);
    assert!(restored(&context, second.version.unwrap().id) == bytes);
    assert!(read < 4_000_000, "{read}");
}

/// Goal: without the version that the map counts from, or without trust in it, everything is read, and a note says why.
#[test]
fn a_map_without_its_version_is_not_used() {
    let runtime = runtime();
    let (context, notes) = scene(&runtime);
    let bytes = pseudo_random(2_000_000, 1);
    let id = context.repository.config().repository;
    let other = WitnessKey::new(&Secret([66; 32]), id);
    let other = JobContext { machine: Machine::with_witness(other), ..context.clone() };
    let expect = |context: &JobContext, changes: Option<Changes>, why: &str| {
        let (report, _, read) = store(context, &alone("series"), &bytes, changes);
        assert!(read >= 2_000_000, "{why}: {read}");
        assert!(report.statistics.read_bytes == 2_000_000);
        let note = notes.0.lock().pop().expect("a note");
        assert!(note.starts_with("the whole image is read, because") && note.contains(why), "{note}");
        report
    };
    let nowhere = Some(Changes { since: JobId::new(1, [1; 10]), size: 2_000_000, ranges: Vec::new() });
    let first = expect(&context, nowhere, "is not there any more");
    let second = expect(&other, changes_since(&first, Vec::new()), "this machine did not make");
    expect(&context, changes_since(&second, Vec::new()), "follow another snapshot");
    let third = store(&context, &alone("series"), &bytes, None).0;
    let mut wrong = changes_since(&third, Vec::new());
    wrong.as_mut().unwrap().size = 1_999_999;
    let fourth = expect(&context, wrong, "another size");
    assert!(restored(&context, fourth.version.unwrap().id) == bytes);
}

/// An image that cannot be read makes no version.
#[test]
fn an_image_that_fails_makes_no_version() {
    struct Broken;
    impl Image for Broken {
        fn size(&self) -> u64 {
            3_000_000
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            buffer.fill(7);
            if offset > 2_000_000 { Err(io::Error::other("a broken disk")) } else { Ok(()) }
        }
    }
    let runtime = runtime();
    let (context, _) = scene(&runtime);
    let input = Input::Image(ImageInput {
        path: b"disk".to_vec(),
        image: Box::new(Broken),
        extents: None,
        changes: Vec::new(),
        trust: MapTrust::Full,
    });
    let error = backup(&context, input, &alone("series")).unwrap_err();
    assert!(error.to_string().contains("a broken disk"), "{error}");
    assert!(versions(&context).is_empty());
}

/// A block of the sparse disks.
const BLOCK: usize = 50_000;

/// A disk of blocks: `None` is a hole, and a number the content. Also its runs of data.
fn sparse(blocks: &[Option<u64>]) -> (Vec<u8>, Option<Vec<Extent>>) {
    let (mut bytes, mut runs) = (Vec::new(), Vec::<Extent>::new());
    for (number, block) in blocks.iter().enumerate() {
        let offset = (number * BLOCK) as u64;
        match block {
            None => bytes.resize(bytes.len() + BLOCK, 0),
            Some(seed) => {
                bytes.extend_from_slice(&pseudo_random(BLOCK, *seed));
                match runs.last_mut() {
                    Some(last) if last.offset + last.length == offset => last.length += BLOCK as u64,
                    _ => runs.push(Extent { offset, length: BLOCK as u64 }),
                }
            }
        }
    }
    (bytes, Some(runs))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Holes that come and go, and data that changes: with a right map, all comes back, and the chunks are those of an
    /// image that is read as a whole. The map is checked as a whole, and found right.
    #[test]
    fn a_sparse_image_with_a_map_is_stored_as_one_read_as_a_whole(
        first in prop::collection::vec(prop::option::weighted(0.7, 0..40_u64), 30..90),
        rounds in prop::collection::vec(
            prop::collection::vec((any::<prop::sample::Index>(), prop::option::weighted(0.6, 100..140_u64)), 0..8),
            1..4,
        ),
    ) {
        let runtime = runtime();
        let (context, notes) = scene(&runtime);
        let checked = MapTrust::Checked(NonZeroU32::new(1));
        let mut blocks = first;
        let (bytes, extents) = sparse(&blocks);
        let (mut report, ..) = store_sparse(&context, &alone("series"), &bytes, extents, None, checked);
        for (round, changes) in rounds.iter().enumerate() {
            let mut map = Vec::new();
            for (place, content) in changes {
                let number = place.index(blocks.len());
                blocks[number] = content.map(|seed| seed + 100 * round as u64);
                map.push((number * BLOCK) as u64..((number + 1) * BLOCK) as u64);
            }
            let (bytes, extents) = sparse(&blocks);
            let since = report.version.as_ref().unwrap();
            let changes = Some(Changes { since: since.id, size: bytes.len() as u64, ranges: map });
            let (made, chunks, _) =
                store_sparse(&context, &alone("series"), &bytes, extents.clone(), changes, checked);
            prop_assert_eq!(&made.map.as_ref().unwrap().outcome, &MapOutcome::Used);
            prop_assert!(restored(&context, made.version.as_ref().unwrap().id) == bytes, "round {}", round);
            let alone = alone(&format!("alone {round}"));
            let (_, expected, _) = store_sparse(&context, &alone, &bytes, extents, None, checked);
            prop_assert_eq!(chunks, expected, "round {}", round);
            report = made;
        }
        prop_assert!(notes.0.lock().is_empty());
    }
}

/// Goal: a map that leaves out one change of one byte, anywhere, is found by a full check. The version is right in any
/// case: a change right beside the map is read anyway, and not found.
#[test]
fn a_wrong_map_costs_a_whole_read_and_is_reported() {
    let runtime = runtime();
    let (context, notes) = scene(&runtime);
    let every_time = MapTrust::Checked(NonZeroU32::new(1));
    let size = 20_000_000;
    let mut bytes = pseudo_random(size, 1);
    let mut report = store(&context, &alone("series"), &bytes, None).0;
    for (place, is_beside) in [(0, false), (size - 1, false), (7_654_321, false), (9_000_100, true), (8_999_999, true)]
    {
        bytes[place] ^= 1;
        // Segments around what the map names have no proof of their own afterwards.
        bytes[9_000_000..9_000_100].copy_from_slice(&pseudo_random(100, place as u64));
        let map = changes_since(&report, std::iter::once(9_000_000..9_000_100).collect());
        // A window that few segments fit into, and none.
        let read = if place % 2 == 0 { ReadBudget::default() } else { ReadBudget { block: 1, window: Some(1 << 20) } };
        let options = BackupOptions { read, ..alone("series") };
        let (made, _, read) = store_sparse(&context, &options, &bytes, None, map, every_time);
        let MapReport { outcome, checked_bytes } = made.map.clone().unwrap();
        assert!(checked_bytes > 0 && made.statistics.read_bytes >= size as u64);
        assert!(restored(&context, made.version.as_ref().unwrap().id) == bytes, "{place}");
        if !is_beside {
            let MapOutcome::Wrong { offset } = outcome else { panic!("{place}: {outcome:?}") };
            assert!(offset <= place as u64 && place as u64 - offset < 64 << 10, "{place}: {offset}");
            assert!(read >= size as u64 + checked_bytes);
            let note = notes.0.lock().pop().expect("a note");
            assert_eq!(note, "the whole image is read, because the map of its changes is wrong");
        }
        report = made;
    }
}

/// Goal: samples find a map that leaves out much, whatever random numbers come; and cost little when it is right.
#[test]
fn samples_of_a_large_image_find_a_map_that_is_plainly_wrong() {
    let runtime = runtime();
    let (context, _) = scene(&runtime);
    let size = 200_000_000;
    let mut bytes = pseudo_random(size, 1);
    let first = store(&context, &alone("series"), &bytes, None).0;
    let sampled = MapTrust::Checked(None);
    let (second, _, read) =
        store_sparse(&context, &alone("series"), &bytes, None, changes_since(&first, Vec::new()), sampled);
    let map = second.map.clone().unwrap();
    assert_eq!(map.outcome, MapOutcome::Used);
    assert!((1 << 20..150_000_000).contains(&map.checked_bytes) && read < 150_000_000, "{map:?}");
    // Every segment differs, so any sample finds it.
    for place in (0..size).step_by(1000) {
        bytes[place] ^= 1;
    }
    let (third, ..) =
        store_sparse(&context, &alone("series"), &bytes, None, changes_since(&second, Vec::new()), sampled);
    assert!(matches!(third.map.unwrap().outcome, MapOutcome::Wrong { .. }));
    assert!(restored(&context, third.version.unwrap().id) == bytes);
}

/// Goal: after as many versions that were not compared as a whole, the next one is.
#[test]
fn every_third_version_is_checked_as_a_whole() {
    let runtime = runtime();
    let (context, _) = scene(&runtime);
    let size = 160_000_000;
    let bytes = pseudo_random(size, 1);
    let mut report = store(&context, &alone("series"), &bytes, None).0;
    // No segment fits into the window. So each is compared in parts, and all of it.
    let options = BackupOptions { read: ReadBudget { window: Some(700_000), ..ReadBudget::SMALL }, ..alone("series") };
    let mut full = Vec::new();
    for _ in 0..7 {
        let every_third = MapTrust::Checked(NonZeroU32::new(3));
        let map = changes_since(&report, Vec::new());
        report = store_sparse(&context, &options, &bytes, None, map, every_third).0;
        full.push(report.map.as_ref().unwrap().checked_bytes == size as u64);
    }
    assert_eq!(full, [false, false, true, false, false, true, false]);
}

/// Goal: of several maps, the one that follows the base is used.
#[test]
fn the_map_of_the_base_is_used() {
    let runtime = runtime();
    let (context, notes) = scene(&runtime);
    let mut bytes = pseudo_random(5_000_000, 1);
    let first = store(&context, &alone("series"), &bytes, None).0;
    bytes[100] ^= 1;
    let second = store(&context, &alone("series"), &bytes, None).0;
    bytes[4_000_000] ^= 1;
    let nowhere = Changes { since: JobId::new(1, [1; 10]), size: 5_000_000, ranges: Vec::new() };
    let maps = [
        changes_since(&first, Vec::new()),
        changes_since(&second, std::iter::once(4_000_000..4_000_001).collect()),
        Some(nowhere),
    ];
    let input = Input::Image(ImageInput {
        path: b"disk".to_vec(),
        image: Box::new(Disk::of(&bytes)),
        extents: None,
        changes: maps.into_iter().flatten().collect(),
        trust: MapTrust::Checked(None),
    });
    let third = backup(&context, input, &alone("series")).unwrap();
    assert_eq!(third.map.unwrap().outcome, MapOutcome::Used);
    assert!(restored(&context, third.version.unwrap().id) == bytes && notes.0.lock().is_empty());
}

/// Goal: an image that says in the end that it changed makes no version.
#[test]
fn an_image_that_changed_meanwhile_makes_no_version() {
    struct Changing;
    impl Image for Changing {
        fn size(&self) -> u64 {
            3_000_000
        }
        fn read_at(&self, _: u64, buffer: &mut [u8]) -> io::Result<()> {
            buffer.fill(7);
            Ok(())
        }
        fn finish(&self) -> io::Result<()> {
            Err(io::Error::other("written to meanwhile"))
        }
    }
    let runtime = runtime();
    let (context, _) = scene(&runtime);
    let input = Input::Image(ImageInput {
        path: b"disk".to_vec(),
        image: Box::new(Changing),
        extents: None,
        changes: Vec::new(),
        trust: MapTrust::Full,
    });
    let error = backup(&context, input, &alone("series")).unwrap_err();
    assert!(error.to_string().contains("written to meanwhile"), "{error}");
    assert!(versions(&context).is_empty());
}

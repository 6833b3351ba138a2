//! The filter chain of real stores: what each filter answers, and that no order or subset of them
//! changes what reads back.

use std::collections::HashSet;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::ErrorKind;
use larder_volume::CheckOptions;
use larder_volume::disk::{Disk, Fault};
use larder_volume::{FilterCounts, FilterKind, FilterSet, Options, Store, VolumeError};
use proptest::prelude::*;

use super::scene::{Random, Scene, new_store, options};

const BLOCK: usize = 64 << 10;
const PAGE: usize = 4 << 10;

fn with(filters: &str) -> Options {
    Options { filters: filters.parse().unwrap(), ..options() }
}

fn read(store: &Store, volume: u32, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; length];
    store.read(volume, offset, &mut buffer).unwrap();
    buffer
}

/// Asked, existing, strong, weak and non-existing of a filter.
fn counts(store: &Store, name: &str) -> [u64; 5] {
    let counts = store.filter_counts().into_iter().find(|counts| counts.name == name).unwrap();
    let FilterCounts { asked, existing, strong, weak, non_existing, .. } = counts;
    assert_eq!(asked, existing + strong + weak + non_existing, "{name}");
    [asked, existing, strong, weak, non_existing]
}

/// A store that cuts pages of 4 KiB.
fn paged(seed: u64) -> Scene {
    let mut new = new_store(4, 1 << 18);
    new.chunker = ChunkerParams::with_average(Algorithm::Fixed, PAGE as u32);
    Scene::of(seed, &new)
}

#[test]
fn unchanged_blocks_are_found_by_their_mac_alone() {
    let scene = paged(1);
    let (store, _) = scene.open_with(with("mac,index")).unwrap();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let data = Random(1).bytes(4 * BLOCK);
    store.write(volume, 0, &data).unwrap();
    assert_eq!(counts(&store, "mac"), [4, 0, 0, 4, 0]);
    store.close().unwrap();
    assert_eq!(counts(&store, "index"), [64, 0, 0, 0, 64]);
    // Nothing waits, so there is nothing to commit.
    let before = scene.disk.operations();
    store.write(volume, 0, &data[..3 * BLOCK]).unwrap();
    store.flush().unwrap();
    assert_eq!(counts(&store, "mac"), [7, 3, 0, 4, 0]);
    assert!(scene.disk.operations() - before < 8);
    // One byte of one block.
    let mut other = data.clone();
    other[BLOCK] ^= 1;
    store.write(volume, 0, &other).unwrap();
    assert_eq!(read(&store, volume, 0, other.len()), other);
    // What waits is not compared: the last write counts.
    store.write(volume, 0, &data).unwrap();
    assert_eq!(read(&store, volume, 0, data.len()), data);
    store.flush().unwrap();
    assert_eq!(read(&store, volume, 0, data.len()), data);
    // A piece over a waiting block: the MAC of that block counts no more.
    store.write(volume, 0, &other[..BLOCK]).unwrap();
    store.write(volume, 0, &other[BLOCK..2 * BLOCK]).unwrap();
    store.write(volume, 512, &data[512..1024]).unwrap();
    store.flush().unwrap();
    store.write(volume, 0, &other[BLOCK..2 * BLOCK]).unwrap();
    assert_eq!(read(&store, volume, 0, BLOCK), other[BLOCK..2 * BLOCK]);
    store.write(volume, 0, &data).unwrap();
    store.flush().unwrap();
    // Pieces that make up the old block: compared by the commit.
    let [asked, existing, ..] = counts(&store, "mac");
    for at in (0..BLOCK).step_by(BLOCK / 2) {
        store.write(volume, at as u64, &data[at..at + BLOCK / 2]).unwrap();
    }
    store.flush().unwrap();
    let [asked_after, existing_after, ..] = counts(&store, "mac");
    assert_eq!((asked_after - asked, existing_after - existing), (1, 1));
}

#[test]
fn duplicates_are_found_by_the_filter_that_comes_first() {
    let scene = paged(2);
    let (store, _) = scene.open_with(with("zero,bloom,block,cache,index")).unwrap();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let data = Random(2).bytes(8 * BLOCK);
    store.write(volume, 0, &data).unwrap();
    store.close().unwrap();
    assert_eq!(counts(&store, "bloom"), [128, 0, 0, 0, 128]);
    // In place: by the old mapping.
    store.write(volume, 0, &data).unwrap();
    store.flush().unwrap();
    assert_eq!(counts(&store, "block"), [128, 0, 128, 0, 0]);
    assert_eq!(counts(&store, "index"), [0; 5]);
    // Elsewhere, after a start: by the index, and then by the container that it hit.
    drop(store);
    let (store, _) = scene.open_with(with("zero,bloom,block,cache,index")).unwrap();
    store.write(volume, 64 << 20, &data[..BLOCK]).unwrap();
    store.flush().unwrap();
    assert_eq!(counts(&store, "index"), [16, 0, 16, 0, 0]);
    store.write(volume, 65 << 20, &data).unwrap();
    store.flush().unwrap();
    assert_eq!(counts(&store, "cache"), [144, 0, 128, 16, 0]);
    assert_eq!(counts(&store, "index"), [16, 0, 16, 0, 0]);
    // Moved by a page: the first page of a block was in the block before.
    let [_, _, strong, ..] = counts(&store, "block");
    store.write(volume, PAGE as u64, &data[..4 * BLOCK]).unwrap();
    store.flush().unwrap();
    assert!(counts(&store, "block")[2] - strong >= 63);
    store.write(volume, 0, &vec![0; 2 * PAGE]).unwrap();
    store.flush().unwrap();
    assert_eq!(counts(&store, "zero")[1], 2);
}

#[test]
fn filters_without_memory_are_dropped_and_cost_reads_alone() {
    let scene = paged(3);
    let options = Options { index_memory: 0, ..with("bloom,index") };
    let (store, _) = scene.open_with(options).unwrap();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let data = Random(3).bytes(8 * BLOCK);
    store.write(volume, 0, &data[..4 * BLOCK]).unwrap();
    store.close().unwrap();
    store.write(volume, 0, &data).unwrap();
    store.close().unwrap();
    // The filter of the first run would have ruled the second half out.
    assert_eq!(counts(&store, "bloom"), [64 + 128, 0, 0, 128, 64]);
    assert_eq!(counts(&store, "index"), [128, 0, 64, 0, 64]);
    assert_eq!(read(&store, volume, 0, data.len()), data);
}

#[test]
fn a_stored_chunk_that_does_not_open_is_stored_again_when_bytes_are_compared() {
    let scene = paged(4);
    let (store, _) = scene.open_with(with("index,bytes")).unwrap();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let data = Random(4).bytes(BLOCK);
    store.write(volume, 0, &data).unwrap();
    store.close().unwrap();
    store.write(volume, 1 << 20, &data).unwrap();
    store.flush().unwrap();
    assert_eq!(counts(&store, "bytes"), [16, 16, 0, 0, 0]);
    drop(store);
    scene.disk.damage("containers/0/0", 100);
    let (store, _) = scene.open_with(with("index,bytes")).unwrap();
    store.write(volume, 2 << 20, &data).unwrap();
    store.flush().unwrap();
    let [asked, existing, _, _, non_existing] = counts(&store, "bytes");
    assert_eq!((asked, existing + non_existing), (16, 16));
    assert!((1..16).contains(&non_existing), "one frame of two was damaged");
    assert_eq!(read(&store, volume, 2 << 20, BLOCK), data);
    assert_eq!(store.read(volume, 0, &mut vec![0; BLOCK]).unwrap_err().kind(), ErrorKind::Damaged);
}

#[test]
fn long_streams_have_the_chunks_that_one_thread_cuts() {
    // Two stores with one key, so the same data has the same chunks.
    let data = Random(5).bytes(96 * BLOCK);
    let stored = [1, 2, 3].map(|threads| {
        let scene = Scene::new(6, 1 << 20);
        let options = Options { threads, batch: 4 << 20, ..Options::of_memory(64 << 20) };
        let (store, _) = scene.open_with(options).unwrap();
        let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
        store.write(volume, 1536, &data).unwrap();
        store.close().unwrap();
        assert_eq!(read(&store, volume, 1536, data.len()), data);
        let names = scene.disk.list("containers/0").unwrap();
        let mut files: Vec<_> =
            names.iter().map(|name| (name.clone(), scene.disk.length(&format!("containers/0/{name}")))).collect();
        files.sort();
        (files, store.check(&CheckOptions::new(true)).unwrap().chunks)
    });
    assert_eq!(stored[0], stored[1]);
    assert_eq!(stored[0], stored[2]);
}

/// A random order of a random subset.
fn filter_sets() -> impl Strategy<Value = FilterSet> {
    let kinds = Just(FilterKind::ALL.to_vec()).prop_shuffle();
    (kinds, 1usize..=7).prop_map(|(mut kinds, keep)| {
        kinds.truncate(keep);
        FilterSet::new(kinds).unwrap()
    })
}

/// Whether `filters` ask for zeros before one of them can rule a chunk out.
fn finds_zeros(filters: &FilterSet) -> bool {
    let first =
        filters.kinds().iter().find(|kind| matches!(kind, FilterKind::Zero | FilterKind::Bloom | FilterKind::Index));
    first == Some(&FilterKind::Zero)
}

#[derive(Debug, Clone)]
struct Write {
    page: usize,
    /// Of a pool of pages; 0 is zeros.
    content: Vec<u8>,
    flush: bool,
    reopen: bool,
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let content = prop::collection::vec(0u8..24, 1..40);
    let write = (0usize..120, content, any::<bool>(), prop::bool::weighted(0.15))
        .prop_map(|(page, content, flush, reopen)| Write { page, content, flush, reopen });
    prop::collection::vec(write, 1..16)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Any filters in any order: data reads back equal, also after a power failure. With the index,
    /// each page is stored exactly once.
    #[test]
    fn any_filters_store_the_same_data(
        filters in filter_sets(), writes in writes(), threads in 1usize..4, overlap: bool,
        index_memory in prop_oneof![Just(0usize), Just(1 << 20)], seed in 0u64..1000,
    ) {
        let scene = paged(seed);
        let pool: Vec<Vec<u8>> = (0..24u64)
            .map(|number| if number == 0 { vec![0; PAGE] } else { Random(number).bytes(PAGE) })
            .collect();
        let options = Options {
            filters: filters.clone(), threads, overlap, index_memory, batch: 96 << 10, known_containers: 20_000,
            ..options()
        };
        let (mut store, _) = scene.open_with(options.clone()).unwrap();
        let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
        let (mut expected, mut committed) = (vec![0; 160 * PAGE], HashSet::new());
        let mut waiting: std::collections::BTreeMap<usize, u8> = Default::default();
        let mut note = |waiting: &mut std::collections::BTreeMap<usize, u8>| {
            committed.extend(std::mem::take(waiting).into_values());
        };
        for write in writes {
            let data: Vec<u8> = write.content.iter().flat_map(|number| pool[usize::from(*number)].clone()).collect();
            expected[write.page * PAGE..][..data.len()].copy_from_slice(&data);
            store.write(volume, (write.page * PAGE) as u64, &data).unwrap();
            for (page, number) in (write.page..).zip(&write.content) {
                waiting.insert(page, *number);
            }
            if write.flush || write.reopen {
                store.flush().unwrap();
                note(&mut waiting);
            }
            if write.reopen {
                drop(store);
                scene.disk.restart(Fault::Power);
                store = scene.open_with(options.clone()).unwrap().0;
            }
        }
        store.close().unwrap();
        note(&mut waiting);
        prop_assert_eq!(read(&store, volume, 0, expected.len()), expected);
        let report = store.check(&CheckOptions::new(true)).unwrap();
        prop_assert!(report.errors.is_empty(), "{:?}", report.errors);
        if filters.has(FilterKind::Index) {
            // A block that is all zeros is known without any filter, or never became a chunk.
            let zeros_are_chunks = !finds_zeros(&filters) && committed.contains(&0);
            let unique = committed.iter().filter(|number| **number != 0).count();
            let least = unique * PAGE;
            let most = (unique + usize::from(zeros_are_chunks)) * PAGE;
            let stored = report.read_bytes as usize;
            prop_assert!((least..=most).contains(&stored), "{} of {} to {}", stored, least, most);
        }
    }
}

#[test]
fn a_store_of_pages_cuts_them_where_they_are_in_the_volume() {
    let scene = paged(7);
    let (store, _) = scene.open_with(with("index")).unwrap();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let data = Random(7).bytes(2 * BLOCK);
    store.write(volume, 0, &data).unwrap();
    store.flush().unwrap();
    let [asked, ..] = counts(&store, "index");
    // From the middle of a page: the pages behind it are known.
    store.write(volume, (1 << 20) + 1536, &data[1536..]).unwrap();
    store.flush().unwrap();
    assert_eq!(counts(&store, "index"), [asked + 32, 0, 31, 0, 33]);
    assert_eq!(read(&store, volume, (1 << 20) + 1536, data.len() - 1536), data[1536..]);
}

#[test]
fn writers_of_more_than_the_buffer_wait_and_go_on() {
    let scene = Scene::new(8, 1 << 20);
    let small = Options { write_buffer: 256 << 10, commit_at: 128 << 10, batch: 64 << 10, ..options() };
    let (store, _) = scene.open_with(small).unwrap();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let data: Vec<_> = (0..4u64).map(|writer| Random(writer).bytes(32 * BLOCK)).collect();
    std::thread::scope(|scope| {
        for (writer, data) in data.iter().enumerate() {
            let store = &store;
            scope.spawn(move || {
                for (number, request) in data.chunks(BLOCK / 2 * 3).enumerate() {
                    let at = (writer << 24) + number * BLOCK / 2 * 3;
                    store.write(volume, at as u64, request).unwrap();
                    if number % 5 == 0 {
                        store.flush().unwrap();
                    }
                }
            });
        }
    });
    store.flush().unwrap();
    for (writer, data) in data.iter().enumerate() {
        assert_eq!(read(&store, volume, (writer << 24) as u64, data.len()), *data);
    }
    assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty());
}

#[test]
fn a_commit_that_fails_between_its_batches_keeps_what_was_durable() {
    // Every operation of a commit of several batches fails once for want of space.
    for overlap in [false, true] {
        for fails in 0.. {
            let scene = paged(9);
            let options = Options { overlap, batch: 64 << 10, ..with("zero,mac,bloom,block,cache,index") };
            let (store, _) = scene.open_with(options).unwrap();
            let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
            let data = Random(9).bytes(5 * BLOCK);
            store.write(volume, 0, &data).unwrap();
            scene.disk.fail_once_after(fails);
            let failed = store.flush();
            scene.disk.fail_once_after(u64::MAX);
            assert_eq!(read(&store, volume, 0, data.len()), data, "{fails}");
            if failed.is_ok() {
                break;
            }
            // Tried again, or stopped because it is open what is durable.
            let again = store.flush();
            assert!(matches!(again, Ok(()) | Err(VolumeError::Stopped(_))), "{fails}: {again:?}");
            let (store, _) = scene.reopen(store, Fault::Process);
            let mut found = vec![0; data.len()];
            store.read(volume, 0, &mut found).unwrap();
            for (block, (found, data)) in found.chunks(BLOCK).zip(data.chunks(BLOCK)).enumerate() {
                let is_old = again.is_err() && found.iter().all(|byte| *byte == 0);
                assert!(found == data || is_old, "{fails}: block {block}");
            }
            assert!(store.check(&CheckOptions::new(true)).unwrap().errors.is_empty(), "{fails}");
        }
    }
}

#[test]
fn a_clone_keeps_blocks_of_its_parent_by_their_mac_alone() {
    let scene = paged(10);
    let (store, _) = scene.open_with(with("mac,index")).unwrap();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    let (data, later) = (Random(10).bytes(4 * BLOCK), Random(11).bytes(4 * BLOCK));
    store.write(volume, 0, &data).unwrap();
    let snapshot = store.create_snapshot(volume, "a", None, 0).unwrap().id;
    store.write(volume, 0, &later).unwrap();
    let clone = store.clone_snapshot("clone", snapshot, 0).unwrap().id;
    store.close().unwrap();
    let [asked, existing, ..] = counts(&store, "mac");
    let before = scene.disk.operations();
    store.write(clone, 0, &data).unwrap();
    store.flush().unwrap();
    assert_eq!(counts(&store, "mac")[..2], [asked + 4, existing + 4]);
    assert!(scene.disk.operations() - before < 8);
    // What the parent has now is a change, and so is its old content over a block that waits.
    store.write(clone, 0, &later[..BLOCK]).unwrap();
    store.write(clone, 0, &data[..BLOCK]).unwrap();
    store.discard(clone, BLOCK as u64, BLOCK as u64).unwrap();
    store.flush().unwrap();
    let mut expected = data.clone();
    expected[BLOCK..2 * BLOCK].fill(0);
    assert_eq!(read(&store, clone, 0, data.len()), expected);
    // A discarded block hides that of the parent.
    store.write(clone, BLOCK as u64, &data[BLOCK..2 * BLOCK]).unwrap();
    store.flush().unwrap();
    assert_eq!(read(&store, clone, 0, data.len()), data);
    assert_eq!(read(&store, volume, 0, data.len()), later);
}

#[test]
fn a_container_without_tables_yet_is_loaded_when_it_has_some() {
    let scene = paged(11);
    let options = Options { batch: BLOCK, overlap: true, ..with("cache,index") };
    let (store, _) = scene.open_with(options).unwrap();
    let volume = store.create_volume("disk", 1 << 30, 0).unwrap().id;
    // The second batch finds the chunks of the first one, whose frames are on the way.
    let data = Random(11).bytes(BLOCK);
    store.write(volume, 0, &data.repeat(2)).unwrap();
    store.close().unwrap();
    assert_eq!(counts(&store, "index"), [32, 0, 16, 0, 16]);
    for at in [1 << 20, 2 << 20] {
        store.write(volume, at, &data).unwrap();
        store.flush().unwrap();
    }
    assert_eq!(counts(&store, "cache"), [64, 0, 16, 48, 0]);
}

//! A small input never makes a decoder allocate much: what it takes is bounded by the bytes that are there.
//!
//! Method: an allocator that counts what a thread holds, hostile inputs made for each decoder to unfold as far as they can,
//! and random damage. The bound is a promise about order of magnitude, not a measurement: a row of two bytes may become a
//! record of a few dozen, and vectors that grow hold twice what they need for a moment. (zstd allocates in C and is not
//! counted; its output goes to a buffer that the frame table sized, which is checked here.)

#![expect(unsafe_code, reason = "an allocator that counts is an unsafe trait's implementation")]

#[path = "support/mutate.rs"]
mod mutate;
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use larder_format::config::UnverifiedConfig;
use larder_format::container::{ContainerIndex, FRAME_MAX, PAYLOAD_MAX};
use larder_format::ids::{ContainerKind, SettingsOf};
use larder_format::key_file;
use larder_format::lease::Lease;
use larder_format::manifest::{Manifest, Summary};
use larder_format::mark::Forgotten;
use larder_format::metadata::{BLOCK_PATHS_MAX, decode_block};
use larder_format::segment::Segment;
use larder_format::settings::SeriesSettings;
use larder_format::{Fingerprint, difference, names, recipe, segment};
use mutate::{damaged, damages};
use proptest::prelude::*;
use support::{ContainerParts, Forger, JOB, SERIES, keys, varint};

struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends frees after its counters are gone; nobody asks for them then.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is handed to the system's allocator unchanged; counting touches only thread-local numbers that need no
// allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `pointer` came from `System` with this layout, because `alloc` passes everything on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a decoder may hold beyond a multiple of its input.
const BASE: usize = 64 << 10;
/// Bytes a decoder may hold for every byte of its input.
const PER_BYTE: usize = 128;
/// Length of the hostile inputs: two metadata blocks, a large summary.
const INPUT: usize = 64 << 10;

/// The most that `decode` held at once, on top of what was held before.
fn peak_of<T>(decode: impl FnOnce() -> T) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    drop(decode());
    usize::try_from(PEAK.get() - before).expect("the peak is not below the start")
}

#[track_caller]
fn assert_bounded<T>(input_len: usize, extra: usize, decode: impl FnOnce() -> T) {
    let peak = peak_of(decode);
    let allowed = BASE + PER_BYTE * input_len + extra;
    assert!(peak <= allowed, "an input of {input_len} bytes took {peak} bytes; {allowed} are allowed");
}

#[test]
fn the_counter_counts() {
    assert!(peak_of(|| vec![0u8; 1 << 20]) >= 1 << 20);
    assert!(peak_of(|| drop(vec![0u8; 1 << 20])) >= 1 << 20);
    assert_eq!(peak_of(|| 5), 0);
}

/// Structures that consist of nothing but a count that claims too much, at each place that has one.
#[test]
fn a_count_alone_allocates_nothing() {
    for claimed in [u64::MAX, u64::MAX >> 1, 1 << 40, 1 << 32, 1 << 30, 1 << 24] {
        let claimed = varint(claimed);
        // Behind the version: no jobs, no containers, no runs or rows yet.
        for before in [&[2][..], &[2, 0], &[2, 0, 0], &[2, 0, 0, 0], &[2, 1, 0], &[2, 1, 0, 1]] {
            let input = [before, &claimed, &[0; 200]].concat();
            for decode in [
                |input: &[u8]| segment::decode(input).is_ok(),
                |input: &[u8]| recipe::decode_node(input).is_ok(),
                |input: &[u8]| decode_block(input).is_ok(),
            ] {
                assert!(peak_of(|| decode(&input)) <= 32 << 10, "{}", hex::encode(&input[..24]));
            }
        }
    }
}

/// Many tiny rows, each of which becomes a large record.
#[test]
fn rows_do_not_unfold_far() {
    let job = [7; 16];
    let places = [vec![2, 1], job.to_vec(), varint(1), vec![0, 0]].concat();
    // A segment of runs of nothing, and of places of nothing.
    let runs = [places.clone(), varint((INPUT / 37) as u64), [0, 0, 0, 0, 1].repeat(INPUT / 5)].concat();
    assert_bounded(runs.len(), 0, || segment::decode(&runs));
    let containers = [vec![2, 1], job.to_vec(), varint((INPUT / 2) as u64), vec![0; INPUT + 9]].concat();
    assert_bounded(containers.len(), 0, || segment::decode(&containers));
    // A recipe node whose only segment uses one container over and over.
    let row = [vec![7; 32], vec![0, 0, 1, 0, 0, 0]].concat();
    let uses = [places, varint(1), row, varint((INPUT / 3) as u64), vec![0; INPUT + 9]].concat();
    assert_bounded(uses.len(), 0, || recipe::decode_node(&uses));
    // A block of owners, of attributes, of extents.
    let owners = [vec![2, 0, 0], varint((INPUT / 4) as u64), [0, 0, 1, 1].repeat(INPUT / 4)].concat();
    assert_bounded(owners.len(), 0, || decode_block(&owners));
    let head = [2, 1, 0, 1, 0, 0, 0, 0];
    let file = [0, 1, b'a', 0, 0, 0, 0, 0];
    let xattrs = [&head[..], &[8 | 64], &file, &[0], &varint((INPUT / 2) as u64), &vec![0; INPUT]].concat();
    assert_bounded(xattrs.len(), 0, || decode_block(&xattrs).expect("a file with many empty attributes"));
    let count = varint((INPUT / 2) as u64);
    let extents =
        [&[2, 1], &count[..], &head[3..], &[32 | 64], &file, &varint(1 << 40), &count, &[0, 1].repeat(INPUT / 2)]
            .concat();
    assert_bounded(extents.len(), 0, || decode_block(&extents).expect("a file with many extents"));
}

/// A block of entries that all share a long beginning: 13 bytes a row, 30,000 bytes a path.
///
/// Guards against: paths were bounded by nothing but the input's length each, 60 MB for this block and 16 GB for one of a
/// megabyte.
#[test]
fn shared_paths_do_not_unfold_without_end() {
    let long = INPUT / 2;
    let rows = 2000u64;
    let mut block = [vec![2], varint(rows + 1), vec![0, 1, 0, 0, 0, 0]].concat();
    block.extend_from_slice(&[&[1 | 64, 0][..], &varint(long as u64), &vec![b'a'; long], &[0, 0, 0, 0, 0]].concat());
    for number in 0..rows {
        let tail = (number as u16 + 0x4141).to_be_bytes();
        block.extend_from_slice(&[&[1 | 64][..], &varint(long as u64), &[2], &tail, &[0, 0, 0, 0, 0]].concat());
    }
    assert_bounded(0, BLOCK_PATHS_MAX + (1 << 20), || assert!(decode_block(&block).is_err()));
}

/// What the encoder makes of a tree of very long paths is read back, in blocks that unfold to a bounded size.
#[test]
fn very_long_paths_are_still_stored() {
    let template = support::entries().remove(0);
    let path = |number: u32| [&[b'a'; 40_000][..], format!("/{number:06}").as_bytes()].concat();
    let entries: Vec<_> =
        (0..200).map(|number| larder_format::entry::Entry { path: path(number), ..template.clone() }).collect();
    let mut builder = larder_format::metadata::BlockBuilder::new();
    let mut blocks: Vec<_> = entries.iter().filter_map(|entry| builder.push(entry).expect("valid")).collect();
    blocks.extend(builder.finish());
    let mut decoded = Vec::new();
    for block in &blocks {
        let peak = peak_of(|| decoded.extend(decode_block(&block.bytes).expect("decodes")));
        assert!(peak <= 2 * BLOCK_PATHS_MAX, "{peak} bytes for a block of {}", block.bytes.len());
    }
    assert_eq!(decoded, entries);
}

#[test]
fn lengths_in_sealed_objects_are_believed_only_as_far_as_there_are_bytes() {
    let mut object = support::manifest().encode(&keys(), SERIES, 0, support::RANDOM).expect("valid");
    object[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_bounded(object.len(), 0, || assert!(Manifest::decode(&keys(), SERIES, JOB, 0, &object).is_err()));
    let head = Summary::decode_head(&keys(), SERIES, JOB, 0, &object);
    assert!(head.is_err(), "nobody may be made to fetch four gigabytes for a summary");
    let name = names::version(SERIES, JOB, 0);
    let [summary, _] = support::manifest_parts();
    for body in [vec![2, 0, 0, 0, 0], vec![2, 0, 0, 0], vec![2, 0, 0], vec![2, 0], vec![2]] {
        let body = [&body[..], &varint(u64::from(u32::MAX)), &[0; 100]].concat();
        let object = Forger::new().object(&name, b"LMAN", &[&summary, &body]);
        assert_bounded(object.len(), 0, || assert!(Manifest::decode(&keys(), SERIES, JOB, 0, &object).is_err()));
    }
}

#[test]
fn records_of_numbered_fields_do_not_unfold_far() {
    let deep = [vec![0xa1, 0x18, 0x63], [0x81, 0x9f].repeat(INPUT / 2)].concat();
    // An array of 2^64-1 pins; the same of empty texts; fields nobody knows, nested without end.
    let claimed = [&[0xa1, 0x02, 0x9b][..], &[0xff; 8], &[0xa2; 100]].concat();
    let texts = [&[0xa1, 0x08, 0x9a][..], &(INPUT as u32).to_be_bytes(), &[0x60; INPUT]].concat();
    for plain in [deep, claimed, texts] {
        let lease = Forger::new().object(&names::lease(JOB, 0), b"LLSE", &[&plain]);
        assert_bounded(lease.len(), 0, || assert!(Lease::decode(&keys(), JOB, 0, &lease).is_err()));
        let manifest = Forger::new().object(&names::version(SERIES, JOB, 0), b"LMAN", &[&plain, &[2]]);
        assert_bounded(manifest.len(), 0, || assert!(Manifest::decode(&keys(), SERIES, JOB, 0, &manifest).is_err()));
        let mark = Forger::new().object(&names::forgotten(SERIES, JOB), b"LFGT", &[&plain]);
        assert_bounded(mark.len(), 0, || assert!(Forgotten::decode(&keys(), SERIES, JOB, &mark).is_err()));
        let name = names::settings(SettingsOf::Default, 0);
        let settings = Forger::new().object(&name, b"LSET", &[&plain]);
        let decode = || SeriesSettings::decode(&keys(), SettingsOf::Default, 0, &settings);
        assert_bounded(settings.len(), 0, || assert!(decode().is_err()));
        let config = [b"LCFG\x02\0\0\0", &plain[..], &[0; 64]].concat();
        assert_bounded(config.len(), 0, || assert!(UnverifiedConfig::decode(&config).is_err()));
        let key = Forger::new().key(support::KEY, &support::FILE, &plain, b"payload");
        assert_bounded(key.len(), 0, || assert!(key_file::read_fields(&key).is_err()));
    }
}

/// A key that asks for a gigabyte is allowed to; one that asks for more is refused before anything is allocated.
#[test]
fn a_greedy_key_is_refused_before_it_allocates() {
    for (memory_kib, passes, lanes) in
        [(u32::MAX, 1, 1), ((1 << 20) + 1, 1, 1), (1 << 20, 5, 1), (64, 65, 1), (64, 1, 65), (0, 0, 0)]
    {
        let cost = key_file::KdfCost { memory_kib, passes, lanes };
        let fields = support::key_fields(Some(cost), larder_format::roles::Roles::ALL);
        let mut fields = minicbor::to_vec(&fields).expect("encodes");
        // An empty copy of the configuration.
        fields[0] += 1;
        fields.extend_from_slice(&[7, 0x40]);
        let key = Forger::new().key(support::KEY, &support::FILE, &fields, b"payload");
        assert!(key_file::read_fields(&key).is_ok(), "it is well-formed");
        let unwrap =
            || key_file::unwrap(&key, key_file::Unlock::Password(b"secret"), support::KEY, support::REPOSITORY);
        assert_bounded(key.len(), 0, || assert!(matches!(unwrap(), Err(key_file::UnwrapError::Damaged(_)))));
    }
}

#[test]
fn containers_believe_their_tables_only_as_far_as_there_are_bytes() {
    let id = support::container_id(ContainerKind::Data, JOB, 0);
    let row = |raw: u64, sealed: u64| [vec![0], varint(raw), varint(sealed)].concat();
    let good = ContainerParts {
        frames: vec![vec![1; 10]],
        chunk_table: [vec![2, 0], vec![7; 32], vec![10]].concat(),
        frame_table: [vec![2], row(10, 42)].concat(),
        chunk_count: 1,
        frame_count: 1,
        payload_len: 10,
        ..ContainerParts::default()
    };
    let too_large = u64::from(PAYLOAD_MAX) + 1;
    let hostile = [
        ContainerParts { chunk_count: u32::MAX, ..good.clone() },
        ContainerParts { frame_count: u32::MAX, ..good.clone() },
        // One chunk, one frame, larger than any reader would want to hold.
        ContainerParts {
            chunk_table: [vec![2, 0], vec![7; 32], varint(FRAME_MAX as u64 + 1)].concat(),
            frame_table: [vec![2], row(FRAME_MAX as u64 + 1, 42)].concat(),
            payload_len: FRAME_MAX as u32 + 1,
            ..good.clone()
        },
        ContainerParts {
            chunk_table: [vec![2, 0], vec![7; 32], varint(too_large)].concat(),
            payload_len: too_large as u32,
            ..good.clone()
        },
        // Sizes that would add up to 10 if they were added with 32 bits.
        ContainerParts {
            chunk_table: [vec![2, 0], vec![7; 96], varint(u32::MAX.into()), varint(1), varint(10)].concat(),
            frame_table: [vec![2], row(u64::from(u32::MAX), 42), row(1, 33), row(10, 42)].concat(),
            chunk_count: 3,
            frame_count: 3,
            ..good.clone()
        },
    ];
    let object = Forger::new().container(id, &good);
    assert!(ContainerIndex::decode(&keys(), id, &object, object.len() as u64).is_ok());
    for parts in hostile {
        let object = Forger::new().container(id, &parts);
        let decode = || ContainerIndex::decode(&keys(), id, &object, object.len() as u64);
        assert_bounded(object.len(), 0, || assert!(decode().is_err(), "{parts:?}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn of_damaged_structures(damages in damages()) {
        let block = {
            let mut builder = larder_format::metadata::BlockBuilder::new();
            for entry in support::entries() {
                assert_eq!(builder.push(&entry), Ok(None));
            }
            builder.finish().expect("a block").bytes
        };
        let input = damaged(&segment::encode(&support::records(), &support::superchunks()).expect("valid"), &damages);
        assert_bounded(input.len(), 0, || segment::decode(&input));
        let base = Segment { records: support::records(), superchunks: Vec::new() };
        let of_base = Fingerprint([5; 32]);
        let to = Segment { records: support::records()[1..].to_vec(), superchunks: Vec::new() };
        let input = damaged(&difference::encode(&of_base, &base, &to, 9).expect("valid").expect("few are new"), &damages);
        assert_bounded(input.len() + 100 * base.records.len(), 0, || difference::decode(&input, &of_base, &base));
        let input = damaged(&recipe::encode_node(&support::segments()).expect("valid"), &damages);
        assert_bounded(input.len(), 0, || recipe::decode_node(&input));
        let input = damaged(&block, &damages);
        assert_bounded(input.len(), 0, || decode_block(&input));
    }
}

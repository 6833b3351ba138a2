//! Index manifests: golden bytes, round trips, and refusals.

use super::*;
use crate::golden::golden;
use crate::ids::{ContainerId, ContainerKind};
use proptest::prelude::*;

fn keys() -> Keys {
    crate::golden::keys()
}

fn head(number: u64) -> IndexHead {
    IndexHead {
        number,
        pass: JobId([7; 16]),
        attempt: [4; 16],
        time_ms: 1_790_000_000_000,
        host: "host".to_owned(),
        program: "larder 0.1.0".to_owned(),
        next_version: 9,
        next_container: 1000,
        next_age: 12,
        statistics: PassStatistics { chunks: 5, bytes_queued: 77, ..PassStatistics::default() },
        rebuilt: None,
        dropped: None,
        missing: None,
        left: None,
        searched: None,
        unlisted: None,
        unread: None,
    }
}

fn version(number: u32, state: VersionState) -> IndexedVersion {
    IndexedVersion {
        number,
        series: SeriesKey([3; 16]),
        job: JobId([number as u8; 16]),
        generation: number % 2,
        state,
        layout: Layout::Standard,
        is_arranged: false,
        is_carried: false,
        is_proved: false,
        is_settled: number % 2 == 1,
        seen_ms: if number == 0 { 0 } else { 1_790_000_000_000 + u64::from(number) },
    }
}

fn run(table: Table, age: u64, first: u64, last: u64) -> RunRef {
    let id = RunId { job: JobId([age as u8; 16]), seq: first as u32 };
    RunRef {
        table,
        age,
        id,
        first,
        last,
        records: 1000,
        tombstones: 7,
        object_bytes: 28_300,
        tail_bytes: 1200,
        filter_bytes: 900,
    }
}

fn manifest() -> IndexManifest {
    let container = ContainerId { kind: ContainerKind::Meta, job: JobId([1; 16]), seq: 4 };
    let (series, job) = (SeriesKey([6; 16]), JobId([2; 16]));
    let queued = |what, reason, decided| Queued { what, reason, decided };
    IndexManifest {
        head: head(5),
        versions: vec![
            version(0, VersionState::Collected),
            version(3, VersionState::Forgotten),
            version(8, VersionState::Retained),
        ],
        runs: vec![
            run(Table::Chunks, 3, 0, 1 << 63),
            run(Table::Chunks, 3, (1 << 63) + 1, u64::MAX),
            run(Table::Chunks, 11, 0, u64::MAX),
            run(Table::Extents, 2, 5, 5),
        ],
        queue: vec![
            queued(QueuedObject::Container(container), Reason::Moved, 4),
            queued(QueuedObject::Generation { series, job, generation: 1 }, Reason::Superseded, 5),
            queued(QueuedObject::Job { series, job }, Reason::Collected, 5),
            queued(QueuedObject::Run(RunId { job, seq: 3 }), Reason::Superseded, 5),
            queued(QueuedObject::Index(3), Reason::Superseded, 4),
        ],
    }
}

/// The fields of a rebuild are optional, so that the bytes of indexes without them do not change.
#[test]
fn a_list_of_too_many_containers_is_none() {
    let id = |seq| ContainerId { kind: ContainerKind::Data, job: JobId([5; 16]), seq };
    assert_eq!(ContainerList::of((0..=LIST_MAX as u32).map(id)), None);
    assert_eq!(ContainerList::of([]), None);
    assert!(ContainerList::of((0..LIST_MAX as u32).map(id)).is_some());
    let searched = |bytes: &[u8]| {
        minicbor::decode::<ContainerList>(
            &minicbor::to_vec(minicbor::bytes::ByteVec::from(bytes.to_vec())).expect("encodes"),
        )
        .is_ok()
    };
    assert!(searched(&[0; 21]) && searched(&[[0; 21], [1; 21]].concat()));
    for wrong in [&[][..], &[0; 20], &[2; 21], &[0; 42], &[[1; 21], [0; 21]].concat()] {
        assert!(!searched(wrong), "{wrong:?}");
    }
}

#[test]
fn a_rebuilt_index_says_so() {
    let mut rebuilt = manifest();
    rebuilt.head.rebuilt = Some(990);
    let id = |kind, seq| ContainerId { kind, job: JobId([5; 16]), seq };
    let missing = [id(ContainerKind::Meta, 0), id(ContainerKind::Data, 7), id(ContainerKind::Data, 7)];
    rebuilt.head.searched = ContainerList::of(missing);
    rebuilt.head.unlisted = ContainerList::first_of([missing[0]]);
    assert_eq!(rebuilt.head.searched.as_ref().map(|list| list.ids().len()), Some(2));
    let bytes = rebuilt.encode(&keys(), [9; 32]).expect("valid");
    assert_eq!(IndexManifest::decode(&keys(), 5, &bytes), Ok(rebuilt));
}

#[test]
fn version_2_bytes_never_change() {
    let golden = golden("index_manifest_v2", &manifest().encode(&keys(), [9; 32]).expect("valid"));
    assert_eq!(IndexManifest::decode(&keys(), 5, &golden), Ok(manifest()));
}

#[test]
fn the_head_opens_without_the_rest() {
    let bytes = manifest().encode(&keys(), [9; 32]).expect("valid");
    let Ok(Err(needed)) = IndexHead::decode_head(&keys(), 5, &bytes[..60]) else { panic!("60 bytes are too few") };
    assert_eq!(IndexHead::decode_head(&keys(), 5, &bytes[..needed as usize]), Ok(Ok(head(5))));
    assert!(IndexHead::decode_head(&keys(), 6, &bytes).is_err());
    assert!(IndexHead::decode_head(&keys(), 5, &bytes[..20]).is_err());
}

#[test]
fn a_manifest_is_bound_to_its_number_and_every_flipped_bit_is_noticed() {
    let bytes = manifest().encode(&keys(), [9; 32]).expect("valid");
    assert!(IndexManifest::decode(&keys(), 6, &bytes).is_err());
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(IndexManifest::decode(&keys(), 5, &flipped).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(IndexManifest::decode(&keys(), 5, &bytes[..len]).is_err(), "cut to {len}");
    }
}

#[test]
fn what_no_reader_accepts_is_not_written() {
    let written = |change: &dyn Fn(&mut IndexManifest)| {
        let mut manifest = manifest();
        change(&mut manifest);
        manifest.encode(&keys(), [9; 32]).is_ok()
    };
    assert!(written(&|_| {}));
    assert!(!written(&|m| m.head.number = 0));
    assert!(!written(&|m| m.head.next_version = 8));
    assert!(!written(&|m| m.head.next_age = 11));
    assert!(!written(&|m| m.versions.swap(0, 1)));
    assert!(!written(&|m| m.versions[1].number = 0));
    assert!(!written(&|m| m.versions[1].is_arranged = true));
    assert!(written(&|m| (m.versions[1].layout, m.versions[1].is_arranged) = (Layout::Lifecycle, true)));
    let carried = |m: &mut IndexManifest| (m.versions[1].layout, m.versions[1].is_carried) = (Layout::Lifecycle, true);
    assert!(!written(&carried));
    assert!(written(&|m| {
        carried(m);
        m.versions[1].is_arranged = true;
    }));
    assert!(!written(&|m| m.runs.swap(1, 2)));
    assert!(!written(&|m| m.runs[0].last += 1));
    assert!(!written(&|m| m.runs[3].last = 4));
    assert!(!written(&|m| m.runs[3].tail_bytes = 27_401));
    assert!(!written(&|m| m.runs[3].tombstones = 1001));
    assert!(!written(&|m| m.head.host = "x".repeat(INDEX_HEAD_MAX as usize)));
    assert!(written(&|m| {
        m.runs.reverse();
        m.versions.reverse();
        m.sort();
    }));
}

#[test]
fn runs_are_found_by_table() {
    let manifest = manifest();
    assert_eq!(manifest.runs_of(Table::Chunks).len(), 3);
    assert_eq!(manifest.runs_of(Table::Containers), []);
    assert_eq!(manifest.runs_of(Table::Extents), &manifest.runs[3..]);
}

fn any_version() -> impl Strategy<Value = (u32, IndexedVersion)> {
    let state = prop_oneof![Just(VersionState::Retained), Just(VersionState::Forgotten), Just(VersionState::Collected)];
    let of_lifecycle = (any::<bool>(), any::<bool>()).prop_map(|(is, carried)| (Layout::Lifecycle, is, is && carried));
    let arranged = prop_oneof![Just((Layout::Standard, false, false)), of_lifecycle];
    (1u32..1000, 0u8..3, 0u8..9, any::<u32>(), state, arranged, any::<(bool, bool, u64)>()).prop_map(
        |(
            step,
            series,
            job,
            generation,
            state,
            (layout, is_arranged, is_carried),
            (is_proved, is_settled, seen_ms),
        )| {
            let (series, job) = (SeriesKey([series; 16]), JobId([job; 16]));
            (
                step,
                IndexedVersion {
                    number: 0,
                    series,
                    job,
                    generation,
                    state,
                    layout,
                    is_arranged,
                    is_carried,
                    is_proved,
                    is_settled,
                    seen_ms,
                },
            )
        },
    )
}

fn any_run() -> impl Strategy<Value = RunRef> {
    (0usize..4, 0u64..1000, 0u8..9, any::<[u32; 3]>(), any::<[u64; 4]>()).prop_map(
        |(table, age, job, [seq, tail, _], [a, b, records, bytes])| RunRef {
            table: Table::ALL[table],
            age,
            id: RunId { job: JobId([job; 16]), seq },
            first: a.min(b),
            last: a.max(b),
            records,
            tombstones: records / 2,
            object_bytes: bytes.max(u64::from(tail) * 2),
            tail_bytes: tail,
            filter_bytes: tail,
        },
    )
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        versions in prop::collection::vec(any_version(), 0..20),
        mut runs in prop::collection::vec(any_run(), 0..20),
        number in 1u64..,
    ) {
        let mut manifest = manifest();
        manifest.head.number = number;
        manifest.head.next_version = u32::MAX;
        manifest.head.next_age = 1000;
        let mut next = 0;
        manifest.versions = versions.into_iter().map(|(step, mut version)| {
            version.number = next;
            next += step;
            version
        }).collect();
        // Ranges of one age are disjoint.
        runs.sort_by_key(|run| (run.table, run.age));
        runs.dedup_by_key(|run| (run.table, run.age));
        manifest.runs = runs;
        let bytes = manifest.encode(&keys(), [3; 32]).expect("valid");
        prop_assert_eq!(IndexManifest::decode(&keys(), number, &bytes), Ok(manifest));
    }
}

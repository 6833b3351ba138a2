//! Records of the index: golden bytes, order of keys, round trips, and refusals.

use super::*;
use crate::golden::golden;
use proptest::prelude::*;

fn facts() -> ContainerFacts {
    let span = |first, last| Lifespan { first, last };
    ContainerFacts {
        id: ContainerId { kind: ContainerKind::Meta, job: JobId([7; 16]), seq: 300 },
        state: ContainerState::Queued,
        layout: Layout::Standard,
        chunks: 2000,
        bytes: 8 << 20,
        object_bytes: 4_000_000,
        retired_chunks: 3,
        retired_bytes: 12_000,
        users: vec![
            SeriesLifespans {
                series: SeriesKey([1; 16]),
                lifespans: vec![span(0, Some(0)), span(3, Some(500)), span(501, None)],
            },
            SeriesLifespans { series: SeriesKey([2; 16]), lifespans: vec![span(7, Some(u32::MAX))] },
        ],
        forwards: vec![0, 5, 1000],
    }
}

fn encoded(facts: &ContainerFacts) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::new();
    facts.encode(&mut out)?;
    Ok(out)
}

#[test]
fn version_2_bytes_never_change() {
    let golden = golden("container_facts_v2", &encoded(&facts()).expect("valid"));
    assert_eq!(ContainerFacts::decode(&golden), Ok(facts()));
    let place = ChunkPlace { container: 0x0102_0304, chunk: 5 };
    assert_eq!(hex::encode(place.encode()), "0403020105000000");
    let key = StreamKey { sample: 0x0102, series: SeriesKey([9; 16]) };
    assert_eq!(hex::encode(key.encode()), format!("0000000000000102{}", "09".repeat(16)));
    assert_eq!((ChunkPlace::decode(&place.encode()), StreamKey::decode(&key.encode())), (Ok(place), Ok(key)));
    assert_eq!(ChunkKey::of(&Fingerprint([3; 32])), ChunkKey([3; 20]));
}

#[test]
fn what_no_reader_accepts_is_not_written() {
    let written = |change: &dyn Fn(&mut ContainerFacts)| {
        let mut facts = facts();
        change(&mut facts);
        encoded(&facts).is_ok()
    };
    assert!(written(&|_| {}));
    assert!(!written(&|f| f.retired_chunks = 2001));
    assert!(!written(&|f| f.retired_bytes = (8 << 20) + 1));
    assert!(!written(&|f| f.users.swap(0, 1)));
    assert!(!written(&|f| f.users[0].lifespans.clear()));
    assert!(!written(&|f| f.users[0].lifespans.swap(0, 1)));
    assert!(!written(&|f| f.users[0].lifespans[0].last = Some(3)));
    assert!(!written(&|f| f.users[0].lifespans[0].last = None));
    assert!(!written(&|f| f.users[1].lifespans[0].last = Some(6)));
    assert!(!written(&|f| f.forwards[1] = 0));
    assert!(!written(&|f| f.layout = Layout::Lifecycle));
    assert!(!written(&|f| f.state = ContainerState::Arranged));
    let arranged = |f: &mut ContainerFacts| (f.state, f.layout) = (ContainerState::Arranged, Layout::Lifecycle);
    assert!(written(&|f| (arranged(f), f.users.truncate(1)).1));
}

#[test]
fn a_lifespan_contains_its_ends() {
    let span = |first, last| Lifespan { first, last };
    assert!(!span(3, Some(5)).contains(2) && span(3, Some(5)).contains(3));
    assert!(span(3, Some(5)).contains(5) && !span(3, Some(5)).contains(6));
    assert!(span(3, None).contains(u32::MAX));
}

proptest! {
    #[test]
    fn facts_survive(
        numbers: [u32; 4], bytes: [u32; 3], kind: bool, state in 0usize..4, is_lifecycle: bool,
        users in prop::collection::btree_map(any::<[u8; 16]>(), prop::collection::btree_set(0u32..1000, 1..9), 0..5),
        forwards in prop::collection::btree_set(any::<u32>(), 0..9),
    ) {
        // Every two numbers are the ends of a lifespan; a last one alone is open.
        let spans = |ends: std::collections::BTreeSet<u32>| -> Vec<Lifespan> {
            let ends: Vec<u32> = ends.into_iter().collect();
            ends.chunks(2).map(|ends| Lifespan { first: ends[0], last: ends.get(1).copied() }).collect()
        };
        let facts = ContainerFacts {
            id: ContainerId {
                kind: if kind { ContainerKind::Data } else { ContainerKind::Meta },
                job: JobId([numbers[0] as u8; 16]),
                seq: numbers[1],
            },
            state: [ContainerState::Live, ContainerState::Queued, ContainerState::Gone, ContainerState::Arranged][state],
            layout: if is_lifecycle || state == 3 { Layout::Lifecycle } else { Layout::Standard },
            chunks: numbers[2].max(numbers[3]),
            bytes: u64::from(bytes[0]) + u64::from(bytes[1]),
            object_bytes: u64::from(bytes[2]) << 20,
            retired_chunks: numbers[2].min(numbers[3]),
            retired_bytes: bytes[0].into(),
            users: users.into_iter().take(if is_lifecycle || state == 3 { 1 } else { 9 }).map(|(series, ends)| SeriesLifespans {
                series: SeriesKey(series), lifespans: spans(ends),
            }).collect(),
            forwards: forwards.into_iter().collect(),
        };
        let bytes = encoded(&facts).expect("valid");
        prop_assert_eq!(ContainerFacts::decode(&bytes), Ok(facts));
        for len in 0..bytes.len() {
            prop_assert!(ContainerFacts::decode(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for bytes in [bytes.clone(), [&[1], &bytes[..]].concat(), [&[1, 0, 0], &bytes[..]].concat()] {
            if let Ok(facts) = ContainerFacts::decode(&bytes) {
                prop_assert_eq!(encoded(&facts).expect("it was read"), bytes);
            }
        }
    }
}

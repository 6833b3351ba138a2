//! The log: golden bytes, damage, and records that survive.

use super::*;
use crate::Fingerprint;
use crate::compress::Codec;
use crate::container::{ChunkEntry, ChunkKind, FrameEntry};
use crate::golden::{all_damage_is_noticed, golden, keys};
use crate::keys::MasterKey;
use crate::volume_manifest::{Parent, SnapshotEntry, VolumeEntry};
use crate::volume_map::Mapping;
use proptest::prelude::*;

const USE: SlotUse = SlotUse { slot: 2, salt: [8; 16] };

fn key() -> SlotKey {
    SlotKey::of(&keys(), USE).expect("all keys")
}

fn sample() -> Record {
    let chunk = |n| ChunkEntry { fingerprint: Fingerprint([n; 32]), size: 500, kind: ChunkKind::Plain };
    let frames = FramesEvent {
        container: 3,
        first: 7,
        frames: vec![FrameEntry { codec: Codec::Zstd, raw_len: 1000, sealed_len: 432 }],
        chunks: vec![chunk(1), chunk(2)],
    };
    let mapping = crate::volume_map::tests::sample();
    let events = vec![
        Event::Frames(frames),
        Event::Wrote { volume: 1, block: 77, version: 300, mapping },
        Event::Wrote { volume: 1, block: 78, version: 301, mapping: Mapping::ZERO },
        Event::NextSlot(SlotUse { slot: 3, salt: [4; 16] }),
    ];
    let volume = VolumeEntry { id: 4, name: "disk".into(), size: 1 << 20, created_ms: 7, parent: None };
    let snapshot = SnapshotEntry {
        id: 5,
        volume: 4,
        name: "monday".into(),
        version: 300,
        size: 1 << 20,
        created_ms: 8,
        mark: Some("backup".into()),
    };
    let changes = [
        VolumeChange::Volume(volume.clone()),
        VolumeChange::Volume(VolumeEntry { parent: Some(Parent::Snapshot(5)), ..volume.clone() }),
        VolumeChange::Volume(VolumeEntry { parent: Some(Parent::Outside("version".into())), ..volume }),
        VolumeChange::Snapshot(SnapshotEntry { mark: None, ..snapshot.clone() }),
        VolumeChange::Snapshot(snapshot),
        VolumeChange::SnapshotDeleted(300),
        VolumeChange::Deleted(4),
    ];
    let events = events.into_iter().chain(changes.map(Event::Volume)).collect();
    Record { seq: 9, durable_upto: 8, events }
}

#[test]
fn bytes_never_change() {
    let header = golden("volume_log_header_v2", &key().encode_header(9));
    assert_eq!(key().decode_header(&header), Ok(9));
    let record = golden("volume_log_record_v2", &key().seal(1024, &sample()).expect("fits"));
    assert_eq!(record_len(&record), Some((9, record.len())));
    assert_eq!(key().open(1024, &record), Ok(sample()));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    all_damage_is_noticed(&key().encode_header(9), |bytes| key().decode_header(bytes).is_ok());
    let record = key().seal(1024, &sample()).expect("fits");
    all_damage_is_noticed(&record, |bytes| key().open(1024, bytes).is_ok());
}

#[test]
fn a_record_is_bound_to_its_slot_its_use_and_its_offset() {
    let record = key().seal(1024, &sample()).expect("fits");
    let others = [SlotUse { slot: 3, ..USE }, SlotUse { salt: [9; 16], ..USE }];
    for other in others.map(|other| SlotKey::of(&keys(), other).expect("all keys")) {
        assert!(other.open(1024, &record).is_err());
        assert!(other.decode_header(&key().encode_header(9)).is_err());
    }
    assert!(key().open(1536, &record).is_err());
    let stranger = SlotKey::of(&crate::keys::Keys::derive(&MasterKey([2; 32])), USE).expect("all keys");
    assert!(stranger.open(1024, &record).is_err());
}

proptest! {
    #[test]
    fn any_plain_text_is_events_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), at: usize, byte: u8) {
        drop(decode_plain(&bytes));
        let record = sample();
        let mut plain = vec![8, record.events.len() as u8];
        record.events.iter().for_each(|event| event.encode(&mut plain).expect("fits"));
        prop_assert_eq!(decode_plain(&plain), Ok((8, record.events)));
        let at = at % plain.len();
        plain[at] = byte;
        if let Ok((_, events)) = decode_plain(&plain) {
            let mut again = Vec::new();
            events.iter().for_each(|event| event.encode(&mut again).expect("it was read"));
            prop_assert!(plain.ends_with(&again));
        }
    }
}

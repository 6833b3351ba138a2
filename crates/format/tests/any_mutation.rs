//! Whatever is done to a valid encoding, decoding it gives an error or a valid value, never a panic.
//!
//! Damage from outside does not get past the authentication tags; this is about what lies behind them: a program with the key
//! and a bug, or somebody who has the key of one machine and wants to break another. "Valid" is checked by encoding the value
//! again, which must give bytes that decode to the same value, and by what the types promise.

mod support;

use larder_format::compress::Decompressor;
use larder_format::config::UnverifiedConfig;
use larder_format::container::{ContainerIndex, open_frame};
use larder_format::entry::{Entry, is_valid_path, path_order};
use larder_format::ids::ContainerKind;
use larder_format::key_file::{self, KdfCost, KeyFields};
use larder_format::lease::Lease;
use larder_format::manifest::{Head, Manifest, Register, Summary};
use larder_format::metadata::{Block, BlockBuilder, decode_block};
use larder_format::seal::MasterKey;
use larder_format::{names, recipe, segment};
use proptest::prelude::*;
use support::mutate::{damaged, damages};
use support::{ContainerParts, Forger, JOB, SERIES, keys};

fn blocks(entries: &[Entry]) -> Vec<Block> {
    let mut builder = BlockBuilder::new();
    let mut blocks: Vec<_> = entries.iter().filter_map(|entry| builder.push(entry)).collect();
    blocks.extend(builder.finish());
    blocks
}

fn container_parts() -> ContainerParts {
    let sizes = [300u64, 200, 41];
    let chunk_table =
        [vec![1, 0], vec![7; 96], sizes.iter().flat_map(|size| support::varint(*size)).collect()].concat();
    let frame = |raw: usize| [vec![0], support::varint(raw as u64), support::varint(raw as u64 + 16)].concat();
    ContainerParts {
        frames: vec![vec![1; 500], vec![2; 41]],
        chunk_table,
        frame_table: [vec![1], frame(500), frame(41)].concat(),
        chunk_count: 3,
        frame_count: 2,
        payload_len: 541,
        table_lens: [None, None],
    }
}

/// Opens everything in a container; errors are fine, broken promises are not.
fn check_container(object: &[u8]) -> Result<(), TestCaseError> {
    let id = support::container_id(ContainerKind::Data, JOB, 3);
    let object_len = object.len() as u64;
    if let Ok(tail) = ContainerIndex::tail_len(&keys(), id, object, object_len) {
        prop_assert!(tail as u64 <= object_len);
    }
    let Ok(index) = ContainerIndex::decode(&keys(), id, object, object_len) else { return Ok(()) };
    let mut end = 0;
    for frame in index.frames() {
        prop_assert_eq!(frame.payload_range().start, end);
        end = frame.payload_range().end;
        let range = frame.object_range();
        let mut sealed = object[range.start as usize..range.end as usize].to_vec();
        let mut raw = vec![0; frame.entry.raw_len as usize];
        let _ = open_frame(&keys(), id, frame, &mut sealed, &mut raw, &mut Decompressor::new());
        let _ = open_frame(&keys(), id, frame, &mut sealed, &mut [], &mut Decompressor::new());
    }
    prop_assert_eq!(end, index.payload_len);
    for chunk in index.chunk_refs() {
        let frame = index.frame_at(chunk.offset).expect("every chunk has a frame");
        prop_assert!(frame.payload_range().end >= chunk.offset + chunk.size);
    }
    Ok(())
}

#[test]
fn the_forger_makes_what_the_crate_reads() {
    let id = support::container_id(ContainerKind::Data, JOB, 3);
    let object = Forger::new().container(id, &container_parts());
    let index = ContainerIndex::decode(&keys(), id, &object, object.len() as u64).expect("reads");
    assert_eq!((index.chunks.len(), index.frames().len()), (3, 2));
    check_container(&object).expect("keeps its promises");
    let [summary, body] = support::manifest_parts();
    let object = Forger::new().object(&names::version(SERIES, JOB, 0), b"LMAN", &[&summary, &body]);
    assert_eq!(Manifest::decode(&keys(), SERIES, JOB, 0, &object), Ok(Register::Committed(support::manifest())));
}

#[test]
fn tables_that_claim_to_be_longer_than_their_object_are_refused() {
    let id = support::container_id(ContainerKind::Data, JOB, 3);
    for lens in [[Some(u32::MAX), Some(u32::MAX)], [Some(10_000), None], [None, Some(u32::MAX)]] {
        let object = Forger::new().container(id, &ContainerParts { table_lens: lens, ..container_parts() });
        assert!(ContainerIndex::tail_len(&keys(), id, &object, object.len() as u64).is_err());
        assert!(ContainerIndex::decode(&keys(), id, &object, object.len() as u64).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn of_a_segment(damages in damages()) {
        if let Ok(records) = segment::decode(&damaged(&segment::encode(&support::records()), &damages)) {
            prop_assert_eq!(segment::decode(&segment::encode(&records)), Ok(records));
        }
    }

    #[test]
    fn of_a_recipe_node(damages in damages()) {
        if let Ok(segments) = recipe::decode_node(&damaged(&recipe::encode_node(&support::segments()), &damages)) {
            prop_assert_eq!(recipe::decode_node(&recipe::encode_node(&segments)), Ok(segments));
        }
    }

    #[test]
    fn of_a_metadata_block(damages in damages()) {
        let valid = &blocks(&support::entries())[0].bytes;
        if let Ok(entries) = decode_block(&damaged(valid, &damages)) {
            for entry in &entries {
                prop_assert!(is_valid_path(&entry.path));
                prop_assert!(entry.stored_bytes() <= entry.size());
            }
            prop_assert!(entries.is_sorted_by(|a, b| path_order(&a.path, &b.path).is_lt()));
            let again = blocks(&entries);
            let decoded: Vec<_> =
                again.iter().flat_map(|block| decode_block(&block.bytes).expect("what is encoded is decoded")).collect();
            prop_assert_eq!(decoded, entries);
        }
    }

    #[test]
    fn of_the_parts_of_a_manifest(summary_damages in damages(), body_damages in damages(), which in 0..3) {
        let [mut summary, mut body] = support::manifest_parts();
        if which != 1 {
            summary = damaged(&summary, &summary_damages);
        }
        if which != 0 {
            body = damaged(&body, &body_damages);
        }
        let object = Forger::new().object(&names::version(SERIES, JOB, 0), b"LMAN", &[&summary, &body]);
        let head = Summary::decode_head(&keys(), SERIES, JOB, 0, &object);
        if let Ok(Register::Committed(manifest)) = Manifest::decode(&keys(), SERIES, JOB, 0, &object) {
            prop_assert_eq!(head, Ok(Head::Complete(Register::Committed(Box::new(manifest.summary.clone())))));
            let again = manifest.encode(&keys(), SERIES, 0, [3; 16]);
            prop_assert_eq!(Manifest::decode(&keys(), SERIES, JOB, 0, &again), Ok(Register::Committed(manifest)));
        }
    }

    #[test]
    fn of_a_sealed_object_from_outside(damages in damages()) {
        let valid = support::manifest().encode(&keys(), SERIES, 0, [9; 16]);
        let object = damaged(&valid, &damages);
        if object != valid {
            prop_assert!(Manifest::decode(&keys(), SERIES, JOB, 0, &object).is_err());
        }
        if let Ok(Head::Complete(Register::Committed(summary))) = Summary::decode_head(&keys(), SERIES, JOB, 0, &object) {
            prop_assert_eq!(*summary, support::manifest().summary);
        }
    }

    #[test]
    fn of_a_lease(damages in damages()) {
        let name = names::lease(JOB, 4);
        let plain = support::open(&name, &support::lease().encode(&keys(), JOB, 4, [9; 16])).remove(0);
        let object = Forger::new().object(&name, b"LLSE", &[&damaged(&plain, &damages)]);
        if let Ok(lease) = Lease::decode(&keys(), JOB, 4, &object) {
            let again = lease.encode(&keys(), JOB, 4, [3; 16]);
            prop_assert_eq!(Lease::decode(&keys(), JOB, 4, &again), Ok(lease));
        }
    }

    #[test]
    fn of_the_tables_of_a_container(
        chunk_damages in damages(), frame_damages in damages(), which in 0..4, chunks in 0u32..5, frames in 0u32..4,
    ) {
        let id = support::container_id(ContainerKind::Data, JOB, 3);
        let mut parts = container_parts();
        if which & 1 != 0 {
            parts.chunk_table = damaged(&parts.chunk_table, &chunk_damages);
            parts.chunk_count = chunks;
        }
        if which & 2 != 0 {
            parts.frame_table = damaged(&parts.frame_table, &frame_damages);
            parts.frame_count = frames;
        }
        check_container(&Forger::new().container(id, &parts))?;
    }

    #[test]
    fn of_a_compressed_frame(damages in damages()) {
        let raw: Vec<u8> = (0..2000u32).flat_map(|n| (n / 3).to_le_bytes()).collect();
        let mut stored = Vec::new();
        let codec = larder_format::compress::Compressor::new(larder_format::compress::Compression::DEFAULT)
            .compress(&raw, &mut stored);
        let mut out = vec![0; raw.len()];
        let _ = Decompressor::new().decompress_into(codec, &damaged(&stored, &damages), &mut out);
    }

    #[test]
    fn of_a_configuration(damages in damages(), forge: bool) {
        let valid = support::config().encode(&keys());
        let mut bytes = damaged(&valid[..valid.len() - 32], &damages);
        let key = blake3::derive_key("Larder format 1: configuration authentication", &support::MASTER);
        let mac = if forge { *blake3::keyed_hash(&key, &bytes).as_bytes() } else { [0; 32] };
        bytes.extend_from_slice(&mac);
        if let Ok(unverified) = UnverifiedConfig::decode(&bytes) {
            match unverified.verify(&keys()) {
                Ok(config) => {
                    prop_assert!(forge);
                    let again = UnverifiedConfig::decode(&config.encode(&keys())).expect("reads").verify(&keys());
                    prop_assert_eq!(again, Ok(config));
                }
                Err(_) => prop_assert!(!forge),
            }
        }
    }

    #[test]
    fn of_the_readable_part_of_a_key(damages in damages()) {
        let fields = KeyFields {
            cost: KdfCost::TEST,
            salt: [5; 32],
            user: "alice".to_owned(),
            host: "host".to_owned(),
            created_ms: 1_790_000_000_000,
        };
        let id = larder_format::ids::KeyId([3; 8]);
        let valid = key_file::wrap(&MasterKey(support::MASTER), b"secret", &fields, id, support::REPOSITORY).expect("wraps");
        let _ = key_file::read_fields(&damaged(&valid, &damages));
    }

    #[test]
    fn of_a_paper_key(damages in damages()) {
        let valid = key_file::to_paper(&MasterKey(support::MASTER), support::REPOSITORY).join("\n");
        let text = String::from_utf8_lossy(&damaged(valid.as_bytes(), &damages)).into_owned();
        if let Ok((master, repository)) = key_file::from_paper(&text) {
            prop_assert_eq!(master.0, support::MASTER);
            prop_assert_eq!(repository, support::REPOSITORY);
        }
    }

    #[test]
    fn of_an_object_name(damages in damages(), which in 0usize..7) {
        let id = |kind| support::container_id(kind, JOB, 10);
        let valid = [
            names::container(id(ContainerKind::Data)),
            names::container(id(ContainerKind::Meta)),
            names::lease(JOB, 10),
            names::lease_done(JOB),
            names::version(SERIES, JOB, 10),
            names::forgotten(SERIES, JOB),
            names::key(larder_format::ids::KeyId([3; 8])),
        ];
        let name = String::from_utf8_lossy(&damaged(valid[which].as_bytes(), &damages)).into_owned();
        // One object has one name: what is read from a name gives that name again.
        if let Some(id) = names::parse_container(&name) {
            prop_assert_eq!(names::container(id), name.clone());
        }
        if let Some((series, job, generation)) = names::parse_version(&name) {
            prop_assert_eq!(names::version(series, job, generation), name.clone());
        }
        if let Some((series, job)) = names::parse_forgotten(&name) {
            prop_assert_eq!(names::forgotten(series, job), name.clone());
        }
        if let Some(id) = names::parse_key(&name) {
            prop_assert_eq!(names::key(id), name.clone());
        }
        if let Some((job, object)) = names::parse_lease(&name) {
            let again = match object {
                names::LeaseObject::Renewal(number) => names::lease(job, number),
                names::LeaseObject::Done => names::lease_done(job),
            };
            prop_assert_eq!(again, name);
        }
    }
}

//! Manifests read back whole and by their head, and only unchanged and under their own name.

use proptest::prelude::*;

use super::*;
use crate::Fingerprint;
use crate::container::ChunkRef;
use crate::ids::ContainerKind;
use crate::recipe::{NodeRef, tests::recipe};
use crate::seal::MasterKey;

const SERIES: SeriesKey = SeriesKey([6; 16]);
const JOB: JobId = JobId([7; 16]);

fn keys() -> Keys {
    Keys::derive(&MasterKey([1; 32]))
}

fn manifest() -> Manifest {
    let container = ContainerId { kind: ContainerKind::Meta, job: JOB, seq: 0 };
    let chunk = ChunkRef { fingerprint: Fingerprint([8; 32]), container, offset: 5, size: 6 };
    let node = NodeRef { chunk, bytes: 1000, chunks: 3, segments: 1, cover: None };
    let summary = Summary {
        id: JOB,
        series: "host:/home".to_owned(),
        base: Some(JobId([5; 16])),
        time_ms: 1_790_000_000_000,
        started_ms: 1_790_000_000_001,
        ended_ms: 1_790_000_000_002,
        host: "host".to_owned(),
        user: "alice".to_owned(),
        tags: vec!["daily".to_owned()],
        paths: vec![b"/home/\xff".to_vec()],
        program: "larder 0.1.0".to_owned(),
        source: SourceKind::Tree,
        statistics: Statistics { files_new: 3, stored_bytes: 77, ..Statistics::default() },
        attempt: [4; 16],
    };
    let usage =
        ContainerUsage { container, chunks_used: 1, bytes_used: 6, chunks_held: 2, bytes_held: 11, object_bytes: 300 };
    let data = Recipe { nodes: vec![node] };
    Manifest { summary, data, metadata: Recipe::default(), containers: vec![usage] }
}

fn decode(bytes: &[u8]) -> Result<Register<Manifest>, DecodeError> {
    Manifest::decode(&keys(), SERIES, JOB, 0, bytes)
}

#[test]
fn version_1_bytes_never_change() {
    let golden = hex::decode(include_str!("../golden/manifest_v1.hex").trim()).expect("valid hex");
    assert_eq!(hex::encode(manifest().encode(&keys(), SERIES, 0, [9; 16])), hex::encode(&golden));
    assert_eq!(decode(&golden), Ok(Register::Committed(manifest())));
}

#[test]
fn the_summary_reads_from_the_head_alone() {
    let bytes = manifest().encode(&keys(), SERIES, 0, [9; 16]);
    let head = |len: usize| Summary::decode_head(&keys(), SERIES, JOB, 0, &bytes[..len]);
    let Ok(Head::Needs(needed)) = head(30) else { panic!("30 bytes are too few") };
    let complete = Head::Complete(Register::Committed(Box::new(manifest().summary)));
    assert_eq!(head(needed as usize), Ok(complete.clone()));
    assert_eq!(head(bytes.len()), Ok(complete));
}

#[test]
fn an_aborted_register_is_told_from_a_manifest() {
    let bytes = encode_aborted(&keys(), SERIES, JOB, [9; 16]);
    assert_eq!(decode(&bytes), Ok(Register::Aborted));
    assert_eq!(Summary::decode_head(&keys(), SERIES, JOB, 0, &bytes), Ok(Head::Complete(Register::Aborted)));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    for bytes in [manifest().encode(&keys(), SERIES, 0, [9; 16]), encode_aborted(&keys(), SERIES, JOB, [9; 16])] {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).is_err(), "bit {bit}");
            // The head may not see damage behind it, but must not give anything else than the truth.
            if let Ok(Head::Complete(Register::Committed(summary))) =
                Summary::decode_head(&keys(), SERIES, JOB, 0, &flipped)
            {
                assert_eq!(*summary, manifest().summary);
            }
        }
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "cut to {len}");
        }
    }
}

#[test]
fn a_manifest_is_bound_to_its_series_job_and_generation() {
    let bytes = manifest().encode(&keys(), SERIES, 0, [9; 16]);
    assert!(Manifest::decode(&keys(), SeriesKey([0; 16]), JOB, 0, &bytes).is_err());
    assert!(Manifest::decode(&keys(), SERIES, JobId([0; 16]), 0, &bytes).is_err());
    assert!(Manifest::decode(&keys(), SERIES, JOB, 1, &bytes).is_err());
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(data in recipe(), metadata in recipe()) {
        let manifest = Manifest { data, metadata, ..manifest() };
        let bytes = manifest.encode(&keys(), SERIES, 0, [3; 16]);
        prop_assert_eq!(decode(&bytes), Ok(Register::Committed(manifest)));
    }
}

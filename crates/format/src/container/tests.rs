//! Containers read back exactly the written data.

use proptest::prelude::*;

use super::*;
use crate::compress::{Compression, Compressor, Decompressor};
use crate::ids::{ContainerKind, JobId};
use crate::seal::{Keys, MasterKey};

fn keys() -> Keys {
    Keys::derive(&MasterKey([1; 32]))
}

fn id() -> ContainerId {
    ContainerId { kind: ContainerKind::Data, job: JobId([2; 16]), seq: 3 }
}

fn fingerprint(bytes: &[u8]) -> Fingerprint {
    Fingerprint(*blake3::hash(bytes).as_bytes())
}

/// Builds a container with `per_frame` chunks in each frame.
fn build(chunks: &[Vec<u8>], per_frame: usize, compression: Compression) -> Vec<u8> {
    let mut compressor = Compressor::new(compression);
    let mut builder = ContainerBuilder::new(id());
    for (number, frame) in chunks.chunks(per_frame).enumerate() {
        let frame = seal_frame(&keys(), id(), number as u32, &frame.concat(), &mut compressor);
        builder.push_frame(&frame.expect("in bounds"));
    }
    let table: Vec<_> = chunks
        .iter()
        .map(|chunk| ChunkEntry { fingerprint: fingerprint(chunk), size: chunk.len() as u32, kind: ChunkKind::Plain })
        .collect();
    builder.finish(&keys(), &table).expect("in bounds")
}

/// Reads every chunk of a container, or the first error.
fn read(object: &[u8]) -> Result<Vec<Vec<u8>>, crate::DecodeError> {
    let index = ContainerIndex::decode(&keys(), id(), object, object.len() as u64)?;
    let mut payload = Vec::new();
    for frame in index.frames() {
        let range = frame.object_range();
        let mut sealed = object[range.start as usize..range.end as usize].to_vec();
        let mut raw = vec![0; frame.entry.raw_len as usize];
        open_frame(&keys(), id(), frame, &mut sealed, &mut raw, &mut Decompressor::new())?;
        payload.extend_from_slice(&raw);
    }
    Ok(index.chunk_refs().map(|chunk| payload[chunk.offset as usize..][..chunk.size as usize].to_vec()).collect())
}

#[test]
fn version_1_bytes_never_change() {
    let chunks = [b"hello hello hello hello hello hello hello".to_vec(), b"larder".to_vec()];
    let golden = hex::decode(include_str!("../golden/container_v1.hex").trim()).expect("valid hex");
    // The bytes of zstd may change with its version, so the golden container is written raw.
    assert_eq!(hex::encode(build(&chunks, 1, Compression::Off)), hex::encode(&golden));
    assert_eq!(read(&golden).unwrap(), chunks);
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let chunks = [vec![7; 300], b"abc".to_vec()];
    let object = build(&chunks, 1, Compression::DEFAULT);
    for bit in 0..object.len() * 8 {
        let mut flipped = object.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&flipped).is_err(), "bit {bit}");
    }
    for len in 0..object.len() {
        assert!(read(&object[..len]).is_err(), "cut to {len}");
    }
}

#[test]
fn what_no_reader_accepts_is_not_written() {
    let mut off = Compressor::new(Compression::Off);
    let mut seal = |raw: &[u8]| seal_frame(&keys(), id(), 0, raw, &mut off);
    assert!(seal(b"").is_err());
    assert!(seal(&vec![0; FRAME_MAX + 1]).is_err());
    let frame = seal(b"abcdef").expect("in bounds");
    let chunk = |size| ChunkEntry { fingerprint: Fingerprint([1; 32]), size, kind: ChunkKind::Plain };
    let finish = |frames: usize, sizes: &[u32]| {
        let mut builder = ContainerBuilder::new(id());
        (0..frames).for_each(|_| builder.push_frame(&frame));
        builder.finish(&keys(), &sizes.iter().map(|size| chunk(*size)).collect::<Vec<_>>())
    };
    assert!(finish(2, &[2, 4, 6]).is_ok());
    for (frames, sizes) in [
        (1, &[2, 3][..]),
        (1, &[2, 4, 1]),
        (2, &[4, 4, 4]),
        (1, &[6, 0]),
        (1, &[0, 6]),
        (0, &[1]),
        // A container larger than a reader holds, and sizes that would add up to 6 with 32 bits.
        (1, &[PAYLOAD_MAX, 1]),
        (1, &[u32::MAX, 1, 6]),
    ] {
        assert!(finish(frames, sizes).is_err(), "{frames} frames, {sizes:?}");
    }
}

#[test]
fn a_container_under_another_name_does_not_open() {
    let object = build(&[b"abc".to_vec()], 1, Compression::Off);
    let other = ContainerId { seq: 4, ..id() };
    let result = ContainerIndex::decode(&keys(), other, &object, object.len() as u64);
    assert_eq!(result.err(), Some(crate::DecodeError::NotAuthentic { what: "container trailer" }));
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut object = build(&[b"abc".to_vec()], 1, Compression::Off);
    *object.last_mut().unwrap() = 9;
    let read = |object: &[u8]| ContainerIndex::decode(&keys(), id(), object, object.len() as u64).err();
    // The rest of the trailer is of this version, so that this byte is damaged.
    assert_eq!(read(&object), Some(crate::DecodeError::BadMagic { what: "container", found: *b"LCT\x09" }));
    let before = object.len() - TRAILER_LEN;
    object[before] ^= 1;
    assert_eq!(read(&object), Some(crate::DecodeError::UnsupportedVersion { what: "container", found: 9, newest: 1 }));
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        chunks in prop::collection::vec(prop::collection::vec(0u8..4, 1..2000), 0..40),
        per_frame in 1usize..9,
        level in -3i32..4,
    ) {
        let object = build(&chunks, per_frame, Compression::Zstd(level));
        prop_assert_eq!(read(&object).unwrap(), chunks.clone());
        let index = ContainerIndex::decode(&keys(), id(), &object, object.len() as u64).unwrap();
        let tail = ContainerIndex::tail_len(&keys(), id(), &object[object.len() - TRAILER_LEN..], object.len() as u64);
        let from = object.len() - tail.unwrap();
        let from_tail = ContainerIndex::decode(&keys(), id(), &object[from..], object.len() as u64).unwrap();
        prop_assert_eq!(&index.chunks, &from_tail.chunks);
        for chunk in index.chunk_refs() {
            let frame = index.frame_at(chunk.offset).expect("every chunk has a frame");
            prop_assert!(frame.payload_range().end >= chunk.offset + chunk.size);
        }
        prop_assert_eq!(index.frame_at(index.payload_len), None);
    }

    #[test]
    fn any_bytes_are_an_error_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(read(&bytes).is_err());
    }
}

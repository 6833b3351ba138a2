//! Containers read back exactly the written data.

use proptest::prelude::*;

use super::*;
use crate::DecodeError;
use crate::compress::{Compression, Compressor, Decompressor};
use crate::golden::{all_damage_is_noticed, golden};
use crate::ids::{ContainerKind, DomainId, JobId};
use crate::keys::Keys;
use crate::padding::Padding;
use crate::roles::Roles;

const DOMAIN: DomainId = DomainId([5; 16]);
/// Steps of 4 KiB.
const PADDING_OF: u32 = 64;

fn keys() -> Keys {
    crate::golden::keys()
}

/// The keys of a role, as a key object gives them.
fn role(roles: Roles, domain: DomainId) -> Keys {
    let secrets = keys().secrets().for_roles(roles, domain, None).expect("the master key makes all");
    Keys::of(secrets, keys().opening_public().clone()).expect("its own")
}

fn id() -> ContainerId {
    ContainerId { kind: ContainerKind::Data, job: JobId([2; 16]), seq: 3 }
}

fn meta() -> ContainerId {
    ContainerId { kind: ContainerKind::Meta, ..id() }
}

fn fingerprint(bytes: &[u8]) -> Fingerprint {
    Fingerprint(*blake3::hash(bytes).as_bytes())
}

fn entry(chunk: &[u8]) -> ChunkEntry {
    ChunkEntry { fingerprint: fingerprint(chunk), size: chunk.len() as u32, kind: ChunkKind::Plain }
}

fn sealer(id: ContainerId) -> ContainerSealer {
    ContainerSealer::new(&keys(), id, DOMAIN, [9; 32]).expect("all keys")
}

/// Builds a container with `per_frame` chunks in each frame.
fn build_with(sealer: &ContainerSealer, chunks: &[Vec<u8>], per_frame: usize, compression: Compression) -> Vec<u8> {
    let mut compressor = Compressor::new(compression);
    let mut builder = ContainerBuilder::new();
    let table: Vec<_> = chunks.iter().map(|chunk| entry(chunk)).collect();
    for (number, (frame, entries)) in chunks.chunks(per_frame).zip(table.chunks(per_frame)).enumerate() {
        let frame = seal_frame(sealer, number as u32, &frame.concat(), entries, &mut compressor);
        builder.push_frame(&frame.expect("in bounds"));
    }
    builder.finish(sealer, &table, Padding::for_chunks(PADDING_OF)).expect("in bounds")
}

fn build(chunks: &[Vec<u8>], per_frame: usize, compression: Compression) -> Vec<u8> {
    build_with(&sealer(id()), chunks, per_frame, compression)
}

/// Reads every chunk of a container, or the first error.
fn read_with(keys: &Keys, id: ContainerId, object: &[u8]) -> Result<Vec<Vec<u8>>, DecodeError> {
    let index = ContainerIndex::decode(keys, id, object, object.len() as u64)?;
    let mut payload = Vec::new();
    for frame in index.frames() {
        let range = frame.object_range();
        let mut sealed = object[range.start as usize..range.end as usize].to_vec();
        let mut raw = vec![0; frame.entry.raw_len as usize];
        index.opener().open_frame(keys, frame, &mut sealed, &mut raw, &mut Decompressor::new())?;
        payload.extend_from_slice(&raw);
    }
    Ok(index.chunk_refs().map(|chunk| payload[chunk.offset as usize..][..chunk.size as usize].to_vec()).collect())
}

fn read(object: &[u8]) -> Result<Vec<Vec<u8>>, DecodeError> {
    read_with(&keys(), id(), object)
}

fn hello() -> [Vec<u8>; 2] {
    [b"hello hello hello hello hello hello hello".to_vec(), b"larder".to_vec()]
}

/// The same container with other random bytes.
fn build_again(chunks: &[Vec<u8>]) -> Vec<u8> {
    let sealer = ContainerSealer::new(&keys(), id(), DOMAIN, [77; 32]).expect("all keys");
    build_with(&sealer, chunks, 1, Compression::Off)
}

/// The bytes of zstd may change with its version, so the golden containers are written raw.
#[test]
fn version_2_bytes_never_change() {
    let sealer = ContainerSealer::new(&keys(), id(), DOMAIN, [9; 32]).expect("all keys");
    let golden_data = golden("container_v2", &build_with(&sealer, &hello(), 1, Compression::Off));
    let index = ContainerIndex::decode(&keys(), id(), &golden_data, golden_data.len() as u64).expect("its tables open");
    assert_eq!((index.domain, index.frames().len(), index.chunks.len()), (DOMAIN, 2, 2));
    let meta_sealer = ContainerSealer::new(&keys(), meta(), DOMAIN, [9; 32]).expect("all keys");
    let golden_meta = golden("meta_container_v2", &build_with(&meta_sealer, &hello(), 1, Compression::Off));
    assert_eq!(read_with(&keys(), meta(), &golden_meta).expect("reads"), hello());
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let chunks = [vec![7; 300], b"abc".to_vec()];
    all_damage_is_noticed(&build(&chunks, 1, Compression::DEFAULT), |object| read(object).is_ok());
    let object = build_with(&sealer(meta()), &chunks, 1, Compression::DEFAULT);
    all_damage_is_noticed(&object, |object| read_with(&keys(), meta(), object).is_ok());
}

/// A client that may not open frames notices a damaged or foreign wrap all the same.
#[test]
fn tables_vouch_for_wrap_and_domain() {
    let backup = role(Roles::BACKUP, DOMAIN);
    let (object, other) = (build(&hello(), 1, Compression::Off), build_again(&hello()));
    let decode = |object: &[u8]| ContainerIndex::decode(&backup, id(), object, object.len() as u64).map(|_| ());
    assert_eq!(decode(&object), Ok(()));
    let (from, to) = (object.len() - TRAILER_LEN, object.len() - TRAILER_LEN + WRAP_LEN);
    assert_ne!(object[from..to], other[from..to], "drawn for each");
    let trailer = DecodeError::NotAuthentic { what: "container trailer" };
    let mut swapped = object.clone();
    swapped[from..to].copy_from_slice(&other[from..to]);
    assert_eq!(decode(&swapped), Err(trailer.clone()));
    for at in [from, from + 600, to - 1] {
        let mut flipped = object.clone();
        flipped[at] ^= 1;
        assert_eq!(decode(&flipped), Err(trailer.clone()), "byte {at}");
    }
    // A domain that the key knows as well.
    let mut moved = object.clone();
    let domain = moved.len() - 20..moved.len() - 4;
    moved[domain].copy_from_slice(&[6; 16]);
    assert_eq!(ContainerIndex::decode(&keys(), id(), &moved, moved.len() as u64).err(), Some(trailer));
}

/// The parts of two containers of one job, of one name, changed about: only whole containers pass.
#[test]
fn parts_do_not_move_between_containers() {
    let (one, two) = (build(&hello(), 1, Compression::Off), build_again(&hello()));
    assert_eq!(one.len(), two.len());
    let index = ContainerIndex::decode(&keys(), id(), &one, one.len() as u64).expect("reads");
    let first = index.frames()[0].object_range();
    let mut swapped = one.clone();
    swapped[..first.end as usize].copy_from_slice(&two[..first.end as usize]);
    assert_eq!(read(&swapped), Err(DecodeError::NotAuthentic { what: "frame" }), "the secret is another");
    // Data and metadata have keys of their own, and so have two numbers.
    for other in [meta(), ContainerId { seq: 4, ..id() }] {
        assert!(read_with(&keys(), other, &one).is_err());
    }
    // Metadata of one domain is not that of another, under the same name.
    let of = |domain| {
        let sealer = ContainerSealer::new(&keys(), meta(), domain, [9; 32]).expect("all keys");
        build_with(&sealer, &hello(), 1, Compression::Off)
    };
    let (own, foreign) = (of(DOMAIN), of(DomainId([6; 16])));
    let mut moved = own.clone();
    moved[..100].copy_from_slice(&foreign[..100]);
    assert!(read_with(&keys(), meta(), &own).is_ok() && read_with(&keys(), meta(), &moved).is_err());
}

/// The table of roles in `keys.rs`, as far as containers go.
#[test]
fn each_role_opens_what_it_may() {
    let (data, metadata) =
        (build(&hello(), 1, Compression::DEFAULT), { build_with(&sealer(meta()), &hello(), 1, Compression::DEFAULT) });
    let lacks = |what| Err(DecodeError::KeyLacks { what, needs: Roles::RESTORE });
    let tables = |keys: &Keys, object: &[u8], id| {
        ContainerIndex::decode(keys, id, object, object.len() as u64).map(|index| index.chunks.len())
    };
    for roles in [Roles::RESTORE, Roles::OPERATE.and(Roles::RESTORE), Roles::ALL] {
        let keys = role(roles, DomainId::DEFAULT);
        assert_eq!(read_with(&keys, id(), &data), Ok(hello().to_vec()), "{roles}");
        assert_eq!(read_with(&keys, meta(), &metadata), Ok(hello().to_vec()), "{roles}");
    }
    let operate = role(Roles::OPERATE, DomainId::DEFAULT);
    assert_eq!(tables(&operate, &data, id()), Ok(2));
    assert_eq!(read_with(&operate, id(), &data), lacks("frame"));
    assert_eq!(read_with(&operate, meta(), &metadata), Ok(hello().to_vec()));
    assert!(ContainerSealer::new(&operate, id(), DOMAIN, [9; 32]).is_err(), "it makes no data");
    // A key that backs up: its own tables and metadata; no data, not even its own.
    let backup = role(Roles::BACKUP, DOMAIN);
    let own = ContainerSealer::new(&backup, id(), DOMAIN, [9; 32]).expect("it may write");
    let own = build_with(&own, &hello(), 1, Compression::DEFAULT);
    assert_eq!(read(&own), Ok(hello().to_vec()));
    assert_eq!(tables(&backup, &own, id()), Ok(2));
    assert_eq!(read_with(&backup, id(), &own), lacks("frame"));
    assert_eq!(read_with(&backup, meta(), &metadata), Ok(hello().to_vec()));
    let stranger = role(Roles::BACKUP, DomainId([6; 16]));
    for (object, id) in [(&data, id()), (&metadata, meta())] {
        assert_eq!(
            tables(&stranger, object, id),
            Err(DecodeError::KeyLacks { what: "container", needs: Roles::RESTORE })
        );
        assert!(ContainerSealer::new(&stranger, id, DOMAIN, [9; 32]).is_err(), "nor does it write there");
    }
}

/// Padding follows the length alone, and is checked by who reads it.
#[test]
fn lengths_are_steps_and_padding_is_zeros() {
    for (size, len) in [(1, 4096), (700, 4096), (2500, 4096), (2900, 8192), (20_000, 24_576)] {
        let chunk: Vec<u8> = (0..size as u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        assert_eq!(build(&[chunk], 1, Compression::Off).len(), len, "a chunk of {size} bytes");
    }
    let sealer = sealer(id());
    let mut builder = ContainerBuilder::new();
    let frame = seal_frame(&sealer, 0, b"abc", &[entry(b"abc")], &mut Compressor::new(Compression::Off));
    builder.push_frame(&frame.expect("in bounds"));
    let mut object = builder.finish(&sealer, &[entry(b"abc")], Padding::for_chunks(PADDING_OF)).expect("in bounds");
    assert!(read(&object).is_ok());
    // The same padding with a byte that is not zero, sealed as well as the writer can.
    let tables = 32 + 2 + 33 + 32 + 1 + 3;
    let pad = 3 + 32..object.len() - TRAILER_LEN - tables;
    let mut planted = vec![0; pad.len() - crate::seal::TAG_LEN];
    *planted.last_mut().expect("long") = 1;
    let aad = sealing::part_aad(DOMAIN);
    sealer.tables.seal(PADDING, &aad, [4; 16], &mut planted, 0);
    object[pad].copy_from_slice(&planted);
    assert_eq!(read(&object), Err(DecodeError::invalid("container", "bytes follow its end")));
}

#[test]
fn what_no_reader_accepts_is_not_written() {
    let sealer = sealer(id());
    let mut off = Compressor::new(Compression::Off);
    let mut seal = |raw: &[u8]| seal_frame(&sealer, 0, raw, &[entry(raw)], &mut off);
    assert!(seal(b"").is_err());
    assert!(seal(&vec![0; FRAME_MAX + 1]).is_err());
    let frame = seal(b"abcdef").expect("in bounds");
    for (raw_len, is_fine) in [(0, false), (FRAME_MAX as u32 + 1, false), (6, true)] {
        let compressed = CompressedFrame { codec: crate::compress::Codec::Raw, raw_len, bytes: b"abcdef".to_vec() };
        assert_eq!(seal_compressed(&sealer, 0, compressed).is_ok(), is_fine);
    }
    let chunk = |size| ChunkEntry { fingerprint: Fingerprint([1; 32]), size, kind: ChunkKind::Plain };
    let finish = |frames: usize, sizes: &[u32]| {
        let mut builder = ContainerBuilder::new();
        (0..frames).for_each(|_| builder.push_frame(&frame));
        let chunks: Vec<_> = sizes.iter().map(|size| chunk(*size)).collect();
        builder.finish(&sealer, &chunks, Padding::for_chunks(PADDING_OF))
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
    assert_eq!(result.err(), Some(DecodeError::NotAuthentic { what: "container trailer" }));
}

#[test]
fn other_versions_are_refused_by_name() {
    let object = build(&[b"abc".to_vec()], 1, Compression::Off);
    let read = |object: &[u8]| ContainerIndex::decode(&keys(), id(), object, object.len() as u64).err();
    for (version, refused) in [
        (1, DecodeError::Development { what: "container" }),
        (9, DecodeError::UnsupportedVersion { what: "container", found: 9, newest: 2 }),
    ] {
        let mut object = object.clone();
        *object.last_mut().unwrap() = version;
        // The rest of the trailer is of this version, so that this byte is damaged.
        let found = [b'L', b'C', b'T', version];
        assert_eq!(read(&object), Some(DecodeError::BadMagic { what: "container", found }));
        let before = object.len() - END_LEN;
        object[before] ^= 1;
        assert_eq!(read(&object), Some(refused.clone()));
        // Old containers are shorter than today's trailer.
        assert_eq!(read(&object[object.len() - 48..]), Some(refused));
    }
}

/// A machine that is resumed twice from one image of its memory draws the same random bytes twice.
#[test]
fn salts_follow_from_what_is_sealed() {
    let wrap = [7; WRAP_LEN];
    let sealer = || ContainerSealer::with_secret(&keys(), id(), DOMAIN, [9; 32], &[8; 32], wrap);
    let text: Vec<u8> = b"twenty-four bytes and so".repeat(40);
    let other: Vec<u8> = b"twenty-four bytes or so!".repeat(40);
    let frame = |raw: &[u8], level| {
        let mut compressor = Compressor::new(level);
        seal_frame(&sealer(), 0, raw, &[entry(raw)], &mut compressor).expect("in bounds").bytes
    };
    let moved = |raw: &[u8]| {
        let compressed = CompressedFrame { codec: crate::compress::Codec::Raw, raw_len: 960, bytes: raw.to_vec() };
        seal_compressed(&sealer(), 0, compressed).expect("in bounds").bytes
    };
    let object = |raw: &[u8]| build_with(&sealer(), &[raw.to_vec()], 1, Compression::Off);
    for seal in [&|raw: &[u8]| frame(raw, Compression::DEFAULT), &moved as &dyn Fn(&[u8]) -> Vec<u8>, &object] {
        assert_eq!(seal(&text), seal(&text), "equal texts give equal bytes");
        assert_ne!(seal(&text)[..16], seal(&other)[..16], "others have another key");
    }
    // Another level makes other bytes of the same chunks.
    let levels = [Compression::Off, Compression::Zstd(1), Compression::Zstd(3), Compression::Zstd(9)];
    let salts: std::collections::BTreeSet<_> = levels.map(|level| frame(&text, level)[..16].to_vec()).into();
    assert_eq!(salts.len(), levels.len());
    // Tables and trailer of the two containers have other salts as well, and so have two parts of
    // one.
    let salts = |object: &[u8]| {
        let end = object.len() - TRAILER_LEN;
        let chunk_table = end - (32 + 1 + 1 + 2 + 2) - (32 + 2 + 32 + 2);
        [0, 16 + 960 + 16, chunk_table, end - (32 + 1 + 1 + 2 + 2), object.len() - END_LEN]
            .map(|at| object[at..at + 16].to_vec())
    };
    let (one, two) = (salts(&object(&text)), salts(&object(&other)));
    // The frame tables and the padding of both are equal, and the trailers too.
    assert_eq!((&one[1], &one[3], &one[4]), (&two[1], &two[3], &two[4]));
    assert!(one[0] != two[0] && one[2] != two[2]);
    // A trailer is sealed with its wrap, so another wrap alone gives it another key.
    let other = ContainerSealer::with_secret(&keys(), id(), DOMAIN, [9; 32], &[8; 32], [6; WRAP_LEN]);
    let other = salts(&build_with(&other, std::slice::from_ref(&text), 1, Compression::Off));
    assert_eq!(&one[1..4], &other[1..4]);
    assert!(one[0] != other[0] && one[4] != other[4]);
    assert_eq!(std::collections::BTreeSet::from(one).len(), 5);
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        chunks in prop::collection::vec(prop::collection::vec(0u8..4, 1..2000), 0..40),
        per_frame in 1usize..9,
        level in -3i32..4,
    ) {
        let object = build(&chunks, per_frame, Compression::Zstd(level));
        prop_assert!(object.len().is_multiple_of(4096));
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
    fn any_bytes_are_an_error_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..1400)) {
        prop_assert!(read(&bytes).is_err() && read_with(&keys(), meta(), &bytes).is_err());
    }
}

/// The length of a container with one chunk more says nothing about that chunk: it grows by nothing
/// or by one step, and alone, all chunks give one length.
#[test]
fn one_chunk_does_not_show_in_the_length() {
    let default = larder_chunking::ChunkerParams::with_average(
        larder_chunking::Algorithm::DEFAULT,
        larder_chunking::DEFAULT_AVERAGE,
    );
    let padding = Padding::for_chunks(default.max);
    let len_of = |sizes: &[u32]| {
        let sealer = ContainerSealer::new(&keys(), id(), DOMAIN, [9; 32]).expect("all keys");
        let chunks: Vec<Vec<u8>> = sizes.iter().map(|size| vec![7; *size as usize]).collect();
        let table: Vec<_> = chunks.iter().map(|chunk| entry(chunk)).collect();
        let mut builder = ContainerBuilder::new();
        let mut off = Compressor::new(Compression::Off);
        builder.push_frame(&seal_frame(&sealer, 0, &chunks.concat(), &table, &mut off).expect("in bounds"));
        builder.finish(&sealer, &table, padding).expect("in bounds").len()
    };
    let alone: std::collections::BTreeSet<_> =
        (1..=default.max).step_by(61).chain([default.min, default.max]).map(|size| len_of(&[size])).collect();
    assert_eq!(alone.len(), 1, "{alone:?}");
    let before = len_of(&[5000; 40]);
    for size in (default.min..=default.max).step_by(377) {
        let grown = len_of(&[&[5000; 40][..], &[size]].concat()) - before;
        assert!(grown == 0 || grown == 8 << 10, "{size}: {grown}");
    }
}

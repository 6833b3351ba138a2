//! Manifests read back whole and by their head, and only unchanged and under their own name.

use proptest::prelude::*;

use super::*;
use crate::Fingerprint;
use crate::container::ChunkRef;
use crate::golden::golden;

use crate::ids::{ContainerKind, ContentDigest};
use crate::recipe::{Cover, NodeRef, tests::recipe};
use crate::roles::Roles;
use crate::witness::Witness;

const JOB: JobId = JobId([7; 16]);

fn keys() -> Keys {
    crate::golden::keys()
}

fn series() -> SeriesKey {
    keys().series_key("host:/home")
}

fn encode(manifest: &Manifest, salt: u8) -> Vec<u8> {
    manifest.encode(&keys(), series(), 0, [salt; 32]).expect("valid")
}

fn manifest() -> Manifest {
    let container = ContainerId { kind: ContainerKind::Meta, job: JOB, seq: 0 };
    let chunk = ChunkRef { fingerprint: Fingerprint([8; 32]), container, offset: 5, size: 6 };
    let content = ContentDigest([3; 32]);
    let node = NodeRef { chunk, content, bytes: 1000, chunks: 3, segments: 1, cover: None };
    let data = Recipe { nodes: vec![node] };
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
        sketch: Sketch::default(),
        layout: crate::layout::Layout::Standard,
        more_bases: Vec::new(),
        domain: DomainId::DEFAULT,
        is_signed: true,
        roots: ContentRoots::of(&data, &Recipe::default()),
        witness: None,
        domain_name: String::new(),
        domain_epoch: 0,
        origin: None,
    };
    let usage =
        ContainerUsage { container, chunks_used: 1, bytes_used: 6, chunks_held: 2, bytes_held: 11, object_bytes: 300 };
    Manifest { summary, data, metadata: Recipe::default(), containers: vec![usage] }
}

fn aborted() -> Vec<u8> {
    encode_aborted(&keys(), DomainId::DEFAULT, series(), JOB, 0, [9; 32]).expect("signed")
}

/// The same version over other recipes.
fn holding(data: Recipe, metadata: Recipe) -> Manifest {
    let roots = ContentRoots::of(&data, &metadata);
    Manifest { summary: Summary { roots, ..manifest().summary }, data, metadata, ..manifest() }
}

fn decode(bytes: &[u8]) -> Result<Register<Manifest>, DecodeError> {
    Manifest::decode(&keys(), series(), JOB, 0, bytes)
}

#[test]
fn version_2_bytes_never_change() {
    let golden = golden("manifest_v2", &encode(&manifest(), 9));
    assert_eq!(decode(&golden), Ok(Register::Committed(manifest())));
}

/// Bytes of the last key of a summary, the roots.
const ROOTS: usize = 1 + 2 + 64;

/// The sketch is a key of the summary's map, absent when empty.
#[test]
fn a_sketch_is_a_key_before_the_roots() {
    let without = cbor::encode(&manifest().summary);
    let summary =
        Summary { sketch: Sketch::new(vec![0x0123_4567_89ab_cdef, 64]), is_signed: false, ..manifest().summary };
    let with = cbor::encode(&summary);
    assert_eq!(cbor::decode::<Summary>(&with, "summary"), Ok(summary));
    assert_eq!(with[0], without[0] + 1);
    let (before, roots) = without.split_at(without.len() - ROOTS);
    assert_eq!(&with[1..before.len()], &before[1..]);
    let sketch = with[before.len()..].strip_suffix(roots).expect("the roots come last");
    assert_eq!(hex::encode(sketch), "0e504000000000000000efcdab8967452301");
}

/// The witness and the name of the domain come last, and are absent when there are none.
#[test]
fn witness_and_domain_are_keys_behind_the_roots() {
    let without = cbor::encode(&manifest().summary);
    let witness = Some(Witness { id: [7; 8], mac: [8; 16] });
    let summary = Summary { witness, domain_name: "laptops".to_owned(), is_signed: false, ..manifest().summary };
    let with = cbor::encode(&summary);
    assert_eq!(cbor::decode::<Summary>(&with, "summary"), Ok(summary));
    assert_eq!((with[0], &with[1..without.len()]), (without[0] + 2, &without[1..]));
    let added = ["125818", &"07".repeat(8), &"08".repeat(16), "13676c6170746f7073"].concat();
    assert_eq!(hex::encode(&with[without.len()..]), added);
}

/// So is the origin.
#[test]
fn an_origin_is_the_last_key() {
    let without = cbor::encode(&manifest().summary);
    let origin = Origin::of(RepositoryId([5; 16]), &manifest().summary);
    assert_eq!((origin.version, origin.first), (JOB, None));
    let summary = Summary { origin: Some(origin), is_signed: false, ..manifest().summary };
    let with = cbor::encode(&summary);
    assert_eq!(cbor::decode::<Summary>(&with, "summary"), Ok(summary.clone()));
    assert_eq!((with[0], &with[1..without.len()]), (without[0] + 1, &without[1..]));
    let roots = [origin.roots.data.0, origin.roots.metadata.0].concat();
    let added = ["15a3", "0050", &"05".repeat(16), "0150", &hex::encode(JOB.0), "025840", &hex::encode(roots)].concat();
    assert_eq!(hex::encode(&with[without.len()..]), added);
    // A chain names its first version too.
    let again = Origin::of(RepositoryId([6; 16]), &Summary { id: JobId([9; 16]), ..summary.clone() });
    assert_eq!((again.version, again.first), (JobId([9; 16]), Some(JOB)));
    let last = Origin::of(RepositoryId([6; 16]), &Summary { origin: Some(again), ..summary });
    assert_eq!(last.first, Some(JOB));
}

/// People believe the name.
#[test]
fn a_version_names_its_own_domain() {
    let domain = keys().domain_id("laptops", 0);
    let series = keys().series_key_in(domain, "host:/home");
    let named = |name: &str| {
        let summary = Summary { domain, domain_name: name.to_owned(), ..manifest().summary };
        Manifest { summary, ..manifest() }.encode(&keys(), series, 0, [1; 32])
    };
    let object = named("laptops").expect("its own");
    assert!(matches!(Manifest::decode(&keys(), series, JOB, 0, &object), Ok(Register::Committed(_))));
    assert!(named("").is_ok());
    assert!(named("servers").is_err());
}

/// So are further bases.
#[test]
fn further_bases_are_a_key_before_the_roots() {
    let without = cbor::encode(&manifest().summary);
    let summary = Summary { more_bases: vec![JobId([6; 16]), JobId([7; 16])], is_signed: false, ..manifest().summary };
    let with = cbor::encode(&summary);
    assert_eq!(cbor::decode::<Summary>(&with, "summary"), Ok(summary));
    assert_eq!(with[0], without[0] + 1);
    let (before, roots) = without.split_at(without.len() - ROOTS);
    assert_eq!(&with[1..before.len()], &before[1..]);
    let bases = ["10825006", &"06".repeat(15), "50", &"07".repeat(16)].concat();
    assert_eq!(hex::encode(with[before.len()..].strip_suffix(roots).expect("the roots come last")), bases);
}

#[test]
fn the_summary_reads_from_the_head_alone() {
    let bytes = encode(&manifest(), 9);
    let head = |len: usize| Summary::decode_head(&keys(), series(), JOB, 0, &bytes[..len]);
    let Ok(Head::Needs(needed)) = head(60) else { panic!("60 bytes are too few") };
    let complete = Head::Complete(Register::Committed(Box::new(manifest().summary)));
    assert_eq!(head(needed as usize), Ok(complete.clone()));
    assert_eq!(head(bytes.len()), Ok(complete));
}

#[test]
fn an_aborted_register_is_told_from_a_manifest() {
    let bytes = aborted();
    assert_eq!(decode(&bytes), Ok(Register::Aborted));
    assert_eq!(Summary::decode_head(&keys(), series(), JOB, 0, &bytes), Ok(Head::Complete(Register::Aborted)));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    for bytes in [encode(&manifest(), 9), aborted()] {
        // Of each byte one bit: a manifest is some thousands of bytes, and each try opens it.
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(decode(&flipped).is_err(), "byte {at}");
            // The head may not see damage behind it, but must not give anything else than the
            // truth.
            if let Ok(Head::Complete(Register::Committed(summary))) =
                Summary::decode_head(&keys(), series(), JOB, 0, &flipped)
            {
                assert_eq!(*summary, manifest().summary);
            }
            assert!(decode(&bytes[..at]).is_err(), "cut to {at}");
        }
    }
}

#[test]
fn only_an_operator_makes_later_generations_and_marks() {
    let backup =
        keys().secrets().for_roles(Roles::BACKUP.and(Roles::RESTORE), DomainId::DEFAULT, None).expect("all keys");
    let backup = Keys::of(backup, keys().opening_public().clone()).expect("its own");
    let unsigned = Manifest { summary: Summary { is_signed: false, ..manifest().summary }, ..manifest() };
    let bytes = unsigned.encode(&backup, series(), 0, [9; 32]).expect("its own domain");
    assert_eq!(decode(&bytes), Ok(Register::Committed(unsigned.clone())));
    assert!(unsigned.encode(&backup, series(), 1, [9; 32]).is_err());
    assert!(encode_aborted(&backup, DomainId::DEFAULT, series(), JOB, 0, [9; 32]).is_err());
    // The same without the writer's check.
    let name = names::version(series(), JOB, 1);
    let planted =
        seal_object(&backup, DomainId::DEFAULT, &name, MANIFEST, [9; 32], &[&cbor::encode(&unsigned.summary), &[2]]);
    let planted = planted.expect("sealed");
    let why = DecodeError::Unsigned { what: MANIFEST.what };
    assert_eq!(Manifest::decode(&keys(), series(), JOB, 1, &planted), Err(why.clone()));
    assert_eq!(Summary::decode_head(&keys(), series(), JOB, 1, &planted), Err(why));
    let mark = ObjectType { signing: Signing::IfAble, ..ABORTED };
    let planted =
        seal_empty(&backup, DomainId::DEFAULT, &names::version(series(), JOB, 0), mark, [9; 32]).expect("sealed");
    assert_eq!(decode(&planted), Err(DecodeError::Unsigned { what: ABORTED.what }));
}

/// A machine of one domain cannot make a version of a series of another: names in the store follow
/// from the domain in the header.
#[test]
fn a_series_belongs_to_one_domain() {
    let (own, foreign) = (keys().domain_id("laptop", 0), keys().domain_id("server", 0));
    let backup = keys().secrets().for_roles(Roles::BACKUP, own, None).expect("all keys");
    let backup = Keys::of(backup, keys().opening_public().clone()).expect("its own");
    let of = |domain| Manifest { summary: Summary { domain, ..manifest().summary }, ..manifest() };
    let series_of = |domain| keys().series_key_in(domain, "host:/home");
    assert!(of(own).encode(&backup, series_of(own), 0, [9; 32]).is_ok());
    assert!(of(own).encode(&backup, series_of(foreign), 0, [9; 32]).is_err());
    assert!(of(foreign).encode(&backup, series_of(foreign), 0, [9; 32]).is_err());
    let name = names::version(series_of(foreign), JOB, 0);
    let parts = [&cbor::encode(&of(own).summary)[..], &[2]];
    let planted = seal_object(&backup, own, &name, MANIFEST, [9; 32], &parts).expect("sealed");
    let why = DecodeError::invalid(MANIFEST.what, "it is of another series than its name says");
    assert_eq!(Summary::decode_head(&keys(), series_of(foreign), JOB, 0, &planted), Err(why));
    let theirs = of(foreign).encode(&keys(), series_of(foreign), 0, [9; 32]).expect("all keys");
    let lacks = DecodeError::KeyLacks { what: MANIFEST.what, needs: Roles::RESTORE };
    assert_eq!(Manifest::decode(&backup, series_of(foreign), JOB, 0, &theirs), Err(lacks));
}

#[test]
fn lengths_of_manifests_are_steps() {
    for paths in [0, 1, 10, 100, 1000, 10_000] {
        let summary = Summary { paths: vec![b"/a/path/of/some/length".to_vec(); paths], ..manifest().summary };
        let bytes = encode(&Manifest { summary, ..manifest() }, 9);
        assert!(bytes.len().is_multiple_of(4096), "{paths} paths: {}", bytes.len());
        assert_eq!((u32::from_le_bytes(*bytes[40..].first_chunk().expect("long")) - 16) % 1024, 0);
    }
}

#[test]
fn a_manifest_is_bound_to_its_series_job_and_generation() {
    let bytes = encode(&manifest(), 9);
    assert!(Manifest::decode(&keys(), SeriesKey([0; 16]), JOB, 0, &bytes).is_err());
    assert!(Manifest::decode(&keys(), series(), JobId([0; 16]), 0, &bytes).is_err());
    assert!(Manifest::decode(&keys(), series(), JOB, 1, &bytes).is_err());
}

/// Seals parts that a valid writer refuses to seal.
fn forged(series: SeriesKey, manifest: &Manifest, containers: &[ContainerUsage]) -> Vec<u8> {
    let mut places = PlacesWriter::default();
    let mut rows = Vec::new();
    manifest.data.encode(&mut places, &mut rows).expect("valid");
    manifest.metadata.encode(&mut places, &mut rows).expect("valid");
    rows.put_varint(containers.len() as u64);
    for usage in containers {
        let held = [u64::from(usage.chunks_held), usage.bytes_held, usage.object_bytes];
        let used = [places.container(usage.container), u64::from(usage.chunks_used), usage.bytes_used];
        [used, held].iter().flatten().for_each(|number| rows.put_varint(*number));
    }
    let mut body = vec![2];
    places.encode(&mut body);
    body.extend_from_slice(&rows);
    let name = names::version(series, JOB, 0);
    seal_object(&keys(), DomainId::DEFAULT, &name, MANIFEST, [9; 32], &[&cbor::encode(&manifest.summary), &body])
        .expect("short")
}

/// Guards against: a version under the folder of another series would be listed, and forgotten,
/// with that series.
#[test]
fn a_summary_of_another_series_than_the_name_says_is_refused() {
    let other = keys().series_key("other");
    assert!(manifest().encode(&keys(), other, 0, [9; 32]).is_err());
    let bytes = forged(other, &manifest(), &[]);
    let why = DecodeError::invalid("version manifest", "it is of another series than its name says");
    assert_eq!(Manifest::decode(&keys(), other, JOB, 0, &bytes), Err(why.clone()));
    assert_eq!(Summary::decode_head(&keys(), other, JOB, 0, &bytes), Err(why));
    assert!(decode(&forged(series(), &manifest(), &[])).is_ok());
}

#[test]
fn no_container_is_used_more_than_it_holds() {
    let fits = manifest().containers[0];
    let more_chunks = ContainerUsage { chunks_used: fits.chunks_held + 1, ..fits };
    let more_bytes = ContainerUsage { bytes_used: fits.bytes_held + 1, ..fits };
    assert!(decode(&forged(series(), &manifest(), &[fits])).is_ok());
    for usage in [more_chunks, more_bytes] {
        assert!(decode(&forged(series(), &manifest(), &[usage])).is_err());
        let manifest = Manifest { containers: vec![usage], ..manifest() };
        assert!(manifest.encode(&keys(), series(), 0, [9; 32]).is_err());
    }
}

/// Guards against: a generation whose summary has the roots of the true one, over other recipes.
#[test]
fn recipes_of_another_content_than_the_summary_says_are_refused() {
    let why = DecodeError::invalid("version manifest", "its recipes have another content than its summary says");
    let changes: [fn(&mut NodeRef); 6] = [
        |node| node.content.0[31] ^= 1,
        |node| node.bytes += 1,
        |node| node.chunks += 1,
        |node| node.segments += 1,
        |node| node.cover = Some(Cover { first_path: b"a".to_vec(), data_bytes: 1 }),
        // The digest is what counts, and not the place.
        |node| node.chunk.offset += 1,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut manifest = manifest();
        change(&mut manifest.data.nodes[0]);
        let bytes = forged(series(), &manifest, &manifest.containers);
        let expected = if number == 5 { Ok(Register::Committed(manifest.clone())) } else { Err(why.clone()) };
        assert_eq!(decode(&bytes), expected, "change {number}");
        assert_eq!(manifest.encode(&keys(), series(), 0, [9; 32]).is_ok(), number == 5, "change {number}");
    }
    let mut swapped = manifest();
    std::mem::swap(&mut swapped.data, &mut swapped.metadata);
    assert_eq!(decode(&forged(series(), &swapped, &swapped.containers)), Err(why));
}

/// The length of the summary is read before anything is proved, so an attacker can choose how much
/// is fetched.
#[test]
fn a_head_without_end_is_refused_before_it_is_fetched() {
    let mut bytes = encode(&manifest(), 9);
    let head = |bytes: &[u8]| Summary::decode_head(&keys(), series(), JOB, 0, &bytes[..44]);
    bytes[40..44].copy_from_slice(&(HEAD_MAX as u32 - 44 - 116).to_le_bytes());
    assert_eq!(head(&bytes), Ok(Head::Needs(HEAD_MAX)));
    bytes[40..44].copy_from_slice(&(HEAD_MAX as u32 - 44 - 115).to_le_bytes());
    assert!(matches!(head(&bytes), Err(DecodeError::Invalid { .. })));
    let paths = vec![vec![b'a'; 1 << 20]; 8];
    let manifest = Manifest { summary: Summary { paths, ..manifest().summary }, ..manifest() };
    assert!(manifest.encode(&keys(), series(), 0, [9; 32]).is_err());
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(data in recipe(), metadata in recipe()) {
        let manifest = holding(data, metadata);
        let bytes = encode(&manifest, 3);
        prop_assert_eq!(decode(&bytes), Ok(Register::Committed(manifest)));
    }
}

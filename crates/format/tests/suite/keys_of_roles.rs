//! What needs an operator's signature does not count without it; domains do not pass for one another.

use larder_format::DecodeError;
use larder_format::container::ContainerIndex;
use larder_format::ids::{DomainId, SettingsOf};
use larder_format::index_manifest::{IndexHead, IndexManifest};
use larder_format::index_mark::IndexMark;
use larder_format::keys::{Keys, MasterKey};
use larder_format::lease::{Done, Lease};
use larder_format::manifest::{Manifest, Register, Summary};
use larder_format::mark::Forgotten;
use larder_format::names;
use larder_format::pinning::{PinEntry, PinState};
use larder_format::roles::Roles;
use larder_format::settings::SeriesSettings;

use crate::support::{self, CONTAINER, Forger, JOB, RANDOM, SERIES, container_parts, keys};

const DEFAULT: DomainId = DomainId::DEFAULT;

/// The decoder's error.
type Refuses = Box<dyn Fn(&[u8]) -> Option<DecodeError>>;
/// A name, a magic, the parts, and what bytes under that name give.
type Case = (String, [u8; 4], Vec<Vec<u8>>, Refuses);

/// Every kind of object that counts only when it is signed.
fn signed_kinds() -> Vec<Case> {
    let open = |name: &str, sealed: Vec<u8>| support::open(name, &sealed);
    let (series, default) = (SettingsOf::Series(SERIES), SettingsOf::Default);
    let unnamed = SeriesSettings { series: String::new(), ..support::settings() };
    let pin = PinEntry { state: PinState::Pinned, time_ms: 1, host: String::new(), reason: String::new(), tags: None };
    let of = |name: String, magic: &[u8; 4], sealed: Vec<u8>, error: Refuses| {
        let parts = open(&name, sealed);
        (name, *magic, parts, error)
    };
    vec![
        of(
            names::forgotten(SERIES, JOB),
            b"LFGT",
            support::forgotten().encode(&keys(), DEFAULT, SERIES, JOB, RANDOM).expect("fits"),
            Box::new(|bytes| Forgotten::decode(&keys(), SERIES, JOB, bytes).err()),
        ),
        of(
            names::pin(SERIES, JOB, 3),
            b"LPIN",
            pin.encode(&keys(), DEFAULT, SERIES, JOB, 3, RANDOM).expect("fits"),
            Box::new(|bytes| PinEntry::decode(&keys(), SERIES, JOB, 3, bytes).err()),
        ),
        of(
            names::settings(series, 3),
            b"LSET",
            support::settings().encode(&keys(), series, 3, RANDOM).expect("fits"),
            Box::new(move |bytes| SeriesSettings::decode(&keys(), series, 3, bytes).err()),
        ),
        of(
            names::settings(default, 3),
            b"LSET",
            unnamed.encode(&keys(), default, 3, RANDOM).expect("fits"),
            Box::new(move |bytes| SeriesSettings::decode(&keys(), default, 3, bytes).err()),
        ),
        of(
            names::indexed(5),
            b"LIXM",
            IndexMark::Void.encode(&keys(), 5, RANDOM).expect("fits"),
            Box::new(|bytes| IndexMark::decode(&keys(), 5, bytes).err()),
        ),
        of(
            names::index(5),
            b"LIDX",
            support::index_manifest().encode(&keys(), RANDOM).expect("fits"),
            Box::new(|bytes| {
                let head = IndexHead::decode_head(&keys(), 5, bytes).err();
                let whole = IndexManifest::decode(&keys(), 5, bytes).err();
                // The head says nothing of the rest.
                assert!(head.is_none() || head == whole);
                whole
            }),
        ),
        of(
            names::version(SERIES, JOB, 2),
            b"LMAN",
            support::manifest().encode(&keys(), SERIES, 2, RANDOM).expect("fits"),
            Box::new(|bytes| {
                let head = Summary::decode_head(&keys(), SERIES, JOB, 2, bytes).err();
                let whole = Manifest::decode(&keys(), SERIES, JOB, 2, bytes).err();
                // The head says nothing of the rest.
                assert!(head.is_none() || head == whole);
                whole
            }),
        ),
        of(
            names::version(SERIES, JOB, 2),
            b"LABT",
            larder_format::manifest::encode_aborted(&keys(), DEFAULT, SERIES, JOB, 2, RANDOM).expect("fits"),
            Box::new(|bytes| Manifest::decode(&keys(), SERIES, JOB, 2, bytes).err()),
        ),
    ]
}

/// The keys of all roles but the operator's seal as well; without a signature, nothing comes of it.
#[test]
fn without_a_signature_nothing_counts_that_deletes_or_replaces() {
    for (name, magic, parts, error) in signed_kinds() {
        let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
        let signed = Forger::new().object_with(&name, &magic, true, &parts);
        assert_eq!(error(&signed), None, "{name}");
        let unsigned = Forger::new().object_with(&name, &magic, false, &parts);
        assert!(matches!(error(&unsigned), Some(DecodeError::Unsigned { .. })), "{name}");
        // Said to be signed, with a part in the place of the signature that is none.
        let planted = [&parts[..1], &[&[0; 96]], &parts[1..]].concat();
        let mut planted = Forger::new().object_with(&name, &magic, false, &planted);
        planted[6] = 1;
        assert!(matches!(error(&planted), Some(DecodeError::NotAuthentic { .. })), "{name}");
    }
}

/// Padding is zeros: bytes behind a structure's end have no meaning, and carry none.
#[test]
fn behind_the_contents_of_a_part_are_zeros() {
    for (name, magic, parts, error) in signed_kinds() {
        for (which, byte, is_fine) in
            [(0, 0, magic != *b"LIDX"), (0, 1, false), (1, 0, magic != *b"LIDX"), (1, 1, false)]
        {
            let mut padded = parts.clone();
            let Some(part) = padded.get_mut(which) else { continue };
            part.push(byte);
            let padded: Vec<_> = padded.iter().map(Vec::as_slice).collect();
            let error = error(&Forger::new().object(&name, &magic, &padded));
            assert_eq!(error.is_none(), is_fine, "{name}, part {which}, byte {byte}: {error:?}");
        }
    }
    for byte in [0, 1] {
        let lease = support::lease().encode(&keys(), JOB, 4, RANDOM).expect("fits");
        let fields = [&support::open(&names::lease(JOB, 4), &lease)[0][..], &[byte]].concat();
        let lease = Forger::new().object(&names::lease(JOB, 4), b"LLSE", &[&fields]);
        assert_eq!(Lease::decode(&keys(), JOB, 4, &lease).is_ok(), byte == 0);
        let done = Forger::new().object(&names::lease_done(JOB), b"LDON", &[&[0xa0, byte]]);
        assert_eq!(Done::decode(&keys(), JOB, &done).is_ok(), byte == 0);
    }
}

/// Leases and closing marks are of every job. An operator's are signed, and readers tell them apart.
#[test]
fn leases_say_whether_an_operator_wrote_them() {
    for is_signed in [false, true] {
        let done = Forger::new().object_with(&names::lease_done(JOB), b"LDON", is_signed, &[&[0xa0]]);
        assert_eq!(Done::decode(&keys(), JOB, &done), Ok(Done { is_signed, ..Done::default() }));
    }
    let fields =
        &support::open(&names::lease(JOB, 4), &support::lease().encode(&keys(), JOB, 4, RANDOM).expect("fits"))[0];
    for is_signed in [false, true] {
        let lease = Forger::new().object_with(&names::lease(JOB, 4), b"LLSE", is_signed, &[fields]);
        assert_eq!(Lease::decode(&keys(), JOB, 4, &lease), Ok(Lease { is_signed, ..support::lease() }));
    }
    // A key that may not sign makes unsigned ones.
    let backup = keys().secrets().for_roles(Roles::BACKUP, keys().domain_id("laptop", 0), None).expect("all keys");
    let backup = Keys::of(backup, keys().opening_public().clone()).expect("its own");
    let lease = Lease { domain: backup.domain(), ..support::lease() };
    let bytes = lease.encode(&backup, JOB, 4, RANDOM).expect("its own domain");
    assert_eq!(Lease::decode(&keys(), JOB, 4, &bytes).map(|lease| lease.is_signed), Ok(false));
}

/// Objects of another domain open for who has its key, say whose they are, and pass for nothing else.
#[test]
fn a_domain_is_part_of_what_it_seals() {
    let laptop = keys().domain_id("laptop", 0);
    let of = |keys: &Keys, name, bytes: &[u8]| Lease::decode(keys, name, 4, bytes).map(|lease| lease.domain);
    let fields = support::open(&names::lease(JOB, 4), &support::lease().encode(&keys(), JOB, 4, RANDOM).expect("fits"));
    let lease = Forger::of(laptop).object(&names::lease(JOB, 4), b"LLSE", &[&fields[0]]);
    assert_eq!(of(&keys(), JOB, &lease), Ok(laptop));
    let secrets = keys().secrets().for_roles(Roles::BACKUP, keys().domain_id("server", 0), None).expect("all keys");
    let server = Keys::of(secrets, keys().opening_public().clone()).expect("its own");
    assert!(matches!(of(&server, JOB, &lease), Err(DecodeError::KeyLacks { .. })));
    let mut moved = lease.clone();
    moved[8..24].copy_from_slice(&server.domain().0);
    assert!(matches!(of(&server, JOB, &moved), Err(DecodeError::NotAuthentic { .. })));
    let container = Forger::of(laptop).container(CONTAINER, &container_parts());
    let index = ContainerIndex::decode(&keys(), CONTAINER, &container, container.len() as u64).expect("opens");
    assert_eq!(index.domain, laptop);
    assert!(ContainerIndex::decode(&server, CONTAINER, &container, container.len() as u64).is_err());
    // The name of a version follows from its domain, so a valid manifest counts in its own place alone.
    let [summary, body] = support::manifest_parts();
    let manifest = Forger::of(laptop).object(&names::version(SERIES, JOB, 0), b"LMAN", &[&summary, &body]);
    assert!(matches!(Manifest::decode(&keys(), SERIES, JOB, 0, &manifest), Err(DecodeError::Invalid { .. })));
    let series = keys().series_key_in(laptop, "host:/home");
    let manifest = Forger::of(laptop).object(&names::version(series, JOB, 0), b"LMAN", &[&summary, &body]);
    let Ok(Register::Committed(read)) = Manifest::decode(&keys(), series, JOB, 0, &manifest) else {
        panic!("it is in its place");
    };
    assert_eq!((read.summary.domain, read.summary.is_signed), (laptop, true));
}

#[test]
fn another_repository_opens_nothing() {
    let other = Keys::derive(&MasterKey([2; 32]));
    let lease = support::lease().encode(&keys(), JOB, 4, RANDOM).expect("fits");
    assert!(Lease::decode(&other, JOB, 4, &lease).is_err());
    let container = Forger::new().container(CONTAINER, &container_parts());
    assert!(ContainerIndex::decode(&other, CONTAINER, &container, container.len() as u64).is_err());
}

//! Sealed objects and parts open unchanged, in their place, for who may; signatures and salts.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::golden::all_damage_is_noticed;
use crate::keys::MasterKey;
use crate::roles::Roles;

const KIND: ObjectType = ObjectType {
    magic: *b"LTST",
    version: 2,
    what: "test object",
    max_len: 4096,
    realm: Realm::Domain,
    signing: Signing::Never,
    pad: Pad::Nothing,
};
const SIGNED_KIND: ObjectType = ObjectType { signing: Signing::Required, ..KIND };
const DOMAIN: DomainId = DomainId([5; 16]);
const NAME: &str = "versions/a/b/0";
const RANDOM: [u8; RANDOM_LEN] = [3; RANDOM_LEN];

fn keys() -> Keys {
    crate::golden::keys()
}

fn role(roles: Roles) -> Keys {
    let secrets = keys().secrets().for_roles(roles, DOMAIN, None).expect("the master key makes all");
    Keys::of(secrets, keys().opening_public().clone()).expect("its own")
}

fn seal(kind: ObjectType, parts: &[&[u8]]) -> Vec<u8> {
    seal_object(&keys(), DOMAIN, NAME, kind, RANDOM, parts).expect("seals")
}

fn open(kind: ObjectType, bytes: &[u8], total: usize) -> Result<Opened, DecodeError> {
    open_object(&keys(), NAME, kind, bytes, total, total)
}

#[test]
fn an_object_opens_only_under_its_own_name_and_key_and_unchanged() {
    for kind in [KIND, SIGNED_KIND] {
        let sealed = seal(kind, &[b"head", b"body"]);
        let opened = open(kind, &sealed, 2).expect("opens");
        assert_eq!(opened.parts, [b"head".to_vec(), b"body".to_vec()]);
        assert_eq!((opened.domain, opened.is_signed), (DOMAIN, kind == SIGNED_KIND));
        let head = &sealed[..first_part_end(kind, &sealed[..44]).expect("long enough")];
        let head = open_object(&keys(), NAME, kind, head, 1, 2).expect("head opens alone");
        assert_eq!((head.parts, head.is_signed), (vec![b"head".to_vec()], opened.is_signed));
        assert!(open_object(&keys(), "versions/a/c/0", kind, &sealed, 2, 2).is_err());
        assert!(open_object(&Keys::derive(&MasterKey([2; 32])), NAME, kind, &sealed, 2, 2).is_err());
        all_damage_is_noticed(&sealed, |bytes| open(kind, bytes, 2).is_ok());
    }
}

#[test]
fn an_object_cut_short_by_a_whole_part_does_not_open() {
    let sealed = seal(KIND, &[b"head", b"body"]);
    assert!(open(KIND, &sealed[..HEADER_LEN + 4 + 4 + TAG_LEN], 1).is_err());
}

#[test]
fn an_object_longer_than_its_kind_may_be_is_neither_sealed_nor_opened() {
    let fits = vec![7; 4096 - HEADER_LEN - 4 - TAG_LEN];
    for pad in [Pad::Nothing, Pad::Small] {
        let kind = ObjectType { pad, ..KIND };
        let sealed = seal(kind, &[&fits]);
        assert_eq!(sealed.len(), 4096);
        assert!(seal_object(&keys(), DOMAIN, NAME, kind, RANDOM, &[&[&fits[..], &[7]].concat()]).is_err());
        let less = ObjectType { max_len: 4095, ..kind };
        assert!(open(kind, &sealed, 1).is_ok());
        assert!(matches!(open(less, &sealed, 1), Err(DecodeError::Invalid { .. })));
    }
}

#[test]
fn other_versions_ciphers_flags_and_domains_are_refused_by_name() {
    let sealed = seal(KIND, &[b"head"]);
    let with = |at: usize, byte: u8| {
        let mut bytes = sealed.clone();
        bytes[at] = byte;
        bytes
    };
    let why = |bytes: &[u8]| open(KIND, bytes, 1).expect_err("refused");
    assert_eq!(why(&with(4, 1)), DecodeError::Development { what: KIND.what });
    assert_eq!(why(&with(4, 3)), DecodeError::UnsupportedVersion { what: KIND.what, found: 3, newest: 2 });
    assert_eq!(why(&with(4, 0)), DecodeError::UnsupportedVersion { what: KIND.what, found: 0, newest: 2 });
    assert_eq!(why(&with(5, 2)), DecodeError::invalid(KIND.what, "unknown cipher"));
    assert_eq!(why(&with(6, 1)), DecodeError::invalid(KIND.what, "unknown flags"), "never signed");
    assert_eq!(open(SIGNED_KIND, &with(6, 2), 1).err(), Some(DecodeError::invalid(KIND.what, "unknown flags")));
    for realm in [Realm::Index, Realm::Common] {
        let kind = ObjectType { realm, ..KIND };
        let none = seal(kind, &[b"head"]);
        assert_eq!(open(kind, &none, 1).expect("opens").domain, DomainId::DEFAULT);
        assert_eq!(none[8..24], [0; 16], "it has no domain");
        let domain = DecodeError::invalid(KIND.what, "it has a domain where none is");
        assert_eq!(open(kind, &sealed, 1).err(), Some(domain));
    }
}

/// The table of roles in `keys.rs`, as far as sealed objects go.
#[test]
fn each_role_opens_what_it_may() {
    let other = DomainId([6; 16]);
    let table = [
        (Roles::BACKUP, [true, false, false, true]),
        (Roles::RESTORE, [true, true, true, true]),
        (Roles::OPERATE, [true, true, true, true]),
        (Roles::BACKUP.and(Roles::RESTORE), [true, true, true, true]),
        (Roles::ALL, [true, true, true, true]),
    ];
    let kinds = [
        (DOMAIN, KIND),
        (other, KIND),
        (DomainId::DEFAULT, ObjectType { realm: Realm::Index, ..KIND }),
        (DomainId::DEFAULT, ObjectType { realm: Realm::Common, ..KIND }),
    ];
    for (roles, opens) in table {
        for ((domain, kind), opens) in kinds.into_iter().zip(opens) {
            let sealed = seal_object(&keys(), domain, NAME, kind, RANDOM, &[b"x"]).expect("all keys");
            let result = open_object(&role(roles), NAME, kind, &sealed, 1, 1).map(|opened| opened.parts);
            match result {
                Ok(parts) => assert!(opens && parts == [b"x".to_vec()], "{roles} {kind:?}"),
                Err(error) => {
                    assert!(!opens && matches!(error, DecodeError::KeyLacks { .. }), "{roles} {kind:?} {error}")
                }
            }
            assert_eq!(seal_object(&role(roles), domain, NAME, kind, RANDOM, &[b"x"]).is_ok(), opens, "{roles}");
        }
        assert_eq!(role(roles).can_sign(), roles.holds(Roles::OPERATE), "{roles}");
    }
}

#[test]
fn only_an_operator_signs() {
    let backup = role(Roles::BACKUP);
    let able = ObjectType { signing: Signing::IfAble, ..KIND };
    let by = |keys: &Keys, kind| seal_object(keys, DOMAIN, NAME, kind, RANDOM, &[b"head", b"body"]);
    assert!(by(&backup, SIGNED_KIND).is_err());
    let unsigned = by(&backup, able).expect("need not be signed");
    assert!(!open(able, &unsigned, 2).expect("opens").is_signed);
    assert_eq!(open(SIGNED_KIND, &unsigned, 2).err(), Some(DecodeError::Unsigned { what: KIND.what }));
    assert_eq!(
        open_object(&keys(), NAME, SIGNED_KIND, &unsigned, 1, 2).err(),
        Some(DecodeError::Unsigned { what: KIND.what }),
        "the head alone"
    );
    let signed = by(&keys(), able).expect("seals");
    for keys in [keys(), backup, role(Roles::RESTORE)] {
        assert!(open_object(&keys, NAME, SIGNED_KIND, &signed, 2, 2).expect("opens").is_signed, "anybody verifies");
    }
}

/// Seals like the crate, but with a part 1 of the caller's: what a holder of the sealing key can make.
fn sealed_with(name: &str, header: &[u8; HEADER_LEN], parts: &[&[u8]]) -> Vec<u8> {
    let secret = KIND.secret(&keys(), DOMAIN).expect("all keys");
    let sealer = object_sealer(&secret, &header[24..], name);
    let mut out = header.to_vec();
    for (number, part) in (0u32..).zip(parts) {
        out.put_u32((part.len() + TAG_LEN) as u32);
        let from = out.len();
        out.extend_from_slice(part);
        sealer.seal(u64::from(number), &part_aad(header, number, number as usize + 1 == parts.len()), &mut out, from);
    }
    out
}

/// The part with the signature of a signed object.
fn signature_of(sealed: &[u8], name: &str) -> Vec<u8> {
    let secret = KIND.secret(&keys(), DOMAIN).expect("all keys");
    let from = HEADER_LEN + 4 + 4 + TAG_LEN + 4;
    let mut part = sealed[from..from + SIGNED_PART + TAG_LEN].to_vec();
    let sealer = object_sealer(&secret, &sealed[24..HEADER_LEN], name);
    sealer.open(1, &part_aad(&sealed[..HEADER_LEN], 1, false), &mut part, "signature").expect("opens").to_vec()
}

#[test]
fn a_signature_is_for_one_name_one_header_and_one_text() {
    let sealed = seal(SIGNED_KIND, &[b"head", b"body"]);
    let signature = signature_of(&sealed, NAME);
    let header: [u8; HEADER_LEN] = *sealed.first_chunk().expect("long");
    let open = |name: &str, bytes: &[u8]| open_object(&keys(), name, SIGNED_KIND, bytes, 2, 2).map(|_| ());
    assert_eq!(sealed_with(NAME, &header, &[b"head", &signature, b"body"]), sealed, "the forger is right");
    let refused = Err(DecodeError::NotAuthentic { what: KIND.what });
    for (name, head, body) in [("versions/a/c/0", "head", "body"), (NAME, "Head", "body"), (NAME, "head", "Body")] {
        let moved = sealed_with(name, &header, &[head.as_bytes(), &signature, body.as_bytes()]);
        assert_eq!(open(name, &moved), refused, "{name} {head} {body}");
    }
    let mut salted = header;
    salted[30] ^= 1;
    assert_eq!(open(NAME, &sealed_with(NAME, &salted, &[b"head", &signature, b"body"])), refused);
    // Another operator, and none at all.
    let other = Keys::derive(&MasterKey([2; 32]));
    let text = signed_text(NAME, &header, b"head", &signature[..32]);
    let foreign = [&signature[..32], &other.sign(&text).expect("it can")].concat();
    for signature in [&foreign[..], &[0; SIGNED_PART], &signature[..95], &[]] {
        assert!(open(NAME, &sealed_with(NAME, &header, &[b"head", signature, b"body"])).is_err());
    }
    // The signature covers the body through its hash, so the head alone is proved, too.
    let mut body = signature.clone();
    body[0] ^= 1;
    let forged = sealed_with(NAME, &header, &[b"head", &body, b"body"]);
    assert_eq!(open_object(&keys(), NAME, SIGNED_KIND, &forged, 1, 2).err(), refused.clone().err());
    let lied = sealed_with(NAME, &header, &[b"head", &signature, b"other body"]);
    assert!(open_object(&keys(), NAME, SIGNED_KIND, &lied, 1, 2).is_ok());
    assert_eq!(open(NAME, &lied), refused);
}

#[test]
fn lengths_of_objects_are_steps() {
    for signing in [Signing::Never, Signing::Required] {
        let small = ObjectType { pad: Pad::Small, signing, max_len: 1 << 20, ..KIND };
        let manifest = ObjectType { pad: Pad::Manifest, ..small };
        for len in (0..3000).chain([4000, 10_000, 70_000]) {
            let text = vec![7; len];
            let sealed = seal(small, &[&text]);
            assert!(sealed.len() >= 512 && sealed.len().is_power_of_two(), "{len}: {}", sealed.len());
            let part = &open(small, &sealed, 1).expect("opens").parts[0];
            assert!(part[..len] == text && only_zeros(&part[len..], "part").is_ok());
            let sealed = seal(manifest, &[&text, b"body"]);
            assert!(sealed.len() % 4096 == 0 && Padding::MANIFEST.allows(sealed.len() as u64), "{len}");
            let end = first_part_end(manifest, &sealed).expect("long");
            assert!(end <= first_part_len(len));
        }
    }
    assert_eq!(only_zeros(&[0, 0, 1], "part"), Err(DecodeError::invalid("part", "bytes follow its end")));
}

#[test]
fn parts_have_keys_of_their_own() {
    let base = |byte| PartKeys::new(Secret([byte; 32]));
    let mut sealed = [&[0; SALT_LEN][..], b"text"].concat();
    base(1).seal(7, b"aad", [9; SALT_LEN], &mut sealed, 0);
    assert_eq!(sealed.len(), 4 + PART_EXTRA);
    let open = |keys: PartKeys, number, aad: &[u8], bytes: &[u8]| {
        keys.open(number, aad, &mut bytes.to_vec(), "part").map(|plain| plain.to_vec())
    };
    assert_eq!(open(base(1), 7, b"aad", &sealed), Ok(b"text".to_vec()));
    assert!(open(base(2), 7, b"aad", &sealed).is_err());
    assert!(open(base(1), 8, b"aad", &sealed).is_err());
    assert!(open(base(1), 7, b"add", &sealed).is_err());
    all_damage_is_noticed(&sealed, |bytes| open(base(1), 7, b"aad", bytes).is_ok());
}

/// With the same random bytes, what differs in anything sealed differs in its key.
#[test]
fn salts_follow_from_all_that_is_sealed() {
    let able = ObjectType { signing: Signing::IfAble, ..KIND };
    let salt = |keys: &Keys, name: &str, kind, parts: &[&[u8]]| {
        let sealed = seal_object(keys, DOMAIN, name, kind, RANDOM, parts).expect("seals");
        assert_eq!(sealed, seal_object(keys, DOMAIN, name, kind, RANDOM, parts).expect("seals"), "equal texts");
        sealed[24..HEADER_LEN].to_vec()
    };
    let salts = [
        salt(&keys(), NAME, KIND, &[b"head", b"body"]),
        salt(&keys(), NAME, KIND, &[b"head", b"Body"]),
        salt(&keys(), NAME, KIND, &[b"Head", b"body"]),
        salt(&keys(), NAME, KIND, &[b"headb", b"ody"]),
        salt(&keys(), NAME, KIND, &[b"headbody"]),
        salt(&keys(), "versions/a/c/0", KIND, &[b"head", b"body"]),
        // A signature is a part of its own, in the place of the body.
        salt(&keys(), NAME, able, &[b"head", b"body"]),
        salt(&keys(), NAME, ObjectType { magic: *b"LTSU", ..KIND }, &[b"head", b"body"]),
    ];
    assert_eq!(salts.iter().collect::<std::collections::BTreeSet<_>>().len(), salts.len());
}

proptest! {
    /// No key and salt ever meet two texts, however often the random bytes repeat.
    #[test]
    fn no_salt_meets_two_texts(
        sealed in prop::collection::vec((0u8..2, 0u64..2, prop::collection::vec(0u8..2, 0..6)), 1..60),
    ) {
        let (mut objects, mut parts) = (BTreeMap::new(), BTreeMap::new());
        let keys = keys();
        let base = PartKeys::new(Secret([1; 32]));
        for (random, number, text) in sealed {
            let name = format!("jobs/{number}");
            let object = seal_object(&keys, DOMAIN, &name, KIND, [random; RANDOM_LEN], &[&text]).expect("seals");
            let key = (name, object[24..HEADER_LEN].to_vec());
            prop_assert_eq!(objects.entry(key).or_insert(text.clone()), &text);
            let salt = base.salt(&[random; RANDOM_LEN], number, blake3::hash(&text).as_bytes());
            prop_assert_eq!(parts.entry((number, salt)).or_insert(text.clone()), &text);
        }
    }

    #[test]
    fn what_is_sealed_opens(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 1..4),
        random: [u8; RANDOM_LEN],
        domain: [u8; 16],
    ) {
        let texts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        for kind in [KIND, SIGNED_KIND] {
            let sealed = seal_object(&keys(), DomainId(domain), NAME, kind, random, &texts).expect("short");
            let opened = open(kind, &sealed, parts.len()).expect("opens");
            prop_assert_eq!((opened.domain, &opened.parts), (DomainId(domain), &parts));
        }
    }

    #[test]
    fn any_bytes_are_an_error_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(open(KIND, &bytes, 1).is_err());
        prop_assert!(open(SIGNED_KIND, &[&b"LTST\x02\x01\x01\0"[..], &bytes].concat(), 2).is_err());
        let _ = first_part_end(KIND, &bytes);
    }
}

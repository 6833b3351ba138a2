//! Key objects open with their password or file, in their place, unchanged; payloads of roles.

use super::*;
use crate::cbor;
use crate::golden::golden;
use crate::ids::DomainId;
use crate::keys::{MasterKey, Secret};

const ID: KeyId = KeyId([3; 8]);
const REPOSITORY: RepositoryId = RepositoryId([4; 16]);
const PASSWORD: Unlock<'_> = Unlock::Password(b"secret");
const CONFIG: &[u8] = b"bytes of config";

fn keys() -> Keys {
    crate::golden::keys()
}

fn secrets(roles: Roles) -> Secrets {
    let witness = (!roles.is_all()).then_some(Secret([6; 32]));
    let secrets = keys().secrets().for_roles(roles, keys().domain_id("laptop", 0), witness).expect("all keys");
    Secrets { domain_name: "laptop".to_owned(), ..secrets }
}

fn fields(cost: Option<KdfCost>, roles: Roles) -> KeyFields {
    KeyFields {
        cost,
        salt: [5; 32],
        user: "alice".to_owned(),
        host: "host".to_owned(),
        created_ms: 1_790_000_000_000,
        roles,
        domain: "laptop".to_owned(),
        epoch: 0,
    }
}

fn wrapped(roles: Roles, unlock: Unlock<'_>) -> Vec<u8> {
    let cost = matches!(unlock, Unlock::Password(_)).then_some(KdfCost::TEST);
    wrap(&keys(), &secrets(roles), unlock, &fields(cost, roles), ID, REPOSITORY, CONFIG).expect("wraps")
}

fn open(bytes: &[u8], unlock: Unlock<'_>) -> Result<Secrets, UnwrapError> {
    unwrap(bytes, unlock, ID, REPOSITORY)
}

#[test]
fn version_2_bytes_never_change() {
    let all = golden("key_v2", &wrapped(Roles::ALL, PASSWORD));
    assert_eq!(open(&all, PASSWORD), Ok(secrets(Roles::ALL)));
    let backup = golden("key_backup_v2", &wrapped(Roles::BACKUP, Unlock::File(&[7; 32])));
    assert_eq!(open(&backup, Unlock::File(&[7; 32])), Ok(secrets(Roles::BACKUP)));
}

#[test]
fn a_key_of_each_role_gives_its_secrets_back() {
    for bits in 1..=7 {
        let roles: Roles = ["backup", "restore", "operate"]
            .iter()
            .enumerate()
            .filter(|(bit, _)| bits & (1 << bit) != 0)
            .map(|(_, word)| *word)
            .collect::<Vec<_>>()
            .join("+")
            .parse()
            .expect("roles");
        let bytes = wrapped(roles, Unlock::File(&[7; 32]));
        assert_eq!(open(&bytes, Unlock::File(&[7; 32])), Ok(secrets(roles)), "{roles}");
        assert!(bytes.len() as u64 <= KEY_MAX);
        let shown = read_fields(&bytes).expect("reads");
        assert_eq!((shown, config_copy(&bytes).expect("reads")), (fields(None, roles), CONFIG.to_vec()));
        assert!(is_genuine(&bytes, &keys(), ID, REPOSITORY));
    }
}

#[test]
fn a_password_opens_no_file_key_and_the_other_way_round() {
    let (by_password, by_file) = (wrapped(Roles::ALL, PASSWORD), wrapped(Roles::ALL, Unlock::File(&[7; 32])));
    assert_eq!(open(&by_password, Unlock::File(&[7; 32])), Err(UnwrapError::WrongPassword));
    assert_eq!(open(&by_file, PASSWORD), Err(UnwrapError::WrongPassword));
    let made = |cost, unlock| {
        wrap(&keys(), &secrets(Roles::ALL), unlock, &fields(cost, Roles::ALL), ID, REPOSITORY, CONFIG).is_ok()
    };
    assert!(!made(None, PASSWORD) && !made(Some(KdfCost::TEST), Unlock::File(&[7; 32])));
}

#[test]
fn only_the_password_opens_the_key_and_only_in_its_place() {
    let bytes = wrapped(Roles::BACKUP, PASSWORD);
    assert_eq!(open(&bytes, Unlock::Password(b"Secret")), Err(UnwrapError::WrongPassword));
    assert!(unwrap(&bytes, PASSWORD, KeyId([0; 8]), REPOSITORY).is_err());
    assert!(unwrap(&bytes, PASSWORD, ID, RepositoryId([0; 16])).is_err());
    assert!(!is_genuine(&bytes, &keys(), KeyId([0; 8]), REPOSITORY));
    assert!(!is_genuine(&bytes, &keys(), ID, RepositoryId([0; 16])));
    crate::golden::all_damage_is_noticed(&bytes, |bytes| {
        // A flipped cost may ask for up to 1 GiB; the test asserts only that it is never accepted.
        let costs_more = read_fields(bytes).is_ok_and(|fields| fields.cost != Some(KdfCost::TEST));
        !costs_more && open(bytes, PASSWORD).is_ok()
    });
    let by_file = wrapped(Roles::BACKUP, Unlock::File(&[7; 32]));
    crate::golden::all_damage_is_noticed(&by_file, |bytes| open(bytes, Unlock::File(&[7; 32])).is_ok());
    crate::golden::all_damage_is_noticed(&by_file, |bytes| is_genuine(bytes, &keys(), ID, REPOSITORY));
}

/// Guards against: one key object that opens under many passwords, which AES-GCM alone allows. Its
/// maker can choose the wrapped bytes freely, and knows a password, but the commitment fits that
/// one only.
#[test]
fn nothing_is_opened_that_the_commitment_does_not_fit() {
    let (bytes, other) = (wrapped(Roles::ALL, PASSWORD), wrapped(Roles::ALL, Unlock::Password(b"other")));
    let tail = split(&bytes).expect("reads").wrapped.len() + SIGNATURE_LEN + 4 + COMMITMENT_LEN;
    let at = bytes.len() - tail;
    let mut planted = bytes.clone();
    // The other password's wrapped bytes open under its key; the commitment is that of the first.
    planted[at + COMMITMENT_LEN..].copy_from_slice(&other[at + COMMITMENT_LEN..]);
    assert_eq!(open(&planted, Unlock::Password(b"other")), Err(UnwrapError::WrongPassword));
    let damaged = UnwrapError::Damaged(DecodeError::NotAuthentic { what: WHAT });
    assert_eq!(open(&planted, PASSWORD), Err(damaged));
    planted[at..at + COMMITMENT_LEN].copy_from_slice(&other[at..at + COMMITMENT_LEN]);
    assert_eq!(open(&planted, Unlock::Password(b"other")), Ok(secrets(Roles::ALL)));
    assert_eq!(open(&planted, PASSWORD), Err(UnwrapError::WrongPassword));
}

/// A machine that may only back up makes no keys; a key of another repository's operator is marked.
#[test]
fn only_an_operator_makes_keys() {
    let backup = Keys::of(secrets(Roles::BACKUP), keys().opening_public().clone()).expect("its own");
    let fields = fields(Some(KdfCost::TEST), Roles::BACKUP);
    assert!(wrap(&backup, &secrets(Roles::BACKUP), PASSWORD, &fields, ID, REPOSITORY, CONFIG).is_err());
    // Signed by somebody else than the payload names.
    let stranger = Keys::derive(&MasterKey([2; 32]));
    let planted = wrap(&stranger, &secrets(Roles::BACKUP), PASSWORD, &fields, ID, REPOSITORY, CONFIG).expect("wraps");
    let damaged = UnwrapError::Damaged(DecodeError::NotAuthentic { what: WHAT });
    assert_eq!(open(&planted, PASSWORD), Err(damaged));
    assert!(!is_genuine(&planted, &keys(), ID, REPOSITORY) && is_genuine(&planted, &stranger, ID, REPOSITORY));
}

#[test]
fn a_key_that_says_another_role_than_its_payload_is_refused() {
    let fields = fields(Some(KdfCost::TEST), Roles::ALL);
    let bytes = wrap(&keys(), &secrets(Roles::BACKUP), PASSWORD, &fields, ID, REPOSITORY, CONFIG).expect("wraps");
    assert!(matches!(open(&bytes, PASSWORD), Err(UnwrapError::Damaged(DecodeError::Invalid { .. }))));
}

/// Numbers of the fields in a payload.
fn numbers(payload: &[u8]) -> Vec<u32> {
    let mut decoder = minicbor::Decoder::new(payload);
    let count = decoder.map().expect("a map").expect("of known length");
    (0..count)
        .map(|_| {
            let number = decoder.u32().expect("a number");
            decoder.skip().expect("a value");
            number
        })
        .collect()
}

#[test]
fn the_payload_of_a_role_has_exactly_its_secrets() {
    let (backup, restore, operate) = (Roles::BACKUP, Roles::RESTORE, Roles::OPERATE);
    for (roles, expected) in [
        (Roles::ALL, &[0, 1, 2][..]),
        (backup, &[0, 1, 3, 4, 5, 6, 7, 9, 10, 14, 15, 16]),
        (restore, &[0, 1, 3, 6, 7, 8, 10, 11, 12, 14, 15, 16]),
        (operate, &[0, 1, 3, 6, 7, 8, 12, 13, 14, 15, 16]),
        (operate.and(restore), &[0, 1, 3, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16]),
    ] {
        assert_eq!(numbers(&payload::encode(&secrets(roles))), expected, "{roles}");
    }
}

#[test]
fn a_payload_that_lacks_a_secret_is_refused_and_others_are_not_taken() {
    for roles in [Roles::ALL, Roles::BACKUP, Roles::RESTORE, Roles::OPERATE] {
        let whole = payload::encode(&secrets(roles));
        let decoded =
            |bytes: &[u8]| payload::decode(bytes).map(|read| Secrets { domain_name: "laptop".to_owned(), ..read });
        assert_eq!(decoded(&whole), Ok(secrets(roles)), "{roles}");
        for missing in numbers(&whole) {
            let bytes = without(&whole, missing);
            // The witness is the machine's; everything else is needed.
            assert_eq!(decoded(&bytes).is_ok(), missing == 16, "{roles} without {missing}");
        }
        for len in 0..whole.len() {
            assert!(payload::decode(&whole[..len]).is_err());
        }
    }
    // A payload of backup with the secrets of all: they are not taken.
    let everything = payload::encode(&Secrets { roles: Roles::ALL, master: None, ..secrets(Roles::ALL) });
    let as_restore = replaced_roles(&everything, Roles::RESTORE);
    let read = payload::decode(&as_restore).expect("it has all that it needs");
    assert!(read.sign.is_none() && read.cuts.is_none() && read.open.is_some());
}

/// A map without one of its fields.
fn without(payload: &[u8], number: u32) -> Vec<u8> {
    let mut decoder = minicbor::Decoder::new(payload);
    let count = decoder.map().expect("a map").expect("of known length");
    let mut out = Vec::new();
    let mut encoder = minicbor::Encoder::new(&mut out);
    encoder.map(count - 1).expect("infallible");
    let mut rest = Vec::new();
    for _ in 0..count {
        let from = decoder.position();
        let found = decoder.u32().expect("a number");
        decoder.skip().expect("a value");
        if found != number {
            rest.extend_from_slice(&payload[from..decoder.position()]);
        }
    }
    out.extend_from_slice(&rest);
    out
}

fn replaced_roles(payload: &[u8], roles: Roles) -> Vec<u8> {
    let rest = without(payload, 0);
    let mut head = minicbor::Decoder::new(&rest);
    let count = head.map().expect("a map").expect("of known length");
    let mut out = Vec::new();
    minicbor::Encoder::new(&mut out).map(count + 1).expect("infallible");
    out.push(0);
    out.extend_from_slice(&cbor::encode(&roles));
    out.extend_from_slice(&rest[head.position()..]);
    out
}

#[test]
fn a_key_that_asks_for_too_much_is_refused_without_trying() {
    let refused = |memory_kib, passes| {
        let cost = KdfCost { memory_kib, passes, lanes: 1 };
        matches!(cost.params(), Err(DecodeError::Invalid { .. }))
    };
    assert!(refused(u32::MAX, 1) && refused((1 << 20) + 1, 1) && refused(1 << 20, 5) && refused(64, 65));
    assert!(refused(u32::MAX, u32::MAX) && refused(128 << 10, 33));
    assert!(!refused(1 << 20, 4) && !refused(64 << 10, 64));
}

#[test]
fn what_no_reader_accepts_is_not_written() {
    let made = |secrets: &Secrets, fields: &KeyFields| {
        wrap(&keys(), secrets, PASSWORD, fields, ID, REPOSITORY, CONFIG).is_ok()
    };
    let fields = fields(Some(KdfCost::TEST), Roles::BACKUP);
    let backup = secrets(Roles::BACKUP);
    assert!(made(&backup, &fields));
    assert!(!made(&backup, &KeyFields { user: "x".repeat(FIELDS_MAX), ..fields.clone() }));
    let epochs = |count: u8| {
        let of = |byte: u8| (DomainId([byte; 16]), Secret([byte; 32]));
        let mut some: Vec<_> = (0..count).map(of).collect();
        some.push((backup.domain, Secret([9; 32])));
        Secrets { domains: crate::keys::DomainSecrets::Some(some), ..backup.clone() }
    };
    assert!(made(&epochs(50), &fields));
    assert!(!made(&epochs(80), &fields), "a payload longer than a reader accepts");
}

#[test]
fn other_versions_are_refused_by_name() {
    let mut bytes = wrapped(Roles::ALL, Unlock::File(&[7; 32]));
    bytes[4] = 1;
    assert_eq!(read_fields(&bytes), Err(DecodeError::Development { what: WHAT }));
    bytes[4] = 3;
    assert_eq!(read_fields(&bytes), Err(DecodeError::UnsupportedVersion { what: WHAT, found: 3, newest: 2 }));
    assert!(matches!(read_fields(b"LMAN\x02\0\0\0"), Err(DecodeError::BadMagic { .. })));
}

#[test]
fn a_paper_key_is_read_back_and_typing_errors_are_found_in_their_line() {
    let master = MasterKey(std::array::from_fn(|i| i as u8 * 7));
    let lines = to_paper(&master, REPOSITORY);
    let text = lines.join("\n").to_lowercase().replace('-', " ").replace('o', "0");
    let (read, repository) = from_paper(&text).expect("reads");
    assert_eq!((read.0, repository), (master.0, REPOSITORY));
    for line in 0..6 {
        let mut wrong = lines.clone();
        let first = if wrong[line].starts_with('A') { "C" } else { "A" };
        wrong[line].replace_range(..1, first);
        assert_eq!(from_paper(&wrong.join("\n")).expect_err("refused"), PaperError::Line { line: line + 1 });
    }
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    assert_eq!(from_paper(&swapped.join("\n")).expect_err("refused"), PaperError::Line { line: 3 });
    assert_eq!(from_paper(&lines[1..].join("\n")).expect_err("refused"), PaperError::Lines { found: 5 });
}

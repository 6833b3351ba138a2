//! Derivation of the secrets, and what each role has of them.

use super::*;

fn secrets() -> Secrets {
    Secrets::of(&MasterKey([1; 32]))
}

fn of(roles: Roles) -> Secrets {
    secrets().for_roles(roles, DomainId([5; 16]), Some(Secret([6; 32]))).expect("the master key makes all")
}

/// Which secrets there are: master, cuts, all domains, bind, open, index, sign.
fn has(secrets: &Secrets) -> [bool; 7] {
    [
        secrets.master.is_some(),
        secrets.cuts.is_some(),
        matches!(secrets.domains, DomainSecrets::All(_)),
        secrets.bind.is_some(),
        secrets.open.is_some(),
        secrets.index.is_some(),
        secrets.sign.is_some(),
    ]
}

#[test]
fn a_role_has_its_secrets_and_no_others() {
    let (backup, restore, operate) = (Roles::BACKUP, Roles::RESTORE, Roles::OPERATE);
    for (roles, expected) in [
        (backup, [false, true, false, true, false, false, false]),
        (restore, [false, false, true, true, true, true, false]),
        (operate, [false, false, true, false, false, true, true]),
        (operate.and(restore), [false, false, true, true, true, true, true]),
        (backup.and(operate), [false, true, true, true, false, true, true]),
        (backup.and(restore).and(operate), [false, true, true, true, true, true, true]),
        (Roles::ALL, [true; 7]),
    ] {
        let some = of(roles);
        assert_eq!(has(&some), expected, "{roles}");
        assert_eq!((some.roles, some.domain, &some.witness), (roles, DomainId([5; 16]), &Some(Secret([6; 32]))));
        // Those that it has are the repository's.
        let all = secrets();
        assert_eq!((&some.fingerprints, &some.names, &some.common), (&all.fingerprints, &all.names, &all.common));
        assert_eq!((some.opening_hash, some.operator_public), (all.opening_hash, all.operator_public));
        assert!(some.cuts.is_none() || some.cuts == all.cuts);
        assert!(some.open.is_none() || some.open == all.open);
    }
}

#[test]
fn a_backup_key_has_the_secret_of_its_domain_alone() {
    let DomainSecrets::Some(some) = of(Roles::BACKUP).domains else { panic!("it has that of all") };
    let all = Keys::derive(&MasterKey([1; 32]));
    assert_eq!(some, [(DomainId([5; 16]), all.domain_secret(DomainId([5; 16]), "x").expect("all keys"))]);
}

/// A key makes no key that could do more than itself.
#[test]
fn a_key_hands_on_only_what_it_has() {
    let both = [Roles::OPERATE.and(Roles::RESTORE), Roles::OPERATE.and(Roles::BACKUP)];
    let roles = [Roles::BACKUP, Roles::RESTORE, Roles::OPERATE, both[0], both[1], Roles::ALL];
    for from in roles {
        for to in roles {
            let made = of(from).for_roles(to, DomainId([7; 16]), None);
            let may = match from {
                Roles::BACKUP => false,
                _ => from.holds(to),
            };
            assert_eq!(made.is_ok(), may, "{from} makes {to}");
        }
    }
}

#[test]
fn data_is_sealed_to_the_owner_that_the_payload_names() {
    let other = OpeningSecret([9; 32]).public();
    let refused = Keys::of(of(Roles::BACKUP), other).map(|_| ());
    assert_eq!(refused, Err(DecodeError::NotAuthentic { what: "opening key" }));
    let public = Keys::derive(&MasterKey([1; 32])).opening_public().clone();
    assert!(Keys::of(of(Roles::BACKUP), public).is_ok());
}

#[test]
fn names_of_domains_and_series_are_keyed_and_apart() {
    let keys = Keys::derive(&MasterKey([1; 32]));
    assert_eq!(keys.domain_id("", 0), DomainId::DEFAULT);
    let ids = [
        keys.domain_id("laptop", 0),
        keys.domain_id("laptop", 1),
        keys.domain_id("server", 0),
        Keys::derive(&MasterKey([2; 32])).domain_id("laptop", 0),
        DomainId::DEFAULT,
    ];
    let mut series: Vec<_> = ids.iter().map(|id| keys.series_key_in(*id, "home")).collect();
    series.push(keys.series_key_in(DomainId::DEFAULT, "other"));
    assert_eq!(series[4], keys.series_key("home"));
    series.sort_unstable();
    series.dedup();
    assert_eq!(series.len(), 6);
    assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)));
}

/// Every secret has a text of its own, so none gives another away.
#[test]
fn no_two_secrets_are_equal() {
    let all = secrets();
    let cuts = all.cuts.expect("all");
    let DomainSecrets::All(domains) = all.domains else { panic!("all") };
    let mut some = vec![
        [1; 32],
        all.fingerprints.0,
        cuts.chunking.0,
        cuts.runs.0,
        all.names.0,
        all.common.0,
        domains.0,
        all.bind.expect("all").0,
        all.open.expect("all").0,
        all.index.expect("all").0,
        all.sign.expect("all").0,
    ];
    some.sort_unstable();
    some.dedup();
    assert_eq!(some.len(), 11);
}

#[test]
fn signatures_verify_for_everybody_and_only_unchanged() {
    let keys = Keys::derive(&MasterKey([1; 32]));
    let signature = keys.sign(b"text").expect("all keys");
    let backup = Keys::of(of(Roles::BACKUP), keys.opening_public().clone()).expect("its own");
    assert!(backup.is_signed(b"text", &signature) && backup.sign(b"text").is_none());
    assert!(!backup.is_signed(b"test", &signature) && !backup.is_signed(b"text", &signature[..63]));
    assert!(!Keys::derive(&MasterKey([2; 32])).is_signed(b"text", &signature));
}

/// What is sealed in the default domain counts for every job.
#[test]
fn a_key_that_may_only_back_up_has_a_domain() {
    assert!(secrets().for_roles(Roles::BACKUP, DomainId::DEFAULT, None).is_err());
    for roles in [Roles::BACKUP.and(Roles::OPERATE), Roles::OPERATE, Roles::ALL] {
        assert!(secrets().for_roles(roles, DomainId::DEFAULT, None).is_ok(), "{roles}");
    }
}

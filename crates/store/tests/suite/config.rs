//! `config` missing or damaged: a copy in every key stands in for it, and it is made again.

use std::sync::Arc;
use std::time::Duration;

use larder_format::config::Config;
use larder_format::ids::RepositoryId;
use larder_format::key_file::{KdfCost, KeyFields, StretchError, Unlock, stretch_by};
use larder_format::names;
use larder_store::config::find_config;
use larder_store::keyring::{ImportError, open_with_paper};
use larder_store::{OtherProgram, Repository, RepositoryError, Store, StoreOptions};
use larder_testkit::{Fault, FaultStore, Memory, OpKind, Times, When};

use crate::planted::manifest;
use crate::support::{PASSWORD, config, key_fields, repository};

fn store_of(memory: &Memory) -> Store {
    Store::from_object_store(memory.store(), "", &StoreOptions::default()).expect("opens")
}

async fn open(memory: &Memory, password: &[u8]) -> Result<Repository, RepositoryError> {
    Repository::open(store_of(memory), password, Arc::new(larder_testkit::entropy())).await
}

async fn init(store: Store, id: u8) -> Result<Repository, RepositoryError> {
    let config = Config { repository: RepositoryId([id; 16]), ..config() };
    Repository::init(store, config, PASSWORD, key_fields(), Arc::new(larder_testkit::entropy())).await
}

/// Whatever becomes of its bytes, the password opens, says so, and makes the same object again.
#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_config_the_password_opens() {
    let memory = Memory::new();
    let whole = repository(store_of(&memory)).await;
    assert!(whole.config_problem().is_none());
    let genuine = memory.get(names::CONFIG).await.expect("there");
    let mut damages = vec![None, Some(Vec::new()), Some(vec![0; genuine.len()])];
    damages.extend((0..genuine.len()).step_by(5).map(|len| Some(genuine[..len].to_vec())));
    damages.extend((0..genuine.len() * 8).step_by(7).filter(|bit| bit / 8 != 4).map(|bit| {
        let mut flipped = genuine.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        Some(flipped)
    }));
    for damage in damages {
        match &damage {
            None => memory.remove(names::CONFIG).await,
            Some(bytes) => memory.put(names::CONFIG, bytes.clone()).await,
        }
        find_config(&store_of(&memory)).await.unwrap_or_else(|error| panic!("{damage:?}: {error}"));
        let opened = open(&memory, PASSWORD).await.unwrap_or_else(|error| panic!("{damage:?}: {error}"));
        assert!(opened.config_problem().is_some(), "{damage:?}");
        assert_eq!(opened.config(), whole.config());
        assert!(matches!(open(&memory, b"wrong").await, Err(RepositoryError::WrongPassword { .. })), "{damage:?}");
        assert!(opened.restore_config().await.expect("restored"));
        assert_eq!(memory.get(names::CONFIG).await.as_ref(), Some(&genuine));
        assert!(!open(&memory, PASSWORD).await.expect("opens").restore_config().await.expect("nothing to do"));
    }
}

/// Nothing at such a place is damaged. A damaged configuration is told by the objects beside it.
#[tokio::test(start_paused = true)]
async fn the_config_of_another_program_is_no_damage() {
    let restic_key = format!("keys/{}", "ab".repeat(32));
    let restic: &[(&str, &[u8])] = &[("config", b"\x2ch\x90x"), (&restic_key, b"{}")];
    let borg: &[(&str, &[u8])] = &[("config", b"[repository]\nversion = 1\n"), ("data/0/0", b"BORG_SEG")];
    let unknown: &[(&str, &[u8])] = &[("config", b"PK\x03\x04, a zip"), ("keys/other", b"x")];
    let expected = [(restic, Some(OtherProgram::Restic)), (borg, Some(OtherProgram::Borg)), (unknown, None)];
    let paper = repository(store_of(&Memory::new())).await.paper_key().expect("a full key").join("\n");
    for (objects, wanted) in expected {
        let memory = Memory::new();
        for (name, bytes) in objects {
            memory.put(name, bytes.to_vec()).await;
        }
        let is_expected = |error: Option<RepositoryError>| match error {
            Some(RepositoryError::OtherConfig { program, .. }) => program == wanted,
            _ => false,
        };
        assert!(is_expected(find_config(&store_of(&memory)).await.err()), "{wanted:?}");
        let imported = open_with_paper(store_of(&memory), &paper, Arc::new(larder_testkit::entropy())).await;
        let error = match imported.err() {
            Some(ImportError::Repository(error)) => Some(error),
            _ => None,
        };
        assert!(is_expected(error), "{wanted:?}");
    }
    // The right beginning with wrong bytes after it, or objects of Larder beside it.
    let memory = Memory::new();
    let whole = repository(store_of(&memory)).await;
    let genuine = memory.get(names::CONFIG).await.expect("there");
    memory.remove(&names::key(whole.key_of(PASSWORD).await.expect("reads").expect("opens"))).await;
    memory.put(names::CONFIG, genuine[..20].to_vec()).await;
    assert!(matches!(find_config(&store_of(&memory)).await, Err(RepositoryError::Damaged { .. })));
    whole.commit(whole.keys().series_key("host:/home"), &manifest(1)).await.expect("commits");
    memory.put(names::CONFIG, "something else".to_owned()).await;
    assert!(matches!(find_config(&store_of(&memory)).await, Err(RepositoryError::Damaged { .. })));
}

#[tokio::test(start_paused = true)]
async fn the_paper_key_restores_config_from_a_copy_or_from_a_version() {
    let memory = Memory::new();
    let whole = repository(store_of(&memory)).await;
    let (paper, genuine) =
        (whole.paper_key().expect("a full key").join("\n"), memory.get(names::CONFIG).await.expect("there"));
    let key = names::key(whole.key_of(PASSWORD).await.expect("reads").expect("opens"));
    let import = || open_with_paper(store_of(&memory), &paper, Arc::new(larder_testkit::entropy()));
    for damage in [None, Some(genuine.slice(..20))] {
        memory.remove(names::CONFIG).await;
        if let Some(damage) = damage {
            memory.put(names::CONFIG, damage).await;
        }
        import().await.expect("opens").restore_config().await.expect("restored");
        assert_eq!(memory.get(names::CONFIG).await.as_ref(), Some(&genuine));
    }
    // Without any key there is still what the newest version tells.
    memory.remove(names::CONFIG).await;
    memory.remove(&key).await;
    assert!(matches!(import().await, Err(ImportError::Repository(RepositoryError::NotARepository { .. }))));
    whole.commit(whole.keys().series_key("host:/home"), &manifest(1)).await.expect("commits");
    assert!(matches!(open(&memory, PASSWORD).await, Err(RepositoryError::NotARepository { .. })));
    assert!(matches!(find_config(&store_of(&memory)).await, Err(RepositoryError::ConfigMissing { .. })));
    let imported = import().await.expect("opens");
    assert!(imported.restore_config().await.expect("restored"));
    imported.add_key(Unlock::Password(PASSWORD), key_fields()).await.expect("added");
    let opened = open(&memory, PASSWORD).await.expect("opens");
    assert!(opened.config_problem().is_none());
    assert_eq!(opened.catalog().await.expect("listed").versions.len(), 1);
}

/// Guards against: a new repository on top of an old one, after which everything old looks damaged.
#[tokio::test]
async fn init_refuses_a_place_with_any_object_of_a_repository() {
    let memory = Memory::new();
    let whole = repository(store_of(&memory)).await;
    whole.commit(whole.keys().series_key("host:/home"), &manifest(1)).await.expect("commits");
    let contents = memory.contents().await;
    for kept in contents.keys() {
        let place = Memory::new();
        place.put(kept, contents[kept].clone()).await;
        place.put("somebody/elses", "file").await;
        let refused = init(store_of(&place), 9).await.err();
        let is_right = match kept.as_str() {
            "config" => matches!(&refused, Some(RepositoryError::AlreadyARepository { .. })),
            _ => matches!(&refused, Some(RepositoryError::ConfigMissing { name, .. }) if name == kept),
        };
        assert!(is_right, "{kept}: {refused:?}");
        assert_eq!(place.contents().await.len(), 2, "{kept}");
    }
    let place = Memory::new();
    place.put("somebody/elses", "file").await;
    init(store_of(&place), 9).await.expect("a place with other things is free");
}

/// Of two at once one wins; the other leaves no key, or one that is marked and costs nothing.
#[tokio::test]
async fn a_lost_init_removes_its_key_or_leaves_a_foreign_one() {
    for may_delete in [true, false] {
        let memory = Memory::new();
        let (store, faults) = FaultStore::new(memory.store());
        let store = Store::from_object_store(store, "", &StoreOptions::default()).expect("opens");
        if !may_delete {
            let denied = Fault::FailBefore(larder_testkit::Failure::Denied);
            faults.add(When::kind(OpKind::Delete), denied, Times::Always);
        }
        let other = Memory::new();
        repository(store_of(&other)).await;
        // The winner is there after the loser has looked, and before it creates `config`.
        let late = Fault::Delay(Duration::from_millis(300));
        faults.add(When::kind(OpKind::Put).path("config"), late, Times::Always);
        let lost = tokio::spawn(init(store, 9));
        tokio::time::sleep(Duration::from_millis(100)).await;
        for (name, bytes) in other.contents().await {
            memory.put(&name, bytes).await;
        }
        let lost = lost.await.expect("no panic");
        assert!(matches!(lost, Err(RepositoryError::AlreadyARepository { .. })), "{:?}", lost.err());
        let left = usize::from(!may_delete);
        assert_eq!(memory.paths().await.len(), 2 + left);
        let opened = open(&memory, PASSWORD).await.expect("the winner's key opens");
        let keys = opened.list_keys().await.expect("listed").keys;
        assert_eq!(keys.iter().filter(|key| key.is_foreign).count(), left);
        let Some(foreign) = keys.iter().find(|key| key.is_foreign) else { continue };
        // No password is tried on it.
        let Err(RepositoryError::WrongPassword { keys: tried, .. }) = open(&memory, b"wrong").await else {
            panic!("the password is wrong");
        };
        assert_eq!(tried, 1);
        let genuine = keys.iter().find(|key| !key.is_foreign).expect("one is genuine");
        assert!(matches!(opened.remove_key(genuine.id).await, Err(RepositoryError::CannotRemoveKey { .. })));
        opened.remove_key(foreign.id).await.expect("removed");
    }
}

/// Two operators remove each other's key: both see the other one, and then both are deleted. A key is left all the same.
#[tokio::test]
async fn two_that_remove_each_others_key_leave_one() {
    let memory = Memory::new();
    let first = repository(store_of(&memory)).await;
    first.add_key(Unlock::Password(b"another"), key_fields()).await.expect("added");
    let keys = [PASSWORD, b"another"];
    let mut ids = Vec::new();
    for password in keys {
        ids.push(first.key_of(password).await.expect("asked").expect("there"));
    }
    let (store, faults) = FaultStore::new(memory.store());
    faults.add(When::kind(OpKind::Delete), Fault::Delay(Duration::from_millis(300)), Times::Always);
    let store = Store::from_object_store(store, "", &StoreOptions::default()).expect("opens");
    let open = |password| Repository::open(store.clone(), password, Arc::new(larder_testkit::entropy()));
    let (a, b) = (open(keys[0]).await.expect("opens"), open(keys[1]).await.expect("opens"));
    let (a, b) = tokio::join!(a.remove_key(ids[1]), b.remove_key(ids[0]));
    let refused = [a, b].into_iter().filter_map(Result::err);
    let refused: Vec<_> = refused.map(|error| matches!(error, RepositoryError::CannotRemoveKey { .. })).collect();
    assert!(!refused.is_empty() && refused.iter().all(|is_refused| *is_refused));
    let mut opened = 0;
    for password in keys {
        opened += usize::from(crate::config::open(&memory, password).await.is_ok());
    }
    assert_eq!(opened, refused.len());
}

/// Names of people and machines are as long as they are.
#[tokio::test]
async fn a_copy_of_config_leaves_room_for_names() {
    let memory = Memory::new();
    let whole = repository(store_of(&memory)).await;
    let long = KeyFields { user: "u".repeat(1500), host: "h".repeat(1500), ..key_fields() };
    whole.add_key(Unlock::Password(b"another"), long).await.expect("added");
    open(&memory, b"another").await.expect("opens");
}

/// That the process for passwords was killed is no mistake of this program, and leaves nothing behind.
#[tokio::test]
async fn a_password_that_cannot_be_stretched_makes_no_key() {
    const KILLED: &[u8] = b"killed";
    stretch_by(|_, _, password| match password {
        KILLED => Err(StretchError { how: "was ended by signal 9".to_owned() }),
        _ => Ok(None),
    });
    let memory = Memory::new();
    let costly = || KeyFields { cost: Some(KdfCost { memory_kib: 8 << 10, passes: 1, lanes: 1 }), ..key_fields() };
    let entropy = Arc::new(larder_testkit::entropy());
    let made = Repository::init(store_of(&memory), config(), KILLED, costly(), entropy).await;
    let error = made.expect_err("no password was stretched");
    assert!(matches!(error, RepositoryError::Stretch(_)), "{error}");
    assert!(memory.paths().await.is_empty());
    let whole = repository(store_of(&memory)).await;
    let before = memory.paths().await;
    let error = whole.add_key(Unlock::Password(KILLED), costly()).await.expect_err("no password was stretched");
    assert!(matches!(error, RepositoryError::Stretch(_)), "{error}");
    assert_eq!(memory.paths().await, before);
}

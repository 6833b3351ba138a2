//! Opening with the key file of a machine: what it costs, and what it may not open.

use std::sync::Arc;

use larder_format::ids::{KeyId, RepositoryId};
use larder_format::key_file::{KeyFields, MachineKey};
use larder_format::names;
use larder_format::roles::Roles;
use larder_store::{Repository, RepositoryError, Store, StoreOptions};
use larder_testkit::Memory;

use crate::support::{key_fields, repository};

fn store_of(memory: &Memory) -> Store {
    Store::from_object_store(memory.store(), "", &StoreOptions::default()).expect("opens")
}

async fn made(memory: &Memory, roles: Roles) -> MachineKey {
    let repository = repository(store_of(memory)).await;
    let mut kept = None;
    let fields = KeyFields { roles, domain: "machine".to_owned(), ..key_fields() };
    let keep = |key: &MachineKey| {
        kept = Some(key.clone());
        Ok::<_, RepositoryError>(())
    };
    let id = repository.add_machine_key(fields, keep).await.expect("made");
    let key = kept.expect("it was kept before the object was created");
    assert_eq!((key.key, key.repository), (id, repository.config().repository));
    key
}

async fn open(store: Store, keys: &[MachineKey]) -> Result<Repository, RepositoryError> {
    Repository::open_with_machine_key(store, keys, Arc::new(larder_testkit::entropy())).await
}

/// No listing, no guess at a password: two objects, read at once.
#[tokio::test]
async fn it_takes_two_reads() {
    let memory = Memory::new();
    let key = made(&memory, Roles::BACKUP).await;
    let store = store_of(&memory);
    let opened = open(store.clone(), std::slice::from_ref(&key)).await.expect("opens");
    let stats = store.stats();
    assert_eq!((stats.reads, stats.requests()), (2, 2));
    assert_eq!(opened.keys().roles(), Roles::BACKUP);
    assert_eq!(opened.keys().domain(), opened.keys().domain_id("machine", 0));
    assert!(opened.keys().secrets().witness.is_some(), "a secret of this machine");
    // Lines of other repositories in the same file cost nothing.
    let foreign = MachineKey { repository: RepositoryId([1; 16]), ..key.clone() };
    let store = store_of(&memory);
    open(store.clone(), &[foreign, key]).await.expect("opens");
    assert_eq!((store.stats().reads, store.stats().requests()), (2, 2));
}

#[tokio::test]
async fn what_does_not_fit_is_told() {
    let memory = Memory::new();
    let key = made(&memory, Roles::RESTORE).await;
    let with = async |key: MachineKey| open(store_of(&memory), &[key]).await.expect_err("refused");
    let foreign = with(MachineKey { repository: RepositoryId([1; 16]), key: KeyId([1; 8]), ..key.clone() }).await;
    assert!(matches!(foreign, RepositoryError::ForeignKeyFile), "{foreign}");
    let removed = with(MachineKey { key: KeyId([1; 8]), ..key.clone() }).await;
    assert!(matches!(removed, RepositoryError::KeyRemoved), "{removed}");
    let wrong = with(MachineKey { secret: [1; 32], ..key.clone() }).await;
    assert!(matches!(&wrong, RepositoryError::Damaged { name, .. } if *name == names::key(key.key)), "{wrong}");
    // Without `config`, the copy in the key takes its place.
    memory.remove(names::CONFIG).await;
    let opened = open(store_of(&memory), &[key]).await.expect("opens");
    assert!(opened.config_problem().is_some());
}

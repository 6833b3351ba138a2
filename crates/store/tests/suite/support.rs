//! A repository to play with.

use std::sync::Arc;
use std::time::Duration;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::ids::RepositoryId;
use larder_format::key_file::KeyFields;
use larder_store::{Repository, Store, StoreOptions};
use larder_testkit::{FaultStore, Faults, Memory};

/// What opens it.
pub(crate) const PASSWORD: &[u8] = b"a password for tests";

/// The least costly key.
pub(crate) fn key_fields() -> KeyFields {
    KeyFields::for_tests()
}

/// What it is made with.
pub(crate) fn config() -> Config {
    Config {
        repository: RepositoryId([7; 16]),
        created_ms: 0,
        chunker: ChunkerParams::with_average(Algorithm::DEFAULT, 4096),
        page_cuts: true,
    }
}

/// A new repository on this store.
pub(crate) async fn repository(store: Store) -> Repository {
    Repository::init(store, config(), PASSWORD, key_fields(), Arc::new(larder_testkit::entropy()))
        .await
        .expect("is made")
}

/// One behind a store that fails on demand, and is not asked twice.
pub(crate) async fn faulty_repository() -> (Memory, Repository, Faults) {
    let memory = Memory::new();
    let (store, faults) = FaultStore::new(memory.store());
    let soon = Duration::from_millis(1);
    let options = StoreOptions { retry_deadline: soon, first_deadline: soon, ..StoreOptions::default() };
    let repository = repository(Store::from_object_store(store, "", &options).expect("opens")).await;
    (memory, repository, faults)
}

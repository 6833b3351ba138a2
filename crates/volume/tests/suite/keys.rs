//! What opens a store, also one with the keys of a repository.

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::ids::{KeyId, RepositoryId};
use larder_format::key_file::{KeyFields, MachineKey, Unlock, wrap};
use larder_format::keys::{Keys, MasterKey};
use larder_volume::disk::SimulatedDisk;
use larder_volume::store::{LikeRepository, NewStore, StoreUnlock, unlock, unlock_with};
use larder_volume::{Store, VolumeError};

use super::scene::{Seeded, new_store};

/// A repository with a password and a key file.
fn repository() -> (LikeRepository, MachineKey) {
    let keys = Keys::derive(&MasterKey([7; 32]));
    let chunker = ChunkerParams::with_average(Algorithm::DEFAULT, 64 << 10);
    let config = Config { repository: RepositoryId([3; 16]), created_ms: 0, chunker, page_cuts: true };
    let machine = MachineKey { repository: config.repository, key: KeyId([2; 8]), secret: [9; 32] };
    let bytes = config.encode(&keys).unwrap();
    let object = |id: KeyId, unlock: Unlock<'_>| {
        let cost = KeyFields::for_tests().cost.filter(|_| matches!(unlock, Unlock::Password(_)));
        let fields = KeyFields { cost, salt: [id.0[0]; 32], ..KeyFields::for_tests() };
        (id, wrap(&keys, keys.secrets(), unlock, &fields, id, config.repository, &bytes).unwrap())
    };
    let objects = vec![
        object(KeyId([1; 8]), Unlock::Password(b"of the repository")),
        object(machine.key, Unlock::File(&machine.secret)),
    ];
    (LikeRepository { keys: keys.clone(), config: config.clone(), objects }, machine)
}

#[test]
fn keys_of_a_repository_open_a_store_and_nothing_else_does() {
    let (like, machine) = repository();
    let disk = SimulatedDisk::new(0);
    let new = NewStore { like: Some(like.clone()), ..new_store(4, 1 << 16) };
    let made = Store::create(&disk, &*Seeded::entropy(1), b"", &new).unwrap();
    assert_ne!(made.repository, like.config.repository);
    let (config, keys) = unlock(&disk, b"of the repository").unwrap();
    assert_eq!(config, made);
    assert_eq!(keys.master(), like.keys.master());
    assert!(unlock_with(&disk, &StoreUnlock::KeyFile(std::slice::from_ref(&machine))).is_ok());
    let other = MachineKey { secret: [8; 32], ..machine.clone() };
    let elsewhere = MachineKey { repository: made.repository, ..machine };
    for wrong in [other, elsewhere] {
        assert!(matches!(unlock_with(&disk, &StoreUnlock::KeyFile(&[wrong])), Err(VolumeError::WrongKey)));
    }
    for wrong in [&b""[..], b"of the store"] {
        assert!(matches!(unlock(&disk, wrong), Err(VolumeError::WrongKey)));
    }
}

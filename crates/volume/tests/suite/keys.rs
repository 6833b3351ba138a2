//! What opens a store, also one with the keys of a repository.

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::ids::{KeyId, RepositoryId};
use larder_format::key_file::{KeyFields, MachineKey, Unlock, wrap};
use larder_format::keys::{Keys, MasterKey};
use std::sync::Arc;

use larder_volume::disk::{Disk, Fault, SimulatedDisk};
use larder_volume::store::{LikeRepository, NewStore, StoreUnlock, unlock, unlock_with};
use larder_volume::{Store, VolumeError};

use super::scene::{Random, Seeded, new_store, options};

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

/// Two stores with the keys of one repository: the anchor of one says nothing of the log of the
/// other.
#[test]
fn the_anchor_of_a_store_with_the_same_keys_is_none() {
    let (like, _) = repository();
    let made = [1, 2].map(|seed| {
        let disk = SimulatedDisk::new(seed);
        let new = NewStore { like: Some(like.clone()), ..new_store(4, 1 << 16) };
        let config = Store::create(&disk, &*Seeded::entropy(seed), b"", &new).unwrap();
        (disk, config, seed)
    });
    let open = |(disk, config, seed): &(SimulatedDisk, Config, u64)| {
        let entropy = Seeded::entropy(seed + 10);
        Store::open_with_keys(Arc::new(disk.clone()), entropy, config, like.keys.clone(), options())
    };
    let copy = |from: &SimulatedDisk, to: &SimulatedDisk, path: &str| {
        let (from, to) = (from.open(path).unwrap(), to.open(path).unwrap());
        let mut bytes = vec![0; from.length().unwrap() as usize];
        from.read_at(0, &mut bytes).unwrap();
        to.write_at(0, &bytes).unwrap();
        to.sync().unwrap();
    };
    let [one, two] = &made;
    let store = open(one).unwrap().0;
    let volume = store.create_volume("disk", 1 << 20, 0).unwrap().id;
    let earlier = SimulatedDisk::new(3);
    for path in ["log/0", "log/1", "log/2", "log/3"] {
        earlier.create(path).unwrap();
        copy(&one.0, &earlier, path);
    }
    for round in 0..5 {
        store.write(volume, 0, &Random(round).bytes(512)).unwrap();
        store.flush().unwrap();
    }
    drop(store);
    one.0.restart(Fault::Power);
    // The log as it was before, and an anchor that notes none of its records.
    for path in ["log/0", "log/1", "log/2", "log/3"] {
        copy(&earlier, &one.0, path);
    }
    copy(&two.0, &one.0, "anchor");
    let error = open(one).unwrap_err();
    assert!(matches!(&error, VolumeError::DamagedLog { what, .. } if what == "anchor"), "{error}");
}

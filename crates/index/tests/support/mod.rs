//! What the tests of this crate share.

#![allow(dead_code, unreachable_pub, reason = "every user of this module uses a part of it")]

use std::sync::Arc;

use larder_chunking::{Algorithm, ChunkerParams};
use larder_format::config::Config;
use larder_format::ids::{JobId, RepositoryId, SeriesKey};
use larder_format::index_manifest::{IndexHead, IndexManifest, IndexedVersion, PassStatistics, VersionState};
use larder_format::key_file::{KdfCost, KeyFields};
use larder_store::repository::SystemEntropy;
use larder_store::{Repository, Store, StoreOptions};
use larder_testkit::{FaultStore, Faults, Memory};

pub const PASS: JobId = JobId([7; 16]);

/// A repository in memory, behind a store that fails on demand.
pub async fn repository() -> (Repository, Memory, Faults) {
    let memory = Memory::new();
    let (inner, faults) = FaultStore::new(memory.store());
    let store = Store::from_object_store(inner, "", &StoreOptions::default()).expect("opens");
    let config = Config {
        repository: RepositoryId([7; 16]),
        created_ms: 0,
        chunker: ChunkerParams::with_average(Algorithm::MinCdc, 4096),
        page_cuts: true,
    };
    let fields =
        KeyFields { cost: KdfCost::TEST, salt: [0; 32], user: String::new(), host: String::new(), created_ms: 0 };
    let repository =
        Repository::init(store, config, b"a password", fields, Arc::new(SystemEntropy)).await.expect("is made");
    (repository, memory, faults)
}

/// A manifest with as many versions as its pass's id says.
pub fn manifest(pass: u8) -> IndexManifest {
    let version = |number: u8| IndexedVersion {
        number: u32::from(number),
        series: SeriesKey([1; 16]),
        job: JobId([number; 16]),
        generation: 0,
        state: VersionState::Retained,
    };
    let head = IndexHead {
        number: 0,
        pass: JobId([pass; 16]),
        attempt: [0; 16],
        time_ms: 5,
        host: "host".to_owned(),
        program: "test".to_owned(),
        next_version: u32::from(pass),
        next_container: 0,
        next_age: 0,
        statistics: PassStatistics::default(),
    };
    IndexManifest { head, versions: (0..pass).map(version).collect(), runs: Vec::new(), queue: Vec::new() }
}

//! Whoever may only create objects hides nothing, ends nothing and opens nothing: what they plant is ignored and reported.
//!
//! Each test has a repository of a few versions and puts objects where somebody hostile, without the key, would put them:
//! garbage, objects of other names, claims of a newer format, and objects too large to be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_format::content::ContentRoots;
use larder_format::ids::{JobId, KeyId, RepositoryId, SeriesKey};
use larder_format::key_file::{self, KdfCost, KeyFields, Unlock};
use larder_format::keys::{Keys, MasterKey};
use larder_format::lease::{Done, JobKind, LEASE_MAX, Lease, Pin};
use larder_format::manifest::{Manifest, Register, SourceKind, Statistics, Summary};
use larder_format::mark::Forgotten;
use larder_format::names;
use larder_format::recipe::Recipe;
use larder_store::catalog::Catalog;
use larder_store::keyring::KEYS_TRIED_MAX;
use larder_store::{CacheOptions, Repository, RepositoryError, Store, StoreErrorKind, StoreOptions};
use larder_testkit::Memory;

use crate::support::{PASSWORD, key_fields, repository};

const SERIES: &str = "host:/home";

struct Play {
    memory: Memory,
    repository: Repository,
}

impl Play {
    /// A repository of versions 1 to 3.
    async fn new() -> Self {
        let memory = Memory::new();
        let store = Store::from_object_store(memory.store(), "", &StoreOptions::default()).expect("opens");
        let repository = repository(store).await;
        let play = Self { memory, repository };
        for id in 1..=3 {
            play.repository.commit(play.series(), &manifest(id)).await.expect("commits");
        }
        play
    }

    fn series(&self) -> SeriesKey {
        self.repository.keys().series_key(SERIES)
    }

    fn pin(&self, id: u8) -> Pin {
        Pin { series: self.series(), job: JobId([id; 16]) }
    }

    fn register(&self, id: u8, generation: u32) -> String {
        names::version(self.series(), JobId([id; 16]), generation)
    }

    fn mark(&self, id: u8) -> String {
        names::forgotten(self.series(), JobId([id; 16]))
    }

    async fn catalog(&self) -> Catalog {
        self.repository.catalog().await.expect("can be listed")
    }

    async fn listed(&self) -> Vec<(u8, u32)> {
        self.catalog().await.versions.iter().map(|version| (version.id().0[0], version.generation)).collect()
    }

    async fn faulty(&self) -> Vec<String> {
        let catalog = self.catalog().await;
        assert!(catalog.damaged.is_empty(), "{:?}", catalog.damaged);
        catalog.faulty.into_iter().map(|object| object.name).collect()
    }

    async fn open(&self, password: &[u8]) -> Result<Repository, RepositoryError> {
        Repository::open(self.repository.store().clone(), password, Arc::new(larder_testkit::entropy())).await
    }

    /// What somebody without the key can put under a name: nothing, garbage, another object, what claims to be newer.
    async fn plants(&self, magic: &[u8; 4]) -> Vec<Vec<u8>> {
        let newer = [&magic[..], &[9, 1, 0, 0], &[3; 60]].concat();
        let garbage = [&magic[..], &[1, 1, 0, 0], &[3; 60]].concat();
        // Claims a summary of four gigabytes.
        let long = [&magic[..], &[1, 1, 0, 0], &[3; 16], &[0xff; 4], &[7; 5000]].concat();
        let other = self.memory.get(&self.register(2, 0)).await.expect("there").to_vec();
        vec![Vec::new(), b"x".to_vec(), newer, garbage, long, other]
    }
}

/// A version of nothing.
pub(crate) fn manifest(id: u8) -> Manifest {
    let summary = Summary {
        id: JobId([id; 16]),
        series: SERIES.to_owned(),
        base: None,
        time_ms: u64::from(id),
        started_ms: 0,
        ended_ms: 0,
        host: "host".to_owned(),
        user: String::new(),
        tags: Vec::new(),
        paths: Vec::new(),
        program: String::new(),
        source: SourceKind::Tree,
        statistics: Statistics::default(),
        attempt: [id; 16],
        sketch: larder_format::sketch::Sketch::default(),
        layout: larder_format::layout::Layout::Standard,
        more_bases: Vec::new(),
        domain: Default::default(),
        is_signed: true,
        roots: ContentRoots::of(&Recipe::default(), &Recipe::default()),
        witness: None,
        domain_name: String::new(),
        domain_epoch: 0,
        origin: None,
    };
    Manifest { summary, data: Recipe::default(), metadata: Recipe::default(), containers: Vec::new() }
}

fn forgotten() -> Forgotten {
    Forgotten { time_ms: 5, host: "host".to_owned(), reason: "alice: a test".to_owned() }
}

fn lease(process: u32) -> Lease {
    Lease {
        kind: JobKind::Backup,
        series: SERIES.to_owned(),
        pins: Vec::new(),
        adopts: Vec::new(),
        host: "host".to_owned(),
        process,
        written_ms: 0,
        renew_seconds: 300,
        claims: None,
        generation: None,
        layout: None,
        ended: None,
        domain: Default::default(),
        is_signed: true,
    }
}

#[tokio::test]
async fn a_genuine_mark_hides_its_version_and_no_other() {
    let play = Play::new().await;
    play.repository.forget(play.pin(2), &forgotten()).await.expect("is marked");
    // The second finds it done, and the first one's words stay.
    let other = Forgotten { reason: "bob".to_owned(), ..forgotten() };
    play.repository.forget(play.pin(2), &other).await.expect("is marked");
    assert_eq!(play.listed().await, [(1, 0), (3, 0)]);
    assert!(play.faulty().await.is_empty());
    assert_eq!(play.repository.forgotten(play.pin(2)).await.expect("reads"), Some(forgotten()));
    assert_eq!(play.repository.forgotten(play.pin(1)).await.expect("reads"), None);
    assert!(!play.repository.is_retained(play.pin(2)).await.expect("reads"));
    let newest = async || play.repository.newest_of_every_series().await.expect("reads");
    assert_eq!(newest().await.iter().map(|version| version.id().0[0]).collect::<Vec<_>>(), [3]);
    play.repository.forget(play.pin(3), &forgotten()).await.expect("is marked");
    assert_eq!(newest().await.iter().map(|version| version.id().0[0]).collect::<Vec<_>>(), [1]);
    assert!(play.repository.is_retained(play.pin(1)).await.expect("reads"));
    // Somebody who copies a mark to another name hides nothing with it.
    let mark = play.memory.get(&play.mark(2)).await.expect("there");
    play.memory.put(&play.mark(3), mark).await;
    assert_eq!(play.listed().await, [(1, 0), (3, 0)]);
    assert_eq!(play.faulty().await, [play.mark(3)]);
}

#[tokio::test]
async fn a_planted_mark_hides_nothing_but_is_not_built_on() {
    let play = Play::new().await;
    for plant in play.plants(b"LFGT").await {
        play.memory.put(&play.mark(3), plant.clone()).await;
        assert_eq!(play.listed().await, [(1, 0), (2, 0), (3, 0)], "{plant:02x?}");
        assert_eq!(play.faulty().await, [play.mark(3)], "{plant:02x?}");
        // Who would delete on the strength of it is told, and who would build on the version does without.
        assert!(play.repository.forgotten(play.pin(3)).await.is_err(), "{plant:02x?}");
        assert!(play.repository.forget(play.pin(3), &forgotten()).await.is_err(), "{plant:02x?}");
        assert!(!play.repository.is_retained(play.pin(3)).await.expect("reads"), "{plant:02x?}");
    }
}

/// Marks are read once for each cache, and what was planted does not stay in it.
#[tokio::test]
async fn a_cache_keeps_marks_and_forgets_what_was_planted() {
    let play = Play::new().await;
    let dir = tempfile::tempdir().expect("temporary folder");
    let cache = Some(CacheOptions { dir: dir.path().to_owned(), max_bytes: 1 << 20 });
    let options = StoreOptions { cache, ..StoreOptions::default() };
    let store = Store::from_object_store(play.memory.store(), "", &options).expect("opens");
    let cached = play.repository.through(store.with_cache_of(RepositoryId([7; 16])));
    let listed = async || cached.catalog().await.expect("can be listed").versions.len();
    play.memory.put(&play.mark(2), &b"planted"[..]).await;
    play.memory.put(&play.register(3, 1), &b"planted"[..]).await;
    assert_eq!(listed().await, 3);
    let genuine =
        forgotten().encode(cached.keys(), Default::default(), play.series(), JobId([2; 16]), [3; 32]).expect("fits");
    play.memory.put(&play.mark(2), genuine).await;
    let genuine = manifest(3).encode(cached.keys(), play.series(), 1, [4; 32]).expect("valid");
    play.memory.put(&play.register(3, 1), genuine).await;
    let catalog = cached.catalog().await.expect("can be listed");
    let versions: Vec<_> = catalog.versions.iter().map(|version| (version.id().0[0], version.generation)).collect();
    assert_eq!(versions, [(1, 0), (3, 1)]);
    assert!(catalog.faulty.is_empty());
    assert_eq!(cached.manifest(&catalog.versions[1]).await.expect("reads"), manifest(3));
    // A mark that is genuine from the start is fetched once.
    play.repository.forget(play.pin(1), &forgotten()).await.expect("is marked");
    assert_eq!(listed().await, 1);
    let before = cached.store().stats().reads;
    play.memory.remove(&play.mark(2)).await;
    play.memory.remove(&play.register(2, 0)).await;
    play.memory.remove(&play.register(3, 1)).await;
    assert_eq!(listed().await, 1);
    assert_eq!(cached.store().stats().reads - before, 0);
}

#[tokio::test]
async fn a_planted_generation_hides_no_lower_one() {
    let play = Play::new().await;
    let salt = [5; 32];
    let genuine = manifest(3).encode(play.repository.keys(), play.series(), 1, salt).expect("valid");
    play.memory.put(&play.register(3, 1), genuine).await;
    assert_eq!(play.listed().await, [(1, 0), (2, 0), (3, 1)]);
    for plant in play.plants(b"LMAN").await {
        for generation in [2, u32::MAX] {
            play.memory.put(&play.register(3, generation), plant.clone()).await;
        }
        assert_eq!(play.listed().await, [(1, 0), (2, 0), (3, 1)], "{plant:02x?}");
        assert_eq!(play.faulty().await, [play.register(3, 2), play.register(3, u32::MAX)], "{plant:02x?}");
        let version = play.catalog().await.versions.pop().expect("three");
        assert_eq!(play.repository.manifest(&version).await.expect("reads"), manifest(3));
    }
}

#[tokio::test]
async fn a_version_without_any_readable_generation_is_damaged_and_not_gone() {
    let play = Play::new().await;
    play.memory.change(&play.register(3, 0), |bytes| bytes[40] ^= 1).await;
    play.memory.put(&play.register(3, 1), &b"garbage"[..]).await;
    // A job that was aborted has no version, whatever is put in front of it.
    let salt = [5; 32];
    let (keys, job) = (play.repository.keys(), JobId([4; 16]));
    let aborted = larder_format::manifest::encode_aborted(keys, keys.domain(), play.series(), job, 0, salt);
    let aborted = aborted.expect("an operator's key");
    let register = Manifest::decode(play.repository.keys(), play.series(), JobId([4; 16]), 0, &aborted);
    assert_eq!(register, Ok(Register::Aborted));
    play.memory.put(&play.register(4, 0), aborted).await;
    play.memory.put(&play.register(4, 1), &b"garbage"[..]).await;
    let catalog = play.catalog().await;
    assert_eq!(catalog.versions.len(), 2);
    let damaged: Vec<_> = catalog.damaged.iter().map(|version| version.name.clone()).collect();
    let faulty: Vec<_> = catalog.faulty.iter().map(|object| object.name.clone()).collect();
    assert_eq!(damaged, [play.register(3, 1)]);
    assert_eq!(faulty, [play.register(3, 0), play.register(4, 1)]);
}

#[tokio::test]
async fn planted_leases_and_closing_marks_change_nothing_of_a_job() {
    let play = Play::new().await;
    let (job, other) = (JobId([8; 16]), JobId([9; 16]));
    let mut open = play.repository.open_lease(job, lease(1)).await.expect("opens");
    play.repository.renew_lease(&mut open, 77).await.expect("renews");
    // Of jobs that have committed, nothing is read: 1 is one of them.
    let committed = play.repository.open_lease(JobId([1; 16]), lease(1)).await.expect("opens");
    let closed = play.repository.open_lease(other, lease(2)).await.expect("opens");
    play.repository.close_lease(&closed, Done::nothing()).await.expect("closes");
    assert!(play.repository.is_closed(other).await.expect("reads"));
    for plant in play.plants(b"LLSE").await {
        for name in [names::lease(job, 2), names::lease(job, u32::MAX), names::lease_done(job)] {
            play.memory.put(&name, plant.clone()).await;
        }
        let unfinished = play.repository.unfinished_jobs().await.expect("can be listed");
        let unfinished: Vec<_> = unfinished.iter().map(|other| (other.job, other.lease.written_ms)).collect();
        assert_eq!(unfinished, [(job, 77)], "{plant:02x?}");
        let faulty = play.repository.faulty_leases().await.expect("can be listed");
        let faulty: Vec<_> = faulty.into_iter().map(|object| object.name).collect();
        assert_eq!(faulty, [names::lease(job, 2), names::lease(job, u32::MAX), names::lease_done(job)]);
        assert!(play.repository.is_closed(job).await.is_err());
        // A pass may have read it while it was whole: what it may have collected is not taken over.
        assert!(!play.repository.is_adoptable(play.pin(8)).await.expect("reads"));
    }
    play.memory.remove(&names::lease_done(job)).await;
    assert!(play.repository.is_adoptable(play.pin(8)).await.expect("reads"));
    play.repository.close_lease(&committed, Done::committed(play.pin(1).series)).await.expect("closes");
    // The renewal that would have had the taken number has the next free one.
    play.repository.renew_lease(&mut open, 78).await.expect("renews");
    let unfinished = play.repository.unfinished_jobs().await.expect("can be listed");
    assert_eq!(unfinished.iter().map(|other| other.lease.written_ms).collect::<Vec<_>>(), [78]);
}

/// Guards against: an object of any size under any name was read whole.
#[tokio::test]
async fn what_is_too_large_to_be_genuine_is_not_fetched() {
    const LARGE: usize = 4 << 20;
    let play = Play::new().await;
    let job = JobId([8; 16]);
    play.repository.open_lease(job, lease(1)).await.expect("opens");
    let key = names::key(KeyId([0; 8]));
    for name in [names::lease(job, 1), names::lease_done(job), play.mark(1), play.mark(2), key] {
        play.memory.put(&name, vec![7; LARGE]).await;
    }
    let store = play.repository.store();
    let before = store.stats().bytes_down;
    assert_eq!(play.listed().await.len(), 3);
    assert_eq!(play.repository.unfinished_jobs().await.expect("can be listed").len(), 1);
    assert_eq!(play.repository.faulty_leases().await.expect("can be listed").len(), 2);
    assert_eq!(play.repository.list_keys().await.expect("can be listed").unreadable.len(), 1);
    play.open(PASSWORD).await.expect("opens");
    assert!(store.stats().bytes_down - before < 64 << 10, "{:?}", store.stats());
    let error = store.get_up_to(&names::lease(job, 1), LEASE_MAX).await.expect_err("refused");
    assert_eq!(error.kind, StoreErrorKind::TooLarge);
    assert_eq!(store.get_up_to(&names::lease(job, 1), LARGE as u64).await.expect("fits").len(), LARGE);
    assert_eq!(store.get(&names::lease(job, 1)).await.expect("reads").len(), LARGE);
}

#[tokio::test]
async fn keys_that_are_none_keep_no_other_from_opening() {
    let play = Play::new().await;
    let genuine = play.memory.contents().await.into_iter().find(|(name, _)| name.starts_with(names::KEYS));
    let (genuine_name, genuine) = genuine.expect("one key");
    // Sorted before and behind the genuine one; also a copy of it, which is bound to another name.
    let mut plants = play.plants(b"LKEY").await;
    plants.push(genuine.to_vec());
    plants.push(vec![7; 1 << 20]);
    let mut greedy = genuine.to_vec();
    // The cost is the first field: a map of three, memory first. 2^32 - 1 KiB instead of 32.
    let at = greedy.windows(4).position(|window| window == [0xa3, 0x00, 0x18, 0x20]).expect("there");
    greedy.splice(at + 2..at + 4, [0x1a, 0xff, 0xff, 0xff, 0xff]);
    let fields_len = u32::from_le_bytes([greedy[8], greedy[9], greedy[10], greedy[11]]) + 3;
    greedy[8..12].copy_from_slice(&fields_len.to_le_bytes());
    plants.push(greedy);
    let mut planted = BTreeMap::new();
    for (number, plant) in plants.into_iter().enumerate() {
        for first in [0, 0xff] {
            let id = KeyId([first, number as u8, 0, 0, 0, 0, 0, 0]);
            play.memory.put(&names::key(id), plant.clone()).await;
            planted.insert(id, plant.clone());
        }
    }
    play.open(PASSWORD).await.expect("opens");
    let Err(RepositoryError::WrongPassword { keys, unreadable, untried }) = play.open(b"wrong").await else {
        panic!("a wrong password is one, whatever else lies there");
    };
    // Readable are the genuine key and its copies; the greedy ones are readable as well, but not tried.
    assert_eq!((keys, untried, keys + untried + unreadable), (3, 2, planted.len() + 1));
    let list = play.repository.list_keys().await.expect("can be listed");
    assert_eq!((list.keys.len(), list.keys.len() + list.unreadable.len()), (5, planted.len() + 1));
    let own = play.repository.key_of(PASSWORD).await.expect("reads").expect("opens one");
    assert_eq!(names::key(own), genuine_name);
    for key in list.unreadable {
        play.repository.remove_key(key.id).await.expect("can be removed");
    }
    // Without the genuine key there is damage to tell of, not a wrong password; without anything there is no key.
    play.memory.remove(&genuine_name).await;
    for id in planted.keys() {
        play.memory.remove(&names::key(*id)).await;
    }
    assert!(matches!(play.open(PASSWORD).await, Err(RepositoryError::NoKeys)));
    play.memory.put(&genuine_name, genuine.slice(..50)).await;
    assert!(matches!(play.open(PASSWORD).await, Err(RepositoryError::Damaged { .. })));
    // The commitment proves the password: what does not open behind it is damage.
    let mut damaged = genuine.to_vec();
    *damaged.last_mut().expect("not empty") ^= 1;
    play.memory.put(&genuine_name, damaged).await;
    assert!(matches!(play.open(PASSWORD).await, Err(RepositoryError::Damaged { .. })));
    assert!(matches!(play.open(b"wrong").await, Err(RepositoryError::WrongPassword { .. })));
}

/// Guards against: each key object tests one password more, and takes the time of one.
#[tokio::test]
async fn only_so_many_keys_are_tried() {
    let play = Play::new().await;
    let own = play.repository.key_of(PASSWORD).await.expect("reads").expect("opens one");
    let bytes = play.memory.get(&names::key(own)).await.expect("there");
    for number in 0..KEYS_TRIED_MAX as u8 + 5 {
        play.memory.put(&names::key(KeyId([0, 0, 0, 0, 0, 0, 0, number])), bytes.clone()).await;
    }
    let Err(RepositoryError::WrongPassword { keys, untried, .. }) = play.open(b"wrong").await else {
        panic!("the password is wrong");
    };
    assert_eq!((keys, untried), (KEYS_TRIED_MAX, 6));
}

/// A key of the right password that leads to another master key: made by whoever knows the password and nothing else.
#[tokio::test]
async fn a_key_of_another_master_key_is_passed_over() {
    let play = Play::new().await;
    let other = Keys::derive(&MasterKey([9; 32]));
    let id = KeyId([0; 8]);
    let unlock = Unlock::Password(PASSWORD);
    let config = play.memory.get(names::CONFIG).await.expect("there");
    let repository = RepositoryId([7; 16]);
    let wrapped = key_file::wrap(&other, other.secrets(), unlock, &key_fields(), id, repository, &config);
    play.memory.put(&names::key(id), wrapped.expect("wraps")).await;
    play.open(PASSWORD).await.expect("the genuine key opens");
    assert_ne!(play.repository.key_of(PASSWORD).await.expect("reads"), Some(id));
}

/// Keys that cost more than any of this program makes are not tried: five of a gigabyte would keep every client waiting for
/// minutes (M5).
#[tokio::test]
async fn a_key_that_costs_too_much_is_not_tried() {
    let play = Play::new().await;
    let repository = &play.repository;
    let default = KdfCost::DEFAULT;
    let more = KdfCost { memory_kib: 4 * default.memory_kib + 1, passes: 1, lanes: 4 };
    let longer = KdfCost { memory_kib: 64, passes: 64, lanes: 64 };
    assert!(default.is_usual() && !more.is_usual() && longer.is_usual());
    let config = play.memory.get(names::CONFIG).await.expect("there");
    let fields = KeyFields { cost: Some(more), ..key_fields() };
    let (id, unlock) = (KeyId([0; 8]), Unlock::Password(b"costly"));
    let (keys, of) = (repository.keys(), repository.config().repository);
    let costly = key_file::wrap(keys, keys.secrets(), unlock, &fields, id, of, &config).expect("wraps");
    play.memory.put(&names::key(id), costly).await;
    let Err(RepositoryError::WrongPassword { keys, untried, .. }) = play.open(b"costly").await else {
        panic!("it is not tried");
    };
    assert_eq!((keys, untried), (1, 1));
    play.open(PASSWORD).await.expect("the genuine key opens");
}

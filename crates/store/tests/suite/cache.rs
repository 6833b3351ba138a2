//! The cache saves requests and changes nothing else: deleted, damaged or unwritable, every answer stays right.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use larder_format::ids::RepositoryId;
use larder_store::{CacheOptions, Store, StoreErrorKind, StoreOptions};
use larder_testkit::{FaultStore, Faults, Memory, data};

const REPOSITORY: RepositoryId = RepositoryId([7; 16]);

fn open(memory: &Memory, dir: &Path, max_bytes: u64) -> (Store, Faults) {
    let (faulty, faults) = FaultStore::new(memory.store());
    let cache = Some(CacheOptions { dir: dir.to_owned(), max_bytes });
    let options = StoreOptions { cache, ..StoreOptions::default() };
    (Store::from_object_store(faulty, "", &options).expect("opens").with_cache_of(REPOSITORY), faults)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut open = vec![dir.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("readable").path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found.retain(|path| !path.ends_with("CACHEDIR.TAG"));
    found.sort();
    found
}

fn object(seed: u64) -> Bytes {
    data::random(seed, 200_000 + seed as usize).into()
}

/// A store with three objects worth keeping and one not.
async fn filled(dir: &Path) -> (Memory, Store, Faults) {
    let memory = Memory::new();
    for (seed, name) in (0..).zip(["meta/j/0", "meta/j/1", "versions/s/j/0", "data/j/0"]) {
        memory.put(name, object(seed)).await;
    }
    let (store, faults) = open(&memory, dir, 1 << 30);
    (memory, store, faults)
}

#[tokio::test]
async fn what_was_read_or_written_is_not_fetched_again() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let (memory, store, faults) = filled(dir.path()).await;
    assert_eq!(store.get("meta/j/0").await.expect("read"), object(0));
    store.create("meta/j/9", object(9)).await.expect("created");
    let before = faults.count();
    // The second is another process with the same cache.
    for store in [store, open(&memory, dir.path(), 1 << 30).0] {
        for (name, whole) in [("meta/j/0", object(0)), ("meta/j/9", object(9))] {
            assert_eq!(store.get(name).await.expect("read"), whole);
            for (start, end) in
                [(0, 1), (65_535, 65_537), (70_000, 140_000), (0, whole.len()), (whole.len() - 1, whole.len())]
            {
                let part = store.get_range(name, start as u64..end as u64).await.expect("read");
                assert_eq!(part, whole.slice(start..end));
            }
            let (tail, size) = store.get_tail(name, 100_000).await.expect("read");
            assert_eq!((tail, size), (whole.slice(whole.len() - 100_000..), whole.len() as u64));
            let (tail, _) = store.get_tail(name, 1 << 40).await.expect("read");
            assert_eq!(tail, whole);
        }
        assert_eq!(store.stats().cache_misses, if store.stats().creates > 0 { 1 } else { 0 });
    }
    assert_eq!(faults.count(), before);
}

#[tokio::test]
async fn parts_are_kept_as_they_were_asked_for() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let (_, store, faults) = filled(dir.path()).await;
    for round in 0..2 {
        assert_eq!(store.get_range("versions/s/j/0", 10..100_000).await.expect("read"), object(2).slice(10..100_000));
        let (tail, size) = store.get_tail("meta/j/1", 5000).await.expect("read");
        assert_eq!((tail.len(), size), (5000, 200_001));
        assert_eq!(faults.count(), 2, "round {round}");
    }
    store.get_range("versions/s/j/0", 10..90_000).await.expect("another part");
    assert_eq!(faults.count(), 3);
}

#[tokio::test]
async fn data_sizes_listings_and_absence_are_never_kept() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let (memory, store, faults) = filled(dir.path()).await;
    for _ in 0..2 {
        store.get("data/j/0").await.expect("read");
        store.size("meta/j/0").await.expect("looked up");
        store.list("meta/").await.expect("listed");
        assert_eq!(store.get("meta/j/77").await.expect_err("absent").kind, StoreErrorKind::NotFound);
    }
    assert_eq!(faults.count(), 8);
    assert_eq!(files(dir.path()), Vec::<PathBuf>::new());
    memory.put("meta/j/77", "late").await;
    assert_eq!(store.get("meta/j/77").await.expect("there now"), "late");
    store.delete("meta/j/77").await.expect("deleted");
    assert_eq!(store.get("meta/j/77").await.expect_err("gone").kind, StoreErrorKind::NotFound);
    assert_eq!(store.without_cache().get("meta/j/0").await.expect("read"), object(0));
}

/// The end of a run has fences and filter; its blocks are of use once.
#[tokio::test]
async fn of_runs_of_the_index_the_ends_are_kept() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let name = format!("index/runs/{}/0", "ab".repeat(16));
    let memory = Memory::new();
    memory.put(&name, object(3)).await;
    let whole = object(3);
    for (round, expected) in [(0, 3), (1, 2)] {
        let (store, faults) = open(&memory, dir.path(), 1 << 30);
        let (tail, size) = store.get_tail(&name, 5000).await.expect("read");
        assert_eq!((tail, size), (whole.slice(whole.len() - 5000..), whole.len() as u64));
        store.get_range(&name, 10..5000).await.expect("read");
        store.get_range(&name, 10..5000).await.expect("read");
        assert_eq!(faults.count(), expected, "round {round}");
        assert_eq!(files(dir.path()).len(), 1);
    }
    let (store, _) = open(&memory, dir.path(), 1 << 30);
    store.delete(&name).await.expect("deleted");
    assert_eq!(files(dir.path()).len(), 0);
    assert_eq!(store.get_tail(&name, 5000).await.expect_err("gone").kind, StoreErrorKind::NotFound);
    // The next pass needs the ends of what this one writes; they are not fetched.
    let long: Bytes = data::random(4, 300_000).into();
    store.create(&name, long.clone()).await.expect("created");
    let (store, faults) = open(&memory, dir.path(), 1 << 30);
    let (tail, size) = store.get_tail(&name, 256 << 10).await.expect("read");
    assert_eq!((tail, size), (long.slice(long.len() - (256 << 10)..), 300_000));
    assert_eq!((faults.count(), files(dir.path()).len()), (0, 1));
}

/// A pass decides by what exists, so it must ask the store for everything but contents of the index.
#[tokio::test]
async fn a_pass_takes_runs_from_it_and_nothing_else() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let (memory, store, _) = filled(dir.path()).await;
    let run = format!("index/runs/{}/0", "ab".repeat(16));
    memory.put(&run, object(3)).await;
    for name in ["meta/j/0", "versions/s/j/0"] {
        store.get(name).await.expect("read");
    }
    let kept = files(dir.path()).len();
    for (round, expected) in [(0, 3), (1, 2)] {
        let (store, faults) = open(&memory, dir.path(), 1 << 30);
        let store = store.remembering_tails(1 << 20).caching_runs();
        assert_eq!(store.get(&run).await.expect("read"), object(3));
        let whole = object(3).len() as u64;
        assert_eq!(store.get_tail(&run, 5000).await.expect("read"), (object(3).slice(whole as usize - 5000..), whole));
        for name in ["meta/j/0", "versions/s/j/0"] {
            store.get(name).await.expect("read");
        }
        assert_eq!(faults.count(), expected, "round {round}");
        memory.remove("versions/s/j/0").await;
        assert_eq!(store.get("versions/s/j/0").await.expect_err("gone").kind, StoreErrorKind::NotFound);
        memory.put("versions/s/j/0", object(2)).await;
    }
    assert_eq!(files(dir.path()).len(), kept + 1, "a whole run answers for its end");
}

#[tokio::test]
async fn every_kind_of_damage_is_noticed_and_fetched_again() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 7] = [
        ("first byte", |bytes| bytes[0] ^= 1),
        ("a byte in the last block", |bytes| bytes[199_999] ^= 0x80),
        ("a check", |bytes| bytes[200_001] ^= 4),
        ("the size", |bytes| *bytes.iter_mut().rev().nth(10).expect("long enough") ^= 1),
        ("the magic", |bytes| *bytes.last_mut().expect("not empty") ^= 1),
        ("cut short", |bytes| bytes.truncate(100)),
        ("emptied", Vec::clear),
    ];
    for (what, damage) in damages {
        let dir = tempfile::tempdir().expect("temporary folder");
        let (_, store, faults) = filled(dir.path()).await;
        store.get("meta/j/0").await.expect("read");
        let [file] = &files(dir.path())[..] else { panic!("one file is kept") };
        let mut bytes = fs::read(file).expect("readable");
        damage(&mut bytes);
        fs::write(file, bytes).expect("writable");
        assert_eq!(store.get("meta/j/0").await.expect("read"), object(0), "{what}");
        assert_eq!(faults.count(), 2, "{what}");
        store.get("meta/j/0").await.expect("read");
        assert_eq!(faults.count(), 2, "{what}: kept again");
    }
}

/// Flips bits all over a kept file and reads small parts: what is damaged is noticed wherever it is read.
#[tokio::test]
async fn flipped_bits_never_reach_a_reader() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let (_, store, _) = filled(dir.path()).await;
    let whole = store.get("meta/j/1").await.expect("read");
    let [file] = &files(dir.path())[..] else { panic!("one file is kept") };
    let good = fs::read(file).expect("readable");
    let mut rng = data::Rng::new(3);
    for _ in 0..200 {
        let mut bytes = good.clone();
        let bit = rng.below(bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        fs::write(file, bytes).expect("writable");
        let start = rng.below(200_000);
        let end = rng.within(start + 1..200_002);
        assert_eq!(
            store.get_range("meta/j/1", start..end).await.expect("read"),
            whole.slice(start as usize..end as usize)
        );
        fs::write(file, &good).expect("writable");
    }
}

#[tokio::test]
async fn a_kept_file_under_another_name_is_not_believed() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let (_, store, _) = filled(dir.path()).await;
    store.get("meta/j/0").await.expect("read");
    let [file] = &files(dir.path())[..] else { panic!("one file is kept") };
    fs::copy(file, file.with_file_name("1@all")).expect("copied");
    assert_eq!(store.get("meta/j/1").await.expect("read"), object(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_may_go_at_any_moment() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let (_, store, _) = filled(dir.path()).await;
    let readers: Vec<_> = (0..4)
        .map(|reader| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..50_u64 {
                    let seed = (reader + round) % 3;
                    let name = ["meta/j/0", "meta/j/1", "versions/s/j/0"][seed as usize];
                    assert_eq!(store.get(name).await.expect("read"), object(seed));
                    store.create(&format!("meta/{reader}/{round}"), object(round)).await.expect("created");
                }
            })
        })
        .collect();
    for _ in 0..50 {
        // It may be filled again while it is being removed.
        let _ = fs::remove_dir_all(dir.path());
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    for reader in readers {
        reader.await.expect("no reader failed");
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_only_costs_requests() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let blocked = dir.path().join("a file");
    fs::write(&blocked, "in the way").expect("written");
    let (_, store, faults) = filled(&blocked).await;
    for _ in 0..2 {
        assert_eq!(store.get("meta/j/0").await.expect("read"), object(0));
        store.get_tail("meta/j/1", 9).await.expect("read");
    }
    store.create("meta/j/5", object(5)).await.expect("created");
    assert_eq!(faults.count(), 5);
}

#[tokio::test]
async fn what_was_not_used_for_longest_goes_when_it_is_full() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let memory = Memory::new();
    let (store, faults) = open(&memory, dir.path(), 1_000_000);
    let mut expected = BTreeMap::new();
    for n in 0..20_u64 {
        let bytes: Bytes = data::random(n, 100_000).into();
        store.create(&format!("meta/j/{n}"), bytes.clone()).await.expect("created");
        expected.insert(n, bytes);
        // Object 0 is read again and again, so it stays.
        assert_eq!(store.get("meta/j/0").await.expect("read"), expected[&0]);
        // Times of use must differ for their order to mean anything.
        tokio::time::sleep(std::time::Duration::from_millis(12)).await;
        let total: u64 = files(dir.path()).iter().map(|path| path.metadata().expect("there").len()).sum();
        assert!(total <= 1_000_000, "{total} bytes");
    }
    assert_eq!(faults.count(), 20, "object 0 was never fetched");
    let kept = files(dir.path()).len();
    assert!((6..=9).contains(&kept), "{kept} kept");
    assert!(dir.path().join(REPOSITORY.to_string()).join("meta/j/19@all").exists());
    // One object that would push out all others is not kept at all.
    store.create("meta/j/big", data::random(1, 600_000).into()).await.expect("created");
    assert_eq!(files(dir.path()).len(), kept);
}

#[tokio::test]
async fn it_is_marked_as_a_cache_and_private() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("temporary folder");
    let (_, store, _) = filled(&dir.path().join("new")).await;
    store.get("meta/j/0").await.expect("read");
    let tag = fs::read_to_string(dir.path().join("new/CACHEDIR.TAG")).expect("there");
    assert!(tag.starts_with("Signature: 8a477f597d28d172789f06886806bc55"));
    let mode = fs::metadata(dir.path().join("new").join(REPOSITORY.to_string())).expect("there").permissions().mode();
    assert_eq!(mode & 0o077, 0);
}

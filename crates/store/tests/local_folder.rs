//! A folder is a store like any other: whole objects or none after a crash, nothing half on a full disk, and readable where
//! nothing can be written.
//!
//! Some tests run a part of themselves in a process of their own: to kill it, or to give it a small or read-only file
//! system. The latter needs user namespaces; where there are none, those tests end without a verdict.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use larder_store::{Location, Store, StoreErrorKind, StoreOptions};
use larder_testkit::data;
use proptest::prelude::*;

fn open(folder: &Path) -> Store {
    Store::open(&Location::Local(folder.to_owned()), &StoreOptions::default()).expect("opens")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("starts")
}

/// The part of a test that runs in a process of its own learns its folder from this variable.
const CHILD: &str = "LARDER_TEST_FOLDER";

/// Runs the ignored test `part` of this program for `folder`, by way of `through`.
fn child(part: &str, folder: &Path, through: &[&str]) -> Command {
    let program = std::env::current_exe().expect("knows itself");
    let mut command = match through {
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        [] => Command::new(program),
    };
    command.args(["--exact", part, "--ignored", "--nocapture"]).env(CHILD, folder).stdout(Stdio::null());
    command
}

fn child_folder() -> Option<Store> {
    std::env::var_os(CHILD).map(|folder| open(Path::new(&folder)))
}

/// Bytes that show by themselves whether they are whole: a length, and what follows from it.
fn whole(seed: u64) -> Bytes {
    let len = 1 + data::Rng::new(seed).below(3 << 20) as usize;
    let mut bytes = (len as u64).to_le_bytes().to_vec();
    bytes.extend(data::random(len as u64, len));
    bytes.into()
}

fn is_whole(bytes: &[u8]) -> bool {
    let Some((len, rest)) = bytes.split_first_chunk() else { return false };
    let len = u64::from_le_bytes(*len) as usize;
    rest.len() == len && data::random(len as u64, len) == rest
}

#[test]
#[ignore = "a part of `a_killed_writer_leaves_whole_objects_and_nothing_else`"]
fn writer() {
    let Some(store) = child_folder() else { return };
    runtime().block_on(async {
        let writers = (0..4_u64).map(|writer| {
            let store = store.clone();
            async move {
                for number in 0.. {
                    let name = format!("data/{}-{writer}/{number}", std::process::id());
                    store.create(&name, whole(writer << 32 | number)).await.expect("created");
                }
            }
        });
        futures::future::join_all(writers).await;
    });
}

#[test]
fn a_killed_writer_leaves_whole_objects_and_nothing_else() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut seen = 0;
    for round in 0..6 {
        let mut writer = child("writer", folder.path(), &[]).spawn().expect("runs");
        std::thread::sleep(Duration::from_millis(100 + 37 * round));
        writer.kill().expect("killed");
        writer.wait().expect("ended");
        let objects = runtime().block_on(async {
            let store = open(folder.path());
            let objects = store.list("").await.expect("listed");
            for object in &objects {
                assert!(is_whole(&store.get(&object.name).await.expect("read")), "{object:?}");
            }
            objects.len()
        });
        assert!(objects >= seen, "what was there stays");
        seen = objects;
        assert_eq!(files(folder.path()), objects, "files that are no objects were left");
    }
    assert!(seen > 0, "no writer came to anything");
}

fn files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("readable").path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

/// Whether a shell line runs in a namespace where it may mount.
fn in_namespace(part: &str, folder: &Path, mount: &str) -> Option<bool> {
    let can = Command::new("unshare").args(["-rm", "true"]).stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        return None;
    }
    let line = format!("{mount} && exec \"$0\" \"$@\"");
    let status = child(part, folder, &["unshare", "-rm", "sh", "-c", &line]).status().expect("runs");
    Some(status.success())
}

#[test]
#[ignore = "a part of `a_full_disk_refuses_and_keeps_nothing_half`"]
fn on_full_disk() {
    let Some(store) = child_folder() else { return };
    let folder = std::env::var_os(CHILD).expect("set");
    runtime().block_on(async {
        let object: Bytes = data::random(1, 1 << 20).into();
        let mut stored = 0;
        let error = loop {
            match store.create(&format!("data/j/{stored}"), object.clone()).await {
                Ok(_) => stored += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind, StoreErrorKind::Full);
        assert_eq!(error.to_string(), format!("cannot create data/j/{stored}: no space left, or a quota is used up"));
        assert!((10..=16).contains(&stored), "{stored} stored");
        assert_eq!(files(Path::new(&folder)), stored);
        // Everything that need not write works.
        let listed = store.list("").await.expect("listed");
        assert_eq!(listed.len(), stored);
        assert_eq!(store.get("data/j/0").await.expect("read"), object);
        store.delete("data/j/0").await.expect("deleted");
        store.create("data/j/again", object.slice(..900_000)).await.expect("there is room again");
    });
}

#[test]
fn a_full_disk_refuses_and_keeps_nothing_half() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mount = format!("mount -t tmpfs -o size=16m none '{}'", folder.path().display());
    assert_ne!(in_namespace("on_full_disk", folder.path(), &mount), Some(false));
}

#[test]
#[ignore = "a part of `a_read_only_folder_can_be_read`"]
fn on_read_only() {
    let Some(store) = child_folder() else { return };
    runtime().block_on(async {
        assert_eq!(store.list("").await.expect("listed").len(), 2);
        assert_eq!(store.get("config").await.expect("read"), "config");
        assert_eq!(store.get_tail("data/j/0", 2).await.expect("read"), (Bytes::from_static(b"ta"), 4));
        for outcome in [
            store.create("x", Bytes::new()).await.map(drop),
            store.delete("config").await,
            store.create("y/z", Bytes::new()).await.map(drop),
        ] {
            let error = outcome.expect_err("refused");
            assert_eq!(error.kind, StoreErrorKind::ReadOnly, "{error}");
        }
        assert_eq!(store.create("config", Bytes::new()).await.expect_err("taken").kind, StoreErrorKind::AlreadyExists);
    });
}

#[tokio::test]
async fn a_read_only_folder_can_be_read() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let store = open(folder.path());
    store.create("config", Bytes::from_static(b"config")).await.expect("created");
    store.create("data/j/0", Bytes::from_static(b"data")).await.expect("created");
    let path = folder.path().display();
    let mount = format!("mount --bind '{path}' '{path}' && mount -o remount,ro,bind '{path}'");
    assert_ne!(in_namespace("on_read_only", folder.path(), &mount), Some(false));
}

#[tokio::test]
async fn reading_what_is_not_there_makes_nothing() {
    let above = tempfile::tempdir().expect("temporary folder");
    let store = open(&above.path().join("not/yet"));
    assert_eq!(store.get("config").await.expect_err("nothing").kind, StoreErrorKind::NotFound);
    assert_eq!(store.size("a/b/c").await.expect_err("nothing").kind, StoreErrorKind::NotFound);
    assert_eq!(store.list("").await.expect("listed"), []);
    assert_eq!(store.list("data/").await.expect("listed"), []);
    store.delete("a/b/c").await.expect("as good as deleted");
    assert_eq!(fs::read_dir(above.path()).expect("readable").count(), 0);
}

#[tokio::test]
async fn the_folder_of_a_repository_is_its_owners() {
    use std::os::unix::fs::PermissionsExt;
    let above = tempfile::tempdir().expect("temporary folder");
    let root = above.path().join("deep/repo");
    open(&root).create("data/j/0", Bytes::new()).await.expect("created");
    assert_eq!(fs::metadata(&root).expect("made").permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn foreign_files_are_neither_listed_nor_in_the_way() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let store = open(folder.path());
    store.create("data/j/0", Bytes::from_static(b"x")).await.expect("created");
    for foreign in [".staging", "lost+found", "data/.hidden", "data/ü"] {
        fs::create_dir_all(folder.path().join(foreign)).expect("made");
        fs::write(folder.path().join(foreign).join("1"), "foreign").expect("written");
    }
    for foreign in [".DS_Store", "data/j/Thumbs db", "data/j/0~"] {
        fs::write(folder.path().join(foreign), "foreign").expect("written");
    }
    std::os::unix::fs::symlink(folder.path(), folder.path().join("data/loop")).expect("linked");
    std::os::unix::fs::symlink("nowhere", folder.path().join("data/broken")).expect("linked");
    let listed = store.list("data/j").await.expect("listed");
    assert_eq!(listed.iter().map(|object| object.name.as_str()).collect::<Vec<_>>(), ["data/j/0"]);
    assert_eq!(store.list("").await.expect("no link is followed").len(), 1);
    // A folder is no object, and what lies below an object is nothing.
    assert_eq!(store.get("data/j").await.expect_err("a folder").kind, StoreErrorKind::NotFound);
    assert_eq!(store.size("data/j").await.expect_err("a folder").kind, StoreErrorKind::NotFound);
    assert_eq!(store.get("data/j/0/1").await.expect_err("below an object").kind, StoreErrorKind::NotFound);
    assert_eq!(store.create("data/j", Bytes::new()).await.expect_err("taken").kind, StoreErrorKind::AlreadyExists);
    store.delete("data/j").await.expect("nothing to delete");
    assert_eq!(store.get("data/j/0").await.expect("still there"), "x");
}

/// Disks get full and users move half of a repository to another one.
#[tokio::test]
async fn a_linked_folder_is_followed() {
    let (folder, other) = (tempfile::tempdir().expect("folder"), tempfile::tempdir().expect("folder"));
    std::os::unix::fs::symlink(other.path(), folder.path().join("data")).expect("linked");
    let store = open(folder.path());
    store.create("data/j/0", Bytes::from_static(b"x")).await.expect("created");
    assert_eq!(store.list("").await.expect("listed").len(), 1);
    assert!(other.path().join("j/0").exists());
}

/// Deleting the last object of a folder removes the folder, which a creator may have opened already.
#[tokio::test(flavor = "multi_thread")]
async fn creators_survive_the_removal_of_their_folder() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let store = open(folder.path());
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..60 {
                    let name = format!("data/j/{worker}-{round}");
                    store.create(&name, Bytes::from_static(b"x")).await.expect("created");
                    assert_eq!(store.get(&name).await.expect("read"), "x");
                    store.delete(&name).await.expect("deleted");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("no worker failed");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn listings_are_complete_and_in_the_order_of_names(
        names in proptest::collection::btree_set("[a-c0.-]{1,2}(/[a-c0.-]{1,2}){0,3}", 0..25),
        within in "[a-c]{0,1}",
    ) {
        let folder = tempfile::tempdir().expect("temporary folder");
        // Files straight on disk: this is about the walk, and syncing thousands of them takes long.
        let mut stored = BTreeSet::new();
        for name in names.iter().filter(|name| !name.starts_with('.') && !name.contains("/.")) {
            let path = folder.path().join(name);
            let made = path.parent().is_some_and(|parent| fs::create_dir_all(parent).is_ok());
            if made && !path.exists() && fs::write(&path, name).is_ok() {
                stored.insert(name.clone());
            }
        }
        let expected: Vec<_> = stored.iter().filter(|name| within.is_empty() || name.starts_with(&format!("{within}/"))).collect();
        let listed = runtime().block_on(open(folder.path()).list_stream(&within).try_collect::<Vec<_>>()).expect("listed");
        prop_assert_eq!(listed.iter().map(|object| &object.name).collect::<Vec<_>>(), expected);
        prop_assert!(listed.iter().all(|object| object.size == object.name.len() as u64));
    }
}

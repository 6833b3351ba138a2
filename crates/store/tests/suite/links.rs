//! Links and things that are no files in a local repository: nobody is led out of it, and what cannot be examined is told.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::names;
use larder_store::{Location, Store, StoreErrorKind, StoreOptions, Unlisted};
use tempfile::TempDir;

fn open(folder: &Path) -> Store {
    Store::open(&Location::Local(folder.to_owned()), &StoreOptions::default()).expect("opens")
}

fn container(job: u64, seq: u32) -> String {
    names::container(ContainerId { kind: ContainerKind::Data, job: JobId::new(job, [7; 10]), seq })
}

fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').expect("lies in a folder").0
}

/// Two repositories beside one another, each with one container.
async fn two() -> (TempDir, Store, Store) {
    let above = tempfile::tempdir().expect("temporary folder");
    let (ours, other) = (open(&above.path().join("ours")), open(&above.path().join("other")));
    ours.create(&container(1, 0), Bytes::from_static(b"ours")).await.expect("created");
    other.create(&container(2, 0), Bytes::from_static(b"other")).await.expect("created");
    (above, ours, other)
}

/// The owner of one repository must not lead a pass of another user into a foreign one.
#[tokio::test]
async fn a_link_to_another_repository_is_told_and_never_followed() {
    let (above, ours, other) = two().await;
    let theirs = container(2, 0);
    symlink(above.path().join("other").join(folder_of(&theirs)), above.path().join("ours").join(folder_of(&theirs)))
        .expect("linked");
    let error = ours.list(names::DATA).await.expect_err("a listing that lacks something is none");
    assert_eq!((error.kind, &*error.name), (StoreErrorKind::Unreadable, &*format!("{}/", folder_of(&theirs))));
    for name in [theirs.clone(), container(2, 1)] {
        assert_eq!(ours.get(&name).await.expect_err("a link").kind, StoreErrorKind::Unreadable);
        assert_eq!(ours.size(&name).await.expect_err("a link").kind, StoreErrorKind::Unreadable);
        ours.delete(&name).await.expect_err("a link");
        ours.create(&name, Bytes::new()).await.expect_err("a link");
    }
    assert_eq!(other.get(&theirs).await.expect("untouched"), "other");
    assert_eq!(other.list("").await.expect("listed").len(), 1);
    // A link in the place of an object is removed itself.
    let planted = container(1, 1);
    symlink(above.path().join("other").join(&theirs), above.path().join("ours").join(&planted)).expect("linked");
    assert_eq!(ours.get(&planted).await.expect_err("a link").kind, StoreErrorKind::Unreadable);
    ours.delete(&planted).await.expect("deleted");
    assert!(fs::symlink_metadata(above.path().join("ours").join(&planted)).is_err());
    assert_eq!(other.get(&theirs).await.expect("untouched"), "other");
}

/// Whatever lies in the place of an object costs that object: nothing hangs, and all others are listed.
#[tokio::test]
async fn what_is_no_file_costs_one_object() {
    let (above, ours, _) = two().await;
    let root = above.path().join("ours");
    let wrong: Vec<String> = (1..6).map(|seq| container(1, seq)).collect();
    fs::create_dir(root.join(&wrong[0])).expect("made");
    symlink(folder_of(&wrong[1]), root.join(&wrong[1])).expect("linked");
    rustix::fs::mknodat(rustix::fs::CWD, root.join(&wrong[2]), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .expect("made");
    drop(std::os::unix::net::UnixListener::bind(root.join(&wrong[3])).expect("bound"));
    // Only root may make devices; a second socket stands for them where that is not allowed.
    if !make_device(&root.join(&wrong[4])) {
        drop(std::os::unix::net::UnixListener::bind(root.join(&wrong[4])).expect("bound"));
    }
    let unlisted = Arc::new(Unlisted::default());
    let listed = ours.past_unlisted(&unlisted).list("").await.expect("listed");
    let names: Vec<String> = listed.iter().map(|object| object.name.clone()).collect();
    assert_eq!(names, (0..6).map(|seq| container(1, seq)).collect::<Vec<_>>());
    let told: Vec<String> = unlisted.take().into_iter().map(|error| error.name).collect();
    assert_eq!(told, wrong);
    assert_eq!(ours.list("").await.expect_err("strict").kind, StoreErrorKind::Unreadable);
    for name in &wrong {
        assert_eq!(ours.get(name).await.expect_err("no file").kind, StoreErrorKind::Unreadable, "{name}");
        assert_eq!(ours.get_range(name, 0..1).await.expect_err("no file").kind, StoreErrorKind::Unreadable, "{name}");
        let taken = ours.create(name, Bytes::new()).await.expect_err("taken");
        assert_eq!(taken.kind, StoreErrorKind::AlreadyExists);
        ours.delete(name).await.expect("removed");
    }
    assert_eq!(ours.list("").await.expect("all is well").len(), 1);
}

/// A device of zeros: reading it never ends.
fn make_device(at: &Path) -> bool {
    let zeros = rustix::fs::makedev(1, 5);
    rustix::fs::mknodat(rustix::fs::CWD, at, rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::RWXU, zeros)
        .is_ok()
}

/// Anything but a folder in a folder's place hides the objects below: a listing that said nothing would look complete.
#[tokio::test]
async fn what_is_no_folder_is_told() {
    for way in ["file", "pipe", "link", "device"] {
        for depth in [1, 2] {
            let (above, ours, _) = two().await;
            let root = above.path().join("ours");
            let folder = folder_of(&container(1, 0)).split('/').take(depth).collect::<Vec<_>>().join("/");
            fs::remove_dir_all(root.join(&folder)).expect("removed");
            fs::create_dir_all(root.join(&folder).parent().expect("not the root")).expect("made");
            match way {
                "file" => fs::write(root.join(&folder), "").expect("written"),
                "link" => symlink("nowhere/at/all", root.join(&folder)).expect("linked"),
                "device" if make_device(&root.join(&folder)) => {}
                _ => rustix::fs::mknodat(
                    rustix::fs::CWD,
                    root.join(&folder),
                    rustix::fs::FileType::Fifo,
                    rustix::fs::Mode::RWXU,
                    0,
                )
                .expect("made"),
            }
            for listed in ["", names::DATA, &folder] {
                let error = ours.list(listed).await.expect_err("a listing that lacks something is none");
                assert_eq!((error.kind, &*error.name), (StoreErrorKind::Unreadable, &*format!("{folder}/")), "{way}");
                let unlisted = Arc::new(Unlisted::default());
                assert_eq!(ours.past_unlisted(&unlisted).list(listed).await.expect("listed"), []);
                assert_eq!(unlisted.take().len(), 1, "{way} {listed}");
            }
            for error in [ours.get(&container(1, 0)).await.map(drop), ours.size(&container(1, 0)).await.map(drop)] {
                assert_eq!(error.expect_err("hidden").kind, StoreErrorKind::Unreadable, "{way} {depth}");
            }
            let error = ours.create(&container(1, 1), Bytes::new()).await.expect_err("there is no folder");
            assert_ne!(error.kind, StoreErrorKind::AlreadyExists, "{way}: {error}");
        }
    }
}

/// A folder that is swapped for a link again and again while objects are deleted through it.
#[tokio::test(flavor = "multi_thread")]
async fn a_raced_swap_of_a_folder_leads_nowhere() {
    let (above, ours, other) = two().await;
    let job = folder_of(&container(1, 0)).to_owned();
    for seq in 0..50 {
        let name = format!("{job}/{seq}");
        let _ = ours.create(&name, Bytes::from_static(b"ours")).await;
        other.create(&name, Bytes::from_static(b"other")).await.expect("created");
    }
    let before = other.list("").await.expect("listed").len();
    let is_over = Arc::new(AtomicBool::new(false));
    let swapping = std::thread::spawn({
        let (is_over, at, away) = (is_over.clone(), above.path().join("ours").join(&job), above.path().join("away"));
        let target = above.path().join("other").join(&job);
        move || {
            while !is_over.load(Ordering::Relaxed) {
                if fs::rename(&at, &away).is_ok() {
                    let _ = symlink(&target, &at);
                    std::thread::yield_now();
                    let _ = fs::remove_file(&at);
                    let _ = fs::rename(&away, &at);
                }
            }
        }
    });
    for round in 0..40 {
        for seq in 0..50 {
            let name = format!("{job}/{seq}");
            let _ = ours.delete(&name).await;
            if round % 8 == 0 {
                let _ = ours.create(&name, Bytes::from_static(b"ours")).await;
            }
            if let Ok(bytes) = ours.get(&name).await {
                assert_eq!(bytes, "ours");
            }
        }
    }
    is_over.store(true, Ordering::Relaxed);
    swapping.join().expect("no panic");
    assert_eq!(other.list("").await.expect("listed").len(), before);
    assert_eq!(other.get(&format!("{job}/7")).await.expect("untouched"), "other");
}

//! Folders below a target are opened without following links, by both ways of resolving.

use std::os::unix::fs::symlink;

use super::*;

fn folders(root: &std::path::Path) -> [Folders; 2] {
    let open = || Folders::new(std::fs::File::open(root).expect("the root opens").into(), 4);
    [open(), Folders { resolver: Resolver::by_component(), ..open() }]
}

#[test]
fn neither_links_nor_files_are_followed() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("real/below")).expect("made");
    std::fs::create_dir(dir.path().join("outside")).expect("made");
    std::fs::create_dir(dir.path().join("outside/below")).expect("made");
    std::fs::write(root.join("file"), "").expect("made");
    symlink("real", root.join("inner-link")).expect("made");
    symlink("../outside", root.join("outer-link")).expect("made");
    symlink("/", root.join("absolute-link")).expect("made");
    for folders in folders(&root) {
        for missing in [Missing::Fail, Missing::Create] {
            assert!(folders.get(b"real/below", missing).is_ok());
            for path in
                ["inner-link", "outer-link", "absolute-link", "inner-link/below", "outer-link/below", "file", "file/x"]
            {
                let errno = folders.get(path.as_bytes(), missing).expect_err(path);
                assert!(matches!(errno, Errno::LOOP | Errno::NOTDIR), "{path}: {errno}");
            }
        }
        assert_eq!(folders.get(b"absent/below", Missing::Fail).expect_err("absent"), Errno::NOENT);
    }
    assert!(!dir.path().join("outside/x").exists());
}

#[test]
fn a_forgotten_folder_is_looked_up_again() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let inode = |folder: &Folder| crate::stat::Stat::of(folder).expect("stat").id;
    for folders in folders(dir.path()) {
        let old = folders.get(b"a/b", Missing::Create).expect("made");
        let sibling = folders.get(b"a-b", Missing::Create).expect("made");
        std::fs::rename(dir.path().join("a"), dir.path().join("moved")).expect("renamed");
        assert_eq!(inode(&folders.get(b"a/b", Missing::Fail).expect("cached")), inode(&old));
        folders.forget(b"a");
        assert_eq!(folders.get(b"a/b", Missing::Fail).expect_err("gone"), Errno::NOENT);
        let new = folders.get(b"a/b", Missing::Create).expect("made");
        assert_ne!(inode(&new), inode(&old));
        assert_eq!(inode(&folders.get(b"a-b", Missing::Fail).expect("cached")), inode(&sibling));
        std::fs::remove_dir_all(dir.path().join("moved")).expect("removed");
        std::fs::remove_dir_all(dir.path().join("a")).expect("removed");
    }
}

#[test]
fn the_number_of_open_folders_is_bounded() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for folders in folders(dir.path()) {
        for number in 0..100 {
            folders.get(format!("d{}/e{number}", number % 10).as_bytes(), Missing::Create).expect("made");
            folders.get(b"d0", Missing::Fail).expect("there");
        }
        let cache = folders.lock();
        assert_eq!((cache.slots.len(), cache.places.len()), (4, 4));
        assert!(cache.places.contains_key(&b"d0"[..]), "the one used all the time stays");
    }
}

/// Every file system that was reached must be asked at the end, each once.
#[test]
fn one_folder_of_each_file_system_is_remembered() {
    let root = rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("opens");
    let folders = Folders::new(root, 1);
    for path in [&b"proc"[..], b"usr", b"proc/sys", b"proc/bus"] {
        folders.get(path, Missing::Fail).expect("opens");
    }
    let proc = rustix::fs::stat("/proc").expect("there").st_dev;
    let devices: Vec<_> = folders.mounted.lock().expect("whole").iter().map(|(device, _)| *device).collect();
    assert_eq!(devices.iter().filter(|device| **device == proc).count(), 1, "{devices:?}");
    assert!(!devices.contains(&folders.root.device));
    folders.sync().expect("synced");
}

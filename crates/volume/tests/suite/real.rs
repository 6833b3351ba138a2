//! Folders of this machine.

use larder_volume::VolumeError;
use larder_volume::disk::{CONFIG, Disk, RealDisk};

#[test]
fn a_store_is_locked_for_one_process_even_without_the_file_of_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let disk = RealDisk::create(&store).unwrap();
    disk.create(CONFIG).unwrap();
    assert!(matches!(RealDisk::open(&store), Err(VolumeError::InUse)));
    std::fs::remove_file(store.join("lock")).unwrap();
    assert!(matches!(RealDisk::open(&store), Err(VolumeError::InUse)));
    drop(disk);
    assert!(RealDisk::open(&store).is_ok());
}

#[test]
fn a_folder_where_nothing_but_a_lock_was_made_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    // Such as when no password was entered.
    drop(RealDisk::create(folder.path()).unwrap());
    let disk = RealDisk::create(folder.path()).unwrap();
    assert!(matches!(RealDisk::create(folder.path()), Err(VolumeError::InUse)));
    disk.create("other").unwrap();
    drop(disk);
    assert!(matches!(RealDisk::create(folder.path()), Err(VolumeError::NotEmpty(_))));
}

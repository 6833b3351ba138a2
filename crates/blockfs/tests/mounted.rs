//! A mounted device in memory, where FUSE can be used; elsewhere the test says that it was skipped.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use larder_nbd::{Export, MemoryExport, Single};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

const SIZE: u64 = 4 << 20;

#[test]
fn files_are_devices() {
    let folder = tempfile::tempdir().expect("a folder");
    let export = Arc::new(MemoryExport::new(SIZE));
    let mounted = match larder_blockfs::mount(folder.path(), Arc::new(Single::new("disk", export.clone()))) {
        Ok(mounted) => mounted,
        Err(error) => {
            eprintln!("skipped: FUSE cannot be used here: {error}");
            return;
        }
    };
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).expect("listed").map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["disk"]);
    let path = folder.path().join("disk");
    assert_eq!(std::fs::metadata(&path).expect("stat").len(), SIZE);
    assert!(std::fs::metadata(folder.path().join("tape")).is_err());
    // Truncating does nothing, as on a block device.
    let mut file = OpenOptions::new().read(true).write(true).truncate(true).open(&path).expect("opened");
    assert_eq!(file.metadata().expect("stat").len(), SIZE);
    let data: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    file.write_all_at(&data, 1_000_001).expect("written");
    file.sync_all().expect("flushed");
    let mut found = vec![0; data.len()];
    export.read(1_000_001, &mut found).expect("read");
    assert_eq!(found, data);
    export.write(1_000_001, b"other", false).expect("written");
    file.read_exact_at(&mut found[..8], 1_000_001).expect("read");
    assert_eq!(found[..5], *b"other", "no copy of the data is kept");
    // The end is short, and behind it there is no space.
    assert_eq!(file.write_at(&[7; 100], SIZE - 10).expect("written"), 10);
    assert_eq!(file.write_at(&[7; 100], SIZE).unwrap_err().raw_os_error(), Some(28));
    assert_eq!(file.read_at(&mut found[..100], SIZE - 10).expect("read"), 10);
    assert_eq!(file.read_at(&mut found[..100], SIZE).expect("read"), 0);
    // Holes.
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, SIZE).expect("punched");
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(rustix::io::Errno::NXIO));
    file.write_all_at(&[1], 200_000).expect("written");
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(196_608));
    assert_eq!(seek(&file, SeekFrom::Hole(200_000)), Ok(262_144));
    assert!(fallocate(&file, FallocateFlags::empty(), 0, SIZE).is_err());
    seek(&file, SeekFrom::Start(200_000)).expect("sought");
    let mut one = [0];
    file.read_exact(&mut one).expect("read");
    file.write_all(&[2]).expect("written");
    assert_eq!(one, [1]);
    drop(file);
    assert!(mounted.unmount().expect("unmounted"));
    assert!(!path.exists());
}

//! A large index: a run of chunks that nothing names.

use std::sync::Arc;

use larder_format::ids::PageRunId;
use larder_format::page_run::{PageRunBuilder, PageRunKey, VolumeTable};
use larder_format::volume_manifest::{PageRunRef, VolumeManifest, path};
use larder_volume::disk::{Disk, DiskFile};
use larder_volume::store::unlock;

use crate::data::Random;

/// Adds a run of random keys to a store that nobody has open, and names it in its manifest.
pub(crate) fn add(disk: &dyn Disk, password: &[u8], count: u64) {
    let (_, keys) = unlock(disk, password).unwrap();
    let number = disk.list("manifest").unwrap().iter().filter_map(|name| name.parse().ok()).max().unwrap();
    let mut manifest = VolumeManifest::decode(&keys, number, &read(disk, &path(number))).unwrap();
    let id = PageRunId([0x55; 16]);
    let mut builder = PageRunBuilder::new(PageRunKey::of(&keys, id).unwrap(), VolumeTable::Chunks);
    let file = disk.create(&format!("runs/{id}")).unwrap();
    let (mut random, mut written) = (Random(77), 0);
    // Keys rise in equal steps, with random bytes below.
    let step = u64::MAX / count;
    for entry in 0..count {
        let mut key = [0; 20];
        key[..8].copy_from_slice(&(entry * step + random.below(step)).to_be_bytes());
        key[8..16].copy_from_slice(&random.next().to_le_bytes());
        let offset = random.next() as u32 >> 8;
        builder.push(&key, &u64::from(offset).to_le_bytes()).unwrap();
        if builder.records().is_multiple_of(1 << 16) {
            write(&*file, &mut written, &builder.take());
        }
    }
    let records = builder.records();
    write(&*file, &mut written, &builder.finish().unwrap());
    file.sync().unwrap();
    disk.sync_folder("runs").unwrap();
    manifest.number += 1;
    manifest.runs.push(PageRunRef { id, table: VolumeTable::Chunks.code(), records, object_bytes: written });
    let name = path(manifest.number);
    let sealed = manifest.encode(&keys, [0x77; 32]).unwrap();
    let file = disk.create(&name).unwrap();
    file.write_at(0, &sealed).unwrap();
    file.sync().unwrap();
    disk.sync_folder("manifest").unwrap();
}

fn read(disk: &dyn Disk, name: &str) -> Vec<u8> {
    let file: Arc<dyn DiskFile> = disk.open(name).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn write(file: &dyn DiskFile, written: &mut u64, bytes: &[u8]) {
    file.write_at(*written, bytes).unwrap();
    *written += bytes.len() as u64;
}

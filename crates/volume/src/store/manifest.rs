//! Manifests: the newest one counts, and the next one is created by a link.
//!
//! A manifest gets its name only after it was synced, so power failures leave no damaged one. A
//! newest manifest that does not open is damage: the one before names a log whose slots may be in
//! use again.

use larder_format::keys::Keys;
use larder_format::volume_manifest::{VOLUME_MANIFEST_MAX, VolumeEntry, VolumeManifest, path};

use super::entropy::Entropy;
use crate::disk::{Disk, read_file, write_file};
use crate::error::VolumeError;

pub(super) const FOLDER: &str = "manifest";

/// Numbers of all manifests.
pub(super) fn numbers(disk: &dyn Disk) -> Result<Vec<u64>, VolumeError> {
    let names = disk.list(FOLDER).map_err(VolumeError::io(FOLDER))?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// The manifest that counts.
pub(super) fn newest(disk: &dyn Disk, keys: &Keys) -> Result<VolumeManifest, VolumeError> {
    let missing = || VolumeError::needed(FOLDER)(std::io::ErrorKind::NotFound.into());
    let number = numbers(disk)?.into_iter().max().ok_or_else(missing)?;
    let name = path(number);
    let bytes = read_file(disk, &name, VOLUME_MANIFEST_MAX).map_err(VolumeError::needed(&name))?;
    VolumeManifest::decode(keys, number, &bytes).map_err(VolumeError::damaged(name))
}

/// The volumes of a store that need not be opened for it. A server may have it open.
pub fn volumes(disk: &dyn Disk, keys: &Keys) -> Result<Vec<VolumeEntry>, VolumeError> {
    // A server may publish another one and remove this one meanwhile.
    let mut tries = 0;
    loop {
        match newest(disk, keys) {
            Err(_) if tries < 3 => tries += 1,
            found => return Ok(found?.volumes),
        }
    }
}

/// Creates a manifest, durably.
pub(super) fn publish(
    disk: &dyn Disk,
    keys: &Keys,
    entropy: &dyn Entropy,
    manifest: &VolumeManifest,
) -> Result<(), VolumeError> {
    let bytes = manifest.encode(keys, entropy.random()?)?;
    let name = path(manifest.number);
    write_file(disk, &name, &bytes).map_err(VolumeError::io(name))
}

//! Manifests: the newest one counts, and the next one is created by a link.
//!
//! A manifest gets its name only after it was synced, so power failures leave no damaged one. A
//! newest manifest that does not open is damage: the one before names a log whose slots may be in
//! use again.

use larder_format::ErrorKind;
use larder_format::keys::Keys;
use larder_format::volume_manifest::{VOLUME_MANIFEST_MAX, VolumeManifest, path};

use super::entropy::Entropy;
use crate::disk::{Disk, forget_temporary, name_temporary, read_file, write_temporary};
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

/// Creates a manifest, durably.
pub(super) fn publish(
    disk: &dyn Disk,
    keys: &Keys,
    entropy: &dyn Entropy,
    manifest: &VolumeManifest,
) -> Result<(), VolumeError> {
    prepare(disk, keys, entropy, manifest)?;
    name(disk, manifest).map_err(|unnamed| unnamed.error)
}

/// Writes a manifest, durably. It does not count yet, and after an error it never will.
pub(super) fn prepare(
    disk: &dyn Disk,
    keys: &Keys,
    entropy: &dyn Entropy,
    manifest: &VolumeManifest,
) -> Result<(), VolumeError> {
    let bytes = manifest.encode(keys, entropy.random()?)?;
    let name = path(manifest.number);
    write_temporary(disk, &name, &bytes).map_err(VolumeError::io(name))
}

/// A manifest could not get its name.
pub(super) struct Unnamed {
    pub(super) error: VolumeError,
    /// It surely does not count: there was no space for the name.
    pub(super) is_gone: bool,
}

/// Gives a manifest that was written its name, durably. It counts from now on.
pub(super) fn name(disk: &dyn Disk, manifest: &VolumeManifest) -> Result<(), Unnamed> {
    let name = path(manifest.number);
    name_temporary(disk, &name).map_err(|source| {
        let error = VolumeError::io(&name)(source);
        let is_gone = error.kind() == ErrorKind::Full && forget_temporary(disk, &name);
        Unnamed { error, is_gone }
    })
}

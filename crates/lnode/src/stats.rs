//! Statistics: what a set of versions holds and what it costs.

use std::collections::HashMap;

use larder_format::ids::ContainerKind;
use larder_store::RepositoryError;
use larder_store::catalog::Version;

use crate::context::Context;

/// Sizes of a set of versions, and of the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositoryStats {
    /// Versions counted.
    pub versions: u64,
    /// Files in them, each version counted.
    pub files: u64,
    /// Logical bytes of all these versions: what restoring each of them would write.
    pub logical_bytes: u64,
    /// Uncompressed bytes of the containers they use.
    pub unique_bytes: u64,
    /// Bytes of the data containers they use.
    pub stored_data_bytes: u64,
    /// Bytes of the metadata containers they use.
    pub stored_meta_bytes: u64,
    /// Data and metadata containers they use.
    pub containers: u64,
    /// Bytes of all objects of the repository, whoever uses them.
    pub repository_bytes: u64,
    /// Objects of the repository.
    pub repository_objects: u64,
}

/// Counts what `versions` use, from their manifests' container tables alone.
pub fn stats(context: &Context, versions: &[Version]) -> Result<RepositoryStats, RepositoryError> {
    let mut stats = RepositoryStats { versions: versions.len() as u64, ..RepositoryStats::default() };
    let mut used = HashMap::new();
    for version in versions {
        let counted = &version.summary.statistics;
        stats.files += counted.files_new + counted.files_changed + counted.files_unmodified;
        stats.logical_bytes += counted.logical_bytes;
        let manifest = context.runtime.block_on(context.repository.manifest(version))?;
        used.extend(manifest.containers.iter().map(|usage| (usage.container, *usage)));
    }
    for (id, usage) in &used {
        stats.containers += 1;
        match id.kind {
            ContainerKind::Data => {
                stats.unique_bytes += usage.bytes_held;
                stats.stored_data_bytes += usage.object_bytes;
            }
            ContainerKind::Meta => stats.stored_meta_bytes += usage.object_bytes,
        }
    }
    for object in context.runtime.block_on(context.repository.store().list(""))? {
        stats.repository_objects += 1;
        stats.repository_bytes += object.size;
    }
    Ok(stats)
}

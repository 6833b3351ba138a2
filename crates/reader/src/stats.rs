//! Statistics: contents and costs of a set of versions.

use std::collections::HashMap;
use std::pin::pin;

use futures::StreamExt;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::manifest::ContainerUsage;
use larder_format::names;
use larder_job::JobContext;
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::manifests::ManifestWindow;

use crate::recipe_reader::MetaChunks;

/// Containers that the index is asked about at once.
const BATCH: usize = 1024;

/// Sizes of a set of versions, and of the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositoryStats {
    /// Versions counted.
    pub versions: u64,
    /// Files in them, each version counted.
    pub files: u64,
    /// Logical bytes of all these versions: a restore of each would write them.
    pub logical_bytes: u64,
    /// Uncompressed bytes of the containers they use.
    pub unique_bytes: u64,
    /// Bytes of the data containers they use.
    pub stored_data_bytes: u64,
    /// Bytes of the metadata containers they use.
    pub stored_meta_bytes: u64,
    /// Data and metadata containers they use.
    pub containers: u64,
    /// Bytes of all objects of the repository, whatever uses them.
    pub repository_bytes: u64,
    /// Objects of the repository.
    pub repository_objects: u64,
}

/// Counts the data that `versions` use, from the container tables of their manifests. Where these
/// only name it (layout `lifecycle`), the index tells the rest.
pub fn stats(context: &JobContext, versions: &[Version]) -> Result<RepositoryStats, RepositoryError> {
    let mut stats = RepositoryStats { versions: versions.len() as u64, ..RepositoryStats::default() };
    let (mut used, mut named, mut places) = (HashMap::new(), HashMap::new(), None);
    let (repository, executor) = (&context.repository, &context.executor);
    let mut manifests = pin!(repository.manifests(versions, ManifestWindow::default()));
    for version in versions {
        let counted = &version.summary.statistics;
        stats.files += counted.files_new + counted.files_changed + counted.files_unmodified;
        stats.logical_bytes = stats.logical_bytes.saturating_add(counted.logical_bytes);
        let Some(manifest) = executor.block_on(manifests.next()).transpose()? else { break };
        let chunks = places.get_or_insert_with(|| MetaChunks::new(context)).for_reading(&manifest);
        let (objects, names) = chunks.objects_and_names(&manifest.containers, |usage| usage.container);
        used.extend(objects.into_iter().map(|usage| (usage.container, *usage)));
        named.extend(names.into_iter().map(|usage| (usage.container, *usage)));
    }
    let objects = context.executor.block_on(context.repository.store().list(""))?;
    let arranged = match &places {
        Some(chunks) => arranged(chunks, &named)?,
        None => HashMap::new(),
    };
    let mut sizes = HashMap::new();
    if !arranged.is_empty() {
        let sized = objects.iter().filter_map(|object| Some((names::parse_container(&object.name)?, object.size)));
        sizes.extend(sized);
    }
    for (id, bytes) in arranged {
        stats.containers += 1;
        stats.unique_bytes += bytes;
        stats.stored_data_bytes += sizes.get(&id).copied().unwrap_or(0);
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
    for object in objects {
        stats.repository_objects += 1;
        stats.repository_bytes += object.size;
    }
    Ok(stats)
}

/// The used bytes, uncompressed, of containers to which passes moved chunks of these versions. An
/// unchanged container counts with its content.
fn arranged(
    chunks: &MetaChunks,
    named: &HashMap<ContainerId, ContainerUsage>,
) -> Result<HashMap<ContainerId, u64>, RepositoryError> {
    let mut bytes: HashMap<ContainerId, u64> = HashMap::new();
    let ids: Vec<_> = named.keys().copied().collect();
    for batch in ids.chunks(BATCH) {
        for (place, used) in chunks.moved().held_by(batch)? {
            let whole = named.get(&place).map_or(0, |usage| usage.bytes_held);
            *bytes.entry(place).or_default() += used.unwrap_or(whole);
        }
    }
    Ok(bytes)
}

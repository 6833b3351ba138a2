//! Very many chunks at once: containers whose tables are real and whose chunks are a few bytes each.

use anyhow::Context as _;
use larder_format::Fingerprint;
use larder_format::compress::{Compression, Compressor};
use larder_format::container::{ChunkEntry, ChunkKind, ContainerBuilder, ContainerSealer, seal_frame};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_format::manifest::ContainerUsage;
use larder_format::names;
use larder_store::catalog::Version;
use larder_store::repository::random;

use super::Node;
use crate::rng::Rng;

/// Chunks of a container: as many as 4 KiB go into 8 MiB.
pub(crate) const CHUNKS_EACH: u32 = 2048;
/// Bytes of a chunk: they are not what is measured.
const CHUNK: u32 = 16;

/// Commits a version with the contents of another one. It also names this number of containers, whose chunks nothing else has.
pub(crate) fn crowd(node: &Node, version: &Version, containers: u32) -> anyhow::Result<()> {
    let repository = &node.context.repository;
    let keys = repository.keys();
    let mut rng = Rng::new(u64::from(containers));
    let mut compressor = Compressor::new(Compression::Off);
    let raw = vec![0; (CHUNKS_EACH * CHUNK) as usize];
    let mut manifest = node.runtime.block_on(repository.manifest(version))?;
    let job = JobId::new(node.context.clock.now_ms(), random(repository.entropy())?);
    let lease = Lease {
        pins: vec![Pin { series: version.series, job: version.id() }],
        layout: Some(manifest.summary.layout),
        ..node.context.lease(JobKind::Backup, &manifest.summary.series)
    };
    let lease = node.runtime.block_on(repository.open_lease(job, lease))?;
    for seq in 0..containers {
        let id = ContainerId { kind: ContainerKind::Data, job, seq };
        let entry = |_| {
            let mut name = [0; 32];
            for word in name.chunks_mut(8) {
                word.copy_from_slice(&rng.next_u64().to_le_bytes());
            }
            ChunkEntry { fingerprint: Fingerprint(name), size: CHUNK, kind: ChunkKind::Plain }
        };
        let chunks: Vec<ChunkEntry> = (0..CHUNKS_EACH).map(entry).collect();
        let sealer = ContainerSealer::new(keys, id, keys.domain(), random(repository.entropy())?)?;
        let mut builder = ContainerBuilder::new();
        builder.push_frame(&seal_frame(&sealer, 0, &raw, &chunks, &mut compressor)?);
        let object = builder.finish(&sealer, &chunks, repository.config().padding())?;
        let bytes = raw.len() as u64;
        manifest.containers.push(ContainerUsage {
            container: id,
            chunks_used: CHUNKS_EACH,
            bytes_used: bytes,
            chunks_held: CHUNKS_EACH,
            bytes_held: bytes,
            object_bytes: object.len() as u64,
        });
        node.runtime.block_on(repository.store().create(&names::container(id), object.into()))?;
    }
    manifest.containers.sort_by_key(|usage| usage.container);
    manifest.summary.id = job;
    manifest.summary.attempt = random(repository.entropy())?;
    node.runtime.block_on(repository.commit(version.series, &manifest)).context("the crowded version")?;
    let done = Done::committed(version.series).with_containers(containers, 0);
    node.runtime.block_on(repository.close_lease(&lease, done))?;
    Ok(())
}

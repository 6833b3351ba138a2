//! A small reader over the real formats, and the process that restores.

use std::num::NonZeroUsize;

use larder_format::container::ChunkRef;
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_format::manifest::Manifest;
use larder_format::recipe::{SegmentRef, decode_node};
use larder_format::segment::{self, ChunkRecord};
use larder_store::catalog::Version;
use larder_store::chunk_reader::ChunkReader;
use larder_store::{Repository, RepositoryError};

use crate::simulation::moved::Finder;
use crate::simulation::node::{Node, Stop};

const CACHE: NonZeroUsize = NonZeroUsize::new(1 << 20).unwrap();

pub fn chunks_of(repository: &Repository) -> ChunkReader {
    ChunkReader::new(repository.clone(), CACHE, CACHE)
}

/// The nodes and the segments of a version's data stream, with their records.
pub async fn segments(
    chunks: &ChunkReader,
    manifest: &Manifest,
) -> Result<(Vec<ChunkRef>, Vec<(SegmentRef, Vec<ChunkRecord>)>), RepositoryError> {
    let (mut nodes, mut found) = (Vec::new(), Vec::new());
    for node in &manifest.data.nodes {
        nodes.push(node.chunk);
        for segment in decode_node(&chunks.read(&node.chunk).await?).expect("it was authenticated") {
            let bytes = chunks.read(&segment.chunk).await?;
            found.push((segment, segment::decode(&bytes).expect("it was authenticated").records));
        }
    }
    Ok((nodes, found))
}

/// All bytes of a version.
pub async fn restore(repository: &Repository, manifest: &Manifest) -> Result<Vec<u8>, RepositoryError> {
    let mut finder = Finder::new(repository, manifest);
    let mut bytes = Vec::new();
    for (_, records) in segments(&chunks_of(repository), manifest).await?.1 {
        for record in records {
            bytes.extend_from_slice(&finder.read(&record.chunk).await?);
        }
    }
    Ok(bytes)
}

pub fn pin_of(version: &Version) -> Pin {
    Pin { series: version.series, job: version.id() }
}

/// Restores one version under a lease, and compares.
pub async fn read(node: &Node) -> Result<(), Stop> {
    let repository = &node.repository;
    let catalog = repository.catalog().await?;
    if catalog.versions.is_empty() {
        return Ok(());
    }
    let version = &catalog.versions[node.below(catalog.versions.len())];
    let reader = node.new_job()?;
    let lease = Lease {
        kind: JobKind::Read,
        series: version.summary.series.clone(),
        pins: vec![pin_of(version)],
        adopts: Vec::new(),
        host: "reader".to_owned(),
        process: 1,
        written_ms: node.now_ms(),
        renew_seconds: 300,
        claims: None,
        generation: None,
        layout: None,
        ended: None,
    };
    node.ledger.begins_to_read(reader);
    let open = repository.open_lease(reader, lease).await?;
    if repository.is_retained(pin_of(version)).await? {
        let missed = |error: RepositoryError| {
            if error.is_damage() {
                node.ledger.could_not_read(reader, format!("{reader} reads {}: {error}", version.id()));
            }
            error
        };
        let Some(newest) = repository.newest_generation(version).await? else {
            return Ok(repository.close_lease(&open, Done::nothing()).await?);
        };
        let manifest = repository.manifest(&newest).await.map_err(missed)?;
        let bytes = restore(repository, &manifest).await.map_err(missed)?;
        let expected = node.ledger.content(version.id()).expect("every version has its content");
        if bytes != expected.concat() {
            node.ledger.could_not_read(reader, format!("{reader} reads wrong bytes of {}", version.id()));
        }
        node.ledger.count("restored");
    }
    repository.close_lease(&open, Done::nothing()).await?;
    Ok(())
}

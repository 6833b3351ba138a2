//! A compaction: some version is laid out anew as a job of its own whose register is the next generation.

use std::rc::Rc;

use futures::future::try_join_all;
use larder_format::ids::ContainerKind;
use larder_format::layout::Layout;
use larder_format::lease::Done;
use larder_format::names;
use larder_store::jobs::CommitError;
use larder_store::repository::random;

use crate::simulation::backup::{Held, Known, pack};
use crate::simulation::moved::Finder;
use crate::simulation::node::{Node, Stop};
use crate::simulation::reading::{chunks_of, pin_of, segments};

/// Lays out some version anew: about half of its data containers are given up.
pub async fn compact(node: &Node) -> Result<(), Stop> {
    let repository = &node.repository;
    let catalog = repository.catalog().await?;
    if catalog.versions.is_empty() {
        return Ok(());
    }
    let version = &catalog.versions[node.below(catalog.versions.len())];
    if version.summary.layout == Layout::Lifecycle {
        // Arranging is what these have instead.
        return Ok(());
    }
    let pin = pin_of(version);
    let job = node.new_job()?;
    let generation = repository.next_generation(pin).await?;
    node.linger().await;
    let lease = node.task_lease("task", &version.summary.series, vec![pin], generation);
    let open = repository.open_lease(job, lease).await?;
    node.linger().await;
    if !repository.is_retained(pin).await? {
        return Ok(repository.close_lease(&open, Done::nothing()).await?);
    }
    let Some(newest) = repository.newest_generation(version).await? else {
        return Ok(repository.close_lease(&open, Done::nothing()).await?);
    };
    if newest.summary.layout == Layout::Lifecycle {
        // It was converted meanwhile.
        return Ok(repository.close_lease(&open, Done::nothing()).await?);
    }
    let old = repository.manifest(&newest).await?;
    let mut finder = Finder::new(repository, &old);
    let mut known = Known::default();
    let mut blocks = Vec::new();
    for usage in &old.containers {
        if usage.container.kind == ContainerKind::Meta || node.one_in(2) {
            let held = Held { chunks: usage.chunks_held, bytes: usage.bytes_held, object_bytes: usage.object_bytes };
            known.held.insert(usage.container, held);
        }
    }
    let (nodes, found) = segments(&chunks_of(repository), &old).await?;
    known.metadata.extend(nodes.iter().map(|node| (node.fingerprint, *node)));
    for (segment, records) in found {
        known.metadata.insert(segment.chunk.fingerprint, segment.chunk);
        for record in records {
            if known.held.contains_key(&record.chunk.container) {
                known.chunks.insert(record.chunk.fingerprint, record);
            }
            blocks.push(finder.read(&record.chunk).await?.to_vec());
        }
    }
    let series = &old.summary.series;
    let (mut manifest, objects) = pack(node, job, series, Layout::Standard, &Rc::new(blocks), &known)?;
    manifest.summary =
        larder_format::manifest::Summary { attempt: random(repository.entropy())?, ..old.summary.clone() };
    let uploads = objects
        .into_iter()
        .map(|(id, object, _)| async move { repository.store().create(&names::container(id), object.into()).await });
    try_join_all(uploads).await?;
    node.linger().await;
    let done = match repository.commit_generation(pin.series, &manifest, generation).await {
        Ok(_) => {
            node.ledger.count("compacted");
            Done::committed_generation(pin, generation)
        }
        Err(CommitError::Fenced) => {
            node.ledger.count("compaction fenced");
            Done::nothing()
        }
        Err(error) => return Err(error.into()),
    };
    // Unanswered or not: an aborted generation stays.
    Ok(repository.close_lease(&open, done).await?)
}

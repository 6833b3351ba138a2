//! A conversion: the versions of a series are laid out anew in the other layout, one after the other, each as a job of its own that shares
//! what the version before has.

use std::rc::Rc;

use futures::future::try_join_all;
use larder_format::ids::ContainerKind;
use larder_format::layout::Layout;
use larder_format::lease::Done;
use larder_format::manifest::{Manifest, Summary};
use larder_format::names;
use larder_store::catalog::Version;
use larder_store::jobs::CommitError;
use larder_store::repository::random;

use crate::simulation::backup::{Held, Known, SERIES, pack};
use crate::simulation::moved::Finder;
use crate::simulation::node::{Node, Stop};
use crate::simulation::reading::{chunks_of, pin_of, segments};

/// What the version before is now.
type Before = Option<(Version, Manifest)>;

/// Converts some series, or stops half way.
pub async fn convert(node: &Node) -> Result<(), Stop> {
    let repository = &node.repository;
    let series = SERIES[node.below(SERIES.len())];
    let layout = *node.rng().pick(&[Layout::Standard, Layout::Lifecycle]);
    let mut versions = repository.catalog_of_series(series).await?.versions;
    versions.sort_by_key(Version::id);
    let mut before: Before = None;
    for version in versions {
        if node.one_in(10) {
            return Ok(());
        }
        before = match version.summary.layout == layout {
            true => {
                let manifest = repository.manifest(&version).await?;
                Some((version, manifest))
            }
            false => one(node, &version, layout, before.take()).await?,
        };
    }
    Ok(())
}

/// Whether what was listed is still what holds.
async fn still_holds(node: &Node, version: &Version) -> Result<bool, Stop> {
    if !node.repository.is_retained(pin_of(version)).await? {
        return Ok(false);
    }
    let newest = node.repository.newest_generation(version).await?;
    Ok(newest.is_some_and(|newest| newest.generation == version.generation))
}

async fn one(node: &Node, version: &Version, layout: Layout, before: Before) -> Result<Before, Stop> {
    let repository = &node.repository;
    let pin = pin_of(version);
    let job = node.new_job()?;
    let generation = repository.next_generation(pin).await?;
    node.linger().await;
    let pins = std::iter::once(pin).chain(before.iter().map(|(before, _)| pin_of(before))).collect();
    let lease = node.task_lease("converter", &version.summary.series, pins, generation);
    let open = repository.open_lease(job, lease).await?;
    node.linger().await;
    if !still_holds(node, version).await? {
        repository.close_lease(&open, Done::nothing()).await?;
        return Ok(before);
    }
    let before = match before {
        Some((before, manifest)) if still_holds(node, &before).await? => Some(manifest),
        _ => None,
    };
    let known = match &before {
        Some(manifest) => shared_with(node, manifest).await?,
        None => Known::default(),
    };
    let old = repository.manifest(version).await?;
    let mut finder = Finder::new(repository, &old);
    let mut blocks = Vec::new();
    for (_, records) in segments(&chunks_of(repository), &old).await?.1 {
        for record in records {
            blocks.push(finder.read(&record.chunk).await?.to_vec());
        }
    }
    let (mut manifest, objects) = pack(node, job, &old.summary.series, layout, &Rc::new(blocks), &known)?;
    manifest.summary = Summary { attempt: random(repository.entropy())?, layout, ..old.summary.clone() };
    if manifest.containers.iter().any(|usage| usage.container.kind == ContainerKind::Data && usage.container.job != job)
    {
        node.ledger.count("shared while converting");
    }
    let uploads = objects
        .into_iter()
        .map(|(id, object, _)| async move { repository.store().create(&names::container(id), object.into()).await });
    try_join_all(uploads).await?;
    node.linger().await;
    let mut done = Done::committed_generation(pin, generation);
    let converted = match repository.commit_generation(pin.series, &manifest, generation).await {
        Ok(_) => {
            node.ledger.count(match layout {
                Layout::Standard => "converted back",
                Layout::Lifecycle => "converted",
            });
            let summary = manifest.summary.clone();
            Some((Version { generation, summary, ..version.clone() }, manifest))
        }
        Err(CommitError::Fenced) => {
            node.ledger.count("conversion fenced");
            done = Done::nothing();
            None
        }
        Err(error) => return Err(error.into()),
    };
    repository.close_lease(&open, done).await?;
    Ok(converted)
}

/// What may be referenced of a version: its data, and nothing of its recipe.
async fn shared_with(node: &Node, manifest: &Manifest) -> Result<Known, Stop> {
    let mut known = Known::default();
    for usage in &manifest.containers {
        let held = Held { chunks: usage.chunks_held, bytes: usage.bytes_held, object_bytes: usage.object_bytes };
        known.held.insert(usage.container, held);
    }
    for (_, records) in segments(&chunks_of(&node.repository), manifest).await?.1 {
        known.chunks.extend(records.iter().map(|record| (record.chunk.fingerprint, *record)));
    }
    Ok(known)
}

//! Which of the containers that a version needs are missing: a backup asks before it builds on the version.
//!
//! The listings of the jobs that the version names tell what is there, and cost a few requests. What they lack is asked for by name.
//! A container that is not there may be retired, so the newest index is asked. The segments of the few that remain are read: their
//! chunks count as missing when the index leads nowhere for them.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::layout::Layout;
use larder_format::manifest::Manifest;
use larder_format::names;
use larder_store::RepositoryError;

use super::{MetaChunks, RecipeReader};
use crate::context::Context;

/// How often places are asked for again when a pass has moved what was there a moment ago (`LookAgain`).
const LOOKS_MAX: u32 = 3;

/// What is missing of a version.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// Containers as the manifest names them, of which some chunk that the version needs is nowhere.
    pub(crate) named: HashSet<ContainerId>,
    /// The containers that are absent: in the layout `lifecycle` those to which passes moved the chunks.
    pub(crate) absent: BTreeSet<ContainerId>,
}

/// Looks which containers that a version needs are missing.
pub(crate) fn missing_containers(context: &Context, manifest: &Manifest) -> Result<Missing, RepositoryError> {
    // What is learned here about moved chunks is for this question alone: a backup takes records over as they are named.
    let chunks = MetaChunks::new(context).for_reading(manifest);
    let named: Vec<ContainerId> = manifest.containers.iter().map(|usage| usage.container).collect();
    let absent = |ids: Vec<ContainerId>| context.runtime.block_on(context.repository.absent_containers(ids));
    match manifest.summary.layout {
        Layout::Standard => {
            let (data, meta) = by_kind(absent(named)?);
            if data.is_empty() {
                return Ok(Missing::of(meta));
            }
            let unexplained = chunks.moved().without_retired(data)?;
            if !unexplained.is_empty() && !can_tell(context, &chunks, manifest)? {
                return Ok(Missing::of(meta));
            }
            let lost = nowhere(&chunks, manifest, &unexplained)?;
            Ok(Missing::of(lost.into_iter().chain(meta).collect()))
        }
        Layout::Lifecycle => {
            let (named_data, named_meta) = by_kind(named);
            let (_, meta) = by_kind(absent(named_meta.into_iter().collect())?);
            let mut lost = BTreeSet::new();
            for _ in 0..LOOKS_MAX {
                let places = chunks.moved().places(named_data.iter().copied())?;
                lost = absent(places)?;
                if lost.is_empty() || !chunks.moved().learn(lost.iter().copied())? {
                    break;
                }
            }
            let mut missing = Missing::of(meta);
            if !lost.is_empty() && !can_tell(context, &chunks, manifest)? {
                return Ok(missing);
            }
            let lost = nowhere(&chunks, manifest, &lost)?;
            for id in named_data {
                if chunks.moved().places([id])?.iter().any(|place| lost.contains(place)) {
                    missing.named.insert(id);
                }
            }
            missing.absent.extend(lost);
            Ok(missing)
        }
    }
}

impl Missing {
    /// Of containers that are where the manifest names them.
    fn of(absent: BTreeSet<ContainerId>) -> Self {
        Self { named: absent.iter().copied().collect(), absent }
    }
}

/// Whether an absent data container can be told from a retired one: there is an index, or no pass ever published one.
fn can_tell(context: &Context, chunks: &MetaChunks, manifest: &Manifest) -> Result<bool, RepositoryError> {
    if chunks.moved().has_index() {
        return Ok(true);
    }
    let store = context.repository.store().without_cache();
    let has_passes = !context.runtime.block_on(store.list(names::INDEXED))?.is_empty();
    if has_passes {
        context.progress.note(&format!(
            "the index cannot be read: whether containers of snapshot {} are missing is not known; run `larder repair index`",
            manifest.summary.id.short()
        ));
    }
    Ok(!has_passes)
}

/// Data containers and metadata containers.
fn by_kind(ids: impl IntoIterator<Item = ContainerId>) -> (BTreeSet<ContainerId>, BTreeSet<ContainerId>) {
    ids.into_iter().partition(|id| id.kind == ContainerKind::Data)
}

/// Those of some absent containers in which a chunk of the version lies that the index does not know elsewhere.
fn nowhere(
    chunks: &MetaChunks,
    manifest: &Manifest,
    absent: &BTreeSet<ContainerId>,
) -> Result<BTreeSet<ContainerId>, RepositoryError> {
    let mut lost = BTreeSet::new();
    if absent.is_empty() {
        return Ok(lost);
    }
    chunks.moved().learn(absent.iter().copied())?;
    let mut reader = RecipeReader::new(Arc::new(manifest.data.clone()), chunks.clone());
    let mut walk = || {
        for number in 0..reader.segments() {
            let Some((segment, _)) = reader.segment_ref(number)? else { continue };
            if reader.lies_in(&segment, |id| absent.contains(id))? {
                let records = reader.segment(number)?;
                lost.extend(records.iter().map(|record| record.chunk.container).filter(|id| absent.contains(id)));
            }
        }
        Ok(())
    };
    match walk() {
        Ok(()) => Ok(lost),
        // What the rest of the version needs cannot be told.
        Err(error) if RepositoryError::is_damage(&error) => {
            tracing::warn!(%error, "a recipe cannot be read; all that is absent counts as missing");
            Ok(absent.clone())
        }
        Err(error) => Err(error),
    }
}

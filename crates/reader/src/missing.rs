//! Finds the missing containers among those that a version needs: a backup asks before it builds on
//! the version.
//!
//! The listings of the version's jobs tell which containers are there, and cost a few requests.
//! Containers that they lack are requested by name. An absent container may be retired, so the
//! newest index is asked. The segments of the few that remain are read: their chunks are missing
//! when the index does not redirect them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::manifest::Manifest;
use larder_format::names;
use larder_job::JobContext;
use larder_store::RepositoryError;

use crate::presence::{Look, Missing};
use crate::recipe_reader::{MetaChunks, RecipeReader};

/// How often places are requested again when a pass has moved chunks a moment ago (`LookAgain`).
const LOOKS_MAX: u32 = 3;

/// Finds the missing containers among those that a version needs.
pub fn missing_containers(context: &JobContext, manifest: &Manifest) -> Result<Missing, RepositoryError> {
    // This knowledge of moved chunks is for this question alone: a backup takes records over as
    // they are named.
    let chunks = MetaChunks::new(context).for_reading(manifest);
    chunks.missing(&VersionLook { context, manifest, chunks: chunks.clone() })
}

/// The search for missing containers of a version.
struct VersionLook<'a> {
    context: &'a JobContext,
    manifest: &'a Manifest,
    chunks: MetaChunks,
}

impl Look for VersionLook<'_> {
    fn recorded(&self) -> Result<Missing, RepositoryError> {
        let (data, meta): (BTreeSet<_>, BTreeSet<_>) =
            self.absent(self.named_all())?.into_iter().partition(|id| id.kind == ContainerKind::Data);
        let mut missing = Missing::of(meta);
        if data.is_empty() {
            return Ok(missing);
        }
        let explained = self.chunks.moved().explain(data)?;
        if !explained.is_complete || (!explained.unexplained.is_empty() && !self.can_tell()?) {
            missing.is_unknown = true;
            return Ok(missing);
        }
        // The containers with the chunks of retired ones must be there too.
        let gone = self.absent(explained.retired.iter().flat_map(|(_, places)| places).copied())?;
        let mut suspected = explained.unexplained.clone();
        let leads_nowhere = |places: &Vec<ContainerId>| places.iter().any(|place| gone.contains(place));
        suspected.extend(explained.retired.iter().filter(|(_, places)| leads_nowhere(places)).map(|(id, _)| *id));
        let lost = self.nowhere(&suspected)?;
        missing.absent.extend(lost.intersection(&explained.unexplained));
        let retired = explained.retired.iter().filter(|(id, _)| lost.contains(id));
        missing.absent.extend(retired.flat_map(|(_, places)| places).filter(|place| gone.contains(place)));
        missing.named.extend(lost);
        Ok(missing)
    }

    fn by_extents(&self) -> Result<Missing, RepositoryError> {
        let mut missing = Missing::of(self.absent(self.named(ContainerKind::Meta))?);
        let named: Vec<ContainerId> = self.named(ContainerKind::Data).collect();
        let mut lost = BTreeSet::new();
        for _ in 0..LOOKS_MAX {
            lost = self.absent(self.chunks.moved().places(named.iter().copied())?)?;
            if lost.is_empty() || !self.chunks.moved().learn(lost.iter().copied())? {
                break;
            }
        }
        if !lost.is_empty() && !self.can_tell()? {
            missing.is_unknown = true;
            return Ok(missing);
        }
        let lost = self.nowhere(&lost)?;
        for id in named {
            if self.chunks.moved().places([id])?.iter().any(|place| lost.contains(place)) {
                missing.named.insert(id);
            }
        }
        missing.absent.extend(lost);
        Ok(missing)
    }
}

impl VersionLook<'_> {
    /// The containers that the manifest names.
    fn named_all(&self) -> impl Iterator<Item = ContainerId> {
        self.manifest.containers.iter().map(|usage| usage.container)
    }

    /// Those of this kind.
    fn named(&self, kind: ContainerKind) -> impl Iterator<Item = ContainerId> {
        self.named_all().filter(move |id| id.kind == kind)
    }

    /// Those of some containers that are absent, or that have another size than the manifest says.
    fn absent(&self, ids: impl IntoIterator<Item = ContainerId>) -> Result<BTreeSet<ContainerId>, RepositoryError> {
        let sizes = self.manifest.containers.iter().map(|usage| (usage.container, usage.object_bytes));
        let sizes: HashMap<ContainerId, u64> = sizes.collect();
        let sized = ids.into_iter().map(|id| (id, sizes.get(&id).copied()));
        self.context.executor.block_on(self.context.repository.absent_containers(sized))
    }

    /// Whether an absent data container can be distinguished from a retired one: there is an index,
    /// or no pass ever published one.
    fn can_tell(&self) -> Result<bool, RepositoryError> {
        if self.chunks.moved().has_index() {
            return Ok(true);
        }
        let store = self.context.repository.store().without_cache();
        Ok(self.context.executor.block_on(store.list(names::INDEXED))?.is_empty())
    }

    /// The absent containers with a chunk of the version that the index does not know elsewhere.
    fn nowhere(&self, absent: &BTreeSet<ContainerId>) -> Result<BTreeSet<ContainerId>, RepositoryError> {
        let mut lost = BTreeSet::new();
        if absent.is_empty() {
            return Ok(lost);
        }
        self.chunks.moved().learn(absent.iter().copied())?;
        let mut reader = RecipeReader::new(Arc::new(self.manifest.data.clone()), self.chunks.clone());
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
            // The needs of the rest of the version are unknown.
            Err(error) if RepositoryError::is_damage(&error) => {
                tracing::warn!(%error, "a recipe cannot be read; all that is absent counts as missing");
                Ok(absent.clone())
            }
            Err(error) => Err(error),
        }
    }
}

//! The first part of a check: everything but the contents of data containers.

use std::collections::{BTreeMap, HashMap, HashSet};

use larder_format::container::ContainerIndex;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::manifest::Manifest;
use larder_format::metadata::decode_block;
use larder_format::recipe::{Recipe, decode_node};
use larder_format::segment::{self, ChunkRecord};
use larder_format::{ChunkRef, Fingerprint, names};
use larder_store::RepositoryError;
use larder_store::container_reader::ByteLru;

use super::CheckError;
use crate::context::Context;
use crate::version::MetaChunks;

/// Of a check's memory, one part in so many for tables that records are compared with.
const TABLES_ONE_IN: usize = 3;

/// What is known to be bad about one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BadContainer {
    /// In words, the first thing found.
    pub(super) why: String,
    /// Parts of the payload that are bad; empty = all of it.
    pub(super) parts: Vec<std::ops::Range<u32>>,
}

impl BadContainer {
    pub(super) fn covers(&self, chunk: &ChunkRef) -> bool {
        self.parts.is_empty()
            || self.parts.iter().any(|part| chunk.offset < part.end && part.start < chunk.offset + chunk.size)
    }
}

/// See the module header.
pub(super) struct Structure<'a> {
    context: &'a Context,
    chunks: MetaChunks,
    /// Objects as the store lists them, with their sizes.
    listed: HashMap<ContainerId, u64>,
    pub(super) used: HashSet<ContainerId>,
    pub(super) bad: BTreeMap<ContainerId, BadContainer>,
    seen: HashSet<Fingerprint>,
    indexes: ByteLru<ContainerId, Option<std::sync::Arc<Index>>>,
    pub(super) tables_checked: HashSet<ContainerId>,
}

/// A container's chunks by their offset.
struct Index {
    starts: Vec<u32>,
    container: ContainerIndex,
}

impl<'a> Structure<'a> {
    pub(super) fn new(context: &'a Context) -> Result<Self, CheckError> {
        let mut listed = HashMap::new();
        for prefix in [names::DATA, names::META] {
            let objects = context.runtime.block_on(context.repository.store().list(prefix));
            for object in objects.map_err(RepositoryError::from)? {
                if let Some(id) = names::parse_container(&object.name) {
                    listed.insert(id, object.size);
                }
            }
        }
        Ok(Self {
            context,
            chunks: MetaChunks::new(context),
            listed,
            used: HashSet::new(),
            bad: BTreeMap::new(),
            seen: HashSet::new(),
            indexes: ByteLru::new(context.memory / TABLES_ONE_IN),
            tables_checked: HashSet::new(),
        })
    }

    /// Containers that no version uses, and their bytes.
    pub(super) fn unused(&self) -> (u64, u64) {
        let unused = self.listed.iter().filter(|(id, _)| !self.used.contains(id));
        unused.fold((0, 0), |(count, bytes), (_, size)| (count + 1, bytes + size))
    }

    /// Bytes of a container's object.
    pub(super) fn size(&self, id: ContainerId) -> u64 {
        self.listed.get(&id).copied().unwrap_or(0)
    }

    fn found_bad(&mut self, id: ContainerId, why: impl Into<String>, part: Option<std::ops::Range<u32>>) {
        let why = why.into();
        let bad = self.bad.entry(id).or_insert_with(|| BadContainer { why, parts: part.clone().into_iter().collect() });
        match part {
            None => bad.parts.clear(),
            Some(part) if !bad.parts.is_empty() && !bad.parts.contains(&part) => bad.parts.push(part),
            Some(_) => {}
        }
    }

    /// The structure was looked at: gives its caches back.
    pub(super) fn free_tables(&mut self) {
        self.indexes = ByteLru::new(0);
        self.seen = HashSet::new();
        self.chunks = MetaChunks::new(self.context);
    }

    /// Looks at one version.
    pub(super) fn version(&mut self, manifest: &Manifest) -> Result<(), CheckError> {
        // What is not there may have been moved. Metadata is not.
        let listed = &self.listed;
        let missing = manifest.containers.iter().map(|usage| usage.container);
        let missing = missing.filter(|id| id.kind == ContainerKind::Data && !listed.contains_key(id));
        let mut missing = missing.filter(|id| !self.chunks.moved().is_gone(id)).peekable();
        if missing.peek().is_some() {
            self.chunks.moved().learn(missing)?;
        }
        for usage in &manifest.containers {
            let id = usage.container;
            if self.chunks.moved().is_gone(&id) || !self.used.insert(id) {
                continue;
            }
            match self.listed.get(&id) {
                None => self.found_bad(id, "it is missing", None),
                Some(size) if *size != usage.object_bytes => {
                    let why = format!("it has {size} bytes instead of {}", usage.object_bytes);
                    self.found_bad(id, why, None);
                }
                Some(_) => {}
            }
        }
        let whole = [(&manifest.data, ContainerKind::Data), (&manifest.metadata, ContainerKind::Meta)];
        for (recipe, kind) in whole {
            self.recipe(recipe, kind)?;
        }
        Ok(())
    }

    fn recipe(&mut self, recipe: &Recipe, kind: ContainerKind) -> Result<(), CheckError> {
        for node in &recipe.nodes {
            if !self.seen.insert(node.chunk.fingerprint) {
                continue;
            }
            let Some(bytes) = self.read(&node.chunk)? else { continue };
            let segments = match decode_node(&bytes) {
                Ok(segments) => segments,
                Err(error) => {
                    self.found_bad(node.chunk.container, error.to_string(), Some(range(&node.chunk)));
                    continue;
                }
            };
            for segment in segments {
                if self.context.cancel.is_cancelled() {
                    return Err(CheckError::Interrupted);
                }
                if !self.seen.insert(segment.chunk.fingerprint) {
                    continue;
                }
                self.context.progress.done(0, segment.bytes);
                let Some(bytes) = self.read(&segment.chunk)? else { continue };
                match segment::decode(&bytes) {
                    Ok(mut segment) => {
                        self.lead_on(&mut segment.records)?;
                        self.records(&segment.records, kind)?;
                    }
                    Err(error) => {
                        self.found_bad(segment.chunk.container, error.to_string(), Some(range(&segment.chunk)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Leads records on that lie in containers which are not there. What nothing leads to is lost.
    fn lead_on(&mut self, records: &mut [ChunkRecord]) -> Result<(), CheckError> {
        let moved = self.chunks.moved();
        let gone: Vec<_> = (0..records.len()).filter(|place| moved.is_gone(&records[*place].chunk.container)).collect();
        moved.lead_on(records.iter_mut().map(|record| &mut record.chunk))?;
        for chunk in gone.into_iter().map(|place| records[place].chunk) {
            if self.listed.contains_key(&chunk.container) {
                self.used.insert(chunk.container);
            } else {
                self.found_bad(
                    chunk.container,
                    "it is missing, and the index leads nowhere for its chunks",
                    Some(range(&chunk)),
                );
            }
        }
        Ok(())
    }

    fn records(&mut self, records: &[ChunkRecord], kind: ContainerKind) -> Result<(), CheckError> {
        for record in records {
            let chunk = &record.chunk;
            if let Some(index) = self.index(chunk.container)? {
                let place = index.starts.binary_search(&chunk.offset);
                let held = place.ok().map(|place| index.container.chunks[place]);
                if held.is_none_or(|held| held.fingerprint != chunk.fingerprint || held.size != chunk.size) {
                    let why = "its table has another chunk where a recipe expects one";
                    self.found_bad(chunk.container, why, Some(range(chunk)));
                }
            }
            if kind == ContainerKind::Meta
                && self.seen.insert(chunk.fingerprint)
                && let Some(bytes) = self.read(chunk)?
                && let Err(error) = decode_block(&bytes)
            {
                self.found_bad(chunk.container, error.to_string(), Some(range(chunk)));
            }
        }
        Ok(())
    }

    /// A metadata chunk, or `None` when it is damaged, which is then noted.
    fn read(&mut self, chunk: &ChunkRef) -> Result<Option<bytes::Bytes>, CheckError> {
        match self.chunks.read(chunk) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_damage() => {
                self.found_bad(chunk.container, reason(&error), Some(range(chunk)));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A container's tables, or `None` when they are damaged, which is then noted.
    fn index(&mut self, id: ContainerId) -> Result<Option<std::sync::Arc<Index>>, CheckError> {
        if let Some(known) = self.indexes.get(&id) {
            return Ok(known);
        }
        let read = self.context.runtime.block_on(self.context.repository.read_container_index(id));
        let index = match read {
            Ok(container) => {
                self.tables_checked.insert(id);
                let starts = container.chunk_refs().map(|chunk| chunk.offset).collect();
                Some(std::sync::Arc::new(Index { starts, container }))
            }
            Err(error) if error.is_damage() => {
                self.found_bad(id, reason(&error), None);
                None
            }
            Err(error) => return Err(error.into()),
        };
        let bytes = index.as_ref().map_or(64, |index| index.starts.len() * 48 + 256);
        self.indexes.put(id, index.clone(), bytes);
        Ok(index)
    }
}

fn range(chunk: &ChunkRef) -> std::ops::Range<u32> {
    chunk.offset..chunk.offset.saturating_add(chunk.size)
}

/// What is wrong, without the object's name, which the report gives anyway.
pub(super) fn reason(error: &RepositoryError) -> String {
    match error {
        RepositoryError::Damaged { source, .. } => source.to_string(),
        RepositoryError::Store(error) => error.kind.to_string(),
        other => other.to_string(),
    }
}

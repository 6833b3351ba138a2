//! The first part of a check: everything but the contents of data containers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use larder_format::content;
use larder_format::ids::{ContainerId, ContainerKind, ContentDigest};
use larder_format::manifest::{ContainerUsage, Manifest};
use larder_format::metadata::decode_block;
use larder_format::recipe::{NodeRef, Recipe, SegmentRef, decode_node};
use larder_format::segment::{ChunkRecord, Segment};
use larder_format::{ChunkRef, names};
use larder_job::JobContext;
use larder_reader::{MetaChunks, Sought, is_missing};
use larder_store::RepositoryError;

use super::CheckError;
use super::order::{Stretch, Stretches};
use super::tables::{Index, Tables};

/// Divisor of a check's memory that gives the part for tables with which records are compared.
const TABLES_ONE_IN: usize = 3;
/// Divisor for chunks of missing containers, which are looked up together.
const MOVED_ONE_IN: usize = 8;
/// Bytes of such a chunk, including those of its look-up.
const MOVED_BYTES: usize = size_of::<ChunkRef>() + size_of::<Sought>();
/// Divisor of a check's memory that gives the part for chunks that were found.
const FOUND_ONE_IN: usize = 16;
/// Bytes of each of them in a set.
const FOUND_BYTES: usize = 2 * size_of::<FoundChunk>();
/// Minimum number of chunks that are looked up together.
const MOVED_MIN: usize = 1 << 8;

/// Names a found chunk: enough of its fingerprint to distinguish it from every other, and its size.
type FoundChunk = ([u8; 16], u32);

fn found_chunk(chunk: &ChunkRef) -> FoundChunk {
    let mut start = [0; 16];
    start.copy_from_slice(&chunk.fingerprint.0[..16]);
    (start, chunk.size)
}

/// Names a node or segment as a row describes it: half of its fingerprint, half of a digest of the
/// row, and a hash of the places of its chunks. A row that describes the same object in another way
/// is checked too, and so is each copy.
type Seen = ([u8; 16], [u8; 16], u64);

fn seen<'a>(chain: impl Iterator<Item = &'a ChunkRef>, row: ContentDigest) -> Seen {
    let half = |bytes: [u8; 32]| std::array::from_fn(|at| bytes[at]);
    let (mut places, mut fingerprint) = (DefaultHasher::new(), [0; 16]);
    for chunk in chain {
        (chunk.container, chunk.offset).hash(&mut places);
        fingerprint = half(chunk.fingerprint.0);
    }
    (fingerprint, half(row.0), places.finish())
}

/// The known defects of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BadContainer {
    /// The first defect, in words.
    pub(crate) why: String,
    /// Parts of the payload that are bad; empty = all of it.
    pub(crate) parts: Vec<std::ops::Range<u32>>,
    /// Whether it was listed and is gone since: its chunks may have been moved, and another look
    /// finds them.
    pub(crate) has_vanished: bool,
}

impl BadContainer {
    /// Whether any part of a chunk is bad.
    pub(crate) fn covers(&self, chunk: &ChunkRef) -> bool {
        self.parts.is_empty()
            || self.parts.iter().any(|part| chunk.offset < part.end && part.start < chunk.offset + chunk.size)
    }
}

/// See the module header.
pub(super) struct Structure<'a> {
    context: &'a JobContext,
    pub(super) chunks: MetaChunks,
    /// Objects as the store lists them, with their sizes.
    listed: Arc<HashMap<ContainerId, u64>>,
    pub(super) used: HashSet<ContainerId>,
    pub(super) bad: BTreeMap<ContainerId, BadContainer>,
    /// Containers that cannot be read before they are thawed.
    pub(super) cold: HashSet<ContainerId>,
    seen: HashSet<Seen>,
    /// The known metadata of nodes and segments, by their fingerprints.
    stretches: Stretches,
    tables: Tables,
    pub(super) tables_checked: HashSet<ContainerId>,
    /// Chunks of records whose containers are gone, not looked up yet.
    moved_away: Vec<ChunkRef>,
    moved_away_max: usize,
    /// Such chunks that were found. Later versions name most of them again.
    found: HashSet<FoundChunk>,
    found_max: usize,
}

impl<'a> Structure<'a> {
    pub(super) fn new(context: &'a JobContext) -> Result<Self, CheckError> {
        let store = context.repository.store();
        let lists = async { futures::try_join!(store.list(names::DATA), store.list(names::META)) };
        let (data, meta) = context.executor.block_on(lists).map_err(RepositoryError::from)?;
        let all = data.into_iter().chain(meta);
        let listed = all.filter_map(|object| Some((names::parse_container(&object.name)?, object.size))).collect();
        Ok(Self {
            context,
            chunks: MetaChunks::new(context),
            listed: Arc::new(listed),
            used: HashSet::new(),
            bad: BTreeMap::new(),
            cold: HashSet::new(),
            seen: HashSet::new(),
            stretches: Stretches::default(),
            tables: Tables::new(context.memory / TABLES_ONE_IN),
            tables_checked: HashSet::new(),
            moved_away: Vec::new(),
            moved_away_max: (context.memory / MOVED_ONE_IN / MOVED_BYTES).max(MOVED_MIN),
            found: HashSet::new(),
            found_max: context.memory / FOUND_ONE_IN / FOUND_BYTES,
        })
    }

    /// The tables of containers, for reading them ahead.
    pub(super) fn tables(&self) -> Tables {
        self.tables.clone()
    }

    /// The containers that the store lists.
    pub(super) fn listed(&self) -> Arc<HashMap<ContainerId, u64>> {
        self.listed.clone()
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
        let bad = self.bad.entry(id).or_insert_with(|| BadContainer {
            why,
            parts: part.clone().into_iter().collect(),
            has_vanished: false,
        });
        match part {
            None => bad.parts.clear(),
            Some(part) if !bad.parts.is_empty() && !bad.parts.contains(&part) => bad.parts.push(part),
            Some(_) => {}
        }
    }

    fn has_vanished(&mut self, id: ContainerId, error: &RepositoryError) {
        if let Some(bad) = self.bad.get_mut(&id).filter(|_| is_missing(error) && self.listed.contains_key(&id)) {
            bad.has_vanished = true;
        }
    }

    /// The structure is checked: frees its caches.
    pub(super) fn free_tables(&mut self) {
        self.tables = Tables::new(0);
        self.seen = HashSet::new();
        self.stretches = Stretches::default();
        self.moved_away = Vec::new();
        self.found = HashSet::new();
        self.chunks = self.chunks.emptied(self.context);
    }

    /// Checks one version.
    pub(super) fn version(&mut self, manifest: &Manifest) -> Result<(), CheckError> {
        self.chunks = self.chunks.for_reading(manifest);
        let (objects, names) = self.chunks.objects_and_names(&manifest.containers, |usage| usage.container);
        // The chunks of a missing container may have been moved. Metadata is not moved.
        let listed = &self.listed;
        let missing = objects.iter().map(|usage| usage.container);
        let missing = missing.filter(|id| id.kind == ContainerKind::Data && !listed.contains_key(id));
        let mut missing = missing.filter(|id| !self.chunks.moved().is_gone(id)).peekable();
        if missing.peek().is_some() {
            self.chunks.moved().learn(missing)?;
        }
        for usage in objects {
            let id = usage.container;
            if !self.chunks.moved().is_gone(&id) && self.used.insert(id) {
                self.container(usage)?;
            }
        }
        // The records tell which of the named containers are used.
        for usage in names {
            let id = usage.container;
            if self.listed.contains_key(&id) && !self.chunks.moved().is_gone(&id) {
                self.container(usage)?;
            }
        }
        let whole = [(&manifest.data, ContainerKind::Data), (&manifest.metadata, ContainerKind::Meta)];
        for (recipe, kind) in whole {
            self.recipe(recipe, kind)?;
        }
        Ok(())
    }

    /// Whether a container exists with the size that the manifest states. It may be newer than the
    /// list.
    fn container(&mut self, usage: &ContainerUsage) -> Result<(), CheckError> {
        let id = usage.container;
        let size = if self.is_there(id)? { self.listed.get(&id) } else { None };
        match size {
            None => self.found_bad(id, "it is missing", None),
            Some(size) if *size != usage.object_bytes => {
                let why = format!("it has {size} bytes instead of {}", usage.object_bytes);
                self.found_bad(id, why, None);
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn recipe(&mut self, recipe: &Recipe, kind: ContainerKind) -> Result<(), CheckError> {
        let mut before = Stretch::default();
        for node in &recipe.nodes {
            if self.seen.insert(seen([&node.chunk].into_iter(), content::of_stream(std::slice::from_ref(node)))) {
                self.node(node, kind)?;
            }
            if kind == ContainerKind::Meta {
                let here = self.stretches.get(&node.chunk.fingerprint);
                let wrong = here.wrong_cover(node.cover.as_ref()).or_else(|| here.wrong_behind(&before));
                if let Some(why) = wrong {
                    self.found_bad(node.chunk.container, why, Some(range(&node.chunk)));
                }
                before = here;
            }
        }
        Ok(())
    }

    /// Checks a node for the first time.
    fn node(&mut self, row: &NodeRef, kind: ContainerKind) -> Result<(), CheckError> {
        let node = &row.chunk;
        let Some(bytes) = self.read(node)? else { return Ok(()) };
        let verified = |segments: Vec<SegmentRef>| content::check_node(row, &segments).map(|()| segments);
        let segments = match decode_node(&bytes).and_then(verified) {
            Ok(segments) => segments,
            Err(error) => {
                self.found_bad(node.container, error.to_string(), Some(range(node)));
                return Ok(());
            }
        };
        let mut whole: Option<Stretch> = None;
        for segment in segments {
            if self.context.cancel.is_cancelled() {
                return Err(CheckError::Interrupted);
            }
            if self.seen.insert(seen(segment.chain(), content::of_node(std::slice::from_ref(&segment)))) {
                self.context.progress.done(0, segment.bytes);
                self.segment(&segment, kind)?;
            }
            if kind == ContainerKind::Meta {
                let here = self.stretches.get(&segment.chunk.fingerprint);
                let behind = whole.as_ref().and_then(|before| here.wrong_behind(before));
                if let Some(why) = here.wrong_cover(segment.cover.as_ref()).or(behind) {
                    self.found_bad(segment.chunk.container, why, Some(range(&segment.chunk)));
                }
                whole = Some(match whole.take() {
                    None => here,
                    Some(before) => before.and(here),
                });
            }
        }
        if let Some(whole) = whole {
            self.stretches.insert(node.fingerprint, whole);
        }
        Ok(())
    }

    /// Checks a segment for the first time.
    fn segment(&mut self, reference: &SegmentRef, kind: ContainerKind) -> Result<(), CheckError> {
        let chunk = &reference.chunk;
        let mut chain = Vec::new();
        for chunk in reference.chain() {
            let Some(bytes) = self.read(chunk)? else { return Ok(()) };
            chain.push(bytes);
        }
        let verified = |segment: Segment| match content::check_segment(reference, &segment) {
            Ok(()) => Ok(segment),
            Err(error) => Err((*chunk, error)),
        };
        let (mut records, mut names) = match reference.decode(&chain).and_then(verified) {
            Ok(segment) => self.chunks.objects_and_names(segment.records, |record| record.chunk.container),
            Err((chunk, error)) => {
                self.found_bad(chunk.container, error.to_string(), Some(range(&chunk)));
                return Ok(());
            }
        };
        let moved = self.chunks.moved();
        let away = records.extract_if(.., |record| moved.is_gone(&record.chunk.container));
        let found = &self.found;
        let away = away.map(|record| record.chunk).filter(|chunk| !found.contains(&found_chunk(chunk)));
        self.moved_away.extend(away);
        self.find_moved(self.moved_away_max)?;
        self.place(&mut names)?;
        records.append(&mut names);
        let needed: HashSet<_> = records.iter().map(|record| record.chunk.container).collect();
        if needed.len() > 1 {
            let mut needed: Vec<_> = needed.into_iter().filter(|id| !self.bad.contains_key(id)).collect();
            needed.sort_unstable();
            self.context.executor.block_on(self.tables.fetch(&self.context.repository, needed));
        }
        records.iter().try_for_each(|record| self.record(&record.chunk))?;
        if kind == ContainerKind::Meta {
            let stretch = self.blocks(&records)?;
            self.stretches.insert(chunk.fingerprint, stretch);
        }
        Ok(())
    }

    /// Reads the blocks of a segment. Blocks shared with other segments are read again, because
    /// their order here counts.
    fn blocks(&mut self, records: &[ChunkRecord]) -> Result<Stretch, CheckError> {
        let mut whole: Option<Stretch> = None;
        for record in records {
            let chunk = &record.chunk;
            let here = match self.read(chunk)?.map(|bytes| decode_block(&bytes)) {
                Some(Ok(entries)) => Stretch::of(&entries),
                Some(Err(error)) => {
                    self.found_bad(chunk.container, error.to_string(), Some(range(chunk)));
                    Stretch::default()
                }
                None => Stretch::default(),
            };
            whole = Some(match whole.take() {
                None => here,
                Some(before) => {
                    if let Some(why) = here.wrong_behind(&before) {
                        self.found_bad(chunk.container, why, Some(range(chunk)));
                    }
                    before.and(here)
                }
            });
        }
        Ok(whole.unwrap_or_default())
    }

    /// Looks up chunks of missing containers, when there are at least this many. Chunks that the
    /// index does not know are lost.
    ///
    /// Segments of versions that follow one another have nearly the same chunks: each is looked up
    /// about once.
    pub(super) fn find_moved(&mut self, least: usize) -> Result<(), CheckError> {
        if self.moved_away.is_empty() || self.moved_away.len() < least {
            return Ok(());
        }
        self.moved_away.sort_unstable_by_key(|chunk| (chunk.fingerprint.0, chunk.container, chunk.offset));
        self.moved_away.dedup();
        if self.moved_away.len() < least / 2 {
            return Ok(());
        }
        let named = std::mem::take(&mut self.moved_away);
        let mut sought: Vec<_> = named.iter().zip(0..).map(|(chunk, at)| Sought::new(chunk, 0, at)).collect();
        let found = self.chunks.moved().resolve(&mut sought)?;
        let mut known = HashSet::new();
        for chunk in sought {
            let named = &named[chunk.at as usize];
            match chunk.place(&found) {
                // The container's table has it there: it was compared.
                Some((container, _)) => {
                    if self.found.len() < self.found_max {
                        self.found.insert(found_chunk(named));
                    }
                    if known.insert(container) {
                        self.is_there(container)?;
                        self.used.insert(container);
                        self.tables_checked.insert(container);
                    }
                }
                None => {
                    if self.is_there(named.container)? {
                        self.used.insert(named.container);
                    } else {
                        let why = "it is missing, and the index has no other place for its chunks";
                        self.found_bad(named.container, why, Some(range(named)));
                    }
                    self.record(named)?;
                }
            }
        }
        Ok(())
    }

    /// Sets records of the layout `lifecycle` to the present places of their chunks. Missing ones
    /// are lost.
    fn place(&mut self, records: &mut [ChunkRecord]) -> Result<(), CheckError> {
        let named: Vec<ChunkRef> = records.iter().map(|record| record.chunk).collect();
        loop {
            records.iter_mut().zip(&named).for_each(|(record, named)| record.chunk = *named);
            self.chunks.moved().place(records.iter_mut().map(|record| &mut record.chunk))?;
            let mut missing = Vec::new();
            for id in records.iter().map(|record| record.chunk.container) {
                if !missing.contains(&id) && !self.is_there(id)? {
                    missing.push(id);
                }
            }
            // It may have been moved since the index was read.
            if missing.is_empty() || !self.chunks.moved().learn(missing.iter().copied())? {
                break;
            }
        }
        let why = match self.chunks.moved().has_index() {
            true => "it is missing, and the index has no other place for its chunks",
            false => {
                "it is missing, and so is the index that says where its chunks are: `larder repair index` rebuilds it"
            }
        };
        for chunk in records.iter().map(|record| record.chunk) {
            match self.listed.contains_key(&chunk.container) {
                true => drop(self.used.insert(chunk.container)),
                false => self.found_bad(chunk.container, why, Some(range(&chunk))),
            }
        }
        Ok(())
    }

    /// Whether a container is there. It may be newer than the list.
    fn is_there(&mut self, id: ContainerId) -> Result<bool, CheckError> {
        if self.listed.contains_key(&id) || self.bad.contains_key(&id) {
            return Ok(self.listed.contains_key(&id));
        }
        let read = self.context.executor.block_on(self.context.repository.read_container_index(id));
        let bytes = match read {
            Ok(index) => index.object_len,
            Err(error) if is_missing(&error) => return Ok(false),
            Err(error) if error.is_unreadable() || error.is_foreign() => 0,
            Err(error) => return Err(error.into()),
        };
        Arc::make_mut(&mut self.listed).insert(id, bytes);
        Ok(true)
    }

    /// Compares a record with the table of its container.
    fn record(&mut self, chunk: &ChunkRef) -> Result<(), CheckError> {
        if let Some(index) = self.index(chunk.container)? {
            let place = index.starts.binary_search(&chunk.offset);
            let held = place.ok().map(|place| index.container.chunks[place]);
            if held.is_none_or(|held| held.fingerprint != chunk.fingerprint || held.size != chunk.size) {
                let why = "its table has another chunk where a recipe expects one";
                self.found_bad(chunk.container, why, Some(range(chunk)));
            }
        }
        Ok(())
    }

    /// A metadata chunk, or `None` after noting its damage.
    fn read(&mut self, chunk: &ChunkRef) -> Result<Option<bytes::Bytes>, CheckError> {
        match self.chunks.read(chunk) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_damage() => {
                self.found_bad(chunk.container, reason(&error), Some(range(chunk)));
                self.has_vanished(chunk.container, &error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A container's tables, if they were read before.
    fn known_index(&mut self, id: ContainerId) -> Option<Option<Arc<Index>>> {
        let known = self.tables.get(&id)?;
        if known.is_some() {
            self.tables_checked.insert(id);
        }
        Some(known)
    }

    /// A container's tables, or `None` after noting their damage.
    fn index(&mut self, id: ContainerId) -> Result<Option<Arc<Index>>, CheckError> {
        if let Some(known) = self.known_index(id) {
            return Ok(known);
        }
        let tables = self.tables.clone();
        let _turn = self.context.executor.block_on(tables.turn(&id));
        if let Some(known) = self.known_index(id) {
            return Ok(known);
        }
        let read = self.context.executor.block_on(self.context.repository.read_container_index(id));
        let index = match read {
            Ok(container) => {
                self.tables_checked.insert(id);
                Some(Index::of(container))
            }
            // A pass moved the chunks, and the key in use does not open its tables.
            Err(error) if error.is_foreign() => None,
            Err(error) if error.is_cold() => {
                self.cold.insert(id);
                None
            }
            Err(error) if error.is_damage() => {
                self.found_bad(id, reason(&error), None);
                self.has_vanished(id, &error);
                None
            }
            Err(error) => return Err(error.into()),
        };
        self.tables.put(id, index.clone());
        Ok(index)
    }
}

fn range(chunk: &ChunkRef) -> std::ops::Range<u32> {
    chunk.offset..chunk.offset.saturating_add(chunk.size)
}

/// The error without the object's name, which the report has anyway.
pub(super) fn reason(error: &RepositoryError) -> String {
    match error {
        RepositoryError::Damaged { source, .. } => source.to_string(),
        RepositoryError::Store(error) => error.kind.to_string(),
        other => other.to_string(),
    }
}

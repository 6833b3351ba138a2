//! Which chunks of containers that newest versions use are also in another such container. The
//! table of copies is joined with the table of chunks, up to three times. The search ends as soon
//! as no container is to be left. The result of the join is kept for the next times if there is
//! room. Otherwise the tables are joined again.
//!
//! The first time counts how much of each container has a copy in one with a higher number. A
//! container with many copies may be left. The second time counts how many of these copies are in
//! containers that stay. With too few, the container stays too. The third time chooses a place for
//! every chunk of the containers that may be left: the copy with the highest number that stays. So
//! all versions choose the same copy, and none returns to a container that it left.
//!
//! Memory is bounded: the containers that are examined are limited. The others follow when these
//! are gone. `gather` searches on, for duplicates that are scattered.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures::StreamExt;
use larder_format::ChunkRef;
use larder_format::ids::ContainerId;
use larder_format::index_manifest::Table;
use larder_format::index_tables::{ChunkKey, ChunkPlace, ContainerFacts, ContainerState};
use larder_index::{Chunks, Containers, Copies, IndexError, IndexIo, IndexSnapshot, LookupOptions, TableView};
use larder_job::JobContext;

use super::newest::Uses;
use crate::ingest::listing::{Groups, places};

/// Tables of containers that are read at once.
const CONCURRENT_READS: usize = 8;
/// Bytes that a chunk takes here, all in all.
const CHUNK_BYTES: usize = 128;
/// Of the memory for tables, one part in this number keeps the result of their join.
const KEPT_ONE_IN: usize = 4;

/// Duplicates in containers of newest versions.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    /// The index that has them.
    pub(super) index: u64,
    /// Of each container, how many bytes of its chunks are in which others.
    pub(super) shared: HashMap<ContainerId, Vec<(ContainerId, u64)>>,
    /// Retired containers that newest versions name. Their chunks are found through the index
    /// alone.
    pub(super) reclaimed: HashSet<ContainerId>,
    /// Whether there are more than memory can hold.
    pub(super) has_more: bool,
    /// Containers with scattered duplicates, those with most first: if all of them are left, their
    /// common chunks can be together.
    pub(super) gathering: Vec<ContainerId>,
    /// The common chunks of these.
    pub(super) common: HashSet<ChunkKey>,
    pub(super) places: HashMap<ChunkKey, Place>,
    others: Vec<(u32, ContainerId)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    other: u32,
    offset: u32,
}

impl Duplicates {
    /// The container that has another copy of a chunk.
    pub(super) fn elsewhere(&self, chunk: &ChunkRef) -> Option<ChunkRef> {
        let place = self.places.get(&ChunkKey::of(&chunk.fingerprint))?;
        let (_, container) = *self.others.get(place.other as usize)?;
        Some(ChunkRef { container, offset: place.offset, ..*chunk })
    }

    /// Forgets all redirects.
    pub(super) fn clear_redirects(&mut self) {
        self.shared.clear();
        self.places.clear();
        self.others.clear();
    }

    /// Whether several newest versions need a chunk that is gathered.
    pub(super) fn is_common(&self, chunk: &ChunkRef) -> bool {
        self.common.contains(&ChunkKey::of(&chunk.fingerprint))
    }

    /// The numbers of containers that chunks are redirected to.
    pub(super) fn numbers(&self) -> &[(u32, ContainerId)] {
        &self.others
    }
}

/// Whether a container was retired. That a manifest names it does not prove that its chunks are
/// there.
pub(super) fn is_retired(facts: &ContainerFacts) -> bool {
    facts.state != ContainerState::Live || facts.retired_chunks > 0 || !facts.forwards.is_empty()
}

/// A container that newest versions use.
pub(super) struct Used {
    pub(super) id: ContainerId,
    pub(super) chunks: u32,
    /// Bytes of all chunks.
    bytes: u64,
    /// Its chunks that such a container with a higher number has as well.
    losing: u32,
    pub(super) may_be_led_to: bool,
    pub(super) may_leave: bool,
    /// Newest versions outside of the part use it too, so it is not left for its duplicates.
    pub(super) is_elsewhere: bool,
}

impl Used {
    fn stays(&self) -> bool {
        self.may_be_led_to && !self.may_leave
    }

    /// Bytes of this number of its chunks, if all have the same size.
    pub(super) fn bytes_of(&self, chunks: u32) -> u64 {
        (u128::from(self.bytes) * u128::from(chunks) / u128::from(self.chunks.max(1))) as u64
    }

    /// Whether enough of it is elsewhere. Chunks differ in size: the share of bytes may be enough
    /// where the number of chunks is just below.
    fn is_worth(&self, percent: u8) -> bool {
        !self.is_elsewhere
            && self.losing > 0
            && u64::from(self.losing) * 200 >= u64::from(self.chunks) * u64::from(percent)
    }
}

/// The search in one index.
pub(super) struct Search<'a> {
    pub(super) context: &'a JobContext,
    pub(super) tables: Tables<'a>,
    pub(super) used: BTreeMap<u32, Used>,
    /// About how many bytes newest versions have twice or more, each first copy not counted.
    pub(super) excess_bytes: u64,
}

impl<'a> Search<'a> {
    /// Finds the containers of newest versions in the index.
    pub(super) fn begin(
        context: &'a JobContext,
        index: &'a IndexSnapshot,
        uses: &Uses,
    ) -> Result<(Self, Duplicates), IndexError> {
        let io = IndexIo { repository: context.repository.clone(), executor: context.executor.clone() };
        let mut tables = Tables { io, index, memory: context.memory / 4, numbers: Vec::new(), kept: None };
        let mut duplicates = Duplicates { index: index.number, ..Duplicates::default() };
        let used = tables.used(uses, &mut duplicates.reclaimed)?;
        tables.numbers = used.keys().copied().collect();
        Ok((Self { context, tables, used, excess_bytes: 0 }, duplicates))
    }

    /// The number of chunks that there is memory for.
    pub(super) fn chunks_max(&self) -> usize {
        self.tables.memory / CHUNK_BYTES
    }

    /// Finds duplicates. `leaving` are containers that are left in any case; others are left when
    /// at least `percent` of their chunks have copies elsewhere.
    pub(super) fn redirects(
        &mut self,
        leaving: &HashSet<ContainerId>,
        percent: u8,
        duplicates: &mut Duplicates,
    ) -> Result<(), IndexError> {
        if self.tables.index.runs_of(Table::Copies).is_empty() {
            return Ok(());
        }
        let chunks_max = self.chunks_max();
        let (tables, used) = (&mut self.tables, &mut self.used);
        tables.groups(|_, copies| {
            // What is used elsewhere stays in any case, so others are redirected to it.
            let stays = |number: &u32| used.get(number).is_some_and(|used| used.is_elsewhere && used.may_be_led_to);
            let numbers = copies.iter().map(|copy| copy.container);
            let Some(highest) = numbers.max_by_key(|number| (stays(number), *number)) else { return };
            for copy in copies.iter().filter(|copy| copy.container != highest) {
                if let Some(used) = used.get_mut(&copy.container) {
                    used.losing += 1;
                }
            }
        })?;
        self.excess_bytes = used.values().map(|used| used.bytes_of(used.losing)).sum();
        duplicates.has_more = choose(used, leaving, percent, chunks_max);
        if !used.values().any(|used| used.may_leave) {
            return Ok(());
        }
        used.values_mut().for_each(|used| used.losing = 0);
        tables.groups(|_, copies| {
            if copies.iter().any(|copy| used.get(&copy.container).is_some_and(Used::stays)) {
                for copy in copies {
                    if let Some(used) = used.get_mut(&copy.container) {
                        used.losing += u32::from(used.may_leave);
                    }
                }
            }
        })?;
        for used in used.values_mut() {
            used.may_leave &= leaving.contains(&used.id) || used.is_worth(percent);
        }
        if !used.values().any(|used| used.may_leave) {
            return Ok(());
        }
        let found = tables.redirect_targets(used)?;
        drop_into(self.context, used, found, duplicates)
    }
}

/// Marks containers that may be left, those with most copies elsewhere first, until the limit of
/// chunks. Returns whether some were not marked.
fn choose(used: &mut BTreeMap<u32, Used>, leaving: &HashSet<ContainerId>, percent: u8, chunks_max: usize) -> bool {
    let mut candidates: Vec<(u64, u32)> = Vec::new();
    for (number, used) in used.iter() {
        let is_left = leaving.contains(&used.id);
        if is_left || used.is_worth(percent) {
            let share = u64::from(used.losing) * 1_000_000 / u64::from(used.chunks.max(1));
            candidates.push((if is_left { u64::MAX } else { share }, *number));
        }
    }
    candidates.sort_unstable_by_key(|(share, number)| (std::cmp::Reverse(*share), *number));
    let mut chunks = 0usize;
    let mut has_more = false;
    for (_, number) in candidates {
        let Some(used) = used.get_mut(&number) else { continue };
        let next = chunks.saturating_add(used.chunks as usize);
        if next > chunks_max && chunks > 0 {
            has_more = true;
            // A container that is left in any case is no redirect target, even when it is copied
            // whole.
            used.may_be_led_to &= !leaving.contains(&used.id);
            continue;
        }
        chunks = next;
        used.may_leave = true;
    }
    has_more
}

pub(super) struct Tables<'a> {
    io: IndexIo,
    index: &'a IndexSnapshot,
    memory: usize,
    /// The numbers of containers that newest versions use, rising.
    numbers: Vec<u32>,
    /// The result of the join, if it was made and there was room.
    kept: Option<Kept>,
}

/// Chunks, each with its places.
#[derive(Default)]
struct Kept {
    /// Each with the end of its places.
    keys: Vec<(ChunkKey, usize)>,
    places: Vec<ChunkPlace>,
}

impl Kept {
    /// With one more chunk, if all of them fit into this number of bytes.
    fn with(mut self, key: ChunkKey, places: &[ChunkPlace], bytes_max: usize) -> Option<Self> {
        self.places.extend_from_slice(places);
        self.keys.push((key, self.places.len()));
        let bytes = self.keys.len() * size_of::<(ChunkKey, usize)>() + self.places.len() * size_of::<ChunkPlace>();
        (bytes <= bytes_max).then_some(self)
    }

    fn iter(&self) -> impl Iterator<Item = (ChunkKey, &[ChunkPlace])> {
        let starts = std::iter::once(0).chain(self.keys.iter().map(|(_, end)| *end));
        self.keys.iter().zip(starts).map(|((key, end), start)| (*key, &self.places[start..*end]))
    }
}

/// A chunk in containers that may be left, and its other places.
pub(super) struct Found {
    pub(super) key: ChunkKey,
    pub(super) winner: ChunkPlace,
    pub(super) losers: Vec<u32>,
}

impl Tables<'_> {
    /// The numbers of containers that newest versions use.
    fn used(&self, uses: &Uses, reclaimed: &mut HashSet<ContainerId>) -> Result<BTreeMap<u32, Used>, IndexError> {
        let table: TableView<Containers> =
            TableView::new(self.io.clone(), &self.index.manifest.runs, LookupOptions::default());
        // Of containers that a rebuilt index found, a delete may be under way that no index knows
        // (`RebuiltKeepsCopies`).
        let rebuilt = self.index.manifest.head.rebuilt.unwrap_or(0);
        let mut used = BTreeMap::new();
        for record in table.scan(0..=u64::MAX, self.memory) {
            let (number, Some(facts)) = record? else { continue };
            if uses.of(&facts.id).is_empty() {
                continue;
            }
            if is_retired(&facts) {
                reclaimed.insert(facts.id);
                continue;
            }
            let (id, chunks, bytes) = (facts.id, facts.chunks, facts.bytes);
            let (may_be_led_to, is_elsewhere) = (number >= rebuilt, uses.is_elsewhere(&facts.id));
            used.insert(number, Used { id, chunks, bytes, losing: 0, may_be_led_to, may_leave: false, is_elsewhere });
        }
        Ok(used)
    }

    /// All chunks that are in several of these containers, with their places there.
    pub(super) fn groups(&mut self, mut each: impl FnMut(ChunkKey, &[ChunkPlace])) -> Result<(), IndexError> {
        if let Some(kept) = &self.kept {
            kept.iter().for_each(|(key, places)| each(key, places));
            return Ok(());
        }
        let mut kept = Some(Kept::default());
        let runs = &self.index.manifest.runs;
        let copies: TableView<Copies> = TableView::new(self.io.clone(), runs, LookupOptions::default());
        let chunks: TableView<Chunks> =
            TableView::new(self.io.clone(), runs, LookupOptions::streaming(self.memory / 2));
        let mut all = Vec::new();
        let mut groups = Groups::new(copies.scan(0..=u64::MAX, self.memory / 2));
        chunks.join(&mut groups, self.memory / 2, |key, group, entry| {
            all.clear();
            for place in places(group.unwrap_or_default()) {
                all.push(place?);
            }
            all.extend(entry);
            all.retain(|place| self.numbers.binary_search(&place.container).is_ok());
            if all.len() > 1 {
                each(key, &all);
                kept = kept.take().and_then(|kept| kept.with(key, &all, self.memory / KEPT_ONE_IN));
            }
            Ok(())
        })?;
        self.kept = kept;
        Ok(())
    }

    /// The other places of chunks of containers that may be left.
    fn redirect_targets(&mut self, used: &BTreeMap<u32, Used>) -> Result<Vec<Found>, IndexError> {
        let mut found = Vec::new();
        self.groups(|key, copies| {
            let stays = |copy: &&ChunkPlace| used.get(&copy.container).is_some_and(Used::stays);
            let leaves = |copy: &&ChunkPlace| used.get(&copy.container).is_some_and(|used| used.may_leave);
            let Some(winner) = copies.iter().filter(stays).max_by_key(|copy| copy.container) else { return };
            let losers: Vec<u32> = copies.iter().filter(leaves).map(|copy| copy.container).collect();
            if !losers.is_empty() {
                found.push(Found { key, winner: *winner, losers });
            }
        })?;
        Ok(found)
    }
}

/// Looks up the numbers and sizes of the chunks in their containers. Nothing is redirected to a
/// container with an unreadable table.
pub(super) fn drop_into(
    context: &JobContext,
    used: &BTreeMap<u32, Used>,
    mut found: Vec<Found>,
    duplicates: &mut Duplicates,
) -> Result<(), IndexError> {
    found.sort_unstable_by_key(|found| found.winner);
    let groups: Vec<&[Found]> = found.chunk_by(|a, b| a.winner.container == b.winner.container).collect();
    let repository = &context.repository;
    let reads = groups.iter().filter_map(|group| {
        let number = group.first()?.winner.container;
        let id = used.get(&number)?.id;
        Some(async move { (number, id, *group, repository.read_container_index(id).await) })
    });
    let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
    let mut shared: HashMap<(u32, u32), u64> = HashMap::new();
    while let Some((number, id, group, table)) = context.executor.block_on(reads.next()) {
        let table = match table {
            Ok(table) => table,
            Err(error) if error.is_unreadable() => {
                tracing::warn!(%error, "a container cannot be read; nothing is redirected to it");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let chunks: Vec<ChunkRef> = table.chunk_refs().collect();
        let Ok(other) = u32::try_from(duplicates.others.len()) else { break };
        duplicates.others.push((number, id));
        for found in group {
            let Some(chunk) = chunks.get(found.winner.chunk as usize) else { continue };
            if ChunkKey::of(&chunk.fingerprint) != found.key {
                tracing::warn!(container = %id, "the index has another chunk at a place than there is");
                continue;
            }
            duplicates.places.insert(found.key, Place { other, offset: chunk.offset });
            for loser in &found.losers {
                *shared.entry((*loser, number)).or_default() += u64::from(chunk.size);
            }
        }
    }
    for ((loser, winner), bytes) in shared {
        if let (Some(loser), Some(winner)) = (used.get(&loser), used.get(&winner)) {
            duplicates.shared.entry(loser.id).or_default().push((winner.id, bytes));
        }
    }
    duplicates.shared.values_mut().for_each(|others| others.sort_unstable());
    Ok(())
}

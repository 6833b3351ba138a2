//! The new places of chunks whose containers are gone, although versions name them. They moved to
//! other containers of versions, or to containers that no version names. Only the lost index knew
//! these places. Here they are found again, by fingerprint.
//!
//! A container that is there may have been retired too, and its delete may be under way for as long
//! as a store likes. So all copies of a chunk stay as long as one of them is needed
//! (`RebuiltKeepsCopies`). Each container forwards to those with copies of its chunks, even though
//! it is there.

use std::collections::HashSet;

use futures::StreamExt;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::index_manifest::{ContainerList, LIST_MAX};
use larder_format::index_tables::{ChunkKey, ContainerState};
use larder_format::lease::Pin;
use larder_format::manifest::Register;
use larder_format::names;
use larder_format::run::{RecordLayout, ValueWidth};
use larder_index::{Containers, Cursor, Draft, IndexError, IndexPass, LookupOptions, Sorter};
use larder_job::JobContext;
use larder_reader::References;
use larder_spill::{Row, RowReader, RowSorter, RowWriter};
use larder_store::Repository;
use larder_store::presence::Presence;
use larder_store::rules::Rule;
use larder_store::survey::ListedContainer;

use crate::error::PassError;
use crate::ingest::Numbers;
use crate::known_versions::KnownVersions;
use crate::reclaim::ReclaimError;
use crate::reclaim::copies::{Marks, all};
use crate::spilled::spilled;

use super::container_names::{Named, Names};

/// Tables of containers that are read at once.
const CONCURRENT_READS: usize = 16;
/// Containers that are held and asked for at once.
const BATCH: usize = 4096;
/// Of the memory, one part in this number sorts where chunks of containers are too.
const FORWARDS_ONE_IN: usize = 16;
/// The number of these that are remembered, so that few are sorted twice.
const RECENT: usize = 4096;

/// Key of a chunk, and number of the container that is gone, big-endian.
const WANTED: RecordLayout = RecordLayout { key_len: 24, value: ValueWidth::Fixed(0) };
const KEY_LEN: usize = 20;

/// The containers to examine.
#[derive(Debug)]
pub(super) struct Search {
    /// Containers that versions name, and which of them are not there.
    names: Names,
    /// Numbers of those that are not there.
    gone: Numbers,
    /// Whether containers of the layout `lifecycle` are there. Their chunks are in no table.
    has_in_place: bool,
    /// Numbers of containers that no version names.
    unnamed: Numbers,
    /// Every generation that counts of every version.
    counting: Vec<(Pin, u32)>,
    /// Containers that no version names and that could not be read.
    unread: Unread,
}

/// Containers that could not be read: their number, and as many names as the index can have.
#[derive(Debug, Default)]
struct Unread {
    containers: usize,
    names: Vec<ContainerId>,
}

impl Unread {
    fn push(&mut self, id: ContainerId) {
        self.containers += 1;
        if self.containers <= LIST_MAX {
            self.names.push(id);
        }
    }
}

impl Search {
    /// Containers that versions name and that are not there.
    pub(super) fn gone(&self) -> impl Iterator<Item = Result<Named, IndexError>> {
        self.names.gone().map(|gone| gone.map_err(spilled))
    }

    /// The number of a container if it is one of those.
    pub(super) fn number_of_gone(&self, id: &ContainerId) -> Result<Option<u32>, IndexError> {
        let named = self.names.find(id).map_err(spilled)?;
        Ok(named.filter(Named::is_gone).map(|named| named.number))
    }

    /// Whether every container that no version names could be read.
    pub(super) fn is_complete(&self) -> bool {
        self.unread.containers == 0
    }

    /// Those that could not be read, which no pass may delete (`UnreadKept`). An error when they
    /// are more than the index can name.
    pub(super) fn unread(&self) -> Result<Option<ContainerList>, PassError> {
        match self.unread.containers {
            containers if containers > LIST_MAX => Err(PassError::TooMuchUnread { containers }),
            _ => Ok(ContainerList::of(self.unread.names.iter().copied())),
        }
    }

    /// The number of a container of which recipes tell the needed chunks: it is gone, or of the
    /// layout `lifecycle` while there are containers that no version names.
    fn wanted(&self, id: &ContainerId) -> Result<Option<u32>, IndexError> {
        let named = self.names.find(id).map_err(spilled)?;
        let is_wanted = |named: &Named| named.is_gone() || (named.is_arranged() && !self.unnamed.is_empty());
        Ok(named.filter(is_wanted).map(|named| named.number))
    }
}

/// The result.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Numbers of containers that are gone, with all their needed chunks found elsewhere.
    pub(super) reclaimed: Numbers,
    /// How many others are gone.
    pub(super) missing: u64,
    /// Chunks that were not found.
    pub(super) lost_chunks: u64,
    /// Containers that no version names and that are kept.
    pub(super) unnamed: u64,
    /// Whether every recipe could be read, so that all needed chunks are known.
    pub(super) is_complete: bool,
}

/// Finds which of the containers in the known versions are gone, and ingests those that no version
/// names. Those are containers that tasks wrote, and of backups whose version is forgotten or was
/// rewritten since chunks were redirected there. To be called when all versions are ingested.
pub(super) async fn look(
    repository: &Repository,
    known_versions: &mut KnownVersions,
    memory: usize,
) -> Result<Search, PassError> {
    let mut names = Names::new(&std::env::temp_dir(), memory);
    for container in known_versions.containers() {
        let (number, id, layout) = container?;
        names.name(Named::new(id, number, layout)).map_err(spilled)?;
    }
    list(repository, &mut names).await?;
    // No single answer makes a container count as gone. That holds for named ones, and for unnamed
    // ones that may have the chunks of those.
    if repository.keeps(Rule::AskedTwice) {
        let mut gone = names.gone();
        loop {
            let batch: Vec<ContainerId> = gone
                .by_ref()
                .take(BATCH)
                .map(|gone| gone.map(|gone| gone.id))
                .collect::<Result<_, _>>()
                .map_err(spilled)?;
            if batch.is_empty() {
                break;
            }
            let look = repository.look_for_containers(batch, |id, presence| match presence {
                Presence::Absent | Presence::Unreadable => Ok(()),
                Presence::Present => Err(PassError::WrongListing { name: names::container(id) }),
            });
            look.await?;
        }
        drop(gone);
        list(repository, &mut names).await?;
    }
    let counting = [known_versions.counting(), known_versions.counting_arranged()].concat();
    let (mut gone, mut has_in_place) = (Numbers::default(), false);
    for named in names.named() {
        let named = named.map_err(spilled)?;
        if named.is_gone() {
            gone.insert(named.number);
        } else {
            has_in_place |= named.is_arranged();
        }
    }
    let (mut unnamed, mut unread) = (Numbers::default(), Unread::default());
    let reads = names.unnamed().map(|id| async move {
        let id = id.map_err(spilled)?;
        Ok::<_, PassError>((id, repository.read_container_index(id).await))
    });
    let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
    while let Some(read) = reads.next().await {
        let (id, read) = read?;
        match read {
            Ok(index) => {
                let bytes = index.chunks.iter().map(|chunk| u64::from(chunk.size)).sum();
                let chunks = u32::try_from(index.chunks.len()).unwrap_or(u32::MAX);
                if let Some(number) = known_versions.ingest_unnamed(id, chunks, bytes, index.object_len)? {
                    unnamed.insert(number);
                }
            }
            Err(error) if error.is_unreadable() => {
                tracing::warn!(%error, "a container that no version names cannot be read");
                unread.push(id);
            }
            Err(error) => return Err(error.into()),
        }
    }
    drop(reads);
    Ok(Search { names, gone, has_in_place, unnamed, counting, unread })
}

/// Adds the names of all containers.
async fn list(repository: &Repository, names: &mut Names) -> Result<(), PassError> {
    let mut failed = Ok(());
    let note = |listed: ListedContainer, _| {
        if failed.is_ok() {
            failed = names.list(listed.id);
        }
    };
    repository.list_all_containers_timed(note).await?;
    failed.map_err(spilled)?;
    Ok(names.settle().map_err(spilled)?)
}

/// Finds the chunks, with those of all containers in the draft, and changes the records of
/// containers there.
pub(super) fn find(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    search: &Search,
    context: &JobContext,
) -> Result<Found, ReclaimError> {
    let (wanted, is_complete) = wanted(pass, search, &context.on(&pass.io.executor))?;
    let mut wanted = wanted.finish()?;
    let mut has_wanted = wanted.advance()?;
    let mut known = Numbers::default();
    let table = draft.view::<Containers>(LookupOptions::default());
    for record in table.scan(0..=u64::MAX, pass.memory / 4) {
        if let (number, Some(facts)) = record?
            && facts.id.kind == ContainerKind::Data
        {
            known.insert(number);
        }
    }
    let mut forwards = Forwards::new(pass);
    let mut lost = Lost::default();
    let mut nothing = Sorter::new(&pass.io.repository, WANTED, 0, &pass.folder)?.finish()?;
    all(pass, draft, Marks::Unneeded(&mut nothing), |group| {
        // A forward target was read, and is never gone.
        let is_there = |number: &u32| known.contains(*number) && !search.gone.contains(*number);
        let there: Vec<u32> = group.places().map(|place| place.container).filter(is_there).collect();
        while has_wanted && wanted.key()[..KEY_LEN] <= group.key.0[..] {
            let number = number_of(wanted.key());
            let is_it = wanted.key()[..KEY_LEN] == group.key.0[..];
            if !search.gone.contains(number) {
                // It is redirected only to containers that no version names.
                for copy in there.iter().filter(|copy| is_it && search.unnamed.contains(**copy)) {
                    forwards.push(search, number, *copy)?;
                }
            } else if is_it && !there.is_empty() {
                there.iter().try_for_each(|copy| forwards.push(search, number, *copy))?;
            } else {
                lost.note(number);
            }
            has_wanted = wanted.advance()?;
        }
        for number in there.iter().filter(|_| there.len() > 1) {
            let others = there.iter().filter(|other| *other != number);
            others.into_iter().try_for_each(|other| forwards.push(search, *number, *other))?;
        }
        Ok(())
    })?;
    while has_wanted {
        let number = number_of(wanted.key());
        if search.gone.contains(number) {
            lost.note(number);
        }
        has_wanted = wanted.advance()?;
    }
    let found = change_records(pass, draft, search, forwards, &lost)?;
    Ok(Found { is_complete, ..found })
}

/// Chunks that were not found.
#[derive(Debug, Default)]
struct Lost {
    chunks: u64,
    /// Numbers of their containers.
    containers: Numbers,
}

impl Lost {
    fn note(&mut self, container: u32) {
        self.chunks += 1;
        self.containers.insert(container);
    }
}

/// A container and another one that has chunks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Forward {
    from: u32,
    to: u32,
}

impl Row for Forward {
    const BYTES: usize = 2 * size_of::<u32>();

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.u32(self.from);
        row.u32(self.to);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self { from: row.u32(), to: row.u32() }
    }
}

/// Where chunks of containers are too. Containers that no version names are kept for those that
/// versions name, and forward nowhere.
struct Forwards {
    sorter: RowSorter<Forward>,
    /// The last ones: those of neighbouring chunks are mostly the same.
    recent: HashSet<Forward>,
    /// The containers that something forwards to.
    kept: Numbers,
}

impl Forwards {
    fn new(pass: &IndexPass) -> Self {
        let sorter = RowSorter::new(pass.memory / FORWARDS_ONE_IN, pass.folder.clone());
        Self { sorter, recent: HashSet::new(), kept: Numbers::default() }
    }

    fn push(&mut self, search: &Search, from: u32, to: u32) -> Result<(), IndexError> {
        if search.unnamed.contains(from) || !self.recent.insert(Forward { from, to }) {
            return Ok(());
        }
        if self.recent.len() > RECENT {
            self.recent.clear();
        }
        self.kept.insert(to);
        self.sorter.push(Forward { from, to }).map_err(spilled)
    }
}

fn number_of(key: &[u8]) -> u32 {
    key.last_chunk().map_or(0, |number| u32::from_be_bytes(*number))
}

/// The chunks of missing containers that versions need, and whether these are all.
fn wanted(pass: &IndexPass, search: &Search, context: &JobContext) -> Result<(Sorter, bool), ReclaimError> {
    let mut wanted = Sorter::new(&pass.io.repository, WANTED, pass.memory / 2, &pass.folder)?;
    let mut is_complete = true;
    let has_in_place = search.has_in_place && !search.unnamed.is_empty();
    if search.gone.is_empty() && !has_in_place {
        return Ok((wanted, is_complete));
    }
    // Most chunks are of the same container as the one before.
    let mut last: Option<(ContainerId, Option<u32>)> = None;
    let mut number_of = |id: &ContainerId| match last {
        Some((last, number)) if last == *id => Ok(number),
        _ => {
            let number = search.wanted(id)?;
            last = Some((*id, number));
            Ok::<_, IndexError>(number)
        }
    };
    let mut references = References::new(context);
    for (version, generation) in &search.counting {
        let read = context.executor.block_on(pass.io.repository.read_register(*version, *generation))?;
        let Some(Register::Committed(manifest)) = read else { continue };
        let mut has_wanted = false;
        for usage in &manifest.containers {
            has_wanted = has_wanted || number_of(&usage.container)?.is_some();
        }
        if !has_wanted {
            continue;
        }
        let walked = references.visit(&manifest.data, |chunk| {
            let Some(number) = number_of(&chunk.container)? else { return Ok(()) };
            let mut key = [0; KEY_LEN + 4];
            key[..KEY_LEN].copy_from_slice(&ChunkKey::of(&chunk.fingerprint).0);
            key[KEY_LEN..].copy_from_slice(&number.to_be_bytes());
            Ok::<_, ReclaimError>(wanted.push(&key, Some(&[]))?)
        });
        match walked {
            // Its other references are unknown; the known ones are kept.
            Err(ReclaimError::Index(error)) if error.is_damage() => {
                tracing::warn!(%error, "a recipe cannot be read whole; what it needs may not be found");
                is_complete = false;
            }
            walked => walked?,
        }
    }
    Ok((wanted, is_complete))
}

fn change_records(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    search: &Search,
    forwards: Forwards,
    lost: &Lost,
) -> Result<Found, IndexError> {
    let mut found = Found { lost_chunks: lost.chunks, ..Found::default() };
    let Forwards { sorter, kept, .. } = forwards;
    let mut forwards = sorter.sorted().map_err(spilled)?.peekable();
    let mut changes = pass.changes::<Containers>()?;
    let table = draft.view::<Containers>(LookupOptions::default());
    for record in table.scan(0..=u64::MAX, pass.memory / 4) {
        let (number, facts) = record?;
        let mut others: Vec<u32> = Vec::new();
        while let Some(forward) = forwards.next_if(|row| row.as_ref().map_or(true, |row| row.from <= number)) {
            let forward = forward.map_err(spilled)?;
            if forward.from == number && others.last() != Some(&forward.to) {
                others.push(forward.to);
            }
        }
        let Some(mut facts) = facts else { continue };
        if search.unnamed.contains(number) {
            if kept.contains(number) {
                found.unnamed += 1;
            } else {
                changes.remove(&number)?;
            }
            continue;
        }
        if others.is_empty() {
            continue;
        }
        facts.forwards = others;
        if search.gone.contains(number) && !lost.containers.contains(number) {
            facts.state = ContainerState::Gone;
            (facts.retired_chunks, facts.retired_bytes) = (facts.chunks, facts.bytes);
            found.reclaimed.insert(number);
        }
        changes.put(&number, &facts)?;
    }
    draft.apply(changes)?;
    found.missing = search.gone.len() - found.reclaimed.len();
    Ok(found)
}

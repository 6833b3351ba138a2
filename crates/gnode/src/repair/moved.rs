//! The new places of chunks whose containers are gone, although versions name them. They moved to
//! other containers of versions, or to containers that no version names. Only the lost index knew
//! these places. Here they are found again, by fingerprint.
//!
//! A container that is there may have been retired too, and its delete may be under way for as long
//! as a store likes. So all copies of a chunk stay as long as one of them is needed
//! (`RebuiltKeepsCopies`). Each container forwards to those with copies of its chunks, even though
//! it is there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures::StreamExt;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::index_manifest::ContainerList;
use larder_format::index_tables::{ChunkKey, ContainerState};
use larder_format::layout::Layout;
use larder_format::lease::Pin;
use larder_format::manifest::Register;
use larder_format::names;
use larder_format::run::{RecordLayout, ValueWidth};
use larder_index::{Containers, Cursor, Draft, IndexError, IndexPass, LookupOptions, Sorter};
use larder_job::JobContext;
use larder_reader::References;
use larder_store::Repository;
use larder_store::presence::Presence;
use larder_store::rules::Rule;

use crate::error::PassError;
use crate::ingest::Numbers;
use crate::known_versions::KnownVersions;
use crate::reclaim::ReclaimError;
use crate::reclaim::copies::{Marks, all};

/// Tables of containers that are read at once.
const CONCURRENT_READS: usize = 16;

/// Key of a chunk, and number of the container that is gone, big-endian.
const WANTED: RecordLayout = RecordLayout { key_len: 24, value: ValueWidth::Fixed(0) };
const KEY_LEN: usize = 20;

/// The containers to examine.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Containers that versions name and that are not there, with their numbers.
    gone: HashMap<ContainerId, u32>,
    /// Containers of the layout `lifecycle` that versions name and that are there, with their
    /// numbers. Their chunks are in no table.
    in_place: HashMap<ContainerId, u32>,
    /// Numbers of containers that no version names.
    unnamed: BTreeSet<u32>,
    /// Every generation that counts of every version.
    counting: Vec<(Pin, u32)>,
    /// Those that are gone and have the layout `lifecycle`.
    arranged_gone: HashSet<ContainerId>,
    /// Containers that no version names and that could not be read.
    unread: Vec<ContainerId>,
}

impl Search {
    /// Containers that versions name and that are not there.
    pub(super) fn gone(&self) -> impl Iterator<Item = ContainerId> {
        self.gone.keys().copied()
    }

    /// Those of them whose tables are not read in any case.
    pub(super) fn arranged_gone(&self) -> impl Iterator<Item = ContainerId> {
        self.arranged_gone.iter().copied()
    }

    /// Whether every container that no version names could be read.
    pub(super) fn is_complete(&self) -> bool {
        self.unread.is_empty()
    }

    /// Those that could not be read, which no pass may delete (`UnreadKept`). An error when they
    /// are more than the index can name.
    pub(super) fn unread(&self) -> Result<Option<ContainerList>, PassError> {
        match (self.unread.first(), ContainerList::of(self.unread.iter().copied())) {
            (Some(_), None) => Err(PassError::TooMuchUnread { containers: self.unread.len() }),
            (_, unread) => Ok(unread),
        }
    }
}

/// The result.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Containers that are gone, with all their needed chunks found elsewhere.
    pub(super) reclaimed: HashSet<ContainerId>,
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
pub(super) async fn look(repository: &Repository, known_versions: &mut KnownVersions) -> Result<Search, PassError> {
    let (mut named, mut arranged): (HashMap<ContainerId, u32>, Vec<(ContainerId, u32)>) = Default::default();
    for container in known_versions.containers() {
        let (number, id, layout) = container?;
        named.insert(id, number);
        if layout == Layout::Lifecycle {
            arranged.push((id, number));
        }
    }
    let mut listed = list(repository).await?;
    let is_data = |id: &ContainerId| id.kind == ContainerKind::Data;
    let is_gone = |id: &ContainerId, listed: &HashSet<ContainerId>| is_data(id) && !listed.contains(id);
    let gone: BTreeSet<ContainerId> = named.keys().filter(|id| is_gone(id, &listed)).copied().collect();
    // No single answer makes a container count as gone. That holds for named ones, and for unnamed
    // ones that may have the chunks of those.
    if repository.keeps(Rule::AskedTwice) {
        let look = repository.look_for_containers(gone, |id, presence| match presence {
            Presence::Absent | Presence::Unreadable => Ok(()),
            Presence::Present => Err(PassError::WrongListing { name: names::container(id) }),
        });
        look.await?;
        listed.extend(list(repository).await?);
    }
    let gone: HashMap<ContainerId, u32> =
        named.iter().filter(|(id, _)| is_gone(id, &listed)).map(|(id, number)| (*id, *number)).collect();
    let counting = [known_versions.counting(), known_versions.counting_arranged()].concat();
    let in_place = arranged.iter().filter(|(id, _)| listed.contains(id)).copied().collect();
    let arranged_gone = arranged.into_iter().map(|(id, _)| id).filter(|id| gone.contains_key(id)).collect();
    let mut search = Search { gone, in_place, counting, arranged_gone, ..Search::default() };
    let is_unnamed = |id: &ContainerId| is_data(id) && !named.contains_key(id);
    let mut unnamed: Vec<ContainerId> = listed.into_iter().filter(is_unnamed).collect();
    unnamed.sort_unstable();
    let reads = unnamed.into_iter().map(|id| async move { (id, repository.read_container_index(id).await) });
    let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
    while let Some((id, read)) = reads.next().await {
        match read {
            Ok(index) => {
                let bytes = index.chunks.iter().map(|chunk| u64::from(chunk.size)).sum();
                let chunks = u32::try_from(index.chunks.len()).unwrap_or(u32::MAX);
                search.unnamed.extend(known_versions.ingest_unnamed(id, chunks, bytes, index.object_len)?);
            }
            Err(error) if error.is_unreadable() => {
                tracing::warn!(%error, "a container that no version names cannot be read");
                search.unread.push(id);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(search)
}

/// The names of all containers.
async fn list(repository: &Repository) -> Result<HashSet<ContainerId>, PassError> {
    Ok(repository.list_containers().await?.into_iter().map(|listed| listed.id).collect())
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
    let mut forwards: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut lost: BTreeMap<u32, u64> = BTreeMap::new();
    let gone: HashSet<u32> = search.gone.values().copied().collect();
    let mut nothing = Sorter::new(&pass.io.repository, WANTED, 0, &pass.folder)?.finish()?;
    all(pass, draft, Marks::Unneeded(&mut nothing), |group| {
        // A forward target was read, and is never gone.
        let is_there = |number: &u32| known.contains(*number) && !gone.contains(number);
        let there: Vec<u32> = group.places().map(|place| place.container).filter(is_there).collect();
        while has_wanted && wanted.key()[..KEY_LEN] <= group.key.0[..] {
            let number = number_of(wanted.key());
            let is_it = wanted.key()[..KEY_LEN] == group.key.0[..];
            if !gone.contains(&number) {
                // It is redirected only to containers that no version names.
                let mut copies = there.iter().filter(|copy| is_it && search.unnamed.contains(copy)).peekable();
                if copies.peek().is_some() {
                    forwards.entry(number).or_default().extend(copies);
                }
            } else if is_it && !there.is_empty() {
                forwards.entry(number).or_default().extend(&there);
            } else {
                *lost.entry(number).or_default() += 1;
            }
            has_wanted = wanted.advance()?;
        }
        for number in there.iter().filter(|_| there.len() > 1) {
            forwards.entry(*number).or_default().extend(there.iter().filter(|other| *other != number));
        }
        Ok(())
    })?;
    while has_wanted {
        let number = number_of(wanted.key());
        if gone.contains(&number) {
            *lost.entry(number).or_default() += 1;
        }
        has_wanted = wanted.advance()?;
    }
    let found = change_records(pass, draft, search, forwards, &lost)?;
    Ok(Found { is_complete, ..found })
}

fn number_of(key: &[u8]) -> u32 {
    key.last_chunk().map_or(0, |number| u32::from_be_bytes(*number))
}

/// The chunks of missing containers that versions need, and whether these are all.
fn wanted(pass: &IndexPass, search: &Search, context: &JobContext) -> Result<(Sorter, bool), ReclaimError> {
    let mut wanted = Sorter::new(&pass.io.repository, WANTED, pass.memory / 2, &pass.folder)?;
    let mut is_complete = true;
    let in_place = if search.unnamed.is_empty() { &HashMap::new() } else { &search.in_place };
    if search.gone.is_empty() && in_place.is_empty() {
        return Ok((wanted, is_complete));
    }
    let number_of = |id: &ContainerId| search.gone.get(id).or_else(|| in_place.get(id));
    let mut references = References::new(context);
    for (version, generation) in &search.counting {
        let read = context.executor.block_on(pass.io.repository.read_register(*version, *generation))?;
        let Some(Register::Committed(manifest)) = read else { continue };
        if !manifest.containers.iter().any(|usage| number_of(&usage.container).is_some()) {
            continue;
        }
        let walked = references.visit(&manifest.data, |chunk| {
            let Some(number) = number_of(&chunk.container) else { return Ok(()) };
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
    mut forwards: BTreeMap<u32, BTreeSet<u32>>,
    lost: &BTreeMap<u32, u64>,
) -> Result<Found, IndexError> {
    let mut found = Found { lost_chunks: lost.values().sum(), ..Found::default() };
    // Containers that no version names are kept for those that versions name; these are kept by
    // their users.
    forwards.retain(|number, _| !search.unnamed.contains(number));
    let kept: BTreeSet<u32> = forwards.values().flatten().copied().collect();
    let mut changes = pass.changes::<Containers>()?;
    let table = draft.view::<Containers>(LookupOptions::default());
    for record in table.scan(0..=u64::MAX, pass.memory / 4) {
        let (number, Some(mut facts)) = record? else { continue };
        if search.unnamed.contains(&number) {
            if kept.contains(&number) {
                found.unnamed += 1;
            } else {
                changes.remove(&number)?;
            }
            continue;
        }
        let Some(others) = forwards.get(&number) else { continue };
        facts.forwards = others.iter().copied().collect();
        if search.gone.contains_key(&facts.id) && !lost.contains_key(&number) {
            facts.state = ContainerState::Gone;
            (facts.retired_chunks, facts.retired_bytes) = (facts.chunks, facts.bytes);
            found.reclaimed.insert(facts.id);
        }
        changes.put(&number, &facts)?;
    }
    draft.apply(changes)?;
    found.missing = (search.gone.len() - found.reclaimed.len()) as u64;
    Ok(found)
}

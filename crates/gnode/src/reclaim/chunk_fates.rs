//! The fates of chunks in a container that is retired, if they are listed more than once or are not
//! needed. A fate says where the chunk is found afterwards, and what changes in the tables of
//! chunks. All other chunks in these containers have no other copy, so they are copied.

use larder_format::index_tables::{ChunkPlace, CopyKey};
use larder_format::run::{RecordLayout, ValueWidth};
use larder_index::{Changes, Chunks, Copies, Cursor, Draft, IndexError, IndexPass, Sorted, Sorter};
use larder_store::rules::Rule;

use super::copies::{Group, Marks, all, duplicates};
use super::eligibility::Eligibility;
use super::select::Selection;

/// By container and number in it, both big-endian: 8 bytes with the fate of the chunk there.
const VERDICTS: RecordLayout = RecordLayout { key_len: 8, value: ValueWidth::Fixed(8) };

/// Used in the place of a chunk number.
const FOLLOWS: u32 = u32::MAX;
/// Used in the place of a container number.
const DROPPED: u32 = u32::MAX;

/// The fate of a chunk. Without a fate it is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkFate {
    /// It is found here.
    Redirect(ChunkPlace),
    /// Another container that is retired has it too, and it is copied from there.
    MovedWith(u32),
    /// It is not needed.
    Drop,
}

impl ChunkFate {
    fn encode(self) -> [u8; 8] {
        match self {
            Self::Redirect(place) => place,
            Self::MovedWith(container) => ChunkPlace { container, chunk: FOLLOWS },
            Self::Drop => ChunkPlace { container: DROPPED, chunk: FOLLOWS },
        }
        .encode()
    }

    fn of(place: ChunkPlace) -> Self {
        match place {
            ChunkPlace { container: DROPPED, .. } => Self::Drop,
            ChunkPlace { container, chunk: FOLLOWS } => Self::MovedWith(container),
            place => Self::Redirect(place),
        }
    }
}

/// The changes in the tables of chunks before new containers are listed.
pub(super) struct TableChanges {
    pub(super) chunks: Changes<Chunks>,
    pub(super) copies: Changes<Copies>,
    /// Places that are not needed.
    pub(super) dropped: u64,
    /// Chunks that are not listed any more.
    pub(super) forgotten: u64,
}

/// ChunkFates in the order of containers and of chunks in them.
pub(super) struct ChunkFates {
    sorted: Sorted,
    has_current: bool,
}

impl ChunkFates {
    /// The fate on a chunk. To be asked in rising order.
    pub(super) fn on(&mut self, place: ChunkPlace) -> Result<Option<ChunkFate>, IndexError> {
        let key = key_of(place);
        while self.has_current && self.sorted.key() < key.as_slice() {
            self.has_current = self.sorted.advance()?;
        }
        if !self.has_current || self.sorted.key() != key {
            return Ok(None);
        }
        let place = self.sorted.value().map(ChunkPlace::decode).transpose();
        let wrong = |source| IndexError::SpillDamaged { source };
        Ok(place.map_err(wrong)?.map(ChunkFate::of))
    }
}

fn key_of(place: ChunkPlace) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&place.container.to_be_bytes());
    key[4..].copy_from_slice(&place.chunk.to_be_bytes());
    key
}

/// Decides on all of them.
///
/// If some of the selection are [put off](Selection::put_off), they have the highest numbers. Then
/// the fates of the others are the same as when all were to go. A chunk that several have is copied
/// from the lowest. A container that is put off is no redirect target, as before.
pub(super) fn chunk_fates(
    pass: &IndexPass,
    draft: &Draft<'_>,
    eligibility: &Eligibility,
    selection: &mut Selection,
) -> Result<(ChunkFates, TableChanges), IndexError> {
    let mut unneeded = selection.unneeded.take();
    let mut deciding = Deciding {
        eligibility,
        selection,
        leads_to_gone: !pass.io.repository.keeps(Rule::NotToRetired),
        chunk_fates: Sorter::new(&pass.io.repository, VERDICTS, pass.memory / 8, &pass.folder)?,
        changes: TableChanges {
            chunks: Changes::new(&pass.io, pass.memory / 8, &pass.folder)?,
            copies: Changes::new(&pass.io, pass.memory / 8, &pass.folder)?,
            dropped: 0,
            forgotten: 0,
        },
    };
    match &mut unneeded {
        Some(unneeded) => all(pass, draft, Marks::Unneeded(unneeded), |group| deciding.decide(&group))?,
        None => duplicates(pass, draft, |group| deciding.decide(&group))?,
    }
    let Deciding { chunk_fates, changes, .. } = deciding;
    selection.unneeded = unneeded.map(Sorted::rewound);
    let mut sorted = chunk_fates.finish()?;
    let has_current = sorted.advance()?;
    Ok((ChunkFates { sorted, has_current }, changes))
}

struct Deciding<'a> {
    eligibility: &'a Eligibility,
    selection: &'a Selection,
    /// Not `NotToRetired`.
    leads_to_gone: bool,
    chunk_fates: Sorter,
    changes: TableChanges,
}

impl Deciding<'_> {
    fn decide(&mut self, group: &Group<'_>) -> Result<(), IndexError> {
        let (eligibility, selection) = (self.eligibility, self.selection);
        let goes = |place: &ChunkPlace| selection.containers.contains_key(&place.container);
        let stays = |place: &ChunkPlace| eligibility.known.contains(place.container) && !goes(place);
        let Some(first) = group.places().filter(goes).min() else { return Ok(()) };
        let entry_stays = group.entry.is_some_and(|entry| stays(&entry));
        let is_put_off = |place: &ChunkPlace| selection.put_off.contains(&place.container);
        let relied_on = |place: &ChunkPlace| {
            (stays(place) || self.leads_to_gone)
                && !is_put_off(place)
                && eligibility.redirect_targets.contains(place.container)
        };
        // Lookups keep their place if it may stay. Otherwise a copy that stays longest replaces it.
        let winner = match group.entry.filter(|entry| relied_on(entry)) {
            None => {
                let others = group.copies.iter().copied().filter(|place| relied_on(place));
                others.max_by_key(|place| (eligibility.newest_targets.contains(place.container), place.container))
            }
            entry => entry,
        };
        let any = || group.copies.iter().copied().find(stays);
        let new_entry = match (group.is_needed, winner) {
            (true, Some(winner)) => Some(winner),
            // The new copy becomes the entry.
            (true, None) => None,
            (false, _) if entry_stays => group.entry,
            (false, winner) => winner.or_else(any),
        };
        for place in group.places().filter(goes) {
            let fate = match (group.is_needed, winner) {
                (true, Some(winner)) => ChunkFate::Redirect(winner),
                (true, None) if place == first => continue,
                (true, None) => ChunkFate::MovedWith(first.container),
                (false, _) => ChunkFate::Drop,
            };
            self.changes.dropped += u64::from(fate == ChunkFate::Drop);
            self.chunk_fates.push(&key_of(place), Some(&fate.encode()))?;
        }
        self.change_tables(group, new_entry, entry_stays)
    }

    fn change_tables(
        &mut self,
        group: &Group<'_>,
        new_entry: Option<ChunkPlace>,
        entry_stays: bool,
    ) -> Result<(), IndexError> {
        let selection = self.selection;
        let goes = |place: &ChunkPlace| selection.containers.contains_key(&place.container);
        let copy = |place: &ChunkPlace| CopyKey { chunk: group.key, container: place.container };
        for place in group.copies.iter().filter(|place| goes(place) || Some(**place) == new_entry) {
            self.changes.copies.remove(&copy(place))?;
        }
        if new_entry == group.entry {
            return Ok(());
        }
        if let Some(entry) = group.entry.filter(|_| entry_stays) {
            self.changes.copies.put(&copy(&entry), &entry.chunk)?;
        }
        match new_entry {
            Some(entry) => self.changes.chunks.put(&group.key, &entry)?,
            None => {
                self.changes.chunks.remove(&group.key)?;
                self.changes.forgotten += u64::from(!group.is_needed);
            }
        }
        Ok(())
    }
}

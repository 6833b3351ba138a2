//! Of each chunk that is listed more than once, or that nobody needs, in a container that is given up: where it is found from then
//! on, and what changes in the tables of chunks. Of all other chunks in these containers the copy there is the only one, and a new
//! one has to be made.

use larder_format::index_tables::{ChunkPlace, CopyKey};
use larder_format::run::{RecordLayout, ValueWidth};
use larder_index::{Changes, Chunks, Copies, Cursor, Draft, IndexError, IndexPass, Sorted, Sorter};
use larder_store::rules::Rule;

use super::choose::Chosen;
use super::groups::{Group, Marks, all, duplicates};
use super::standing::Standing;

/// By container and number in it, both big-endian: 8 bytes that say what becomes of the chunk there.
const VERDICTS: RecordLayout = RecordLayout { key_len: 8, value: ValueWidth::Fixed(8) };

/// Stands in the place of a chunk number.
const FOLLOWS: u32 = u32::MAX;
/// Stands in the place of a container number.
const DROPPED: u32 = u32::MAX;

/// What becomes of a chunk. Without a verdict it is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is found here.
    Led(ChunkPlace),
    /// Another container that is given up has it too, and it is copied from there.
    Follows(u32),
    /// Nobody needs it.
    Dropped,
}

impl Verdict {
    fn encode(self) -> [u8; 8] {
        match self {
            Self::Led(place) => place,
            Self::Follows(container) => ChunkPlace { container, chunk: FOLLOWS },
            Self::Dropped => ChunkPlace { container: DROPPED, chunk: FOLLOWS },
        }
        .encode()
    }

    fn of(place: ChunkPlace) -> Self {
        match place {
            ChunkPlace { container: DROPPED, .. } => Self::Dropped,
            ChunkPlace { container, chunk: FOLLOWS } => Self::Follows(container),
            place => Self::Led(place),
        }
    }
}

/// What changes in the tables of chunks before new containers are listed.
pub(super) struct TableChanges {
    pub(super) chunks: Changes<Chunks>,
    pub(super) copies: Changes<Copies>,
    /// Places that are not needed.
    pub(super) dropped: u64,
    /// Chunks that are not listed any more.
    pub(super) forgotten: u64,
}

/// Verdicts in the order of containers and of chunks in them.
pub(super) struct Verdicts {
    sorted: Sorted,
    has_current: bool,
}

impl Verdicts {
    /// The verdict on a chunk. To be asked in rising order.
    pub(super) fn on(&mut self, place: ChunkPlace) -> Result<Option<Verdict>, IndexError> {
        let key = key_of(place);
        while self.has_current && self.sorted.key() < key.as_slice() {
            self.has_current = self.sorted.advance()?;
        }
        if !self.has_current || self.sorted.key() != key {
            return Ok(None);
        }
        let place = self.sorted.value().map(ChunkPlace::decode).transpose();
        let wrong = |source| IndexError::SpillDamaged { source };
        Ok(place.map_err(wrong)?.map(Verdict::of))
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
/// When some of the chosen are [put off](Chosen::put_off), and these have the highest numbers, it decides on the others what it did
/// when all were to go: of several that have a chunk it is copied from the lowest, and what is put off is no more led to than before.
pub(super) fn verdicts(
    pass: &IndexPass,
    draft: &Draft<'_>,
    standing: &Standing,
    chosen: &mut Chosen,
) -> Result<(Verdicts, TableChanges), IndexError> {
    let mut unneeded = chosen.unneeded.take();
    let mut deciding = Deciding {
        standing,
        chosen,
        leads_to_gone: !pass.io.repository.keeps(Rule::NotToGivenUp),
        verdicts: Sorter::new(&pass.io.repository, VERDICTS, pass.memory / 8, &pass.folder)?,
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
    let Deciding { verdicts, changes, .. } = deciding;
    chosen.unneeded = unneeded.map(Sorted::rewound);
    let mut sorted = verdicts.finish()?;
    let has_current = sorted.advance()?;
    Ok((Verdicts { sorted, has_current }, changes))
}

struct Deciding<'a> {
    standing: &'a Standing,
    chosen: &'a Chosen,
    /// Not `NotToGivenUp`.
    leads_to_gone: bool,
    verdicts: Sorter,
    changes: TableChanges,
}

impl Deciding<'_> {
    fn decide(&mut self, group: &Group<'_>) -> Result<(), IndexError> {
        let (standing, chosen) = (self.standing, self.chosen);
        let goes = |place: &ChunkPlace| chosen.containers.contains_key(&place.container);
        let stays = |place: &ChunkPlace| standing.known.contains(place.container) && !goes(place);
        let Some(first) = group.places().filter(goes).min() else { return Ok(()) };
        let entry_stays = group.entry.is_some_and(|entry| stays(&entry));
        let is_put_off = |place: &ChunkPlace| chosen.put_off.contains(&place.container);
        let relied_on = |place: &ChunkPlace| {
            (stays(place) || self.leads_to_gone) && !is_put_off(place) && standing.winners.contains(place.container)
        };
        // What lookups find stays what it is if it may; else what stays longest.
        let winner = match group.entry.filter(|entry| relied_on(entry)) {
            None => {
                let others = group.copies.iter().copied().filter(|place| relied_on(place));
                others.max_by_key(|place| (standing.preferred.contains(place.container), place.container))
            }
            entry => entry,
        };
        let any = || group.copies.iter().copied().find(stays);
        let new_entry = match (group.is_needed, winner) {
            (true, Some(winner)) => Some(winner),
            // The copy that is made becomes the entry.
            (true, None) => None,
            (false, _) if entry_stays => group.entry,
            (false, winner) => winner.or_else(any),
        };
        for place in group.places().filter(goes) {
            let verdict = match (group.is_needed, winner) {
                (true, Some(winner)) => Verdict::Led(winner),
                (true, None) if place == first => continue,
                (true, None) => Verdict::Follows(first.container),
                (false, _) => Verdict::Dropped,
            };
            self.changes.dropped += u64::from(verdict == Verdict::Dropped);
            self.verdicts.push(&key_of(place), Some(&verdict.encode()))?;
        }
        self.change_tables(group, new_entry, entry_stays)
    }

    fn change_tables(
        &mut self,
        group: &Group<'_>,
        new_entry: Option<ChunkPlace>,
        entry_stays: bool,
    ) -> Result<(), IndexError> {
        let chosen = self.chosen;
        let goes = |place: &ChunkPlace| chosen.containers.contains_key(&place.container);
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

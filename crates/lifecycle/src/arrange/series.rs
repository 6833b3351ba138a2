//! The index's knowledge of one series: its data containers, and the extents of all names.
//!
//! A series may have more containers than fit into memory. So its containers are sorted by name,
//! within a share of the memory of the pass, and read one after the other.

use larder_format::DecodeError;
use larder_format::extents::{Extent, Extents, decode_key, encode_key};
use larder_format::ids::{ContainerId, ContainerKind, SeriesKey};
use larder_format::index_manifest::Table;
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_format::layout::Layout;
use larder_format::run::{RecordLayout, ValueWidth};
use larder_index::{
    ContainerExtents, Containers, Cursor, Draft, IndexError, IndexPass, LookupOptions, Sorted, Sorter, TableView,
    TypedTable,
};
use larder_store::rules::Rule;

use super::ContainerRetention;
use super::needs_rebuild::needs_rebuild;

/// Records of extents that are looked up at once.
const BATCH: usize = 256;

/// Of the memory of the pass for tables, one part in this number holds the containers.
const MEMBERS_ONE_IN: usize = 8;
/// And one part in this number is for looking up their extents.
const LOOKUPS_ONE_IN: usize = 8;
/// And one part in this number holds their order by category.
const CATEGORIES_ONE_IN: usize = 8;

/// Name, number, marks; the facts, or nothing.
const MEMBERS: RecordLayout = RecordLayout { key_len: 26, value: ValueWidth::Variable };
/// First version, name; bytes, whether it is there.
const CATEGORIES: RecordLayout = RecordLayout { key_len: 25, value: ValueWidth::Fixed(9) };

/// Versions of the standard layout use it too.
const APART: u8 = 1;
/// It is not arranged: versions of the standard layout had it first.
const OTHER: u8 = 2;

/// A data container of the series, as the table of containers has it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) number: u32,
    pub(super) facts: ContainerFacts,
    /// Whether versions of the standard layout use it too: then it is neither dropped nor moved
    /// (`LayoutsApart`).
    pub(super) is_apart: bool,
}

/// The facts of a container that say where its bytes are without a record of extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) id: ContainerId,
    /// The first version that used it.
    pub(super) first: u32,
    bytes: u64,
    is_there: bool,
}

impl Known {
    /// The first version that used it.
    pub(super) fn first(&self) -> u32 {
        let lifespans = self.facts.users.first().map(|user| &user.lifespans);
        lifespans.and_then(|lifespans| lifespans.first()).map_or(0, |lifespan| lifespan.first)
    }

    pub(super) fn is_there(&self) -> bool {
        self.facts.state == ContainerState::Live
    }

    fn name(&self) -> Name {
        Name { id: self.facts.id, first: self.first(), bytes: self.facts.bytes, is_there: self.is_there() }
    }
}

/// A container of the series.
pub(super) enum Member {
    /// One that is arranged, with the extents of its name.
    Arranged(Known, Extents),
    /// Versions of the standard layout had it first: it is not arranged.
    Other(ContainerId),
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) key: SeriesKey,
    /// Whether its containers cannot be relied on (`RebuiltKeepsCopies`).
    pub(super) needs_rebuild: bool,
    members: Sorted,
}

/// The order of last versions: open ones are the highest.
pub(super) fn rank(last: Option<u32>) -> u32 {
    last.unwrap_or(u32::MAX)
}

impl Series {
    /// Reads the table of containers as the draft has it.
    pub(super) fn read(
        pass: &IndexPass,
        draft: &Draft<'_>,
        key: SeriesKey,
        retention: &dyn ContainerRetention,
    ) -> Result<Self, IndexError> {
        let keeps = pass.io.repository.keeps(Rule::LayoutsApart);
        let table = draft.view::<Containers>(LookupOptions::default());
        let memory = pass.memory / MEMBERS_ONE_IN;
        let mut members = Sorter::new(&pass.io.repository, MEMBERS, memory, &pass.folder)?;
        let (mut value, mut is_disordered) = (Vec::new(), false);
        for record in table.scan(0..=u64::MAX, pass.memory / 4) {
            let (number, Some(facts)) = record? else { continue };
            if facts.id.kind != ContainerKind::Data || !facts.users.iter().any(|user| user.series == key) {
                continue;
            }
            value.clear();
            let marks = match facts.layout {
                Layout::Lifecycle => {
                    is_disordered |= needs_rebuild(number, &facts, retention.rebuilt());
                    Containers::encode_value(&facts, &mut value)?;
                    if keeps && retention.is_apart(&facts) { APART } else { 0 }
                }
                Layout::Standard if keeps => OTHER,
                Layout::Standard => continue,
            };
            members.push(&member_key(&facts.id, number, marks), Some(&value))?;
        }
        Ok(Self { key, needs_rebuild: is_disordered, members: members.finish()? })
    }

    /// The next of them, without the extents.
    fn next(&mut self) -> Result<Option<Member>, IndexError> {
        if !self.members.advance()? {
            return Ok(None);
        }
        let key = self.members.key();
        let member = member(key, self.members.value().unwrap_or_default());
        Ok(Some(member.map_err(|source| IndexError::WrongRecord {
            table: Table::Containers,
            key: key.to_vec(),
            source,
        })?))
    }

    /// Shows all of them in the order of their names.
    ///
    /// A container without a record is as it was written. Containers that arranging wrote are no
    /// names: their records are empty.
    pub(super) fn members<E: From<IndexError>>(
        &mut self,
        pass: &IndexPass,
        draft: &Draft<'_>,
        mut each: impl FnMut(Member) -> Result<(), E>,
    ) -> Result<(), E> {
        let table = draft.view::<ContainerExtents>(LookupOptions::streaming(pass.memory / LOOKUPS_ONE_IN));
        self.members.rewind();
        loop {
            let mut batch = Vec::with_capacity(BATCH);
            while batch.len() < BATCH
                && let Some(member) = self.next()?
            {
                batch.push(member);
            }
            if batch.is_empty() {
                return Ok(());
            }
            let arranged = |member: &Member| match member {
                Member::Arranged(known, _) => Some(known.name()),
                Member::Other(_) => None,
            };
            let names: Vec<Name> = batch.iter().filter_map(arranged).collect();
            let mut records = records(pass, &table, &names)?.into_iter();
            for mut member in batch {
                if let Member::Arranged(known, extents) = &mut member {
                    *extents = records.next().unwrap_or_else(|| as_written(&known.name()));
                    // No manifest names containers that arranging wrote, so no version of the other
                    // layout uses them. Their lifespan only covers one.
                    known.is_apart &= !extents.0.is_empty();
                }
                each(member)?;
            }
        }
    }

    /// Shows those that are arranged, with the extents of their names.
    pub(super) fn extents<E: From<IndexError>>(
        &mut self,
        pass: &IndexPass,
        draft: &Draft<'_>,
        mut each: impl FnMut(Known, Extents) -> Result<(), E>,
    ) -> Result<(), E> {
        self.members(pass, draft, |member| match member {
            Member::Arranged(known, extents) => each(known, extents),
            Member::Other(_) => Ok(()),
        })
    }

    /// Those that are arranged in the order of categories: by first version, then by name.
    pub(super) fn by_category(&mut self, pass: &IndexPass) -> Result<Categories, IndexError> {
        let memory = pass.memory / CATEGORIES_ONE_IN;
        let mut sorter = Sorter::new(&pass.io.repository, CATEGORIES, memory, &pass.folder)?;
        self.members.rewind();
        while let Some(member) = self.next()? {
            let Member::Arranged(known, _) = member else { continue };
            let Name { id, first, bytes, is_there } = known.name();
            let (mut key, mut value) = ([0; 25], [0; 9]);
            key[..4].copy_from_slice(&first.to_be_bytes());
            key[4..].copy_from_slice(&encode_key(&id));
            value[..8].copy_from_slice(&bytes.to_le_bytes());
            value[8] = u8::from(is_there);
            sorter.push(&key, Some(&value))?;
        }
        Ok(Categories(sorter.finish()?))
    }
}

/// See [`Series::by_category`].
pub(super) struct Categories(Sorted);

impl Categories {
    fn next(&mut self) -> Result<Option<Name>, IndexError> {
        if !self.0.advance()? {
            return Ok(None);
        }
        let key = self.0.key();
        let name = name(key, self.0.value().unwrap_or_default());
        Ok(Some(name.map_err(|source| IndexError::WrongRecord {
            table: Table::Containers,
            key: key.to_vec(),
            source,
        })?))
    }

    /// Shows all of them with the extents of their names.
    pub(super) fn extents<E: From<IndexError>>(
        &mut self,
        pass: &IndexPass,
        draft: &Draft<'_>,
        mut each: impl FnMut(&Name, Extents) -> Result<(), E>,
    ) -> Result<(), E> {
        let table = draft.view::<ContainerExtents>(LookupOptions::streaming(pass.memory / LOOKUPS_ONE_IN));
        self.0.rewind();
        loop {
            let mut batch = Vec::with_capacity(BATCH);
            while batch.len() < BATCH
                && let Some(name) = self.next()?
            {
                batch.push(name);
            }
            if batch.is_empty() {
                return Ok(());
            }
            for (name, extents) in batch.iter().zip(records(pass, &table, &batch)?) {
                each(name, extents)?;
            }
        }
    }
}

fn member_key(id: &ContainerId, number: u32, marks: u8) -> [u8; 26] {
    let mut key = [0; 26];
    key[..21].copy_from_slice(&encode_key(id));
    key[21..25].copy_from_slice(&number.to_be_bytes());
    key[25] = marks;
    key
}

fn member(key: &[u8], value: &[u8]) -> Result<Member, DecodeError> {
    let (id, rest) = key.split_at_checked(21).ok_or_else(torn)?;
    let [a, b, c, d, marks] = rest.try_into().map_err(|_| torn())?;
    let id = decode_key(id)?;
    if marks & OTHER != 0 {
        return Ok(Member::Other(id));
    }
    let number = u32::from_be_bytes([a, b, c, d]);
    let known = Known { number, facts: Containers::decode_value(value)?, is_apart: marks & APART != 0 };
    Ok(Member::Arranged(known, Extents::default()))
}

fn name(key: &[u8], value: &[u8]) -> Result<Name, DecodeError> {
    let (first, id) = key.split_first_chunk().ok_or_else(torn)?;
    let (bytes, is_there) = value.split_first_chunk().ok_or_else(torn)?;
    let is_there = is_there == [1];
    Ok(Name { id: decode_key(id)?, first: u32::from_be_bytes(*first), bytes: u64::from_le_bytes(*bytes), is_there })
}

fn torn() -> DecodeError {
    DecodeError::Invalid { what: "sorted container", why: "it has another width" }
}

/// The extents of these names.
fn records(pass: &IndexPass, table: &TableView<ContainerExtents>, names: &[Name]) -> Result<Vec<Extents>, IndexError> {
    let keys: Vec<ContainerId> = names.iter().map(|name| name.id).collect();
    let records = pass.io.executor.block_on(table.get(&keys))?;
    Ok(names.iter().zip(records).map(|(name, record)| record.unwrap_or_else(|| as_written(name))).collect())
}

/// The container in which an extent of a name is.
pub(super) fn place_of(name: &ContainerId, extent: &Extent) -> ContainerId {
    extent.to.map_or(*name, |(container, _)| container)
}

/// All bytes in place, and used by the newest version.
fn as_written(name: &Name) -> Extents {
    match u32::try_from(name.bytes) {
        Ok(length) if length > 0 && name.is_there => Extents(vec![Extent { from: 0, length, last: None, to: None }]),
        _ => Extents::default(),
    }
}

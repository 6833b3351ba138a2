//! The records of all containers, as a pass holds them.
//!
//! This is the part of a pass that grows with the repository. So its rows, their order by name and
//! their lists are in pages ([`larder_spill::Pages`]). As many as the limit allows are in memory,
//! the rest in temporary files. Whatever exceeds the limit is slower and nothing else. `lifespans`
//! decides about the records.

use std::io;
use std::path::Path;

use larder_format::ids::{ContainerId, SeriesKey};
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_format::layout::Layout;
use larder_format::manifest::ContainerUsage;
use larder_spill::{KeyedPages, KeyedRow, Pages, RowReader, RowWriter};
use parking_lot::Mutex;

use super::TableError;
use super::lists::{ListId, Lists, Memo};
use super::users::{Taking, Users};
use crate::ingest::Numbers;
use crate::spilled::{id_from, put_id};

/// One record. A container is retired whole or not at all, so retired chunks need not be counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) number: u32,
    pub(super) id: ContainerId,
    chunks: u32,
    bytes: u64,
    pub(super) object_bytes: u64,
    pub(super) users: ListId,
    forwards: ListId,
    pub(super) state: ContainerState,
    pub(super) layout: Layout,
    change: Change,
}

/// The change of a record by this pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Changed,
    Removed,
}

impl Row {
    /// Whether chunks of the container are elsewhere.
    pub(super) fn has_forwards(&self) -> bool {
        self.forwards != ListId::EMPTY
    }
}

impl larder_spill::Row for Row {
    const BYTES: usize = 56;

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.u32(self.number);
        put_id(row, &self.id);
        let state = match self.state {
            ContainerState::Live => 0,
            ContainerState::Queued => 1,
            ContainerState::Gone => 2,
            ContainerState::Arranged => 3,
        };
        let change = match self.change {
            Change::None => 0,
            Change::Changed => 1,
            Change::Removed => 2,
        };
        row.bytes(&[state, u8::from(self.layout == Layout::Lifecycle), change]);
        row.u32(self.chunks);
        row.u64(self.bytes);
        row.u64(self.object_bytes);
        row.u32(self.users.0);
        row.u32(self.forwards.0);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        let number = row.u32();
        let id = id_from(row);
        let [state, layout, change] = row.bytes();
        Self {
            number,
            id,
            state: match state {
                0 => ContainerState::Live,
                1 => ContainerState::Queued,
                2 => ContainerState::Gone,
                _ => ContainerState::Arranged,
            },
            layout: if layout == 0 { Layout::Standard } else { Layout::Lifecycle },
            change: match change {
                0 => Change::None,
                1 => Change::Changed,
                _ => Change::Removed,
            },
            chunks: row.u32(),
            bytes: row.u64(),
            object_bytes: row.u64(),
            users: ListId(row.u32()),
            forwards: ListId(row.u32()),
        }
    }
}

/// A place among the rows. It never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(u32);

/// The place of a record by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    id: ContainerId,
    place: Place,
}

impl larder_spill::Row for Name {
    const BYTES: usize = 25;

    fn encode(&self, row: &mut RowWriter<'_>) {
        put_id(row, &self.id);
        row.u32(self.place.0);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self { id: id_from(row), place: Place(row.u32()) }
    }
}

impl KeyedRow for Name {
    type Key = ContainerId;

    fn key(&self) -> ContainerId {
        self.id
    }
}

/// Bytes that a record takes, in memory or in temporary files, beside its lists.
pub(super) const RECORD_BYTES: u64 = (<Row as larder_spill::Row>::BYTES + <Name as larder_spill::Row>::BYTES) as u64;

/// See the module header. A lock is held for one call only.
#[derive(Debug)]
pub(super) struct ContainerTable {
    /// By number, with those that were removed.
    rows: Mutex<Pages<Row>>,
    /// Of several with one name, the last counts. It may have been removed.
    names: Mutex<KeyedPages<Name>>,
    users: Mutex<Users>,
    /// Numbers of containers.
    forwards: Mutex<Lists>,
    removed: u64,
    has_changed: bool,
}

impl ContainerTable {
    /// No records. They take about `memory` bytes at most; files are in `folder`.
    pub(super) fn new(folder: &Path, memory: usize) -> Self {
        Self {
            rows: Mutex::new(Pages::new(folder, memory / 2)),
            names: Mutex::new(KeyedPages::new(folder, memory / 4)),
            users: Mutex::new(Users::new(folder, memory / 8)),
            forwards: Mutex::new(Lists::new(folder, memory / 8)),
            removed: 0,
            has_changed: false,
        }
    }

    /// Appends a record, whose number is higher than all before. [`Self::sort`] makes it findable
    /// by name.
    pub(super) fn push(&mut self, number: u32, facts: &ContainerFacts) -> Result<(), TableError> {
        self.push_as(number, facts, Change::None)
    }

    fn push_as(&mut self, number: u32, facts: &ContainerFacts, change: Change) -> Result<(), TableError> {
        let row = Row {
            number,
            id: facts.id,
            chunks: facts.chunks,
            bytes: facts.bytes,
            object_bytes: facts.object_bytes,
            users: self.users.get_mut().place_of(&facts.users)?,
            forwards: self.forwards.get_mut().add(&facts.forwards)?,
            state: facts.state,
            layout: facts.layout,
            change,
        };
        let place = self.rows.get_mut().push(&row)?;
        let place = Place(u32::try_from(place).map_err(|_| TableError::Full)?);
        Ok(self.names.get_mut().push(Name { id: facts.id, place })?)
    }

    /// Appends a record that the index does not have. The container is used from this version of a
    /// series on, or not at all.
    pub(super) fn push_new(
        &mut self,
        number: u32,
        usage: &ContainerUsage,
        layout: Layout,
        user: Option<(SeriesKey, u32)>,
    ) -> Result<(), TableError> {
        let users = user.and_then(|(series, version)| super::users::begun(&[], series, version));
        let facts = ContainerFacts {
            id: usage.container,
            state: ContainerState::Live,
            layout,
            chunks: usage.chunks_held,
            bytes: usage.bytes_held,
            object_bytes: usage.object_bytes,
            retired_chunks: 0,
            retired_bytes: 0,
            users: users.unwrap_or_default(),
            forwards: Vec::new(),
        };
        self.has_changed = true;
        self.push_as(number, &facts, Change::Changed)
    }

    /// Makes all appended records findable by name.
    pub(super) fn sort(&mut self) {
        self.names.get_mut().settle();
    }

    /// The same for many records, so that finding them is fast.
    pub(super) fn sort_all(&mut self) -> io::Result<()> {
        self.names.get_mut().merge()
    }

    /// How many records there are.
    pub(super) fn len(&self) -> u64 {
        self.rows.lock().len() - self.removed
    }

    /// Bytes that all of it takes, in memory and in files, about.
    pub(super) fn bytes(&self) -> u64 {
        let lists = self.users.lock().bytes() + self.forwards.lock().bytes();
        self.rows.lock().len() * RECORD_BYTES + lists
    }

    /// Bytes that are in memory.
    #[cfg(test)]
    pub(super) fn bytes_in_memory(&self) -> usize {
        let lists = self.users.lock().bytes_in_memory() + self.forwards.lock().bytes_in_memory();
        self.rows.lock().bytes_in_memory() + self.names.lock().bytes_in_memory() + lists
    }

    /// Finds a record by its name.
    pub(super) fn find(&self, id: &ContainerId) -> io::Result<Option<(Place, Row)>> {
        let Some(Name { place, .. }) = self.names.lock().find(*id)? else { return Ok(None) };
        let row = self.rows.lock().get(u64::from(place.0))?;
        Ok((row.change != Change::Removed).then_some((place, row)))
    }

    /// Finds a record by its number.
    pub(super) fn find_number(&self, number: u32) -> io::Result<Option<(Place, Row)>> {
        let mut rows = self.rows.lock();
        // A row is at the place of its number at most.
        let (mut from, mut to) = (0, rows.len().min(u64::from(number) + 1));
        while from < to {
            let middle = from + (to - from) / 2;
            let row = rows.get(middle)?;
            match row.number.cmp(&number) {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
                std::cmp::Ordering::Equal if row.change == Change::Removed => return Ok(None),
                std::cmp::Ordering::Equal => return Ok(Some((Place(middle as u32), row))),
            }
        }
        Ok(None)
    }

    /// All rows by place, with those that were removed. A page is read at a time.
    fn all_rows(&self) -> impl Iterator<Item = io::Result<(Place, Row)>> {
        let mut read = Vec::new().into_iter();
        let mut next = 0u64;
        std::iter::from_fn(move || {
            if read.len() == 0 {
                match self.rows.lock().read(next..next + Pages::<Row>::PAGE_ROWS) {
                    Ok(rows) => read = rows.into_iter(),
                    Err(error) => return Some(Err(error)),
                }
            }
            let row = read.next()?;
            let place = Place(next as u32);
            next += 1;
            Some(Ok((place, row)))
        })
    }

    /// All records by number.
    pub(super) fn rows(&self) -> impl Iterator<Item = io::Result<Row>> {
        let rows = self.all_rows().map(|row| row.map(|(_, row)| row));
        rows.filter(|row| !matches!(row, Ok(row) if row.change == Change::Removed))
    }

    /// Numbers of the containers that have its former chunks.
    pub(super) fn forwards_of(&self, row: &Row) -> io::Result<Vec<u32>> {
        self.forwards.lock().list(row.forwards)
    }

    /// Whether something holds for the users of a container. `memo` is of that question alone.
    pub(super) fn of_users<T: Copy>(
        &self,
        row: &Row,
        memo: &mut Memo<T>,
        compute: impl FnOnce(&[larder_format::index_tables::SeriesLifespans]) -> T,
    ) -> io::Result<T> {
        memo.of(row.users, || Ok(compute(&self.users.lock().list(row.users)?)))
    }

    /// Ingests a version of a series. The containers that it uses are in use from it on; all others
    /// of the series end before it.
    pub(super) fn take_in(
        &mut self,
        series: SeriesKey,
        version: u32,
        uses: impl Fn(Place) -> bool,
    ) -> Result<(), TableError> {
        let mut taking = Taking::new(series, version);
        let (rows, users) = (self.rows.get_mut(), self.users.get_mut());
        for first in (0..rows.len()).step_by(Pages::<Row>::PAGE_ROWS as usize) {
            for (place, row) in (first..).zip(rows.read(first..first + Pages::<Row>::PAGE_ROWS)?) {
                if row.change == Change::Removed {
                    continue;
                }
                let after = users.after(&mut taking, row.users, uses(Place(place as u32)))?;
                if after != row.users {
                    rows.set(place, &Row { users: after, change: Change::Changed, ..row })?;
                    self.has_changed = true;
                }
            }
        }
        Ok(())
    }

    /// Removes the records with these numbers.
    pub(super) fn remove(&mut self, goes: &Numbers) -> io::Result<()> {
        let rows = self.rows.get_mut();
        for first in (0..rows.len()).step_by(Pages::<Row>::PAGE_ROWS as usize) {
            for (place, row) in (first..).zip(rows.read(first..first + Pages::<Row>::PAGE_ROWS)?) {
                if row.change != Change::Removed && goes.contains(row.number) {
                    rows.set(place, &Row { change: Change::Removed, ..row })?;
                    self.removed += 1;
                    self.has_changed = true;
                }
            }
        }
        Ok(())
    }

    /// A record as the index has it.
    pub(super) fn facts_of(&self, row: &Row) -> io::Result<ContainerFacts> {
        let (retired_chunks, retired_bytes) = match row.state {
            ContainerState::Live => (0, 0),
            _ => (row.chunks, row.bytes),
        };
        Ok(ContainerFacts {
            id: row.id,
            state: row.state,
            layout: row.layout,
            chunks: row.chunks,
            bytes: row.bytes,
            object_bytes: row.object_bytes,
            retired_chunks,
            retired_bytes,
            users: self.users.lock().list(row.users)?,
            forwards: self.forwards_of(row)?,
        })
    }

    /// The changes: records, and numbers that have none any more.
    pub(super) fn changes(&self) -> impl Iterator<Item = io::Result<(u32, Option<ContainerFacts>)>> {
        let changed = self.all_rows().filter(|row| !matches!(row, Ok((_, row)) if row.change == Change::None));
        changed.map(|row| {
            let (_, row) = row?;
            let facts = (row.change == Change::Changed).then(|| self.facts_of(&row)).transpose()?;
            Ok((row.number, facts))
        })
    }

    pub(super) fn has_changed(&self) -> bool {
        self.has_changed
    }
}

/// Some of the records.
#[derive(Debug, Default)]
pub(super) struct Places(Numbers);

impl Places {
    pub(super) fn contains(&self, place: Place) -> bool {
        self.0.contains(place.0)
    }

    pub(super) fn insert(&mut self, place: Place) {
        self.0.insert(place.0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use larder_format::ids::{ContainerKind, JobId};
    use larder_format::index_tables::{Lifespan, SeriesLifespans};
    use proptest::prelude::*;

    use super::*;

    fn id(job: u8, seq: u32) -> ContainerId {
        let kind = if seq.is_multiple_of(3) { ContainerKind::Meta } else { ContainerKind::Data };
        ContainerId { kind, job: JobId([job; 16]), seq }
    }

    fn facts() -> impl Strategy<Value = ContainerFacts> {
        let forwards = proptest::collection::btree_set(0u32..1000, 0..4);
        let sizes = (any::<u32>(), any::<u64>(), any::<u64>());
        (0u8..4, 0u32..40, 0u32..3, 0u8..3, sizes, forwards).prop_map(|(job, seq, first, state, sizes, forwards)| {
            let (chunks, bytes, object_bytes) = sizes;
            let state = [ContainerState::Live, ContainerState::Gone, ContainerState::Arranged][usize::from(state)];
            let is_live = state == ContainerState::Live;
            let lifespans = vec![Lifespan { first, last: None }];
            ContainerFacts {
                id: id(job, seq),
                state,
                layout: if state == ContainerState::Arranged { Layout::Lifecycle } else { Layout::Standard },
                chunks,
                bytes,
                object_bytes,
                retired_chunks: if is_live { 0 } else { chunks },
                retired_bytes: if is_live { 0 } else { bytes },
                users: if first == 0 {
                    vec![]
                } else {
                    vec![SeriesLifespans { series: SeriesKey([1; 16]), lifespans }]
                },
                forwards: forwards.into_iter().collect(),
            }
        })
    }

    proptest! {
        /// The oracle is a map of the records as the index has them.
        #[test]
        fn what_was_taken_is_there_until_it_is_removed(
            all in proptest::collection::vec(facts(), 0..60),
            removed in proptest::collection::btree_set(0u32..60, 0..30),
            // With little memory, most names are in a file.
            memory in prop_oneof![Just(0usize), Just(1 << 20)],
        ) {
            let mut table = ContainerTable::new(&std::env::temp_dir(), memory);
            let mut records: BTreeMap<u32, ContainerFacts> = BTreeMap::new();
            for (number, facts) in (0..).map(|number| number * 3).zip(all) {
                if records.values().all(|other| other.id != facts.id) {
                    table.push(number, &facts).expect("there is room");
                    records.insert(number, facts);
                }
            }
            table.sort();
            prop_assert!(!table.has_changed());
            let goes: Numbers = removed.iter().map(|number| number * 3).collect();
            table.remove(&goes).expect("written");
            let gone: Vec<u32> = records.keys().copied().filter(|number| goes.contains(*number)).collect();
            let changes: Vec<_> = table.changes().collect::<io::Result<_>>().expect("read");
            prop_assert!(changes.into_iter().eq(gone.iter().map(|number| (*number, None))));
            for number in gone {
                let facts = records.remove(&number).expect("it is there");
                prop_assert!(table.find(&facts.id).expect("read").is_none());
                prop_assert!(table.find_number(number).expect("read").is_none());
            }
            let there: Vec<_> = table
                .rows()
                .map(|row| row.and_then(|row| Ok((row.number, table.facts_of(&row)?))))
                .collect::<io::Result<_>>()
                .expect("read");
            prop_assert_eq!(table.len(), there.len() as u64);
            prop_assert_eq!(there, records.clone().into_iter().collect::<Vec<_>>());
            for (number, facts) in &records {
                let (place, row) = table.find(&facts.id).expect("read").expect("it is there");
                prop_assert_eq!(row.number, *number);
                let by_number = table.find_number(*number).expect("read").expect("it is there");
                prop_assert_eq!(by_number.0, place);
            }
            prop_assert!(table.find(&id(9, 1)).expect("read").is_none());
        }
    }
}

//! The records of all containers, as a pass holds them. Each takes 44 bytes, and 4 for its place by
//! name. Jobs and lists of users are few and take little.
//!
//! This is the part of a pass that grows with the repository. So it holds nothing twice and
//! allocates nothing for a container. `lifespans` decides about the records.

use std::collections::HashMap;

use larder_format::ids::{ContainerId, ContainerKind, JobId, SeriesKey};
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_format::layout::Layout;
use larder_format::manifest::ContainerUsage;

use super::users::{Taking, Users, UsersId};
use crate::ingest::Numbers;

/// One record. A container is retired whole or not at all, so retired chunks need not be counted.
#[derive(Debug, Clone, Copy)]
#[repr(Rust, packed(4))]
pub(super) struct Row {
    pub(super) number: u32,
    job: u32,
    seq: u32,
    chunks: u32,
    bytes: u64,
    pub(super) object_bytes: u64,
    pub(super) users: UsersId,
    /// Where its list begins among all `forwards`.
    forwards: u32,
    kind: ContainerKind,
    pub(super) state: ContainerState,
    pub(super) layout: Layout,
    change: Change,
}

const _: () = assert!(size_of::<Row>() == 44, "the table of a large repository is all in memory");

/// The change of a record by this pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Changed,
    Removed,
}

/// Bytes that the place of a record by name takes.
const PLACE_BYTES: usize = size_of::<u32>();
/// Bytes that a job takes, all in all.
const JOB_BYTES: usize = 72;

/// A place among the rows. It never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place(u32);

/// See the module header.
#[derive(Debug)]
pub(super) struct ContainerTable {
    /// By number, with those that were removed.
    rows: Vec<Row>,
    /// Places of those that were not removed, by name.
    by_name: Vec<u32>,
    removed: usize,
    jobs: Vec<JobId>,
    job_numbers: HashMap<JobId, u32>,
    users: Users,
    /// Lists of numbers, each behind its length. The first list is empty.
    forwards: Vec<u32>,
}

impl ContainerTable {
    /// Room for this number of records.
    pub(super) fn with_capacity(records: usize) -> Self {
        Self {
            rows: Vec::with_capacity(records),
            by_name: Vec::with_capacity(records),
            removed: 0,
            jobs: Vec::new(),
            job_numbers: HashMap::new(),
            users: Users::default(),
            forwards: vec![0],
        }
    }

    /// Appends a record, whose number is higher than all before. [`Self::sort`] makes it findable
    /// by name. `None` when there is no room for it.
    pub(super) fn push(&mut self, number: u32, facts: &ContainerFacts) -> Option<()> {
        let forwards = match facts.forwards.as_slice() {
            [] => 0,
            forwards => {
                let begin = u32::try_from(self.forwards.len()).ok()?;
                self.forwards.push(u32::try_from(forwards.len()).ok()?);
                self.forwards.extend_from_slice(forwards);
                begin
            }
        };
        let row = Row {
            number,
            job: self.job_number(facts.id.job)?,
            seq: facts.id.seq,
            chunks: facts.chunks,
            bytes: facts.bytes,
            object_bytes: facts.object_bytes,
            users: self.users.id_of(&facts.users)?,
            forwards,
            kind: facts.id.kind,
            state: facts.state,
            layout: facts.layout,
            change: Change::None,
        };
        self.rows.push(row);
        Some(())
    }

    /// Appends a record that the index does not have. The container is used from this version of a
    /// series on, or not at all. `None` when there is no room for it.
    pub(super) fn push_new(
        &mut self,
        number: u32,
        usage: &ContainerUsage,
        layout: Layout,
        user: Option<(SeriesKey, u32)>,
    ) -> Option<()> {
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
        self.push(number, &facts)?;
        self.rows.last_mut()?.change = Change::Changed;
        Some(())
    }

    fn job_number(&mut self, job: JobId) -> Option<u32> {
        // They are ordered by number, and most of a job are adjacent.
        if let Some(last) = self.rows.last().filter(|row| self.jobs.get(row.job as usize) == Some(&job)) {
            return Some(last.job);
        }
        if let Some(number) = self.job_numbers.get(&job) {
            return Some(*number);
        }
        let number = u32::try_from(self.jobs.len()).ok()?;
        self.jobs.push(job);
        self.job_numbers.insert(job, number);
        Some(number)
    }

    /// Makes all appended records findable by name. Of several with one name, the last counts.
    pub(super) fn sort(&mut self) {
        let known = self.by_name.len() + self.removed;
        self.by_name.extend((known as u32)..(self.rows.len() as u32));
        let rows = &self.rows;
        // Mostly runs that are sorted already, which a stable sort merges.
        self.by_name.sort_by_key(|place| by_name(&rows[*place as usize]));
    }

    /// How many records there are.
    pub(super) fn len(&self) -> usize {
        self.rows.len() - self.removed
    }

    /// Bytes of memory that all of it takes, about.
    pub(super) fn bytes(&self) -> u64 {
        let rows = self.rows.len() * size_of::<Row>() + self.by_name.len() * PLACE_BYTES;
        let rest = self.jobs.len() * JOB_BYTES + self.forwards.len() * size_of::<u32>();
        (rows + rest) as u64 + self.users.bytes()
    }

    /// Finds a record by its name.
    pub(super) fn find(&self, id: &ContainerId) -> Option<Place> {
        let name = (id.kind, *self.job_numbers.get(&id.job)?, id.seq);
        let behind = self.by_name.partition_point(|place| by_name(&self.rows[*place as usize]) <= name);
        let place = *self.by_name.get(behind.checked_sub(1)?)?;
        (by_name(&self.rows[place as usize]) == name).then_some(Place(place))
    }

    /// Finds a record by its number.
    pub(super) fn find_number(&self, number: u32) -> Option<Place> {
        let place = self.rows.binary_search_by_key(&number, |row| row.number).ok()?;
        (self.rows[place].change != Change::Removed).then_some(Place(place as u32))
    }

    /// All records by number.
    pub(super) fn rows(&self) -> impl Iterator<Item = (Place, &Row)> {
        let rows = (0..).map(Place).zip(&self.rows);
        rows.filter(|(_, row)| row.change != Change::Removed)
    }

    /// The records of data containers of the layout `lifecycle`.
    pub(super) fn arranged(&self) -> impl Iterator<Item = (Place, &Row)> {
        self.rows().filter(|(_, row)| row.layout == Layout::Lifecycle)
    }

    pub(super) fn row(&self, place: Place) -> &Row {
        &self.rows[place.0 as usize]
    }

    /// The name of a container.
    pub(super) fn id_of(&self, row: &Row) -> ContainerId {
        ContainerId { kind: row.kind, job: self.jobs[row.job as usize], seq: row.seq }
    }

    /// Numbers of the containers that have its former chunks.
    pub(super) fn forwards_of(&self, row: &Row) -> &[u32] {
        let begin = row.forwards as usize;
        let len = self.forwards.get(begin).map_or(0, |len| *len as usize);
        self.forwards.get(begin + 1..begin + 1 + len).unwrap_or_default()
    }

    pub(super) fn users(&self) -> &Users {
        &self.users
    }

    /// Ingests a version of a series. The containers that it uses are in use from it on; all others
    /// of the series end before it. `None` when there is no room for the lists of users.
    pub(super) fn take_in(&mut self, series: SeriesKey, version: u32, uses: impl Fn(Place) -> bool) -> Option<()> {
        let mut taking = Taking::new(series, version);
        for (place, row) in (0..).map(Place).zip(&mut self.rows) {
            if row.change != Change::Removed {
                let users = self.users.after(&mut taking, row.users, uses(place))?;
                if users != { row.users } {
                    (row.users, row.change) = (users, Change::Changed);
                }
            }
        }
        Some(())
    }

    /// Removes the records that are to go.
    pub(super) fn remove(&mut self, goes: impl Fn(&Row) -> bool) {
        for row in &mut self.rows {
            if row.change != Change::Removed && goes(row) {
                (row.change, self.removed) = (Change::Removed, self.removed + 1);
            }
        }
        let rows = &self.rows;
        self.by_name.retain(|place| rows[*place as usize].change != Change::Removed);
    }

    /// A record as the index has it.
    pub(super) fn facts_of(&self, row: &Row) -> ContainerFacts {
        let (retired_chunks, retired_bytes) = match row.state {
            ContainerState::Live => (0, 0),
            _ => (row.chunks, row.bytes),
        };
        ContainerFacts {
            id: self.id_of(row),
            state: row.state,
            layout: row.layout,
            chunks: row.chunks,
            bytes: row.bytes,
            object_bytes: row.object_bytes,
            retired_chunks,
            retired_bytes,
            users: self.users.list(row.users).to_vec(),
            forwards: self.forwards_of(row).to_vec(),
        }
    }

    /// The changes: records, and numbers that have none any more.
    pub(super) fn changes(&self) -> impl Iterator<Item = (u32, Option<ContainerFacts>)> {
        let changed = self.rows.iter().filter(|row| row.change != Change::None);
        changed.map(|row| (row.number, (row.change == Change::Changed).then(|| self.facts_of(row))))
    }

    pub(super) fn has_changed(&self) -> bool {
        self.rows.iter().any(|row| row.change != Change::None)
    }
}

/// A name in an order of its own.
fn by_name(row: &Row) -> (ContainerKind, u32, u32) {
    (row.kind, row.job, row.seq)
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
        ) {
            let mut table = ContainerTable::with_capacity(0);
            let mut records: BTreeMap<u32, ContainerFacts> = BTreeMap::new();
            for (number, facts) in (0..).map(|number| number * 3).zip(all) {
                if records.values().all(|other| other.id != facts.id) {
                    table.push(number, &facts).expect("there is room");
                    records.insert(number, facts);
                }
            }
            table.sort();
            prop_assert!(!table.has_changed());
            table.remove(|row| removed.contains(&(row.number / 3)));
            let gone: Vec<u32> = records.keys().copied().filter(|number| removed.contains(&(number / 3))).collect();
            prop_assert!(table.changes().eq(gone.iter().map(|number| (*number, None))));
            for number in gone {
                let facts = records.remove(&number).expect("it is there");
                prop_assert!(table.find(&facts.id).is_none() && table.find_number(number).is_none());
            }
            let there: Vec<_> = table.rows().map(|(_, row)| (row.number, table.facts_of(row))).collect();
            prop_assert_eq!(table.len(), there.len());
            prop_assert_eq!(there, records.clone().into_iter().collect::<Vec<_>>());
            for (number, facts) in &records {
                let place = table.find(&facts.id).expect("it is there");
                prop_assert_eq!({ table.row(place).number }, *number);
                prop_assert_eq!(table.find_number(*number), Some(place));
            }
            prop_assert!(table.find(&id(9, 1)).is_none());
        }
    }
}

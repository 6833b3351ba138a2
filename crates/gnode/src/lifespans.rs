//! Which versions use which containers, kept between passes: a pass reads the manifests of new
//! versions only.
//!
//! Versions have numbers in the order of their ingestion. For each series, a container has the
//! intervals of numbers whose versions use it. The last is open while the newest ingested version
//! of the series uses it. So ingesting a version changes only the containers that it no longer uses
//! and those that it newly uses.
//!
//! Invariants
//! * For an ingested version, exactly the containers that its manifest named have an interval with
//!   its number.
//! * A container with no retained version in its intervals has no record. It has one while it may
//!   not go yet, or while a needed container was retired and forwards to it.
//! * A retired container keeps its record and its intervals as long as anything that is retained
//!   names it. That includes versions that only a lease retains, and later ones that build on them
//!   (`LaterReferencesInherit`).

mod containers;
mod dropped;
mod lists;
mod users;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use larder_format::ids::{ContainerId, ContainerKind, SeriesKey};
use larder_format::index_tables::{ContainerFacts, ContainerState, Lifespan, SeriesLifespans};
use larder_format::layout::Layout;
use larder_format::manifest::ContainerUsage;
use larder_store::survey::ListedContainer;

use containers::{ContainerTable, Places};
pub(crate) use dropped::Dropped;
use lists::Memo;

use crate::ingest;

/// Of the memory for the table, one part in this number holds containers that lose their records.
/// There are two such lists.
const DROPPED_ONE_IN: usize = 32;

/// Numbers of versions, by series.
pub(crate) type Numbers = HashMap<SeriesKey, BTreeSet<u32>>;

/// A change of the records failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    /// The numbers of containers, or of places in a list, are used up.
    #[error("the index has as many containers as it can number")]
    Full,
    /// A temporary file cannot be written or read.
    #[error(transparent)]
    Spill(#[from] io::Error),
}

/// The records of all containers, and their changes.
#[derive(Debug)]
pub(crate) struct Lifespans {
    table: ContainerTable,
    next_container: u32,
    /// Containers of the layout `lifecycle` that lost their records.
    gone: Dropped,
    /// For temporary files, and the memory of one list of dropped containers.
    spill: (PathBuf, usize),
    /// `RedirectIsReference`.
    pub(crate) follows: bool,
    /// `LaterReferencesInherit`.
    pub(crate) inherits: bool,
}

impl Lifespans {
    /// No records; the index has this next container number. They take about `memory` bytes of
    /// memory at most. Temporary files in `folder` have the rest.
    pub(crate) fn new(next_container: u32, folder: &Path, memory: usize) -> Self {
        Self {
            table: ContainerTable::new(folder, memory - 2 * (memory / DROPPED_ONE_IN)),
            next_container,
            gone: Dropped::new(folder, memory / DROPPED_ONE_IN),
            spill: (folder.to_owned(), memory / DROPPED_ONE_IN),
            follows: true,
            inherits: true,
        }
    }

    /// Adds a record of the index. They come by rising numbers.
    pub(crate) fn push(&mut self, number: u32, facts: &ContainerFacts) -> Result<(), TableError> {
        self.table.push(number, facts)
    }

    /// To be called when all records of the index were added.
    pub(crate) fn sort(&mut self) -> io::Result<()> {
        self.table.sort_all()
    }

    pub(crate) fn next_container(&self) -> u32 {
        self.next_container
    }

    /// How many containers it knows.
    pub(crate) fn len(&self) -> u64 {
        self.table.len()
    }

    /// Bytes that all records take, in memory and in temporary files, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Bytes of these that are in memory.
    #[cfg(test)]
    pub(crate) fn bytes_in_memory(&self) -> usize {
        self.table.bytes_in_memory() + self.gone.bytes_in_memory()
    }

    /// Ingests a version. Its number is higher than all before.
    pub(crate) fn ingest(
        &mut self,
        series: SeriesKey,
        version: u32,
        containers: &[ContainerUsage],
        layout: Layout,
    ) -> Result<(), TableError> {
        let mut used = Places::default();
        let (mut new, mut arranged) = (Vec::new(), Vec::new());
        for usage in containers {
            match self.table.find(&usage.container)? {
                Some((place, row)) => {
                    used.insert(place);
                    if row.layout == Layout::Lifecycle && row.has_forwards() {
                        arranged.push(row);
                    }
                }
                None => new.push(usage),
            }
        }
        new.sort_by_key(|usage| usage.container);
        new.dedup_by_key(|usage| usage.container);
        let added = u32::try_from(new.len()).map_err(|_| TableError::Full)?;
        let after = self.next_container.checked_add(added).ok_or(TableError::Full)?;
        // The containers that have data of the arranged ones among these. Until the version that
        // names these is arranged too, it may need all of them (`LaterReferencesInherit`).
        for row in arranged {
            for number in self.table.forwards_of(&row)? {
                if let Some((place, _)) = self.table.find_number(number)? {
                    used.insert(place);
                }
            }
        }
        self.table.take_in(series, version, |place| used.contains(place))?;
        for (number, usage) in (self.next_container..after).zip(new) {
            // Recipes are in metadata containers in one way only, and are shared.
            let is_data = usage.container.kind == ContainerKind::Data;
            let layout = if is_data { layout } else { Layout::Standard };
            self.table.push_new(number, usage, layout, Some((series, version)))?;
        }
        self.next_container = after;
        self.table.sort();
        Ok(())
    }

    /// Ingests a container that no version names. It is needed if a needed container forwards to
    /// it. It is not found by its name until the index is read again.
    pub(crate) fn ingest_unnamed(
        &mut self,
        id: ContainerId,
        chunks: u32,
        bytes: u64,
        object_bytes: u64,
    ) -> Result<u32, TableError> {
        let usage = ContainerUsage {
            container: id,
            chunks_used: 0,
            bytes_used: 0,
            chunks_held: chunks,
            bytes_held: bytes,
            object_bytes,
        };
        let number = self.next_container;
        let next = number.checked_add(1).ok_or(TableError::Full)?;
        self.table.push_new(number, &usage, Layout::Standard, None)?;
        self.next_container = next;
        Ok(number)
    }

    /// Ingests containers of a generation that only a lease retains: they have no users. The needed
    /// ones are known by their names.
    pub(crate) fn ingest_named(&mut self, containers: &[ContainerUsage], layout: Layout) -> Result<(), TableError> {
        let mut new: Vec<ContainerUsage> = Vec::new();
        for usage in containers {
            if self.table.find(&usage.container)?.is_none() {
                new.push(*usage);
            }
        }
        new.sort_by_key(|usage| usage.container);
        new.dedup_by_key(|usage| usage.container);
        for usage in &new {
            let is_data = usage.container.kind == ContainerKind::Data;
            let number = self.next_container;
            let next = number.checked_add(1).ok_or(TableError::Full)?;
            self.table.push_new(number, usage, if is_data { layout } else { Layout::Standard }, None)?;
            self.next_container = next;
        }
        self.table.sort();
        Ok(())
    }

    /// The containers that hold the moved chunks of this one, as far as the index says.
    pub(crate) fn forwards_of(&self, container: &ContainerId) -> io::Result<Vec<ContainerId>> {
        let mut forwards = Vec::new();
        for number in self.forward_numbers(container)? {
            forwards.extend(self.table.find_number(number)?.map(|(_, row)| row.id));
        }
        Ok(forwards)
    }

    /// The numbers of these.
    pub(crate) fn forward_numbers(&self, container: &ContainerId) -> io::Result<Vec<u32>> {
        match self.table.find(container)? {
            Some((_, row)) if row.state != ContainerState::Live => self.table.forwards_of(&row),
            _ => Ok(Vec::new()),
        }
    }

    /// Whether a container was retired: it may be deleted although versions name it.
    pub(crate) fn is_retired(&self, container: &ContainerId) -> io::Result<bool> {
        Ok(self.table.find(container)?.is_some_and(|(_, row)| row.state != ContainerState::Live))
    }

    /// The numbers of records that are needed by versions with these numbers, or are named
    /// otherwise and were retired. They include the containers that these forward to
    /// (`RedirectIsReference`).
    fn needed(&self, retained: &Numbers, named: &HashSet<ContainerId>) -> io::Result<ingest::Numbers> {
        let mut is_used = Memo::new();
        let mut needed = ingest::Numbers::default();
        for row in self.table.rows() {
            let row = row?;
            let has_moved = row.state != ContainerState::Live || row.has_forwards();
            let is_named = has_moved && named.contains(&row.id);
            if !is_named && !self.table.of_users(&row, &mut is_used, |users| is_used_by(users, retained))? {
                continue;
            }
            needed.insert(row.number);
            // Containers with the extents of a name have lifespans of their own, from the ingested
            // versions. This does not hold for a container in a rebuilt index
            // (`RebuiltKeepsCopies`).
            let counts = self.follows && (!is_named || self.inherits);
            if counts && (is_named || row.state != ContainerState::Arranged) {
                self.table.forwards_of(&row)?.iter().for_each(|forward| needed.insert(*forward));
            }
        }
        Ok(needed)
    }

    /// The containers that have to be there for versions with these numbers, and for those that
    /// name containers otherwise, with their numbers.
    pub(crate) fn used<'a>(
        &'a self,
        retained: &Numbers,
        named: &HashSet<ContainerId>,
    ) -> io::Result<impl Iterator<Item = io::Result<(u32, ContainerId)>> + use<'a>> {
        let needed = self.needed(retained, named)?;
        Ok(self.table.rows().filter_map(move |row| match row {
            Ok(row) if !needed.contains(row.number) || row.state != ContainerState::Live => None,
            Ok(row) => Some(Ok((row.number, row.id))),
            Err(error) => Some(Err(error)),
        }))
    }

    /// Drops containers that are not needed, are not named otherwise, and may go. Returns those
    /// that are still there.
    pub(crate) fn prune(
        &mut self,
        retained: &Numbers,
        named: &HashSet<ContainerId>,
        may_go: &dyn Fn(&ContainerId) -> bool,
    ) -> io::Result<Dropped> {
        let needed = self.needed(retained, named)?;
        let may_go = |id: &ContainerId| !named.contains(id) && may_go(id);
        // A container that stays although it is not needed must not forward to one that goes.
        let mut targets = ingest::Numbers::default();
        for row in self.table.rows() {
            let row = row?;
            if row.has_forwards() && !needed.contains(row.number) && !may_go(&row.id) {
                self.table.forwards_of(&row)?.iter().for_each(|forward| targets.insert(*forward));
            }
        }
        let mut goes = ingest::Numbers::default();
        let (folder, memory) = &self.spill;
        let mut dropped = Dropped::new(folder, *memory);
        for row in self.table.rows() {
            let row = row?;
            if needed.contains(row.number) || targets.contains(row.number) || !may_go(&row.id) {
                continue;
            }
            goes.insert(row.number);
            // The retired ones are in the queue of an earlier index.
            if row.state == ContainerState::Live {
                dropped.push(ListedContainer { id: row.id, bytes: row.object_bytes })?;
            }
            if row.layout == Layout::Lifecycle {
                self.gone.push(ListedContainer { id: row.id, bytes: row.object_bytes })?;
            }
        }
        if !goes.is_empty() {
            self.table.remove(&goes)?;
        }
        Ok(dropped)
    }

    /// Takes the containers of the layout `lifecycle` that lost their records.
    pub(crate) fn take_gone(&mut self) -> Dropped {
        let (folder, memory) = &self.spill;
        std::mem::replace(&mut self.gone, Dropped::new(folder, *memory))
    }

    /// Whether there is a record of a container.
    pub(crate) fn has(&self, container: &ContainerId) -> io::Result<bool> {
        Ok(self.table.find(container)?.is_some())
    }

    /// The changes: records, and numbers that have none any more.
    pub(crate) fn changes(&self) -> impl Iterator<Item = io::Result<(u32, Option<ContainerFacts>)>> {
        self.table.changes()
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.table.has_changed()
    }

    /// All records.
    pub(crate) fn all(&self) -> impl Iterator<Item = io::Result<(u32, ContainerFacts)>> {
        self.table.rows().map(|row| row.and_then(|row| Ok((row.number, self.table.facts_of(&row)?))))
    }

    /// The containers that have a record, with their numbers and layouts.
    pub(crate) fn containers(&self) -> impl Iterator<Item = io::Result<(u32, ContainerId, Layout)>> {
        self.table.rows().map(|row| row.map(|row| (row.number, row.id, row.layout)))
    }
}

/// Whether a version with one of these numbers uses a container.
pub(crate) fn is_used(facts: &ContainerFacts, retained: &Numbers) -> bool {
    is_used_by(&facts.users, retained)
}

fn is_used_by(users: &[SeriesLifespans], retained: &Numbers) -> bool {
    users.iter().any(|user| {
        let Some(numbers) = retained.get(&user.series) else { return false };
        let holds = |lifespan: &Lifespan| {
            let mut within = numbers.range(lifespan.first..=lifespan.last.unwrap_or(u32::MAX));
            within.next().is_some()
        };
        user.lifespans.iter().any(holds)
    })
}

#[cfg(test)]
mod tests;

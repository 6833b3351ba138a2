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
mod users;

use std::collections::{BTreeSet, HashMap, HashSet};

use larder_format::ids::{ContainerId, ContainerKind, SeriesKey};
use larder_format::index_tables::{ContainerFacts, ContainerState, Lifespan, SeriesLifespans};
use larder_format::layout::Layout;
use larder_format::manifest::ContainerUsage;
use larder_store::survey::ListedContainer;

use containers::{ContainerTable, Places};

use crate::ingest;

/// Numbers of versions, by series.
pub(crate) type Numbers = HashMap<SeriesKey, BTreeSet<u32>>;

/// The records of all containers, and their changes.
#[derive(Debug)]
pub(crate) struct Lifespans {
    table: ContainerTable,
    next_container: u32,
    /// Containers of the layout `lifecycle` that lost their records.
    gone: Vec<ContainerId>,
    /// `RedirectIsReference`.
    pub(crate) follows: bool,
    /// `LaterReferencesInherit`.
    pub(crate) inherits: bool,
}

impl Lifespans {
    /// Those of an index with this next container number and about this number of records.
    pub(crate) fn new(next_container: u32, records: usize) -> Self {
        Self {
            table: ContainerTable::with_capacity(records),
            next_container,
            gone: Vec::new(),
            follows: true,
            inherits: true,
        }
    }

    /// Adds a record of the index. They come by rising numbers. `None` when there is no room for
    /// it.
    pub(crate) fn push(&mut self, number: u32, facts: &ContainerFacts) -> Option<()> {
        self.table.push(number, facts)
    }

    /// To be called when all records were added.
    pub(crate) fn sort(&mut self) {
        self.table.sort();
    }

    pub(crate) fn next_container(&self) -> u32 {
        self.next_container
    }

    /// How many containers it knows.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes of memory that it takes, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Ingests a version. Its number is higher than all before; `None` when the numbers of
    /// containers are used up.
    pub(crate) fn ingest(
        &mut self,
        series: SeriesKey,
        version: u32,
        containers: &[ContainerUsage],
        layout: Layout,
    ) -> Option<()> {
        let mut used = Places::default();
        let mut new = Vec::new();
        for usage in containers {
            match self.table.find(&usage.container) {
                Some(place) => used.insert(place),
                None => new.push(usage),
            }
        }
        new.sort_by_key(|usage| usage.container);
        new.dedup_by_key(|usage| usage.container);
        let after = self.next_container.checked_add(u32::try_from(new.len()).ok()?)?;
        let arranged = self.arranged_of(&used);
        self.table.take_in(series, version, |place| used.contains(place) || arranged.contains(place))?;
        for (number, usage) in (self.next_container..after).zip(new) {
            // Recipes are in metadata containers in one way only, and are shared.
            let is_data = usage.container.kind == ContainerKind::Data;
            let layout = if is_data { layout } else { Layout::Standard };
            self.table.push_new(number, usage, layout, Some((series, version)))?;
        }
        self.next_container = after;
        self.table.sort();
        Some(())
    }

    /// The containers that have data of the arranged ones among these. Until the version that names
    /// these is arranged too, it may need all of them (`LaterReferencesInherit`).
    fn arranged_of(&self, used: &Places) -> Places {
        let rows = self.table.arranged().filter(|(place, _)| used.contains(*place));
        let forwards = rows.flat_map(|(_, row)| self.table.forwards_of(row));
        let mut arranged = Places::default();
        forwards.filter_map(|number| self.table.find_number(*number)).for_each(|place| arranged.insert(place));
        arranged
    }

    /// Ingests a container that no version names. It is needed if a needed container forwards to
    /// it. It is not found by its name until the index is read again.
    pub(crate) fn ingest_unnamed(
        &mut self,
        id: ContainerId,
        chunks: u32,
        bytes: u64,
        object_bytes: u64,
    ) -> Option<u32> {
        let usage = ContainerUsage {
            container: id,
            chunks_used: 0,
            bytes_used: 0,
            chunks_held: chunks,
            bytes_held: bytes,
            object_bytes,
        };
        let number = self.next_container;
        let next = number.checked_add(1)?;
        self.table.push_new(number, &usage, Layout::Standard, None)?;
        self.next_container = next;
        Some(number)
    }

    /// Ingests containers of a generation that only a lease retains: they have no users. The needed
    /// ones are known by their names. `None` when the numbers are used up.
    pub(crate) fn ingest_named(&mut self, containers: &[ContainerUsage], layout: Layout) -> Option<()> {
        let new = containers.iter().filter(|usage| self.table.find(&usage.container).is_none());
        let mut new: Vec<ContainerUsage> = new.cloned().collect();
        new.sort_by_key(|usage| usage.container);
        new.dedup_by_key(|usage| usage.container);
        for usage in &new {
            let is_data = usage.container.kind == ContainerKind::Data;
            let number = self.next_container;
            let next = number.checked_add(1)?;
            self.table.push_new(number, usage, if is_data { layout } else { Layout::Standard }, None)?;
            self.next_container = next;
        }
        self.table.sort();
        Some(())
    }

    /// The containers that hold the moved chunks of this one, as far as the index says.
    pub(crate) fn forwards_of(&self, container: &ContainerId) -> Vec<ContainerId> {
        let Some(place) = self.table.find(container) else { return Vec::new() };
        let row = self.table.row(place);
        if row.state == ContainerState::Live {
            return Vec::new();
        }
        let forwards = self.table.forwards_of(row).iter().filter_map(|number| self.table.find_number(*number));
        forwards.map(|place| self.table.id_of(self.table.row(place))).collect()
    }

    /// Whether a container was retired: it may be deleted although versions name it.
    pub(crate) fn is_retired(&self, container: &ContainerId) -> bool {
        self.table.find(container).is_some_and(|place| self.table.row(place).state != ContainerState::Live)
    }

    /// The numbers of records that are needed by versions with these numbers, or are named
    /// otherwise and were retired. They include the containers that these forward to
    /// (`RedirectIsReference`).
    fn needed(&self, retained: &Numbers, named: &HashSet<ContainerId>) -> ingest::Numbers {
        let is_used = self.table.users().map(|users| is_used_by(users, retained));
        let mut needed = ingest::Numbers::default();
        for (_, row) in self.table.rows() {
            let forwards = self.table.forwards_of(row);
            let has_moved = row.state != ContainerState::Live || !forwards.is_empty();
            let is_named = has_moved && named.contains(&self.table.id_of(row));
            // Of an unknown list nothing may go.
            if !is_named && !is_used.of(row.users).unwrap_or(true) {
                continue;
            }
            needed.insert(row.number);
            // Containers with the extents of a name have lifespans of their own, from the ingested
            // versions. This does not hold for a container in a rebuilt index
            // (`RebuiltKeepsCopies`).
            let counts = self.follows && (!is_named || self.inherits);
            if counts && (is_named || row.state != ContainerState::Arranged) {
                forwards.iter().for_each(|forward| needed.insert(*forward));
            }
        }
        needed
    }

    /// The containers that have to be there for versions with these numbers, and for those that
    /// name containers otherwise.
    pub(crate) fn used<'a>(
        &'a self,
        retained: &Numbers,
        named: &HashSet<ContainerId>,
    ) -> impl Iterator<Item = ContainerId> + use<'a> {
        let needed = self.needed(retained, named);
        let needed = self.table.rows().filter(move |(_, row)| needed.contains(row.number));
        needed.filter(|(_, row)| row.state == ContainerState::Live).map(|(_, row)| self.table.id_of(row))
    }

    /// Drops containers that are not needed, are not named otherwise, and may go. Returns those
    /// that are still there.
    pub(crate) fn prune(
        &mut self,
        retained: &Numbers,
        named: &HashSet<ContainerId>,
        may_go: &dyn Fn(&ContainerId) -> bool,
    ) -> Vec<ListedContainer> {
        let needed = self.needed(retained, named);
        let may_go = |id: &ContainerId| !named.contains(id) && may_go(id);
        let unneeded = || {
            let rows = self.table.rows().map(|(_, row)| row).filter(|row| !needed.contains(row.number));
            rows.map(|row| (self.table.id_of(row), row))
        };
        // A container that stays although it is not needed must not forward to one that goes.
        let mut led_to = ingest::Numbers::default();
        for (_, row) in unneeded().filter(|(id, _)| !may_go(id)) {
            self.table.forwards_of(row).iter().for_each(|forward| led_to.insert(*forward));
        }
        let mut goes = ingest::Numbers::default();
        let mut dropped = Vec::new();
        for (id, row) in unneeded().filter(|(id, row)| !led_to.contains(row.number) && may_go(id)) {
            goes.insert(row.number);
            // The retired ones are in the queue of an earlier index.
            if row.state == ContainerState::Live {
                dropped.push(ListedContainer { id, bytes: row.object_bytes });
            }
        }
        let arranged = self.table.arranged().filter(|(_, row)| goes.contains(row.number));
        self.gone.extend(arranged.map(|(_, row)| self.table.id_of(row)));
        self.table.remove(|row| goes.contains(row.number));
        dropped
    }

    /// Containers of the layout `lifecycle` that lost their records.
    pub(crate) fn gone(&self) -> &[ContainerId] {
        &self.gone
    }

    /// Whether there is a record of a container.
    pub(crate) fn has(&self, container: &ContainerId) -> bool {
        self.table.find(container).is_some()
    }

    /// The changes: records, and numbers that have none any more.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (u32, Option<ContainerFacts>)> {
        self.table.changes()
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.table.has_changed()
    }

    /// All records.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, ContainerFacts)> {
        self.table.rows().map(|(_, row)| (row.number, self.table.facts_of(row)))
    }

    /// The containers that have a record, with their numbers.
    pub(crate) fn containers(&self) -> impl Iterator<Item = (u32, ContainerId)> {
        self.table.rows().map(|(_, row)| (row.number, self.table.id_of(row)))
    }

    /// Those of data in the layout `lifecycle`.
    pub(crate) fn arranged(&self) -> impl Iterator<Item = (u32, ContainerId)> {
        self.table.arranged().map(|(_, row)| (row.number, self.table.id_of(row)))
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
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use larder_format::ids::JobId;
    use proptest::prelude::*;

    fn usage(seq: u32) -> ContainerUsage {
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq };
        ContainerUsage { container, chunks_used: 1, bytes_used: 1, chunks_held: 1, bytes_held: 1, object_bytes: 1 }
    }

    /// Versions of two series with their containers; in between some are forgotten, and the records
    /// pruned and written and read.
    #[derive(Debug, Clone)]
    enum Step {
        Ingest(u8, Vec<u32>),
        Forget(usize),
        Reopen,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..2, proptest::collection::btree_set(0u32..12, 0..8))
                .prop_map(|(series, seqs)| Step::Ingest(series, seqs.into_iter().collect())),
            3 => (0usize..8).prop_map(Step::Forget),
            1 => Just(Step::Reopen),
        ]
    }

    proptest! {
        /// The oracle is the list of versions with their container tables.
        #[test]
        fn exactly_what_retained_versions_use_is_used(steps in proptest::collection::vec(step(), 0..40)) {
            let mut lifespans = Lifespans::new(0, 0);
            let mut versions: Vec<(SeriesKey, u32, Vec<u32>)> = Vec::new();
            let mut stored: BTreeMap<u32, ContainerFacts> = BTreeMap::new();
            let mut next = 1;
            for step in steps {
                match step {
                    Step::Ingest(series, seqs) => {
                        let series = SeriesKey([series; 16]);
                        let table: Vec<_> = seqs.iter().map(|seq| usage(*seq)).collect();
                        lifespans.ingest(series, next, &table, Layout::Standard).expect("numbers are left");
                        versions.push((series, next, seqs));
                        next += 1;
                    }
                    Step::Forget(place) if !versions.is_empty() => drop(versions.remove(place % versions.len())),
                    Step::Forget(_) => {}
                    Step::Reopen => {
                        for (number, facts) in lifespans.changes() {
                            match facts {
                                Some(facts) => drop(stored.insert(number, facts)),
                                None => drop(stored.remove(&number)),
                            }
                        }
                        prop_assert!(stored.clone().into_iter().eq(lifespans.all()));
                        lifespans = Lifespans::new(lifespans.next_container(), 0);
                        for (number, facts) in &stored {
                            lifespans.push(*number, facts).expect("there is room");
                        }
                        lifespans.sort();
                    }
                }
                let mut retained = Numbers::new();
                for (series, number, _) in &versions {
                    retained.entry(*series).or_default().insert(*number);
                }
                let expected: BTreeSet<u32> = versions.iter().flat_map(|(.., seqs)| seqs.iter().copied()).collect();
                let used = lifespans.used(&retained, &HashSet::new());
                prop_assert_eq!(used.map(|id| id.seq).collect::<BTreeSet<_>>(), expected.clone());
                let dropped = lifespans.prune(&retained, &HashSet::new(), &|_| true);
                prop_assert!(dropped.iter().all(|container| !expected.contains(&container.id.seq)));
                prop_assert_eq!(lifespans.len(), expected.len());
                for (number, facts) in lifespans.all() {
                    facts.encode(&mut Vec::new()).expect("is valid");
                    prop_assert!(lifespans.has(&facts.id) && lifespans.table.find_number(number).is_some());
                }
                prop_assert!(dropped.iter().all(|container| !lifespans.has(&container.id)));
            }
        }
    }

    /// The records of a series with this number of versions. Every version added this number of
    /// containers, and the next twenty versions use every fourth container.
    fn history(versions: u32, containers: u32) -> impl Iterator<Item = (u32, ContainerFacts)> {
        (0..versions).flat_map(move |version| {
            (0..containers).map(move |seq| {
                let container = ContainerId { kind: ContainerKind::Data, job: JobId([version as u8; 16]), seq };
                let last =
                    (seq % 4 > 0 || version + 20 < versions).then_some(version + if seq % 4 > 0 { 0 } else { 20 });
                let lifespans = vec![Lifespan { first: version + 1, last: last.map(|last| last + 1) }];
                let facts = ContainerFacts {
                    id: container,
                    state: ContainerState::Live,
                    layout: Layout::Standard,
                    chunks: 2000,
                    bytes: 8 << 20,
                    object_bytes: 5 << 20,
                    retired_chunks: 0,
                    retired_bytes: 0,
                    users: vec![SeriesLifespans { series: SeriesKey([1; 16]), lifespans }],
                    forwards: Vec::new(),
                };
                (version * containers + seq, facts)
            })
        })
    }

    fn loaded(versions: u32, containers: u32) -> Lifespans {
        let mut lifespans = Lifespans::new(versions * containers, (versions * containers) as usize);
        for (number, facts) in history(versions, containers) {
            lifespans.push(number, &facts).expect("there is room");
        }
        lifespans.sort();
        lifespans
    }

    #[test]
    fn a_container_takes_fifty_bytes_at_most() {
        let lifespans = loaded(100, 500);
        assert_eq!(lifespans.len(), 50_000);
        assert!(lifespans.bytes() <= 50 * 50_000, "{}", lifespans.bytes());
    }

    /// Prints the memory of the process with a million of them. `cargo test --release -p
    /// larder-gnode --lib -- --ignored million --nocapture`
    #[test]
    #[ignore = "measures"]
    fn what_a_million_containers_take() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").expect("there is a /proc");
            let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("it says so");
            line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
        };
        let before = resident();
        let began = std::time::Instant::now();
        let mut lifespans = loaded(200, 5000);
        let (loaded, took) = (resident() - before, began.elapsed());
        let table: Vec<_> = (199..201u8)
            .flat_map(|job| (0..5000).map(move |seq| (job, seq)))
            .map(|(job, seq)| {
                let container = ContainerId { kind: ContainerKind::Data, job: JobId([job; 16]), seq };
                ContainerUsage { container, ..usage(0) }
            })
            .collect();
        let began = std::time::Instant::now();
        lifespans.ingest(SeriesKey([1; 16]), 201, &table, Layout::Standard).expect("there is room");
        let ingested = began.elapsed();
        let retained = Numbers::from([(SeriesKey([1; 16]), (150..=201).collect())]);
        let began = std::time::Instant::now();
        let dropped = lifespans.prune(&retained, &HashSet::new(), &|_| true).len();
        println!(
            "loaded: {loaded} bytes resident, {} counted, {took:?}; a version taken in: {ingested:?}; {dropped} dropped: {:?}; then {}",
            lifespans.bytes(),
            began.elapsed(),
            resident() - before,
        );
    }
}

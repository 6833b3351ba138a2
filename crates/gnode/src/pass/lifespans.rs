//! Which containers which versions use, kept from pass to pass: a pass reads the manifests of new versions only.
//!
//! Versions have numbers in the order of their ingestion. A container has, for each series, the intervals of numbers whose
//! versions use it; the last is open while the newest ingested version of the series does. Ingesting a version therefore touches
//! the containers that it no longer uses and those that it newly uses, and no others.
//!
//! Invariants
//! * Of a version that was ingested, exactly the containers that its manifest named have an interval with its number.
//! * A container in whose intervals no retained version lies has no record, unless one that is needed was given up and forwards to it,
//!   or it may not go yet.
//! * A container that was given up keeps its record, with its intervals, as long as anything that is retained names it: also
//!   what only a lease retains, and versions that come later and build on such a one (`LaterReferencesInherit`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use larder_format::ids::{ContainerId, ContainerKind, SeriesKey};
use larder_format::index_tables::{ContainerFacts, ContainerState, Lifespan, SeriesLifespans};
use larder_format::layout::Layout;
use larder_format::manifest::ContainerUsage;
use larder_store::survey::ListedContainer;

/// Numbers of versions, by series.
pub(crate) type Numbers = HashMap<SeriesKey, BTreeSet<u32>>;

/// The records of all containers, and what changed of them.
#[derive(Debug, Default)]
pub(crate) struct Lifespans {
    facts: BTreeMap<u32, ContainerFacts>,
    numbers: HashMap<ContainerId, u32>,
    next_container: u32,
    changed: BTreeSet<u32>,
    /// Of the layout `lifecycle`, what lost its records.
    gone: Vec<ContainerId>,
}

impl Lifespans {
    /// Those of an index: its records and the next container number.
    pub(crate) fn new(facts: BTreeMap<u32, ContainerFacts>, next_container: u32) -> Self {
        let numbers = facts.iter().map(|(number, facts)| (facts.id, *number)).collect();
        Self { facts, numbers, next_container, changed: BTreeSet::new(), gone: Vec::new() }
    }

    pub(crate) fn next_container(&self) -> u32 {
        self.next_container
    }

    /// How many containers it knows.
    pub(crate) fn len(&self) -> usize {
        self.facts.len()
    }

    /// Takes in a version. Its number is higher than all before; `None` when the numbers of containers are used up.
    pub(crate) fn ingest(
        &mut self,
        series: SeriesKey,
        version: u32,
        containers: &[ContainerUsage],
        layout: Layout,
    ) -> Option<()> {
        let used: BTreeSet<ContainerId> = containers.iter().map(|usage| usage.container).collect();
        let arranged = self.arranged_of(&used);
        for (number, facts) in &mut self.facts {
            if arranged.contains(number) {
                continue;
            }
            let open = facts.users.iter_mut().find(|user| user.series == series);
            let open = open.and_then(|user| user.lifespans.last_mut()).filter(|lifespan| lifespan.last.is_none());
            if let Some(lifespan) = open.filter(|_| !used.contains(&facts.id)) {
                // All versions of the series since it began do; there is none between the newest of them and this one.
                lifespan.last = Some(version.saturating_sub(1));
                self.changed.insert(*number);
            }
        }
        for usage in containers {
            let number = match self.numbers.get(&usage.container) {
                Some(number) => *number,
                None => {
                    let number = self.next_container;
                    self.next_container = number.checked_add(1)?;
                    self.numbers.insert(usage.container, number);
                    // Recipes lie in metadata containers in one way only, and are shared.
                    let is_data = usage.container.kind == ContainerKind::Data;
                    let layout = if is_data { layout } else { Layout::Standard };
                    self.facts.insert(number, new_facts(usage, layout));
                    number
                }
            };
            self.begin(number, series, version);
        }
        arranged.iter().for_each(|number| self.begin(*number, series, version));
        Some(())
    }

    fn begin(&mut self, number: u32, series: SeriesKey, version: u32) {
        if let Some(facts) = self.facts.get_mut(&number)
            && begin(&mut facts.users, series, version)
        {
            self.changed.insert(number);
        }
    }

    /// The containers that have anything of those among these that were arranged. Until the version that names these is arranged too,
    /// it may need all of them (`LaterReferencesInherit`).
    fn arranged_of(&self, used: &BTreeSet<ContainerId>) -> BTreeSet<u32> {
        let facts = used.iter().filter_map(|container| self.facts.get(self.numbers.get(container)?));
        let arranged = facts.filter(|facts| facts.layout == Layout::Lifecycle);
        let forwards = arranged.flat_map(|facts| &facts.forwards).copied();
        forwards.filter(|number| self.facts.contains_key(number)).collect()
    }

    /// Takes in a container that no version names. It is needed if one that is needed forwards to it.
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
        self.next_container = number.checked_add(1)?;
        self.numbers.insert(id, number);
        self.facts.insert(number, new_facts(&usage, Layout::Standard));
        self.changed.insert(number);
        Some(number)
    }

    /// Whether a container was given up: it may be deleted although versions name it.
    pub(crate) fn is_given_up(&self, container: &ContainerId) -> bool {
        let facts = self.numbers.get(container).and_then(|number| self.facts.get(number));
        facts.is_some_and(|facts| facts.state != ContainerState::Live)
    }

    /// The numbers of records that versions with these numbers need, and those that are named otherwise and were given up: what they
    /// use, and what that forwards to (`RedirectIsReference`).
    fn needed(&self, retained: &Numbers, named: &HashSet<ContainerId>) -> HashSet<u32> {
        let mut needed = HashSet::new();
        for (number, facts) in &self.facts {
            let has_moved = facts.state != ContainerState::Live || !facts.forwards.is_empty();
            let is_named = has_moved && named.contains(&facts.id);
            if !is_named && !is_used(facts, retained) {
                continue;
            }
            needed.insert(*number);
            // What has the extents of a name has lifespans of its own, which know of the versions that were taken in. Not so of one
            // that is there in an index that was made anew (`RebuiltKeepsCopies`).
            if is_named || facts.state != ContainerState::Arranged {
                needed.extend(&facts.forwards);
            }
        }
        needed
    }

    /// The containers that have to be there for versions with these numbers, and for those that name containers otherwise.
    pub(crate) fn used(&self, retained: &Numbers, named: &HashSet<ContainerId>) -> Vec<ContainerId> {
        let needed = self.needed(retained, named).into_iter().filter_map(|number| self.facts.get(&number));
        needed.filter(|facts| facts.state == ContainerState::Live).map(|facts| facts.id).collect()
    }

    /// Drops what is not needed, is not named otherwise, and may go. Returns what of it is still there.
    pub(crate) fn prune(
        &mut self,
        retained: &Numbers,
        named: &HashSet<ContainerId>,
        may_go: &dyn Fn(&ContainerId) -> bool,
    ) -> Vec<ListedContainer> {
        let needed = self.needed(retained, named);
        let may_go = |facts: &ContainerFacts| !named.contains(&facts.id) && may_go(&facts.id);
        // What stays although nobody needs it must not forward to what goes.
        let stays = self.facts.iter().filter(|(number, facts)| !needed.contains(number) && !may_go(facts));
        let led_to: HashSet<u32> = stays.flat_map(|(_, facts)| facts.forwards.iter().copied()).collect();
        let goes = |(number, facts): &(&u32, &ContainerFacts)| {
            !needed.contains(number) && !led_to.contains(number) && may_go(facts)
        };
        let numbers: Vec<u32> = self.facts.iter().filter(goes).map(|(number, _)| *number).collect();
        let mut dropped = Vec::new();
        for number in numbers {
            if let Some(facts) = self.facts.remove(&number) {
                self.numbers.remove(&facts.id);
                self.changed.insert(number);
                if facts.layout == Layout::Lifecycle {
                    self.gone.push(facts.id);
                }
                // What was given up is in the queue of an index before.
                if facts.state == ContainerState::Live {
                    dropped.push(ListedContainer { id: facts.id, bytes: facts.object_bytes });
                }
            }
        }
        dropped
    }

    /// Of the layout `lifecycle`, what lost its records.
    pub(crate) fn gone(&self) -> &[ContainerId] {
        &self.gone
    }

    /// Whether there is a record of a container.
    pub(crate) fn has(&self, container: &ContainerId) -> bool {
        self.numbers.contains_key(container)
    }

    /// What changed: records, and numbers that have none any more.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (u32, Option<&ContainerFacts>)> {
        self.changed.iter().map(|number| (*number, self.facts.get(number)))
    }

    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// All records.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, Option<&ContainerFacts>)> {
        self.facts.iter().map(|(number, facts)| (*number, Some(facts)))
    }
}

fn new_facts(usage: &ContainerUsage, layout: Layout) -> ContainerFacts {
    ContainerFacts {
        id: usage.container,
        state: ContainerState::Live,
        layout,
        chunks: usage.chunks_held,
        bytes: usage.bytes_held,
        object_bytes: usage.object_bytes,
        given_up_chunks: 0,
        given_up_bytes: 0,
        users: Vec::new(),
        forwards: Vec::new(),
    }
}

/// A series begins to use a container with this version, unless it does already.
fn begin(users: &mut Vec<SeriesLifespans>, series: SeriesKey, version: u32) -> bool {
    let begun = Lifespan { first: version, last: None };
    match users.binary_search_by_key(&series, |user| user.series) {
        Ok(place) => {
            let lifespans = &mut users[place].lifespans;
            if lifespans.last().is_some_and(|lifespan| lifespan.last.is_none()) {
                return false;
            }
            lifespans.push(begun);
        }
        Err(place) => users.insert(place, SeriesLifespans { series, lifespans: vec![begun] }),
    }
    true
}

/// Whether a version with one of these numbers uses a container.
pub(crate) fn is_used(facts: &ContainerFacts, retained: &Numbers) -> bool {
    facts.users.iter().any(|user| {
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
    use super::*;
    use larder_format::ids::JobId;
    use proptest::prelude::*;

    fn usage(seq: u32) -> ContainerUsage {
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq };
        ContainerUsage { container, chunks_used: 1, bytes_used: 1, chunks_held: 1, bytes_held: 1, object_bytes: 1 }
    }

    /// Versions of two series with their containers; in between some are forgotten, and the records pruned and written and read.
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
            let mut lifespans = Lifespans::default();
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
                                Some(facts) => drop(stored.insert(number, facts.clone())),
                                None => drop(stored.remove(&number)),
                            }
                        }
                        prop_assert!(stored.iter().map(|(number, facts)| (*number, Some(facts))).eq(lifespans.all()));
                        lifespans = Lifespans::new(stored.clone(), lifespans.next_container());
                    }
                }
                let mut retained = Numbers::new();
                for (series, number, _) in &versions {
                    retained.entry(*series).or_default().insert(*number);
                }
                let expected: BTreeSet<u32> = versions.iter().flat_map(|(.., seqs)| seqs.iter().copied()).collect();
                let used = lifespans.used(&retained, &HashSet::new());
                prop_assert_eq!(used.iter().map(|id| id.seq).collect::<BTreeSet<_>>(), expected.clone());
                let dropped = lifespans.prune(&retained, &HashSet::new(), &|_| true);
                prop_assert!(dropped.iter().all(|container| !expected.contains(&container.id.seq)));
                prop_assert_eq!(lifespans.len(), expected.len());
                for (_, facts) in lifespans.all() {
                    let mut bytes = Vec::new();
                    facts.expect("a record").encode(&mut bytes).expect("is valid");
                }
            }
        }
    }
}

//! Categories of hand-made tables, and of random ones against a model that checks each chunk.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use larder_format::extents::{Extent, Extents};
use larder_format::ids::{ByteCount, ContainerId, ContainerKind, JobId, SeriesKey};
use larder_format::index_tables::{ContainerFacts, ContainerState, Lifespan, SeriesLifespans};
use larder_format::layout::Layout;
use larder_format::manifest::ContainerUsage;
use proptest::prelude::*;

use super::reading::{Draft, oldest_arranged_base};
use super::*;

const SERIES: SeriesKey = SeriesKey([5; 16]);

fn version(number: u32, progress: Progress) -> CategorizedVersion {
    CategorizedVersion { id: JobId([number as u8; 16]), number, progress }
}

fn container(kind: ContainerKind, job: u32, seq: u32) -> ContainerId {
    ContainerId { kind, job: JobId([job as u8; 16]), seq }
}

fn data(job: u32, seq: u32) -> ContainerId {
    container(ContainerKind::Data, job, seq)
}

/// Objects are a tenth smaller than their contents.
fn object_bytes(bytes: u64) -> u64 {
    bytes - bytes / 10
}

fn facts(id: ContainerId, state: ContainerState, bytes: u64, lifespans: &[(u32, Option<u32>)]) -> ContainerFacts {
    let lifespans = lifespans.iter().map(|(first, last)| Lifespan { first: *first, last: *last }).collect();
    ContainerFacts {
        id,
        state,
        layout: Layout::Lifecycle,
        chunks: 1,
        bytes,
        object_bytes: object_bytes(bytes),
        retired_chunks: 0,
        retired_bytes: 0,
        users: vec![SeriesLifespans { series: SERIES, lifespans }],
        forwards: Vec::new(),
    }
}

fn usage(container: ContainerId, bytes: u64) -> ContainerUsage {
    let object_bytes = object_bytes(bytes);
    ContainerUsage { container, chunks_used: 1, bytes_used: 1, chunks_held: 1, bytes_held: bytes, object_bytes }
}

fn open(first: u32) -> Category {
    Category { first, last: Last::Open }
}

fn closed(first: u32, last: u32) -> Category {
    Category { first, last: Last::Version(last) }
}

fn freed(bytes: u64, containers: u64, object_bytes: u64) -> Freed {
    Freed { bytes: ByteCount(bytes), containers, object_bytes: ByteCount(object_bytes) }
}

/// Three versions were arranged and a fourth ingested; numbers between them are those of other
/// series.
///
/// | container | has                                                                             |
/// |-----------|---------------------------------------------------------------------------------|
/// | 1/0       | retired: 40 bytes that 1 and 3 use are in 9/0, 60 that are still used in 9/1    |
/// | 3/0       | 100 bytes, of which 30 were used until 3, and 10 by nobody any more              |
/// | 6/0       | as it was stored by 6, and used                                                 |
/// | 8/0       | of 8, which was taken in only                                                   |
///
/// 8 is built on `since`.
fn scene(since: Option<u32>) -> Draft {
    let versions = [
        version(1, Progress::Arranged),
        version(3, Progress::Arranged),
        version(6, Progress::Arranged),
        version(8, Progress::Ingested),
    ];
    let mut draft = Draft::new(4, SERIES, versions.map(|version| (version, since)).to_vec());
    draft.container(&facts(data(1, 0), ContainerState::Arranged, 100, &[(1, None)]));
    draft.container(&facts(data(3, 0), ContainerState::Live, 100, &[(3, None)]));
    draft.container(&facts(data(6, 0), ContainerState::Live, 50, &[(6, None)]));
    draft.container(&facts(data(8, 0), ContainerState::Live, 20, &[(8, None)]));
    draft.container(&facts(data(9, 0), ContainerState::Live, 40, &[(1, Some(4))]));
    draft.container(&facts(data(9, 1), ContainerState::Live, 60, &[(1, None)]));
    draft.container(&facts(container(ContainerKind::Meta, 6, 0), ContainerState::Live, 10, &[(6, Some(7))]));
    let records = BTreeMap::from([
        (
            data(1, 0),
            vec![
                Extent { from: 0, length: 40, last: Some(4), to: Some((data(9, 0), 0)) },
                Extent { from: 40, length: 60, last: None, to: Some((data(9, 1), 0)) },
            ],
        ),
        (
            data(3, 0),
            vec![
                Extent { from: 0, length: 30, last: Some(5), to: None },
                Extent { from: 40, length: 60, last: None, to: None },
            ],
        ),
        (data(9, 0), Vec::new()),
        (data(9, 1), Vec::new()),
    ]);
    for name in draft.names() {
        let extents = records.get(&name).cloned().map(Extents);
        draft.extents(&name, extents.as_ref());
    }
    draft
}

#[test]
fn a_triangle_has_what_is_needed_by_first_and_last_version() {
    let categories = scene(Some(6)).finish();
    assert_eq!((categories.is_arranged(), categories.newest_arranged()), (false, Some(6)));
    let triangle = categories.triangle();
    let sizes: Vec<_> = triangle.iter().map(|(category, size)| (*category, size.bytes.0, size.containers)).collect();
    let expected = [(closed(1, 3), 40, 1), (open(1), 60, 1), (closed(3, 3), 30, 1), (open(3), 60, 1)];
    assert_eq!(sizes[..4], expected);
    assert_eq!(sizes[4..], [(open(6), 50, 1), (open(8), 20, 1)]);
    assert!(triangle.values().all(|size| size.needed == size.bytes && size.extents == 1));
    let volume = |containers, object_bytes, bytes, needed| Volume {
        containers,
        object_bytes: ByteCount(object_bytes),
        bytes: ByteCount(bytes),
        needed: ByteCount(needed),
    };
    let volumes = categories.volumes();
    assert_eq!(volumes[&Last::Version(3)], volume(1, 36, 40, 40));
    // Unneeded bytes are in the active container of version 3.
    assert_eq!(volumes[&Last::Open], volume(4, 54 + 90 + 45 + 18, 60 + 100 + 50 + 20, 60 + 90 + 50 + 20));
    assert_eq!(volumes.len(), 2);
}

#[test]
fn forgetting_frees_what_no_other_version_needs() {
    let categories = scene(Some(6)).finish();
    let alone = categories.freed_alone();
    assert_eq!(alone[0], freed(0, 0, 0), "everything that 1 uses, 3 uses too");
    assert_eq!(alone[1], freed(30, 0, 0), "the rest of its container is needed");
    assert_eq!(alone[2], freed(0, 0, 0), "8 names all that is left, and metadata does not count");
    assert_eq!(alone[3], freed(20, 1, 18));
    let together =
        |numbers: &[u32]| categories.freed(&numbers.iter().map(|number| JobId([*number as u8; 16])).collect());
    assert_eq!(together(&[]), Freed::default());
    assert_eq!(together(&[1, 3]), freed(40 + 30, 1, 36));
    assert_eq!(together(&[6, 8]), freed(50 + 20, 2, 45 + 18));
    assert_eq!(together(&[3, 6, 8]), freed(50 + 20 + 90, 3, 45 + 18 + 90));
    assert_eq!(together(&[1, 3, 6, 8]), freed(270 - 10, 5, 36 + 54 + 90 + 45 + 18));
}

/// The bases of a version may be unknown to every index, or older than versions that were arranged
/// since.
#[test]
fn what_a_version_may_use_that_was_not_arranged_is_not_free() {
    for (since, expected) in [(Some(6), (30, 70)), (Some(5), (0, 40)), (Some(3), (0, 0)), (None, (0, 0))] {
        let categories = scene(since).finish();
        let both = HashSet::from([JobId([1; 16]), JobId([3; 16])]);
        let found = (categories.freed_alone()[1].bytes.0, categories.freed(&both).bytes.0);
        assert_eq!(found, expected, "{since:?}");
    }
}

/// A version that no index knows needs all containers that it names, and has containers of its own.
#[test]
fn what_no_index_knows_is_known_by_its_manifest() {
    let versions = [version(1, Progress::Arranged), version(2, Progress::Committed), version(3, Progress::Committed)];
    let mut draft = Draft::new(4, SERIES, versions.map(|version| (version, None)).to_vec());
    draft.name(1, &[usage(data(1, 0), 100), usage(data(2, 0), 30)]);
    draft.name(2, &[usage(data(2, 0), 30), usage(data(3, 0), 20)]);
    draft.container(&facts(data(1, 0), ContainerState::Live, 100, &[(1, None)]));
    draft.container(&facts(data(1, 1), ContainerState::Live, 60, &[(1, None)]));
    // Of another series, and of none.
    let mut other = facts(data(1, 2), ContainerState::Live, 60, &[(1, None)]);
    other.users[0].series = SeriesKey([6; 16]);
    draft.container(&other);
    draft.container(&ContainerFacts { users: Vec::new(), ..other });
    for name in draft.names() {
        draft.extents(&name, None);
    }
    let categories = draft.finish();
    assert_eq!(categories.freed_alone(), [freed(60, 1, 54), freed(0, 0, 0), freed(20, 1, 18)]);
    assert_eq!(categories.freed(&HashSet::from([JobId([2; 16]), JobId([3; 16])])), freed(50, 2, 27 + 18));
    let sizes: Vec<_> = categories.triangle().into_iter().map(|(category, size)| (category, size.bytes.0)).collect();
    assert_eq!(sizes, [(open(1), 160), (open(2), 30), (open(3), 20)]);
    assert_eq!(Draft::new(0, SERIES, Vec::new()).finish().triangle(), BTreeMap::new());
}

/// A chunk of a history: the versions that use it are neighbours, and all of them were arranged.
#[derive(Debug, Clone)]
struct Chunk {
    name: usize,
    place: usize,
    bytes: u64,
    users: BTreeSet<u32>,
}

/// A history with some forgotten versions, arranged arbitrarily. Chunks that are no longer used are
/// together with others or not, and unneeded ones were dropped or not.
#[derive(Debug, Clone)]
struct History {
    retained: Vec<u32>,
    chunks: Vec<Chunk>,
    newest: u32,
    names: Vec<u32>,
    places: usize,
}

fn history() -> impl Strategy<Value = History> {
    (2u32..9).prop_flat_map(|newest| {
        let chunk = (0usize..12, 1u64..50, 0u32..9, 0usize..3, any::<bool>());
        let chunks = prop::collection::vec(chunk, 0..60);
        let names = prop::collection::vec(1..=newest, 12);
        let retained = prop::collection::btree_set(1..=newest, 1..=newest as usize);
        (Just(newest), chunks, names, retained).prop_map(|(newest, chunks, names, retained)| {
            let retained: Vec<u32> = retained.into_iter().collect();
            let chunks = chunks.into_iter().filter_map(|(name, bytes, more, moved, drops)| {
                let first = names[name];
                let users: BTreeSet<u32> = (first..=(first + more).min(newest)).collect();
                // In its place, or in one that has several.
                let place = if moved == 0 { name } else { 12 + (name + moved) % 5 };
                let is_needed = users.iter().any(|user| retained.contains(user));
                (is_needed || !drops).then_some(Chunk { name, place, bytes, users })
            });
            let chunks = chunks.collect();
            History { retained, chunks, newest, names, places: 17 }
        })
    })
}

impl History {
    fn id(&self, place: usize) -> ContainerId {
        if place < 12 { data(self.names[place], place as u32) } else { data(200, place as u32) }
    }

    fn held(&self, place: usize) -> u64 {
        self.chunks.iter().filter(|chunk| chunk.place == place).map(|chunk| chunk.bytes).sum::<u64>() + 7
    }

    /// As the index has it.
    fn categories(&self) -> Categories {
        let versions = self.retained.iter().map(|number| (version(*number, Progress::Arranged), None)).collect();
        let mut draft = Draft::new(1, SERIES, versions);
        let mut records: BTreeMap<ContainerId, Extents> = BTreeMap::new();
        let mut offsets = vec![0u32; self.places];
        for place in 0..self.places {
            let first = if place < 12 { self.names[place] } else { 1 };
            draft.container(&facts(self.id(place), ContainerState::Live, self.held(place), &[(first, None)]));
            records.insert(self.id(place), Extents::default());
        }
        for (name, _) in self.names.iter().enumerate() {
            let mut from = 0;
            for chunk in self.chunks.iter().filter(|chunk| chunk.name == name) {
                let length = chunk.bytes as u32;
                let last = chunk.users.last().copied().filter(|last| *last < self.newest);
                let to = (chunk.place >= 12).then(|| (self.id(chunk.place), offsets[chunk.place]));
                offsets[chunk.place] += length;
                let record = records.get_mut(&self.id(name)).expect("a name");
                record.push(Extent { from, length, last, to });
                from += length;
            }
        }
        for name in draft.names() {
            draft.extents(&name, records.get(&name));
        }
        draft.finish()
    }

    /// The same, chunk by chunk.
    fn freed(&self, gone: &[u32]) -> Freed {
        let needs = |chunk: &Chunk, without: &[u32]| {
            chunk.users.iter().any(|user| self.retained.contains(user) && !without.contains(user))
        };
        let mut freed = Freed::default();
        for chunk in self.chunks.iter().filter(|chunk| needs(chunk, &[]) && !needs(chunk, gone)) {
            freed.bytes.0 += chunk.bytes;
        }
        for place in 0..self.places {
            let of_place = || self.chunks.iter().filter(|chunk| chunk.place == place);
            if of_place().any(|chunk| needs(chunk, &[])) && !of_place().any(|chunk| needs(chunk, gone)) {
                freed.containers += 1;
                freed.object_bytes.0 += object_bytes(self.held(place));
            }
        }
        freed
    }
}

/// Versions, each with bases among those before it, or with unknown bases; some were arranged.
fn bases() -> impl Strategy<Value = Vec<(bool, Option<BTreeSet<usize>>)>> {
    let version = (any::<bool>(), prop::collection::btree_set(0usize..10, 0..4), prop::bool::weighted(0.9));
    prop::collection::vec(version, 1..10).prop_map(|versions| {
        let versions = versions.into_iter().enumerate();
        let known = versions.map(|(at, (arranged, bases, is_known))| {
            (arranged, is_known.then(|| bases.into_iter().filter(|base| *base < at).collect()))
        });
        known.collect()
    })
}

proptest! {
    /// The oracle visits all versions, newest first, and checks whether the last one may share data
    /// through them.
    #[test]
    fn a_version_may_use_what_the_oldest_of_its_bases_uses(versions in bases()) {
        let place = |id: JobId| usize::from(id.0[0]);
        let id = |place: usize| JobId([place as u8; 16]);
        let last = versions.len() - 1;
        let found = oldest_arranged_base(
            id(last),
            |base| versions[place(base)].0.then(|| 100 + place(base) as u32),
            |version| Some(versions[place(version)].1.as_ref()?.iter().map(|base| id(*base)).collect()),
        );
        let (mut built_on, mut arranged, mut is_known) = (BTreeSet::from([last]), BTreeSet::new(), true);
        for at in (0..=last).rev() {
            if !built_on.contains(&at) {
                continue;
            }
            if at != last && versions[at].0 {
                arranged.insert(100 + at as u32);
            } else if let Some(bases) = &versions[at].1 {
                built_on.extend(bases);
            } else {
                is_known = false;
            }
        }
        prop_assert_eq!(found, arranged.first().copied().filter(|_| is_known));
    }
}

proptest! {
    /// The oracle is a list of chunks with all of their users.
    #[test]
    fn whatever_is_forgotten_frees_what_only_that_needed(history in history(), gone in prop::collection::vec(1u32..9, 0..6)) {
        let categories = history.categories();
        let gone: Vec<u32> = gone.into_iter().filter(|number| history.retained.contains(number)).collect();
        let ids: HashSet<JobId> = gone.iter().map(|number| JobId([*number as u8; 16])).collect();
        prop_assert_eq!(categories.freed(&ids), history.freed(&gone));
        for (number, alone) in history.retained.iter().zip(categories.freed_alone()) {
            prop_assert_eq!(alone, history.freed(&[*number]));
        }
        let triangle = categories.triangle();
        let sum = |bytes: fn(&CategorySize) -> u64| triangle.values().map(bytes).sum::<u64>();
        prop_assert_eq!(sum(|size| size.bytes.0), history.chunks.iter().map(|chunk| chunk.bytes).sum::<u64>());
        let needed = history.freed(&history.retained);
        prop_assert_eq!(sum(|size| size.needed.0), needed.bytes.0);
        let volumes = categories.volumes();
        prop_assert_eq!(volumes.values().map(|volume| volume.needed.0).sum::<u64>(), needed.bytes.0);
    }
}

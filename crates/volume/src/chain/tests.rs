//! Each filter by itself, and together, with what they count.

use std::cell::Cell;
use std::collections::HashMap;

use larder_format::DecodeError;
use larder_format::volume_map::MapItem;

use super::*;
use crate::index::{PageCache, Runs};

/// A store of a few chunks, each with its container.
struct Fake {
    chunks: HashMap<Key, (Place, Vec<u8>)>,
    /// Whether the memory tables have them.
    in_memory: bool,
    runs: Runs,
    pages: PageCache,
    damaged: Option<u32>,
    closing: Option<u32>,
    loads: Cell<u32>,
}

impl Stored for Fake {
    fn in_memory(&self, keys: &mut dyn Iterator<Item = Key>) -> Vec<Option<Place>> {
        keys.map(|key| self.chunks.get(&key).filter(|_| self.in_memory).map(|(place, _)| *place)).collect()
    }

    fn runs(&self) -> &Runs {
        &self.runs
    }

    fn pages(&self) -> &PageCache {
        &self.pages
    }

    fn chunks_of(&self, container: u32) -> Result<Option<Vec<Entry>>, VolumeError> {
        self.loads.set(self.loads.get() + 1);
        self.look(container)?;
        let here = self.chunks.iter().filter(|(_, (place, _))| place.container == container);
        Ok(Some(here.map(|(key, (place, _))| (*key, place.offset)).collect()))
    }

    fn may_name(&self, place: Place) -> bool {
        self.closing != Some(place.container)
    }

    fn bytes_at(&self, place: Place, length: usize) -> Result<Vec<u8>, VolumeError> {
        self.look(place.container)?;
        let (_, bytes) = self.chunks.values().find(|(of, _)| *of == place).expect("a chunk is there");
        Ok(bytes[..bytes.len().min(length)].to_vec())
    }
}

impl Fake {
    fn look(&self, container: u32) -> Result<(), VolumeError> {
        match self.damaged == Some(container) {
            true => Err(VolumeError::damaged("a container")(DecodeError::NotAuthentic { what: "frame" })),
            false => Ok(()),
        }
    }
}

fn key(number: u8) -> Key {
    [number; 20]
}

fn place(number: u8) -> Place {
    Place { container: u32::from(number / 10), offset: u32::from(number) * 100 }
}

fn at(number: u8) -> Option<Answer> {
    Some(Answer::At(place(number)))
}

/// Chunks 1 to 99, ten in a container.
fn fake(in_memory: bool) -> Fake {
    let chunks = (1..100).map(|number| (key(number), (place(number), vec![number; 50]))).collect();
    let (runs, pages) = (Runs::default(), PageCache::new(0));
    Fake { chunks, in_memory, runs, pages, damaged: None, closing: None, loads: Cell::new(0) }
}

fn chain(filters: &str) -> Chain {
    Chain::new(&filters.parse().expect("filters"), 1 << 20)
}

/// Asks about chunks whose content has the number as its bytes; 0 is zeros.
fn ask(chain: &mut Chain, fake: &Fake, numbers: &[u8], old: [Option<&Mapping>; 2]) -> Vec<Option<Answer>> {
    let bytes: Vec<_> = numbers.iter().map(|number| vec![*number; 50]).collect();
    let asked: Vec<_> =
        numbers.iter().zip(&bytes).map(|(number, bytes)| Asked { key: key(*number), bytes, old }).collect();
    chain.find(fake, &asked).expect("nothing fails")
}

/// Asked, existing, strong, weak and non-existing of a filter.
fn counts(chain: &Chain, kind: FilterKind) -> [u64; 5] {
    let counter = chain.counters().iter().find(|counter| counter.kind == kind).map(Counter::counts);
    let FilterCounts { asked, existing, strong, weak, non_existing, .. } = counter.expect("it is in the chain");
    [asked, existing, strong, weak, non_existing]
}

fn mapping(numbers: &[u8]) -> Mapping {
    let item = |number: &u8| MapItem { place: Some(place(*number)), skip: 0, length: 50, tag: [*number; 4] };
    Mapping { mac: None, items: numbers.iter().map(item).collect() }
}

#[test]
fn zeros_are_found_first_and_not_looked_for() {
    let (mut chain, fake) = (chain("zero,index"), fake(true));
    assert_eq!(ask(&mut chain, &fake, &[0, 5, 200], [None, None]), [Some(Answer::Zeros), at(5), None]);
    assert_eq!(counts(&chain, FilterKind::Zero), [3, 1, 0, 2, 0]);
    assert_eq!(counts(&chain, FilterKind::Index), [2, 0, 1, 0, 1]);
    assert!(is_zeros(&[]) && is_zeros(&[0; 200]));
    for at in [0, 63, 64, 199] {
        let mut bytes = [0; 200];
        bytes[at] = 1;
        assert!(!is_zeros(&bytes), "{at}");
    }
}

#[test]
fn filters_of_runs_rule_out_and_memory_is_not_ruled_out() {
    let (mut chain, fake) = (chain("bloom,index"), fake(true));
    chain.update(key(150), place(9));
    assert_eq!(ask(&mut chain, &fake, &[5, 150, 200], [None, None]), [at(5), at(9), None]);
    assert_eq!(counts(&chain, FilterKind::Bloom), [3, 0, 0, 2, 1]);
    assert_eq!(counts(&chain, FilterKind::Index), [2, 0, 2, 0, 0]);
    // What a commit placed is forgotten with it.
    chain.end();
    assert_eq!(ask(&mut chain, &fake, &[150], [None, None]), [None]);
}

#[test]
fn the_old_mapping_and_the_one_before_are_confirmed_in_the_container() {
    let (mut chain, mut fake) = (chain("block,index"), fake(false));
    let (mut old, before) = (mapping(&[11, 12]), mapping(&[31]));
    // A tag that the chunk does not have.
    old.items[1].tag = [200; 4];
    let found = ask(&mut chain, &fake, &[11, 31, 200, 40], [Some(&old), Some(&before)]);
    assert_eq!(found, [at(11), at(31), None, None]);
    assert_eq!(counts(&chain, FilterKind::Block), [4, 0, 2, 2, 0]);
    assert_eq!(counts(&chain, FilterKind::Index), [2, 0, 0, 0, 2]);
    assert_eq!(fake.loads.get(), 2);
    // A damaged container is no reason to refuse a write.
    fake.damaged = Some(5);
    let old = mapping(&[51]);
    assert_eq!(ask(&mut chain, &fake, &[51], [Some(&old), None]), [None]);
}

#[test]
fn a_container_that_is_hit_often_answers_from_memory() {
    let (mut chain, mut fake) = (chain("cache,index"), fake(true));
    ask(&mut chain, &fake, &[11, 12, 13, 21], [None, None]);
    assert_eq!(fake.loads.get(), 0);
    ask(&mut chain, &fake, &[11, 12, 13, 14, 21], [None, None]);
    assert_eq!(fake.loads.get(), 1);
    fake.in_memory = false;
    assert_eq!(ask(&mut chain, &fake, &[19, 21], [None, None]), [at(19), None]);
    assert_eq!(counts(&chain, FilterKind::Cache), [11, 0, 1, 10, 0]);
    chain.forget_container(1);
    assert_eq!(ask(&mut chain, &fake, &[19], [None, None]), [None]);
}

#[test]
fn no_filter_names_a_container_that_is_about_to_retire() {
    let chunks = [11, 12, 13, 14, 21];
    let new_then = [None, None, None, None, at(21)];
    let old = mapping(&chunks);
    for filters in ["index", "bloom,index", "cache,index", "block,index", "block,cache", "index,bytes"] {
        let (mut chain, mut fake) = (chain(filters), fake(true));
        let before = ask(&mut chain, &fake, &chunks, [Some(&old), None]);
        assert_eq!(before, chunks.map(at), "{filters}");
        fake.closing = Some(1);
        assert_eq!(ask(&mut chain, &fake, &chunks, [Some(&old), None]), new_then, "{filters}");
        chain.forget_container(1);
        assert_eq!(ask(&mut chain, &fake, &chunks, [Some(&old), None]), new_then, "{filters}");
    }
}

#[test]
fn known_containers_are_bounded_and_the_least_used_goes_first() {
    let fake = fake(false);
    let mut known = KnownContainers::new(25 * 72);
    for container in [1, 2, 1, 3] {
        known.load(container, &fake).expect("it loads");
        assert!(known.find(&key(11)).is_some(), "container 1 is in use");
    }
    assert!(known.find(&key(21)).is_none() && known.find(&key(31)).is_some());
    // One always has room.
    let mut known = KnownContainers::new(0);
    for container in [1, 2] {
        known.load(container, &fake).expect("it loads");
    }
    assert!(known.find(&key(21)).is_some() && known.find(&key(11)).is_none());
}

#[test]
fn bytes_are_compared_and_other_bytes_end_the_request() {
    let (mut chain, mut fake) = (chain("index,bytes"), fake(true));
    assert_eq!(ask(&mut chain, &fake, &[5, 200], [None, None]), [at(5), None]);
    assert_eq!(counts(&chain, FilterKind::Bytes), [1, 1, 0, 0, 0]);
    // A stored chunk that does not open is stored again.
    fake.damaged = Some(0);
    assert_eq!(ask(&mut chain, &fake, &[5], [None, None]), [None]);
    assert_eq!(counts(&chain, FilterKind::Bytes), [2, 1, 0, 0, 1]);
    // Chunks of this commit are not read.
    chain.update(key(150), place(9));
    assert_eq!(ask(&mut chain, &fake, &[150], [None, None]), [at(9)]);
    assert_eq!(counts(&chain, FilterKind::Bytes), [3, 1, 0, 1, 1]);
    fake.damaged = None;
    for bytes in [&[5; 49][..], &[6; 50], &[5; 51]] {
        let asked = [Asked { key: key(5), bytes, old: [None, None] }];
        match chain.find(&fake, &asked) {
            Ok(found) => assert_eq!((found, bytes.len()), (vec![at(5)], 49), "a beginning is equal"),
            Err(error) => assert!(matches!(error, VolumeError::Collision { container: 0, offset: 500 }), "{error}"),
        }
    }
}

#[test]
fn no_filters_find_nothing() {
    let (mut chain, fake) = (chain("mac"), fake(true));
    chain.update(key(150), place(9));
    assert_eq!(ask(&mut chain, &fake, &[0, 5, 150], [None, None]), [None, None, None]);
}

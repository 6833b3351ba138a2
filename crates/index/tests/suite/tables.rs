//! The typed tables: a pass changes them, publishes, and the next one and the L-nodes read what it meant.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;

use crate::support::*;
use larder_format::extents::{Extent, Extents};
use larder_format::ids::{ContainerId, ContainerKind, JobId, SeriesKey};
use larder_format::index_manifest::{IndexManifest, Table};
use larder_format::index_tables::{
    ChunkKey, ChunkPlace, ContainerFacts, ContainerState, Lifespan, SeriesLifespans, StreamKey,
};
use larder_index::{
    Changes, Chunks, ContainerExtents, Containers, Current, Draft, IndexError, IndexSnapshot, LookupOptions, MergePlan,
    Published, Streams, TableView, TypedTable, in_parallel, publish,
};
use larder_testkit::Stop;

fn chunk(number: u64) -> ChunkKey {
    ChunkKey(chunk_key(number).try_into().expect("20 bytes"))
}

fn place(number: u64) -> ChunkPlace {
    ChunkPlace { container: number as u32 / 100, chunk: number as u32 % 100 }
}

fn container(seq: u32) -> ContainerId {
    ContainerId { kind: ContainerKind::Data, job: JobId([2; 16]), seq }
}

fn facts(number: u32) -> ContainerFacts {
    let lifespans = vec![Lifespan { first: number, last: None }];
    ContainerFacts {
        id: container(number),
        state: ContainerState::Live,
        layout: larder_format::layout::Layout::Standard,
        chunks: 100,
        bytes: 1 << 20,
        object_bytes: 1 << 19,
        retired_chunks: 0,
        retired_bytes: 0,
        users: vec![SeriesLifespans { series: SeriesKey([number as u8; 16]), lifespans }],
        forwards: Vec::new(),
    }
}

fn stream(sample: u64, series: u8) -> StreamKey {
    StreamKey { sample, series: SeriesKey([series; 16]) }
}

fn changes<T: TypedTable>(
    engine: &Engine,
    records: impl IntoIterator<Item = (T::Key, Option<T::Value>)>,
) -> Changes<T> {
    let mut changes = engine.pass.changes::<T>().expect("begins");
    for (key, value) in records {
        match value {
            Some(value) => changes.put(&key, &value).expect("collected"),
            None => changes.remove(&key).expect("collected"),
        }
    }
    changes
}

impl Engine {
    fn newest(&self) -> IndexSnapshot {
        let current = self.runtime.block_on(Current::look(&self.io.repository));
        current.expect("read").base().expect("whole")
    }

    /// Publishes under the next number.
    fn publish(&self, manifest: IndexManifest) -> Result<Published, IndexError> {
        self.runtime.block_on(async {
            let turn = Current::settle(&self.io.repository).await?.turn()?;
            publish(&self.io.repository, &turn, manifest).await
        })
    }

    fn view<T: TypedTable>(&self, index: &IndexSnapshot) -> TableView<T> {
        TableView::new(self.io.clone(), &index.manifest.runs, LookupOptions::default())
    }

    fn get<T: TypedTable>(&self, index: &IndexSnapshot, keys: &[T::Key]) -> Vec<Option<T::Value>> {
        self.runtime.block_on(self.view::<T>(index).get(keys)).expect("can be read")
    }

    /// A first pass: 5,000 chunks in 50 containers, some samples.
    fn first_pass(&self) -> Result<Published, IndexError> {
        let mut draft = Draft::empty(&self.pass);
        draft.apply(changes::<Chunks>(self, (0..5000).map(|n| (chunk(n), Some(place(n))))))?;
        draft.apply(changes::<Containers>(self, (0..50).rev().map(|n| (n, Some(facts(n))))))?;
        draft.apply(changes::<ContainerExtents>(self, []))?;
        let samples = [(5, 1, 7), (5, 2, 8), (6, 1, 7), (5, 1, 9)];
        let samples = samples.map(|(sample, series, version)| (stream(sample, series), Some(version)));
        draft.apply(changes::<Streams>(self, samples))?;
        draft.manifest.head.next_container = 50;
        self.publish(draft.manifest)
    }

    /// A second: every tenth chunk moves, one goes, a container goes. Runs are merged where it is time, and those of containers anyway.
    fn second_pass(&self, base: &IndexSnapshot) -> Result<Published, IndexError> {
        let mut draft = Draft::new(&self.pass, base);
        let moved = (0..500).map(|n| (chunk(n * 10), Some(ChunkPlace { container: 99, chunk: n as u32 })));
        draft.apply(changes::<Chunks>(self, moved.chain([(chunk(7), None)])))?;
        let given_up = ContainerFacts { retired_chunks: 10, forwards: vec![99], ..facts(3) };
        draft.apply(changes::<Containers>(self, [(3, Some(given_up)), (4, None)]))?;
        draft.apply(changes::<ContainerExtents>(self, [(container(3), Some(extents()))]))?;
        for table in Table::ALL {
            draft.merge(table)?;
        }
        let all = MergePlan::full(draft.manifest.runs_of(Table::Containers)).expect("two ages");
        draft.merge_planned(Table::Containers, &all, 0..=u64::MAX)?;
        self.publish(draft.manifest)
    }

    fn is_as_after_the_first(&self, index: &IndexSnapshot) {
        let got = self.get::<Chunks>(index, &[chunk(11), chunk(10), chunk(7), chunk(9999)]);
        assert_eq!(got, [Some(place(11)), Some(place(10)), Some(place(7)), None]);
        assert_eq!(self.get::<Containers>(index, &[4, 50]), [Some(facts(4)), None]);
        assert_eq!(self.get::<ContainerExtents>(index, &[container(3)]), [None]);
    }

    fn is_as_after_the_second(&self, index: &IndexSnapshot) {
        let got = self.get::<Chunks>(index, &[chunk(11), chunk(10), chunk(7), chunk(9999)]);
        assert_eq!(got, [Some(place(11)), Some(ChunkPlace { container: 99, chunk: 1 }), None, None]);
        let mut numbers = Vec::new();
        for record in self.view::<Containers>(index).scan(0..=u64::MAX, 1 << 20) {
            let (number, found) = record.expect("read");
            let found = found.expect("no tombstones");
            assert_eq!((found.id.seq, found.retired_chunks), (number, if number == 3 { 10 } else { 0 }));
            numbers.push(number);
        }
        assert_eq!(numbers, (0..50).filter(|n| *n != 4).collect::<Vec<_>>());
        assert_eq!(self.get::<ContainerExtents>(index, &[container(2), container(3)]), [None, Some(extents())]);
        let streams = self.view::<Streams>(index);
        let of = |samples: &[u64]| self.runtime.block_on(streams.streams_of(samples)).expect("read");
        assert_eq!(of(&[7, 5]), [(stream(5, 1), 9), (stream(5, 2), 8)]);
        assert_eq!(of(&[6, 5, 6]), [(stream(5, 1), 9), (stream(5, 2), 8), (stream(6, 1), 7)]);
        assert_eq!(of(&[7]), []);
    }
}

fn extents() -> Extents {
    Extents(vec![Extent { from: 0, length: 10, last: Some(3), to: Some((container(9), 50)) }])
}

fn won(published: Result<Published, IndexError>) {
    assert!(matches!(published, Ok(Published::Won { all_answered: true, .. })), "{published:?}");
}

#[test]
fn what_passes_write_is_what_the_next_reads() {
    let engine = Engine::new();
    won(engine.first_pass());
    let first = engine.newest();
    engine.is_as_after_the_first(&first);
    won(engine.second_pass(&engine.newest()));
    engine.is_as_after_the_second(&engine.newest());
    // Who has the old snapshot still reads it: nothing was changed.
    engine.is_as_after_the_first(&first);
    // The changes of the second pass were small beside the chunks, which were left alone.
    let newest = engine.newest();
    assert!(first.runs_of(Table::Chunks).iter().all(|run| newest.runs_of(Table::Chunks).contains(run)));
}

/// A join, as reverse deduplication does it.
#[test]
fn a_join_tells_of_every_query_what_the_table_has() {
    let engine = Engine::new();
    won(engine.first_pass());
    won(engine.second_pass(&engine.newest()));
    let chunks = engine.view::<Chunks>(&engine.newest());
    let asked = (0..6000).map(|n| (chunk(n), Some(ChunkPlace { container: 1000, chunk: n as u32 })));
    let mut cursor = changes::<Chunks>(&engine, asked).sorted().expect("sorted").into_cursor();
    let mut known = 0;
    chunks
        .join(&mut cursor, 1 << 20, |key, asked, found| {
            let number = ChunkPlace::decode(asked.expect("a value")).expect("reads").chunk;
            assert_eq!(key, chunk(number.into()));
            assert_eq!(found.is_some(), number < 5000 && number != 7);
            known += u32::from(found.is_some());
            Ok(())
        })
        .expect("joined");
    assert_eq!(known, 4999);
    assert_eq!(chunks.records_at_most(), 5500);
    assert_eq!(chunks.partitions(NonZeroUsize::new(3).expect("not 0")).len(), 1);
}

/// Partitions are worked on in threads: each joins its queries with its part of the table and writes a run of its own, and the
/// runs have one age.
#[test]
fn partitions_are_worked_on_in_parallel() {
    let engine = Engine::with(1 << 20, larder_format::ids::ByteCount::kib(40));
    won(engine.first_pass());
    let base = engine.newest();
    let mut draft = Draft::new(&engine.pass, &base);
    let chunks = draft.view::<Chunks>(LookupOptions::streaming(1 << 20));
    let parts = chunks.partitions(NonZeroUsize::new(4).expect("not 0"));
    assert_eq!(parts.len(), 4);
    let mut queries = engine.pass.partitioned::<Chunks>(parts).expect("begins");
    for number in 0..10_000 {
        let place = ChunkPlace { container: 99, chunk: number as u32 };
        if number == 7 { queries.remove(&chunk(7)) } else { queries.put(&chunk(number), &place) }.expect("collected");
    }
    let age = draft.manifest.head.next_age;
    let work = |(_, queries): (RangeInclusive<u64>, Changes<Chunks>)| {
        let (mut writer, mut known) = (engine.pass.writer::<Chunks>(age), 0);
        let mut new = Vec::new();
        chunks.join(&mut queries.sorted()?.into_cursor(), 1 << 16, |key, query, found| {
            known += u64::from(found.is_some());
            if found.is_none() {
                new.push((key, query.map(<[u8]>::to_vec)));
            }
            Ok(())
        })?;
        for (key, value) in &new {
            writer.push(key.as_ref(), value.as_deref())?;
        }
        Ok::<_, IndexError>((known, writer.finish()?))
    };
    let done = in_parallel(engine.pass.threads, queries.into_parts(), work).expect("done");
    assert_eq!(done.iter().map(|(known, _)| known).sum::<u64>(), 5000);
    draft.add(done.into_iter().flat_map(|(_, runs)| runs).collect());
    assert_eq!(draft.manifest.head.next_age, age + 1);
    won(engine.publish(draft.manifest));
    let got = engine.get::<Chunks>(&engine.newest(), &[chunk(3), chunk(9000)]);
    assert_eq!(got, [Some(place(3)), Some(ChunkPlace { container: 99, chunk: 9000 })]);
}

#[test]
fn what_a_draft_does_not_use_any_more_is_told() {
    let engine = Engine::new();
    won(engine.first_pass());
    let base = engine.newest();
    let mut draft = Draft::new(&engine.pass, &base);
    assert_eq!(draft.superseded(), []);
    draft.apply(changes::<Chunks>(&engine, (0..4000).map(|n| (chunk(n), None)))).expect("applied");
    let between = draft.manifest.runs_of(Table::Chunks).to_vec();
    assert!(draft.merge(Table::Chunks).expect("merged"));
    // Both the base's objects and those that lived only between.
    let mut expected: Vec<_> = between.iter().map(|run| run.id).collect();
    expected.sort();
    assert_eq!(draft.superseded(), expected);
    let of_base: Vec<_> = base.runs_of(Table::Chunks).iter().map(|run| run.id).collect();
    expected.retain(|id| !of_base.contains(id));
    assert!(!expected.is_empty());
    assert_eq!(draft.intermediate(), expected);
    expected.extend(of_base);
    assert_eq!(draft.view::<Chunks>(LookupOptions::default()).records_at_most(), 1000);
    draft.clear(Table::Streams);
    assert_eq!(draft.superseded().len(), expected.len() + base.runs_of(Table::Streams).len());
    assert!(!draft.merge(Table::Chunks).expect("nothing to do"));
}

/// A pass that is cut off at any request leaves the old index or the new one, whole.
#[test]
fn a_crash_at_any_request_leaves_one_index_or_the_other() {
    let engine = Engine::new();
    won(engine.first_pass());
    let began = engine.memory.snapshot();
    let count = {
        let (base, before) = (engine.newest(), engine.faults.count());
        won(engine.second_pass(&base));
        engine.faults.count() - before
    };
    assert!(count >= 8, "{count}");
    let mut outcomes = [0; 2];
    for cut in 0..count {
        for stop in [Stop::Before, Stop::After] {
            let engine = Engine::over(&began.snapshot());
            let base = engine.newest();
            engine.faults.stop_at(engine.faults.count() + cut, stop);
            // What the pass itself believes is tested elsewhere.
            let _ = engine.second_pass(&base);
            engine.faults.clear();
            let newest = engine.newest();
            match newest.number {
                1 => engine.is_as_after_the_first(&newest),
                2 => engine.is_as_after_the_second(&newest),
                number => panic!("index {number}"),
            }
            outcomes[newest.number as usize - 1] += 1;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

/// A record that is no record, in a run that is whole: the table and the key are named.
#[test]
fn a_wrong_record_is_named() {
    let engine = Engine::new();
    let records: Oracle = [(7u32.to_be_bytes().to_vec(), Some(b"garbage".to_vec()))].into();
    let runs = engine.write(Containers::TABLE, 0, larder_index::OBJECT_TARGET, &records);
    let containers: TableView<Containers> = TableView::new(engine.io.clone(), &runs, LookupOptions::default());
    let error = engine.runtime.block_on(containers.get(&[7])).expect_err("garbage");
    assert!(matches!(&error, IndexError::WrongRecord { .. }) && error.to_string().contains("00000007"), "{error}");
    assert!(containers.scan(0..=u64::MAX, 1 << 20).next().is_some_and(|record| record.is_err()));
    assert!(containers.join(&mut InMemory::new(&records), 1 << 20, |_, _, _| Ok(())).is_err());
    assert!(error.is_damage());
}

//! The typed tables: a pass changes them, publishes, and the next one and the L-nodes read what it meant.

mod support;

use std::num::NonZeroUsize;

use larder_format::ids::{ContainerId, ContainerKind, JobId, SeriesKey};
use larder_format::index_tables::{
    ChunkKey, ChunkPlace, ChunkSet, ContainerFacts, ContainerState, Lifespan, SeriesLifespans, StreamKey,
};
use larder_index::{
    Changes, Chunks, Containers, Cursor, Holes, IndexError, IndexSnapshot, LookupOptions, Published, Streams,
    TableView, TypedTable, publish,
};
use support::*;

fn chunk(number: u64) -> ChunkKey {
    ChunkKey(chunk_key(number).try_into().expect("20 bytes"))
}

fn place(number: u64) -> ChunkPlace {
    ChunkPlace { container: number as u32 / 100, chunk: number as u32 % 100 }
}

fn facts(number: u32) -> ContainerFacts {
    let lifespans = vec![Lifespan { first: number, last: None }];
    ContainerFacts {
        id: ContainerId { kind: ContainerKind::Data, job: JobId([2; 16]), seq: number },
        state: ContainerState::Live,
        chunks: 100,
        bytes: 1 << 20,
        object_bytes: 1 << 19,
        given_up_chunks: 0,
        given_up_bytes: 0,
        users: vec![SeriesLifespans { series: SeriesKey([number as u8; 16]), lifespans }],
        forwards: Vec::new(),
    }
}

fn view<T: TypedTable>(engine: &Engine, index: &IndexSnapshot) -> TableView<T> {
    TableView::new(engine.io.clone(), &index.manifest.runs, LookupOptions::default())
}

fn stream(sample: u64, series: u8) -> StreamKey {
    StreamKey { sample, series: SeriesKey([series; 16]) }
}

#[test]
fn what_passes_write_is_what_the_next_reads() {
    let engine = Engine::new();
    let folder = tempfile::tempdir().expect("temporary folder");
    let changes = |memory| (memory, folder.path());
    let new = |(memory, folder)| Changes::<Chunks>::new(&engine.io, memory, folder).expect("begins");
    // The first pass.
    let mut chunks = new(changes(50_000));
    (0..5000).for_each(|n| chunks.put(&chunk(n), &place(n)).expect("collected"));
    assert_eq!(chunks.count(), 5000);
    let mut containers = Changes::<Containers>::new(&engine.io, 10_000, folder.path()).expect("begins");
    (0..50).rev().for_each(|n| containers.put(&n, &facts(n)).expect("collected"));
    let mut streams = Changes::<Streams>::new(&engine.io, 10_000, folder.path()).expect("begins");
    for (sample, series, version) in [(5, 1, 7), (5, 2, 8), (6, 1, 7), (5, 1, 9)] {
        streams.put(&stream(sample, series), &version).expect("collected");
    }
    let mut first = manifest(1);
    first.runs.extend(chunks.write(&engine.io, &engine.ids, 0).expect("written"));
    first.runs.extend(containers.write(&engine.io, &engine.ids, 1).expect("written"));
    first.runs.extend(streams.write(&engine.io, &engine.ids, 2).expect("written"));
    first.head.next_age = 3;
    let published = engine.runtime.block_on(publish(&engine.io.repository, 1, first)).expect("published");
    assert!(matches!(published, Published::Won { all_answered: true, .. }));
    // The second: some chunks move, some containers go.
    let newest = |engine: &Engine| {
        let newest = engine.runtime.block_on(IndexSnapshot::newest(&engine.io.repository));
        newest.expect("read").base().expect("whole")
    };
    let base = newest(&engine);
    let mut moved = new(changes(50_000));
    (0..500)
        .for_each(|n| moved.put(&chunk(n * 10), &ChunkPlace { container: 99, chunk: n as u32 }).expect("collected"));
    moved.remove(&chunk(7)).expect("collected");
    let mut containers = Changes::<Containers>::new(&engine.io, 10_000, folder.path()).expect("begins");
    containers.put(&3, &ContainerFacts { given_up_chunks: 10, forwards: vec![99], ..facts(3) }).expect("collected");
    containers.remove(&4).expect("collected");
    let mut holes = Changes::<Holes>::new(&engine.io, 10_000, folder.path()).expect("begins");
    let mut set = ChunkSet::new(100);
    assert!(set.insert(0) && set.insert(10));
    holes.put(&3, &set).expect("collected");
    let mut second = (*base.manifest).clone();
    second.runs.extend(moved.write(&engine.io, &engine.ids, 3).expect("written"));
    second.runs.extend(containers.write(&engine.io, &engine.ids, 4).expect("written"));
    second.runs.extend(holes.write(&engine.io, &engine.ids, 5).expect("written"));
    second.head.next_age = 6;
    engine.runtime.block_on(publish(&engine.io.repository, 2, second)).expect("published");
    // Both are read: the old snapshot too.
    let chunks = view::<Chunks>(&engine, &newest(&engine));
    let got = engine.runtime.block_on(chunks.get(&[chunk(11), chunk(10), chunk(7), chunk(9999)])).expect("read");
    assert_eq!(got, [Some(place(11)), Some(ChunkPlace { container: 99, chunk: 1 }), None, None]);
    let old = view::<Chunks>(&engine, &base);
    assert_eq!(engine.runtime.block_on(old.get(&[chunk(10)])).expect("read"), [Some(place(10))]);
    let containers = view::<Containers>(&engine, &newest(&engine));
    let mut scan = containers.scan(0..=u64::MAX, 1 << 20);
    let mut numbers = Vec::new();
    while let Some((number, found)) = scan.next().expect("read") {
        let found = found.expect("no tombstones");
        assert_eq!((found.id.seq, found.given_up_chunks), (number, if number == 3 { 10 } else { 0 }));
        numbers.push(number);
    }
    assert_eq!(numbers, (0..50).filter(|n| *n != 4).collect::<Vec<_>>());
    let holes = view::<Holes>(&engine, &newest(&engine));
    assert_eq!(engine.runtime.block_on(holes.get(&[2, 3])).expect("read"), [None, Some(set)]);
    let streams = view::<Streams>(&engine, &newest(&engine));
    let of_5 = engine.runtime.block_on(streams.streams_of(5)).expect("read");
    assert_eq!(of_5, [(stream(5, 1), 9), (stream(5, 2), 8)]);
    assert_eq!(engine.runtime.block_on(streams.streams_of(7)).expect("read"), []);
    // A join, as reverse deduplication does it.
    let mut asked = new(changes(20_000));
    (0..6000).for_each(|n| asked.put(&chunk(n), &ChunkPlace { container: 1000, chunk: n as u32 }).expect("collected"));
    let mut cursor = asked.sorted().expect("sorted").into_cursor();
    let mut known = 0;
    chunks
        .join(&mut cursor, 1 << 20, |key, asked, found| {
            let number = ChunkPlace::decode(asked.expect("a value")).expect("reads").chunk;
            assert_eq!(key, chunk(number.into()));
            known += u32::from(found.is_some());
            Ok(())
        })
        .expect("joined");
    assert_eq!(known, 4999);
    assert_eq!(chunks.records_at_most(), 5500);
    assert_eq!(chunks.partitions(NonZeroUsize::new(3).expect("not 0")).len(), 1);
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
    assert!(containers.scan(0..=u64::MAX, 1 << 20).next().is_err());
    assert!(containers.join(&mut InMemory::new(&records), 1 << 20, |_, _, _| Ok(())).is_err());
    assert!(error.is_damage());
    assert!(!InMemory::new(&Oracle::new()).advance().expect("empty"));
}

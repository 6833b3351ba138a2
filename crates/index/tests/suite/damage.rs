//! Every object of an index that is missing, cut, changed or swapped is an error that names it: never other records.

use crate::support::*;
use larder_format::ids::ByteCount;
use larder_format::index_manifest::{RunRef, Table};
use larder_format::names;
use larder_index::{Cursor, IndexError, LookupOptions, Tombstones};
use larder_testkit::{Failure, Fault, OpKind, Times, When};

struct Play {
    engine: Engine,
    runs: Vec<RunRef>,
    keys: Vec<Vec<u8>>,
}

impl Play {
    fn new() -> Self {
        let engine = Engine::new();
        let mut runs = Vec::new();
        let mut keys = Vec::new();
        for age in 0..2 {
            let records: Oracle = (0..6000).map(|n| (chunk_key(n * 2 + age), Some(vec![age as u8; 8]))).collect();
            keys.extend(records.keys().cloned());
            runs.extend(engine.write(Table::Chunks, age, ByteCount::kib(100), &records));
        }
        keys.sort();
        Self { engine, runs, keys }
    }

    fn scan(&self) -> Result<usize, IndexError> {
        let mut scan = self.engine.scan(&self.runs, 0..=u64::MAX, Tombstones::Drop);
        let mut count = 0;
        while scan.advance()? {
            count += 1;
        }
        Ok(count)
    }

    fn lookup(&self) -> Result<usize, IndexError> {
        let reader = self.engine.reader(&self.runs, LookupOptions::default());
        let found = self.engine.lookup(&reader, &self.keys)?;
        Ok(found.iter().filter(|value| value.is_some()).count())
    }

    /// Both ways to read fail and name the object. A damaged filter hurts only those who ask it.
    fn fails_with(&self, name: &str, what: &str, is_filter: bool) {
        let scanned = if is_filter { None } else { Some(self.scan()) };
        let verified = self.runs.iter().try_for_each(|run| {
            self.engine.runtime.block_on(larder_index::verify_run(&self.engine.io.repository, run))
        });
        for result in scanned.into_iter().chain([self.lookup(), verified.map(|()| 0)]) {
            let error = result.expect_err(what);
            assert!(error.to_string().contains(name), "{what}: {error} does not name {name}");
            assert!(error.is_damage(), "{what}: {error}");
        }
    }

    fn with(&self, name: &str, what: &str, is_filter: bool, change: impl FnOnce(&mut Vec<u8>)) {
        let runtime = &self.engine.runtime;
        let valid = runtime.block_on(self.engine.memory.get(name)).expect("there");
        runtime.block_on(self.engine.memory.change(name, change));
        self.fails_with(name, what, is_filter);
        runtime.block_on(self.engine.memory.put(name, valid));
    }
}

#[test]
fn every_damaged_object_is_named() {
    let play = Play::new();
    assert!(play.runs.len() > 3);
    assert_eq!((play.scan().expect("whole"), play.lookup().expect("whole")), (12_000, 12_000));
    for run in &play.runs {
        let name = names::run(run.id);
        let len = run.object_bytes as usize;
        let tail = len - run.tail_bytes as usize;
        let filter = tail - run.filter_bytes as usize;
        for at in [0, filter / 2, filter - 1, tail, len - 60, len - 3] {
            play.with(&name, "flipped", false, |bytes| bytes[at] ^= 4);
        }
        play.with(&name, "a flipped filter", true, |bytes| bytes[filter + 100] ^= 4);
        let runtime = &play.engine.runtime;
        let valid = runtime.block_on(play.engine.memory.get(&name)).expect("there");
        runtime.block_on(play.engine.memory.remove(&name));
        play.fails_with(&name, "missing", false);
        runtime.block_on(play.engine.memory.put(&name, valid));
    }
    assert_eq!((play.scan().expect("whole"), play.lookup().expect("whole")), (12_000, 12_000));
}

/// An object that lost its end is asked for four times, so this runs on a clock of its own.
#[test]
fn a_truncated_object_is_named() {
    let play = Play::new();
    let run = play.runs[1];
    // Only the part that is asked for must be there, but that is the end.
    play.with(&names::run(run.id), "truncated", false, |bytes| bytes.truncate(bytes.len() - 1));
}

#[test]
fn swapped_objects_are_noticed() {
    let play = Play::new();
    let (a, b) = (names::run(play.runs[0].id), names::run(play.runs[1].id));
    let runtime = &play.engine.runtime;
    let of_b = runtime.block_on(play.engine.memory.get(&b)).expect("there");
    play.with(&a, "another run", false, |bytes| *bytes = of_b.to_vec());
}

/// A manifest that speaks of other runs than there are: a mistake of a program that has the key.
#[test]
fn a_run_that_is_not_what_the_manifest_says_is_noticed() {
    let mut play = Play::new();
    let valid = play.runs[0];
    let name = names::run(valid.id);
    for wrong in [
        RunRef { records: valid.records + 1, ..valid },
        RunRef { tombstones: 1, ..valid },
        RunRef { table: Table::Streams, ..valid },
        RunRef { filter_bytes: valid.filter_bytes - 1, ..valid },
        RunRef { object_bytes: valid.object_bytes - 4, ..valid },
        RunRef { tail_bytes: valid.tail_bytes - 1, ..valid },
    ] {
        play.runs[0] = wrong;
        play.fails_with(&name, &format!("{wrong:?}"), false);
    }
}

/// Such mistakes make readers miss records, and so only `check` sees them.
#[test]
fn a_range_that_is_wider_than_its_run_is_noticed_by_check() {
    let play = Play::new();
    let verify = |run: &RunRef| play.engine.runtime.block_on(larder_index::verify_run(&play.engine.io.repository, run));
    let valid = play.runs[1];
    assert!(verify(&valid).is_ok());
    assert!(verify(&RunRef { first: valid.first + 1, last: valid.last - 1, ..valid }).is_ok(), "a part of it");
    for wrong in [RunRef { first: valid.first - 1, ..valid }, RunRef { last: valid.last + 1, ..valid }] {
        let error = verify(&wrong).expect_err("wider");
        assert!(error.is_damage() && error.to_string().contains(&names::run(valid.id)), "{error}");
    }
}

/// A name that is taken is not ours: what lies there would not open.
#[test]
fn a_planted_run_stops_the_writer() {
    let engine = Engine::new();
    engine.runtime.block_on(engine.memory.put(&format!("index/runs/{PASS}/0"), &b"garbage"[..]));
    let mut writer =
        larder_index::RunWriter::new(&engine.io, &engine.pass.ids, Table::Chunks, 0, larder_index::OBJECT_TARGET);
    writer.push(&[1; 20], Some(&[1; 8])).expect("collected");
    let error = writer.finish().expect_err("taken");
    assert!(error.to_string().contains("index/runs/"), "{error}");
}

#[test]
fn a_store_that_fails_is_no_damage() {
    let play = Play::new();
    play.engine.faults.add(When::kind(OpKind::Get), Fault::FailBefore(Failure::Denied), Times::First(1000));
    for result in [play.scan(), play.lookup()] {
        assert!(!result.expect_err("denied").is_damage());
    }
}

//! Merges read and write at once. A store gives them few requests at a time.

use std::num::NonZeroUsize;
use std::sync::mpsc::channel;
use std::time::Duration;

use larder_format::ids::ByteCount;
use larder_format::index_manifest::Table;
use larder_index::{LookupOptions, MergePlan};
use larder_store::StoreOptions;
use larder_testkit::{Fault, OpKind, Times, When};

use crate::support::*;

/// Records of an age: more than all that its scan reads ahead.
const RECORDS: u64 = 200_000;

#[test]
fn a_merge_ends_with_one_request_at_a_time() {
    let first = Engine::with(4 << 20, ByteCount::kib(512));
    let records = |age: u64| -> Oracle {
        (0..RECORDS).map(|number| (chunk_key(number * 4 + age), Some(vec![age as u8; 8]))).collect()
    };
    let runs: Vec<_> =
        (1..4).flat_map(|age| first.write(Table::Chunks, age, ByteCount::kib(512), &records(age))).collect();
    let options = StoreOptions { concurrency: NonZeroUsize::MIN, ..StoreOptions::default() };
    let (sender, ended) = channel();
    let memory = first.memory.clone();
    // It would wait for ever where a read that nobody waits for holds the only request.
    std::thread::spawn(move || {
        let mut engine = Engine::through(&memory, &options);
        engine.faults.add(When::kind(OpKind::Get), Fault::Delay(Duration::from_millis(1)), Times::Always);
        // Objects are smaller than what a scan reads at once, so that it may not advance between two.
        (engine.pass.memory, engine.pass.object_target) = (4 << 20, ByteCount::kib(32));
        let mut draft = engine.draft(&runs);
        let all = MergePlan::full(&runs).expect("three ages");
        draft.merge_planned(Table::Chunks, &all, 0..=u64::MAX).expect("merged");
        let merged = draft.manifest.runs_of(Table::Chunks).to_vec();
        let reader = engine.reader(&merged, LookupOptions::default());
        let mut keys: Vec<_> = (0..100).map(|number| chunk_key(number * 4 + 1 + number % 3)).collect();
        keys.sort_unstable();
        let found = engine.lookup(&reader, &keys).expect("read");
        sender.send((merged.iter().map(|run| run.records).sum::<u64>(), found)).expect("somebody waits");
    });
    let (merged, found) = ended.recv_timeout(Duration::from_secs(60)).expect("the merge ends");
    assert_eq!(merged, 3 * RECORDS);
    assert!(found.iter().all(Option::is_some));
}

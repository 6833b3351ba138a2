//! Which keys of other processes count.
//!
//! A key that is missing would let the pass delete a chunk that a version needs. So everything that
//! this process can tell without reading the segments has to be so: the number of mentions of all
//! keys is that of the rows of the task, the sums of the keys are those that the worker found when
//! it read the segments, and the keys are the bytes that were signed. Then this process reads some
//! segments itself, which it chooses after the result: by chance, and each of which a sample in its
//! row has no key.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::DecodeError;
use larder_format::fleet::{MARK_OUTPUT_MAX, MARKS, MarkResult, MarkSum, MarkTask, TaskId};
use larder_format::ids::{JobId, RunId};
use larder_format::index_tables::ChunkKey;
use larder_format::names;
use larder_format::recipe::SegmentRef;
use larder_format::run::{RunIndex, RunKey};
use larder_job::JobContext;
use larder_reader::TakeMarks;
use larder_store::RepositoryError;
use larder_store::repository::random;

use super::given_away::{Verified, not_done};

/// One segment in this number is read again.
const AGAIN_ONE_IN: usize = 16;
/// But at least this number of each result.
const AGAIN_LEAST: usize = 2;

/// Keys by rising key, with the number of mentions of each.
type Counted = Vec<(ChunkKey, u32)>;

/// Compares a result with the rows of its segments, and with some segments. `ticket` is that of its
/// task.
pub(super) fn verify(
    context: &JobContext,
    (pass, task): (JobId, TaskId),
    ticket: [u8; 16],
    segments: &[SegmentRef],
    result: &MarkResult,
    own: &dyn TakeMarks,
) -> Result<Verified<Vec<ChunkKey>>, RepositoryError> {
    if let Some(why) = not_done(result, ticket) {
        return Ok(Verified::NotDone(why));
    }
    let keys = match output(context, (pass, task), result, MarkTask::mentions(segments))? {
        Ok(keys) => keys,
        Err(why) => return Ok(Verified::Wrong(why)),
    };
    let mut sum = MarkSum::default();
    keys.iter().for_each(|(key, times)| sum.add(key, *times));
    if sum.mentions != MarkTask::mentions(segments) {
        return Ok(Verified::Wrong("its keys are of more or fewer chunks than its segments have".to_owned()));
    }
    if sum.bytes() != result.sum {
        return Ok(Verified::Wrong("its keys are not those that it read".to_owned()));
    }
    let mut mentions = BTreeMap::<ChunkKey, u32>::new();
    for at in again(context, segments, &keys)? {
        let segment = match own.read(&segments[at]) {
            Ok(segment) => segment,
            Err(error) if error.is_unreadable() => return Ok(Verified::NotDone(error.to_string())),
            Err(error) => return Err(error),
        };
        for record in &segment.records {
            *mentions.entry(ChunkKey::of(&record.chunk.fingerprint)).or_default() += 1;
        }
    }
    let has = |(key, times): (&ChunkKey, &u32)| {
        keys.binary_search_by_key(key, |(key, _)| *key).is_ok_and(|at| keys[at].1 >= *times)
    };
    if !mentions.iter().all(has) {
        return Ok(Verified::Wrong("a chunk of its segments is not among its keys".to_owned()));
    }
    Ok(Verified::Counts(keys.into_iter().map(|(key, _)| key).collect()))
}

/// The keys of a result; an error is why they are not what it says. `most`: of these keys.
fn output(
    context: &JobContext,
    (pass, task): (JobId, TaskId),
    result: &MarkResult,
    most: u64,
) -> Result<Result<Counted, String>, RepositoryError> {
    let repository = &context.repository;
    let name = names::fleet_output(pass, task, result.attempt, 0);
    if result.records == 0 || result.records > most || result.object_bytes > MARK_OUTPUT_MAX {
        return Ok(Err("it has more keys than its segments have chunks, or none".to_owned()));
    }
    let read = context.executor.block_on(repository.store().get_up_to(&name, result.object_bytes));
    let bytes = match read.map_err(RepositoryError::from) {
        Ok(bytes) => bytes,
        Err(error) if error.is_of_object() || error.is_damage() => return Ok(Err(error.to_string())),
        Err(error) => return Err(error),
    };
    if MarkResult::digest_of(&bytes) != result.digest || bytes.len() as u64 != result.object_bytes {
        return Ok(Err(format!("{name} is not what its worker wrote")));
    }
    let key = RunKey::of_fleet(repository.keys(), result.domain, &name, RunId { job: pass, seq: 0 });
    let keys = key.map_err(|error| error.to_string()).and_then(|key| keys_of(&key, &bytes, result.records));
    Ok(keys.map_err(|why| format!("{name}: {why}")))
}

/// The keys in an output, which has to have this number of them. An error is why it has other ones.
///
/// The number is compared before anything is unpacked: blocks of few bytes may hold many keys.
fn keys_of(key: &RunKey, output: &[u8], records: u64) -> Result<Counted, String> {
    let damaged = |error: DecodeError| error.to_string();
    let index = RunIndex::decode(key, output, output.len() as u64).map_err(damaged)?;
    if index.records != records || index.layout != MARKS {
        return Err("it has another number of keys than its worker says".to_owned());
    }
    let mut keys = Counted::with_capacity(records as usize);
    for number in 0..index.blocks() {
        let range = index.bytes_of(number..number + 1);
        let sealed = output.get(range.start as usize..range.end as usize).unwrap_or_default();
        let block = index.open_block(number, sealed, Vec::new()).map_err(damaged)?;
        for at in 0..block.count() {
            let key = block.key(at).try_into().map(ChunkKey).ok();
            let times = block.value(at).and_then(|value| value.try_into().ok()).map(u32::from_be_bytes);
            keys.extend(key.zip(times));
        }
    }
    match keys.is_sorted_by(|a, b| a.0 < b.0) && keys.len() as u64 == records {
        true => Ok(keys),
        false => Err("its keys do not rise, or some have no number of mentions".to_owned()),
    }
}

/// Positions of segments to read.
fn again(context: &JobContext, segments: &[SegmentRef], keys: &Counted) -> Result<BTreeSet<usize>, RepositoryError> {
    let count = (segments.len() / AGAIN_ONE_IN).max(AGAIN_LEAST).min(segments.len());
    let mut again = BTreeSet::new();
    // Some are drawn twice.
    for _ in 0..4 * count {
        if again.len() == count {
            break;
        }
        let drawn = u64::from_le_bytes(random(context.repository.entropy())?);
        again.insert((drawn % segments.len() as u64) as usize);
    }
    let has_sample = |sample: &u64| {
        let head = sample.to_le_bytes();
        let at = keys.partition_point(|(key, _)| key.0[..8] < head[..]);
        keys.get(at).is_some_and(|(key, _)| key.0[..8] == head)
    };
    let lacks = |row: &SegmentRef| !row.samples.iter().all(has_sample);
    again.extend(segments.iter().enumerate().filter(|(_, row)| lacks(row)).map(|(at, _)| at));
    Ok(again)
}

#[cfg(test)]
mod tests {
    use larder_format::index_manifest::Table;
    use larder_format::run::RunBuilder;

    use super::*;

    /// An output of many keys, and its key.
    fn many(records: u32) -> (RunKey, Vec<u8>) {
        let key = RunKey::of_process([4; 32], RunId { job: JobId([1; 16]), seq: 0 });
        let run = RunBuilder::new(key.clone(), [5; 32], Table::Chunks, MARKS, false).expect("a layout");
        let mut run = run.packed();
        for number in 0..records {
            let mut chunk = [0; 20];
            chunk[..4].copy_from_slice(&number.to_be_bytes());
            run.push(&chunk, Some(&1_u32.to_be_bytes())).expect("rises");
        }
        (key, run.finish().expect("some").bytes)
    }

    #[test]
    fn an_output_with_more_keys_than_its_result_says_is_not_unpacked() {
        let (key, mut output) = many(100_000);
        assert_eq!(keys_of(&key, &output, 100_000).expect("whole").len(), 100_000);
        // Its first block cannot be opened, and nothing tries to.
        output[60] ^= 1;
        assert!(!keys_of(&key, &output, 100_000).expect_err("damaged").contains("another number"));
        for records in [1, 99_999, 100_001] {
            let why = keys_of(&key, &output, records).expect_err("another number");
            assert!(why.contains("another number of keys"), "{records}: {why}");
        }
    }
}

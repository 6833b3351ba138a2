//! A worker that reads segments of recipes for an exact collection, and writes the keys of their
//! chunks.
//!
//! The sums of all keys are taken where a segment was read. The pass compares them with the keys in
//! the output, so nothing between the two can lose or change a key unseen.

use larder_format::DecodeError;
use larder_format::fleet::{MARKS, MarkResult, MarkSum, MarkTask, ResultHead, TaskId};
use larder_format::ids::{AttemptId, RunId};
use larder_format::index_manifest::Table;
use larder_format::index_tables::ChunkKey;
use larder_format::names;
use larder_format::run::{RecordLayout, RunBuilder, RunKey, ValueWidth};
use larder_index::{Cursor, IndexError, Sorter};
use larder_reader::MetaChunks;
use larder_store::RepositoryError;
use larder_store::repository::random;

use super::answer::{WorkTask, Worker};
use crate::error::FleetError;
use crate::queue::Delivery;

/// The key of a chunk, and the number of the mention in the task: a sorter keeps one record of each
/// key.
const MENTIONS: RecordLayout = RecordLayout { key_len: 24, value: ValueWidth::Fixed(0) };
const KEY_LEN: usize = MARKS.key_len as usize;
/// Of the memory, one part in this number sorts.
const SORTED_ONE_IN: usize = 4;

impl WorkTask for MarkTask {
    fn work(
        &self,
        worker: &mut Worker<'_>,
        taken: Delivery,
        head: ResultHead,
    ) -> Result<Result<MarkResult, String>, FleetError> {
        let result = mark(worker, self, taken.task, head)?;
        if result.is_ok() {
            worker.copied.segments += self.segments.len() as u64;
        }
        Ok(result)
    }
}

/// Reads the segments and writes their keys. An error inside is why that is not possible.
fn mark(
    worker: &Worker<'_>,
    task: &MarkTask,
    id: TaskId,
    head: ResultHead,
) -> Result<Result<MarkResult, String>, FleetError> {
    let context = worker.context;
    let (chunks, mut sum) = (MetaChunks::new(context), MarkSum::default());
    let mut sorter = Sorter::new(&context.repository, MENTIONS, context.memory / SORTED_ONE_IN, &std::env::temp_dir())?;
    for row in &task.segments {
        crate::waiting::expect_not_cancelled(context)?;
        let segment = match chunks.segment(row) {
            Ok(segment) => segment,
            Err(error) if error.is_unreadable() => return Ok(Err(format!("a recipe cannot be read: {error}"))),
            Err(error) => return Err(error.into()),
        };
        for record in &segment.records {
            let key = ChunkKey::of(&record.chunk.fingerprint);
            let mut mention = [0; MENTIONS.key_len as usize];
            mention[..KEY_LEN].copy_from_slice(&key.0);
            mention[KEY_LEN..].copy_from_slice(&(sum.mentions as u32).to_be_bytes());
            sum.add(&key, 1);
            sorter.push(&mention, Some(&[]))?;
        }
    }
    let attempt = AttemptId(random(context.repository.entropy())?);
    let name = names::fleet_output(worker.pass, id, attempt, 0);
    let (bytes, records) = output(worker, &name, sorter)?;
    let (object_bytes, digest) = (bytes.len() as u64, MarkResult::digest_of(&bytes));
    context.executor.block_on(context.repository.store().create(&name, bytes.into()))?;
    Ok(Ok(MarkResult {
        head,
        attempt,
        records,
        object_bytes,
        digest,
        sum: sum.bytes(),
        failure: None,
        domain: context.repository.keys().domain(),
    }))
}

/// The object with the keys, each with the number of its mentions.
fn output(worker: &Worker<'_>, name: &str, sorter: Sorter) -> Result<(Vec<u8>, u64), FleetError> {
    let repository = &worker.context.repository;
    let damaged = |source: DecodeError| RepositoryError::Damaged { name: name.to_owned(), source };
    let id = RunId { job: worker.pass, seq: 0 };
    let key = RunKey::of_fleet(repository.keys(), repository.keys().domain(), name, id).map_err(damaged)?;
    let run = RunBuilder::new(key, random(repository.entropy())?, Table::Chunks, MARKS, false);
    let mut run = run.map_err(IndexError::from)?.packed();
    let mut mentions = sorter.finish()?;
    let (mut last, mut times) = ([0; KEY_LEN], 0_u32);
    while mentions.advance()? {
        let key = &mentions.key()[..KEY_LEN];
        if times > 0 && key != last {
            run.push(&last, Some(&times.to_be_bytes())).map_err(IndexError::from)?;
            times = 0;
        }
        last.copy_from_slice(key);
        times += 1;
    }
    if times > 0 {
        run.push(&last, Some(&times.to_be_bytes())).map_err(IndexError::from)?;
    }
    let finished = run.finish().map_err(IndexError::from)?;
    Ok((finished.bytes, finished.run.records))
}

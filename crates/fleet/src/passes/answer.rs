//! A worker that reads segments of recipes (`answer_marks`), or verifies and copies chunks, for a
//! pass.
//!
//! It needs no lease: that of the pass keeps what it writes. If the pass fails, the next one finds
//! its containers as those of a dead pass.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures::StreamExt;
use larder_format::ChunkRef;
use larder_format::container::CONTAINER_TARGET;
use larder_format::fleet::{COPY_CONTAINERS_MAX, ChunksOf, CopyResult, CopyTask, MarkTask, ResultHead, TaskId};
use larder_format::ids::{AttemptId, ContainerId, JobId};
use larder_format::names;
use larder_job::JobContext;
use larder_rewrite::chunk_copier::{BatchEnd, ChunkCopier, CopyBatch, NumberedChunk};
use larder_store::repository::random;

use super::given_away::{PassTask, TaskResult};
use crate::error::FleetError;
use crate::given;
use crate::queue::{Delivery, StoreQueue};

/// Tables of containers that are read at once.
const AT_ONCE: usize = 8;

/// Bytes that an attempt copies at most: its numbers suffice for them, twice over.
const BYTES_MAX: u64 = COPY_CONTAINERS_MAX as u64 / 2 * CONTAINER_TARGET as u64;

/// What a worker did for a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Tasks that it did.
    pub tasks: u64,
    /// Segments of recipes that it read.
    pub segments: u64,
    /// Chunks that it verified where they are.
    pub verified: u64,
    /// Chunks that it copied.
    pub chunks: u64,
    /// Bytes of these, uncompressed.
    pub bytes: u64,
    /// Tasks that it could not do.
    pub failed: u64,
}

/// How a worker left a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftPass {
    /// There is nothing to do now.
    Nothing,
    /// All is done.
    Done(Copied),
    /// The process that makes the pass gives no sign of life.
    Silent(Copied),
}

/// A task of a pass, as a worker does it.
pub(super) trait WorkTask: PassTask {
    /// Does it, and says how it ended. `head` says by whom; its time is set later. An error inside
    /// is why it is not possible.
    fn work(
        &self,
        worker: &mut Worker<'_>,
        taken: Delivery,
        head: ResultHead,
    ) -> Result<Result<Self::Result, String>, FleetError>;
}

impl WorkTask for CopyTask {
    fn work(
        &self,
        worker: &mut Worker<'_>,
        taken: Delivery,
        head: ResultHead,
    ) -> Result<Result<CopyResult, String>, FleetError> {
        worker.copy(self, taken, head)
    }
}

/// Does tasks of a pass until none is left, or its process gives no sign of life.
///
/// # Errors
/// The tasks are not for this program or key, or the store does not answer.
pub(crate) fn answer(context: &JobContext, pass: JobId, poll: Duration) -> Result<LeftPass, FleetError> {
    // A pass gives segments away first, and then chunks.
    match answer_to::<MarkTask>(context, pass, poll)? {
        LeftPass::Nothing => answer_to::<CopyTask>(context, pass, poll),
        left => Ok(left),
    }
}

fn answer_to<T: WorkTask>(context: &JobContext, pass: JobId, poll: Duration) -> Result<LeftPass, FleetError> {
    let store = context.repository.store().without_cache();
    let context = &context.through(&context.repository.through(store));
    let mut unreadable = BTreeSet::new();
    let Some(first) = given::first::<T>(context, pass, &mut unreadable)? else { return Ok(LeftPass::Nothing) };
    let me = AttemptId(random(context.repository.entropy())?);
    let (asks, claim_after) = (first.head().asks, Duration::from_secs(u64::from(first.head().claim_seconds)));
    let mut queue = StoreQueue::join(context, pass, me, claim_after, Vec::new())?;
    let mut worker = Worker { context, pass, me, asks, claim_after, unreadable, copied: Copied::default() };
    let left = worker.do_due::<T>(&mut queue, poll);
    queue.leave();
    left
}

/// A worker at one kind of tasks of one pass.
pub(super) struct Worker<'a> {
    pub(super) context: &'a JobContext,
    pub(super) pass: JobId,
    pub(super) me: AttemptId,
    /// The process that makes the pass.
    asks: AttemptId,
    claim_after: Duration,
    unreadable: BTreeSet<TaskId>,
    pub(super) copied: Copied,
}

impl Worker<'_> {
    fn do_due<T: WorkTask>(&mut self, queue: &mut StoreQueue, poll: Duration) -> Result<LeftPass, FleetError> {
        let first = poll / 32;
        let (mut next, mut idle) = (first, Duration::ZERO);
        loop {
            let mut due = given::due::<T>(self.context, self.pass)?;
            due.retain(|task| !self.unreadable.contains(task));
            let times = queue.times()?;
            // Its process died, or is stopped. One that is done takes its signs of life away.
            if !due.is_empty() && times.silence_of(Some(self.asks)) > self.claim_after {
                return Ok(LeftPass::Silent(self.copied));
            }
            // The pass gives tasks away little by little.
            if due.is_empty() && idle >= poll {
                return Ok(LeftPass::Done(self.copied));
            }
            let due: Vec<TaskId> = due.into_iter().collect();
            let Some(taken) = queue.take_at(&times, &due)? else {
                crate::waiting::wait(self.context, next)?;
                idle = if due.is_empty() { idle + next } else { Duration::ZERO };
                next = (next * 2).min(poll);
                continue;
            };
            (next, idle) = (first, Duration::ZERO);
            // After the claim: a pass that is over deletes its tasks before its claims.
            let task = match given::read::<T>(self.context, self.pass, taken.task) {
                Ok(Some(task)) => task,
                Ok(None) => return Ok(LeftPass::Done(self.copied)),
                Err(FleetError::NotForUs { .. }) => {
                    self.unreadable.insert(taken.task);
                    continue;
                }
                Err(error) => return Err(error),
            };
            // If another process was faster, the next pass removes what this one wrote.
            self.register(&task, taken)?;
        }
    }

    /// Does a task, and creates its register.
    fn register<T: WorkTask>(&mut self, task: &T, taken: Delivery) -> Result<(), FleetError> {
        let started_ms = self.context.clock.now_ms();
        let repository = &self.context.repository;
        let (ticket, host) = (task.of_pass().ticket, self.context.identity.host.clone());
        let head = ResultHead { ticket, worker: self.me, host, took_ms: 0 };
        let mut result = match task.work(self, taken, head.clone())? {
            Ok(result) => {
                self.copied.tasks += 1;
                result
            }
            Err(why) => {
                self.copied.failed += 1;
                T::Result::not_done(head, why)
            }
        };
        result.head_mut().took_ms = self.context.clock.now_ms().saturating_sub(started_ms);
        let sealed = result.seal(repository.keys(), self.pass, taken.task, random(repository.entropy())?);
        given::register(self.context, self.pass, taken.task, sealed)
    }

    fn copy(
        &mut self,
        task: &CopyTask,
        taken: Delivery,
        head: ResultHead,
    ) -> Result<Result<CopyResult, String>, FleetError> {
        let Some(numbers) = CopyTask::numbers(taken.task, u32::from(taken.epoch)) else {
            return Ok(Err("there were too many attempts".to_owned()));
        };
        let (verify, copy) = (self.chunks(&task.verify)?, self.chunks(&task.copy)?);
        let batch = match (verify, copy) {
            (Ok(verify), Ok(copy)) => CopyBatch { verify, copy },
            (Err(why), _) | (_, Err(why)) => return Ok(Err(why)),
        };
        let bytes = |chunks: &[NumberedChunk]| chunks.iter().map(|of| u64::from(of.chunk.size)).sum::<u64>();
        let (verified, copied) = (bytes(&batch.verify), bytes(&batch.copy));
        if copied > BYTES_MAX {
            return Ok(Err("it is too large for one attempt".to_owned()));
        }
        self.context.progress.expect(0, verified + copied);
        let copier = ChunkCopier::new(self.context, self.pass, task.compression)?;
        let mut copier = copier.numbered_from(numbers.start);
        if let BatchEnd::Unreadable(container, _) = copier.copy_batch(&batch)? {
            return Ok(Err(format!("{} cannot be read", names::container(container))));
        }
        let whole_bytes = copier.whole_bytes();
        let next = copier.next_number();
        let written = copier.finish()?;
        let containers = next - numbers.start;
        if next > numbers.end || written.containers.len() as u64 != u64::from(containers) {
            return Ok(Err("it wrote another number of containers than it may".to_owned()));
        }
        self.context.progress.done(0, verified + copied);
        self.copied.verified += batch.verify.len() as u64;
        self.copied.chunks += batch.copy.len() as u64;
        self.copied.bytes += copied;
        Ok(Ok(CopyResult { head, epoch: u32::from(taken.epoch), containers, whole_bytes, failure: None }))
    }

    /// The chunks with these numbers. An error is the reason why some cannot be had.
    fn chunks(&self, of: &[ChunksOf]) -> Result<Result<Vec<NumberedChunk>, String>, FleetError> {
        // In the order of a stream, a container may come several times. Its table is read once.
        let mut wanted: BTreeMap<ContainerId, BTreeSet<u32>> = BTreeMap::new();
        for ChunksOf { container, chunks } in of {
            wanted.entry(*container).or_default().extend(chunks);
        }
        let repository = &self.context.repository;
        let reads = wanted
            .iter()
            .map(|(id, numbers)| async move { (*id, numbers, repository.read_container_index(*id).await) });
        let mut reads = futures::stream::iter(reads).buffered(AT_ONCE);
        let mut found: HashMap<(ContainerId, u32), ChunkRef> = HashMap::new();
        while let Some((id, numbers, index)) = self.context.executor.block_on(reads.next()) {
            let index = match index {
                Ok(index) => index,
                Err(error) if error.is_unreadable() => {
                    return Ok(Err(format!("{} cannot be read: {error}", names::container(id))));
                }
                Err(error) => return Err(error.into()),
            };
            let there = (0..).zip(index.chunk_refs()).filter(|(number, _)| numbers.contains(number));
            found.extend(there.map(|(number, chunk)| ((id, number), chunk)));
        }
        let mut all = Vec::new();
        for (container, number) in of.iter().flat_map(|of| of.chunks.iter().map(|number| (of.container, *number))) {
            let Some(chunk) = found.get(&(container, number)).copied() else {
                return Ok(Err(format!("{} has no chunk {number}", names::container(container))));
            };
            all.push(NumberedChunk { number, chunk });
        }
        Ok(Ok(all))
    }
}

//! A worker that reads segments of recipes (`answer_marks`), or verifies and copies chunks, for a
//! pass.
//!
//! It needs no lease: that of the pass keeps what it writes. If the pass fails, the next one finds
//! its containers as those of a dead pass.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use larder_format::ChunkRef;
use larder_format::container::CONTAINER_TARGET;
use larder_format::fleet::{COPY_CONTAINERS_MAX, ChunksOf, CopyResult, CopyTask, MarkTask, TaskId};
use larder_format::ids::{AttemptId, JobId};
use larder_format::names;
use larder_job::JobContext;
use larder_rewrite::chunk_copier::{BatchEnd, ChunkCopier, CopyBatch, NumberedChunk};
use larder_store::RepositoryError;
use larder_store::repository::random;

use crate::error::FleetError;
use crate::given::{self, GivenTask};
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
pub(super) trait PassTask: GivenTask {
    /// Its claims are taken over after this number of seconds, and this process makes the pass.
    fn asked_by(&self) -> (u32, AttemptId);

    /// Does it. Returns its register.
    fn work(&self, worker: &mut Worker<'_>, taken: Delivery) -> Result<Vec<u8>, FleetError>;
}

impl PassTask for CopyTask {
    fn asked_by(&self) -> (u32, AttemptId) {
        (self.claim_seconds, self.asks)
    }

    fn work(&self, worker: &mut Worker<'_>, taken: Delivery) -> Result<Vec<u8>, FleetError> {
        let result = worker.copy(self, taken)?;
        let repository = &worker.context.repository;
        let sealed = result.encode(repository.keys(), worker.pass, taken.task, random(repository.entropy())?);
        Ok(sealed.map_err(RepositoryError::from)?)
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

fn answer_to<T: PassTask>(context: &JobContext, pass: JobId, poll: Duration) -> Result<LeftPass, FleetError> {
    let store = context.repository.store().without_cache();
    let context = &context.through(&context.repository.through(store));
    let mut unreadable = BTreeSet::new();
    let Some(first) = given::first::<T>(context, pass, &mut unreadable)? else { return Ok(LeftPass::Nothing) };
    let me = AttemptId(random(context.repository.entropy())?);
    let (claim_seconds, asks) = first.asked_by();
    let claim_after = Duration::from_secs(u64::from(claim_seconds));
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
    fn do_due<T: PassTask>(&mut self, queue: &mut StoreQueue, poll: Duration) -> Result<LeftPass, FleetError> {
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
            let register = task.work(self, taken)?;
            given::register(self.context, self.pass, taken.task, Ok(register))?;
        }
    }

    /// Does a task.
    fn copy(&mut self, task: &CopyTask, taken: Delivery) -> Result<CopyResult, FleetError> {
        let started_ms = self.context.clock.now_ms();
        let mut result = CopyResult {
            ticket: task.ticket,
            worker: self.me,
            host: self.context.identity.host.clone(),
            took_ms: 0,
            epoch: u32::from(taken.epoch),
            containers: 0,
            whole_bytes: 0,
            failure: None,
        };
        match self.attempt(task, taken, &mut result)? {
            None => self.copied.tasks += 1,
            Some(why) => {
                (result.failure, result.containers) = (Some(why), 0);
                self.copied.failed += 1;
            }
        }
        result.took_ms = self.context.clock.now_ms().saturating_sub(started_ms);
        Ok(result)
    }

    /// Why a task was not done; `None`: it was.
    fn attempt(
        &mut self,
        task: &CopyTask,
        taken: Delivery,
        result: &mut CopyResult,
    ) -> Result<Option<String>, FleetError> {
        let Some(numbers) = CopyTask::numbers(taken.task, u32::from(taken.epoch)) else {
            return Ok(Some("there were too many attempts".to_owned()));
        };
        let (verify, copy) = (self.chunks(&task.verify)?, self.chunks(&task.copy)?);
        let batch = match (verify, copy) {
            (Ok(verify), Ok(copy)) => CopyBatch { verify, copy },
            (Err(why), _) | (_, Err(why)) => return Ok(Some(why)),
        };
        let bytes = |chunks: &[NumberedChunk]| chunks.iter().map(|of| u64::from(of.chunk.size)).sum::<u64>();
        let (verified, copied) = (bytes(&batch.verify), bytes(&batch.copy));
        if copied > BYTES_MAX {
            return Ok(Some("it is too large for one attempt".to_owned()));
        }
        self.context.progress.expect(0, verified + copied);
        let copier = ChunkCopier::new(self.context, self.pass, task.compression)?;
        let mut copier = copier.numbered_from(numbers.start);
        if let BatchEnd::Unreadable(container, _) = copier.copy_batch(&batch)? {
            return Ok(Some(format!("{} cannot be read", names::container(container))));
        }
        result.whole_bytes = copier.whole_bytes();
        let next = copier.next_number();
        let written = copier.finish()?;
        result.containers = next - numbers.start;
        if next > numbers.end || written.containers.len() as u64 != u64::from(result.containers) {
            return Ok(Some("it wrote another number of containers than it may".to_owned()));
        }
        self.context.progress.done(0, verified + copied);
        self.copied.verified += batch.verify.len() as u64;
        self.copied.chunks += batch.copy.len() as u64;
        self.copied.bytes += copied;
        Ok(None)
    }

    /// The chunks with these numbers. An error is the reason why some cannot be had.
    fn chunks(&self, of: &[ChunksOf]) -> Result<Result<Vec<NumberedChunk>, String>, FleetError> {
        let repository = &self.context.repository;
        let reads = of.iter().map(|of| async move { (of, repository.read_container_index(of.container).await) });
        let mut reads = futures::stream::iter(reads).buffered(AT_ONCE);
        let mut all = Vec::new();
        while let Some((of, index)) = self.context.executor.block_on(reads.next()) {
            let name = names::container(of.container);
            let index = match index {
                Ok(index) => index,
                Err(error) if error.is_unreadable() => return Ok(Err(format!("{name} cannot be read: {error}"))),
                Err(error) => return Err(error.into()),
            };
            let there: Vec<ChunkRef> = index.chunk_refs().collect();
            for number in &of.chunks {
                let Some(chunk) = there.get(*number as usize).copied() else {
                    return Ok(Err(format!("{name} has no chunk {number}")));
                };
                all.push(NumberedChunk { number: *number, chunk });
            }
        }
        Ok(Ok(all))
    }
}

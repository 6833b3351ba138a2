//! The process that makes a pass: it gives batches away, does some of them, and takes results.
//!
//! Nothing depends on workers. A batch whose worker died is taken over. If nothing happens for the
//! time of a claim, this process does the batch that it waits for, although others claim it. If the
//! store takes no tasks or registers, sharing ends, and this process does everything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use larder_format::compress::Compression;
use larder_format::fleet::{
    COPY_MAX, COPY_RULES, COPY_TASKS_MAX, ChunksOf, CopyResult, CopyTask, MARK_CHUNKS_MAX, Stage, TaskId,
};
use larder_format::ids::{AttemptId, JobId};
use larder_format::names;
use larder_job::JobContext;
use larder_reader::{ShareMarks, SharedMarks};
use larder_rewrite::chunk_copier::{
    BatchEnd, ChunkCopier, CopyBatch, NumberedChunk, RewriteError, ShareCopies, SharedCopying,
};
use larder_store::RepositoryError;
use larder_store::repository::random;
use parking_lot::Mutex;

use super::marks::{self, Marking};
use super::registers;
use super::state::{AWAY_EACH, SharedPassOptions, SharedPassReport, State};
use super::verify::{Verified, verify};
use crate::queue::StoreQueue;

/// A result of a worker, or why it does not count.
type Told = Result<CopyResult, String>;

/// Passes that several processes share. See the module header.
#[derive(Debug, Clone)]
pub struct SharedPass {
    options: SharedPassOptions,
    state: Arc<Mutex<State>>,
}

impl SharedPass {
    /// Nothing is given away yet.
    pub fn new(options: SharedPassOptions) -> Self {
        Self { options, state: Arc::default() }
    }

    /// What other processes did, in all passes until now.
    pub fn report(&self) -> SharedPassReport {
        self.state.lock().report.clone()
    }
}

impl ShareCopies for SharedPass {
    fn batch_bytes(&self) -> u64 {
        self.options.batch_bytes
    }

    fn begin(
        &self,
        context: &JobContext,
        pass: JobId,
        turn: u64,
        compression: Compression,
    ) -> Option<Box<dyn SharedCopying>> {
        if self.state.lock().wrong == Some(pass) {
            return None;
        }
        let begun = Sharing::begin(context, &self.options, self.state.clone(), (pass, turn, compression));
        match begun {
            Ok(sharing) => Some(Box::new(sharing)),
            // The repository is full, or the storage does not answer. Copying shows which.
            Err(error) => {
                tracing::warn!("the pass is not shared ({error}); this process copies alone");
                None
            }
        }
    }
}

impl ShareMarks for SharedPass {
    fn batch_chunks(&self) -> u64 {
        (self.options.batch_bytes / marks::CHUNK_BYTES).clamp(1, MARK_CHUNKS_MAX / 2)
    }

    fn begin_marks(&self, context: &JobContext, pass: JobId, turn: u64, look: u8) -> Option<Box<dyn SharedMarks>> {
        let mut state = self.state.lock();
        if state.wrong == Some(pass) {
            return None;
        }
        match look {
            0 => state.marks = (0, 0),
            // The pass marks again.
            _ => state.forget_marks(),
        }
        drop(state);
        match Marking::begin(context, &self.options, self.state.clone(), (pass, turn, look)) {
            Ok(marking) => Some(Box::new(marking)),
            Err(error) => {
                tracing::warn!("recipes are not shared ({error}); this process reads them alone");
                None
            }
        }
    }

    fn was_wrong(&self, pass: JobId) {
        self.state.lock().worker_was_wrong(pass);
    }
}

/// The batches of one pass.
struct Sharing {
    context: JobContext,
    pass: JobId,
    turn: u64,
    compression: Compression,
    me: AttemptId,
    claim_after: Duration,
    poll: Duration,
    away_max: usize,
    state: Arc<Mutex<State>>,
    /// `None`: nothing is shared any more.
    queue: Option<StoreQueue>,
    /// The number of the next task. No number is used twice.
    next: u32,
    /// In the order in which they were given away.
    away: VecDeque<Batch>,
    /// For how long nothing has happened.
    waited: Duration,
    /// Tasks whose first claim is of this process, or of a worker whose result counts.
    known: BTreeSet<u32>,
    /// Whether a worker had a task and did not do it.
    has_left: bool,
    /// Batches that workers did, with their chunks and bytes. They count at the end.
    by_others: Vec<(AttemptId, u64, u64)>,
}

/// A batch that is away.
struct Batch {
    /// Its task; `None`: nobody else knows of it.
    task: Option<TaskId>,
    ticket: [u8; 16],
    chunks: CopyBatch,
    end: Option<BatchEnd>,
    /// The worker that did it, and the epoch of its claim.
    by: Option<(AttemptId, u32)>,
}

impl Batch {
    fn is_open(&self) -> bool {
        self.end.is_none()
    }
}

impl Sharing {
    fn begin(
        context: &JobContext,
        options: &SharedPassOptions,
        state: Arc<Mutex<State>>,
        (pass, turn, compression): (JobId, u64, Compression),
    ) -> Result<Self, RepositoryError> {
        // What a result says is compared with what the store has now.
        let context = context.through(&context.repository.through(context.repository.store().without_cache()));
        let me = AttemptId(random(context.repository.entropy())?);
        let claim_after = Duration::from_secs(options.claim.as_secs().max(1));
        // A worker that sees a task sees signs of life of this process, too.
        let queue = StoreQueue::join(&context, pass, me, claim_after, Vec::new())?;
        let workers = options.workers.get() as usize;
        Ok(Self {
            context,
            pass,
            turn,
            compression,
            me,
            claim_after,
            poll: options.poll,
            away_max: workers.saturating_mul(AWAY_EACH),
            state,
            queue: Some(queue),
            next: 0,
            away: VecDeque::new(),
            waited: Duration::ZERO,
            known: BTreeSet::new(),
            has_left: false,
            by_others: Vec::new(),
        })
    }

    /// Nothing is given away any more, and nobody is waited for.
    fn stop_sharing(&mut self, why: &str) {
        if let Some(queue) = self.queue.take() {
            tracing::warn!("the pass is not shared any more ({why}); this process does the rest");
            queue.leave();
        }
    }

    /// Creates the task of a batch.
    fn give(&self, number: u32, ticket: [u8; 16], chunks: &CopyBatch) -> Result<TaskId, RepositoryError> {
        let repository = &self.context.repository;
        let task = CopyTask {
            rules: COPY_RULES,
            claim_seconds: u32::try_from(self.claim_after.as_secs()).unwrap_or(u32::MAX),
            asks: self.me,
            program: self.context.identity.program.clone(),
            turn: self.turn,
            ticket,
            compression: self.compression,
            verify: by_container(&chunks.verify),
            copy: by_container(&chunks.copy),
        };
        let id = TaskId { stage: Stage::Copy, round: 0, number };
        let bytes = task.encode(repository.keys(), self.pass, id, random(repository.entropy())?)?;
        self.context.executor.block_on(repository.store().create(&names::fleet_range(self.pass, id), bytes.into()))?;
        Ok(id)
    }

    /// Does a batch in this process, and tells the others.
    fn do_here(&mut self, at: usize, own: &mut ChunkCopier) -> Result<(), RewriteError> {
        let batch = &mut self.away[at];
        batch.end = Some(own.copy_batch(&batch.chunks)?);
        if let Some(task) = batch.task {
            self.close(task);
        }
        Ok(())
    }

    /// Nobody else needs to do a task.
    fn close(&self, task: TaskId) {
        let repository = &self.context.repository;
        let result = |ticket| CopyResult {
            ticket,
            worker: self.me,
            host: self.context.identity.host.clone(),
            took_ms: 0,
            epoch: 0,
            containers: 0,
            whole_bytes: 0,
            // For others it counts that it is there.
            failure: Some("the process that makes the pass did it, or does not need it".to_owned()),
        };
        let drawn = random(repository.entropy()).and_then(|ticket| Ok((ticket, random(repository.entropy())?)));
        if let Ok((ticket, salt)) = drawn {
            let register = result(ticket).encode(repository.keys(), self.pass, task, salt);
            registers::close(&self.context, self.pass, task, register);
        }
    }

    /// Takes results of others. Returns the number of batches that came back.
    fn take_results(&mut self, own: &mut ChunkCopier) -> Result<usize, RewriteError> {
        let mut back = 0;
        for (at, result) in self.results()? {
            let batch = &self.away[at];
            let Some(task) = batch.task else { continue };
            let verified = match &result {
                Ok(result) => verify(&self.context, (self.pass, task), batch.ticket, &batch.chunks, result, own)?,
                Err(error) => Verified::NotDone(error.clone()),
            };
            match verified {
                Verified::Counts(end) => {
                    let batch = &mut self.away[at];
                    batch.by = result.ok().map(|result| (result.worker, result.epoch));
                    batch.end = Some(end);
                }
                Verified::NotDone(why) => {
                    tracing::warn!("a worker did not do its task ({why}); this process does it");
                    self.has_left = true;
                    let batch = &mut self.away[at];
                    batch.end = Some(own.copy_batch(&batch.chunks)?);
                }
                Verified::Wrong(why) => {
                    let host = result.map(|result| result.host).unwrap_or_default();
                    tracing::warn!(
                        "a worker on host {host:?} says that it copied chunks, and this process finds otherwise ({why}); \
                         it does everything that others did"
                    );
                    self.discard_all();
                    return Ok(back + 1);
                }
            }
            back += 1;
        }
        Ok(back)
    }

    /// From now on, nothing that others say counts.
    fn discard_all(&mut self) {
        self.state.lock().worker_was_wrong(self.pass);
        for batch in &mut self.away {
            batch.end = Some(BatchEnd::WorkerWrong);
        }
        self.stop_sharing("a worker was wrong");
    }

    /// Results of batches that are open, by their places.
    fn results(&self) -> Result<Vec<(usize, Told)>, RepositoryError> {
        let open = self.away.iter().enumerate().filter(|(_, batch)| batch.is_open());
        let open: BTreeMap<TaskId, usize> = open.filter_map(|(at, batch)| Some((batch.task?, at))).collect();
        let decode = |task, bytes: &[u8]| CopyResult::decode(self.context.repository.keys(), self.pass, task, bytes);
        registers::told(&self.context, (self.pass, Stage::Copy), &open, COPY_MAX, decode)
    }

    /// One look: takes results, or a task that nobody does. Returns whether anything happened.
    fn look(&mut self, own: &mut ChunkCopier) -> Result<bool, RewriteError> {
        if self.take_results(own)? > 0 {
            return Ok(true);
        }
        let due: Vec<TaskId> =
            self.away.iter().filter(|batch| batch.is_open()).filter_map(|batch| batch.task).collect();
        let Some(queue) = &mut self.queue else { return Ok(true) };
        let times = queue.times()?;
        let Some(taken) = queue.take_at(&times, &due)? else { return Ok(false) };
        if taken.epoch == 0 {
            self.known.insert(taken.task.number);
        }
        if let Some(at) = self.away.iter().position(|batch| batch.task == Some(taken.task)) {
            self.do_here(at, own)?;
        }
        Ok(true)
    }

    /// Until the first batch is back. Returns whether it is.
    fn wait(&mut self, own: &mut ChunkCopier, may_stop: bool) -> Result<bool, RewriteError> {
        let first = self.poll / 32;
        let mut next = first;
        while self.away.front().is_some_and(Batch::is_open) {
            let is_shared = self.queue.is_some() && self.away.front().is_some_and(|batch| batch.task.is_some());
            let is_to_stop = self.context.cancel.is_cancelled();
            if may_stop && is_to_stop {
                return Ok(false);
            }
            // Its worker may be stuck, and who is to stop waits for nobody.
            if !is_shared || is_to_stop || self.waited >= self.claim_after {
                self.do_here(0, own)?;
                continue;
            }
            match self.look(own) {
                Ok(true) => (next, self.waited) = (first, Duration::ZERO),
                Ok(false) => {
                    let time = next;
                    self.context.executor.block_on(async move { tokio::time::sleep(time).await });
                    self.waited += next;
                    next = (next * 2).min(self.poll);
                }
                // What this process copies needs neither listings nor registers.
                Err(RewriteError::Repository(error)) => self.stop_sharing(&error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether others wrote, or may still write, containers that no result names which counts.
    fn may_have_left(&mut self) -> bool {
        if self.next == 0 {
            return false;
        }
        let Some(queue) = self.queue.as_mut().filter(|_| !self.has_left) else { return true };
        let Ok(times) = queue.times() else { return true };
        (0..self.next).any(|number| match times.epoch_of(TaskId { stage: Stage::Copy, round: 0, number }) {
            None => false,
            // The only claim.
            Some(0) => !self.known.contains(&number),
            Some(_) => true,
        })
    }
}

impl SharedCopying for Sharing {
    fn offer(&mut self, batch: CopyBatch) {
        if self.state.lock().wrong == Some(self.pass) {
            self.stop_sharing("a worker was wrong");
        }
        let (mut task, mut ticket) = (None, [0; 16]);
        if self.queue.is_some() && self.next < COPY_TASKS_MAX {
            let number = self.next;
            // Also of one that failed: it may be there.
            self.next += 1;
            let given = random(self.context.repository.entropy()).and_then(|drawn: [u8; 16]| {
                ticket = drawn;
                self.give(number, ticket, &batch)
            });
            match given {
                Ok(given) => {
                    task = Some(given);
                    self.state.lock().report.tasks += 1;
                }
                // More chunks than a task may name. It is there for nobody.
                Err(RepositoryError::Unstorable(error)) => tracing::debug!(%error, "a batch is not given away"),
                Err(error) => self.stop_sharing(&error.to_string()),
            }
        }
        self.away.push_back(Batch { task, ticket, chunks: batch, end: None, by: None });
    }

    fn is_full(&self) -> bool {
        self.away.len() > if self.queue.is_some() { self.away_max } else { 0 }
    }

    fn next(&mut self, own: &mut ChunkCopier, may_stop: bool) -> Result<Option<BatchEnd>, RewriteError> {
        if !self.wait(own, may_stop)? {
            return Ok(Some(BatchEnd::Stopped));
        }
        let Some(batch) = self.away.pop_front() else { return Ok(None) };
        if let (Some(task), Some((worker, epoch))) = (batch.task, batch.by) {
            if epoch == 0 {
                self.known.insert(task.number);
            }
            let bytes = batch.chunks.copy.iter().map(|of| u64::from(of.chunk.size)).sum();
            self.by_others.push((worker, batch.chunks.copy.len() as u64, bytes));
        }
        Ok(batch.end)
    }

    fn abandon(&mut self, begins_again: bool) {
        for batch in std::mem::take(&mut self.away) {
            if let (Some(task), None) = (batch.task, &batch.end) {
                self.close(task);
            }
        }
        if begins_again {
            self.by_others.clear();
        }
    }

    fn end(mut self: Box<Self>) -> bool {
        let may_have_left = self.may_have_left();
        let mut state = self.state.lock();
        let report = &mut state.report;
        for (worker, chunks, bytes) in &self.by_others {
            report.tasks_of_others += 1;
            report.chunks_of_others += chunks;
            report.bytes_of_others += bytes;
            report.workers.insert(*worker);
        }
        drop(state);
        if let Some(queue) = self.queue.take() {
            queue.leave();
        }
        registers::tidy(&self.context, self.pass, |_| true);
        may_have_left
    }
}

fn by_container(chunks: &[NumberedChunk]) -> Vec<ChunksOf> {
    let of_one = |chunks: &[NumberedChunk]| ChunksOf {
        container: chunks[0].chunk.container,
        chunks: chunks.iter().map(|of| of.number).collect(),
    };
    chunks.chunk_by(|a, b| a.chunk.container == b.chunk.container).map(of_one).collect()
}

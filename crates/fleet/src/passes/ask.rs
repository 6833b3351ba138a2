//! The process that makes a pass: it gives batches away, does some of them, and takes results.
//!
//! Nothing depends on workers. A batch whose worker died is taken over. If nothing happens for the
//! time of a claim, this process does the batch that it waits for, although others claim it. If the
//! store takes no tasks or registers, sharing ends, and this process does everything.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use larder_format::compress::Compression;
use larder_format::fleet::{COPY_TASKS_MAX, ChunksOf, CopyTask, MARK_CHUNKS_MAX, Stage, TaskId};
use larder_format::ids::{AttemptId, JobId};
use larder_job::JobContext;
use larder_reader::{ShareMarks, SharedMarks};
use larder_rewrite::chunk_copier::{
    BatchEnd, ChunkCopier, CopyBatch, NumberedChunk, RewriteError, ShareCopies, SharedCopying,
};
use larder_store::RepositoryError;
use parking_lot::Mutex;

use super::given_away::{GivenAway, Verified, warn_not_done};
use super::marks::{self, Marking};
use super::state::{SharedPassOptions, SharedPassReport, State};
use super::verify::verify;

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
    fn batch_bytes(&self, all: u64) -> u64 {
        self.options.batch_of(all)
    }

    fn begin(
        &self,
        context: &JobContext,
        pass: JobId,
        turn: u64,
        compression: Compression,
    ) -> Option<Box<dyn SharedCopying>> {
        if self.state.lock().report.worker_was_wrong {
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
        if state.report.worker_was_wrong {
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

    fn was_wrong(&self) {
        self.state.lock().worker_was_wrong();
    }
}

/// The batches of one pass.
struct Sharing {
    given: GivenAway,
    compression: Compression,
    state: Arc<Mutex<State>>,
    /// In the order in which they were given away.
    away: VecDeque<Batch>,
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
        Ok(Self {
            given: GivenAway::begin(context, options, (pass, turn))?,
            compression,
            state,
            away: VecDeque::new(),
            known: BTreeSet::new(),
            has_left: false,
            by_others: Vec::new(),
        })
    }

    fn task(number: u32) -> TaskId {
        TaskId { stage: Stage::Copy, round: 0, number }
    }

    /// Does a batch in this process, and tells the others.
    fn do_here(&mut self, at: usize, own: &mut ChunkCopier) -> Result<(), RewriteError> {
        let batch = &mut self.away[at];
        batch.end = Some(own.copy_batch(&batch.chunks)?);
        if let Some(task) = batch.task {
            self.given.close::<CopyTask>(task);
        }
        Ok(())
    }

    /// Takes results of others. Returns the number of batches that came back.
    fn take_results(&mut self, own: &mut ChunkCopier) -> Result<usize, RewriteError> {
        let open = self.away.iter().enumerate().filter(|(_, batch)| batch.is_open());
        let open = open.filter_map(|(at, batch)| Some((batch.task?, at))).collect();
        let mut back = 0;
        for (at, result) in self.given.told::<CopyTask>(&open)? {
            let batch = &self.away[at];
            let Some(task) = batch.task else { continue };
            let (context, pass) = (&self.given.context, self.given.pass);
            let verified = match &result {
                Ok(result) => verify(context, (pass, task), batch.ticket, &batch.chunks, result, own)?,
                Err(error) => Verified::NotDone(error.clone()),
            };
            match verified {
                Verified::Counts(end) => {
                    let batch = &mut self.away[at];
                    batch.by = result.ok().map(|result| (result.head.worker, result.epoch));
                    batch.end = Some(end);
                }
                Verified::NotDone(why) => {
                    warn_not_done(&why);
                    self.has_left = true;
                    let batch = &mut self.away[at];
                    batch.end = Some(own.copy_batch(&batch.chunks)?);
                }
                Verified::Wrong(why) => {
                    let host = result.map(|result| result.head.host).unwrap_or_default();
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
        self.state.lock().worker_was_wrong();
        for batch in &mut self.away {
            batch.end = Some(BatchEnd::WorkerWrong);
        }
        self.given.stop::<CopyTask>("a worker was wrong");
    }

    /// One look: takes results, or a task that nobody does. Returns whether anything happened.
    fn look(&mut self, own: &mut ChunkCopier) -> Result<bool, RewriteError> {
        if self.take_results(own)? > 0 {
            return Ok(true);
        }
        let due: Vec<TaskId> =
            self.away.iter().filter(|batch| batch.is_open()).filter_map(|batch| batch.task).collect();
        let Some((task, epoch)) = self.given.claim(&due)? else { return Ok(!self.given.is_shared()) };
        if epoch == 0 {
            self.known.insert(task.number);
        }
        if let Some(at) = self.away.iter().position(|batch| batch.task == Some(task)) {
            self.do_here(at, own)?;
        }
        Ok(true)
    }

    /// Until the first batch is back. Returns whether it is.
    fn wait(&mut self, own: &mut ChunkCopier, may_stop: bool) -> Result<bool, RewriteError> {
        while let Some(first) = self.away.front().filter(|batch| batch.is_open()) {
            let is_given = first.task.is_some();
            let is_to_stop = self.given.context.cancel.is_cancelled();
            if may_stop && is_to_stop {
                return Ok(false);
            }
            // Its worker may be stuck, and who is to stop waits for nobody.
            if !is_given || is_to_stop || !self.given.may_wait() {
                self.do_here(0, own)?;
                continue;
            }
            match self.look(own) {
                Ok(true) => self.given.happened(),
                Ok(false) => self.given.pause(),
                // What this process copies needs neither listings nor registers.
                Err(RewriteError::Repository(error)) => self.given.stop::<CopyTask>(&error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether others wrote, or may still write, containers that no result names which counts.
    fn may_have_left(&mut self) -> bool {
        if self.given.numbers() == 0 {
            return false;
        }
        let (false, Ok(Some(times))) = (self.has_left, self.given.times()) else { return true };
        (0..self.given.numbers()).any(|number| match times.epoch_of(Self::task(number)) {
            None => false,
            // The only claim.
            Some(0) => !self.known.contains(&number),
            Some(_) => true,
        })
    }
}

impl SharedCopying for Sharing {
    fn offer(&mut self, batch: CopyBatch) {
        if self.state.lock().report.worker_was_wrong {
            self.given.stop::<CopyTask>("a worker was wrong");
        }
        let (mut task, mut ticket) = (None, [0; 16]);
        if let Some(id) = self.given.number(COPY_TASKS_MAX).map(Self::task) {
            let (compression, verify, copy) =
                (self.compression, by_container(&batch.verify), by_container(&batch.copy));
            let made = |head, of_pass| CopyTask { head, of_pass, compression, verify, copy };
            match self.given.give(id, made) {
                Ok((_, drawn)) => {
                    (task, ticket) = (Some(id), drawn);
                    self.state.lock().report.tasks += 1;
                }
                // More chunks than a task may name. It is there for nobody.
                Err(RepositoryError::Unstorable(error)) => tracing::debug!(%error, "a batch is not given away"),
                Err(error) => self.given.stop::<CopyTask>(&error.to_string()),
            }
        }
        self.away.push_back(Batch { task, ticket, chunks: batch, end: None, by: None });
    }

    fn is_full(&self) -> bool {
        self.away.len() > if self.given.is_shared() { self.given.away_max } else { 0 }
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
                self.given.close::<CopyTask>(task);
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
        self.given.end(|_| true);
        may_have_left
    }
}

fn by_container(chunks: &[NumberedChunk]) -> Vec<ChunksOf> {
    let of_one = |chunks: &[NumberedChunk]| ChunksOf {
        container: chunks[0].chunk.container,
        chunks: chunks.iter().map(|of| of.number).collect(),
    };
    // In the order of a stream, a container may come several times.
    let is_next = |a: &NumberedChunk, b: &NumberedChunk| a.chunk.container == b.chunk.container && a.number < b.number;
    chunks.chunk_by(is_next).map(of_one).collect()
}

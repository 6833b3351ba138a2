//! The process that makes a pass, in an exact collection: it gives segments of recipes away, reads
//! some of them, and takes keys.
//!
//! Nothing depends on workers, as in `ask`. Batches come back in any order. The keys of a result
//! are taken when all of it was verified (`verify_marks`), so a wrong one leaves nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_format::fleet::{MARK_MAX, MARK_RULES, MARK_TASKS_MAX, MarkResult, MarkTask, Stage, TaskId};
use larder_format::ids::{AttemptId, JobId};
use larder_format::names::{self, FleetObject};
use larder_format::recipe::SegmentRef;
use larder_index::IndexError;
use larder_job::JobContext;
use larder_reader::{MarkError, Marked, SharedMarks, TakeMarks};
use larder_store::RepositoryError;
use larder_store::repository::random;
use parking_lot::Mutex;

use super::registers;
use super::state::{AWAY_EACH, SharedPassOptions, State};
use super::verify_marks::{Verified, verify};
use crate::queue::StoreQueue;

/// Chunk records that make a batch: one for this number of bytes of a batch of containers.
pub(super) const CHUNK_BYTES: u64 = 512;

/// The segments of one exact collection. See the module header.
pub(super) struct Marking {
    context: JobContext,
    pass: JobId,
    turn: u64,
    look: u8,
    me: AttemptId,
    claim_after: Duration,
    poll: Duration,
    away_max: usize,
    state: Arc<Mutex<State>>,
    /// `None`: nothing is shared any more.
    queue: Option<StoreQueue>,
    /// The number of the next task. No number is used twice.
    next: u32,
    away: BTreeMap<TaskId, Batch>,
    /// For how long nothing has happened.
    waited: Duration,
}

/// Segments that are away.
struct Batch {
    ticket: [u8; 16],
    segments: Vec<SegmentRef>,
}

/// One look at what others did.
enum Looked {
    Something,
    Nothing,
    Wrong,
}

impl Marking {
    pub(super) fn begin(
        context: &JobContext,
        options: &SharedPassOptions,
        state: Arc<Mutex<State>>,
        (pass, turn, look): (JobId, u64, u8),
    ) -> Result<Self, RepositoryError> {
        let context = context.through(&context.repository.through(context.repository.store().without_cache()));
        let me = AttemptId(random(context.repository.entropy())?);
        let claim_after = Duration::from_secs(options.claim.as_secs().max(1));
        let queue = StoreQueue::join(&context, pass, me, claim_after, Vec::new())?;
        Ok(Self {
            context,
            pass,
            turn,
            look,
            me,
            claim_after,
            poll: options.poll,
            away_max: (options.workers.get() as usize).saturating_mul(AWAY_EACH),
            state,
            queue: Some(queue),
            next: 0,
            away: BTreeMap::new(),
            waited: Duration::ZERO,
        })
    }

    /// Nothing is given away any more, and nobody is waited for.
    fn stop_sharing(&mut self, why: &str) {
        if let Some(queue) = self.queue.take() {
            tracing::warn!("recipes are not shared any more ({why}); this process reads the rest");
            queue.leave();
        }
    }

    fn task(&self, number: u32) -> TaskId {
        TaskId { stage: Stage::Mark, round: self.look, number }
    }

    /// Creates the task of a batch.
    fn give(
        &self,
        id: TaskId,
        ticket: [u8; 16],
        segments: Vec<SegmentRef>,
    ) -> Result<Vec<SegmentRef>, RepositoryError> {
        let repository = &self.context.repository;
        let task = MarkTask {
            rules: MARK_RULES,
            claim_seconds: u32::try_from(self.claim_after.as_secs()).unwrap_or(u32::MAX),
            asks: self.me,
            program: self.context.identity.program.clone(),
            turn: self.turn,
            ticket,
            segments,
        };
        let bytes = task.encode(repository.keys(), self.pass, id, random(repository.entropy())?)?;
        self.context.executor.block_on(repository.store().create(&names::fleet_range(self.pass, id), bytes.into()))?;
        Ok(task.segments)
    }

    /// Reads a batch in this process, and tells the others.
    fn do_here(&mut self, task: TaskId, own: &mut dyn TakeMarks) -> Result<(), MarkError> {
        if let Some(batch) = self.away.get(&task) {
            read(&batch.segments, own)?;
            self.away.remove(&task);
            self.close(task);
        }
        Ok(())
    }

    fn close(&self, task: TaskId) {
        let repository = &self.context.repository;
        let why = "the process that makes the pass did it, or does not need it".to_owned();
        let drawn = random(repository.entropy()).and_then(|ticket| Ok((ticket, random(repository.entropy())?)));
        let Ok((ticket, salt)) = drawn else { return };
        let result = MarkResult::failed(ticket, self.me, self.context.identity.host.clone(), why);
        registers::close(&self.context, self.pass, task, result.encode(repository.keys(), self.pass, task, salt));
    }

    /// Takes results of others.
    fn take_results(&mut self, own: &mut dyn TakeMarks) -> Result<Looked, MarkError> {
        let tasks: Vec<TaskId> = self.away.keys().copied().collect();
        let open = tasks.iter().enumerate().map(|(at, task)| (*task, at)).collect();
        let decode = |task, bytes: &[u8]| MarkResult::decode(self.context.repository.keys(), self.pass, task, bytes);
        let told = registers::told(&self.context, (self.pass, Stage::Mark), &open, MARK_MAX, decode)?;
        let mut looked = Looked::Nothing;
        for (at, result) in told {
            looked = Looked::Something;
            let task = tasks[at];
            let Some(batch) = self.away.get(&task) else { continue };
            let verified = match &result {
                Ok(result) => verify(&self.context, (self.pass, task), batch.ticket, &batch.segments, result, own)?,
                Err(why) => Verified::NotDone(why.clone()),
            };
            match (verified, result) {
                (Verified::Counts(keys), Ok(result)) => {
                    keys.iter().try_for_each(|key| own.needs(key))?;
                    let segments = self.away.remove(&task).map_or(0, |batch| batch.segments.len());
                    self.state.lock().marked(result.worker, segments as u64);
                }
                (Verified::Counts(_), Err(why)) | (Verified::NotDone(why), _) => {
                    tracing::warn!("a worker did not do its task ({why}); this process does it");
                    self.do_here(task, own)?;
                }
                (Verified::Wrong(why), result) => {
                    let host = result.map(|result| result.host).unwrap_or_default();
                    tracing::warn!(
                        "a worker on host {host:?} says that it read recipes, and this process finds otherwise ({why}); \
                         it does everything that others did"
                    );
                    self.state.lock().worker_was_wrong(self.pass);
                    self.stop_sharing("a worker was wrong");
                    return Ok(Looked::Wrong);
                }
            }
        }
        Ok(looked)
    }

    /// One look: takes results, or a task that nobody does.
    fn look(&mut self, own: &mut dyn TakeMarks) -> Result<Looked, MarkError> {
        match self.take_results(own)? {
            Looked::Nothing => {}
            looked => return Ok(looked),
        }
        let due: Vec<TaskId> = self.away.keys().copied().collect();
        let Some(queue) = &mut self.queue else { return Ok(Looked::Something) };
        let times = queue.times()?;
        let Some(taken) = queue.take_at(&times, &due)? else { return Ok(Looked::Nothing) };
        self.do_here(taken.task, own)?;
        Ok(Looked::Something)
    }

    /// Until at most this number of batches is away.
    fn wait(&mut self, most: usize, own: &mut dyn TakeMarks) -> Result<Marked, MarkError> {
        let first = self.poll / 32;
        let mut next = first;
        while self.away.len() > most {
            if self.context.cancel.is_cancelled() {
                return Err(MarkError::Interrupted);
            }
            let Some((task, _)) = self.away.first_key_value() else { break };
            // Its worker may be stuck.
            if self.queue.is_none() || self.waited >= self.claim_after {
                self.do_here(*task, own)?;
                continue;
            }
            match self.look(own) {
                Ok(Looked::Something) => (next, self.waited) = (first, Duration::ZERO),
                Ok(Looked::Nothing) => {
                    let time = next;
                    self.context.executor.block_on(async move { tokio::time::sleep(time).await });
                    self.waited += next;
                    next = (next * 2).min(self.poll);
                }
                Ok(Looked::Wrong) => return Ok(Marked::WorkerWrong),
                // What this process reads needs neither listings nor registers.
                Err(MarkError::Index(IndexError::Repository(error))) => self.stop_sharing(&error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(Marked::Counts)
    }
}

impl SharedMarks for Marking {
    fn offer(&mut self, segments: Vec<SegmentRef>, own: &mut dyn TakeMarks) -> Result<Marked, MarkError> {
        if self.queue.is_none() || self.next >= MARK_TASKS_MAX {
            read(&segments, own)?;
            return Ok(Marked::Counts);
        }
        let id = self.task(self.next);
        // Also of one that failed: it may be there.
        self.next += 1;
        let given = random(self.context.repository.entropy())
            .and_then(|ticket| Ok(Batch { ticket, segments: self.give(id, ticket, segments.clone())? }));
        match given {
            Ok(batch) => {
                self.away.insert(id, batch);
                self.state.lock().report.tasks += 1;
            }
            Err(error) => {
                match error {
                    // Too much for a task. It is there for nobody.
                    RepositoryError::Unstorable(error) => tracing::debug!(%error, "segments are not given away"),
                    error => self.stop_sharing(&error.to_string()),
                }
                read(&segments, own)?;
            }
        }
        self.wait(self.away_max, own)
    }

    fn finish(&mut self, own: &mut dyn TakeMarks) -> Result<Marked, MarkError> {
        self.wait(0, own)
    }

    fn end(mut self: Box<Self>) {
        // Of a collection that failed.
        for task in std::mem::take(&mut self.away).into_keys() {
            self.close(task);
        }
        if let Some(queue) = self.queue.take() {
            queue.leave();
        }
        let look = self.look;
        registers::tidy(&self.context, self.pass, |object| match object {
            FleetObject::Range(task) | FleetObject::Done(task) => task.stage == Stage::Mark,
            FleetObject::Claim(task, _) | FleetObject::Output(task, ..) => task.stage == Stage::Mark,
            // Later, the pass may give chunks away, too.
            FleetObject::Beat(..) => look == 0,
            FleetObject::Plan => false,
        });
    }
}

fn read(segments: &[SegmentRef], own: &mut dyn TakeMarks) -> Result<(), MarkError> {
    for row in segments {
        for record in &own.read(row)?.records {
            own.needs(&larder_format::index_tables::ChunkKey::of(&record.chunk.fingerprint))?;
        }
    }
    Ok(())
}

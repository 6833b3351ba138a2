//! The process that makes a pass, in an exact collection: it gives segments of recipes away, reads
//! some of them, and takes keys.
//!
//! Nothing depends on workers, as in `ask`. Batches come back in any order. The keys of a result
//! are taken when all of it was verified (`verify_marks`), so a wrong one leaves nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_format::fleet::{MARK_TASKS_MAX, MarkTask, Stage, TaskId};
use larder_format::ids::JobId;
use larder_format::names::FleetObject;
use larder_format::recipe::SegmentRef;
use larder_index::IndexError;
use larder_job::JobContext;
use larder_reader::{MarkError, Marked, SharedMarks, TakeMarks};
use larder_store::RepositoryError;
use parking_lot::Mutex;

use super::given_away::{GivenAway, Verified, warn_not_done};
use super::state::{SharedPassOptions, State};
use super::verify_marks::verify;

/// Chunk records that make a batch: one for this number of bytes of a batch of containers.
pub(super) const CHUNK_BYTES: u64 = 512;

/// The segments of one exact collection. See the module header.
pub(super) struct Marking {
    given: GivenAway,
    look: u8,
    state: Arc<Mutex<State>>,
    away: BTreeMap<TaskId, Batch>,
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
        let given = GivenAway::begin(context, options, (pass, turn))?;
        Ok(Self { given, look, state, away: BTreeMap::new() })
    }

    /// Reads a batch in this process, and tells the others.
    fn do_here(&mut self, task: TaskId, own: &mut dyn TakeMarks) -> Result<(), MarkError> {
        if let Some(batch) = self.away.get(&task) {
            read(&batch.segments, own)?;
            self.away.remove(&task);
            self.given.close::<MarkTask>(task);
        }
        Ok(())
    }

    /// Takes results of others.
    fn take_results(&mut self, own: &mut dyn TakeMarks) -> Result<Looked, MarkError> {
        let tasks: Vec<TaskId> = self.away.keys().copied().collect();
        let open = tasks.iter().enumerate().map(|(at, task)| (*task, at)).collect();
        let told = self.given.told::<MarkTask>(&open)?;
        let mut looked = Looked::Nothing;
        for (at, result) in told {
            looked = Looked::Something;
            let task = tasks[at];
            let Some(batch) = self.away.get(&task) else { continue };
            let verified = match &result {
                Ok(result) => {
                    let (context, pass) = (&self.given.context, self.given.pass);
                    verify(context, (pass, task), batch.ticket, &batch.segments, result, own)?
                }
                Err(why) => Verified::NotDone(why.clone()),
            };
            match (verified, result) {
                (Verified::Counts(keys), Ok(result)) => {
                    keys.iter().try_for_each(|key| own.needs(key))?;
                    let segments = self.away.remove(&task).map_or(0, |batch| batch.segments.len());
                    self.state.lock().marked(result.head.worker, segments as u64);
                }
                (Verified::Counts(_), Err(why)) | (Verified::NotDone(why), _) => {
                    warn_not_done(&why);
                    self.do_here(task, own)?;
                }
                (Verified::Wrong(why), result) => {
                    let host = result.map(|result| result.head.host).unwrap_or_default();
                    tracing::warn!(
                        "a worker on host {host:?} says that it read recipes, and this process finds otherwise ({why}); \
                         it does everything that others did"
                    );
                    self.state.lock().worker_was_wrong();
                    self.given.stop::<MarkTask>("a worker was wrong");
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
        let Some((task, _)) = self.given.claim(&due)? else {
            return Ok(if self.given.is_shared() { Looked::Nothing } else { Looked::Something });
        };
        self.do_here(task, own)?;
        Ok(Looked::Something)
    }

    /// Until at most this number of batches is away.
    fn wait(&mut self, most: usize, own: &mut dyn TakeMarks) -> Result<Marked, MarkError> {
        while self.away.len() > most {
            if self.given.context.cancel.is_cancelled() {
                return Err(MarkError::Interrupted);
            }
            let Some((task, _)) = self.away.first_key_value() else { break };
            // Its worker may be stuck.
            if !self.given.may_wait() {
                self.do_here(*task, own)?;
                continue;
            }
            match self.look(own) {
                Ok(Looked::Something) => self.given.happened(),
                Ok(Looked::Nothing) => self.given.pause(),
                Ok(Looked::Wrong) => return Ok(Marked::WorkerWrong),
                // What this process reads needs neither listings nor registers.
                Err(MarkError::Index(IndexError::Repository(error))) => self.given.stop::<MarkTask>(&error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(Marked::Counts)
    }
}

impl SharedMarks for Marking {
    fn offer(&mut self, segments: Vec<SegmentRef>, own: &mut dyn TakeMarks) -> Result<Marked, MarkError> {
        let Some(number) = self.given.number(MARK_TASKS_MAX) else {
            read(&segments, own)?;
            return Ok(Marked::Counts);
        };
        let id = TaskId { stage: Stage::Mark, round: self.look, number };
        let offered = segments.clone();
        match self.given.give(id, |head, of_pass| MarkTask { head, of_pass, segments }) {
            Ok((MarkTask { segments, .. }, ticket)) => {
                self.away.insert(id, Batch { ticket, segments });
                self.state.lock().report.tasks += 1;
            }
            Err(error) => {
                match error {
                    // Too much for a task. It is there for nobody.
                    RepositoryError::Unstorable(error) => tracing::debug!(%error, "segments are not given away"),
                    error => self.given.stop::<MarkTask>(&error.to_string()),
                }
                read(&offered, own)?;
            }
        }
        self.wait(self.given.away_max, own)
    }

    fn finish(&mut self, own: &mut dyn TakeMarks) -> Result<Marked, MarkError> {
        self.wait(0, own)
    }

    fn end(mut self: Box<Self>) {
        // Of a collection that failed.
        for task in std::mem::take(&mut self.away).into_keys() {
            self.given.close::<MarkTask>(task);
        }
        let look = self.look;
        self.given.end(|object| match object {
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

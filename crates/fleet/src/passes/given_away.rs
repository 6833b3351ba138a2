//! Tasks of a pass that are given away: how they are created, looked for and closed, and for how
//! long workers are waited for. Chunks (`ask`) and segments (`marks`) go the same way.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_format::EncodeError;
use larder_format::fleet::{CopyResult, CopyTask, MarkResult, MarkTask, PassHead, ResultHead, TaskHead, TaskId};
use larder_format::ids::{AttemptId, JobId};
use larder_format::keys::Keys;
use larder_format::names::{self, FleetObject};
use larder_format::{DecodeError, seal::RANDOM_LEN};
use larder_job::JobContext;
use larder_store::RepositoryError;
use larder_store::repository::random;

use super::registers::{self, Told};
use super::state::{AWAY_EACH, SharedPassOptions};
use crate::given::{self, GivenTask};
use crate::queue::{StoreQueue, Times};

/// A task of a pass, as the process that makes the pass sees it.
pub(super) trait PassTask: GivenTask {
    /// Its register.
    type Result: TaskResult;
    /// What this process does with the task, in messages.
    const DOES: &str;

    fn of_pass(&self) -> PassHead;
    fn seal(&self, keys: &Keys, pass: JobId, id: TaskId, salt: [u8; RANDOM_LEN]) -> Result<Vec<u8>, EncodeError>;
}

/// The register of a task of a pass.
pub(super) trait TaskResult: Sized {
    fn open(keys: &Keys, pass: JobId, id: TaskId, bytes: &[u8]) -> Result<Self, DecodeError>;
    fn seal(&self, keys: &Keys, pass: JobId, id: TaskId, salt: [u8; RANDOM_LEN]) -> Result<Vec<u8>, EncodeError>;
    fn not_done(head: ResultHead, why: String) -> Self;
    fn head(&self) -> &ResultHead;
    fn head_mut(&mut self) -> &mut ResultHead;
    fn failure(&self) -> Option<&str>;
}

macro_rules! pass_task {
    ($task:ty, $result:ty, $does:literal) => {
        impl PassTask for $task {
            type Result = $result;
            const DOES: &str = $does;

            fn of_pass(&self) -> PassHead {
                self.of_pass
            }

            fn seal(
                &self,
                keys: &Keys,
                pass: JobId,
                id: TaskId,
                salt: [u8; RANDOM_LEN],
            ) -> Result<Vec<u8>, EncodeError> {
                self.encode(keys, pass, id, salt)
            }
        }

        impl TaskResult for $result {
            fn open(keys: &Keys, pass: JobId, id: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
                Self::decode(keys, pass, id, bytes)
            }

            fn seal(
                &self,
                keys: &Keys,
                pass: JobId,
                id: TaskId,
                salt: [u8; RANDOM_LEN],
            ) -> Result<Vec<u8>, EncodeError> {
                self.encode(keys, pass, id, salt)
            }

            fn not_done(head: ResultHead, why: String) -> Self {
                Self::failed(head, why)
            }

            fn head(&self) -> &ResultHead {
                &self.head
            }

            fn head_mut(&mut self) -> &mut ResultHead {
                &mut self.head
            }

            fn failure(&self) -> Option<&str> {
                self.failure.as_deref()
            }
        }
    };
}

pass_task!(CopyTask, CopyResult, "copies");
pass_task!(MarkTask, MarkResult, "reads recipes");

/// A result of another process.
pub(super) enum Verified<T> {
    /// It counts.
    Counts(T),
    /// It is of another task, or the task was not done. Why.
    NotDone(String),
    /// It is not true. Why.
    Wrong(String),
}

/// Why a result does not count, by its own words; `None`: it is to be verified.
pub(super) fn not_done<R: TaskResult>(result: &R, ticket: [u8; 16]) -> Option<String> {
    match result.failure() {
        _ if result.head().ticket != ticket => Some("it is of another task".to_owned()),
        failure => failure.map(str::to_owned),
    }
}

/// Tells of a worker that did not do its task.
pub(super) fn warn_not_done(why: &str) {
    tracing::warn!("a worker did not do its task ({why}); this process does it");
}

/// See the module header.
pub(super) struct GivenAway {
    pub(super) context: JobContext,
    pub(super) pass: JobId,
    turn: u64,
    me: AttemptId,
    claim_after: Duration,
    poll: Duration,
    /// Batches that are away at most.
    pub(super) away_max: usize,
    /// `None`: nothing is shared any more.
    queue: Option<StoreQueue>,
    /// The number of the next task. No number is used twice.
    next: u32,
    /// For how long nothing has happened.
    waited: Duration,
    /// The next wait.
    wait: Duration,
}

impl GivenAway {
    pub(super) fn begin(
        context: &JobContext,
        options: &SharedPassOptions,
        (pass, turn): (JobId, u64),
    ) -> Result<Self, RepositoryError> {
        // What a result says is compared with what the store has now.
        let context = context.through(&context.repository.through(context.repository.store().without_cache()));
        let me = AttemptId(random(context.repository.entropy())?);
        let claim_after = Duration::from_secs(options.claim.as_secs().max(1));
        // A worker that sees a task sees signs of life of this process, too.
        let queue = StoreQueue::join(&context, pass, me, claim_after, Vec::new())?;
        Ok(Self {
            context,
            pass,
            turn,
            me,
            claim_after,
            poll: options.poll,
            away_max: (options.workers.get() as usize).saturating_mul(AWAY_EACH),
            queue: Some(queue),
            next: 0,
            waited: Duration::ZERO,
            wait: options.poll / 32,
        })
    }

    /// Whether anything is given away, and anybody waited for.
    pub(super) fn is_shared(&self) -> bool {
        self.queue.is_some()
    }

    /// Nothing is given away any more, and nobody is waited for.
    pub(super) fn stop<T: PassTask>(&mut self, why: &str) {
        if let Some(queue) = self.queue.take() {
            tracing::warn!("the pass is not shared any more ({why}); this process {} alone", T::DOES);
            queue.leave();
        }
    }

    /// How many numbers were used.
    pub(super) fn numbers(&self) -> u32 {
        self.next
    }

    /// A number for a task; `None`: there are no more than `most`. It is used also if creating the
    /// task fails: the task may be there.
    pub(super) fn number(&mut self, most: u32) -> Option<u32> {
        let number = Some(self.next).filter(|number| *number < most && self.is_shared())?;
        self.next += 1;
        Some(number)
    }

    /// Creates a task, and returns it.
    pub(super) fn give<T: PassTask>(
        &self,
        id: TaskId,
        task: impl FnOnce(TaskHead, PassHead) -> T,
    ) -> Result<(T, [u8; 16]), RepositoryError> {
        let repository = &self.context.repository;
        let ticket = random(repository.entropy())?;
        let head = given::head(&self.context, T::RULES, self.me, self.claim_after);
        let task = task(head, PassHead { turn: self.turn, ticket });
        let bytes = task.seal(repository.keys(), self.pass, id, random(repository.entropy())?)?;
        self.context.executor.block_on(repository.store().create(&names::fleet_range(self.pass, id), bytes.into()))?;
        Ok((task, ticket))
    }

    /// Nobody else needs to do a task.
    pub(super) fn close<T: PassTask>(&self, id: TaskId) {
        let repository = &self.context.repository;
        let drawn = random(repository.entropy()).and_then(|ticket| Ok((ticket, random(repository.entropy())?)));
        let Ok((ticket, salt)) = drawn else { return };
        let head = ResultHead { ticket, worker: self.me, host: self.context.identity.host.clone(), took_ms: 0 };
        // For others it counts that it is there.
        let why = "the process that makes the pass did it, or does not need it".to_owned();
        let register = T::Result::not_done(head, why).seal(repository.keys(), self.pass, id, salt);
        registers::close(&self.context, self.pass, id, register);
    }

    /// Results of those of these tasks that have one.
    #[expect(clippy::type_complexity, reason = "a number and a result for each task that is open")]
    pub(super) fn told<T: PassTask>(
        &self,
        open: &BTreeMap<TaskId, usize>,
    ) -> Result<Vec<(usize, Told<T::Result>)>, RepositoryError> {
        let open_result = |task, bytes: &[u8]| T::Result::open(self.context.repository.keys(), self.pass, task, bytes);
        registers::told(&self.context, (self.pass, T::STAGE), open, T::BYTES_MAX, open_result)
    }

    /// What the store says of workers; `None`: nothing is shared.
    pub(super) fn times(&mut self) -> Result<Option<Times>, RepositoryError> {
        self.queue.as_mut().map(StoreQueue::times).transpose()
    }

    /// Claims one of these tasks that nobody does, and the epoch of the claim.
    pub(super) fn claim(&mut self, due: &[TaskId]) -> Result<Option<(TaskId, u32)>, RepositoryError> {
        let Some(queue) = &mut self.queue else { return Ok(None) };
        let times = queue.times()?;
        let taken = queue.take_at(&times, due)?;
        Ok(taken.map(|taken| (taken.task, u32::from(taken.epoch))))
    }

    /// Whether to wait for workers on: nothing has happened, but not for the time of a claim.
    pub(super) fn may_wait(&self) -> bool {
        self.is_shared() && self.waited < self.claim_after
    }

    /// Something happened, so workers are waited for again.
    pub(super) fn happened(&mut self) {
        (self.wait, self.waited) = (self.poll / 32, Duration::ZERO);
    }

    /// Waits for the next look, ever longer.
    pub(super) fn pause(&mut self) {
        let time = self.wait;
        self.context.executor.block_on(async move { tokio::time::sleep(time).await });
        self.waited += time;
        self.wait = (self.wait * 2).min(self.poll);
    }

    /// Ends it: deletes those objects of the pass that `is_left` accepts.
    pub(super) fn end(&mut self, is_left: impl Fn(&FleetObject) -> bool) {
        if let Some(queue) = self.queue.take() {
            queue.leave();
        }
        registers::tidy(&self.context, self.pass, is_left);
    }
}

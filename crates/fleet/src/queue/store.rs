//! The queue of processes that share nothing but the store: claims, and signs of life.
//!
//! A claim has an epoch and is created if absent. While its worker gives signs of life, others
//! leave the task to it. Afterwards one of them claims the next epoch; creating it is the choice.
//! The age of a sign of life is that which the store says: the difference between its time and that
//! of the own newest one, in one listing. So no clock of a host matters, and a process that was
//! stopped takes nobody for dead.
//!
//! A process that could give no signs of life itself begins to count when it can again: whatever
//! kept it from the store may have kept the others from it.
//!
//! Claims keep work from being done twice, and nothing else. Registers decide.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use larder_format::fleet::{CLAIM_MAX, FleetWorker, TaskId};
use larder_format::ids::{AttemptId, JobId};
use larder_format::names::{self, FleetObject};
use larder_index::Task;
use larder_job::JobContext;
use larder_store::repository::random;
use larder_store::{RepositoryError, StoreErrorKind};
use tokio::sync::oneshot;

use super::{Delivery, Queue, SharedQueue};
use crate::error::FleetError;
use crate::memory::high_water;
use crate::situation::Registers;
use crate::waiting::wait;

/// Signs of life in the time after which a claim may be taken over.
pub(crate) const BEATS: u32 = 6;

/// Gives signs of life, as long as it lives.
pub(crate) struct Heartbeat {
    /// Ends it.
    _stop: oneshot::Sender<()>,
    _task: Task<()>,
}

impl Heartbeat {
    /// Begins to give these.
    pub(crate) fn begin(context: &JobContext, beats: impl Future<Output = ()> + Send + 'static) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = context.executor.spawn(async move {
            tokio::select! {
                biased;
                _ = stopped => {}
                () = beats => {}
            }
        });
        Self { _stop: stop, _task: task }
    }
}

/// What the store says of the workers of a batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    /// Of the own newest sign of life.
    now_ms: u64,
    /// The number of the newest sign of life of each worker, and when the store made it.
    workers: BTreeMap<AttemptId, (u32, u64)>,
    /// The claim of the highest epoch of each task.
    claims: BTreeMap<TaskId, (u32, u64)>,
    /// Of the own first one.
    joined_ms: u64,
    /// Of the own newest one when this process saw that the present round is due.
    round_ms: u64,
    /// Since when this process has given its signs of life without a gap; 0: since it joined.
    steady_ms: u64,
}

impl Times {
    /// For how long a worker has given no sign of life; without any, since this process joined.
    /// Gaps in the own ones count for nothing. Zero if the store does not say times.
    pub(crate) fn silence_of(&self, worker: Option<AttemptId>) -> Duration {
        let last = worker.and_then(|worker| self.workers.get(&worker)).map_or(self.joined_ms, |(_, made_ms)| *made_ms);
        self.since(last)
    }

    /// The highest epoch in which a task was claimed.
    pub(crate) fn epoch_of(&self, task: TaskId) -> Option<u32> {
        self.claims.get(&task).map(|(epoch, _)| *epoch)
    }

    /// For how long the present round has been due, as far as this process saw.
    pub(crate) fn of_round(&self) -> Duration {
        self.since(self.round_ms)
    }

    /// When the store made the own newest sign of life; 0: not known.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn since(&self, ms: u64) -> Duration {
        match ms {
            0 => Duration::ZERO,
            ms => Duration::from_millis(self.now_ms.saturating_sub(ms.max(self.steady_ms))),
        }
    }
}

/// See the module header.
pub(crate) struct StoreQueue {
    context: JobContext,
    batch: JobId,
    me: AttemptId,
    claim_after: Duration,
    /// Of the own first sign of life that a listing had; 0: not yet.
    joined_ms: u64,
    /// The present round, and the own sign of life of the time when it was seen first.
    round: (u32, u64),
    workers: HashMap<(TaskId, u32), Option<FleetWorker>>,
    /// The own sign of life at the last look at the lease of the batch.
    looked_ms: u64,
    /// What workers said of the images that they read.
    readers: BTreeMap<AttemptId, Vec<u32>>,
    /// The number of the own first sign of life after the newest gap.
    resumed: Arc<AtomicU32>,
    /// That number, as of the last look, and when the store made the own newest one then.
    steady: (u32, u64),
    _heartbeat: Heartbeat,
}

impl StoreQueue {
    /// Begins with a sign of life. `reads` are the hosts of the plan whose images it reads.
    pub(crate) fn join(
        context: &JobContext,
        batch: JobId,
        me: AttemptId,
        claim_after: Duration,
        reads: Vec<u32>,
    ) -> Result<Self, RepositoryError> {
        let beats = Arc::new(Beats::new(batch, me, reads));
        context.executor.block_on(beats.give(context))?;
        let (of_task, every) = (context.clone(), claim_after / BEATS);
        let resumed = Arc::new(AtomicU32::new(0));
        let first_after_gap = resumed.clone();
        let _heartbeat = Heartbeat::begin(context, async move {
            let mut was_missing = false;
            loop {
                tokio::time::sleep(every).await;
                // One that lands later than that is a gap as well.
                let given = tokio::time::timeout(claim_after, beats.give(&of_task)).await;
                let is_missing = !matches!(given, Ok(Ok(_)));
                match given {
                    Ok(Ok(number)) if was_missing => first_after_gap.store(number, Ordering::Relaxed),
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "the store did not take a sign of life of this worker"),
                    Err(_) => tracing::warn!("the store has not answered a sign of life of this worker"),
                }
                was_missing = is_missing;
            }
        });
        let context = context.clone();
        Ok(Self {
            context,
            batch,
            me,
            claim_after,
            joined_ms: 0,
            round: (0, 0),
            workers: HashMap::new(),
            looked_ms: 0,
            readers: BTreeMap::new(),
            resumed,
            steady: (0, 0),
            _heartbeat,
        })
    }

    /// Takes the own signs of life away, as far as the store lets this key.
    pub(crate) fn leave(self) {
        let Self { context, batch, me, _heartbeat, .. } = self;
        drop(_heartbeat);
        let left = context.executor.block_on(async {
            let store = context.repository.store().without_cache();
            for object in store.list(&format!("{}{me}/", names::fleet_beats(batch))).await? {
                store.delete(&object.name).await?;
            }
            Ok::<_, RepositoryError>(())
        });
        if let Err(error) = left {
            tracing::debug!(%error, "signs of life of this worker are left to passes");
        }
    }

    /// Looks at claims, and then at signs of life.
    pub(crate) fn times(&mut self) -> Result<Times, RepositoryError> {
        let store = self.context.repository.store().without_cache();
        let batch = names::fleet_batch(self.batch);
        let (claims, beats) = self.context.executor.block_on(async {
            let claims = store.list(&format!("{batch}claim/")).await?;
            Ok::<_, RepositoryError>((claims, store.list(&names::fleet_beats(self.batch)).await?))
        })?;
        let mut times = Times::default();
        for object in claims {
            if let Some((_, FleetObject::Claim(task, epoch))) = names::parse_fleet(&object.name) {
                let last = times.claims.entry(task).or_default();
                *last = (*last).max((epoch, object.made_ms()));
            }
        }
        for object in beats {
            if let Some((_, FleetObject::Beat(worker, number))) = names::parse_fleet(&object.name) {
                let last = times.workers.entry(worker).or_default();
                *last = (*last).max((number, object.made_ms()));
            }
        }
        let (newest, now_ms) = times.workers.get(&self.me).copied().unwrap_or_default();
        times.now_ms = now_ms;
        // Before the listing, the newest one may be older than the gap.
        let resumed = self.resumed.load(Ordering::Relaxed);
        if resumed != self.steady.0 && newest >= resumed {
            self.steady = (resumed, now_ms);
        }
        times.steady_ms = self.steady.1;
        if self.joined_ms == 0 {
            self.joined_ms = times.now_ms;
        }
        times.joined_ms = self.joined_ms;
        if self.round.1 == 0 {
            self.round.1 = times.now_ms;
        }
        times.round_ms = self.round.1;
        Ok(times)
    }

    /// This round of the plan is due.
    pub(crate) fn is_at(&mut self, round: u32) {
        if self.round.0 != round {
            self.round = (round, 0);
        }
    }

    /// Whether there is a new sign of life of this process since the last such question, or none at
    /// all.
    pub(crate) fn is_new(&mut self, times: &Times) -> bool {
        let last = std::mem::replace(&mut self.looked_ms, times.now_ms);
        times.now_ms == 0 || times.now_ms != last
    }

    /// The time after which a claim may be taken over.
    pub(crate) fn claim_after(&self) -> Duration {
        self.claim_after
    }

    /// The worker of the last claim of a task; `None`: nobody claims it, or the claim cannot be
    /// read.
    pub(crate) fn claimed_by(&mut self, times: &Times, task: TaskId) -> Result<Option<FleetWorker>, RepositoryError> {
        let Some((epoch, _)) = times.claims.get(&task).copied() else { return Ok(None) };
        if let Some(known) = self.workers.get(&(task, epoch)) {
            return Ok(known.clone());
        }
        let repository = &self.context.repository;
        let name = names::fleet_claim(self.batch, task, epoch);
        let worker = match self.context.executor.block_on(repository.store().get_up_to(&name, CLAIM_MAX)) {
            Ok(bytes) => FleetWorker::decode_claim(repository.keys(), self.batch, task, epoch, &bytes)
                .inspect_err(|error| tracing::warn!(%task, %error, "a claim cannot be read"))
                .ok(),
            Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        self.workers.insert((task, epoch), worker.clone());
        Ok(worker)
    }

    /// Whether a worker reads the images of this host when it comes to them, and gave a sign of
    /// life within this time.
    pub(crate) fn is_awaited(&mut self, times: &Times, host: u32, within: Duration) -> Result<bool, RepositoryError> {
        for (worker, (number, _)) in &times.workers {
            if times.silence_of(Some(*worker)) > within {
                continue;
            }
            let is_known = self.readers.contains_key(worker);
            if !is_known {
                let repository = &self.context.repository;
                let name = names::fleet_beat(self.batch, *worker, *number);
                let bytes = match self.context.executor.block_on(repository.store().get_up_to(&name, CLAIM_MAX)) {
                    Ok(bytes) => bytes,
                    // It gave the next one meanwhile, so it lives. The next look reads that.
                    Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(true),
                    Err(error) => return Err(error.into()),
                };
                let said = FleetWorker::decode_beat(repository.keys(), self.batch, *worker, *number, &bytes);
                self.readers.insert(*worker, said.ok().and_then(|said| said.reads).unwrap_or_default());
            }
            if self.readers.get(worker).is_some_and(|reads| reads.contains(&host)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a task is free: nobody claims it, or its worker is silent for too long. Returns the
    /// epoch to claim.
    fn free(&mut self, times: &Times, task: TaskId) -> Result<Option<u32>, RepositoryError> {
        let Some((epoch, _)) = times.claims.get(&task).copied() else { return Ok(Some(0)) };
        let worker = self.claimed_by(times, task)?;
        // The own claim is of an attempt that ended.
        let is_own = worker.as_ref().is_some_and(|worker| worker.worker == self.me);
        let is_free = is_own || times.silence_of(worker.map(|worker| worker.worker)) > self.claim_after;
        Ok(is_free.then(|| epoch.saturating_add(1)))
    }

    /// Takes one of these tasks, as of these times; `None`: others do all of them.
    pub(crate) fn take_at(&mut self, times: &Times, due: &[TaskId]) -> Result<Option<Delivery>, RepositoryError> {
        for task in due {
            // The epoch of a host is the round of its scans.
            let epoch = self.free(times, *task)?.and_then(|epoch| u8::try_from(epoch).ok());
            if let Some(epoch) = epoch
                && self.claim(*task, u32::from(epoch))?
            {
                return Ok(Some(Delivery { task: *task, epoch }));
            }
        }
        Ok(None)
    }

    fn claim(&self, task: TaskId, epoch: u32) -> Result<bool, RepositoryError> {
        let repository = &self.context.repository;
        let (worker, salt) = (worker(&self.context, self.me, None), random(repository.entropy())?);
        let bytes = worker.encode_claim(repository.keys(), self.batch, task, epoch, salt);
        let bytes = bytes.map_err(RepositoryError::from)?;
        let name = names::fleet_claim(self.batch, task, epoch);
        match self.context.executor.block_on(repository.store().create(&name, bytes.into())) {
            Ok(_) => Ok(true),
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Queue for StoreQueue {
    fn take(&mut self, due: &[TaskId]) -> Result<Option<Delivery>, FleetError> {
        if due.is_empty() {
            return Ok(None);
        }
        let times = self.times()?;
        Ok(self.take_at(&times, due)?)
    }
}

impl StoreQueue {
    /// Takes a task that a message delivered; `None`: its worker is alive.
    pub(crate) fn take_delivered(&mut self, task: TaskId) -> Result<Option<Delivery>, FleetError> {
        match self.claim(task, 0)? {
            true => Ok(Some(Delivery { task, epoch: 0 })),
            false => self.take(&[task]),
        }
    }
}

impl SharedQueue for StoreQueue {
    fn store(&mut self) -> &mut StoreQueue {
        self
    }

    fn look(&mut self, _registers: &Registers, _due: &[TaskId]) {}

    fn tell(&mut self) {}

    fn supervises(&mut self) -> bool {
        true
    }

    fn wait(&mut self, time: Duration) -> Result<(), FleetError> {
        wait(&self.context, time)
    }

    fn end(&mut self) {}
}

fn worker(context: &JobContext, me: AttemptId, reads: Option<Vec<u32>>) -> FleetWorker {
    FleetWorker {
        worker: me,
        host: context.identity.host.clone(),
        process: context.identity.process,
        program: context.identity.program.clone(),
        time_ms: context.clock.now_ms(),
        memory: high_water(),
        reads,
    }
}

/// Hosts that a sign of life names at most.
const READS_MAX: usize = 4096;

/// Signs of life of one worker in one batch.
pub(crate) struct Beats {
    batch: JobId,
    me: AttemptId,
    reads: Vec<u32>,
    next: AtomicU32,
}

impl Beats {
    pub(crate) fn new(batch: JobId, me: AttemptId, mut reads: Vec<u32>) -> Self {
        reads.truncate(READS_MAX);
        Self { batch, me, reads, next: AtomicU32::new(0) }
    }

    /// Gives one sign of life, and takes the last but one away: a listing that comes in between
    /// shows one of the two that stay. A key that may not delete leaves all of them. Returns its
    /// number.
    pub(crate) async fn give(&self, context: &JobContext) -> Result<u32, RepositoryError> {
        let (repository, batch, me) = (&context.repository, self.batch, self.me);
        let now = self.next.fetch_add(1, Ordering::Relaxed);
        let worker = worker(context, me, Some(self.reads.clone()));
        let bytes = worker.encode_beat(repository.keys(), batch, now, random(repository.entropy())?)?;
        repository.store().create(&names::fleet_beat(batch, me, now), bytes.into()).await?;
        if let Some(last) = now.checked_sub(2) {
            let _ = repository.store().delete(&names::fleet_beat(batch, me, last)).await;
        }
        Ok(now)
    }
}

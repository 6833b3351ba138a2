//! Containers on their way to the store: waiting bytes, containers under way, and failures.
//!
//! One account of memory for everything between a chunk found new and its container acknowledged. A
//! thread that adds to it waits while it is full; compressing and uploading take from it and never
//! wait for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::task::AtomicWaker;
use futures::{StreamExt, TryStreamExt};
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::names;
use larder_index::Executor;
use larder_job::Cancel;
use larder_store::rules::Rule;
use larder_store::{Repository, RepositoryError, StoreError, StoreErrorKind, StoreOp};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::watch;

use crate::container_totals::ContainerTotals;
use crate::write_budget::WriteBudget;

/// Containers that are asked for at once.
const LOOKS_AT_ONCE: usize = 16;

/// How often a thread that waits looks whether its job is to stop.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    /// Begun, and not acknowledged. Those of failed uploads stay.
    open: BTreeSet<ContainerId>,
    stored: HashMap<ContainerId, ContainerTotals>,
    stored_bytes: u64,
    failure: Option<RepositoryError>,
}

/// See the module header. Shared by the packers and the pool's threads.
#[derive(Debug)]
pub struct Uploads {
    repository: Repository,
    runtime: Executor,
    budget: WriteBudget,
    /// Asked by those who wait.
    cancel: Cancel,
    state: Mutex<State>,
    changed: Condvar,
    /// Who waits in turns with everybody else.
    waiting: AtomicWaker,
    /// Whether nothing more is to be uploaded.
    stopped: watch::Sender<bool>,
}

/// Stops uploads when the job that makes them ends, however it ends.
#[derive(Debug)]
pub struct StopUploads(pub Arc<Uploads>);

impl Drop for StopUploads {
    fn drop(&mut self) {
        self.0.stopped.send_replace(true);
    }
}

impl Uploads {
    /// An empty account for the uploads of one job. Once `cancel` is asked, waiting for room fails.
    pub fn new(repository: Repository, runtime: Executor, cancel: Cancel) -> Arc<Self> {
        Self::within(repository, runtime, cancel, WriteBudget::default())
    }

    /// The same for containers of these sizes.
    pub fn within(repository: Repository, runtime: Executor, cancel: Cancel, budget: WriteBudget) -> Arc<Self> {
        Arc::new(Self {
            repository,
            runtime,
            budget,
            cancel,
            state: Mutex::default(),
            changed: Condvar::new(),
            waiting: AtomicWaker::new(),
            stopped: watch::Sender::new(false),
        })
    }

    pub(crate) fn budget(&self) -> WriteBudget {
        self.budget
    }

    pub(crate) fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Waits until it is so.
    fn until(&self, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        if self.runtime.is_in_turns() {
            // Others change it while this waits here.
            self.runtime.block_on(poll_fn(|context| {
                self.waiting.register(context.waker());
                if is_so(&self.state.lock()) { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
        let mut state = self.state.lock();
        while !is_so(&state) {
            // A signal changes nothing here that could wake this.
            self.changed.wait_for(&mut state, LOOK_AGAIN);
        }
        state
    }

    fn tell(&self) {
        self.changed.notify_all();
        self.waiting.wake();
    }

    /// Waits for room for `bytes` more, then takes it; fails when an upload has failed, or when the
    /// job is to stop.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), RepositoryError> {
        let has_room = |state: &State| state.waiting + bytes <= self.budget.waiting;
        let mut state = self.until(|state| has_room(state) || state.failure.is_some() || self.cancel.is_cancelled());
        fail_if_failed(&mut state)?;
        if !has_room(&state) {
            return Err(ended_error().into());
        }
        state.waiting += bytes;
        Ok(())
    }

    /// Gives room back.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.state.lock().waiting -= bytes;
        self.tell();
    }

    /// A container is being filled.
    pub(crate) fn opened(&self, id: ContainerId) {
        self.state.lock().open.insert(id);
    }

    /// A container will never be whole: present and later waiters get the reason.
    pub(crate) fn fail(&self, error: RepositoryError) {
        self.state.lock().failure.get_or_insert(error);
        self.tell();
    }

    /// Uploads a finished container, for which `accounted` bytes are reserved. `stays_warm`: in the
    /// storage class of the bucket.
    pub(crate) fn upload(
        self: &Arc<Self>,
        id: ContainerId,
        object: Vec<u8>,
        accounted: usize,
        held: ContainerTotals,
        stays_warm: bool,
    ) {
        let uploads = self.clone();
        let is_awaited = self.repository.keeps(Rule::DurableFirst);
        if !is_awaited {
            let mut state = self.state.lock();
            state.open.remove(&id);
            state.stored.insert(id, held);
        }
        self.runtime.detach(async move {
            let (mut stopped, name) = (uploads.stopped.subscribe(), names::container(id));
            let (store, object) = (uploads.repository.store(), Bytes::from(object));
            let create = async {
                if stays_warm { store.create_warm(&name, object).await } else { store.create(&name, object).await }
            };
            let result = tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => Err(stopped_error(id)),
                created = create => created,
            };
            let mut state = uploads.state.lock();
            state.waiting -= accounted;
            match result {
                Ok(_) => {
                    state.open.remove(&id);
                    state.stored_bytes += held.object_bytes;
                    state.stored.insert(id, held);
                }
                Err(error) => drop(state.failure.get_or_insert(error.into())),
            }
            drop(state);
            uploads.tell();
        });
    }

    /// Waits until every container that was opened is acknowledged by the store.
    pub fn wait(&self) -> Result<(), RepositoryError> {
        fail_if_failed(&mut self.until(|state| state.open.is_empty() || state.failure.is_some()))
    }

    /// As [`Self::wait`], until a stop is requested. Returns whether every container is
    /// acknowledged and no stop was requested.
    pub fn wait_unless_cancelled(&self) -> Result<bool, RepositoryError> {
        let is_over = |state: &State| state.open.is_empty() || state.failure.is_some();
        fail_if_failed(&mut self.until(|state| is_over(state) || self.cancel.is_cancelled()))?;
        Ok(!self.cancel.is_cancelled())
    }

    /// Asks the store for each stored container by name, past the cache: for a task that replaces
    /// objects on which others rely. A store that says "created" and has nothing would cost the
    /// replaced objects (`AskedTwice`).
    pub fn confirm(&self) -> Result<(), RepositoryError> {
        // In one order: a seed of the simulation is one run.
        self.ask_for(&self.stored().into_iter().collect())
    }

    /// Takes the containers out of this account that the store has acknowledged, and asks for each
    /// as [`Self::confirm`] does. For tasks that write more of them than memory should hold.
    ///
    /// # Errors
    /// The store does not have one of them, or cannot be asked.
    pub fn take_stored(&self) -> Result<BTreeMap<ContainerId, ContainerTotals>, RepositoryError> {
        let stored = std::mem::take(&mut self.state.lock().stored).into_iter().collect();
        self.ask_for(&stored)?;
        Ok(stored)
    }

    fn ask_for(&self, stored: &BTreeMap<ContainerId, ContainerTotals>) -> Result<(), RepositoryError> {
        if !self.repository.keeps(Rule::AskedTwice) {
            return Ok(());
        }
        let store = self.repository.store().without_cache();
        let looks = stored.iter().map(|(id, held)| {
            let (store, name, held) = (&store, names::container(*id), held.object_bytes);
            async move {
                let there = store.size(&name).await?;
                if there == held { Ok(()) } else { Err(other_size(name, held, there)) }
            }
        });
        let looks: Vec<_> = looks.collect();
        self.runtime.block_on(futures::stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE).try_collect::<()>())
    }

    /// The first container of this kind that is begun and not acknowledged. Those of a failed
    /// upload never are.
    pub fn first_open(&self, kind: ContainerKind) -> Option<ContainerId> {
        self.state.lock().open.iter().find(|id| id.kind == kind).copied()
    }

    /// Whether the store has acknowledged this container.
    pub fn is_stored(&self, id: ContainerId) -> bool {
        self.state.lock().stored.contains_key(&id)
    }

    /// The size of each stored container.
    pub fn stored(&self) -> HashMap<ContainerId, ContainerTotals> {
        self.state.lock().stored.clone()
    }

    /// Bytes of all stored containers.
    pub fn stored_bytes(&self) -> u64 {
        self.state.lock().stored_bytes
    }
}

fn stopped_error(id: ContainerId) -> StoreError {
    StoreError { name: names::container(id), ..ended_error() }
}

fn ended_error() -> StoreError {
    let source = Some("the job has ended".into());
    StoreError { op: StoreOp::Create, name: names::DATA.to_owned(), kind: StoreErrorKind::Other, source }
}

fn other_size(name: String, expected: u64, got: u64) -> RepositoryError {
    let kind = larder_store::StoreErrorKind::Damaged;
    let source = Some(larder_store::ShortRead { expected, got }.into());
    larder_store::StoreError { op: larder_store::StoreOp::Size, name, kind, source }.into()
}

/// The first caller gets the error itself; the job ends with it.
fn fail_if_failed(state: &mut State) -> Result<(), RepositoryError> {
    match state.failure.take() {
        None => Ok(()),
        Some(error) => {
            let again = larder_store::StoreError {
                op: larder_store::StoreOp::Create,
                name: "containers".to_owned(),
                kind: larder_store::StoreErrorKind::Other,
                source: Some("an earlier upload failed".into()),
            };
            state.failure = Some(again.into());
            Err(error)
        }
    }
}

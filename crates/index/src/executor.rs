//! Where work runs that waits for requests.
//!
//! Reading and writing tables is not async: it computes for long and waits in between. [`Executor`]
//! decides where that happens, which is the only difference. The work runs on threads of the
//! runtime, beside everything else, or *in turns*. In turns, everything of a process happens in one
//! order (the deterministic simulation of `testkit`).
//!
//! In turns, the work has a thread of its own that moves only while its task is polled. The task
//! stands still until the work waits for something. So at any moment one of them runs. Futures that
//! the work waits for, and its background futures, are polled on that thread with the waker of the
//! task: nothing proceeds by itself.
//!
//! Invariants, of work in turns
//! * It moves only inside of a poll of its task; when that is dropped, the work ends before the
//!   drop does.
//! * Background futures are polled in the order in which they began, whenever the work waits.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle as Thread;

use futures::FutureExt;
use futures::future::{AbortHandle, BoxFuture, abortable};
use larder_store::Repository;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The repository, and how to wait for requests to it. Cheap to clone.
///
/// Functions here that are not async block, and so must not be called on a thread that polls
/// futures ([`Executor`]).
#[derive(Debug, Clone)]
pub struct IndexIo {
    /// The repository.
    pub repository: Repository,
    /// Waits for requests.
    pub executor: Executor,
}

/// Where work runs and how it waits. Cheap to clone.
#[derive(Clone)]
pub struct Executor(Kind);

#[derive(Clone)]
enum Kind {
    /// Work runs on threads of the runtime.
    Threads(Handle),
    /// Work will run in turns with the task that wants it.
    Stepped(Handle),
    /// This is work that runs in turns.
    InTurns(Arc<Stepped>),
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_in_turns() { "Executor(in turns)" } else { "Executor(threads)" })
    }
}

/// Work on threads that are none of the runtime's, or none on which it polls.
impl From<Handle> for Executor {
    fn from(handle: Handle) -> Self {
        Self(Kind::Threads(handle))
    }
}

impl From<&Handle> for Executor {
    fn from(handle: &Handle) -> Self {
        handle.clone().into()
    }
}

impl From<&Executor> for Executor {
    fn from(executor: &Executor) -> Self {
        executor.clone()
    }
}

impl Executor {
    /// On threads of the runtime on which this is called.
    pub fn threads() -> Self {
        Handle::current().into()
    }

    /// In turns with the task that wants the work, on the runtime on which this is called. Such
    /// work waits with the executor that [`Self::run`] passes to it.
    pub fn stepped() -> Self {
        Self(Kind::Stepped(Handle::current()))
    }

    /// Does the work, with the means to read and write.
    pub async fn run<T: Send + 'static>(
        &self,
        repository: &Repository,
        work: impl FnOnce(IndexIo) -> T + Send + 'static,
    ) -> T {
        let repository = repository.clone();
        match &self.0 {
            Kind::Threads(handle) => {
                let executor = self.clone();
                let work = move || work(IndexIo { repository, executor });
                match handle.spawn_blocking(work).await {
                    Ok(result) => result,
                    Err(error) => resume_unwind(error.into_panic()),
                }
            }
            Kind::Stepped(_) | Kind::InTurns(_) => {
                in_turns(self.handle(), move |executor| work(IndexIo { repository, executor })).await
            }
        }
    }

    /// Waits for a future. Not to be called where futures are polled.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        match &self.0 {
            Kind::Threads(handle) | Kind::Stepped(handle) => handle.block_on(future),
            Kind::InTurns(turns) => turns.block_on(future),
        }
    }

    /// Has a future done beside, whether or not anybody waits for it.
    pub fn detach(&self, future: impl Future<Output = ()> + Send + 'static) {
        match &self.0 {
            Kind::Threads(handle) | Kind::Stepped(handle) => drop(handle.spawn(future)),
            Kind::InTurns(turns) => turns.beside.lock().push(future.boxed()),
        }
    }

    /// The runtime itself, for work that is never done in turns: tasks spawned there run by
    /// themselves.
    pub fn handle(&self) -> Handle {
        match &self.0 {
            Kind::Threads(handle) | Kind::Stepped(handle) => handle.clone(),
            Kind::InTurns(turns) => turns.handle.clone(),
        }
    }

    /// Whether nothing may run at the same time: work that could use several threads uses one.
    pub fn is_in_turns(&self) -> bool {
        matches!(self.0, Kind::Stepped(_) | Kind::InTurns(_))
    }

    /// Has a future done beside, and waits for its result. A request that only its reader polls
    /// keeps its turn at the store while the reader does something else, which may need that turn.
    pub fn beside<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        future: F,
    ) -> impl Future<Output = T> + use<T, F> {
        self.spawn(future).join()
    }

    /// Has a future done beside.
    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Task<T> {
        match &self.0 {
            Kind::Threads(handle) | Kind::Stepped(handle) => Task(TaskKind::Spawned(handle.spawn(future))),
            Kind::InTurns(turns) => turns.spawn(future),
        }
    }
}

/// A background future, which is stopped when its handle is dropped.
pub struct Task<T>(TaskKind<T>);

enum TaskKind<T> {
    Spawned(JoinHandle<T>),
    InTurns { done: oneshot::Receiver<T>, stop: AbortHandle },
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Task<T> {
    /// Has a future done by the runtime on which this is called.
    pub(crate) fn spawned(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(TaskKind::Spawned(tokio::spawn(future)))
    }
}

impl<T> Task<T> {
    /// Its result; `None`: it ended with its runtime, or panicked.
    pub async fn finished(&mut self) -> Option<T> {
        match &mut self.0 {
            TaskKind::Spawned(task) => task.await.ok(),
            TaskKind::InTurns { done, .. } => done.await.ok(),
        }
    }

    /// Its result.
    pub(crate) async fn join(mut self) -> T {
        match &mut self.0 {
            TaskKind::Spawned(task) => match task.await {
                Ok(done) => done,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => resume_unwind(panic),
                    // The runtime ends.
                    Err(_) => std::future::pending().await,
                },
            },
            TaskKind::InTurns { done, .. } => match done.await {
                Ok(done) => done,
                // The future was dropped, and so are its waiters.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        match &self.0 {
            TaskKind::Spawned(task) => task.abort(),
            TaskKind::InTurns { stop, .. } => stop.abort(),
        }
    }
}

/// The side of the work.
struct Stepped {
    handle: Handle,
    seat: Mutex<Seat>,
    beside: Mutex<Vec<BoxFuture<'static, ()>>>,
}

struct Seat {
    /// The waker of the task whose turn it was last.
    waker: Waker,
    resumed: Receiver<Waker>,
    said: Sender<Said>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Waits,
    Ended,
}

/// Unwinds work whose task was dropped.
struct Unwanted;

impl Stepped {
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            let waker = self.seat.lock().waker.clone();
            let mut context = Context::from_waker(&waker);
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            // If the future waited for one of these, that has woken the task.
            self.go_on_beside(&mut context);
            self.pass_on();
        }
    }

    fn go_on_beside(&self, context: &mut Context<'_>) {
        let mut polled = Vec::new();
        loop {
            let mut tasks = std::mem::take(&mut *self.beside.lock());
            if tasks.is_empty() {
                break;
            }
            tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
            polled.append(&mut tasks);
            // Those that began meanwhile are next, or nothing would wake them.
        }
        *self.beside.lock() = polled;
    }

    /// Lets the task go on, until it is this thread's turn again.
    fn pass_on(&self) {
        let mut seat = self.seat.lock();
        let resumed = seat.said.send(Said::Waits).ok().and_then(|()| seat.resumed.recv().ok());
        match resumed {
            Some(waker) => seat.waker = waker,
            None => {
                drop(seat);
                resume_unwind(Box::new(Unwanted));
            }
        }
    }

    fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Task<T> {
        let (sender, done) = oneshot::channel();
        let (future, stop) = abortable(future);
        let task = async move {
            if let Ok(output) = future.await {
                // The waiter may be gone.
                let _ = sender.send(output);
            }
        };
        self.beside.lock().push(task.boxed());
        Task(TaskKind::InTurns { done, stop })
    }
}

type Outcome<T> = Arc<Mutex<Option<Result<T, Box<dyn Any + Send>>>>>;

/// The side of the task.
struct InTurns<T> {
    outcome: Outcome<T>,
    resume: Option<Sender<Waker>>,
    said: Receiver<Said>,
    thread: Option<Thread<()>>,
}

/// Does work in turns with the task that polls the future.
fn in_turns<T: Send + 'static>(
    handle: Handle,
    work: impl FnOnce(Executor) -> T + Send + 'static,
) -> impl Future<Output = T> {
    let outcome: Outcome<T> = Arc::default();
    let (resume, resumed) = channel();
    let (says, said) = channel();
    let thread = std::thread::spawn({
        let outcome = outcome.clone();
        move || {
            let Ok(waker) = resumed.recv() else { return };
            // For the timers of the awaited futures.
            let _entered = handle.enter();
            let handle = handle.clone();
            let seat = Mutex::new(Seat { waker, resumed, said: says.clone() });
            let turns = Arc::new(Stepped { handle, seat, beside: Mutex::default() });
            let executor = Executor(Kind::InTurns(turns.clone()));
            let result = catch_unwind(AssertUnwindSafe(|| work(executor)));
            // Background futures end here as well, while it is this thread's turn.
            turns.beside.lock().clear();
            *outcome.lock() = Some(result);
            // The receiver is gone when the task was dropped.
            let _ = says.send(Said::Ended);
        }
    });
    InTurns { outcome, resume: Some(resume), said, thread: Some(thread) }
}

impl<T> Future for InTurns<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let resumed = this.resume.as_ref().and_then(|resume| resume.send(context.waker().clone()).ok());
        let said = resumed.and_then(|()| this.said.recv().ok());
        if said == Some(Said::Waits) {
            return Poll::Pending;
        }
        match this.outcome.lock().take() {
            Some(Ok(output)) => Poll::Ready(output),
            Some(Err(panic)) => resume_unwind(panic),
            // Only a second poll after the end comes here.
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for InTurns<T> {
    fn drop(&mut self) {
        self.resume = None;
        if let Some(thread) = self.thread.take() {
            // Its panic is in the outcome.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;

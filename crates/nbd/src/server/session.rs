//! A connection that uses an export: requests in, replies out.
//!
//! One thread reads requests. While the export answers within microseconds, that thread serves
//! them itself and sends the replies of a burst with one system call. As soon as one request took
//! longer, requests go to threads of the connection, and replies go out in any order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use super::answer::Agreed;
use super::budget::{Account, Grant};
use super::input::Input;
use super::outbox::{Outbox, Outgoing};
use super::pool::Pool;
use super::shared::Shared;
use crate::codec::request::{Command, REQUEST_LEN, Request, flag};
use crate::export::{ErrorCode, ExportError};
use crate::wire::Wire;

/// Requests of an export that took less on average, in nanoseconds, are served by the thread that
/// reads: to wake another one would take as long.
const QUICK: u32 = 30_000;
/// Only requests up to this length in bytes.
const QUICK_LENGTH: u32 = 128 << 10;
/// Replies of a burst are sent once they reach this number of bytes. The client can then send its
/// next requests while this side still serves the burst.
const BATCH: usize = 32 << 10;
/// The room of the batch that a connection keeps.
const BATCH_KEPT: usize = 64 << 10;
/// A write that is refused is skipped up to this length. A longer one ends the session.
const SKIPPED_MAX: u32 = 64 << 20;

struct Job {
    request: Request,
    data: Vec<u8>,
    grant: Grant,
}

/// Replies of the thread that reads.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    grants: Vec<Grant>,
}

struct Session {
    wire: Arc<Wire>,
    shared: Arc<Shared>,
    agreed: Agreed,
    account: Arc<Account>,
    outbox: Outbox,
    pool: Pool<Job>,
    /// Nanoseconds that requests take: grows at once, and falls slowly.
    cost: AtomicU32,
}

/// Serves requests until the client leaves, breaks the protocol, or the server stops. All requests
/// that were read are finished then.
pub(super) fn run(wire: Arc<Wire>, shared: Arc<Shared>, agreed: Agreed, input: Input) {
    let (account, workers) = (shared.budget.account(), shared.limits.workers);
    let session = Arc::new(Session {
        wire,
        shared,
        agreed,
        account,
        outbox: Outbox::default(),
        pool: Pool::new(workers),
        cost: AtomicU32::new(4 * QUICK),
    });
    let mut batch = Batch::default();
    let result = session.read_requests(input, &mut batch);
    session.send(&mut batch);
    // The threads end when everything that they were given is answered and sent.
    session.pool.close();
    if let Err(error) = result {
        tracing::debug!("an NBD session ended: {error}");
    }
    session.wire.close(!session.outbox.is_dead());
}

impl Session {
    fn read_requests(self: &Arc<Self>, mut input: Input, batch: &mut Batch) -> io::Result<()> {
        loop {
            if input.arrived() < REQUEST_LEN {
                self.send(batch);
                if self.shared.is_stopping() || !input.wait_for(&self.wire, REQUEST_LEN, None)? {
                    return Ok(());
                }
            }
            let request = Request::decode(&input.take()).map_err(io::Error::other)?;
            if request.command == Command::Disconnect {
                return Ok(());
            }
            if self.outbox.is_dead() {
                return Ok(());
            }
            let allowed = if self.shared.is_stopping() {
                Err(ExportError::new(ErrorCode::Shutdown, "the server is shutting down"))
            } else {
                self.agreed.check(&request)
            };
            match allowed {
                Ok(()) => self.accept(request, &mut input, batch)?,
                Err(error) => {
                    if request.command == Command::Write {
                        self.skip_data(request.length, &mut input, batch)?;
                    }
                    self.agreed.refuse(&request, &error, &mut batch.bytes);
                }
            }
            if batch.bytes.len() >= BATCH {
                self.send(batch);
            }
        }
    }

    fn accept(self: &Arc<Self>, request: Request, input: &mut Input, batch: &mut Batch) -> io::Result<()> {
        // More than there is would never be granted.
        let memory = self.agreed.memory(&request).min(self.shared.limits.memory / 2);
        let grant = match self.account.try_take(memory) {
            Some(grant) => grant,
            None => {
                // Others may wait for what the batch holds.
                self.send(batch);
                self.account.take(memory)
            }
        };
        let mut data = Vec::new();
        if request.command == Command::Write {
            data = self.shared.spares.take(request.length as usize);
            if input.arrived() < data.len() {
                self.send(batch);
            }
            input.fill(&self.wire, &mut data, &|since| self.shared.stalled(since))?;
        }
        if self.is_quick(&request) {
            let start = Instant::now();
            self.agreed.answer(&request, &data, &mut batch.bytes);
            self.took(start);
            self.shared.spares.give(data);
            batch.grants.push(grant);
        } else {
            self.send(batch);
            self.outbox.enter(self.shared.limits.in_flight);
            self.hand_over(Job { request, data, grant });
        }
        Ok(())
    }

    fn skip_data(&self, length: u32, input: &mut Input, batch: &mut Batch) -> io::Result<()> {
        if length > SKIPPED_MAX {
            return Err(io::Error::other("a write of more than 64 MiB"));
        }
        if input.arrived() < length as usize {
            self.send(batch);
        }
        input.skip(&self.wire, u64::from(length), &|since| self.shared.stalled(since))
    }

    fn is_quick(&self, request: &Request) -> bool {
        matches!(request.command, Command::Read | Command::Write | Command::BlockStatus)
            && request.flags & flag::FUA == 0
            && request.length <= QUICK_LENGTH
            && self.cost.load(Ordering::Relaxed) < QUICK
    }

    fn took(&self, start: Instant) {
        let took = u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX);
        let cost = self.cost.load(Ordering::Relaxed);
        self.cost.store(took.max(cost - cost / 8), Ordering::Relaxed);
    }

    fn send(&self, batch: &mut Batch) {
        if batch.bytes.is_empty() {
            return;
        }
        let stalled = |since| self.shared.stalled(since);
        self.outbox.send_batch(&self.wire, &mut batch.bytes, &mut batch.grants, &self.shared.spares, &stalled);
        if batch.bytes.capacity() > BATCH + BATCH_KEPT {
            batch.bytes = Vec::new();
        }
    }

    fn hand_over(self: &Arc<Self>, job: Job) {
        if self.pool.push(job) && !self.start_worker() {
            while let Some(job) = self.pool.take() {
                self.serve(job);
            }
        }
    }

    /// Starts a thread. False: there is none at all, so the caller must serve the queue.
    fn start_worker(self: &Arc<Self>) -> bool {
        let workers = &self.shared.workers;
        let started = if workers.fetch_add(1, Ordering::Relaxed) < self.shared.limits.all_workers {
            let session = self.clone();
            let thread = thread::Builder::new().name("nbd-worker".into());
            thread.spawn(move || session.work()).map_err(|error| tracing::warn!("no thread for NBD: {error}")).is_ok()
        } else {
            false
        };
        if !started {
            workers.fetch_sub(1, Ordering::Relaxed);
        }
        started || !self.pool.not_started()
    }

    fn work(self: Arc<Self>) {
        let mut fresh = true;
        while let Some((job, more)) = self.pool.next(fresh) {
            fresh = false;
            if more {
                // This thread is one, so the queue is served in any case.
                self.start_worker();
            }
            self.serve(job);
        }
        self.shared.workers.fetch_sub(1, Ordering::Relaxed);
    }

    fn serve(&self, Job { request, data, grant }: Job) {
        let mut bytes = Vec::new();
        let start = Instant::now();
        self.agreed.answer(&request, &data, &mut bytes);
        if request.command != Command::Flush {
            self.took(start);
        }
        self.shared.spares.give(data);
        let outgoing = Outgoing { bytes, replies: 1, _grants: vec![grant] };
        self.outbox.send(&self.wire, outgoing, &self.shared.spares, &|since| self.shared.stalled(since));
    }
}

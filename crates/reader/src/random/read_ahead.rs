//! Threads that fetch frames before they are needed.
//!
//! A plan is a range of the data stream. Its chunks are looked up here and not in the thread that
//! reads, because that may take requests too. Then each container is one request, as far as memory
//! allows. All of this is a hint: a full queue drops plans, and errors are left to the read that
//! meets them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use larder_format::ids::ContainerId;
use larder_store::RepositoryError;
use parking_lot::{Condvar, Mutex};

use super::Shared;

/// Jobs that wait at most.
const QUEUE_MAX: usize = 256;

/// Payload bytes of a container, in rising order.
type Request = (ContainerId, Vec<Range<u32>>);

/// Something to fetch.
#[derive(Debug)]
enum Job {
    /// A range of the data stream.
    Plan(Range<u64>),
    /// A request.
    Fetch(ContainerId, Vec<Range<u32>>),
}

/// What waits to be fetched.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

impl Queue {
    /// A range of the data stream will be read soon.
    pub(super) fn plan(&self, range: Range<u64>) {
        self.push(Job::Plan(range), false);
    }

    fn push(&self, job: Job, is_urgent: bool) {
        let mut state = self.state.lock();
        if state.jobs.len() >= QUEUE_MAX || state.is_closed {
            return;
        }
        match is_urgent {
            true => state.jobs.push_front(job),
            false => state.jobs.push_back(job),
        }
        drop(state);
        self.wake.notify_one();
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            self.wake.wait(&mut state);
        }
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
        self.wake.notify_all();
    }
}

/// The threads. A drop waits for the requests that are under way.
#[derive(Debug)]
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads. If some do not start, there are fewer.
    pub(super) fn start(shared: &Arc<Shared>, count: usize) -> Self {
        let mut threads = Vec::new();
        for _ in 0..count {
            let shared = shared.clone();
            let work = move || {
                while let Some(job) = shared.queue.next() {
                    shared.work(job);
                }
            };
            match std::thread::Builder::new().name("read-ahead".to_owned()).spawn(work) {
                Ok(thread) => threads.push(thread),
                Err(error) => tracing::warn!(%error, "a thread for reading ahead does not start"),
            }
        }
        Self { shared: shared.clone(), threads }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.queue.close();
        for thread in self.threads.drain(..) {
            // A panic there was reported, and nothing depends on its result.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self, job: Job) {
        let done = match job {
            Job::Plan(range) => self.plan(range),
            Job::Fetch(id, wanted) => self.frames.fetch(id, &wanted),
        };
        if let Err(error) = done {
            tracing::debug!(%error, "reading ahead failed");
        }
    }

    /// Queues a request for each container of a range.
    fn plan(&self, range: Range<u64>) -> Result<(), RepositoryError> {
        for (id, wanted) in self.by_container(range)? {
            self.queue.push(Job::Fetch(id, wanted), false);
        }
        Ok(())
    }

    /// Asks for everything that a large read needs, before all that is only read ahead.
    pub(super) fn ask_for(&self, range: Range<u64>) -> Result<(), RepositoryError> {
        for (id, wanted) in self.by_container(range)?.into_iter().rev() {
            self.queue.push(Job::Fetch(id, wanted), true);
        }
        Ok(())
    }

    /// The payload bytes of a range of the data stream, as requests in the order of their first
    /// use. A container with more than one request may have gets several.
    fn by_container(&self, range: Range<u64>) -> Result<Vec<Request>, RepositoryError> {
        let mut at = range.start;
        let mut requests: Vec<(Request, u64)> = Vec::new();
        while at < range.end {
            let Some(segment) = self.places.segment(at)? else { break };
            let Some(first) = segment.chunk_at(at) else { break };
            for (number, chunk) in segment.chunks.iter().enumerate().skip(first) {
                if segment.start_of(number) >= range.end {
                    break;
                }
                let bytes = chunk.offset..chunk.offset.saturating_add(chunk.size);
                let size = u64::from(chunk.size);
                match requests.iter_mut().rev().find(|((id, _), _)| *id == chunk.container) {
                    Some(((_, wanted), sum)) if *sum + size <= self.request_max => {
                        *sum += size;
                        match wanted.last_mut() {
                            Some(last) if last.end == bytes.start => last.end = bytes.end,
                            _ => wanted.push(bytes),
                        }
                    }
                    _ => requests.push(((chunk.container, vec![bytes]), size)),
                }
            }
            at = segment.end();
        }
        let sorted = requests.into_iter().map(|((id, mut wanted), _)| {
            wanted.sort_unstable_by_key(|range| range.start);
            (id, wanted)
        });
        Ok(sorted.collect())
    }
}

//! Threads for CPU work: sealing frames; reading, cutting and fingerprinting files; opening data
//! that is copied.
//!
//! Sealing goes first: it frees memory, reading takes it. Work never waits for anything but the
//! processor and the source, so a full pool always drains. The submitter bounds how much work may
//! wait.
//!
//! With one thread, and in turns with everything else (`larder_index::Executor::stepped`), the pool
//! starts none: work is done where it is handed in. So a single thread needs no queue of blocks
//! that wait for it.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, select_biased, unbounded};
use larder_format::compress::{Compression, Compressor, Decompressor};
use larder_job::JobContext;
use parking_lot::Mutex;

/// The own state of each thread.
pub struct Worker {
    pub(crate) compressor: Compressor,
    /// Opens compressed frames.
    pub decompressor: Decompressor,
    /// Memory for a compressed frame. The next user overwrites it.
    pub compressed: Vec<u8>,
    /// Memory for the decompressed bytes of a frame. The next user overwrites it.
    pub raw: Vec<u8>,
}

impl Worker {
    fn new(compression: Compression) -> Self {
        let (compressor, decompressor) = (Compressor::new(compression), Decompressor::new());
        Self { compressor, decompressor, compressed: Vec::new(), raw: Vec::new() }
    }
}

type Job = Box<dyn FnOnce(&mut Worker) + Send>;

/// See the module header.
#[derive(Debug)]
pub struct Pool {
    /// `None` while it ends.
    handle: Option<PoolHandle>,
    threads: Vec<JoinHandle<()>>,
}

/// Hands work in. Does not keep the pool alive.
#[derive(Clone)]
pub struct PoolHandle {
    workers: Workers,
    threads: usize,
}

#[derive(Clone)]
enum Workers {
    Threads {
        urgent: Sender<Job>,
        normal: Sender<Job>,
    },
    /// The submitters of work.
    Own(Arc<Mutex<Worker>>),
}

impl std::fmt::Debug for PoolHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolHandle").finish_non_exhaustive()
    }
}

impl Pool {
    /// Starts as many threads as the context says, unless that is one. In turns with everything
    /// else, none is started.
    ///
    /// # Errors
    /// The operating system starts no thread at all.
    pub fn new(context: &JobContext, compression: Compression) -> io::Result<Self> {
        if context.executor.is_in_turns() || context.threads.get() == 1 {
            let worker = Worker::new(compression);
            let handle = PoolHandle { workers: Workers::Own(Arc::new(Mutex::new(worker))), threads: 1 };
            return Ok(Self { handle: Some(handle), threads: Vec::new() });
        }
        let (urgent, urgent_jobs) = unbounded();
        let (normal, normal_jobs) = unbounded();
        let threads = (0..context.threads.get()).map(|number| {
            let (urgent_jobs, normal_jobs) = (urgent_jobs.clone(), normal_jobs.clone());
            std::thread::Builder::new()
                .name(format!("backup-{number}"))
                .spawn(move || work(&urgent_jobs, &normal_jobs, compression))
        });
        let (threads, failed): (Vec<_>, Vec<_>) = threads.partition(Result::is_ok);
        let threads: Vec<_> = threads.into_iter().flatten().collect();
        // A thread that cannot be started leaves fewer. With none at all, work would never be done.
        match failed.into_iter().find_map(Result::err) {
            Some(error) if threads.is_empty() => return Err(error),
            _ => {}
        }
        let handle = PoolHandle { workers: Workers::Threads { urgent, normal }, threads: context.threads.get() };
        Ok(Self { handle: Some(handle), threads })
    }

    /// `None` after the pool was closed.
    pub fn handle(&self) -> Option<PoolHandle> {
        self.handle.clone()
    }
}

impl PoolHandle {
    /// How many pieces of work are done at once.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Hands in work that is done first.
    pub(crate) fn urgent(&self, job: impl FnOnce(&mut Worker) + Send + 'static) {
        match &self.workers {
            // Fails only when every thread has panicked, which shows where the result is awaited.
            Workers::Threads { urgent, .. } => drop(urgent.send(Box::new(job))),
            Workers::Own(worker) => job(&mut worker.lock()),
        }
    }

    /// Hands in work that is done after all urgent work.
    pub fn normal(&self, job: impl FnOnce(&mut Worker) + Send + 'static) {
        match &self.workers {
            Workers::Threads { normal, .. } => drop(normal.send(Box::new(job))),
            Workers::Own(worker) => job(&mut worker.lock()),
        }
    }
}

impl Drop for Pool {
    /// Finishes the submitted work, then ends the threads.
    fn drop(&mut self) {
        self.handle = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(urgent: &Receiver<Job>, normal: &Receiver<Job>, compression: Compression) {
    let mut worker = Worker::new(compression);
    loop {
        let job = select_biased! {
            recv(urgent) -> job => job,
            recv(normal) -> job => job,
        };
        match job {
            Ok(job) => job(&mut worker),
            // One side is closed: finish the rest of the other.
            Err(_) => {
                while let Ok(job) = urgent.recv().or_else(|_| normal.recv()) {
                    job(&mut worker);
                }
                return;
            }
        }
    }
}

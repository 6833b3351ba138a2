//! Threads for CPU work: sealing frames, and reading, cutting and fingerprinting files.
//!
//! Sealing goes first: it frees memory, reading takes it. Work never waits for anything but the processor and the source,
//! so a full pool always drains. How much work may wait is bounded by whoever hands it in.

use std::num::NonZeroUsize;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, select_biased, unbounded};
use larder_format::compress::{Compression, Compressor};

/// What each thread has of its own.
pub(crate) struct Worker {
    pub(crate) compressor: Compressor,
}

type Job = Box<dyn FnOnce(&mut Worker) + Send>;

/// See the module header.
#[derive(Debug)]
pub(crate) struct Pool {
    urgent: Option<Sender<Job>>,
    normal: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// Hands work in. Does not keep the pool alive.
#[derive(Debug, Clone)]
pub(crate) struct PoolHandle {
    urgent: Sender<Job>,
    normal: Sender<Job>,
}

impl Pool {
    pub(crate) fn new(threads: NonZeroUsize, compression: Compression) -> Self {
        let (urgent, urgent_jobs) = unbounded();
        let (normal, normal_jobs) = unbounded();
        let threads = (0..threads.get()).map(|number| {
            let (urgent_jobs, normal_jobs) = (urgent_jobs.clone(), normal_jobs.clone());
            std::thread::Builder::new()
                .name(format!("backup-{number}"))
                .spawn(move || work(&urgent_jobs, &normal_jobs, compression))
        });
        // A thread that cannot be started leaves fewer; with none at all the caller's receive fails and is reported.
        let threads = threads.filter_map(Result::ok).collect();
        Self { urgent: Some(urgent), normal: Some(normal), threads }
    }

    /// `None` after the pool was closed.
    pub(crate) fn handle(&self) -> Option<PoolHandle> {
        Some(PoolHandle { urgent: self.urgent.clone()?, normal: self.normal.clone()? })
    }
}

impl PoolHandle {
    pub(crate) fn urgent(&self, job: impl FnOnce(&mut Worker) + Send + 'static) {
        // Fails only when every thread has panicked; whoever waits for the result sees that.
        let _ = self.urgent.send(Box::new(job));
    }

    pub(crate) fn normal(&self, job: impl FnOnce(&mut Worker) + Send + 'static) {
        let _ = self.normal.send(Box::new(job));
    }
}

impl Drop for Pool {
    /// Finishes what was handed in, then ends the threads.
    fn drop(&mut self) {
        self.urgent = None;
        self.normal = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(urgent: &Receiver<Job>, normal: &Receiver<Job>, compression: Compression) {
    let mut worker = Worker { compressor: Compressor::new(compression) };
    loop {
        let job = select_biased! {
            recv(urgent) -> job => job,
            recv(normal) -> job => job,
        };
        match job {
            Ok(job) => job(&mut worker),
            // One side is closed: finish what is left of the other.
            Err(_) => {
                while let Ok(job) = urgent.recv().or_else(|_| normal.recv()) {
                    job(&mut worker);
                }
                return;
            }
        }
    }
}

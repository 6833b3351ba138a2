//! The second part of a check: containers read whole, opened, and every chunk named again.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::Builder;

use larder_chunking::Fingerprinter;
use larder_format::compress::Decompressor;
use larder_format::container::CONTAINER_TARGET;
use larder_format::ids::ContainerId;
use larder_job::JobContext;
use larder_reader::is_missing;
use larder_store::RepositoryError;
use larder_store::repository::random;
use parking_lot::Mutex;

use super::structure::{BadContainer, reason};
use super::{CheckError, ReadData};

/// Divisor of a check's memory that gives the part for containers being read.
const CONTAINERS_ONE_IN: usize = 4;

/// Counters of reading.
#[derive(Debug, Default)]
pub(super) struct ContentReport {
    pub(super) containers: u64,
    pub(super) bytes: u64,
    pub(super) bad: Vec<(ContainerId, BadContainer)>,
    /// Containers in cold storage, which were not read.
    pub(super) cold: Vec<ContainerId>,
}

/// Chooses the containers to read, from `sizes` in any order. The choice of `Share` and `Bytes`
/// differs each time.
pub(super) fn choose(
    context: &JobContext,
    read_data: ReadData,
    mut sizes: Vec<(ContainerId, u64)>,
) -> Result<Vec<(ContainerId, u64)>, RepositoryError> {
    sizes.sort_unstable();
    let by_chance = |sizes: &mut Vec<(ContainerId, u64)>| -> Result<(), RepositoryError> {
        let key: [u8; 32] = random(context.repository.entropy())?;
        let rank = |id: &ContainerId| {
            let fingerprint = Fingerprinter::new(&key).one(id.to_string().as_bytes());
            fingerprint.0
        };
        sizes.sort_by_cached_key(|(id, _)| rank(id));
        Ok(())
    };
    match read_data {
        ReadData::None => sizes.clear(),
        ReadData::All => {}
        ReadData::Part { n, of } => {
            let mut number = 0;
            sizes.retain(|_| {
                number += 1;
                (number - 1) % of.max(1) == n.saturating_sub(1)
            });
        }
        ReadData::Share(share) => {
            by_chance(&mut sizes)?;
            let count = (sizes.len() as f64 * share.clamp(0.0, 1.0)).ceil() as usize;
            sizes.truncate(count);
        }
        ReadData::Bytes(wanted) => {
            by_chance(&mut sizes)?;
            let mut bytes = 0;
            sizes.retain(|(_, size)| {
                let take = bytes < wanted;
                bytes += if take { *size } else { 0 };
                take
            });
        }
    }
    sizes.sort_unstable();
    Ok(sizes)
}

/// Reads and verifies containers, several at a time.
pub(super) fn read(context: &JobContext, chosen: &[(ContainerId, u64)]) -> Result<ContentReport, CheckError> {
    let next = AtomicUsize::new(0);
    let (containers, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let (bad, cold) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let failure = Mutex::new(None);
    context.progress.expect(0, chosen.iter().map(|(_, size)| size).sum());
    context.progress.expectation_is_complete();
    let work = || {
        let mut worker = Worker::new(context);
        while let Some((id, size)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            if failure.lock().is_some() || context.cancel.is_cancelled() {
                return;
            }
            match worker.container(*id) {
                Ok(None) => {}
                Ok(Some(found)) => bad.lock().push((*id, found)),
                Err(error) if error.is_cold() => {
                    cold.lock().push(*id);
                    continue;
                }
                Err(error) => {
                    failure.lock().get_or_insert(error);
                    return;
                }
            }
            containers.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(*size, Ordering::Relaxed);
            context.progress.done(0, *size);
        }
    };
    // Twice as many as cores, because half of them wait for the store, but no more containers than
    // there is memory for.
    let largest = chosen.iter().map(|(_, size)| *size as usize).max().unwrap_or(0).max(CONTAINER_TARGET);
    let containers_max = (context.memory / CONTAINERS_ONE_IN / largest).max(1);
    if context.executor.is_in_turns() {
        work();
    } else {
        std::thread::scope(|scope| {
            let count = (context.threads.get() * 2).min(containers_max);
            let started = (0..count).map(|_| Builder::new().spawn_scoped(scope, work).is_ok());
            // A thread that cannot be started leaves fewer. Without any, this one works.
            if started.filter(|is_started| *is_started).count() == 0 {
                work();
            }
        });
    }
    if let Some(error) = failure.into_inner() {
        return Err(RepositoryError::into(error));
    }
    if context.cancel.is_cancelled() {
        return Err(CheckError::Interrupted);
    }
    Ok(ContentReport {
        containers: containers.into_inner(),
        bytes: bytes.into_inner(),
        bad: bad.into_inner(),
        cold: cold.into_inner(),
    })
}

struct Worker<'a> {
    context: &'a JobContext,
    fingerprinter: Fingerprinter,
    decompressor: Decompressor,
    scratch: Vec<u8>,
    raw: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn new(context: &'a JobContext) -> Self {
        Self {
            context,
            fingerprinter: Fingerprinter::new(context.repository.keys().fingerprint()),
            decompressor: Decompressor::new(),
            scratch: Vec::new(),
            raw: Vec::new(),
        }
    }

    /// The defects of a container, if any.
    fn container(&mut self, id: ContainerId) -> Result<Option<BadContainer>, RepositoryError> {
        let repository = &self.context.repository;
        let container = match self.context.executor.block_on(repository.read_container(id)) {
            Ok(container) => container,
            Err(error) if error.is_damage() => {
                return Ok(Some(BadContainer {
                    why: reason(&error),
                    parts: Vec::new(),
                    has_vanished: is_missing(&error),
                }));
            }
            Err(error) => return Err(error),
        };
        let mut bad: Option<BadContainer> = None;
        let mut note = |why: String, part: std::ops::Range<u32>| {
            bad.get_or_insert(BadContainer { why, ..BadContainer::default() }).parts.push(part);
        };
        let mut chunks = container.index.chunk_refs();
        let mut fingerprints = Vec::new();
        for frame in container.index.frames() {
            let mut in_frame = Vec::new();
            let mut left = frame.entry.raw_len;
            while left > 0 {
                let Some(chunk) = chunks.next() else { break };
                left = left.saturating_sub(chunk.size);
                in_frame.push(chunk);
            }
            let opened =
                container.open_frame(repository, frame, &mut self.scratch, &mut self.raw, &mut self.decompressor);
            if let Err(error) = opened {
                note(reason(&error), frame.payload_range());
                continue;
            }
            let lengths: Vec<_> = in_frame.iter().map(|chunk| chunk.size).collect();
            fingerprints.clear();
            self.fingerprinter.many(&self.raw, &lengths, &mut fingerprints);
            for (chunk, fingerprint) in in_frame.iter().zip(&fingerprints) {
                if chunk.fingerprint != *fingerprint {
                    let why = "a chunk's bytes have another fingerprint than its table says".to_owned();
                    note(why, chunk.offset..chunk.offset + chunk.size);
                }
            }
        }
        Ok(bad)
    }
}

//! The second part of a check: containers read whole, opened, and every chunk named again.
//!
//! [`ReadContents`] is who does it: this process ([`Alone`]), or several. A reader can prove
//! that it read a container ([`ReadProof`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::Builder;

use larder_chunking::Fingerprinter;
use larder_format::compress::Decompressor;
use larder_format::container::CONTAINER_TARGET;
use larder_format::fleet::READ_PROOF_LEN;
use larder_format::ids::{ContainerId, JobId};
use larder_job::JobContext;
use larder_reader::is_missing;
use larder_store::RepositoryError;
use larder_store::repository::random;
use parking_lot::Mutex;

use super::structure::{BadContainer, reason};
use super::{CheckError, PlannedContent, ReadData};

/// Divisor of a check's memory that gives the part for containers being read.
const CONTAINERS_ONE_IN: usize = 4;

/// Who reads the contents of a check.
pub trait ReadContents {
    /// Reads and verifies these containers, which are in order and have these bytes. `lease`
    /// protects them. `None`: the store accepted no lease.
    ///
    /// # Errors
    /// Those of the store. Damage is in the report.
    fn read(
        &mut self,
        context: &JobContext,
        lease: Option<JobId>,
        chosen: &[(ContainerId, u64)],
    ) -> Result<ContentReport, CheckError>;
}

/// This process reads everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl ReadContents for Alone {
    fn read(
        &mut self,
        context: &JobContext,
        _lease: Option<JobId>,
        chosen: &[(ContainerId, u64)],
    ) -> Result<ContentReport, CheckError> {
        context.progress.expect(0, chosen.iter().map(|(_, size)| size).sum());
        context.progress.expectation_is_complete();
        read(context, chosen, None)
    }
}

/// Proves that somebody read a container and could open it: a hash of its contents under a key that
/// was drawn for this.
pub type ReadProof = [u8; READ_PROOF_LEN];

/// What reading containers found.
#[derive(Debug, Default)]
pub struct ContentReport {
    pub(super) containers: u64,
    pub(super) bytes: u64,
    pub(super) bad: Vec<(ContainerId, BadContainer)>,
    /// Containers in cold storage, which were not read.
    pub(super) cold: Vec<ContainerId>,
    proofs: HashMap<ContainerId, ReadProof>,
}

impl ContentReport {
    /// These many containers, with these bytes, were read by others and are whole.
    pub fn read_by_others(containers: u64, bytes: u64) -> Self {
        Self { containers, bytes, ..Self::default() }
    }

    /// Adds what was found in other containers.
    pub fn add(&mut self, other: Self) {
        self.containers += other.containers;
        self.bytes += other.bytes;
        self.bad.extend(other.bad);
        self.cold.extend(other.cold);
        self.proofs.extend(other.proofs);
    }

    /// Whether none of the containers is damaged, missing or cold.
    pub fn is_whole(&self) -> bool {
        self.bad.is_empty() && self.cold.is_empty()
    }

    /// Whether each container that is not whole is missing or cold: it may have been whole before.
    pub fn is_gone(&self) -> bool {
        self.bad.iter().all(|(_, bad)| bad.has_vanished)
    }

    /// The proof of a container that is whole, if it was read with a key.
    pub fn proof(&self, id: ContainerId) -> Option<ReadProof> {
        self.proofs.get(&id).copied()
    }
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
        ReadData::Part { n, of } => keep_part(&mut sizes, n, of),
        ReadData::Share(share) => {
            by_chance(&mut sizes)?;
            sizes.truncate(count_of(share, sizes.len()));
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

/// The content that would be chosen, at least and at most: the choice of `Share` and `Bytes` is
/// by chance.
pub(super) fn plan(read_data: ReadData, sizes: &[(ContainerId, u64)]) -> PlannedContent {
    let mut rising: Vec<u64> = sizes.iter().map(|(_, size)| *size).collect();
    rising.sort_unstable();
    let of = |chosen: &[u64]| (chosen.len() as u64, chosen.iter().sum::<u64>());
    let ((least, least_bytes), (most, most_bytes)) = match read_data {
        ReadData::None => ((0, 0), (0, 0)),
        ReadData::All => (of(&rising), of(&rising)),
        ReadData::Part { n, of: parts } => {
            let mut in_order = sizes.to_vec();
            in_order.sort_unstable();
            keep_part(&mut in_order, n, parts);
            let chosen: Vec<u64> = in_order.iter().map(|(_, size)| *size).collect();
            (of(&chosen), of(&chosen))
        }
        ReadData::Share(share) => {
            let count = count_of(share, rising.len());
            (of(&rising[..count]), of(&rising[rising.len() - count..]))
        }
        ReadData::Bytes(wanted) => {
            // The last one may go beyond what is wanted.
            let until = |sizes: &mut dyn Iterator<Item = &u64>| {
                let mut bytes = 0;
                let taken = sizes.take_while(|size| {
                    let is_wanted = bytes < wanted;
                    bytes += if is_wanted { **size } else { 0 };
                    is_wanted
                });
                taken.count() as u64
            };
            let (most, least) = (until(&mut rising.iter()), until(&mut rising.iter().rev()));
            let (all, largest) = (rising.iter().sum::<u64>(), rising.last().copied().unwrap_or(0));
            ((least, wanted.min(all)), (most, wanted.saturating_add(largest).min(all)))
        }
    };
    PlannedContent { containers: (least, most), bytes: (least_bytes, most_bytes) }
}

/// Leaves part `n` (from 1) of `of` parts.
fn keep_part(sorted: &mut Vec<(ContainerId, u64)>, n: u32, of: u32) {
    let mut number = 0;
    sorted.retain(|_| {
        number += 1;
        (number - 1) % of.max(1) == n.saturating_sub(1)
    });
}

/// The number of containers of a share.
fn count_of(share: f64, containers: usize) -> usize {
    (containers as f64 * share.clamp(0.0, 1.0)).ceil() as usize
}

/// Reads and verifies containers, several at a time. With a key, the report has a proof for each
/// that is whole.
///
/// # Errors
/// Those of the store. Damage is in the report.
pub fn read(
    context: &JobContext,
    chosen: &[(ContainerId, u64)],
    key: Option<&[u8; 32]>,
) -> Result<ContentReport, CheckError> {
    let next = AtomicUsize::new(0);
    let (containers, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let (bad, cold) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let (proofs, failure) = (Mutex::new(HashMap::new()), Mutex::new(None));
    let work = || {
        let mut worker = Worker::new(context, key);
        while let Some((id, size)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            if failure.lock().is_some() || context.cancel.is_cancelled() {
                return;
            }
            match worker.container(*id) {
                Ok(Found::Whole(proof)) => proofs.lock().extend(proof.map(|proof| (*id, proof))),
                Ok(Found::Bad(found)) => bad.lock().push((*id, found)),
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
        proofs: proofs.into_inner(),
    })
}

/// The result of reading one container.
enum Found {
    /// With its proof, if there is a key.
    Whole(Option<ReadProof>),
    Bad(BadContainer),
}

struct Worker<'a> {
    context: &'a JobContext,
    fingerprinter: Fingerprinter,
    prover: Option<Fingerprinter>,
    decompressor: Decompressor,
    scratch: Vec<u8>,
    raw: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn new(context: &'a JobContext, key: Option<&[u8; 32]>) -> Self {
        Self {
            context,
            fingerprinter: Fingerprinter::new(context.repository.keys().fingerprint()),
            prover: key.map(Fingerprinter::new),
            decompressor: Decompressor::new(),
            scratch: Vec::new(),
            raw: Vec::new(),
        }
    }

    /// Reads one container.
    fn container(&mut self, id: ContainerId) -> Result<Found, RepositoryError> {
        let repository = &self.context.repository;
        let container = match self.context.executor.block_on(repository.read_container(id)) {
            Ok(container) => container,
            Err(error) if error.is_damage() => {
                return Ok(Found::Bad(BadContainer {
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
        let (mut fingerprints, mut contents) = (Vec::new(), id.to_string().into_bytes());
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
            if let Some(prover) = &self.prover {
                contents.extend_from_slice(&prover.one(&self.raw).0);
            }
            fingerprints.clear();
            self.fingerprinter.many(&self.raw, &lengths, &mut fingerprints);
            for (chunk, fingerprint) in in_frame.iter().zip(&fingerprints) {
                if chunk.fingerprint != *fingerprint {
                    let why = "a chunk's bytes have another fingerprint than its table says".to_owned();
                    note(why, chunk.offset..chunk.offset + chunk.size);
                }
            }
        }
        Ok(match (bad, &self.prover) {
            (Some(bad), _) => Found::Bad(bad),
            (None, Some(prover)) => Found::Whole(prover.one(&contents).0.first_chunk().copied()),
            (None, None) => Found::Whole(None),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ids::ContainerKind;

    fn sizes(of: &[u64]) -> Vec<(ContainerId, u64)> {
        let id = |seq| ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq };
        of.iter().zip(0..).map(|(size, seq)| (id(seq), *size)).collect()
    }

    /// Whatever chance chooses is within the bounds.
    #[test]
    fn plans_hold_every_choice() {
        let all = sizes(&[5, 1, 4, 2, 3]);
        let plan = |read_data| {
            let PlannedContent { containers, bytes } = super::plan(read_data, &all);
            (containers, bytes)
        };
        assert_eq!(plan(ReadData::None), ((0, 0), (0, 0)));
        assert_eq!(plan(ReadData::All), ((5, 5), (15, 15)));
        assert_eq!(plan(ReadData::Part { n: 2, of: 2 }), ((2, 2), (3, 3)));
        assert_eq!(plan(ReadData::Share(0.3)), ((2, 2), (3, 9)));
        assert_eq!(plan(ReadData::Bytes(6)), ((2, 3), (6, 11)));
        assert_eq!(plan(ReadData::Bytes(100)), ((5, 5), (15, 15)));
    }
}

//! Ranges of containers that several processes read for one check, and what they found. One part
//! each, a CBOR map.
//!
//! The process that checks creates a range for others to read. Its batch is the check: the id of
//! its lease. A result is the register of that task, created once. It says which containers are
//! whole, and has a proof of reading for each of them: a keyed hash of the container's contents,
//! under a key that was drawn for this range. So results of other ranges and of earlier checks
//! prove nothing, and who cannot open contents has no proof. What a result says is a hint all the
//! same: the process that checks reads some of the containers itself, and all that are not whole.

use minicbor::{Decode, Encode};

use super::given::{TaskHead, join, open, seal};
use crate::cbor;
use crate::fleet::TaskId;
use crate::ids::{AttemptId, ContainerId, ContainerKind, JobId};
use crate::keys::Keys;
use crate::names;
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing};
use crate::wire::{DecodeError, EncodeError};

/// Most containers of a range.
pub const RANGE_CONTAINERS_MAX: usize = 1024;
/// Most bytes of a range, or of its result.
pub const RANGE_MAX: u64 = 256 << 10;
/// The rules of readers of ranges. A reader leaves ranges with others alone.
pub const CHECK_RULES: u32 = 1;
/// Bytes of a proof of reading.
pub const READ_PROOF_LEN: usize = 16;

const RANGE: ObjectType = ObjectType {
    magic: *b"LFCR",
    version: 2,
    what: "range of a check",
    max_len: RANGE_MAX,
    realm: Realm::Domain,
    signing: Signing::IfAble,
    pad: Pad::Small,
};

const RESULT: ObjectType = ObjectType { magic: *b"LFCD", what: "result of a range of a check", ..RANGE };

/// Containers of one job with numbers that follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
struct Consecutive {
    #[n(0)]
    is_metadata: bool,
    #[n(1)]
    job: JobId,
    #[n(2)]
    first: u32,
    #[n(3)]
    count: u32,
}

/// A range of containers to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRange {
    /// Who checks. Its rules are [`CHECK_RULES`].
    pub head: TaskHead,
    /// The key of the proofs, drawn for this range.
    pub key: [u8; 32],
    /// Bytes of all containers, for the progress of readers.
    pub bytes: u64,
    /// Bytes of the largest container, for the memory of readers.
    pub largest: u64,
    /// By rising id; at least one, and at most [`RANGE_CONTAINERS_MAX`].
    pub containers: Vec<ContainerId>,
}

#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct RangeFields {
    #[n(4)]
    #[cbor(with = "minicbor::bytes")]
    key: [u8; 32],
    #[n(5)]
    bytes: u64,
    #[n(6)]
    largest: u64,
    #[n(7)]
    runs: Vec<Consecutive>,
}

impl CheckRange {
    /// Seals the range of a task. `random` must be fresh random bytes.
    pub fn encode(
        &self,
        keys: &Keys,
        batch: JobId,
        task: TaskId,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        self.check().map_err(|_| EncodeError::new(RANGE.what, "its containers are not a range"))?;
        let mut runs: Vec<Consecutive> = Vec::new();
        for id in &self.containers {
            let is_metadata = id.kind == ContainerKind::Meta;
            match runs.last_mut() {
                Some(run)
                    if (run.is_metadata, run.job) == (is_metadata, id.job)
                        && run.first.checked_add(run.count) == Some(id.seq) =>
                {
                    run.count += 1;
                }
                _ => runs.push(Consecutive { is_metadata, job: id.job, first: id.seq, count: 1 }),
            }
        }
        let Self { key, bytes, largest, .. } = *self;
        let fields = RangeFields { key, bytes, largest, runs };
        let map = join([cbor::encode(&self.head), cbor::encode(&fields)]);
        seal(keys, &names::fleet_range(batch, task), RANGE, random, &map)
    }

    /// Opens the range of a task.
    pub fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open(keys, &names::fleet_range(batch, task), RANGE, bytes)?;
        let fields: RangeFields = opened.fields()?;
        let mut containers = Vec::new();
        for run in &fields.runs {
            let end = run.first.checked_add(run.count);
            let is_too_much = run.count as usize > RANGE_CONTAINERS_MAX - containers.len();
            let Some(end) = end.filter(|_| run.count > 0 && !is_too_much) else {
                return Err(DecodeError::invalid(RANGE.what, "its containers are not a range"));
            };
            let kind = if run.is_metadata { ContainerKind::Meta } else { ContainerKind::Data };
            containers.extend((run.first..end).map(|seq| ContainerId { kind, job: run.job, seq }));
        }
        let RangeFields { key, bytes, largest, .. } = fields;
        let range = Self { head: opened.fields()?, key, bytes, largest, containers };
        range.check()?;
        Ok(range)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let is_range = (1..=RANGE_CONTAINERS_MAX).contains(&self.containers.len());
        if !is_range || !self.containers.is_sorted_by(|a, b| a < b) {
            return Err(DecodeError::invalid(RANGE.what, "its containers are not a range"));
        }
        self.head.check(RANGE.what)
    }
}

/// What a reader found in a range.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CheckResult {
    /// The process that read it.
    #[n(0)]
    pub reader: AttemptId,
    /// Its host. For people.
    #[n(1)]
    pub host: String,
    /// How long it took, in milliseconds. For people.
    #[n(2)]
    pub took_ms: u64,
    /// Positions in the range of containers that are damaged, missing or in cold storage, rising.
    #[n(3)]
    pub not_whole: Vec<u32>,
    /// A proof for each of the others, in order.
    #[n(4)]
    #[cbor(with = "minicbor::bytes")]
    pub proofs: Vec<u8>,
}

impl CheckResult {
    /// The proof of each container of a range of `count`, by position; `None`: it is not whole.
    /// Nothing at all if the result is of another number of containers.
    pub fn by_position(&self, count: usize) -> Option<Vec<Option<[u8; READ_PROOF_LEN]>>> {
        let mut proofs = self.proofs.as_chunks::<READ_PROOF_LEN>().0.iter().copied();
        let mut not_whole = self.not_whole.iter().copied().peekable();
        let mut all = Vec::with_capacity(count.min(RANGE_CONTAINERS_MAX));
        for position in 0..count {
            match not_whole.next_if(|next| *next as usize == position) {
                Some(_) => all.push(None),
                None => all.push(Some(proofs.next()?)),
            }
        }
        (proofs.next().is_none() && not_whole.next().is_none()).then_some(all)
    }

    /// Seals the result of a task. `random` must be fresh random bytes.
    pub fn encode(
        &self,
        keys: &Keys,
        batch: JobId,
        task: TaskId,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        self.check().map_err(|_| EncodeError::new(RESULT.what, "it contradicts itself"))?;
        seal(keys, &names::fleet_done(batch, task), RESULT, random, &cbor::encode(self))
    }

    /// Opens the result of a task.
    pub fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let result: Self = open(keys, &names::fleet_done(batch, task), RESULT, bytes)?.fields()?;
        result.check()?;
        Ok(result)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let is_whole = self.proofs.len().is_multiple_of(READ_PROOF_LEN);
        let count = self.not_whole.len() + self.proofs.len() / READ_PROOF_LEN;
        if !is_whole || count > RANGE_CONTAINERS_MAX || !self.not_whole.is_sorted_by(|a, b| a < b) {
            return Err(DecodeError::invalid(RESULT.what, "it contradicts itself"));
        }
        Ok(())
    }
}

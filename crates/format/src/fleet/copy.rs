//! Chunks that workers verify and copy for a pass, and how that ended. One part each, a CBOR map.
//!
//! The pass creates a task for others. Its batch is the pass: the id of its lease. The result is
//! the register of that task, created once. An operator signs both, because chunks are retired for
//! what a result says (`SignedOnly`). A result repeats the ticket of its task, which was drawn for
//! it.
//!
//! New containers belong to the job of the pass. So its lease keeps them, its index makes them
//! count, and the next pass finds those that no index has. No two attempts write under one name:
//! each task and each epoch of its claims has numbers of its own ([`CopyTask::numbers`]), above all
//! that the pass itself gives.

use std::ops::Range;

use minicbor::{Decode, Encode};

use super::given::{PassHead, ResultHead, TaskHead, join, open, seal};
use crate::cbor;
use crate::compress::Compression;
use crate::fleet::TaskId;
use crate::ids::{ContainerId, ContainerKind, JobId};
use crate::keys::Keys;
use crate::names;
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing};
use crate::wire::{DecodeError, EncodeError};

/// Most bytes of a task, or of its result.
pub const COPY_MAX: u64 = 1 << 20;
/// The rules of those who copy. A worker leaves tasks with others alone.
pub const COPY_RULES: u32 = 1;
/// Most tasks of a pass.
pub const COPY_TASKS_MAX: u32 = 1 << 15;
/// Most containers that an attempt at a task may write.
pub const COPY_CONTAINERS_MAX: u32 = 1 << 8;
/// Most attempts at a task.
const EPOCHS_MAX: u32 = 1 << 8;
/// The numbers of containers from here on belong to tasks.
const FIRST_NUMBER: u32 = 1 << 31;

const TASK: ObjectType = ObjectType {
    magic: *b"LFCP",
    version: 2,
    what: "task of a pass",
    max_len: COPY_MAX,
    realm: Realm::Domain,
    signing: Signing::Required,
    pad: Pad::Small,
};

const RESULT: ObjectType = ObjectType { magic: *b"LFCE", what: "result of a task of a pass", ..TASK };

/// Some chunks of a data container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunksOf {
    /// The container.
    pub container: ContainerId,
    /// Their numbers in its table, rising; at least one.
    pub chunks: Vec<u32>,
}

/// Chunks to verify and to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyTask {
    /// Who makes the pass. Its rules are [`COPY_RULES`].
    pub head: TaskHead,
    /// Which task it is.
    pub of_pass: PassHead,
    /// How copies are compressed.
    pub compression: Compression,
    /// Chunks that must be readable where they are.
    pub verify: Vec<ChunksOf>,
    /// Chunks that are copied, in this order.
    pub copy: Vec<ChunksOf>,
}

#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct SomeChunks {
    #[n(0)]
    job: JobId,
    #[n(1)]
    seq: u32,
    /// Each number less the one after the last: 0 in a row.
    #[n(2)]
    gaps: Vec<u32>,
}

#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct TaskFields {
    /// A level of zstd; absent: copies are not compressed.
    #[n(6)]
    zstd: Option<i32>,
    #[n(7)]
    verify: Vec<SomeChunks>,
    #[n(8)]
    copy: Vec<SomeChunks>,
}

fn invalid(why: &'static str) -> DecodeError {
    DecodeError::invalid(TASK.what, why)
}

impl ChunksOf {
    fn fields(&self) -> Result<SomeChunks, DecodeError> {
        let mut next = 0;
        let gaps = self.chunks.iter().map(|chunk| {
            let gap = chunk.checked_sub(next)?;
            next = chunk.checked_add(1)?;
            Some(gap)
        });
        let gaps: Option<Vec<u32>> = gaps.collect();
        let gaps = gaps.filter(|gaps| !gaps.is_empty() && self.container.kind == ContainerKind::Data);
        let gaps = gaps.ok_or(invalid("chunks of a container are not in order"))?;
        Ok(SomeChunks { job: self.container.job, seq: self.container.seq, gaps })
    }

    fn of(fields: SomeChunks) -> Result<Self, DecodeError> {
        let mut next = 0_u32;
        let chunks = fields.gaps.iter().map(|gap| {
            let chunk = next.checked_add(*gap)?;
            next = chunk.checked_add(1)?;
            Some(chunk)
        });
        let chunks: Option<Vec<u32>> = chunks.collect();
        let chunks =
            chunks.filter(|chunks| !chunks.is_empty()).ok_or(invalid("chunks of a container are not in order"))?;
        let container = ContainerId { kind: ContainerKind::Data, job: fields.job, seq: fields.seq };
        Ok(Self { container, chunks })
    }
}

impl CopyTask {
    /// The numbers of data containers that an attempt at a task may write; `None`: there are none.
    pub fn numbers(task: TaskId, epoch: u32) -> Option<Range<u32>> {
        let has_some = task.number < COPY_TASKS_MAX && epoch < EPOCHS_MAX;
        let first = FIRST_NUMBER | (task.number * EPOCHS_MAX + epoch).wrapping_mul(COPY_CONTAINERS_MAX);
        // The last number is nobody's.
        has_some.then(|| first..first + (COPY_CONTAINERS_MAX - 1))
    }

    /// Seals a task. `random` must be fresh random bytes.
    ///
    /// # Errors
    /// It contradicts itself, is too large, or the key cannot sign.
    pub fn encode(
        &self,
        keys: &Keys,
        batch: JobId,
        task: TaskId,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        let fields = self.fields().map_err(|_| EncodeError::new(TASK.what, "it contradicts itself"))?;
        let map = join([cbor::encode(&self.head), cbor::encode(&self.of_pass), cbor::encode(&fields)]);
        seal(keys, &names::fleet_range(batch, task), TASK, random, &map)
    }

    fn fields(&self) -> Result<TaskFields, DecodeError> {
        self.check()?;
        let all = |chunks: &[ChunksOf]| chunks.iter().map(ChunksOf::fields).collect::<Result<Vec<_>, _>>();
        let zstd = match self.compression {
            Compression::Off => None,
            Compression::Zstd(level) => Some(level),
        };
        Ok(TaskFields { zstd, verify: all(&self.verify)?, copy: all(&self.copy)? })
    }

    /// Opens a task.
    ///
    /// # Errors
    /// It is damaged, of another key or place, or no operator signed it.
    pub fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open(keys, &names::fleet_range(batch, task), TASK, bytes)?;
        let all = |chunks: Vec<SomeChunks>| chunks.into_iter().map(ChunksOf::of).collect::<Result<Vec<_>, _>>();
        let TaskFields { zstd, verify, copy } = opened.fields()?;
        let compression = zstd.map_or(Compression::Off, Compression::Zstd);
        let (verify, copy) = (all(verify)?, all(copy)?);
        let task = Self { head: opened.fields()?, of_pass: opened.fields()?, compression, verify, copy };
        task.check()?;
        Ok(task)
    }

    fn check(&self) -> Result<(), DecodeError> {
        if self.verify.is_empty() && self.copy.is_empty() {
            return Err(invalid("there is nothing to do"));
        }
        self.head.check(TASK.what)?;
        match self.compression {
            Compression::Zstd(level) if !(-7..=22).contains(&level) => Err(invalid("no such level of compression")),
            _ => Ok(()),
        }
    }
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyResult {
    /// Who did it.
    pub head: ResultHead,
    /// The epoch of its claim, which says the numbers of its containers.
    pub epoch: u32,
    /// Containers that it wrote, all acknowledged by the store. They have the first ones of these
    /// numbers.
    pub containers: u32,
    /// Uncompressed bytes of frames that were copied as they were compressed. For people.
    pub whole_bytes: u64,
    /// Why it was not done; absent: every chunk was verified, and those to copy are in the new
    /// containers.
    pub failure: Option<String>,
}

#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct ResultFields {
    #[n(4)]
    epoch: u32,
    #[n(5)]
    containers: u32,
    #[n(6)]
    whole_bytes: u64,
    #[n(7)]
    failure: Option<String>,
}

impl CopyResult {
    /// The result of a task that was not done.
    pub fn failed(head: ResultHead, why: String) -> Self {
        Self { head, epoch: 0, containers: 0, whole_bytes: 0, failure: Some(why) }
    }

    /// The containers that it says were written for a task of this pass; `None`: its numbers are
    /// wrong.
    pub fn containers(&self, pass: JobId, task: TaskId) -> Option<Vec<ContainerId>> {
        let numbers = CopyTask::numbers(task, self.epoch)?;
        let is_within = self.containers <= numbers.end - numbers.start;
        let id = |seq| ContainerId { kind: ContainerKind::Data, job: pass, seq };
        is_within.then(|| numbers.take(self.containers as usize).map(id).collect())
    }

    /// Seals the result of a task. `random` must be fresh random bytes.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn encode(
        &self,
        keys: &Keys,
        batch: JobId,
        task: TaskId,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        let Self { epoch, containers, whole_bytes, .. } = *self;
        let fields = ResultFields { epoch, containers, whole_bytes, failure: self.failure.clone() };
        let map = join([cbor::encode(&self.head), cbor::encode(&fields)]);
        seal(keys, &names::fleet_done(batch, task), RESULT, random, &map)
    }

    /// Opens the result of a task.
    ///
    /// # Errors
    /// It is damaged, of another key or place, or no operator signed it.
    pub fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open(keys, &names::fleet_done(batch, task), RESULT, bytes)?;
        let ResultFields { epoch, containers, whole_bytes, failure } = opened.fields()?;
        Ok(Self { head: opened.fields()?, epoch, containers, whole_bytes, failure })
    }
}

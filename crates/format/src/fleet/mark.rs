//! Segments of recipes that workers read for a pass, and the keys of their chunks. One part each, a
//! CBOR map.
//!
//! The pass creates a task for others, with the rows of the segments from the nodes of recipes. The
//! result is the register of that task, created once. It names one output: the key of every chunk
//! of these segments, rising, each with the number of its mentions ([`MARKS`]). An operator signs
//! both, because chunks without a key in any output are deleted (`SignedOnly`). A result repeats
//! the ticket of its task, which was drawn for it.
//!
//! A key that is missing would cost live data. So the number of mentions has to be that of the rows
//! of the task, and their sum that of the result ([`MarkSum`]): no key can get lost or change
//! between the segment and the pass.

use minicbor::{Decode, Encode};

use super::given::{PassHead, ResultHead, TaskHead, join, open, seal};
use crate::cbor;
use crate::fleet::TaskId;
use crate::ids::{AttemptId, DomainId, JobId};
use crate::index_tables::ChunkKey;
use crate::keys::Keys;
use crate::names;
use crate::recipe::{SegmentRef, decode_node, encode_node};
use crate::run::{RecordLayout, ValueWidth};
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing};
use crate::wire::{DecodeError, EncodeError};

/// Most bytes of a task, or of its result.
pub const MARK_MAX: u64 = 2 << 20;
/// The rules of those who read. A worker leaves tasks with others alone.
pub const MARK_RULES: u32 = 1;
/// Most tasks of one look of a pass.
pub const MARK_TASKS_MAX: u32 = 1 << 20;
/// Most chunk records in the segments of a task.
pub const MARK_CHUNKS_MAX: u64 = 1 << 20;
/// Most bytes of an output.
pub const MARK_OUTPUT_MAX: u64 = 32 << 20;
/// The records of an output: the key of a chunk, and the number of its mentions, big-endian.
pub const MARKS: RecordLayout = RecordLayout { key_len: 20, value: ValueWidth::Fixed(4) };

const TASK: ObjectType = ObjectType {
    magic: *b"LFMT",
    version: 2,
    what: "task of an exact collection",
    max_len: MARK_MAX,
    realm: Realm::Domain,
    signing: Signing::Required,
    pad: Pad::Small,
};

const RESULT: ObjectType = ObjectType { magic: *b"LFMR", what: "result of a task of an exact collection", ..TASK };

/// Segments to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkTask {
    /// Who makes the pass. Its rules are [`MARK_RULES`].
    pub head: TaskHead,
    /// Which task it is.
    pub of_pass: PassHead,
    /// The rows of the segments, as nodes have them. They have 1 to [`MARK_CHUNKS_MAX`] records.
    pub segments: Vec<SegmentRef>,
}

#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct TaskFields {
    /// As a node of a recipe.
    #[n(6)]
    #[cbor(with = "minicbor::bytes")]
    node: Vec<u8>,
}

impl MarkTask {
    /// Chunk records in all segments.
    pub fn mentions(segments: &[SegmentRef]) -> u64 {
        segments.iter().map(|row| u64::from(row.chunks)).sum()
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
        self.check().map_err(|_| EncodeError::new(TASK.what, "it contradicts itself"))?;
        let fields = TaskFields { node: encode_node(&self.segments)? };
        let map = join([cbor::encode(&self.head), cbor::encode(&self.of_pass), cbor::encode(&fields)]);
        seal(keys, &names::fleet_range(batch, task), TASK, random, &map)
    }

    /// Opens a task.
    ///
    /// # Errors
    /// It is damaged, of another key or place, or no operator signed it.
    pub fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open(keys, &names::fleet_range(batch, task), TASK, bytes)?;
        let TaskFields { node } = opened.fields()?;
        let task = Self { head: opened.fields()?, of_pass: opened.fields()?, segments: decode_node(&node)? };
        task.check()?;
        Ok(task)
    }

    fn check(&self) -> Result<(), DecodeError> {
        if !(1..=MARK_CHUNKS_MAX).contains(&Self::mentions(&self.segments)) {
            return Err(DecodeError::invalid(TASK.what, "there is nothing to do, or too much"));
        }
        self.head.check(TASK.what)
    }
}

/// The number of mentions of chunks, and the sum of their keys, which does not depend on the order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MarkSum {
    /// Mentions.
    pub mentions: u64,
    /// Of bytes 0 to 15 of the keys.
    first: u128,
    /// Of bytes 12 to 19.
    last: u64,
}

impl MarkSum {
    /// Bytes of the sums as a result has them.
    pub const LEN: usize = 24;

    /// Adds this number of mentions of a chunk.
    pub fn add(&mut self, ChunkKey(key): &ChunkKey, times: u32) {
        let (mut first, mut last) = ([0; 16], [0; 8]);
        first.copy_from_slice(&key[..16]);
        last.copy_from_slice(&key[12..]);
        self.mentions = self.mentions.saturating_add(u64::from(times));
        self.first = self.first.wrapping_add(u128::from_le_bytes(first).wrapping_mul(u128::from(times)));
        self.last = self.last.wrapping_add(u64::from_le_bytes(last).wrapping_mul(u64::from(times)));
    }

    /// The sums.
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..].copy_from_slice(&self.last.to_le_bytes());
        bytes
    }
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkResult {
    /// Who did it.
    pub head: ResultHead,
    /// The attempt whose output counts. It is output 0.
    pub attempt: AttemptId,
    /// Keys in the output.
    pub records: u64,
    /// Bytes of the output.
    pub object_bytes: u64,
    /// BLAKE3 of these bytes.
    pub digest: [u8; 32],
    /// The sums of the keys of all mentions ([`MarkSum`]), as the segments were read.
    pub sum: [u8; MarkSum::LEN],
    /// Why it was not done; absent: the output has every chunk of the segments.
    pub failure: Option<String>,
    /// The domain of the output: in the header, not among the fields.
    pub domain: DomainId,
}

#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct ResultFields {
    #[n(4)]
    attempt: AttemptId,
    #[n(5)]
    records: u64,
    #[n(6)]
    object_bytes: u64,
    #[n(7)]
    #[cbor(with = "minicbor::bytes")]
    digest: [u8; 32],
    #[n(8)]
    #[cbor(with = "minicbor::bytes")]
    sum: [u8; MarkSum::LEN],
    #[n(9)]
    failure: Option<String>,
}

impl MarkResult {
    /// The result of a task that was not done.
    pub fn failed(head: ResultHead, why: String) -> Self {
        Self {
            head,
            attempt: AttemptId([0; 8]),
            records: 0,
            object_bytes: 0,
            digest: [0; 32],
            sum: [0; MarkSum::LEN],
            failure: Some(why),
            domain: DomainId::DEFAULT,
        }
    }

    /// The digest of the bytes of an output.
    pub fn digest_of(output: &[u8]) -> [u8; 32] {
        *blake3::hash(output).as_bytes()
    }

    /// Seals the result of a task, in the domain of the key. `random` must be fresh random bytes.
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
        let Self { attempt, records, object_bytes, digest, sum, .. } = *self;
        let fields = ResultFields { attempt, records, object_bytes, digest, sum, failure: self.failure.clone() };
        let map = join([cbor::encode(&self.head), cbor::encode(&fields)]);
        seal(keys, &names::fleet_done(batch, task), RESULT, random, &map)
    }

    /// Opens the result of a task.
    ///
    /// # Errors
    /// It is damaged, of another key or place, or no operator signed it.
    pub fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open(keys, &names::fleet_done(batch, task), RESULT, bytes)?;
        let ResultFields { attempt, records, object_bytes, digest, sum, failure } = opened.fields()?;
        let (head, domain) = (opened.fields()?, opened.domain);
        Ok(Self { head, attempt, records, object_bytes, digest, sum, failure, domain })
    }
}

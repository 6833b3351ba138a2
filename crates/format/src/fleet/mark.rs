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

use crate::cbor;
use crate::fleet::TaskId;
use crate::ids::{AttemptId, DomainId, JobId};
use crate::index_tables::ChunkKey;
use crate::keys::Keys;
use crate::names;
use crate::recipe::{SegmentRef, decode_node, encode_node};
use crate::run::{RecordLayout, ValueWidth};
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing, open_object, seal_object};
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
    /// The rules that workers must follow: [`MARK_RULES`].
    pub rules: u32,
    /// Without a sign of life for so long, the claim of a worker is taken over. Not 0.
    pub claim_seconds: u32,
    /// The process that makes the pass. It gives signs of life as workers do.
    pub asks: AttemptId,
    /// Name and version of its program. For people.
    pub program: String,
    /// The number of the index that the pass is to publish. For people.
    pub turn: u64,
    /// Drawn for this task.
    pub ticket: [u8; 16],
    /// The rows of the segments, as nodes have them. They have 1 to [`MARK_CHUNKS_MAX`] records.
    pub segments: Vec<SegmentRef>,
}

#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct TaskFields {
    #[n(0)]
    rules: u32,
    #[n(1)]
    claim_seconds: u32,
    #[n(2)]
    asks: AttemptId,
    #[n(3)]
    program: String,
    #[n(4)]
    turn: u64,
    #[n(5)]
    #[cbor(with = "minicbor::bytes")]
    ticket: [u8; 16],
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
        let Self { rules, claim_seconds, asks, turn, ticket, .. } = *self;
        let (program, node) = (self.program.clone(), encode_node(&self.segments)?);
        let fields = TaskFields { rules, claim_seconds, asks, program, turn, ticket, node };
        seal_object(keys, keys.domain(), &names::fleet_range(batch, task), TASK, random, &[&cbor::encode(&fields)])
    }

    /// Opens a task.
    ///
    /// # Errors
    /// It is damaged, of another key or place, or no operator signed it.
    pub fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::fleet_range(batch, task), TASK, bytes, 1, 1)?;
        let fields: TaskFields = cbor::decode_padded(&opened.parts[0], TASK.what)?;
        let TaskFields { rules, claim_seconds, asks, program, turn, ticket, node } = fields;
        let task = Self { rules, claim_seconds, asks, program, turn, ticket, segments: decode_node(&node)? };
        task.check()?;
        Ok(task)
    }

    fn check(&self) -> Result<(), DecodeError> {
        if !(1..=MARK_CHUNKS_MAX).contains(&Self::mentions(&self.segments)) {
            return Err(DecodeError::invalid(TASK.what, "there is nothing to do, or too much"));
        }
        if self.claim_seconds == 0 {
            return Err(DecodeError::invalid(TASK.what, "its workers have no time"));
        }
        Ok(())
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
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct MarkResult {
    /// The ticket of the task.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub ticket: [u8; 16],
    /// The process that did it.
    #[n(1)]
    pub worker: AttemptId,
    /// Its host. For people.
    #[n(2)]
    pub host: String,
    /// How long it took, in milliseconds. For people.
    #[n(3)]
    pub took_ms: u64,
    /// The attempt whose output counts. It is output 0.
    #[n(4)]
    pub attempt: AttemptId,
    /// Keys in the output.
    #[n(5)]
    pub records: u64,
    /// Bytes of the output.
    #[n(6)]
    pub object_bytes: u64,
    /// BLAKE3 of these bytes.
    #[n(7)]
    #[cbor(with = "minicbor::bytes")]
    pub digest: [u8; 32],
    /// The sums of the keys of all mentions ([`MarkSum`]), as the segments were read.
    #[n(8)]
    #[cbor(with = "minicbor::bytes")]
    pub sum: [u8; MarkSum::LEN],
    /// Why it was not done; absent: the output has every chunk of the segments.
    #[n(9)]
    pub failure: Option<String>,
    /// The domain of the output: in the header, not among the fields.
    #[cbor(skip)]
    pub domain: DomainId,
}

impl MarkResult {
    /// The result of a task that was not done.
    pub fn failed(ticket: [u8; 16], worker: AttemptId, host: String, why: String) -> Self {
        Self {
            ticket,
            worker,
            host,
            took_ms: 0,
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
        seal_object(keys, keys.domain(), &names::fleet_done(batch, task), RESULT, random, &[&cbor::encode(self)])
    }

    /// Opens the result of a task.
    ///
    /// # Errors
    /// It is damaged, of another key or place, or no operator signed it.
    pub fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::fleet_done(batch, task), RESULT, bytes, 1, 1)?;
        let result: Self = cbor::decode_padded(&opened.parts[0], RESULT.what)?;
        Ok(Self { domain: opened.domain, ..result })
    }
}

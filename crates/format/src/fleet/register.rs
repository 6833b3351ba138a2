//! The register of a task: created once, if absent. It names the attempt that counts and its
//! outputs, or says that the task was aborted. One part, a CBOR map.

use minicbor::{Decode, Encode};

use crate::cbor;
use crate::fleet::TaskId;
use crate::ids::{AttemptId, DomainId, JobId};
use crate::keys::Keys;
use crate::names;
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing, open_object, seal_object};
use crate::wire::{DecodeError, EncodeError};

/// Most bytes of a register.
pub const TASK_MAX: u64 = 16 << 20;

const REGISTER: ObjectType = ObjectType {
    magic: *b"LFTR",
    version: 2,
    what: "register of a fleet task",
    max_len: TASK_MAX,
    realm: Realm::Domain,
    signing: Signing::IfAble,
    pad: Pad::Small,
};

/// The kind of records in an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum OutputKind {
    /// Items of a scan.
    #[n(0)]
    Scan,
    /// Questions.
    #[n(1)]
    Requests,
    /// Answers to them.
    #[n(2)]
    Answers,
    /// Who waits for whom.
    #[n(3)]
    Waiters,
    /// Places of stored chunks.
    #[n(4)]
    Placements,
    /// What became of those who wait.
    #[n(5)]
    Resolutions,
}

/// An output of a task: the object with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct OutputRef {
    /// Its number among the outputs of the attempt.
    #[n(0)]
    pub number: u32,
    /// What is in it.
    #[n(1)]
    pub kind: OutputKind,
    /// The first 8 bytes of its lowest key.
    #[n(2)]
    pub first: u64,
    /// The first 8 bytes of its highest key.
    #[n(3)]
    pub last: u64,
    /// Records.
    #[n(4)]
    pub records: u64,
    /// Bytes of the object.
    #[n(5)]
    pub object_bytes: u64,
    /// Bytes at its end that hold the directory.
    #[n(6)]
    pub tail_bytes: u32,
}

/// A register.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TaskRecord {
    /// The attempt whose outputs count. `None`: the task was aborted, and no attempt counts.
    #[n(0)]
    pub attempt: Option<AttemptId>,
    /// Its outputs. Those of one kind have keys that rise from one to the next.
    #[n(1)]
    pub outputs: Vec<OutputRef>,
    /// The host that did it. For people.
    #[n(2)]
    pub host: String,
    /// When it ended, milliseconds since the epoch by the writer's clock. For people.
    #[n(3)]
    pub time_ms: u64,
    /// How long it took, in milliseconds. For people.
    #[n(4)]
    pub took_ms: u64,
    /// The most memory that the process had so far, in bytes; 0: not known. For people.
    #[n(5)]
    pub memory: u64,
    /// Why it was aborted, or what is to be said of it. For people.
    #[n(6)]
    pub why: Option<String>,
    /// Bytes of the image that were read. For people.
    #[n(7)]
    pub read_bytes: u64,
    /// Bytes that were stored, before compression. For people.
    #[n(8)]
    pub stored_bytes: u64,
    /// Of a stored image: whether it waits for chunks of others.
    #[n(9)]
    pub waits: Option<bool>,
    /// Of the questions of a host: the images that were scanned, by rising number.
    #[n(10)]
    pub live: Option<Vec<u32>>,
    /// The worker that did it. A batch of one process has none.
    #[n(11)]
    pub worker: Option<AttemptId>,
    /// Of the questions of a host: the job that stores its new chunks, if it is not that of the
    /// plan.
    #[n(12)]
    pub store: Option<JobId>,
    /// The domain of the writer: in the header, not among the fields.
    #[cbor(skip)]
    pub domain: DomainId,
}

impl TaskRecord {
    /// The register of a task that was aborted, by nobody in particular.
    pub fn aborted(why: String, domain: DomainId) -> Self {
        Self {
            attempt: None,
            outputs: Vec::new(),
            host: String::new(),
            time_ms: 0,
            took_ms: 0,
            memory: 0,
            why: Some(why),
            read_bytes: 0,
            stored_bytes: 0,
            waits: None,
            live: None,
            worker: None,
            store: None,
            domain,
        }
    }
}

impl TaskRecord {
    /// Seals the register of a task, in the domain of the key. `random` must be fresh random bytes.
    pub fn encode(
        &self,
        keys: &Keys,
        batch: JobId,
        task: TaskId,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        self.check().map_err(|_| EncodeError::new(REGISTER.what, "its outputs are not in order"))?;
        let name = names::fleet_done(batch, task);
        seal_object(keys, keys.domain(), &name, REGISTER, random, &[&cbor::encode(self)])
    }

    /// Opens the register of a task.
    pub fn decode(keys: &Keys, batch: JobId, task: TaskId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::fleet_done(batch, task), REGISTER, bytes, 1, 1)?;
        let record: Self = cbor::decode_padded(&opened.parts[0], REGISTER.what)?;
        record.check()?;
        Ok(Self { domain: opened.domain, ..record })
    }

    fn check(&self) -> Result<(), DecodeError> {
        let is_ranged = |output: &OutputRef| {
            output.first <= output.last && u64::from(output.tail_bytes) <= output.object_bytes && output.records > 0
        };
        let rises = |pair: &[OutputRef]| pair[0].kind != pair[1].kind || pair[0].last <= pair[1].first;
        if !self.outputs.iter().all(is_ranged) || !self.outputs.windows(2).all(rises) {
            return Err(DecodeError::invalid(REGISTER.what, "its outputs are not in order"));
        }
        if self.live.as_ref().is_some_and(|live| !live.is_sorted_by(|a, b| a < b)) {
            return Err(DecodeError::invalid(REGISTER.what, "its images are not in order"));
        }
        if self.attempt.is_none() && !self.outputs.is_empty() {
            return Err(DecodeError::invalid(REGISTER.what, "an aborted task has outputs"));
        }
        Ok(())
    }
}

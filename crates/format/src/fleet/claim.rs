//! Claims of tasks, and signs of life of those who claim. Both are created once, and tell of a
//! worker: a process at work on a batch. One part each, a CBOR map.
//!
//! A claim keeps others from the same work, and nothing else. Registers decide whose work counts.
//! A claim lasts while its worker gives signs of life. Their age is that which the store says: the
//! difference of two times in one listing.

use minicbor::{Decode, Encode};

use crate::cbor;
use crate::fleet::TaskId;
use crate::ids::{AttemptId, JobId};
use crate::keys::Keys;
use crate::names;
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing, open_object, seal_object};
use crate::wire::{DecodeError, EncodeError};

/// Most bytes of a claim, or of a sign of life.
pub const CLAIM_MAX: u64 = 64 << 10;

const CLAIM: ObjectType = ObjectType {
    magic: *b"LFCL",
    version: 2,
    what: "claim of a fleet task",
    max_len: CLAIM_MAX,
    realm: Realm::Domain,
    signing: Signing::IfAble,
    pad: Pad::Small,
};

const BEAT: ObjectType = ObjectType { magic: *b"LFWB", what: "sign of life of a fleet worker", ..CLAIM };

/// A process at work on a batch.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct FleetWorker {
    /// Drawn when it begins.
    #[n(0)]
    pub worker: AttemptId,
    /// Its host. For people.
    #[n(1)]
    pub host: String,
    /// Number of the process. For people.
    #[n(2)]
    pub process: u32,
    /// Name and version of the program. For people.
    #[n(3)]
    pub program: String,
    /// When, milliseconds since the epoch by the writer's clock. For people.
    #[n(4)]
    pub time_ms: u64,
    /// The most memory that the process had so far, in bytes; 0: not known. For people.
    #[n(5)]
    pub memory: u64,
    /// Hosts of the plan whose images it reads when it comes to them. `None`: it does not say.
    #[n(6)]
    pub reads: Option<Vec<u32>>,
}

impl FleetWorker {
    /// Seals a claim. `random` must be fresh random bytes.
    pub fn encode_claim(
        &self,
        keys: &Keys,
        batch: JobId,
        task: TaskId,
        epoch: u32,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        let name = names::fleet_claim(batch, task, epoch);
        seal_object(keys, keys.domain(), &name, CLAIM, random, &[&cbor::encode(self)])
    }

    /// Opens a claim.
    pub fn decode_claim(
        keys: &Keys,
        batch: JobId,
        task: TaskId,
        epoch: u32,
        bytes: &[u8],
    ) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::fleet_claim(batch, task, epoch), CLAIM, bytes, 1, 1)?;
        cbor::decode_padded(&opened.parts[0], CLAIM.what)
    }

    /// Seals a sign of life. `random` must be fresh random bytes.
    pub fn encode_beat(
        &self,
        keys: &Keys,
        batch: JobId,
        number: u32,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        let name = names::fleet_beat(batch, self.worker, number);
        seal_object(keys, keys.domain(), &name, BEAT, random, &[&cbor::encode(self)])
    }

    /// Opens a sign of life.
    pub fn decode_beat(
        keys: &Keys,
        batch: JobId,
        worker: AttemptId,
        number: u32,
        bytes: &[u8],
    ) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::fleet_beat(batch, worker, number), BEAT, bytes, 1, 1)?;
        let found: Self = cbor::decode_padded(&opened.parts[0], BEAT.what)?;
        if found.worker != worker {
            return Err(DecodeError::invalid(BEAT.what, "it is of another worker"));
        }
        Ok(found)
    }
}

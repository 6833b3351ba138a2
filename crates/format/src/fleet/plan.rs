//! The plan of a batch: its images, hosts and partitions. One part, a CBOR map.

use minicbor::{Decode, Encode};

use crate::cbor;
use crate::fleet_task::{Stage, TaskId};
use crate::ids::JobId;
use crate::keys::Keys;
use crate::names;
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing, open_object, seal_object};
use crate::wire::{DecodeError, EncodeError};

/// Most bytes of a plan.
pub const PLAN_MAX: u64 = 64 << 20;

/// The most partitions of a batch: those of all rounds have numbers.
const PARTITIONS_MAX: u32 = 1 << 20;

const PLAN: ObjectType = ObjectType {
    magic: *b"LFPL",
    version: 2,
    what: "plan of a fleet batch",
    max_len: PLAN_MAX,
    realm: Realm::Domain,
    signing: Signing::IfAble,
    pad: Pad::Small,
};

/// An image of a batch. Its number is its place in the plan.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PlannedImage {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// The series that its version becomes part of.
    #[n(1)]
    pub series: String,
    /// Number of the host that reads it.
    #[n(2)]
    pub host: u32,
    /// The job that commits its version.
    #[n(3)]
    pub job: JobId,
    /// Where it is read from. For people.
    #[n(4)]
    pub source: String,
}

/// What workers need to know of a batch that several processes work on.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SharedWork {
    /// The rules that its workers follow ([`FLEET_RULES`]).
    #[n(0)]
    pub rules: u32,
    /// Seconds without a sign of life after which a claim may be taken over.
    #[n(1)]
    pub claim_seconds: u32,
    /// Seconds without a sign of life after which the tasks of a worker are aborted.
    #[n(2)]
    pub task_seconds: u32,
    /// Tags of its versions.
    #[n(3)]
    pub tags: Vec<String>,
    /// Whether all is read, whatever maps say.
    #[n(4)]
    pub force: bool,
    /// Each time as many versions in a row were not read as a whole, all is compared; 0: never.
    #[n(5)]
    pub verify_every: u32,
}

/// The rules that workers of this program follow. A worker leaves batches with other rules alone.
/// Workers with rules 1 and 2 could not read packed blocks.
pub const FLEET_RULES: u32 = 3;

/// The most rounds of a batch.
pub const FLEET_ROUNDS_MAX: u32 = 256;

/// A host of a batch. Its number is its place in the plan.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PlannedHost {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// The job that stores its new chunks and commits nothing.
    #[n(1)]
    pub store: JobId,
    /// Whether any machine may read its images.
    #[n(2)]
    pub is_any: Option<bool>,
    /// The round in which its images are read; `None`: the first. A machine with images in several
    /// rounds is a host in each.
    #[n(3)]
    pub round: Option<u32>,
}

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct FleetPlan {
    /// The images.
    #[n(0)]
    pub images: Vec<PlannedImage>,
    /// The hosts.
    #[n(1)]
    pub hosts: Vec<PlannedHost>,
    /// Ranges of fingerprints that are answered apart; at least 1.
    #[n(2)]
    pub partitions: u32,
    /// Number of the index that is asked.
    #[n(3)]
    pub index: u64,
    /// When, milliseconds since the epoch by the writer's clock. For people.
    #[n(4)]
    pub time_ms: u64,
    /// Name and version of the program. For people.
    #[n(5)]
    pub program: String,
    /// For several processes. `None`: the process that planned it does everything.
    #[n(6)]
    pub shared: Option<SharedWork>,
}

impl FleetPlan {
    /// The round of a host. 0 if the plan does not have it.
    pub fn round_of(&self, host: u32) -> u32 {
        self.hosts.get(host as usize).and_then(|host| host.round).unwrap_or(0)
    }

    /// The number of rounds, at least 1. Rounds without a host count.
    pub fn rounds(&self) -> u32 {
        self.hosts.iter().map(|host| host.round.unwrap_or(0)).max().unwrap_or(0) + 1
    }

    /// The round that a task is of.
    pub fn round_of_task(&self, task: TaskId) -> u32 {
        match task.stage {
            Stage::Scan | Stage::Store | Stage::Finish => {
                self.images.get(task.number as usize).map_or(0, |image| self.round_of(image.host))
            }
            Stage::Send | Stage::Place => self.round_of(task.number),
            Stage::Join | Stage::Resolve => task.number / self.partitions.max(1),
            Stage::Check | Stage::Copy | Stage::Mark => 0,
        }
    }

    /// Seals the plan of a batch. `random` must be fresh random bytes.
    pub fn encode(&self, keys: &Keys, batch: JobId, random: [u8; RANDOM_LEN]) -> Result<Vec<u8>, EncodeError> {
        self.check().map_err(|_| EncodeError::new(PLAN.what, "it names what it does not have"))?;
        seal_object(keys, keys.domain(), &names::fleet_plan(batch), PLAN, random, &[&cbor::encode(self)])
    }

    /// Opens the plan of a batch.
    pub fn decode(keys: &Keys, batch: JobId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::fleet_plan(batch), PLAN, bytes, 1, 1)?;
        let plan: Self = cbor::decode_padded(&opened.parts[0], PLAN.what)?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), DecodeError> {
        if self.partitions == 0 {
            return Err(DecodeError::invalid(PLAN.what, "it has no partition"));
        }
        if self.shared.as_ref().is_some_and(|shared| shared.claim_seconds == 0 || shared.task_seconds == 0) {
            return Err(DecodeError::invalid(PLAN.what, "its workers have no time"));
        }
        if self.rounds() > FLEET_ROUNDS_MAX || self.partitions > PARTITIONS_MAX {
            return Err(DecodeError::invalid(PLAN.what, "it has too many rounds or partitions"));
        }
        if self.images.iter().any(|image| image.host as usize >= self.hosts.len()) {
            return Err(DecodeError::invalid(PLAN.what, "an image is of a host that it does not have"));
        }
        Ok(())
    }
}

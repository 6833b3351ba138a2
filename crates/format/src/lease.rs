//! Leases: how a running job announces itself, so that nothing it builds on is deleted under it.
//!
//! A lease is a sealed object (`seal.rs`), magic `LLSE`, one part: a CBOR map, [`Lease`]. `jobs/<job>/0` opens it, each
//! renewal creates the next number, and the job closes it by creating `jobs/<job>/done` (magic `LDON`, an empty part).
//! `docs/concurrency.md` says why this is enough.

use minicbor::{Decode, Encode};

use crate::cbor;
use crate::ids::{JobId, SeriesKey};
use crate::mark::MARK_MAX;
use crate::names;
use crate::seal::{Keys, ObjectType, open_object, seal_empty, seal_object};
use crate::wire::{DecodeError, EncodeError};

/// Most bytes of a lease: room for some twenty thousand versions and jobs that it names.
pub const LEASE_MAX: u64 = 1 << 20;

const LEASE: ObjectType = ObjectType { magic: *b"LLSE", version: 1, what: "lease", max_len: LEASE_MAX };
const DONE: ObjectType = ObjectType { magic: *b"LDON", version: 1, what: "closing mark of a lease", max_len: MARK_MAX };

/// What a job does with the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum JobKind {
    /// Writes containers and commits a version.
    #[n(0)]
    Backup,
    /// Reads versions: restore, check, mount.
    #[n(1)]
    Read,
    /// Offline work of the G-node.
    #[n(2)]
    Task,
}

/// A version that a job builds on or reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub struct Pin {
    /// Its series.
    #[n(0)]
    pub series: SeriesKey,
    /// Its job, which is its id.
    #[n(1)]
    pub job: JobId,
}

/// The announcement of a running job.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Lease {
    /// What it does.
    #[n(0)]
    pub kind: JobKind,
    /// The series it will commit a version to; for readers the series read, or empty.
    #[n(1)]
    pub series: String,
    /// Versions that must stay while this lease lives: the base of a backup, what a restore reads.
    #[n(2)]
    pub pins: Vec<Pin>,
    /// Dead jobs whose uploaded containers this job takes over; they must stay as well.
    #[n(3)]
    pub adopts: Vec<Pin>,
    /// Where it runs. For people.
    #[n(4)]
    pub host: String,
    /// Process number on that host. For people, and to see that a job of this host is dead.
    #[n(5)]
    pub process: u32,
    /// When this renewal was written, milliseconds since the epoch by the writer's clock. Nothing safe depends on it.
    #[n(6)]
    pub written_ms: u64,
    /// Within how many seconds the job means to renew.
    #[n(7)]
    pub renew_seconds: u32,
    /// Of a task: the number of the index whose creation would make its work count. Once an index with that number or a higher one
    /// was there, the task is over.
    #[n(8)]
    pub claims: Option<u64>,
    /// Of a task that lays out the version of its first pin anew: the generation of that version's manifest whose creation would
    /// make its work count. Once there is an object of that generation, the task is over.
    #[n(9)]
    pub generation: Option<u32>,
}

impl Lease {
    /// Seals renewal `renewal` of this lease. `salt` must be fresh random bytes.
    pub fn encode(&self, keys: &Keys, job: JobId, renewal: u32, salt: [u8; 16]) -> Result<Vec<u8>, EncodeError> {
        seal_object(keys, &names::lease(job, renewal), LEASE, salt, &[&cbor::encode(self)])
    }

    /// Opens a renewal.
    pub fn decode(keys: &Keys, job: JobId, renewal: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
        let (_, parts) = open_object(keys, &names::lease(job, renewal), LEASE, bytes, 1, 1)?;
        cbor::decode(&parts[0], LEASE.what)
    }
}

/// The closing mark of a job's lease. `salt` must be fresh random bytes.
pub fn encode_done(keys: &Keys, job: JobId, salt: [u8; 16]) -> Vec<u8> {
    seal_empty(keys, &names::lease_done(job), DONE, salt)
}

/// Checks a closing mark: only who has the key can close a lease.
pub fn decode_done(keys: &Keys, job: JobId, bytes: &[u8]) -> Result<(), DecodeError> {
    open_object(keys, &names::lease_done(job), DONE, bytes, 1, 1).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::MasterKey;

    fn keys() -> Keys {
        Keys::derive(&MasterKey([1; 32]))
    }

    fn lease() -> Lease {
        let pin = |byte| Pin { series: SeriesKey([byte; 16]), job: JobId([byte + 1; 16]) };
        Lease {
            kind: JobKind::Backup,
            series: "host:/home".to_owned(),
            pins: vec![pin(3)],
            adopts: vec![pin(5), pin(7)],
            host: "host".to_owned(),
            process: 99,
            written_ms: 1_790_000_000_000,
            renew_seconds: 300,
            claims: None,
            generation: None,
        }
    }

    #[test]
    fn version_1_bytes_never_change() {
        let golden = hex::decode(include_str!("golden/lease_v1.hex").trim()).expect("valid hex");
        let encoded = lease().encode(&keys(), JobId([2; 16]), 4, [9; 16]).expect("fits");
        assert_eq!(hex::encode(encoded), hex::encode(&golden));
        assert_eq!(Lease::decode(&keys(), JobId([2; 16]), 4, &golden), Ok(lease()));
    }

    #[test]
    fn a_task_says_which_index_it_would_create() {
        let task = Lease { kind: JobKind::Task, claims: Some(7), ..lease() };
        let bytes = task.encode(&keys(), JobId([2; 16]), 0, [9; 16]).expect("fits");
        assert_eq!(Lease::decode(&keys(), JobId([2; 16]), 0, &bytes), Ok(task));
    }

    #[test]
    fn a_task_says_which_generation_it_would_create() {
        let task = Lease { kind: JobKind::Task, generation: Some(2), ..lease() };
        let bytes = task.encode(&keys(), JobId([2; 16]), 0, [9; 16]).expect("fits");
        assert_eq!(Lease::decode(&keys(), JobId([2; 16]), 0, &bytes), Ok(task));
    }

    #[test]
    fn a_lease_is_bound_to_its_job_and_number() {
        let bytes = lease().encode(&keys(), JobId([2; 16]), 4, [9; 16]).expect("fits");
        assert!(Lease::decode(&keys(), JobId([2; 16]), 5, &bytes).is_err());
        assert!(Lease::decode(&keys(), JobId([3; 16]), 4, &bytes).is_err());
        let done = encode_done(&keys(), JobId([2; 16]), [9; 16]);
        assert_eq!(decode_done(&keys(), JobId([2; 16]), &done), Ok(()));
        assert!(decode_done(&keys(), JobId([3; 16]), &done).is_err());
        assert!(Lease::decode(&keys(), JobId([2; 16]), 4, &done).is_err());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_closing_mark_is_noticed() {
        let done = encode_done(&keys(), JobId([2; 16]), [9; 16]);
        let golden = hex::decode(include_str!("golden/done_v1.hex").trim()).expect("valid hex");
        assert_eq!(hex::encode(&done), hex::encode(golden));
        for bit in 0..done.len() * 8 {
            let mut flipped = done.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_done(&keys(), JobId([2; 16]), &flipped).is_err(), "bit {bit}");
        }
        for len in 0..done.len() {
            assert!(decode_done(&keys(), JobId([2; 16]), &done[..len]).is_err(), "cut to {len}");
        }
    }

    #[test]
    fn a_lease_that_no_reader_would_fetch_is_not_written() {
        let pin = Pin { series: SeriesKey([3; 16]), job: JobId([4; 16]) };
        let written = |pins| Lease { pins: vec![pin; pins], ..lease() }.encode(&keys(), JobId([2; 16]), 0, [9; 16]);
        assert!(written(20_000).is_ok());
        assert!(written(30_000).is_err());
    }
}

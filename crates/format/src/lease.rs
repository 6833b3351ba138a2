//! Leases: how a running job announces itself, so that nothing it builds on is deleted under it.
//!
//! A lease is a sealed object (`seal.rs`), magic `LLSE`, one part: a CBOR map, [`Lease`].
//! `jobs/<job>/0` opens it, and each renewal creates the next number. The job closes it by creating
//! `jobs/<job>/done`: magic `LDON`, one part: a CBOR map, [`Done`]. `docs/concurrency.md` says why
//! this is enough.

use minicbor::{Decode, Encode};

use crate::cbor;
use crate::ids::{DomainId, JobId, SeriesKey};
use crate::keys::Keys;
use crate::layout::Layout;
use crate::mark::MARK_MAX;
use crate::names;
use crate::seal::{ObjectType, Pad, RANDOM_LEN, Realm, Signing, open_object, seal_object};
use crate::wire::{DecodeError, EncodeError};

/// Most bytes of a lease: room for some twenty thousand versions and jobs that it names.
pub const LEASE_MAX: u64 = 1 << 20;

const LEASE: ObjectType = ObjectType {
    magic: *b"LLSE",
    version: 2,
    what: "lease",
    max_len: LEASE_MAX,
    realm: Realm::Domain,
    signing: Signing::IfAble,
    pad: Pad::Small,
};
const DONE: ObjectType = ObjectType {
    magic: *b"LDON",
    version: 2,
    what: "closing mark of a lease",
    max_len: MARK_MAX,
    realm: Realm::Domain,
    signing: Signing::IfAble,
    pad: Pad::Small,
};

/// The kinds of jobs.
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
    /// Its kind.
    #[n(0)]
    pub kind: JobKind,
    /// The series it will commit a version to; for readers the series read, or empty.
    #[n(1)]
    pub series: String,
    /// Versions that must stay while this lease lives: the base of a backup, or the version that a
    /// restore reads.
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
    /// When this renewal was written, milliseconds since the epoch by the writer's clock. Nothing
    /// safe depends on it.
    #[n(6)]
    pub written_ms: u64,
    /// Within how many seconds the job means to renew.
    #[n(7)]
    pub renew_seconds: u32,
    /// Of a task: the number of the index whose creation would make its work count. Once an index
    /// with that number or a higher one was there, the task is over.
    #[n(8)]
    pub claims: Option<u64>,
    /// For a task that rewrites the version of its first pin: the generation of that version's
    /// manifest whose creation makes its work count. Once there is an object of that generation,
    /// the task is over.
    #[n(9)]
    pub generation: Option<u32>,
    /// The layout of the version that a backup writes. A job adopts only jobs whose lease names its
    /// own layout (`OneLayout`). A job whose lease names none is not adopted.
    #[n(10)]
    pub layout: Option<Layout>,
    /// Whether the process ended without a commit: it creates nothing any more, except by requests
    /// under way. Its uploads may be adopted.
    #[n(11)]
    pub ended: Option<bool>,
    /// The domain of the job: in the header, not among the fields.
    #[cbor(skip)]
    pub domain: DomainId,
    /// Whether an operator signed it: in the header, not among the fields.
    #[cbor(skip)]
    pub is_signed: bool,
}

impl Lease {
    /// Seals renewal `renewal` of this lease. `random` must be fresh random bytes.
    pub fn encode(
        &self,
        keys: &Keys,
        job: JobId,
        renewal: u32,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        seal_object(keys, self.domain, &names::lease(job, renewal), LEASE, random, &[&cbor::encode(self)])
    }

    /// Opens a renewal.
    pub fn decode(keys: &Keys, job: JobId, renewal: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::lease(job, renewal), LEASE, bytes, 1, 1)?;
        let lease: Self = cbor::decode_padded(&opened.parts[0], LEASE.what)?;
        Ok(Self { domain: opened.domain, is_signed: opened.is_signed, ..lease })
    }
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Outcome {
    /// It created the register that [`Done`] names, and that holds a manifest.
    #[n(0)]
    Committed,
    /// It committed nothing: no version needs the objects that it created.
    #[n(1)]
    Nothing,
    /// It has no register: the index says which part of its work counts.
    #[n(2)]
    TaskOver,
}

/// The last statement of a job: it creates nothing any more, and how it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Done {
    /// How it ended.
    #[n(0)]
    pub outcome: Option<Outcome>,
    /// The series that it committed to.
    #[n(1)]
    pub series: Option<SeriesKey>,
    /// The generation of the manifest that it committed.
    #[n(2)]
    pub generation: Option<u32>,
    /// Containers below `data/` that it created.
    #[n(3)]
    pub data_containers: Option<u32>,
    /// Containers below `meta/` that it created.
    #[n(4)]
    pub meta_containers: Option<u32>,
    /// The version that got a later generation from it. Absent: the version has the id of the job
    /// itself.
    #[n(5)]
    pub version: Option<JobId>,
    /// The domain that it was sealed in: in the header, not among the fields.
    #[cbor(skip)]
    pub domain: DomainId,
    /// Whether an operator signed it: in the header, not among the fields.
    #[cbor(skip)]
    pub is_signed: bool,
}

impl Done {
    /// Nothing was committed.
    pub fn nothing() -> Self {
        Self { outcome: Some(Outcome::Nothing), ..Self::default() }
    }

    /// A task without a register is over.
    pub fn task_over() -> Self {
        Self { outcome: Some(Outcome::TaskOver), ..Self::default() }
    }

    /// A version was committed under the id of the job.
    pub fn committed(series: SeriesKey) -> Self {
        Self { outcome: Some(Outcome::Committed), series: Some(series), generation: Some(0), ..Self::default() }
    }

    /// A later generation of a version was committed.
    pub fn committed_generation(version: Pin, generation: u32) -> Self {
        let (series, generation) = (Some(version.series), Some(generation));
        Self { series, generation, version: Some(version.job), outcome: Some(Outcome::Committed), ..Self::default() }
    }

    /// With the containers that the job created.
    pub fn with_containers(self, data: u32, meta: u32) -> Self {
        Self { data_containers: Some(data), meta_containers: Some(meta), ..self }
    }

    /// The register that job `job` says it created: a version and a generation of its manifest.
    pub fn register(&self, job: JobId) -> Option<(Pin, u32)> {
        if self.outcome != Some(Outcome::Committed) {
            return None;
        }
        Some((Pin { series: self.series?, job: self.version.unwrap_or(job) }, self.generation?))
    }

    /// Seals the closing mark of a job's lease. `random` must be fresh random bytes.
    pub fn encode(
        &self,
        keys: &Keys,
        domain: DomainId,
        job: JobId,
        random: [u8; RANDOM_LEN],
    ) -> Result<Vec<u8>, EncodeError> {
        seal_object(keys, domain, &names::lease_done(job), DONE, random, &[&cbor::encode(self)])
    }

    /// Opens a closing mark: only a holder of the key can close a lease.
    pub fn decode(keys: &Keys, job: JobId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = open_object(keys, &names::lease_done(job), DONE, bytes, 1, 1)?;
        let done: Self = cbor::decode_padded(&opened.parts[0], DONE.what)?;
        Ok(Self { domain: opened.domain, is_signed: opened.is_signed, ..done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{all_damage_is_noticed, golden};

    fn keys() -> Keys {
        crate::golden::keys()
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
            layout: None,
            ended: None,
            domain: DomainId::DEFAULT,
            is_signed: true,
        }
    }

    fn done() -> Done {
        Done { is_signed: true, ..Done::committed(SeriesKey([3; 16])).with_containers(12, 3) }
    }

    #[test]
    fn version_2_bytes_never_change() {
        let golden = golden("lease_v2", &lease().encode(&keys(), JobId([2; 16]), 4, [9; 32]).expect("fits"));
        assert_eq!(Lease::decode(&keys(), JobId([2; 16]), 4, &golden), Ok(lease()));
    }

    #[test]
    fn a_task_says_which_index_it_would_create() {
        let task = Lease { kind: JobKind::Task, claims: Some(7), ..lease() };
        let bytes = task.encode(&keys(), JobId([2; 16]), 0, [9; 32]).expect("fits");
        assert_eq!(Lease::decode(&keys(), JobId([2; 16]), 0, &bytes), Ok(task));
    }

    #[test]
    fn a_task_says_which_generation_it_would_create() {
        let task = Lease { kind: JobKind::Task, generation: Some(2), ..lease() };
        let bytes = task.encode(&keys(), JobId([2; 16]), 0, [9; 32]).expect("fits");
        assert_eq!(Lease::decode(&keys(), JobId([2; 16]), 0, &bytes), Ok(task));
    }

    #[test]
    fn a_backup_says_its_layout_and_that_it_ended() {
        let ended = Lease { layout: Some(Layout::Standard), ended: Some(true), ..lease() };
        let bytes = ended.encode(&keys(), JobId([2; 16]), 4, [9; 32]).expect("fits");
        let golden = golden("lease_ended_v2", &bytes);
        assert_eq!(Lease::decode(&keys(), JobId([2; 16]), 4, &golden), Ok(ended));
        for layout in [None, Some(Layout::Standard), Some(Layout::Lifecycle)] {
            let written = Lease { layout, ..lease() };
            let bytes = written.encode(&keys(), JobId([2; 16]), 4, [9; 32]).expect("fits");
            assert_eq!(Lease::decode(&keys(), JobId([2; 16]), 4, &bytes).map(|read| read.layout), Ok(layout));
        }
    }

    #[test]
    fn a_closing_mark_says_which_register_its_job_created() {
        let job = JobId([2; 16]);
        let read = |done: Done| {
            Done::decode(&keys(), job, &done.encode(&keys(), DomainId::DEFAULT, job, [9; 32]).expect("fits"))
        };
        let version = Pin { series: SeriesKey([3; 16]), job: JobId([4; 16]) };
        let generation = Done::committed_generation(version, 7);
        assert_eq!(read(generation.clone()).map(|done| done.register(job)), Ok(Some((version, 7))));
        let own = Pin { series: SeriesKey([3; 16]), job };
        assert_eq!(read(done()).map(|done| done.register(job)), Ok(Some((own, 0))));
        assert_eq!(read(Done::nothing()).map(|done| done.register(job)), Ok(None));
        assert_eq!(read(Done::task_over()).map(|done| done.outcome), Ok(Some(Outcome::TaskOver)));
    }

    #[test]
    fn a_lease_is_bound_to_its_job_and_number() {
        let bytes = lease().encode(&keys(), JobId([2; 16]), 4, [9; 32]).expect("fits");
        assert!(Lease::decode(&keys(), JobId([2; 16]), 5, &bytes).is_err());
        assert!(Lease::decode(&keys(), JobId([3; 16]), 4, &bytes).is_err());
        let sealed = done().encode(&keys(), DomainId::DEFAULT, JobId([2; 16]), [9; 32]).expect("fits");
        assert_eq!(Done::decode(&keys(), JobId([2; 16]), &sealed), Ok(done()));
        assert!(Done::decode(&keys(), JobId([3; 16]), &sealed).is_err());
        assert!(Lease::decode(&keys(), JobId([2; 16]), 4, &sealed).is_err());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_closing_mark_is_noticed() {
        let sealed = done().encode(&keys(), DomainId::DEFAULT, JobId([2; 16]), [9; 32]).expect("fits");
        golden("done_v2", &sealed);
        all_damage_is_noticed(&sealed, |bytes| Done::decode(&keys(), JobId([2; 16]), bytes).is_ok());
    }

    #[test]
    fn a_lease_that_no_reader_would_fetch_is_not_written() {
        let pin = Pin { series: SeriesKey([3; 16]), job: JobId([4; 16]) };
        let written = |pins| Lease { pins: vec![pin; pins], ..lease() }.encode(&keys(), JobId([2; 16]), 0, [9; 32]);
        assert!(written(20_000).is_ok());
        assert!(written(30_000).is_err());
    }
}

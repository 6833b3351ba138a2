//! The view of a G-node's pass: listings of jobs, registers, marks, pins and containers, and single
//! objects among them. It is always the store's state, never a cache's.
//!
//! Which of them must be seen before which others is the pass's business (`docs/concurrency.md`).
//! Unreadable and absent objects are told apart, because a pass must treat the two differently.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::ids::{ContainerId, ContainerKind, JobId, RunId};
use larder_format::lease::{LEASE_MAX, Lease, Pin};
use larder_format::manifest::{MANIFEST_MAX, Manifest, Register, encode_aborted};
use larder_format::names::{self, LeaseObject};

use parking_lot::Mutex;

use crate::Listed;
use crate::StoreErrorKind;
use crate::forget_marks::{OwnedVersion, read_if_there};
use crate::repository::{Repository, RepositoryError, random};
use crate::rules::Rule;

/// The objects below `jobs/<job>/`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedJob {
    /// Numbers of the renewals, rising; 0 is the lease itself.
    pub renewals: Vec<u32>,
    /// Whether something has the name of its closing mark.
    pub has_done: bool,
    /// When the newest of the renewals was made, by the store's clock.
    pub renewed_ms: u64,
}

/// The contents of a job's renewals.
#[derive(Debug)]
pub enum SeenLease {
    /// The highest that opens.
    Open(Lease),
    /// They are gone since they were listed.
    Gone,
    /// None of them opens; this is the highest and its error.
    Unreadable {
        /// Its name.
        name: String,
        /// The error.
        error: RepositoryError,
    },
}

/// The content of the register of a job to be fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fenced {
    /// Nothing: the job may still commit.
    No,
    /// The mark that it was aborted.
    Aborted,
    /// Its manifest, or something that does not open.
    Taken,
}

/// A container as a listing shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedContainer {
    /// Its id.
    pub id: ContainerId,
    /// Its bytes.
    pub bytes: u64,
}

impl Repository {
    /// Lists the containers that one job uploaded.
    pub async fn list_containers_of(&self, job: JobId) -> Result<Vec<ListedContainer>, RepositoryError> {
        let [data, meta] = [ContainerKind::Data, ContainerKind::Meta].map(|kind| names::containers_of(kind, job));
        self.collected(&data, &meta).await
    }

    /// The same, but `each` gets the containers, with the time when each was made by the store's
    /// clock; 0: the store does not say.
    pub async fn list_containers_of_timed(
        &self,
        job: JobId,
        each: impl FnMut(ListedContainer, u64) + Send,
    ) -> Result<(), RepositoryError> {
        let [data, meta] = [ContainerKind::Data, ContainerKind::Meta].map(|kind| names::containers_of(kind, job));
        self.list_containers_timed(&data, &meta, each).await
    }

    /// Lists all containers. `each` gets them one by one, in any order, with the time when each was
    /// made by the store's clock; 0: the store does not say.
    pub async fn list_all_containers_timed(
        &self,
        each: impl FnMut(ListedContainer, u64) + Send,
    ) -> Result<(), RepositoryError> {
        self.list_containers_timed(names::DATA, names::META, each).await
    }

    /// Lists the containers below two folders, side by side: no rule orders them among each other.
    async fn list_containers_timed(
        &self,
        data: &str,
        meta: &str,
        each: impl FnMut(ListedContainer, u64) + Send,
    ) -> Result<(), RepositoryError> {
        let store = self.store.without_cache();
        let each = Mutex::new(each);
        let note = |object: Listed| {
            if let Some(id) = names::parse_container(&object.name) {
                let mut each = each.lock();
                each(ListedContainer { id, bytes: object.size }, object.modified_ms);
            }
        };
        futures::try_join!(store.list_each(data, note), store.list_each(meta, note))?;
        Ok(())
    }

    /// The containers of such a listing, in order of their ids.
    async fn collected(&self, data: &str, meta: &str) -> Result<Vec<ListedContainer>, RepositoryError> {
        let mut listed = Vec::new();
        self.list_containers_timed(data, meta, |container, _| listed.push(container)).await?;
        listed.sort_unstable_by_key(|container: &ListedContainer| container.id);
        Ok(listed)
    }

    /// Lists everything below `jobs/`.
    pub async fn list_jobs(&self) -> Result<BTreeMap<JobId, ListedJob>, RepositoryError> {
        let mut jobs: BTreeMap<JobId, ListedJob> = BTreeMap::new();
        for object in self.store.without_cache().list(names::JOBS).await? {
            match names::parse_lease(&object.name) {
                Some((job, LeaseObject::Done)) => jobs.entry(job).or_default().has_done = true,
                Some((job, LeaseObject::Renewal(number))) => {
                    let listed = jobs.entry(job).or_default();
                    listed.renewals.push(number);
                    listed.renewed_ms = listed.renewed_ms.max(object.modified_ms);
                }
                None => {}
            }
        }
        for listed in jobs.values_mut() {
            listed.renewals.sort_unstable();
        }
        Ok(jobs)
    }

    /// Lists everything below `jobs/` twice: an entry in either listing counts (`AskedTwice`). A
    /// job that began after the first listing has an unknown name, so it cannot be asked for.
    pub async fn list_jobs_twice(&self) -> Result<BTreeMap<JobId, ListedJob>, RepositoryError> {
        let mut jobs = self.list_jobs().await?;
        // After the first: a gateway may answer equal requests of one moment together.
        let again = if self.keeps(Rule::AskedTwice) { self.list_jobs().await? } else { BTreeMap::new() };
        for (job, again) in again {
            let listed = jobs.entry(job).or_default();
            listed.renewals.extend(again.renewals);
            listed.renewals.sort_unstable();
            listed.renewals.dedup();
            listed.has_done |= again.has_done;
            listed.renewed_ms = listed.renewed_ms.max(again.renewed_ms);
        }
        Ok(jobs)
    }

    /// Reads the renewals of a job from the highest down to the first that opens.
    pub async fn see_lease(&self, job: JobId, renewals: &[u32]) -> Result<SeenLease, RepositoryError> {
        let store = self.store.without_cache();
        let mut unreadable = None;
        for renewal in renewals.iter().rev() {
            let name = names::lease(job, *renewal);
            let read = async {
                let Some(bytes) = read_if_there(&store, &name, LEASE_MAX).await? else { return Ok(None) };
                let lease = Lease::decode(&self.keys, job, *renewal, &bytes);
                lease.map(Some).map_err(RepositoryError::damaged(&*name))
            };
            match read.await {
                Ok(Some(lease)) if *renewal > 0 && !self.is_of_owner(job, lease.domain).await? => {}
                Ok(Some(lease)) => return Ok(SeenLease::Open(lease)),
                Ok(None) => {}
                Err(error) if error.is_of_object() => {
                    tracing::warn!(object = %name, %error, "not what its name says");
                    unreadable.get_or_insert(SeenLease::Unreadable { name, error });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(unreadable.unwrap_or(SeenLease::Gone))
    }

    /// Lists the generations of every register, rising.
    pub async fn list_registers(&self) -> Result<BTreeMap<Pin, Vec<u32>>, RepositoryError> {
        self.list_registers_timed(|_, _| ()).await
    }

    /// The same, and tells `each` when the generation 0 of each was made by the store's clock; 0:
    /// the store does not say.
    pub async fn list_registers_timed(
        &self,
        mut each: impl FnMut(Pin, u64),
    ) -> Result<BTreeMap<Pin, Vec<u32>>, RepositoryError> {
        let mut note = |version, number, made_ms| {
            if number == 0 {
                each(version, made_ms);
            }
        };
        self.list_numbered(names::VERSIONS, names::parse_version, &mut note).await
    }

    /// Lists the entries of every pin, rising.
    pub async fn list_pins(&self) -> Result<BTreeMap<Pin, Vec<u32>>, RepositoryError> {
        self.list_numbered(names::PINS, names::parse_pin, &mut |_, _, _| ()).await
    }

    async fn list_numbered(
        &self,
        prefix: &str,
        parse: impl Fn(&str) -> Option<(larder_format::ids::SeriesKey, JobId, u32)>,
        each: &mut impl FnMut(Pin, u32, u64),
    ) -> Result<BTreeMap<Pin, Vec<u32>>, RepositoryError> {
        let mut found: BTreeMap<Pin, Vec<u32>> = BTreeMap::new();
        for object in self.store.without_cache().list(prefix).await? {
            if let Some((series, job, number)) = parse(&object.name) {
                each(Pin { series, job }, number, object.made_ms());
                found.entry(Pin { series, job }).or_default().push(number);
            }
        }
        for numbers in found.values_mut() {
            numbers.sort_unstable();
        }
        Ok(found)
    }

    /// Lists all objects with the name of a mark, whether they open or not.
    pub async fn list_marks(&self) -> Result<BTreeSet<Pin>, RepositoryError> {
        let marks = self.store.without_cache().list(names::FORGOTTEN).await?;
        let parse = |name: &str| names::parse_forgotten(name).map(|(series, job)| Pin { series, job });
        Ok(marks.iter().filter_map(|object| parse(&object.name)).collect())
    }

    /// Lists all containers.
    pub async fn list_containers(&self) -> Result<Vec<ListedContainer>, RepositoryError> {
        self.collected(names::DATA, names::META).await
    }

    /// Lists the numbers of all indexes, and the objects of all runs with their bytes.
    pub async fn list_index(&self) -> Result<(Vec<u64>, Vec<(RunId, u64)>), RepositoryError> {
        let objects = self.store.without_cache().list(names::INDEX).await?;
        let numbers = objects.iter().filter_map(|object| names::parse_index(&object.name)).collect();
        let runs = objects.iter().filter_map(|object| Some((names::parse_run(&object.name)?, object.size))).collect();
        Ok((numbers, runs))
    }

    /// Reads a generation of a version's manifest; `None` when it is not there.
    pub async fn read_register(
        &self,
        version: Pin,
        generation: u32,
    ) -> Result<Option<Register<Manifest>>, RepositoryError> {
        let Pin { series, job } = version;
        let name = names::version(series, job, generation);
        let Some(bytes) = read_if_there(&self.store.without_cache(), &name, MANIFEST_MAX).await? else {
            return Ok(None);
        };
        Manifest::decode(&self.keys, series, job, generation, &bytes).map(Some).map_err(RepositoryError::damaged(name))
    }

    /// Whether a pass aborted the task of a generation as dead: its containers may be gone by now.
    /// `false` also when the register cannot be read.
    pub async fn is_fenced(&self, version: Pin, generation: u32) -> bool {
        matches!(self.read_register(version, generation).await, Ok(Some(Register::Aborted)))
    }

    /// Fences the maker of a generation of a version. For generation 0, this is the backup with the
    /// version's id. For a later one, it is the task that rewrites the version. Without effect when
    /// the generation is there.
    ///
    /// Returns the content of the register. It is read back, because a create may be acknowledged
    /// or refused wrongly and leave the job free to commit (`AskedTwice`).
    pub async fn fence(&self, version: impl Into<OwnedVersion>, generation: u32) -> Result<Fenced, RepositoryError> {
        let OwnedVersion { domain, version } = version.into();
        let Pin { series, job } = version;
        let bytes = encode_aborted(&self.keys, domain, series, job, generation, random(self.entropy())?)?;
        match self.store.create(&names::version(series, job, generation), bytes.into()).await {
            Err(error) if error.kind != StoreErrorKind::AlreadyExists => return Err(error.into()),
            _ if !self.keeps(Rule::AskedTwice) => return Ok(Fenced::Aborted),
            _ => {}
        }
        match self.read_register(version, generation).await {
            Ok(None) => Ok(Fenced::No),
            Ok(Some(Register::Aborted)) => Ok(Fenced::Aborted),
            Ok(Some(Register::Committed(_))) => Ok(Fenced::Taken),
            // Something is there, and keeps the job from committing. The code that reads the
            // versions reports it.
            Err(error) if error.is_of_object() => Ok(Fenced::Taken),
            Err(error) => Err(error),
        }
    }
}

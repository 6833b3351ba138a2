//! Small sets of jobs and of containers, one bit each, so that a state of the model stays a few dozen bytes.

use std::fmt;

/// Most jobs a scenario may have.
pub(crate) const JOBS_MAX: usize = 4;
/// Containers each job may upload.
pub(crate) const CONTAINERS_PER_JOB: usize = 2;

/// Most containers a scenario may have.
pub(crate) const CONTAINERS_MAX: usize = JOBS_MAX * CONTAINERS_PER_JOB;

/// A set of jobs. A job's number stands for its id; the model never relies on the order of ids.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Jobs(pub(crate) u8);

impl Jobs {
    pub(crate) fn of(jobs: &[usize]) -> Self {
        Self(jobs.iter().fold(0, |bits, job| bits | 1 << job))
    }

    pub(crate) fn has(self, job: usize) -> bool {
        self.0 & (1 << job) != 0
    }

    pub(crate) fn insert(&mut self, job: usize) {
        self.0 |= 1 << job;
    }

    pub(crate) fn remove(&mut self, job: usize) {
        self.0 &= !(1 << job);
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..JOBS_MAX).filter(move |job| self.has(*job))
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// A set of containers. Container `n` of job `j` is `data/<j>/<n>`; the model does not tell data from metadata.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Containers(pub(crate) u8);

impl Containers {
    pub(crate) fn one(job: usize, number: usize) -> Self {
        Self(1 << (job * CONTAINERS_PER_JOB + number))
    }

    /// The container of this number in [`Containers::iter`].
    pub(crate) fn at(number: usize) -> Self {
        Self(1 << number)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..CONTAINERS_MAX).filter(move |number| Self::at(*number).within(self))
    }

    /// Everything under `data/<job>/`.
    pub(crate) fn of_job(job: usize) -> Self {
        (0..CONTAINERS_PER_JOB).fold(Self::default(), |all, number| all.union(Self::one(job, number)))
    }

    /// Everything under the prefixes of `jobs`.
    pub(crate) fn of_jobs(jobs: Jobs) -> Self {
        jobs.iter().fold(Self::default(), |all, job| all.union(Self::of_job(job)))
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn within(self, other: Self) -> bool {
        self.minus(other).is_empty()
    }
}

impl fmt::Debug for Containers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.iter().map(|bit| {
            let (job, number) = (bit / CONTAINERS_PER_JOB, bit % CONTAINERS_PER_JOB);
            format!("data/{job}/{number}")
        });
        f.debug_set().entries(names).finish()
    }
}

const _: () = assert!(CONTAINERS_MAX <= 8, "a container set is one byte");

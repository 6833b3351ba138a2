//! Tables of jobs and containers at the head of a structure, so that its rows name a container by a
//! small number.
//!
//! | field      | size        | meaning                                                       |
//! |------------|-------------|---------------------------------------------------------------|
//! | jobs       | varint + 16 each | ids of jobs, in order of first use                       |
//! | containers | varint + rows    | varint job number, varint (sequence << 1 or 1 for `meta`) |
//!
//! The order is that of first use, so that equal contents have equal bytes and therefore equal
//! fingerprints.

use std::collections::HashMap;

use crate::ids::{ContainerId, ContainerKind, JobId};
use crate::wire::{DecodeError, Put, Reader};

/// Gives numbers to jobs and containers while a structure is encoded.
#[derive(Debug, Default)]
pub(crate) struct PlacesWriter {
    jobs: Vec<JobId>,
    job_numbers: HashMap<JobId, u64>,
    containers: Vec<ContainerId>,
    container_numbers: HashMap<ContainerId, u64>,
}

impl PlacesWriter {
    pub(crate) fn job(&mut self, job: JobId) -> u64 {
        *self.job_numbers.entry(job).or_insert_with(|| {
            self.jobs.push(job);
            self.jobs.len() as u64 - 1
        })
    }

    pub(crate) fn container(&mut self, id: ContainerId) -> u64 {
        self.job(id.job);
        *self.container_numbers.entry(id).or_insert_with(|| {
            self.containers.push(id);
            self.containers.len() as u64 - 1
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.jobs.len() as u64);
        for job in &self.jobs {
            out.extend_from_slice(&job.0);
        }
        out.put_varint(self.containers.len() as u64);
        for id in &self.containers {
            out.put_varint(self.job_numbers[&id.job]);
            out.put_varint(u64::from(id.seq) << 1 | u64::from(id.kind == ContainerKind::Meta));
        }
    }
}

/// The same tables, read back.
#[derive(Debug)]
pub(crate) struct Places {
    jobs: Vec<JobId>,
    containers: Vec<ContainerId>,
}

impl Places {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let job_count = reader.count(16)?;
        let mut jobs = Vec::with_capacity(job_count);
        // Not `capacity()`: an allocator may give more room than was asked for.
        for _ in 0..job_count {
            jobs.push(JobId(reader.array()?));
        }
        let count = reader.count(2)?;
        let mut places = Self { jobs, containers: Vec::with_capacity(count) };
        for _ in 0..count {
            let number = reader.varint()?;
            let job = places.job(number, reader)?;
            let seq = reader.varint()?;
            let kind = if seq & 1 == 0 { ContainerKind::Data } else { ContainerKind::Meta };
            let seq = u32::try_from(seq >> 1).map_err(|_| reader.invalid("a container number is too large"))?;
            places.containers.push(ContainerId { kind, job, seq });
        }
        Ok(places)
    }

    /// The job with this number.
    pub(crate) fn job(&self, number: u64, reader: &Reader<'_>) -> Result<JobId, DecodeError> {
        let job = usize::try_from(number).ok().and_then(|number| self.jobs.get(number));
        job.copied().ok_or_else(|| reader.invalid("it names a job it does not list"))
    }

    pub(crate) fn container(&self, reader: &mut Reader<'_>) -> Result<ContainerId, DecodeError> {
        let number = reader.varint()?;
        self.numbered(number, reader)
    }

    /// The container with this number.
    pub(crate) fn numbered(&self, number: u64, reader: &Reader<'_>) -> Result<ContainerId, DecodeError> {
        let number = usize::try_from(number).ok();
        let container = number.and_then(|number| self.containers.get(number));
        container.copied().ok_or_else(|| reader.invalid("it names a container it does not list"))
    }
}

//! Which jobs can create nothing new: they closed, committed, ended or were fenced.

use std::collections::BTreeMap;

use larder_format::ids::JobId;
use larder_format::lease::{Done, JobKind, Pin};
use larder_format::manifest::Register;
use larder_store::forget_marks::OwnedVersion;
use larder_store::rules::Rule;
use larder_store::survey::{Fenced, ListedJob, SeenLease};

use super::Survey;
use crate::error::PassError;
use crate::pass::plan::AbortedJob;

/// How a job stands in step 2.
pub(super) enum Settled {
    No,
    /// Its process ended without a commit; it is aborted at this time.
    Ended(JobId, u64),
    Yes(JobId),
    /// By the register that its lease names.
    Registered(Pin),
    /// By its closing mark.
    Closed(JobId, Done),
    Fenced(AbortedJob),
    /// It was considered dead, but its register has this generation.
    Committed(JobId, Pin, u32),
}

impl Survey<'_> {
    /// Whether a job can create nothing new: it has closed or committed. `has_register`: a version
    /// has its id, in some series. If the job is considered dead, the fence ensures this from now
    /// on (`Fence`).
    pub(super) async fn is_settled(
        &self,
        job: JobId,
        listed: &ListedJob,
        has_register: bool,
        registers: &BTreeMap<Pin, Vec<u32>>,
        now_ms: u64,
    ) -> Result<Settled, PassError> {
        if let Some(done) = self.done(job, listed).await? {
            return Ok(Settled::Closed(job, done));
        }
        let SeenLease::Open(lease) = self.repository.see_lease(job, &listed.renewals).await? else {
            // Nobody can replace the first lease object. Without one that opens, the register is
            // all that is known of the job.
            return Ok(if has_register { Settled::Yes(job) } else { Settled::No });
        };
        let own = Pin { series: self.repository.keys().series_key_in(lease.domain, &lease.series), job };
        let is_committed = || registers.get(&own).is_some_and(|generations| generations.first() == Some(&0));
        if lease.kind != JobKind::Read && is_committed() {
            return Ok(Settled::Registered(own));
        }
        // The key whose creation commits its work. A task that claims an index is over when there
        // is one with that number.
        let register = match lease.kind {
            JobKind::Read => return Ok(Settled::No),
            JobKind::Backup => (own, 0),
            // Only an operator's task makes generations or indexes. Another lease that says so
            // could have a pass sign a mark of its choice.
            JobKind::Task if !lease.is_signed => return Ok(Settled::No),
            JobKind::Task => match (lease.pins.first(), lease.generation, lease.claims) {
                (Some(version), Some(generation), _) => (*version, generation),
                (_, _, Some(number)) if number <= self.base.number => return Ok(Settled::Yes(job)),
                _ => return Ok(Settled::No),
            },
        };
        let (version, generation) = register;
        if registers.get(&version).is_some_and(|generations| generations.contains(&generation)) {
            return Ok(Settled::Yes(job));
        }
        let has_ended = lease.ended == Some(true);
        if !self.is_dead(listed, now_ms) {
            if !has_ended {
                return Ok(Settled::No);
            }
            // It creates nothing new. Its uploads are worth keeping for the next backup of the
            // series, and no longer.
            let until_ms = self.waits_until(listed.renewed_ms, now_ms);
            let is_awaited = lease.kind == JobKind::Backup && !self.has_later(version, registers).await?;
            if let Some(until_ms) = until_ms.filter(|_| is_awaited) {
                return Ok(Settled::Ended(job, until_ms));
            }
        }
        if !self.is_dry && self.repository.keeps(Rule::Fence) {
            match self.repository.fence(OwnedVersion { domain: lease.domain, version }, generation).await? {
                Fenced::No => return Ok(Settled::No),
                Fenced::Aborted => {}
                Fenced::Taken => return Ok(Settled::Committed(job, version, generation)),
            }
            tracing::info!(%job, host = %lease.host, "a job that looks dead, or that ended, was aborted");
        }
        Ok(Settled::Fenced(AbortedJob { job, has_ended }))
    }

    /// Whether a version of the same series was committed by a job that began later.
    async fn has_later(&self, job: Pin, registers: &BTreeMap<Pin, Vec<u32>>) -> Result<bool, PassError> {
        let later = registers.keys().filter(|version| version.series == job.series && version.job > job.job);
        for version in later.rev() {
            match self.repository.read_register(*version, 0).await {
                Ok(Some(Register::Committed(_))) => return Ok(true),
                Ok(Some(Register::Aborted) | None) => {}
                Err(error) if error.is_of_object() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// The closing mark of a job, if it has one.
    pub(super) async fn done(&self, job: JobId, listed: &ListedJob) -> Result<Option<Done>, PassError> {
        if !listed.has_done {
            return Ok(None);
        }
        match self.repository.closing_mark(job).await {
            Err(error) if error.is_of_object() => Ok(None),
            done => Ok(done?),
        }
    }

    /// A closing mark that does not open closes nothing.
    pub(super) async fn is_closed(&self, job: JobId) -> Result<bool, PassError> {
        match self.repository.is_closed(job).await {
            Err(error) if error.is_of_object() => Ok(false),
            closed => Ok(closed?),
        }
    }
}

//! Makes a new version from the parts of another one: announces the job, looks at the version,
//! writes, and commits.
//!
//! This is the protocol of a backup that has the other version for its base
//! (`docs/concurrency.md`). The new version shares containers with it and copies none. It is of the
//! same domain and layout. Its id states that it began just after the other one. So the newest
//! version of a series, on which the next backup builds, stays the newest. A version counts as no
//! newer than its id says, so one with a later stated time gets an id of that time. So does one of
//! the future with any stated time.

use larder_format::compress::Compression;
use larder_format::content::ContentRoots;
use larder_format::ids::{JobId, SeriesKey};
use larder_format::lease::{Done, JobKind, Lease, Pin};
use larder_format::manifest::{Manifest, Summary};
use larder_job::{Ending, JobContext, LeaseKeeper};
use larder_reader::pin_of;
use larder_store::Created;
use larder_store::catalog::Version;
use larder_store::jobs::CommitError;
use larder_store::repository::random;
use larder_writer::{Destination, Pool, StopUploads, Uploads, container_table, holdings};

use crate::error::RepairError;
use crate::rewriting::Rewritten;

/// How a new version follows from another one.
pub(crate) trait Derivation {
    /// A reason not to make it.
    type Refusal;

    /// Writes the streams.
    fn write(
        &mut self,
        job: JobId,
        old: &Manifest,
        destination: Destination,
    ) -> Result<Result<Rewritten, Self::Refusal>, RepairError>;

    /// Changes the summary, which has the facts of the old one and the sums of the new streams. The
    /// witness is added later.
    fn describe(&self, old: &Summary, new: Summary) -> Result<Summary, Self::Refusal>;
}

/// The outcome of making a version.
#[derive(Debug)]
pub(crate) enum Derived<R> {
    /// It is committed.
    Made(JobId),
    /// The derivation refused.
    Refused(R),
    /// The other version cannot be built on: the reason.
    Unusable(&'static str),
}

/// Options that do not depend on the kind of the derivation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeriveOptions<'a> {
    /// The series of the new version.
    pub(crate) series: &'a str,
    /// Name and version of the program, to record.
    pub(crate) program: &'a str,
    /// The time that the new version shall state, if it is another one.
    pub(crate) time_ms: Option<u64>,
    /// How new metadata are compressed.
    pub(crate) compression: Compression,
}

/// The time in the id of a version that is made now of one with the time `old_ms` in its id.
fn time_of_id(old_ms: u64, stated_ms: Option<u64>, now_ms: u64) -> u64 {
    // The future counts for nothing.
    let stated_ms = stated_ms.map(|stated_ms| stated_ms.min(now_ms));
    match stated_ms {
        // The clock was ahead. Policies and later backups would take it for the newest version
        // until that time has come.
        Some(stated_ms) if old_ms > now_ms => stated_ms,
        stated_ms => stated_ms.unwrap_or(0).max(old_ms.saturating_add(1)),
    }
}

/// Makes a version from `version`.
pub(crate) fn derive<D: Derivation>(
    context: &JobContext,
    version: &Version,
    derivation: &mut D,
    options: DeriveOptions<'_>,
) -> Result<Derived<D::Refusal>, RepairError> {
    let repository = &context.repository;
    let id_ms = time_of_id(version.id().unix_ms(), options.time_ms, context.clock.now_ms());
    let job = JobId::new(id_ms, random(repository.entropy())?);
    let series = repository.keys().series_key_in(version.summary.domain, options.series);
    let lease = Lease {
        pins: vec![pin_of(version)],
        layout: Some(version.summary.layout),
        domain: version.summary.domain,
        ..context.lease(JobKind::Backup, options.series)
    };
    let keeper = LeaseKeeper::open(context, job, lease)?;
    let result = announced(context, version, Pin { series, job }, derivation, options);
    // As with a backup: when an attempt at the commit may still land, the lease stays.
    keeper.end(match &result {
        Ok((_, Some(created))) => Ending::closed_if(created.all_answered, Done::committed(series)),
        Ok((_, None)) => Ending::Closed(Done::nothing()),
        Err(_) => Ending::Ended,
    });
    result.map(|(outcome, _)| outcome)
}

type Outcome<D> = (Derived<<D as Derivation>::Refusal>, Option<Created>);

fn announced<D: Derivation>(
    context: &JobContext,
    version: &Version,
    new: Pin,
    derivation: &mut D,
    options: DeriveOptions<'_>,
) -> Result<Outcome<D>, RepairError> {
    let repository = &context.repository;
    // Only after the lease: containers that exist now stay.
    let newest = context.executor.block_on(async {
        if !repository.is_retained(pin_of(version)).await? {
            return Ok(None);
        }
        repository.buildable_generation(version).await
    })?;
    let Some(newest) = newest else {
        let why = "it was forgotten meanwhile, or its first manifest cannot be read";
        return Ok((Derived::Unusable(why), None));
    };
    let old = context.executor.block_on(repository.manifest(&newest))?;
    let uploads = Uploads::new(repository.clone(), context.executor.clone(), context.cancel.clone());
    let _stop = StopUploads(uploads.clone());
    let pool = Pool::new(context, options.compression).map_err(|_| RepairError::NoThreads)?;
    let handle = pool.handle().ok_or(RepairError::WorkerDied)?;
    let destination = Destination::Store { pool: handle, uploads: uploads.clone() };
    let rewritten = match derivation.write(new.job, &old, destination)? {
        Ok(rewritten) => rewritten,
        Err(refusal) => return Ok((Derived::Refused(refusal), None)),
    };
    if !uploads.wait_unless_cancelled()? {
        return Err(RepairError::Interrupted);
    }
    drop(pool);
    let Rewritten { data, metadata, usage, added_bytes, logical_bytes } = rewritten;
    let (stored, of_old) = (uploads.stored(), holdings(&old.containers));
    let held = |container: &_| stored.get(container).or_else(|| of_old.get(container)).copied();
    let Some(containers) = container_table(&usage, held) else {
        return Ok((Derived::Unusable("its recipe uses containers that its table does not have"), None));
    };
    let mut statistics = old.summary.statistics.clone();
    statistics.logical_bytes = logical_bytes;
    statistics.stream_bytes = data.bytes();
    statistics.chunks = data.chunks();
    (statistics.read_bytes, statistics.new_chunks) = (0, 0);
    (statistics.added_bytes, statistics.stored_bytes) = (added_bytes, uploads.stored_bytes());
    let summary = Summary {
        id: new.job,
        series: options.series.to_owned(),
        base: Some(old.summary.id),
        more_bases: Vec::new(),
        // Times of files are compared with the start of the original.
        ended_ms: context.clock.now_ms(),
        program: options.program.to_owned(),
        statistics,
        attempt: random(repository.entropy())?,
        roots: ContentRoots::of(&data, &metadata),
        witness: None,
        // The maker says what it is.
        origin: None,
        ..old.summary.clone()
    };
    let summary = match derivation.describe(&old.summary, summary) {
        Ok(summary) => summary,
        Err(refusal) => return Ok((Derived::Refused(refusal), None)),
    };
    // A part of a version of this machine is its own as well. That of others stays theirs, and so
    // does that of a copy, which this machine made of what another one saw.
    let is_own = context.machine.made(&old.summary) && !old.summary.is_copy_in(repository.config().repository);
    let witness = context.machine.witness(&summary).filter(|_| is_own);
    let summary = Summary { witness, ..summary };
    commit(context, new, Manifest { summary, data, metadata, containers }).map(|(made, created)| match made {
        true => (Derived::Made(new.job), created),
        false => (Derived::Unusable("this job was taken for dead while it ran; run it again"), None),
    })
}

/// Commits; `false` if the job was aborted.
fn commit(context: &JobContext, new: Pin, manifest: Manifest) -> Result<(bool, Option<Created>), RepairError> {
    let series: SeriesKey = new.series;
    match context.executor.block_on(context.repository.commit(series, &manifest)) {
        Ok(created) => {
            if manifest.summary.witness.is_some() {
                context.machine.note_version(new);
            }
            Ok((true, Some(created)))
        }
        Err(CommitError::Fenced) => Ok((false, None)),
        Err(CommitError::Repository(error)) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_stated_time_moves_the_id_but_not_into_the_future() {
        assert_eq!(time_of_id(50, None, 1000), 51);
        assert_eq!(time_of_id(50, Some(20), 1000), 51);
        assert_eq!(time_of_id(50, Some(700), 1000), 700);
        assert_eq!(time_of_id(50, Some(5000), 1000), 1000);
        // The old one is of the future: a stated time corrects it.
        assert_eq!(time_of_id(2000, Some(1500), 1000), 1000);
        assert_eq!(time_of_id(2000, Some(700), 1000), 700);
        assert_eq!(time_of_id(2000, None, 1000), 2001);
    }
}

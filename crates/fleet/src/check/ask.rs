//! The process that makes a check: it asks for ranges, reads some of them, and puts results
//! together.
//!
//! Nothing depends on workers. A range whose reader died is taken over. If nothing happens for the
//! time of a claim, this process reads what is left, although others claim it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use larder_format::fleet::{CHECK_RULES, CheckRange, CheckResult, RANGE_CONTAINERS_MAX, RANGE_MAX, Stage, TaskId};
use larder_format::ids::{AttemptId, ContainerId, JobId};
use larder_format::names::{self, FleetObject};
use larder_job::{JobContext, NoProgress};
use larder_rewrite::check::{CheckError, ContentReport, ReadContents, read_contents};
use larder_store::RepositoryError;
use larder_store::repository::random;

use super::verify::{self, Verified};
use crate::given;
use crate::queue::StoreQueue;

/// Ranges for each process, if there are enough containers: the last ones end at about the same
/// time.
const RANGES_EACH: usize = 8;

/// Objects that are written or read at once.
const AT_ONCE: usize = 16;

/// How a check is shared.
#[derive(Debug, Clone, Copy)]
pub struct SharedCheckOptions {
    /// How many processes are expected to read, this one among them.
    pub workers: NonZeroU32,
    /// Without a sign of life for so long, the claim of a worker is taken over. At least a second.
    pub claim: Duration,
    /// The longest time after which this process looks for results again.
    pub poll: Duration,
}

/// What other processes did for a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedCheckReport {
    /// Ranges that there were.
    pub ranges: u64,
    /// Ranges whose results of other processes count.
    pub ranges_of_others: u64,
    /// Containers of those.
    pub containers_of_others: u64,
    /// Processes that read them.
    pub readers: BTreeSet<AttemptId>,
    /// Whether a result was wrong, so that none of other processes counts.
    pub worker_was_wrong: bool,
}

/// A check that several processes share. See the module header.
#[derive(Debug)]
pub struct SharedCheck {
    options: SharedCheckOptions,
    looks: u8,
    batch: Option<JobId>,
    report: SharedCheckReport,
}

impl SharedCheck {
    /// Nothing is asked yet.
    pub fn new(options: SharedCheckOptions) -> Self {
        Self { options, looks: 0, batch: None, report: SharedCheckReport::default() }
    }

    /// What other processes did.
    pub fn report(&self) -> &SharedCheckReport {
        &self.report
    }

    /// Deletes what the check left for its workers. What cannot be deleted is left to `fleet clean`
    /// and to passes.
    pub fn tidy(&self, context: &JobContext) {
        let Some(batch) = self.batch else { return };
        let store = context.repository.store().without_cache();
        let deleted = context.executor.block_on(async {
            let left = store.list(&names::fleet_batch(batch)).await?;
            let delete = left.iter().map(|object| store.delete(&object.name));
            futures::stream::iter(delete).buffer_unordered(AT_ONCE).try_collect::<()>().await
        });
        if let Err(error) = deleted {
            tracing::debug!(%error, "objects of a check are left to passes");
        }
    }
}

impl ReadContents for SharedCheck {
    fn read(
        &mut self,
        context: &JobContext,
        lease: Option<JobId>,
        chosen: &[(ContainerId, u64)],
    ) -> Result<ContentReport, CheckError> {
        context.progress.expect(0, chosen.iter().map(|(_, size)| size).sum());
        context.progress.expectation_is_complete();
        let Some(batch) = lease else {
            context.progress.note("without a lease, this process reads all contents alone");
            return read_contents(context, chosen, None);
        };
        if chosen.len() < 2 {
            return read_contents(context, chosen, None);
        }
        self.batch = Some(batch);
        let look = self.looks;
        self.looks = self.looks.saturating_add(1);
        let mut asked = match Asked::begin(context, self.options, batch, look, chosen) {
            Ok(asked) => asked,
            // The repository is full, or an object has the name of a range. Reading needs neither.
            Err(error) => {
                let why = format!("the check is not shared ({error}); this process reads all contents");
                context.progress.aside(&why);
                return read_contents(context, chosen, None);
            }
        };
        asked.trusts = !self.report.worker_was_wrong;
        let shared = asked.share(self.options.poll);
        let found = asked.read_rest(shared);
        asked.count(&mut self.report);
        found
    }
}

/// The ranges of one look.
struct Asked<'a> {
    context: &'a JobContext,
    /// The same without progress, for what is read a second time.
    again: JobContext,
    batch: JobId,
    look: u8,
    me: AttemptId,
    claim_after: Duration,
    ranges: Vec<AskedRange<'a>>,
    /// Numbers of ranges without a report.
    open: BTreeSet<u32>,
    /// Whether results of others count.
    trusts: bool,
    queue: StoreQueue,
}

/// A range.
struct AskedRange<'a> {
    containers: &'a [(ContainerId, u64)],
    key: [u8; 32],
    found: Option<ContentReport>,
    /// The other process whose result counts.
    reader: Option<AttemptId>,
}

impl<'a> Asked<'a> {
    /// Asks for all ranges.
    fn begin(
        context: &'a JobContext,
        options: SharedCheckOptions,
        batch: JobId,
        look: u8,
        chosen: &'a [(ContainerId, u64)],
    ) -> Result<Self, RepositoryError> {
        let repository = &context.repository;
        let me = AttemptId(random(repository.entropy())?);
        let claim_after = Duration::from_secs(options.claim.as_secs().max(1));
        let count = (options.workers.get() as usize).saturating_mul(RANGES_EACH);
        let of_range = chosen.len().div_ceil(count).clamp(1, RANGE_CONTAINERS_MAX);
        // A worker that sees a range sees signs of life of this process, too.
        let queue = StoreQueue::join(context, batch, me, claim_after, Vec::new())?;
        let (mut ranges, mut objects) = (Vec::new(), Vec::new());
        for (containers, number) in chosen.chunks(of_range).zip(0_u32..) {
            let key = random(repository.entropy())?;
            let range = CheckRange {
                head: given::head(context, CHECK_RULES, me, claim_after),
                key,
                bytes: containers.iter().map(|(_, size)| size).sum(),
                largest: containers.iter().map(|(_, size)| *size).max().unwrap_or(0),
                containers: containers.iter().map(|(id, _)| *id).collect(),
            };
            let task = TaskId { stage: Stage::Check, round: look, number };
            let bytes = range.encode(repository.keys(), batch, task, random(repository.entropy())?)?;
            objects.push((names::fleet_range(batch, task), bytes));
            ranges.push(AskedRange { containers, key, found: None, reader: None });
        }
        let created = objects.into_iter().map(|(name, bytes)| async move {
            let created = repository.store().create(&name, bytes.into()).await;
            created.map(drop)
        });
        let created = futures::stream::iter(created).buffer_unordered(AT_ONCE).try_collect::<()>();
        context.executor.block_on(created)?;
        let open = (0..ranges.len() as u32).collect();
        let again = JobContext { progress: Arc::new(NoProgress), ..context.clone() };
        Ok(Self { context, again, batch, look, me, claim_after, ranges, open, trusts: true, queue })
    }

    fn task(&self, number: u32) -> TaskId {
        TaskId { stage: Stage::Check, round: self.look, number }
    }

    /// Reads what is open in this process, if sharing ended early, and puts all together.
    fn read_rest(&mut self, shared: Result<(), CheckError>) -> Result<ContentReport, CheckError> {
        match shared {
            Err(CheckError::Repository(error)) => {
                self.note(&format!("the check is not shared any more ({error}); this process reads the rest"));
            }
            shared => shared?,
        }
        while let Some(number) = self.open.first().copied() {
            self.read_range(number)?;
        }
        let mut all = ContentReport::default();
        self.ranges.iter_mut().filter_map(|range| range.found.take()).for_each(|found| all.add(found));
        Ok(all)
    }

    /// Until every range is read.
    fn share(&mut self, poll: Duration) -> Result<(), CheckError> {
        let first = poll / 32;
        let (mut next, mut waited) = (first, Duration::ZERO);
        while let Some(lowest) = self.open.first().copied() {
            if self.context.cancel.is_cancelled() {
                return Err(CheckError::Interrupted);
            }
            let is_idle = self.take_results()? == 0;
            let due: Vec<TaskId> = self.open.iter().map(|number| self.task(*number)).collect();
            let times = self.queue.times()?;
            let taken = self.queue.take_at(&times, &due)?.map(|taken| taken.task.number);
            // Their readers may be stuck, or results of others do not count any more.
            let is_late = waited >= self.claim_after || !self.trusts;
            match taken {
                Some(number) => {
                    self.read_range(number)?;
                    (next, waited) = (first, Duration::ZERO);
                }
                None if is_late && self.open.contains(&lowest) => self.read_range(lowest)?,
                None if is_idle => {
                    let time = next;
                    self.context.executor.block_on(async move { tokio::time::sleep(time).await });
                    waited += next;
                    next = (next * 2).min(poll);
                }
                None => (next, waited) = (first, Duration::ZERO),
            }
        }
        Ok(())
    }

    /// Reads a range in this process, and tells the others.
    fn read_range(&mut self, number: u32) -> Result<(), CheckError> {
        let range = &self.ranges[number as usize];
        let found = read_contents(self.context, range.containers, None)?;
        let (repository, task) = (&self.context.repository, self.task(number));
        // Without proofs: this process trusts itself, and for others it counts that it is there.
        let host = self.context.identity.host.clone();
        let result = CheckResult { reader: self.me, host, took_ms: 0, not_whole: Vec::new(), proofs: Vec::new() };
        let bytes = result.encode(repository.keys(), self.batch, task, random(repository.entropy())?);
        let bytes = bytes.map_err(RepositoryError::from)?;
        let name = names::fleet_done(self.batch, task);
        // What this process read counts: another reader was only slow, or the repository is full.
        if let Err(error) = self.context.executor.block_on(repository.store().create(&name, bytes.into())) {
            tracing::debug!(%error, "a range has no register of this process");
        }
        self.decided(number, found, None);
        Ok(())
    }

    fn decided(&mut self, number: u32, found: ContentReport, reader: Option<AttemptId>) {
        let range = &mut self.ranges[number as usize];
        (range.found, range.reader) = (Some(found), reader);
        self.open.remove(&number);
    }

    /// Takes results of others. Returns the number of ranges that were decided.
    fn take_results(&mut self) -> Result<usize, CheckError> {
        let mut decided = 0;
        if !self.trusts {
            return Ok(0);
        }
        for (number, result) in self.results()? {
            let verified = match result {
                Ok(result) => {
                    let AskedRange { containers, key, .. } = &self.ranges[number as usize];
                    verify::verify(&self.again, containers, key, &result)?
                }
                Err(error) => Verified::Unreadable(error),
            };
            match verified {
                Verified::Counts { found, reader, remark } => {
                    remark.iter().for_each(|remark| self.note(remark));
                    let bytes = self.ranges[number as usize].containers.iter().map(|(_, size)| size).sum();
                    self.context.progress.done(0, bytes);
                    self.decided(number, found, Some(reader));
                }
                Verified::Unreadable(error) => {
                    self.note(&format!(
                        "the result of a worker does not count ({error}); this process reads the range"
                    ));
                    self.read_range(number)?;
                }
                Verified::Wrong { host } => {
                    self.note(&format!(
                        "a worker on host {host:?} calls a container whole, and this process finds otherwise: the worker \
                         did not read it, or it was damaged since, or this host cannot read it; this process reads \
                         everything that others read"
                    ));
                    self.discard_all();
                    return Ok(decided + 1);
                }
            }
            decided += 1;
        }
        Ok(decided)
    }

    fn note(&self, text: &str) {
        self.context.progress.aside(text);
    }

    /// From now on, nothing that others say counts.
    fn discard_all(&mut self) {
        self.trusts = false;
        for (range, number) in self.ranges.iter_mut().zip(0_u32..) {
            if range.reader.take().is_some() {
                range.found = None;
                self.open.insert(number);
            }
        }
    }

    /// Results of ranges that are open, by their numbers.
    fn results(&self) -> Result<BTreeMap<u32, Result<CheckResult, String>>, RepositoryError> {
        let repository = &self.context.repository;
        let store = repository.store().without_cache();
        self.context.executor.block_on(async {
            let listed = store.list(&format!("{}check/{}/", names::fleet_registers(self.batch), self.look)).await?;
            let open = listed.iter().filter_map(|object| match names::parse_fleet(&object.name) {
                Some((_, FleetObject::Done(task))) if self.open.contains(&task.number) => Some(task),
                _ => None,
            });
            let read = open.collect::<Vec<_>>().into_iter().map(|task| {
                let store = &store;
                async move {
                    let read = store.get_up_to(&names::fleet_done(self.batch, task), RANGE_MAX).await;
                    let bytes = match read.map_err(RepositoryError::from) {
                        Ok(bytes) => bytes,
                        // Anybody may create an object with this name.
                        Err(error) if error.is_of_object() || error.is_damage() => {
                            return Ok::<_, RepositoryError>((task.number, Err(error.to_string())));
                        }
                        Err(error) => return Err(error),
                    };
                    let result = CheckResult::decode(repository.keys(), self.batch, task, &bytes);
                    Ok((task.number, result.map_err(|error| error.to_string())))
                }
            });
            let read: BTreeMap<_, _> = futures::stream::iter(read).buffered(AT_ONCE).try_collect().await?;
            Ok::<_, RepositoryError>(read)
        })
    }

    /// Adds this look to a report.
    fn count(&self, report: &mut SharedCheckReport) {
        report.ranges += self.ranges.len() as u64;
        report.worker_was_wrong |= !self.trusts;
        for range in &self.ranges {
            if let Some(reader) = range.reader {
                report.ranges_of_others += 1;
                report.containers_of_others += range.containers.len() as u64;
                report.readers.insert(reader);
            }
        }
    }
}

//! One process's part in a batch.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use larder_format::fleet::{FLEET_RULES, FleetPlan, SharedWork, Stage, TaskId};
use larder_format::ids::{AttemptId, JobId};
use larder_index::IndexSnapshot;
use larder_job::JobContext;
use larder_store::repository::random;
use larder_store::{RepositoryError, StoreErrorKind};

use super::WorkOptions;
use crate::batch::sharable;
use crate::begin::hosts_at_once;
use crate::board;
use crate::error::FleetError;
use crate::member::{Member, Step};
use crate::queue::{BEATS, HostsOf, Nats, NatsQueue, SharedQueue, StoreQueue};
use crate::report::{FleetImage, FleetOptions, OpenedImage, Sources};
use crate::session::ImageState;
use crate::shared::{Batch, KnownIndex};
use crate::situation::{Known, Registers, Situation};
use crate::supervise;

/// See the module header.
pub(super) struct Part<'a> {
    context: &'a JobContext,
    id: JobId,
    pub(super) plan: FleetPlan,
    poll: Duration,
    claim_after: Duration,
    task_after: Duration,
    /// The number of each image of the plan in the inventory of this process.
    numbers: Vec<Option<usize>>,
    /// Hosts whose images this process reads.
    reads: HashSet<u32>,
    options: FleetOptions,
    host: String,
    nats: Option<Arc<Nats>>,
    /// Whether it offers what is due to the others.
    offers: bool,
}

/// The number of each image of a plan in an inventory.
pub(super) fn numbers(plan: &FleetPlan, images: &[FleetImage]) -> Vec<Option<usize>> {
    let of_plan =
        |name: &str, series: &str| images.iter().position(|image| image.name == name && image.series == series);
    plan.images.iter().map(|image| of_plan(&image.name, &image.series)).collect()
}

/// The hosts of a plan whose images are read where these are in the inventory. `own` is the name of
/// the host there.
pub(super) fn reads(plan: &FleetPlan, numbers: &[Option<usize>], own: &str) -> HashSet<u32> {
    let mut reads = HashSet::new();
    for (number, host) in (0_u32..).zip(&plan.hosts) {
        let of_host = || plan.images.iter().zip(numbers).filter(|(image, _)| image.host == number);
        // Images of any host are left to those who have them.
        let has_all = || of_host().all(|(_, number)| number.is_some());
        let is_ours = if host.is_any == Some(true) { has_all() } else { host.name == own };
        if is_ours {
            reads.insert(number);
        }
    }
    reads
}

/// What a process did.
pub(super) struct Taken {
    pub(super) images: BTreeMap<u32, ImageState>,
    /// The batch was over for all when this process still had work.
    pub(super) is_late: bool,
    pub(super) ended_by: Option<FleetError>,
}

impl<'a> Part<'a> {
    /// `images` are those of this process's own inventory: a plan never names what it reads.
    pub(super) fn new(
        context: &'a JobContext,
        id: JobId,
        plan: FleetPlan,
        images: &[FleetImage],
        options: &WorkOptions,
    ) -> Result<Self, FleetError> {
        let not_for_us = |why: &str| FleetError::NotForUs { batch: id, why: why.to_owned() };
        let shared = plan.shared.as_ref().ok_or_else(|| not_for_us("one process does all of it"))?;
        let SharedWork { rules, claim_seconds, task_seconds, tags, force, verify_every } = shared.clone();
        if rules != FLEET_RULES {
            return Err(not_for_us(&format!(
                "it was planned by {}, whose workers follow other rules; use the same version of larder on all hosts",
                plan.program
            )));
        }
        let numbers = numbers(&plan, images);
        let reads = match images {
            [] => HashSet::new(),
            _ => reads(&plan, &numbers, &options.host),
        };
        let fleet = options.fleet.clone();
        let fleet = FleetOptions { tags, force, verify_every: NonZeroU32::new(verify_every), time_ms: None, ..fleet };
        let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
        let (claim_after, task_after) = (seconds(claim_seconds), seconds(task_seconds));
        let (poll, host, nats) = (options.poll, options.host.clone(), options.nats.clone());
        let options = fleet;
        Ok(Self {
            context,
            id,
            plan,
            poll,
            claim_after,
            task_after,
            numbers,
            reads,
            options,
            host,
            nats,
            offers: false,
        })
    }

    /// The same, and it offers what is due to the others.
    pub(super) fn offering(self) -> Self {
        Self { offers: true, ..self }
    }

    /// How often to look whether other batches wait for this process.
    pub(super) fn looks_every(&self) -> Duration {
        self.claim_after / BEATS
    }

    fn registers(&self) -> Result<Registers, FleetError> {
        let context = self.context;
        let read = match context.executor.block_on(board::unknown(&context.repository, self.id, &Registers::new())) {
            Err(error) if is_gone(&error) => return Err(FleetError::BatchOver { is_closed: true }),
            read => read?,
        };
        Ok(read.into_iter().map(|decided| (decided.task, decided)).collect())
    }

    /// Whether every task is decided.
    pub(super) fn is_over(&self) -> Result<bool, FleetError> {
        let registers = self.registers()?;
        Ok(Known { plan: &self.plan, registers: &registers }.situation() == Situation::Over)
    }

    fn batch(&self, me: AttemptId) -> Result<Batch<'_>, FleetError> {
        let (context, repository) = (self.context, &self.context.repository);
        let newest = sharable(context.executor.block_on(repository.newest_of_every_series())?);
        let index = KnownIndex::new(context.executor.block_on(IndexSnapshot::newest(repository))?.snapshot);
        let reads = self.reads.iter().filter_map(|host| self.plan.hosts.get(*host as usize));
        let hosts_here = hosts_at_once(reads);
        Batch::new(context, &self.options, self.id, self.plan.clone(), index, newest, Some(me), hosts_here)
    }

    /// Takes part until every task is decided. An error of this process is in what it did; its
    /// images then leave the batch.
    pub(super) fn until_over(&self, sources: &mut dyn Sources) -> Result<(Taken, Registers), FleetError> {
        let me = AttemptId(random(self.context.repository.entropy())?);
        let batch = self.batch(me)?;
        let mut reads: Vec<u32> = self.reads.iter().copied().collect();
        reads.sort_unstable();
        let store = StoreQueue::join(self.context, self.id, me, self.claim_after, reads)?;
        let mut queue: Box<dyn SharedQueue> = match &self.nats {
            None => Box::new(store),
            Some(nats) => {
                let hosts = HostsOf { plan: &self.plan, own: &self.host };
                Box::new(NatsQueue::join(nats.clone(), store, self.context, self.id, hosts, self.offers, self.poll))
            }
        };
        let mut sources = Ours { sources, part: self };
        let mut member = Member::new(&batch, &mut sources);
        member.reads = Some(self.reads.clone());
        let ended_by = self.take_part(&batch, &mut member, &mut *queue).err();
        let (is_late, ended_by) = match ended_by {
            Some(FleetError::BatchOver { is_closed: true }) => (true, None),
            Some(error @ FleetError::BatchOver { .. }) => (true, Some(error)),
            other => (false, other),
        };
        match &ended_by {
            _ if is_late => {}
            Some(error) => self.leave(&batch, &mut member, error),
            None => queue.end(),
        }
        queue.tell();
        let registers = std::mem::take(&mut member.registers);
        let ended = member.end(ended_by.is_none() && !is_late);
        let images = ended.into_iter().flat_map(|ended| ended.images).collect();
        Ok((Taken { images, is_late, ended_by }, registers))
    }

    fn take_part(
        &self,
        batch: &Batch<'_>,
        member: &mut Member<'_>,
        queue: &mut dyn SharedQueue,
    ) -> Result<(), FleetError> {
        // Short stages follow one another quickly; long ones are not asked about all the time.
        let first = self.poll / 32;
        let mut next = first;
        loop {
            let context = self.context;
            let unknown = board::unknown(&context.repository, self.id, &member.registers);
            let unknown = match context.executor.block_on(unknown) {
                // It was listed, and is removed.
                Err(error) if is_gone(&error) => {
                    supervise::expect_open(batch)?;
                    continue;
                }
                unknown => unknown?,
            };
            if !unknown.is_empty() {
                next = first;
            }
            unknown.into_iter().for_each(|decided| member.note(decided));
            member.end_sessions_of_others();
            if let Situation::Due(due) = member.known().situation() {
                queue.look(&member.registers, &due);
            }
            match member.step(queue)? {
                Step::Done => {
                    queue.tell();
                    next = first;
                    continue;
                }
                Step::Over => return Ok(()),
                Step::Idle => {}
            }
            let ended = match queue.supervises() {
                true => supervise::supervise(batch, member.known(), queue.store(), self.task_after)?,
                false => Vec::new(),
            };
            if ended.is_empty() {
                queue.wait(next)?;
                next = (next * 2).min(self.poll);
            } else {
                queue.tell();
            }
            ended.into_iter().for_each(|decided| member.note(decided));
        }
    }

    /// This process leaves the batch: nobody shall wait for it.
    fn leave(&self, batch: &Batch<'_>, member: &mut Member<'_>, error: &FleetError) {
        let known = member.known();
        if known.situation() == Situation::Over {
            return;
        }
        let mut left = Vec::new();
        for host in member.sessions.keys() {
            left.extend(known.left_by(*host, batch.worker));
        }
        // Another process of this host would have no more room. Shared images are left to others.
        if error.full_scratch().is_some() {
            let is_named = |host: &&u32| self.plan.hosts.get(**host as usize).is_some_and(|of| of.is_any != Some(true));
            let sends = self.reads.iter().filter(is_named);
            let sends = sends.map(|host| TaskId { stage: Stage::Send, round: 0, number: *host });
            left.extend(sends.filter(|send| !known.registers.contains_key(send)));
        }
        for task in left {
            let why = format!("the worker left the batch: {error}");
            match supervise::end(batch, task, why) {
                Ok(decided) => decided.into_iter().for_each(|decided| member.note(decided)),
                Err(error) => {
                    tracing::warn!(%task, %error, "a task that is left cannot be ended; others do it");
                    return;
                }
            }
        }
    }

    /// Ends every task that is not decided, stage by stage.
    pub(super) fn abort(&self, why: &str) -> Result<u64, FleetError> {
        let me = AttemptId(random(self.context.repository.entropy())?);
        let (batch, mut registers, mut count) = (self.batch(me)?, self.registers()?, 0);
        loop {
            let known = Known { plan: &self.plan, registers: &registers };
            if known.situation() == Situation::Over {
                return Ok(count);
            }
            let ended = supervise::abort(&batch, known, why)?;
            count += ended.len() as u64;
            // Workers may have been faster.
            registers = self.registers()?;
        }
    }
}

fn is_gone(error: &RepositoryError) -> bool {
    matches!(error, RepositoryError::Store(error) if error.kind == StoreErrorKind::NotFound)
}

/// The images of this process, by the numbers of the plan.
struct Ours<'s, 'p> {
    sources: &'s mut dyn Sources,
    part: &'p Part<'p>,
}

impl Sources for Ours<'_, '_> {
    fn open(&mut self, number: usize, job: JobId) -> Result<OpenedImage, String> {
        match self.part.numbers.get(number).copied().flatten() {
            Some(number) => self.sources.open(number, job),
            None => {
                let image = &self.part.plan.images[number];
                let (name, series) = (&image.name, &image.series);
                Err(format!("the inventory of this host's worker has no image {name} of series {series}; add it there"))
            }
        }
    }

    fn remark(&mut self, number: usize, remark: &str) {
        if let Some(number) = self.part.numbers.get(number).copied().flatten() {
            self.sources.remark(number, remark);
        }
    }
}

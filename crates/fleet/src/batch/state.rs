//! A batch at work: its images, the jobs that store, and the tasks that are decided.

use std::collections::{BTreeMap, HashSet};

use larder_format::fleet::{Requests, Stage, TaskId, TaskRecord};
use larder_format::manifest::Summary;
use larder_index::Sorter;
use larder_lnode::{BackupError, MapReport};
use larder_source::image::Ending;

use crate::error::FleetError;
use crate::exchange::Decided;
use crate::queue::{MemoryQueue, Queue};
use crate::report::{BatchReport, FleetImage, ImageFailure, ImageReport, OpenedImage, Sources};
use crate::shared::Batch;
use crate::tasks::{self, HeldByHosts, LastRound, Scanned, SharedImage, StoreJob, Stored, Unregistered};

/// An image at work.
#[derive(Default)]
struct ImageState {
    failure: Option<ImageFailure>,
    image: Option<SharedImage>,
    ending: Option<Box<dyn Ending>>,
    shown: Vec<u8>,
    no_map: Option<&'static str>,
    scanned: Option<Scanned>,
    stored: Option<Stored>,
    map: Option<MapReport>,
    reread_bytes: u64,
    summary: Option<Summary>,
}

/// See the module header.
pub(super) struct State<'b> {
    batch: &'b Batch<'b>,
    sources: &'b mut dyn Sources,
    queue: MemoryQueue,
    images: Vec<ImageState>,
    /// Questions, and from the stage `store` on places, by host.
    sorters: BTreeMap<u32, Sorter>,
    stores: BTreeMap<u32, StoreJob>,
    decided: BTreeMap<TaskId, Decided>,
    /// Tasks whose chunks the store has not acknowledged yet.
    unregistered: Vec<(u32, Unregistered<'b>)>,
    by_hosts: HeldByHosts,
    stored_bytes: u64,
    /// Bytes of new chunks, before compression.
    added_bytes: u64,
}

impl<'b> State<'b> {
    pub(super) fn new(batch: &'b Batch<'b>, sources: &'b mut dyn Sources) -> Self {
        let images = batch.plan.images.iter().map(|_| ImageState::default()).collect();
        Self {
            batch,
            sources,
            queue: MemoryQueue::default(),
            images,
            sorters: BTreeMap::new(),
            stores: BTreeMap::new(),
            decided: BTreeMap::new(),
            unregistered: Vec::new(),
            by_hosts: HeldByHosts::new(),
            stored_bytes: 0,
            added_bytes: 0,
        }
    }

    /// All stages in order. An error is one of the whole batch.
    pub(super) fn run(&mut self) -> Result<(), FleetError> {
        let result = self.stages();
        let is_over = result.is_ok();
        for number in 0..self.images.len() {
            if let Some(stored) = self.images[number].stored.take() {
                stored.abandon();
            }
            self.release(number);
        }
        for (_, store) in std::mem::take(&mut self.stores) {
            if is_over { store.close() } else { store.abandon() }
        }
        result
    }

    fn stages(&mut self) -> Result<(), FleetError> {
        self.stage(Stage::Scan, 0, self.live())?;
        self.batch.context.progress.expectation_is_complete();
        let hosts = self.hosts();
        self.stage(Stage::Send, 0, hosts.clone())?;
        // Passes go on meanwhile, so the index is looked up when it is asked.
        self.batch.look_up_index()?;
        let partitions: Vec<u32> = (0..self.batch.plan.partitions).collect();
        self.stage(Stage::Join, 0, partitions.clone())?;
        for host in &hosts {
            self.stores.insert(*host, StoreJob::open(self.batch, *host)?);
        }
        self.stage(Stage::Store, 0, self.live())?;
        self.acknowledge()?;
        for round in [0, 1] {
            if self.waiting().is_empty() {
                break;
            }
            self.stage(Stage::Place, round, hosts.clone())?;
            self.stage(Stage::Resolve, round, partitions.clone())?;
            self.stage(Stage::Store, round + 1, self.waiting())?;
            self.acknowledge()?;
        }
        self.stage(Stage::Finish, 0, self.live())
    }

    /// Images that are still in the batch.
    fn live(&self) -> Vec<u32> {
        let live = self.images.iter().enumerate().filter(|(_, image)| image.failure.is_none());
        live.map(|(number, _)| number as u32).collect()
    }

    fn gone(&self) -> HashSet<u32> {
        let gone = self.images.iter().enumerate().filter(|(_, image)| image.failure.is_some());
        gone.map(|(number, _)| number as u32).collect()
    }

    /// Images that wait for chunks of others.
    fn waiting(&self) -> Vec<u32> {
        let waits = |number: &u32| self.images[*number as usize].stored.as_ref().is_some_and(|stored| stored.waits);
        self.live().into_iter().filter(waits).collect()
    }

    /// Hosts with images that are still in the batch.
    fn hosts(&self) -> Vec<u32> {
        let mut hosts: Vec<u32> = self.live().iter().map(|number| self.batch.image(*number).host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// Does the tasks of a stage.
    fn stage(&mut self, stage: Stage, round: u8, numbers: Vec<u32>) -> Result<(), FleetError> {
        numbers.into_iter().for_each(|number| self.queue.offer(TaskId { stage, round, number }));
        while let Some(delivery) = self.queue.take() {
            if self.batch.context.cancel.is_cancelled() {
                return Err(BackupError::Interrupted.into());
            }
            match self.task(delivery.task) {
                Ok(()) => self.queue.done(delivery),
                Err(error) => {
                    let task = delivery.task;
                    self.queue.failed(delivery);
                    self.failed(task, error)?;
                }
            }
        }
        Ok(())
    }

    fn task(&mut self, task: TaskId) -> Result<(), FleetError> {
        let TaskId { stage, round, number } = task;
        let decided = match stage {
            Stage::Scan => self.scan(number)?,
            Stage::Send => tasks::send(self.batch, number, self.sorter_of(number)?, &self.gone())?,
            Stage::Join => {
                let senders: Vec<&Decided> = self.of(Stage::Send, 0).collect();
                tasks::join(self.batch, number, &senders)?
            }
            Stage::Store => return self.store(round, number),
            Stage::Place => tasks::place(self.batch, round, number, self.sorter_of(number)?, &self.gone())?,
            Stage::Resolve => {
                let from = if round == 0 { Stage::Join } else { Stage::Resolve };
                let waiting = TaskId { stage: from, round: round.saturating_sub(1), number };
                let waiting = self.decided.get(&waiting).ok_or(FleetError::NoPlace)?;
                let placed: Vec<&Decided> = self.of(Stage::Place, round).collect();
                let last = if round == 0 { LastRound::No } else { LastRound::Yes };
                tasks::resolve(self.batch, round, number, waiting, &placed, &self.gone(), last)?
            }
            Stage::Finish => match self.finish(number)? {
                Some(decided) => decided,
                None => return Ok(()),
            },
        };
        self.decided.insert(task, decided);
        Ok(())
    }

    /// The decided tasks of a stage.
    fn of(&self, stage: Stage, round: u8) -> impl Iterator<Item = &Decided> {
        let range = TaskId { stage, round, number: 0 }..=TaskId { stage, round, number: u32::MAX };
        self.decided.range(range).map(|(_, decided)| decided)
    }

    /// What a host has collected. A host of which nothing is left has nothing.
    fn sorter_of(&mut self, host: u32) -> Result<Sorter, FleetError> {
        match self.sorters.remove(&host) {
            Some(sorter) => Ok(sorter),
            None => self.batch.sorter::<Requests>(self.batch.budget().requests),
        }
    }

    fn scan(&mut self, number: u32) -> Result<Decided, FleetError> {
        let planned = self.batch.image(number);
        self.batch.context.progress.current(planned.name.as_bytes());
        let opened = self.sources.open(number as usize, planned.job);
        let opened = opened.map_err(|message| FleetError::Source { message })?;
        let OpenedImage { image, path, shown, extents, changes, no_map, ending } = opened;
        self.batch.context.progress.expect(0, image.size());
        let image = SharedImage::new(image);
        let state = &mut self.images[number as usize];
        (state.ending, state.shown, state.no_map) = (ending, shown, no_map);
        if !self.sorters.contains_key(&planned.host) {
            let sorter = self.batch.sorter::<Requests>(self.batch.budget().requests)?;
            self.sorters.insert(planned.host, sorter);
        }
        let requests = self.sorters.get_mut(&planned.host).ok_or(FleetError::NoPlace)?;
        let scanned = tasks::scan(self.batch, number, &image, path, extents, changes, requests)?;
        let decided = scanned.task.clone();
        state.map = scanned.scan.map.clone();
        (state.image, state.scanned) = (Some(image), Some(scanned));
        Ok(decided)
    }

    fn store(&mut self, round: u8, number: u32) -> Result<(), FleetError> {
        let planned = self.batch.image(number);
        self.batch.context.progress.current(planned.name.as_bytes());
        let state = &mut self.images[number as usize];
        let job = self.stores.get_mut(&planned.host).ok_or(FleetError::NoPlace)?;
        let (Some(image), Some(scanned)) = (&state.image, &state.scanned) else { return Err(FleetError::NoPlace) };
        let unregistered = if round == 0 {
            let range = TaskId { stage: Stage::Join, round: 0, number: 0 }..=TaskId {
                stage: Stage::Join,
                round: 0,
                number: u32::MAX,
            };
            let answers: Vec<&Decided> = self.decided.range(range).map(|(_, decided)| decided).collect();
            let (unregistered, stored) = tasks::store(self.batch, number, image, scanned, &answers, job)?;
            state.stored = Some(stored);
            unregistered
        } else {
            let range = TaskId { stage: Stage::Resolve, round: round - 1, number: 0 }..=TaskId {
                stage: Stage::Resolve,
                round: round - 1,
                number: u32::MAX,
            };
            let resolutions: Vec<&Decided> = self.decided.range(range).map(|(_, decided)| decided).collect();
            let stored = state.stored.as_mut().ok_or(FleetError::NoPlace)?;
            tasks::settle(self.batch, round, number, image, scanned, stored, &resolutions, job)?
        };
        self.unregistered.push((number, unregistered));
        Ok(())
    }

    /// Waits until the store has acknowledged all new chunks. Then the tasks that stored them are
    /// done, places may be told, and images that are not needed any more are released.
    fn acknowledge(&mut self) -> Result<(), FleetError> {
        for (host, store) in &mut self.stores {
            self.sorters.insert(*host, store.flush(self.batch)?);
        }
        for (number, (outputs, facts)) in std::mem::take(&mut self.unregistered) {
            match outputs.done(facts) {
                Ok(decided) => drop(self.decided.insert(decided.task, decided)),
                Err(error) => self.failed(TaskId { stage: Stage::Store, round: 0, number }, error)?,
            }
        }
        for state in &mut self.images {
            if state.stored.as_ref().is_none_or(|stored| !stored.waits) {
                state.image = None;
            }
        }
        self.by_hosts = self.stores.values().flat_map(StoreJob::stored).collect();
        self.stored_bytes = self.stores.values().map(StoreJob::stored_bytes).sum();
        let stored = self.images.iter().filter_map(|image| image.stored.as_ref());
        self.added_bytes = stored.map(|stored| stored.added_bytes).sum();
        Ok(())
    }

    fn finish(&mut self, number: u32) -> Result<Option<Decided>, FleetError> {
        self.batch.context.progress.current(self.batch.image(number).name.as_bytes());
        let state = &mut self.images[number as usize];
        let stored = state.stored.take().ok_or(FleetError::NoPlace)?;
        let scanned = state.scanned.as_ref().ok_or(FleetError::NoPlace)?;
        state.reread_bytes = stored.reread_bytes;
        // Containers hold chunks of several images, so its share of them is an estimate.
        let share =
            u128::from(self.stored_bytes) * u128::from(stored.added_bytes) / u128::from(self.added_bytes.max(1));
        let shown = std::mem::take(&mut state.shown);
        let host = self.batch.image(number).host;
        let job = self.stores.get_mut(&host).ok_or(FleetError::NoPlace)?;
        let (decided, summary) =
            tasks::finish(self.batch, number, scanned, stored, job, &self.by_hosts, share as u64, shown)?;
        state.summary = Some(summary);
        self.batch.context.progress.done(1, 0);
        self.release(number as usize);
        Ok(decided)
    }

    /// An image is over: its source learns whether there is a version.
    fn release(&mut self, number: usize) {
        let state = &mut self.images[number];
        state.image = None;
        if let Some(ending) = state.ending.take() {
            let remarks = if state.summary.is_some() { ending.committed() } else { ending.failed() };
            remarks.iter().for_each(|remark| self.sources.remark(number, remark));
        }
    }

    /// A task failed. That of an image takes the image out of the batch.
    fn failed(&mut self, task: TaskId, error: FleetError) -> Result<(), FleetError> {
        let is_of_image = matches!(task.stage, Stage::Scan | Stage::Store | Stage::Finish);
        if !is_of_image || error.is_of_batch() {
            return Err(error);
        }
        let number = task.number as usize;
        let record = TaskRecord { why: Some(error.to_string()), ..self.aborted() };
        if let Err(error) = self.batch.register(task, &record) {
            tracing::warn!(%task, %error, "the register of a failed task cannot be created");
        }
        let state = &mut self.images[number];
        state.failure = Some(ImageFailure { stage: task.stage, error: Some(error) });
        if let Some(stored) = state.stored.take() {
            stored.abandon();
        }
        self.release(number);
        Ok(())
    }

    /// The register of a task that was aborted.
    fn aborted(&self) -> TaskRecord {
        let context = self.batch.context;
        TaskRecord {
            attempt: None,
            outputs: Vec::new(),
            host: context.identity.host.clone(),
            time_ms: context.clock.now_ms(),
            took_ms: 0,
            memory: BatchReport::memory_now(),
            why: None,
            read_bytes: 0,
            stored_bytes: 0,
            domain: context.repository.keys().domain(),
        }
    }

    pub(super) fn report(self, images: &[FleetImage], ended_by: Option<FleetError>) -> BatchReport {
        let (stored_bytes, batch) = (self.stored_bytes, self.batch);
        let reports = self.images.into_iter().zip(images).map(|(state, image)| ImageReport {
            image: image.clone(),
            result: match (state.summary, state.failure) {
                (Some(summary), _) => Ok(summary),
                (None, Some(failure)) => Err(failure),
                (None, None) => Err(ImageFailure { stage: Stage::Finish, error: None }),
            },
            map: state.map,
            no_map: state.no_map,
            reread_bytes: state.reread_bytes,
        });
        BatchReport {
            batch: batch.id,
            images: reports.collect(),
            ended_by,
            stored_bytes,
            asked_index: batch.context.repository.keys().secrets().index.is_some(),
            memory: BatchReport::memory_now(),
        }
    }
}

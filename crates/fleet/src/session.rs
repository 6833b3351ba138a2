//! A host at work: its images, the job that stores for them, and the tasks that only the process
//! that opened the images can do.
//!
//! A session is one attempt at a host, with an epoch. It scans the images and sends their
//! questions. The register of the questions decides which attempt counts; only that one goes on.
//! So a process takes scans only from itself, and exactly one stores and commits for a host. If it
//! dies afterwards, its images leave the batch.

mod image;

use std::collections::BTreeMap;

use larder_format::fleet::{Placements, Requests, Stage, TaskId, TaskRecord};
use larder_format::ids::AttemptId;
use larder_index::Sorter;

use crate::error::FleetError;
use crate::exchange::Decided;
use crate::report::{ImageFailure, OpenedImage, Sources};
use crate::shared::Batch;
use crate::situation::Known;
use crate::tasks::{self, RestingJob, SharedImage, StoreJob, Unregistered};
pub(crate) use image::ImageState;

/// See the module header.
pub(crate) struct Session<'b> {
    batch: &'b Batch<'b>,
    host: u32,
    epoch: u8,
    images: BTreeMap<u32, ImageState>,
    store: Option<StoreJob>,
    /// The job that stored for them, when the round is over. Images of later rounds may adopt it.
    resting: Option<RestingJob>,
    /// Whether images that were not saved may be tried again with what was stored of them.
    ends_early: bool,
    /// Places that were not told yet.
    placements: Option<Sorter>,
    /// Stored images whose chunks the store has not acknowledged yet.
    unregistered: Vec<(u32, Unregistered<'b>)>,
}

impl<'b> Session<'b> {
    pub(crate) fn new(batch: &'b Batch<'b>, host: u32, epoch: u8) -> Self {
        let images = batch.plan.images.iter().enumerate().filter(|(_, image)| image.host == host);
        let images = images.map(|(number, _)| (number as u32, ImageState::default())).collect();
        Self {
            batch,
            host,
            epoch,
            images,
            store: None,
            resting: None,
            ends_early: false,
            placements: None,
            unregistered: Vec::new(),
        }
    }

    fn state(&mut self, number: u32) -> Result<&mut ImageState, FleetError> {
        self.images.get_mut(&number).ok_or(FleetError::NoPlace)
    }

    /// The round of the plan in which its images are read.
    pub(crate) fn of_round(&self) -> u32 {
        self.batch.plan.round_of(self.host)
    }

    /// Scans the images, and sends their questions.
    pub(crate) fn begin(&mut self, sources: &mut dyn Sources) -> Result<Decided, FleetError> {
        let mut requests = self.batch.sorter::<Requests>(self.batch.budget().requests)?;
        let mut live = Vec::new();
        for number in self.images.keys().copied().collect::<Vec<_>>() {
            self.batch.expect_not_cancelled()?;
            let task = TaskId { stage: Stage::Scan, round: self.epoch, number };
            match self.scan(number, sources, &mut requests) {
                Ok(()) => live.push(number),
                Err(error) => {
                    let error = self.batch.located(error, task, self.chunks());
                    self.failed(task, error, sources)?;
                }
            }
        }
        let store = self.store.insert(StoreJob::open(self.batch, self.host)?).job();
        let task = TaskId { stage: Stage::Send, round: 0, number: self.host };
        let sent = tasks::send(self.batch, self.host, store, requests, live);
        sent.map_err(|error| self.batch.located(error, task, self.chunks()))
    }

    /// Chunks that its images ask for, as far as they are open.
    fn chunks(&self) -> u64 {
        self.images.values().map(|image| image.chunks).sum()
    }

    fn scan(&mut self, number: u32, sources: &mut dyn Sources, requests: &mut Sorter) -> Result<(), FleetError> {
        let (batch, epoch) = (self.batch, self.epoch);
        let planned = batch.image(number);
        batch.context.progress.current(planned.name.as_bytes());
        let opened = sources.open(number as usize, planned.job).map_err(|message| FleetError::Source { message })?;
        let OpenedImage { image, path, shown, extents, changes, no_map, ending } = opened;
        batch.context.progress.expect(0, image.size());
        let chunks = image.size() / u64::from(batch.context.repository.config().chunker.average).max(1);
        let image = SharedImage::new(image);
        let state = self.state(number)?;
        state.chunks = chunks;
        (state.ending, state.shown, state.no_map) = (ending, shown, no_map);
        let scanned = tasks::scan(batch, epoch, number, &image, path, extents, changes, requests)?;
        state.map = scanned.scan.map.clone();
        state.chunks = u64::from(scanned.asked);
        (state.image, state.scanned) = (Some(image), Some(scanned));
        Ok(())
    }

    /// Stores what is new of these images, as far as they are of this host. Returns the registers.
    pub(crate) fn store(
        &mut self,
        due: &[TaskId],
        known: Known<'_>,
        sources: &mut dyn Sources,
    ) -> Result<Vec<Decided>, FleetError> {
        let mut decided = Vec::new();
        let due: Vec<TaskId> = due.iter().copied().filter(|task| self.images.contains_key(&task.number)).collect();
        for task in due {
            self.batch.expect_not_cancelled()?;
            match self.store_image(task, known) {
                Ok(unregistered) => self.unregistered.push((task.number, unregistered)),
                Err(error) => {
                    let error = self.batch.located(error, task, self.chunks());
                    decided.extend(self.failed(task, error, sources)?);
                }
            }
            self.acknowledged(&mut decided, sources)?;
        }
        if self.unregistered.is_empty() && decided.is_empty() {
            return Ok(decided);
        }
        let store = self.store.as_mut().ok_or(FleetError::NoPlace)?;
        self.placements = Some(store.flush(self.batch)?);
        self.acknowledged(&mut decided, sources)?;
        Ok(decided)
    }

    fn store_image(&mut self, task: TaskId, known: Known<'_>) -> Result<Unregistered<'b>, FleetError> {
        let TaskId { round, number, .. } = task;
        self.batch.context.progress.current(self.batch.image(number).name.as_bytes());
        let of_round = self.of_round();
        let state = self.images.get_mut(&number).ok_or(FleetError::NoPlace)?;
        let job = self.store.as_mut().ok_or(FleetError::NoPlace)?;
        let (Some(image), Some(scanned)) = (&state.image, &state.scanned) else { return Err(FleetError::NoPlace) };
        if round == 0 {
            let answers: Vec<&Decided> = known.answered_in(of_round, Stage::Join, 0).collect();
            let (unregistered, stored) = tasks::store(self.batch, number, image, scanned, &answers, job)?;
            state.stored = Some(stored);
            return Ok(unregistered);
        }
        let resolutions: Vec<&Decided> = known.answered_in(of_round, Stage::Resolve, round - 1).collect();
        let stored = state.stored.as_mut().ok_or(FleetError::NoPlace)?;
        tasks::settle(self.batch, round, number, image, scanned, stored, &resolutions, job)
    }

    /// Images whose new chunks the store has acknowledged: their tasks are done, and those that do
    /// not wait for others are released (`ReleasedWhenDurable`).
    fn acknowledged(&mut self, decided: &mut Vec<Decided>, sources: &mut dyn Sources) -> Result<(), FleetError> {
        for (number, unregistered) in std::mem::take(&mut self.unregistered) {
            let state = self.images.get_mut(&number).ok_or(FleetError::NoPlace)?;
            let (store, stored) = (self.store.as_ref(), state.stored.as_ref());
            let (Some(store), Some(stored)) = (store, stored) else { return Err(FleetError::NoPlace) };
            if !store.has_acknowledged(self.batch, stored) {
                self.unregistered.push((number, unregistered));
                continue;
            }
            if !stored.waits {
                state.image = None;
            }
            let (outputs, facts) = unregistered;
            let task = outputs.task();
            match outputs.done(facts) {
                Ok(done) => decided.push(done),
                Err(error) => decided.extend(self.failed(task, error, sources)?),
            }
        }
        Ok(())
    }

    /// Tells the places of stored chunks.
    pub(crate) fn place(&mut self, round: u8, known: Known<'_>) -> Result<Decided, FleetError> {
        let placements = match self.placements.take() {
            Some(placements) => placements,
            None => self.batch.sorter::<Placements>(self.batch.budget().placements)?,
        };
        let placed = tasks::place(self.batch, round, self.host, placements, &known.gone(round));
        let task = TaskId { stage: Stage::Place, round, number: self.host };
        placed.map_err(|error| self.batch.located(error, task, self.chunks()))
    }

    /// Writes and commits the versions of these images, as far as they are of this host.
    pub(crate) fn finish(&mut self, due: &[TaskId], sources: &mut dyn Sources) -> Result<Vec<Decided>, FleetError> {
        let mut decided = Vec::new();
        let store = self.store.as_ref().ok_or(FleetError::NoPlace)?;
        let (by_host, of_host) = (store.stored(), store.stored_bytes());
        let chunks = self.chunks();
        let added: u64 = self.images.values().filter_map(|image| image.stored.as_ref()).map(|of| of.added_bytes).sum();
        for task in due {
            let Some(state) = self.images.get_mut(&task.number) else { continue };
            if state.summary.is_some() {
                // Its version exists, and only the register is missing.
                decided.extend(self.batch.done(*task)?);
                continue;
            }
            self.batch.expect_not_cancelled()?;
            self.batch.context.progress.current(self.batch.image(task.number).name.as_bytes());
            let finished = (|| {
                let stored = state.stored.take().ok_or(FleetError::NoPlace)?;
                let scanned = state.scanned.as_ref().ok_or(FleetError::NoPlace)?;
                let store = self.store.as_mut().ok_or(FleetError::NoPlace)?;
                state.reread_bytes = stored.reread_bytes;
                // Containers hold chunks of several images, so its share of them is an estimate.
                let share = u128::from(of_host) * u128::from(stored.added_bytes) / u128::from(added.max(1));
                let (shown, remark) = (std::mem::take(&mut state.shown), state.remark());
                tasks::finish(self.batch, task.number, scanned, stored, store, &by_host, share as u64, shown, remark)
            })();
            match finished {
                Ok((done, summary)) => {
                    state.summary = Some(summary);
                    self.batch.context.progress.done(1, 0);
                    let name = task.number as usize;
                    state.release(|remark| sources.remark(name, remark));
                    decided.extend(done.or_else(|| self.alone(*task, Some(AttemptId([0; 8])), String::new())));
                }
                Err(error) => {
                    let error = self.batch.located(error, *task, chunks);
                    decided.extend(self.failed(*task, error, sources)?);
                }
            }
        }
        Ok(decided)
    }

    /// The round ends here: images without a version stay without one, for this reason.
    pub(crate) fn end_early(&mut self, stage: Stage, error: &FleetError) {
        self.ends_early = true;
        for state in self.images.values_mut().filter(|state| state.summary.is_none() && state.failure.is_none()) {
            state.failure = Some(ImageFailure { stage, error: error.full_scratch() });
        }
    }

    /// Whether an image has a version.
    pub(crate) fn has_saved(&self, image: u32) -> bool {
        self.images.get(&image).is_some_and(|state| state.summary.is_some())
    }

    /// A process that does everything needs no register to know what it did.
    fn alone(&self, task: TaskId, attempt: Option<AttemptId>, why: String) -> Option<Decided> {
        let record = TaskRecord { attempt, ..self.batch.aborted(why) };
        self.batch.worker.is_none().then(|| Decided::by_others(task, record))
    }

    /// The task of an image failed: the image leaves the batch. An error of the whole batch is
    /// returned.
    fn failed(
        &mut self,
        task: TaskId,
        error: FleetError,
        sources: &mut dyn Sources,
    ) -> Result<Option<Decided>, FleetError> {
        if error.is_of_batch() {
            return Err(error);
        }
        let decided = self.batch.abort(task, error.to_string()).unwrap_or_else(|error| {
            tracing::warn!(%task, %error, "the register of a failed task cannot be created");
            None
        });
        let decided = decided.or_else(|| self.alone(task, None, error.to_string()));
        let state = self.state(task.number)?;
        state.failure = Some(ImageFailure { stage: task.stage, error: Some(error) });
        state.abandon();
        state.release(|remark| sources.remark(task.number as usize, remark));
        Ok(decided)
    }

    /// Images that left the batch by what others decided end here.
    pub(crate) fn leave_those_gone(&mut self, known: Known<'_>, round: u8, sources: &mut dyn Sources) {
        let gone = known.gone(round);
        for (number, state) in self.images.iter_mut().filter(|(number, _)| gone.contains(number)) {
            state.abandon();
            state.release(|remark| sources.remark(*number as usize, remark));
        }
    }

    /// The round is over: what is only needed for its images goes. The lease of the job that stored
    /// for them stays, so that images of later rounds may use its containers.
    pub(crate) fn rest(&mut self, sources: &mut dyn Sources) {
        let Some(store) = self.store.take() else { return };
        self.let_go(sources);
        (self.placements, self.unregistered) = (None, Vec::new());
        self.resting = Some(store.rest());
    }

    /// Ends what the images have open.
    fn let_go(&mut self, sources: &mut dyn Sources) {
        for (number, state) in &mut self.images {
            state.abandon();
            state.scanned = None;
            state.release(|remark| sources.remark(*number as usize, remark));
        }
    }

    /// The session is over. `is_over`: every task of the batch is decided.
    pub(crate) fn end(mut self, is_over: bool, sources: &mut dyn Sources) -> Ended {
        self.let_go(sources);
        self.rest(sources);
        let stored_bytes = match self.resting.take() {
            Some(job) => job.end(is_over && !self.ends_early),
            None => 0,
        };
        Ended { images: self.images, stored_bytes }
    }
}

/// What became of a session.
pub(crate) struct Ended {
    pub(crate) images: BTreeMap<u32, ImageState>,
    /// Bytes of the containers of new chunks.
    pub(crate) stored_bytes: u64,
}

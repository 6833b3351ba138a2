//! Carries out the schedule: asks the store, keeps containers in memory and on disk, opens their frames, counts.
//!
//! Called by `data_reader` for every chunk, in stream order. Requests run on the job's runtime, so many at once as the options
//! say, in the order in which they are needed; beside them the one for what the reader waits for and nobody had looked ahead to.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use larder_format::container::{CONTAINER_TARGET, open_frame};
use larder_format::ids::ContainerId;
use larder_format::manifest::{ContainerUsage, Manifest};
use larder_format::segment::ChunkRecord;
use larder_store::container_reader::OpenContainer;
use larder_store::{Repository, RepositoryError};
use lru::LruCache;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::disk::{DiskTier, Spilled};
use super::opened::{Opened, OpenedFrames};
use super::parts::{self, Part};
use super::schedule::{Action, Limits, Schedule};
use super::uses::{NEVER, Number, Numbers, TouchNumber, Uses};
use super::{FetchCounters, FetchOptions};
use crate::context::Context;
use crate::version::recipe_reader::{RecipeReader, SegmentNumber};

/// Of a job's memory, one part in so many for touches; 16 bytes each.
const TOUCHES_ONE_IN: usize = 32 * 16;
/// Of a job's memory, one part in so many for opened frames.
const FRAMES_ONE_IN: usize = 8;
/// A container that is used by more segments than this is read whole: finding out its parts would cost more.
const CHAIN_MAX: usize = 64;
/// Segments whose records are kept, for finding out parts.
const SEGMENTS_KEPT: NonZeroUsize = NonZeroUsize::new(32).unwrap();

/// Something on its way; dropped, it is given up.
struct Coming(JoinHandle<Result<OpenContainer, RepositoryError>>);

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// See the module header.
pub(crate) struct Containers {
    repository: Repository,
    runtime: Handle,
    recipe: RecipeReader,
    usage: HashMap<ContainerId, ContainerUsage>,
    numbers: Numbers,
    schedule: Schedule,
    held: HashMap<Number, OpenContainer>,
    coming: HashMap<Number, Coming>,
    spilled: HashMap<Number, Spilled>,
    disk: Option<DiskTier>,
    opened: OpenedFrames,
    requests: Arc<Semaphore>,
    options: FetchOptions,
    /// Bytes of memory that the job has.
    memory: usize,
    touches_max: usize,
    /// Records of segments that lie ahead.
    segments: LruCache<SegmentNumber, Arc<Vec<ChunkRecord>>>,
    /// How what was last asked about is read.
    planned: Option<(Number, Option<TouchNumber>, Part)>,
    counters: Arc<FetchCounters>,
}

impl Containers {
    pub(crate) fn new(
        context: &Context,
        manifest: &Manifest,
        recipe: RecipeReader,
        options: &FetchOptions,
        counters: &Arc<FetchCounters>,
    ) -> Self {
        let limits = Limits { memory: options.memory(context.memory) as u64, disk: options.cache_disk };
        Self {
            repository: context.repository.clone(),
            runtime: context.runtime.clone(),
            recipe,
            usage: manifest.containers.iter().map(|usage| (usage.container, *usage)).collect(),
            numbers: Numbers::default(),
            schedule: Schedule::new(Uses::default(), limits),
            held: HashMap::new(),
            coming: HashMap::new(),
            spilled: HashMap::new(),
            disk: None,
            opened: OpenedFrames::new(context.memory / FRAMES_ONE_IN),
            requests: Arc::new(Semaphore::new(options.prefetch.max(1))),
            options: options.clone(),
            memory: context.memory,
            touches_max: context.memory / TOUCHES_ONE_IN,
            segments: LruCache::new(SEGMENTS_KEPT),
            planned: None,
            counters: counters.clone(),
        }
    }

    /// From now on these segments are read, in order; `more_follows`: then others.
    pub(crate) fn plan(&mut self, segments: Range<SegmentNumber>, more_follows: bool) -> Result<(), RepositoryError> {
        let folder = &self.options.scratch;
        let uses = Uses::plan(&mut self.recipe, segments, &mut self.numbers, self.touches_max, folder)?;
        self.schedule.replan(uses, more_follows);
        self.planned = None;
        self.collect();
        Ok(())
    }

    /// The reader comes to record `from` of a segment that was planned, or that was not.
    pub(crate) fn enter(&mut self, segment: SegmentNumber, records: &[ChunkRecord], from: usize, is_planned: bool) {
        let numbers = &mut self.numbers;
        let rest = records.iter().enumerate().skip(from);
        let rest = rest.map(|(place, record)| (place as u32, numbers.of(record.chunk.container)));
        match is_planned {
            true => self.schedule.enter(segment, rest),
            false => self.schedule.detour(rest),
        }
        self.collect();
    }

    /// Asks for what comes next, as far as there is room.
    pub(crate) fn look_ahead(&mut self) {
        if self.options.prefetch == 0 {
            return;
        }
        while let Some(action) = self.decide(|schedule, size| schedule.look(size)) {
            self.carry_out(action);
        }
    }

    /// The frame that holds a byte of the payload of a container that a record of the current segment names; `None`: no frame does.
    pub(crate) fn frame(&mut self, id: ContainerId, offset: u32) -> Result<Option<Opened>, RepositoryError> {
        let number = self.numbers.of(id);
        while let Some(action) = self.decide(|schedule, size| schedule.need(number, size)) {
            match action {
                Action::Wait(coming) => {
                    let landed = self.land(coming);
                    if coming == number {
                        landed?;
                    }
                }
                action => self.carry_out(action),
            }
        }
        self.trim(number);
        if let Some(opened) = self.frame_on_disk(number, offset) {
            return Ok(Some(opened));
        }
        let is_enough =
            |container: &OpenContainer| container.index.frame_at(offset).is_none_or(|frame| container.holds(frame));
        if !self.held.get(&number).is_some_and(is_enough) {
            // Parts were read, and others are needed: the plan was wrong. Or the disk tier has lost it.
            let container = self.count(number, self.runtime.block_on(self.repository.read_container(id)))?;
            self.forget(number);
            self.schedule.landed(number, container.bytes_held());
            self.held.insert(number, container);
            self.trim(number);
        }
        let Self { held, opened, repository, .. } = self;
        let Some(container) = held.get(&number) else { return Ok(None) };
        let Some(frame) = container.index.frame_at(offset) else { return Ok(None) };
        let open = |scratch: &mut _, raw: &mut _, decompressor: &mut _| {
            container.open_frame(repository, frame, scratch, raw, decompressor)
        };
        opened.get(number, frame, open).map(Some)
    }

    /// A frame from the disk tier; `None`: it is not there, or not what it was.
    fn frame_on_disk(&mut self, number: Number, offset: u32) -> Option<Opened> {
        let Self { spilled, disk, opened, numbers, repository, counters, .. } = self;
        let (spilled, disk) = (spilled.get(&number)?, disk.as_ref()?);
        let (frame, place) = spilled.frame_at(offset)?;
        let id = numbers.id(number);
        let opened = opened.get(number, &frame, |sealed, raw, decompressor| {
            disk.read(spilled, &frame, place, sealed)?;
            raw.resize(frame.entry.raw_len as usize, 0);
            open_frame(repository.keys(), id, &frame, sealed, raw, decompressor).map_err(io::Error::other)?;
            counters.disk_hit(u64::from(frame.entry.sealed_len));
            Ok(())
        });
        let opened = opened
            .inspect_err(|error: &io::Error| tracing::warn!(%error, "the disk tier does not give back what it took"));
        opened.ok()
    }

    fn trim(&mut self, needed: Number) {
        while let Some(action) = self.schedule.trim(needed) {
            self.carry_out(action);
        }
    }

    /// A record of the current segment was read.
    pub(crate) fn used(&mut self, id: ContainerId, record: usize, bytes: u64) {
        let number = self.numbers.of(id);
        self.counters.used(bytes);
        self.schedule.used(number, record as u32);
        self.collect();
    }

    fn decide(
        &mut self,
        decide: impl FnOnce(&mut Schedule, &mut super::schedule::Size<'_>) -> Option<Action>,
    ) -> Option<Action> {
        let Self { schedule, recipe, usage, numbers, segments, planned, .. } = self;
        decide(schedule, &mut |uses, number, touch| {
            if let Some((asked, at, part)) = planned
                && (*asked, *at) == (number, touch)
            {
                return part.bytes;
            }
            let part = part_of(uses, recipe, segments, numbers.id(number), usage, number, touch);
            planned.insert((number, touch, part)).2.bytes
        })
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Fetch(number, touch) => self.fetch(number, touch),
            Action::Spill(number, touch) => self.spill(number, touch),
            Action::Drop(number) => self.forget(number),
            Action::Wait(_) => {}
        }
    }

    fn fetch(&mut self, number: Number, touch: Option<TouchNumber>) {
        let id = self.numbers.id(number);
        let planned = self.planned.take().filter(|(asked, at, _)| (*asked, *at) == (number, touch));
        let ranges = planned.and_then(|(_, _, part)| part.ranges);
        let (repository, requests) = (self.repository.clone(), self.requests.clone());
        let whole = self.usage.get(&id).map_or(0, |usage| usage.object_bytes);
        let memory = self.options.memory(self.memory) as u64;
        let pieces = parts::pieces(whole, memory, self.options.prefetch);
        let task = self.runtime.spawn(async move {
            if ranges.is_none() && pieces > 1 {
                return repository.read_container_in_pieces(id, whole, pieces, &requests).await;
            }
            let _permit = requests.acquire().await;
            match ranges {
                Some(ranges) => repository.read_container_frames(id, &ranges).await,
                None => repository.read_container(id).await,
            }
        });
        self.coming.insert(number, Coming(task));
    }

    fn spill(&mut self, number: Number, touch: Option<TouchNumber>) {
        let Some(container) = self.held.remove(&number) else { return self.schedule.lost(number) };
        let usage = self.usage.get(&container.index.id);
        let (segments, recipe, id) = (&mut self.segments, &mut self.recipe, container.index.id);
        let wanted =
            usage.and_then(|usage| wanted_of(self.schedule.uses(), recipe, segments, id, usage, number, touch));
        let disk = match &mut self.disk {
            Some(disk) => Ok(disk),
            none => DiskTier::new(&self.options.scratch).map(|disk| none.insert(disk)),
        };
        match disk.and_then(|disk| disk.spill(&container, wanted.as_deref())) {
            Ok(spilled) => {
                self.counters.disk_written(spilled.bytes);
                self.schedule.spilled(number, spilled.bytes);
                self.spilled.insert(number, spilled);
            }
            Err(error) => {
                let folder = self.options.scratch.display();
                tracing::warn!(%error, %folder, "the disk tier cannot be written; going on without it");
                self.schedule.lost(number);
                self.schedule.without_disk();
            }
        }
    }

    /// Waits for something on its way.
    fn land(&mut self, number: Number) -> Result<(), RepositoryError> {
        let Some(mut coming) = self.coming.remove(&number) else {
            self.schedule.lost(number);
            return Ok(());
        };
        let result = match self.runtime.block_on(&mut coming.0) {
            Ok(result) => result,
            Err(_) => self.runtime.block_on(self.repository.read_container(self.numbers.id(number))),
        };
        let container = self.count(number, result).inspect_err(|_| self.schedule.lost(number))?;
        self.schedule.landed(number, container.bytes_held());
        self.held.insert(number, container);
        Ok(())
    }

    fn count(
        &self,
        number: Number,
        result: Result<OpenContainer, RepositoryError>,
    ) -> Result<OpenContainer, RepositoryError> {
        let container = result?;
        self.counters.read(self.numbers.id(number), &container);
        Ok(container)
    }

    fn collect(&mut self) {
        for number in self.schedule.gone() {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: Number) {
        self.held.remove(&number);
        self.coming.remove(&number);
        if let (Some(spilled), Some(disk)) = (self.spilled.remove(&number), &mut self.disk) {
            disk.forget(spilled);
        }
    }
}

/// How a container is read that is wanted from this touch on.
fn part_of(
    uses: &mut Uses,
    recipe: &mut RecipeReader,
    segments: &mut LruCache<SegmentNumber, Arc<Vec<ChunkRecord>>>,
    id: ContainerId,
    usage: &HashMap<ContainerId, ContainerUsage>,
    number: Number,
    touch: Option<TouchNumber>,
) -> Part {
    let Some(usage) = usage.get(&id) else { return Part { ranges: None, bytes: CONTAINER_TARGET as u64 } };
    match wanted_of(uses, recipe, segments, id, usage, number, touch) {
        Some(wanted) => parts::choose(wanted, usage),
        None => Part { ranges: None, bytes: usage.object_bytes },
    }
}

/// What is wanted of a container from this touch on; `None`: nearly all of it, or it is not known.
fn wanted_of(
    uses: &mut Uses,
    recipe: &mut RecipeReader,
    segments: &mut LruCache<SegmentNumber, Arc<Vec<ChunkRecord>>>,
    id: ContainerId,
    usage: &ContainerUsage,
    number: Number,
    touch: Option<TouchNumber>,
) -> Option<Vec<Range<u32>>> {
    // Chunks that are used twice count twice, so this may miss a sparse one and not the other way round.
    let mut at = touch.filter(|_| uses.wanted(number) < usage.bytes_held / 4 * 3)?;
    let mut wanted = Vec::new();
    for _ in 0..CHAIN_MAX {
        let touch = uses.touch(at)?;
        let records = match segments.get(&touch.segment) {
            Some(records) => records.clone(),
            None => {
                // Whoever comes there will see what is wrong.
                let records = recipe.segment(touch.segment).ok()?;
                segments.put(touch.segment, records.clone());
                records
            }
        };
        let chunks = records.iter().map(|record| record.chunk).filter(|chunk| chunk.container == id);
        wanted.extend(chunks.map(|chunk| chunk.offset..chunk.offset.saturating_add(chunk.size)));
        at = touch.next;
        if at == NEVER {
            return Some(wanted);
        }
    }
    None
}

//! Executes the schedule: requests containers, keeps them in memory and on disk, opens their
//! frames, and counts.
//!
//! Called by `data_reader` for every chunk, in stream order. Requests run on the job's runtime, in
//! the order of need, up to the number of the options. Beside them runs the request for a container
//! that the reader waits for and that was not read ahead.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use larder_format::ChunkRef;
use larder_format::container::{ContainerIndex, FRAME_TARGET};
use larder_format::ids::ContainerId;
use larder_format::manifest::Manifest;
use larder_format::segment::ChunkRecord;
use larder_index::{Executor, Task};
use larder_job::JobContext;
use larder_store::container_reader::OpenContainer;
use larder_store::{Repository, RepositoryError};
use lru::LruCache;
use tokio::sync::{OnceCell, Semaphore};

use super::disk_tier::{DiskTier, Spilled};
use super::eviction::{Action, Limits, Schedule};
use super::future_uses::{NEVER, Number, Numbers, Pieces, TouchNumber, Unit, Uses};
use super::open_frames::{Opened, OpenedFrames};
use super::partial_read::{Border, Piece};
use super::read_plan::{self, Measure, Part, Sizes};
use super::{FetchCounters, FetchOptions};
use crate::recipe_reader::RecipeReader;
use crate::resolved::SegmentNumber;

/// The part of a job's memory for touches of 16 bytes: one in this number.
const TOUCHES_ONE_IN: usize = 32 * 16;
/// The part of a job's memory for opened frames: one in this number.
const FRAMES_ONE_IN: usize = 8;
/// A container used by more segments than this is read whole: finding its parts would cost more.
const CHAIN_MAX: usize = 64;
/// Segments whose records are kept for finding parts.
const SEGMENTS_KEPT: NonZeroUsize = NonZeroUsize::new(32).unwrap();

/// Tables that are kept while their containers are read in pieces: some ten kilobytes each.
const TABLES_KEPT: NonZeroUsize = NonZeroUsize::new(128).unwrap();
/// How often the smallest pieces may be doubled.
const LARGER_MAX: u32 = 3;
/// The bytes of a job's memory for each piece of all, for several plans of it.
const PIECE_MEMORY: usize = 2 << 10;

/// A container under way; dropping it abandons the request.
struct Coming(Task<Result<OpenContainer, RepositoryError>>);

/// See the module header.
pub(crate) struct Containers {
    repository: Repository,
    runtime: Executor,
    recipe: RecipeReader,
    sizes: Sizes,
    /// How containers are divided.
    pieces: Pieces,
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
    /// Tables of containers that are read in pieces.
    tables: LruCache<ContainerId, Arc<OnceCell<ContainerIndex>>>,
    /// Frames that extend into these pieces from the ones before, for the first of both that needs
    /// them.
    borders: HashMap<Unit, Border>,
    /// Records of segments ahead.
    segments: LruCache<SegmentNumber, Arc<Vec<ChunkRecord>>>,
    /// The way of reading that was chosen for the last question.
    planned: Option<(Number, Option<TouchNumber>, Part)>,
    counters: Arc<FetchCounters>,
}

impl Containers {
    pub(crate) fn new(
        context: &JobContext,
        manifest: &Manifest,
        recipe: RecipeReader,
        options: &FetchOptions,
        counters: &Arc<FetchCounters>,
    ) -> Self {
        let limits = Limits { memory: options.memory(context.memory) as u64, disk: options.cache_disk };
        Self {
            repository: context.repository.clone(),
            runtime: context.executor.clone(),
            sizes: recipe.chunks().sizes(manifest),
            recipe,
            pieces: Pieces::Whole,
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
            tables: LruCache::new(TABLES_KEPT),
            borders: HashMap::new(),
            segments: LruCache::new(SEGMENTS_KEPT),
            planned: None,
            counters: counters.clone(),
        }
    }

    /// Plans that these segments are read next, in order; `more_follows`: others come after them.
    pub(crate) fn plan(&mut self, segments: Range<SegmentNumber>, more_follows: bool) -> Result<(), RepositoryError> {
        let mut pieces = Pieces::Whole;
        let (mut uses, mut numbers) = self.uses(&segments, pieces)?;
        if !self.fits(uses.at_once(), pieces) {
            let least = self.least_piece();
            pieces = Pieces::Of(least);
            (uses, numbers) = self.uses(&segments, pieces)?;
            // As large as memory allows: every piece is a request.
            let larger = (1..=LARGER_MAX).rev().filter_map(|times| Some((1 << times, least.checked_mul(1 << times)?)));
            let fitting =
                |(times, bytes)| Some(Pieces::Of(bytes)).filter(|of| self.fits(uses.at_once_of(&numbers, times), *of));
            if let Some(larger) = larger.filter_map(fitting).next() {
                pieces = larger;
                (uses, numbers) = self.uses(&segments, pieces)?;
            }
        }
        if pieces != self.pieces {
            // The containers at hand are divided otherwise.
            self.schedule.replan(Uses::default(), false);
            self.collect();
            self.borders.clear();
            self.pieces = pieces;
        }
        self.numbers = numbers;
        self.schedule.replan(uses, more_follows);
        self.planned = None;
        // Their places may have changed.
        self.segments.clear();
        self.collect();
        Ok(())
    }

    /// The uses by segments in this division, and the numbering that goes with them.
    fn uses(&mut self, segments: &Range<SegmentNumber>, pieces: Pieces) -> Result<(Uses, Numbers), RepositoryError> {
        // A container at hand keeps its number.
        let mut numbers = if pieces == self.pieces { self.numbers.clone() } else { Numbers::default() };
        let (touches_max, folder) = (self.touches_max, &self.options.scratch);
        let uses = Uses::plan(&mut self.recipe, segments.clone(), &mut numbers, pieces, touches_max, folder)?;
        Ok((uses, numbers))
    }

    /// The smallest pieces of containers when memory is too small for whole ones.
    ///
    /// Containers that were written at different times are each in the order of the stream. Reading
    /// merges all of them and needs a little of each at a time: at least a frame.
    fn least_piece(&self) -> u32 {
        let least = (self.recipe.bytes() / (self.memory / PIECE_MEMORY).max(1) as u64).max(FRAME_TARGET as u64);
        u32::try_from(least).unwrap_or(u32::MAX)
    }

    /// Whether memory suffices for this many pieces at a time, with a quarter for reading ahead.
    fn fits(&self, at_once: u64, pieces: Pieces) -> bool {
        let memory = self.options.memory(self.memory) as u64;
        let Measure { payload, object } = self.sizes.typical();
        let disk = self.recipe.chunks().disk_for_whole(self.options.cache_disk);
        let (bytes, room) = match pieces {
            Pieces::Whole => (object, memory.saturating_add(disk)),
            Pieces::Of(bytes) => {
                // And a frame on the border.
                let raw = u64::from(bytes) + FRAME_TARGET as u64;
                (raw.saturating_mul(object) / payload.max(1), memory / 4 * 3)
            }
        };
        at_once.saturating_mul(bytes) <= room
    }

    /// The reader enters record `from` of a segment, planned or not.
    pub(crate) fn enter(&mut self, segment: SegmentNumber, records: &[ChunkRecord], from: usize, is_planned: bool) {
        let (numbers, pieces) = (&mut self.numbers, self.pieces);
        let rest = records.iter().enumerate().skip(from);
        let unit = |record: &ChunkRecord| pieces.unit(record.chunk.container, record.chunk.offset);
        let rest = rest.map(|(place, record)| (place as u32, numbers.of(unit(record))));
        match is_planned {
            true => self.schedule.enter(segment, rest),
            false => self.schedule.detour(rest),
        }
        self.collect();
    }

    /// Requests the next containers, as far as there is room.
    pub(crate) fn look_ahead(&mut self) {
        if self.options.prefetch == 0 {
            return;
        }
        while let Some(action) = self.decide(|schedule, size| schedule.look(size)) {
            self.carry_out(action);
        }
    }

    /// The frame with a payload byte of a container that a record of the current segment names;
    /// `None`: no frame has it.
    pub(crate) fn frame(&mut self, id: ContainerId, offset: u32) -> Result<Option<Opened>, RepositoryError> {
        let number = self.numbers.of(self.pieces.unit(id, offset));
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
            // Other parts than the read ones are needed: the plan was wrong, or the disk tier lost
            // them.
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
        opened.get(id, frame, open).map(Some)
    }

    /// A frame from the disk tier; `None`: it is absent or has changed.
    fn frame_on_disk(&mut self, number: Number, offset: u32) -> Option<Opened> {
        let Self { spilled, disk, opened, numbers, repository, counters, .. } = self;
        let (spilled, disk) = (spilled.get(&number)?, disk.as_ref()?);
        let (frame, place) = spilled.frame_at(offset)?;
        let id = numbers.unit(number).container;
        let opened = opened.get(id, &frame, |sealed, raw, decompressor| {
            disk.read(spilled, &frame, place, sealed)?;
            raw.resize(frame.entry.raw_len as usize, 0);
            let (keys, opener) = (repository.keys(), &spilled.opener);
            opener.open_frame(keys, &frame, sealed, raw, decompressor).map_err(io::Error::other)?;
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
    pub(crate) fn used(&mut self, chunk: &ChunkRef, record: usize) {
        let number = self.numbers.of(self.pieces.unit(chunk.container, chunk.offset));
        self.counters.used(u64::from(chunk.size));
        self.schedule.used(number, record as u32);
        self.collect();
    }

    fn decide(
        &mut self,
        decide: impl FnOnce(&mut Schedule, &mut super::eviction::Size<'_>) -> Option<Action>,
    ) -> Option<Action> {
        let Self { schedule, recipe, sizes, pieces, numbers, segments, planned, .. } = self;
        decide(schedule, &mut |uses, number, touch| {
            if let Some((asked, at, part)) = planned
                && (*asked, *at) == (number, touch)
            {
                return part.bytes;
            }
            let asked = Asked { unit: numbers.unit(number), pieces: *pieces, number, touch };
            let part = part_of(uses, recipe, segments, sizes, &asked);
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
        let unit = self.numbers.unit(number);
        let id = unit.container;
        let planned = self.planned.take().filter(|(asked, at, _)| (*asked, *at) == (number, touch));
        let ranges = planned.and_then(|(_, _, part)| part.ranges);
        let (repository, requests) = (self.repository.clone(), self.requests.clone());
        let whole = self.sizes.object(&id).unwrap_or(0);
        let tables = match self.pieces {
            Pieces::Whole => None,
            Pieces::Of(bytes) => Some(self.piece(unit, bytes)),
        };
        let memory = self.options.memory(self.memory) as u64;
        let pieces = read_plan::pieces(whole, memory, self.options.prefetch);
        let task = self.runtime.spawn(async move {
            if ranges.is_none() && pieces > 1 {
                return repository.read_container_in_pieces(id, whole, pieces, &requests).await;
            }
            let _permit = requests.acquire().await;
            match (ranges, tables) {
                (Some(ranges), Some(piece)) => piece.read(&repository, &ranges).await,
                (Some(ranges), None) => repository.read_container_frames(id, &ranges).await,
                (None, _) => repository.read_container(id).await,
            }
        });
        self.coming.insert(number, Coming(task));
    }

    fn spill(&mut self, number: Number, touch: Option<TouchNumber>) {
        let Some(container) = self.held.remove(&number) else { return self.schedule.lost(number) };
        let asked = Asked { unit: self.numbers.unit(number), pieces: self.pieces, number, touch };
        let (segments, recipe, sizes) = (&mut self.segments, &mut self.recipe, &self.sizes);
        let wanted = wanted_of(self.schedule.uses(), recipe, segments, sizes, &asked);
        let disk = match &mut self.disk {
            Some(disk) => Ok(&*disk),
            none => DiskTier::new(&self.options.scratch).map(|disk| &*none.insert(disk)),
        };
        match disk.and_then(|disk| disk.spill(&container, wanted.as_deref())) {
            Ok(spilled) => {
                self.counters.disk_written(spilled.bytes());
                self.schedule.spilled(number, spilled.bytes());
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

    /// Waits for a container under way.
    fn land(&mut self, number: Number) -> Result<(), RepositoryError> {
        let Some(mut coming) = self.coming.remove(&number) else {
            self.schedule.lost(number);
            return Ok(());
        };
        let result = match self.runtime.block_on(coming.0.finished()) {
            Some(result) => result,
            None => self.runtime.block_on(self.repository.read_container(self.numbers.unit(number).container)),
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
        self.counters.read_unit(self.numbers.unit(number), &container);
        Ok(container)
    }

    fn collect(&mut self) {
        for number in self.schedule.gone() {
            self.forget(number);
        }
    }

    /// The state that the pieces of a container share.
    fn piece(&mut self, unit: Unit, bytes: u32) -> Piece {
        let next = Unit { piece: unit.piece.saturating_add(1), ..unit };
        let mut border = |unit: Unit| self.borders.entry(unit).or_default().clone();
        let begin = unit.piece.saturating_mul(bytes);
        Piece {
            id: unit.container,
            payload: begin..begin.saturating_add(bytes),
            front: border(unit),
            back: border(next),
            tables: self.tables.get_or_insert(unit.container, Arc::default).clone(),
        }
    }

    fn forget(&mut self, number: Number) {
        self.held.remove(&number);
        if let Pieces::Of(_) = self.pieces {
            let unit = self.numbers.unit(number);
            let next = Unit { piece: unit.piece.saturating_add(1), ..unit };
            let number = self.numbers.of(next);
            self.borders.remove(&unit);
            if self.schedule.uses().wanted(number) == 0 {
                self.borders.remove(&next);
            }
        }
        self.coming.remove(&number);
        if let (Some(spilled), Some(disk)) = (self.spilled.remove(&number), &self.disk) {
            disk.forget(spilled);
        }
    }
}

/// The needs from this touch on.
struct Asked {
    unit: Unit,
    pieces: Pieces,
    number: Number,
    touch: Option<TouchNumber>,
}

/// The way of reading it.
fn part_of(
    uses: &mut Uses,
    recipe: &mut RecipeReader,
    segments: &mut LruCache<SegmentNumber, Arc<Vec<ChunkRecord>>>,
    sizes: &Sizes,
    asked: &Asked,
) -> Part {
    let measure = sizes.measure(&asked.unit.container);
    let wanted = wanted_of(uses, recipe, segments, sizes, asked);
    match (asked.pieces, wanted) {
        (Pieces::Whole, Some(wanted)) => read_plan::choose(wanted, measure),
        (Pieces::Whole, None) => Part { ranges: None, bytes: measure.object },
        (Pieces::Of(bytes), wanted) => {
            let from = asked.unit.piece.saturating_mul(bytes);
            let whole = from..from.saturating_add(bytes);
            read_plan::exactly(wanted.unwrap_or_else(|| Vec::from([whole])), measure)
        }
    }
}

/// The wanted ranges of a container or piece from this touch on; `None`: nearly all of it, or
/// unknown.
fn wanted_of(
    uses: &mut Uses,
    recipe: &mut RecipeReader,
    segments: &mut LruCache<SegmentNumber, Arc<Vec<ChunkRecord>>>,
    sizes: &Sizes,
    asked: &Asked,
) -> Option<Vec<Range<u32>>> {
    let Asked { unit, pieces, number, touch } = *asked;
    let payload = sizes.measure(&unit.container).payload;
    let payload = match pieces {
        Pieces::Whole => payload,
        Pieces::Of(bytes) => payload.min(u64::from(bytes)),
    };
    // Chunks that are used twice count twice, so this may miss a sparse container, but never finds
    // a false one.
    let mut at = touch.filter(|_| uses.wanted(number) < payload / 4 * 3)?;
    let mut wanted = Vec::new();
    for _ in 0..CHAIN_MAX {
        let touch = uses.touch(at)?;
        let records = match segments.get(&touch.segment) {
            Some(records) => records.clone(),
            None => {
                // The read of that segment will report the error.
                let records = recipe.segment(touch.segment).ok()?;
                segments.put(touch.segment, records.clone());
                records
            }
        };
        let chunks = records.iter().map(|record| record.chunk);
        let chunks = chunks.filter(|chunk| pieces.unit(chunk.container, chunk.offset) == unit);
        wanted.extend(chunks.map(|chunk| chunk.offset..chunk.offset.saturating_add(chunk.size)));
        at = touch.next;
        if at == NEVER {
            return Some(wanted);
        }
    }
    None
}

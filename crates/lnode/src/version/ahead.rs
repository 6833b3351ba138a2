//! What a reader in stream order will need of which containers: planned a window of segments at a time, fetched ahead.
//!
//! A container that a window uses well is fetched whole. One that it uses little of, because chunks of long ago came back,
//! is fetched frame by frame: many of those at once would push each other out of any cache, and be read over and over.
//!
//! Called by `data_reader`, which keeps what was fetched.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use larder_format::container::CONTAINER_TARGET;
use larder_format::ids::ContainerId;
use larder_format::manifest::Manifest;
use larder_store::container_reader::OpenContainer;
use larder_store::{Repository, RepositoryError};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::recipe_reader::{RecipeReader, SegmentNumber};

/// Of a job's memory, one part in so many for containers on their way.
const AHEAD_ONE_IN: usize = 5;
/// Fetches under way at most.
const AHEAD_MAX: usize = 6;
/// Segments of a window.
const WINDOW_SEGMENTS: u32 = 4;
/// A container is read by frames, not whole, when a window wants less than one byte in this many of it.
const SPARSE_ONE_IN: u64 = 4;

/// What is wanted of a container: these ranges of its payload, in rising order, or all of it.
type Part = Option<Vec<Range<u32>>>;

/// See the module header.
pub(super) struct Ahead {
    repository: Repository,
    runtime: Handle,
    recipe: RecipeReader,
    /// Uncompressed bytes of each container.
    held: HashMap<ContainerId, u64>,
    /// The window being read, and near its end the one after it.
    windows: VecDeque<Window>,
    fetches_max: usize,
}

struct Window {
    segments: Range<SegmentNumber>,
    plans: HashMap<ContainerId, Plan>,
    /// In order of first use, what is not asked for yet.
    waiting: VecDeque<ContainerId>,
}

#[derive(Default)]
struct Plan {
    part: Part,
    fetch: Option<Fetch>,
}

/// A request under way; dropped, it is given up.
struct Fetch(JoinHandle<Result<OpenContainer, RepositoryError>>);

impl Drop for Fetch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Ahead {
    pub(super) fn new(context: &crate::Context, manifest: &Manifest, recipe: RecipeReader) -> Self {
        Self {
            repository: context.repository.clone(),
            runtime: context.runtime.clone(),
            recipe,
            held: manifest.containers.iter().map(|usage| (usage.container, usage.bytes_held)).collect(),
            windows: VecDeque::new(),
            fetches_max: (context.memory / AHEAD_ONE_IN / CONTAINER_TARGET).clamp(1, AHEAD_MAX),
        }
    }

    /// The reader is in segment `here`: sees to it that what comes next is asked for. What is kept need not be.
    pub(super) fn look(
        &mut self,
        here: SegmentNumber,
        is_kept: impl Fn(ContainerId) -> bool,
    ) -> Result<(), RepositoryError> {
        while self.windows.front().is_some_and(|window| !window.segments.contains(&here)) {
            self.windows.pop_front();
        }
        let next = match (self.windows.len(), self.windows.back()) {
            (0, _) => here,
            // The last segment gives time to fetch what comes behind it.
            (1, Some(window)) if here + 1 == window.segments.end => window.segments.end,
            _ => return Ok(()),
        };
        let window = self.plan(next..next.saturating_add(WINDOW_SEGMENTS), is_kept)?;
        self.windows.push_back(window);
        self.fetch();
        Ok(())
    }

    /// A container, or what is wanted of it in this window.
    pub(super) fn take(&mut self, id: ContainerId) -> Result<OpenContainer, RepositoryError> {
        let plan = self.windows.front_mut().and_then(|window| window.plans.get_mut(&id));
        let (part, fetch) = plan.map_or((None, None), |plan| (plan.part.clone(), plan.fetch.take()));
        let container = match fetch.map(|mut fetch| self.runtime.block_on(&mut fetch.0)) {
            Some(Ok(container)) => container,
            // Not asked for yet, or cancelled with the runtime: ask in the open.
            None | Some(Err(_)) => self.runtime.block_on(read(self.repository.clone(), id, part)),
        };
        self.fetch();
        container
    }

    fn plan(
        &mut self,
        segments: Range<SegmentNumber>,
        is_kept: impl Fn(ContainerId) -> bool,
    ) -> Result<Window, RepositoryError> {
        let mut wanted: HashMap<ContainerId, Vec<Range<u32>>> = HashMap::new();
        let mut waiting = VecDeque::new();
        for number in segments.start..segments.end.min(self.recipe.segments()) {
            let records = match self.recipe.segment(number) {
                Ok(records) => records,
                // Whoever reads on until there will see it.
                Err(error) if error.is_damage() => break,
                Err(error) => return Err(error),
            };
            for record in records.iter() {
                let chunk = record.chunk;
                let range = chunk.offset..chunk.offset.saturating_add(chunk.size);
                let ranges = wanted.entry(chunk.container).or_insert_with(|| {
                    waiting.push_back(chunk.container);
                    Vec::new()
                });
                match ranges.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => ranges.push(range),
                }
            }
        }
        let plan = |(id, mut ranges): (ContainerId, Vec<Range<u32>>)| {
            ranges.sort_unstable_by_key(|range| range.start);
            let bytes: u64 = ranges.iter().map(|range| u64::from(range.end - range.start)).sum();
            let is_sparse = bytes * SPARSE_ONE_IN < self.held.get(&id).copied().unwrap_or(0);
            (id, Plan { part: is_sparse.then_some(ranges), fetch: None })
        };
        let plans: HashMap<_, _> = wanted.into_iter().map(plan).collect();
        let is_fetched = |id: &ContainerId| {
            let before = self.windows.iter().filter_map(|window| window.plans.get(id));
            before.into_iter().any(|plan| plan.part.is_none())
        };
        // A part that is kept is another one than is wanted now, most likely; a whole container is still there.
        waiting.retain(|id| plans.get(id).is_some_and(|plan| plan.part.is_some()) || !(is_kept(*id) || is_fetched(id)));
        Ok(Window { segments, plans, waiting })
    }

    fn fetch(&mut self) {
        let under_way = |window: &Window| window.plans.values().filter(|plan| plan.fetch.is_some()).count();
        let mut room = self.fetches_max.saturating_sub(self.windows.iter().map(under_way).sum());
        for window in &mut self.windows {
            while room > 0
                && let Some(id) = window.waiting.pop_front()
            {
                if let Some(plan) = window.plans.get_mut(&id) {
                    let fetch = read(self.repository.clone(), id, plan.part.clone());
                    plan.fetch = Some(Fetch(self.runtime.spawn(fetch)));
                    room -= 1;
                }
            }
        }
    }
}

async fn read(repository: Repository, id: ContainerId, part: Part) -> Result<OpenContainer, RepositoryError> {
    match part {
        Some(ranges) => repository.read_container_frames(id, &ranges).await,
        None => repository.read_container(id).await,
    }
}

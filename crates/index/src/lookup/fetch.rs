//! Bringing the blocks that lookups need: objects are opened and spans fetched by tasks, ahead of
//! need.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use larder_format::index_manifest::RunRef;
use larder_format::names;
use larder_format::run::Block;

use super::{LookupCost, TableReader};
use crate::error::{IndexError, damaged};
use crate::executor::Task;
use crate::io::OpenedRun;

/// How lookups use memory and requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupOptions {
    /// Bytes of opened objects (fences, filters) that are kept between lookups.
    pub cache_bytes: usize,
    /// Requests at once.
    pub requests: usize,
    /// Bytes of a request, at least one block.
    pub span: u64,
    /// Bytes that are not needed and yet read, to make one request of two.
    pub gap: u64,
}

impl Default for LookupOptions {
    /// For an L-node: some millions of chunks known by their fences and filters, and requests for
    /// single blocks.
    fn default() -> Self {
        Self { cache_bytes: 32 << 20, requests: 8, span: 1 << 20, gap: 128 << 10 }
    }
}

impl LookupOptions {
    /// For a pass that streams sorted keys, within about `budget` bytes.
    pub fn streaming(budget: usize) -> Self {
        let span = (budget / 8).clamp(64 << 10, 1 << 20);
        let requests = (budget / 2 / span).clamp(1, 4);
        Self { cache_bytes: budget / 4, requests, span: span as u64, gap: 128 << 10 }
    }
}

/// A block that is needed, and the pending keys that may be in it.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) block: usize,
    pub(super) pending: Vec<usize>,
}

/// Fetched blocks, some of which are needed.
#[derive(Debug)]
pub(super) struct FetchedSpan {
    run: RunRef,
    opened: Arc<OpenedRun>,
    bytes: Bytes,
    from: u64,
    pub(super) wanted: Vec<Wanted>,
}

impl FetchedSpan {
    pub(super) fn open(&self, block: usize, buffer: Vec<u8>) -> Result<Block, IndexError> {
        let index = &self.opened.index;
        let range = index.bytes_of(block..block + 1);
        let sealed = &self.bytes[(range.start - self.from) as usize..(range.end - self.from) as usize];
        index.open_block(block, sealed, buffer).map_err(damaged(self.run.id))
    }
}

#[derive(Debug)]
struct Opening {
    run: RunRef,
    pending: Range<usize>,
    state: OpeningState,
}

#[derive(Debug)]
enum OpeningState {
    Kept(Arc<OpenedRun>),
    Asked(Task<Result<Arc<OpenedRun>, IndexError>>),
}

/// A span that will be fetched.
#[derive(Debug)]
struct Planned {
    run: RunRef,
    opened: Arc<OpenedRun>,
    range: Range<u64>,
    wanted: Vec<Wanted>,
}

#[derive(Debug)]
struct Fetching {
    span: Planned,
    task: Task<Result<Bytes, IndexError>>,
}

/// Objects that are opened at once.
const OPENING: usize = 4;

/// The blocks of some objects that are wanted, in order.
#[derive(Debug)]
pub(super) struct Fetches<'a> {
    reader: &'a TableReader,
    /// By falling order.
    objects: Vec<(RunRef, Range<usize>)>,
    opening: VecDeque<Opening>,
    planned: VecDeque<Planned>,
    fetching: VecDeque<Fetching>,
}

impl<'a> Fetches<'a> {
    /// `objects` with the pending keys that fall into their ranges.
    pub(super) fn new(reader: &'a TableReader, mut objects: Vec<(RunRef, Range<usize>)>) -> Self {
        objects.reverse();
        let (opening, planned, fetching) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { reader, objects, opening, planned, fetching }
    }

    /// The next span. `choose` says which blocks of an object are wanted, in order.
    pub(super) async fn next(
        &mut self,
        choose: &(impl Fn(&OpenedRun, Range<usize>) -> Vec<Wanted> + Sync),
        cost: &mut LookupCost,
    ) -> Result<Option<FetchedSpan>, IndexError> {
        loop {
            self.open_ahead(cost);
            while self.fetching.len() < self.reader.options.requests.max(1) {
                let Some(planned) = self.planned.pop_front() else { break };
                self.fetch(planned, cost);
            }
            // Objects are planned only when requests run out, so that the plan stays small.
            if self.fetching.len() < self.reader.options.requests.max(1)
                && self.planned.is_empty()
                && let Some(opening) = self.opening.pop_front()
            {
                self.plan(opening, choose).await?;
                continue;
            }
            let Some(Fetching { span, task }) = self.fetching.pop_front() else { return Ok(None) };
            let bytes = task.join().await?;
            let Planned { run, opened, range, wanted } = span;
            return Ok(Some(FetchedSpan { run, opened, bytes, from: range.start, wanted }));
        }
    }

    fn beside<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Task<T> {
        match &self.reader.runtime {
            Some(runtime) => runtime.spawn(future),
            None => Task::spawned(future),
        }
    }

    fn open_ahead(&mut self, cost: &mut LookupCost) {
        while self.opening.len() < OPENING {
            let Some((run, pending)) = self.objects.pop() else { break };
            let state = match self.reader.opened.get(run.id) {
                Some(opened) => OpeningState::Kept(opened),
                None => {
                    cost.tails += 1;
                    OpeningState::Asked(self.beside(OpenedRun::open(self.reader.repository.clone(), run)))
                }
            };
            self.opening.push_back(Opening { run, pending, state });
        }
    }

    async fn plan(
        &mut self,
        opening: Opening,
        choose: &(impl Fn(&OpenedRun, Range<usize>) -> Vec<Wanted> + Sync),
    ) -> Result<(), IndexError> {
        let Opening { run, pending, state } = opening;
        let opened = match state {
            OpeningState::Kept(opened) => opened,
            OpeningState::Asked(task) => {
                let opened = task.join().await?;
                self.reader.opened.put(run.id, opened.clone());
                opened
            }
        };
        let options = self.reader.options;
        let before = self.planned.len();
        for wanted in choose(&opened, pending) {
            let range = opened.index.bytes_of(wanted.block..wanted.block + 1);
            let last = self.planned.range_mut(before..).next_back().filter(|last| {
                range.start - last.range.end <= options.gap && range.end - last.range.start <= options.span
            });
            match last {
                Some(last) => {
                    last.range.end = range.end;
                    last.wanted.push(wanted);
                }
                None => {
                    self.planned.push_back(Planned { run, opened: opened.clone(), range, wanted: vec![wanted] });
                }
            }
        }
        Ok(())
    }

    fn fetch(&mut self, span: Planned, cost: &mut LookupCost) {
        cost.spans += 1;
        cost.span_bytes += span.range.end - span.range.start;
        let (store, name, range) =
            (self.reader.repository.store().clone(), names::run(span.run.id), span.range.clone());
        let task = self.beside(async move { Ok(store.get_range(&name, range).await?) });
        self.fetching.push_back(Fetching { span, task });
    }
}

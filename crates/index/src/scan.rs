//! Reading the runs of one age from front to back, ahead of need.
//!
//! A task beside opens objects and fetches spans of neighbouring blocks; the thread that reads
//! opens one block after the other. [`Readahead`] bounds the memory, for any sizes of the runs.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use larder_format::index_manifest::RunRef;
use larder_format::names;
use larder_format::run::{RunIndex, prefix};
use larder_store::Repository;
use tokio::sync::mpsc;

use crate::cursor::{BlockCursor, BlockPart, BlockSource, Cursor};
use crate::error::{IndexError, damaged};
use crate::executor::IndexIo;
use crate::executor::{Executor, Task};
use crate::io::open_run;

/// How much a scan fetches ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readahead {
    /// Bytes of a request, at least one block.
    pub span: u64,
    /// Requests at once.
    pub requests: usize,
}

/// Spans that are held at once beside the requests: in the channel, before it, and the one being
/// read.
const SPANS_BESIDE: usize = 3;

impl Readahead {
    /// The read-ahead of `sources` scans at once within `budget` bytes of memory, together.
    pub fn within(budget: usize, sources: usize) -> Self {
        let requests = 2;
        let span = budget / sources.max(1) / (requests + SPANS_BESIDE);
        Self { span: span.clamp(64 << 10, 1 << 20) as u64, requests }
    }
}

/// A scan of the runs of one age.
pub struct RunScan(BlockCursor<Spans>);

impl std::fmt::Debug for RunScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RunScan").finish_non_exhaustive()
    }
}

impl RunScan {
    /// Reads the records whose keys have prefixes in `range`. `runs` are of one age, in order.
    pub fn new(io: &IndexIo, runs: &[RunRef], range: RangeInclusive<u64>, readahead: Readahead) -> Self {
        let clip = |run: &RunRef| {
            let clipped = RunRef { first: run.first.max(*range.start()), last: run.last.min(*range.end()), ..*run };
            (clipped.first <= clipped.last).then_some(clipped)
        };
        let runs: Vec<RunRef> = runs.iter().filter_map(clip).collect();
        let (sender, receiver) = mpsc::channel(1);
        let beside = io.clone();
        let fetching = io.executor.spawn(async move {
            let mut spans = spans(beside, runs, readahead);
            while let Some(span) = spans.next().await {
                if sender.send(span).await.is_err() {
                    break;
                }
            }
        });
        Self(BlockCursor::new(Spans { runtime: io.executor.clone(), receiver, span: None, _fetching: fetching }))
    }
}

impl Cursor for RunScan {
    fn advance(&mut self) -> Result<bool, IndexError> {
        self.0.advance()
    }

    fn key(&self) -> &[u8] {
        self.0.key()
    }

    fn value(&self) -> Option<&[u8]> {
        self.0.value()
    }
}

/// Neighbouring blocks of an object.
struct Span {
    run: RunRef,
    index: Arc<RunIndex>,
    /// The next block to be opened, and the one behind the last.
    blocks: std::ops::Range<usize>,
    /// The bytes of all blocks of the span, and where in the object they begin.
    bytes: Bytes,
    from: u64,
}

struct Spans {
    runtime: Executor,
    receiver: mpsc::Receiver<Result<Span, IndexError>>,
    span: Option<Span>,
    /// Ends when this does.
    _fetching: Task<()>,
}

impl BlockSource for Spans {
    fn next_block(&mut self, buffer: Vec<u8>) -> Result<Option<BlockPart>, IndexError> {
        let span = loop {
            match &mut self.span {
                Some(span) if !span.blocks.is_empty() => break span,
                _ => match self.runtime.block_on(self.receiver.recv()) {
                    Some(span) => self.span = Some(span?),
                    None => return Ok(None),
                },
            }
        };
        let number = span.blocks.start;
        span.blocks.start += 1;
        let range = span.index.bytes_of(number..number + 1);
        let sealed = &span.bytes[(range.start - span.from) as usize..(range.end - span.from) as usize];
        let block = span.index.open_block(number, sealed, buffer).map_err(damaged(span.run.id))?;
        let border = |is_before: &dyn Fn(u64) -> bool| {
            let (mut low, mut high) = (0, block.count());
            while low < high {
                let middle = low.midpoint(high);
                if is_before(prefix(block.key(middle))) { low = middle + 1 } else { high = middle }
            }
            low
        };
        let (first, last) = (span.run.first, span.run.last);
        let from = if prefix(block.key(0)) >= first { 0 } else { border(&|found| found < first) };
        let all_count = prefix(block.key(block.count() - 1)) <= last;
        let to = if all_count { block.count() } else { border(&|found| found <= last) };
        Ok(Some(BlockPart { block, from, to }))
    }
}

type Fetch = BoxFuture<'static, Result<Span, IndexError>>;

/// The spans of these runs, in order. Requests go on while nobody takes a span: a merge has many
/// scans, and its own uploads would wait for their turns.
fn spans(io: IndexIo, runs: Vec<RunRef>, readahead: Readahead) -> BoxStream<'static, Result<Span, IndexError>> {
    let opening = io.clone();
    let open = move |run: RunRef| {
        let repository = opening.repository.clone();
        let opened = async move { open_run(&repository, &run, false).await.map(|(index, _)| (run, Arc::new(index))) };
        opening.executor.beside(opened)
    };
    let IndexIo { repository, executor } = io;
    let fetches = move |opened: Result<(RunRef, Arc<RunIndex>), IndexError>| {
        let fetches: Vec<Fetch> = match opened {
            Ok((run, index)) => cut(&index, &run, readahead.span)
                .into_iter()
                .map(|blocks| fetch(repository.clone(), run, index.clone(), blocks).boxed())
                .collect(),
            Err(error) => vec![ready(Err(error)).boxed()],
        };
        stream::iter(fetches)
    };
    let fetched = move |fetch: Fetch| executor.beside(fetch);
    stream::iter(runs).map(open).buffered(2).flat_map(fetches).map(fetched).buffered(readahead.requests).boxed()
}

async fn fetch(
    repository: Repository,
    run: RunRef,
    index: Arc<RunIndex>,
    blocks: std::ops::Range<usize>,
) -> Result<Span, IndexError> {
    let range = index.bytes_of(blocks.clone());
    let from = range.start;
    let bytes = repository.store().get_range(&names::run(run.id), range).await?;
    Ok(Span { run, index, blocks, bytes, from })
}

/// Cuts the blocks that count into spans of at most this number of bytes, or of one block.
fn cut(index: &RunIndex, run: &RunRef, span_bytes: u64) -> Vec<std::ops::Range<usize>> {
    let mut blocks = index.blocks_within(run.first, run.last);
    let mut spans = Vec::new();
    while !blocks.is_empty() {
        let from = index.bytes_of(blocks.start..blocks.start).start;
        let fits = |end: &usize| index.bytes_of(*end..*end).start - from <= span_bytes;
        let end = (blocks.start + 2..=blocks.end).take_while(fits).last().unwrap_or(blocks.start + 1);
        spans.push(blocks.start..end);
        blocks.start = end;
    }
    spans
}

//! Random and sequential access to a recipe: nodes, segments and records of one stream of one
//! version.
//!
//! Holds one node and a few segments at a time, so memory does not grow with the stream.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded};
use larder_format::container::CONTAINER_TARGET;
use larder_format::content;
use larder_format::ids::{ContainerId, ContainerKind};
use larder_format::manifest::Manifest;
use larder_format::recipe::{Recipe, SegmentRef, decode_node};
use larder_format::segment::{ChunkRecord, Segment};
use larder_format::{ChunkRef, Fingerprint, names};
use larder_index::Executor;
use larder_store::RepositoryError;
use larder_store::chunk_reader::ChunkReader;
use lru::LruCache;

use crate::chunk_resolver::{
    ChunkResolver, ExtentPlaces, Moved, ReadingOrder, RecordedPlaces, Sought, objects_and_names, of_version,
};
use crate::container_sizes::Sizes;
use crate::presence::{Look, Missing};
use crate::resolved::{Resolved, SegmentNumber};

/// The part of a job's memory for sealed metadata containers: one in this number.
pub(crate) const CONTAINERS_ONE_IN: usize = 6;
/// The part for opened frames of metadata containers: one in this number.
const FRAMES_ONE_IN: usize = 12;
/// Decoded nodes that a reader keeps: the one being read and, for cursors that go back, a few
/// before it.
const NODE_CACHE: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// How often chunks are looked up again because places changed meanwhile.
const RESOLVES_MAX: u32 = 3;

/// Reads metadata chunks for plain threads.
#[derive(Debug, Clone)]
pub struct MetaChunks {
    runtime: Executor,
    reader: Arc<ChunkReader>,
    moved: Arc<Moved>,
    /// The way from recipes to chunks.
    resolver: &'static dyn ChunkResolver,
}

impl MetaChunks {
    /// Segments will have chunks as recipes name them. In the layout `lifecycle` these are names
    /// without places.
    pub fn new(context: &larder_job::JobContext) -> Self {
        Self::of_containers(context, CONTAINER_TARGET as u64)
    }

    /// The same for a version whose containers are known, before [`Self::for_reading`].
    pub(crate) fn of_version(context: &larder_job::JobContext, manifest: &Manifest) -> Self {
        let metadata = manifest.containers.iter().filter(|usage| usage.container.kind == ContainerKind::Meta);
        Self::of_containers(context, metadata.map(|usage| usage.object_bytes).max().unwrap_or(0))
    }

    /// `largest`: bytes of the largest container. If all memory is less, none is read whole.
    fn of_containers(context: &larder_job::JobContext, largest: u64) -> Self {
        let part = |one_in| NonZeroUsize::new(context.memory / one_in).unwrap_or(NonZeroUsize::MIN);
        let mut reader = ChunkReader::new(context.repository.clone(), part(CONTAINERS_ONE_IN), part(FRAMES_ONE_IN));
        if (context.memory as u64) < largest {
            reader = reader.in_pieces();
        }
        let moved = Arc::new(Moved::new(context));
        Self { runtime: context.executor.clone(), reader: Arc::new(reader), moved, resolver: &RecordedPlaces }
    }

    /// The same for a version that will be read: its segments will have the present places.
    pub fn for_reading(&self, manifest: &Manifest) -> Self {
        self.expecting(of_version(manifest), manifest)
    }

    /// The same for chunks named by this version and by others whose recipes only name chunks,
    /// whatever its own do.
    pub fn for_names(&self, manifest: &Manifest) -> Self {
        self.expecting(&ExtentPlaces, manifest)
    }

    fn expecting(&self, resolver: &'static dyn ChunkResolver, manifest: &Manifest) -> Self {
        resolver.expect(&self.moved, manifest);
        Self { resolver, ..self.clone() }
    }

    /// The same with chunks as recipes name them.
    pub(crate) fn as_named(&self) -> Self {
        Self { resolver: &RecordedPlaces, ..self.clone() }
    }

    /// The same knowledge of places, with empty caches.
    pub fn emptied(&self, context: &larder_job::JobContext) -> Self {
        Self { moved: self.moved.clone(), ..Self::new(context) }
    }

    /// Whether chunks of containers that recipes name may be in one of these containers. Chunks
    /// redirected by fingerprint may be anywhere.
    pub fn lie_in(
        &self,
        named: impl Iterator<Item = ContainerId>,
        is_one: impl Fn(&ContainerId) -> bool,
    ) -> Result<bool, RepositoryError> {
        let named: Vec<_> = named.collect();
        let is_near = |id: &ContainerId| is_one(id) || self.moved.is_gone(id);
        Ok(named.iter().any(is_near) || self.resolver.other_places(&self.moved, named)?.iter().any(is_near))
    }

    /// Divides containers of recipes or manifests in two: objects that hold the chunks, and
    /// containers that only name them. The index tells the places of the chunks of the second.
    pub fn objects_and_names<T>(
        &self,
        all: impl IntoIterator<Item = T>,
        container: impl Fn(&T) -> ContainerId,
    ) -> (Vec<T>, Vec<T>) {
        objects_and_names(self.resolver, all, container)
    }

    /// Whether a container of recipes holds the chunks, and does not only name them.
    pub(crate) fn holds_chunks(&self, container: &ContainerId) -> bool {
        self.resolver.is_object(container)
    }

    /// Sets chunks, as recipes name them, to their known places. Chunks of retired containers are
    /// redirected.
    pub fn locate_all(&self, chunks: &mut [ChunkRef]) -> Result<(), RepositoryError> {
        self.resolver.place(&self.moved, &mut chunks.iter_mut())?;
        self.moved.redirect(chunks)
    }

    /// Sets a chunk, as a recipe names it, to the place from which it can be read.
    pub fn locate(&self, chunk: &mut ChunkRef) -> Result<(), RepositoryError> {
        self.resolver.locate(&self.moved, chunk)
    }

    /// A chunk was not at the place that [`Self::locate`] gave. Returns whether it may give another
    /// one now.
    pub fn relocates(&self, missed: &ChunkRef) -> Result<bool, RepositoryError> {
        self.resolver.relocates(&self.moved, missed)
    }

    /// The best order of reading for containers used in stream order.
    pub(crate) fn reading_order(&self) -> ReadingOrder {
        self.resolver.reading_order()
    }

    /// Sizes of the containers that a version names, and of those that hold its moved chunks.
    pub(crate) fn sizes(&self, manifest: &Manifest) -> Sizes {
        Sizes::of(manifest, |sum| self.resolver.full_container(sum))
    }

    /// Bytes on disk that count as room for whole containers, out of the bytes of the cache.
    pub(crate) fn disk_for_whole(&self, cache_disk: u64) -> u64 {
        self.resolver.disk_for_whole(cache_disk)
    }

    /// Whether any record of a segment may be in a container that is gone, by its row in the recipe
    /// node.
    pub(crate) fn may_have_gone(&self, row: &SegmentRef) -> bool {
        self.resolver.may_have_gone(&self.moved, row)
    }

    /// Reports the missing containers among those that the version needs.
    pub(crate) fn missing(&self, look: &dyn Look) -> Result<Missing, RepositoryError> {
        self.resolver.missing(look)
    }

    /// The knowledge of chunks that are not where records say.
    pub fn moved(&self) -> &Moved {
        &self.moved
    }

    /// Reads a container of metadata whole if it is not at hand, so that [`Self::read`] finds its
    /// chunks there.
    pub(crate) async fn fetch(&self, container: ContainerId) -> Result<(), RepositoryError> {
        self.reader.fetch(container).await
    }

    /// Reads a chunk of metadata.
    pub fn read(&self, chunk: &ChunkRef) -> Result<bytes::Bytes, RepositoryError> {
        self.runtime.block_on(self.reader.read(chunk))
    }

    /// Reads and verifies a segment, with chunks as its records name them.
    pub fn segment(&self, row: &SegmentRef) -> Result<Segment, RepositoryError> {
        let chain = futures::future::join_all(row.chain().map(|chunk| self.reader.read(chunk)));
        let chain = self.runtime.block_on(chain).into_iter().collect::<Result<Vec<_>, _>>()?;
        let segment = row.decode(&chain).map_err(|(chunk, source)| damaged(&chunk, source))?;
        content::check_segment(row, &segment).map_err(|source| damaged(&row.chunk, source))?;
        Ok(segment)
    }

    /// Begins to read chunks one after the other, so that [`Self::read`] finds their frames at
    /// hand. A chunk has been tried when its channel is disconnected; [`Self::read`] will report a
    /// failure.
    pub fn read_ahead(&self, chunks: Vec<ChunkRef>) -> Vec<Receiver<()>> {
        let (begun, promises): (Vec<_>, Vec<_>) = chunks.iter().map(|_| bounded(0)).unzip();
        if self.runtime.is_in_turns() {
            // Nothing proceeds beside a caller that waits for such a channel.
            return promises;
        }
        let reader = self.reader.clone();
        self.runtime.detach(async move {
            for (chunk, begun) in chunks.iter().zip(begun) {
                let _ = reader.read(chunk).await;
                drop(begun);
            }
        });
        promises
    }
}

/// See the module header.
#[derive(Debug)]
pub struct RecipeReader {
    recipe: Arc<Recipe>,
    /// Stream offset at which each node begins, and the end of the stream.
    node_starts: Vec<u64>,
    /// Number of the first segment of each node, and the count of all.
    node_segments: Vec<u32>,
    chunks: MetaChunks,
    nodes: LruCache<usize, Arc<Node>>,
    /// Resolved chunks whose containers are gone; `None`: their records stay as they are.
    resolved: Option<Arc<Resolved>>,
}

/// A segment and its part of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentPlace {
    pub(crate) number: SegmentNumber,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Names its records, and so its content.
    pub(crate) fingerprint: Fingerprint,
}

/// A decoded node.
#[derive(Debug)]
pub struct Node {
    /// Its segments, in the order of the stream.
    pub segments: Vec<SegmentRef>,
    /// Stream offset at which each segment begins, and the end of the node.
    starts: Vec<u64>,
}

impl RecipeReader {
    /// A reader without a place yet. It resolves chunks through `chunks`.
    pub fn new(recipe: Arc<Recipe>, chunks: MetaChunks) -> Self {
        let mut node_starts = vec![0];
        let mut node_segments = vec![0u32];
        for node in &recipe.nodes {
            node_starts.push(node_starts[node_starts.len() - 1] + node.bytes);
            node_segments.push(node_segments[node_segments.len() - 1].saturating_add(node.segments));
        }
        let (nodes, resolved) = (LruCache::new(NODE_CACHE), Some(Arc::default()));
        Self { recipe, node_starts, node_segments, chunks, nodes, resolved }
    }

    /// The same, sharing the resolved chunks of missing containers with other readers of the
    /// stream; `None`: it leaves their records as they are.
    pub(super) fn resolving(self, resolved: Option<Arc<Resolved>>) -> Self {
        Self { resolved, ..self }
    }

    /// The recipe's nodes.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Bytes of the stream.
    pub(crate) fn bytes(&self) -> u64 {
        self.node_starts[self.node_starts.len() - 1]
    }

    /// Segments of the stream.
    pub fn segments(&self) -> SegmentNumber {
        self.node_segments[self.node_segments.len() - 1]
    }

    /// The node that holds a segment, and the segment's place in it.
    pub(crate) fn node_of(&self, segment: SegmentNumber) -> Option<(usize, usize)> {
        // The last node that begins at or before it; empty nodes share their beginning with the
        // next.
        let node = self.node_segments.partition_point(|first| *first <= segment).checked_sub(1)?;
        (node < self.recipe.nodes.len()).then(|| (node, (segment - self.node_segments[node]) as usize))
    }

    /// Number of the first segment behind a node.
    pub fn segments_through(&self, node: usize) -> SegmentNumber {
        self.node_segments[node + 1]
    }

    /// Reads and verifies a node of the recipe. Nodes are numbered from 0.
    pub fn node(&mut self, number: usize) -> Result<Arc<Node>, RepositoryError> {
        if let Some(node) = self.nodes.get(&number) {
            return Ok(node.clone());
        }
        let reference = &self.recipe.nodes[number];
        let bytes = self.chunks.read(&reference.chunk)?;
        let damaged = |source| damaged(&reference.chunk, source);
        let segments = decode_node(&bytes).map_err(damaged)?;
        content::check_node(reference, &segments).map_err(damaged)?;
        let mut starts = vec![self.node_starts[number]];
        for segment in &segments {
            starts.push(starts[starts.len() - 1].saturating_add(segment.bytes));
        }
        let node = Arc::new(Node { segments, starts });
        self.nodes.put(number, node.clone());
        Ok(node)
    }

    /// The row of a segment in its node, and the stream offset at which it begins.
    pub fn segment_ref(&mut self, segment: SegmentNumber) -> Result<Option<(SegmentRef, u64)>, RepositoryError> {
        let Some((node, place)) = self.node_of(segment) else { return Ok(None) };
        let node = self.node(node)?;
        Ok(node.segments.get(place).map(|segment| (segment.clone(), node.starts[place])))
    }

    /// The records of a segment.
    pub fn segment(&mut self, segment: SegmentNumber) -> Result<Arc<Vec<ChunkRecord>>, RepositoryError> {
        Ok(self.whole_segment(segment)?.map(|segment| Arc::new(segment.records)).unwrap_or_default())
    }

    /// The records of a segment, and its superchunks.
    pub fn whole_segment(&mut self, segment: SegmentNumber) -> Result<Option<Segment>, RepositoryError> {
        let Some((reference, _)) = self.segment_ref(segment)? else { return Ok(None) };
        let mut whole = read_segment(&self.chunks, &reference)?;
        if let Some(resolved) = self.resolved.clone()
            && self.chunks.resolver.has_gone(&self.chunks.moved, &reference, &whole.records)
        {
            let records = &mut whole.records;
            if !resolved.apply(segment, self.chunks.moved.changes(), records) {
                self.resolve(&resolved, segment, records)?;
            }
        }
        Ok(Some(whole))
    }

    /// Announces that these segments will be read, in rising order; `are_all`: and hardly any
    /// others. Returns the end of the segments whose places can be known at one time: all, when no
    /// named container is gone.
    pub(crate) fn expect(
        &mut self,
        segments: Range<SegmentNumber>,
        are_all: bool,
    ) -> Result<SegmentNumber, RepositoryError> {
        let Some(resolved) = self.resolved.clone().filter(|_| self.chunks.moved.has_gone()) else {
            return Ok(segments.end);
        };
        resolved.expect(std::slice::from_ref(&segments), are_all);
        let known = |at: SegmentNumber| resolved.through(at..segments.end, self.chunks.moved.changes());
        let mut at = known(segments.start);
        if at == segments.start && at < segments.end {
            self.resolve(&resolved, at, &mut [])?;
            at = resolved.through(at..segments.end, self.chunks.moved.changes());
        }
        Ok(at.max(segments.start.saturating_add(1)).min(segments.end))
    }

    /// Announces that only these segments will be read, in rising order.
    pub fn expect_these(&mut self, segments: &[Range<SegmentNumber>]) {
        if let Some(resolved) = &self.resolved {
            resolved.expect(segments, true);
        }
    }

    /// Resolves the chunks of a segment whose containers are gone, together with those of segments
    /// that will be read later. Sets the records of the first to their places: other threads may
    /// drop the kept answers at any time.
    fn resolve(
        &mut self,
        resolved: &Resolved,
        first: SegmentNumber,
        records: &mut [ChunkRecord],
    ) -> Result<(), RepositoryError> {
        for _ in 0..RESOLVES_MAX {
            // Another thread may learn of more containers that are gone. Answers that do not
            // consider them must not count for the new state.
            let changes = self.chunks.moved.changes();
            self.resolve_once(resolved, first, records)?;
            if self.chunks.moved.changes() == changes {
                break;
            }
        }
        Ok(())
    }

    fn resolve_once(
        &mut self,
        resolved: &Resolved,
        first: SegmentNumber,
        records: &mut [ChunkRecord],
    ) -> Result<(), RepositoryError> {
        let moved = self.chunks.moved.clone();
        let (changes, most) = (moved.changes(), moved.sought_max());
        let (mut sought, mut segments) = (Vec::with_capacity(most), Vec::new());
        let ahead = resolved.ahead(first, self.segments());
        'all: for number in ahead.into_iter().flatten() {
            if number != first && resolved.through(number..number + 1, changes) != number {
                continue;
            }
            let read = match self.segment_ref(number) {
                Ok(Some((reference, _))) if !segments.is_empty() && sought.len() + reference.chunks as usize > most => {
                    break 'all;
                }
                Ok(Some((reference, _))) if self.chunks.may_have_gone(&reference) => {
                    read_segment(&self.chunks, &reference)
                }
                Ok(_) => {
                    segments.push(number);
                    continue;
                }
                Err(error) => Err(error),
            };
            match read {
                Ok(segment) => {
                    let records = segment.records.iter().map(|record| &record.chunk).zip(0u32..);
                    let gone = records.filter(|(chunk, _)| moved.is_gone(&chunk.container));
                    sought.extend(gone.map(|(chunk, at)| Sought::new(chunk, number, at)));
                    segments.push(number);
                }
                // A reader that continues until there will meet it.
                Err(error) if error.is_damage() => segments.push(number),
                Err(error) => return Err(error),
            }
        }
        let found = moved.resolve(&mut sought)?;
        for chunk in sought.iter().filter(|chunk| chunk.group == first) {
            if let (Some(record), Some(place)) = (records.get_mut(chunk.at as usize), chunk.place(&found)) {
                (record.chunk.container, record.chunk.offset) = place;
            }
        }
        resolved.put(changes, most, &segments, &mut sought, &found);
        Ok(())
    }

    /// The records of a segment that a node of this stream lists.
    pub fn records_of(&self, segment: &SegmentRef) -> Result<Arc<Vec<ChunkRecord>>, RepositoryError> {
        let mut segment = read_segment(&self.chunks, segment)?;
        self.chunks.moved.redirect(segment.records.iter_mut().map(|record| &mut record.chunk))?;
        Ok(Arc::new(segment.records))
    }

    /// The segment that holds the stream byte at `offset`, and the stream offset at which that
    /// segment begins.
    pub fn segment_at(&mut self, offset: u64) -> Result<Option<(SegmentNumber, u64)>, RepositoryError> {
        if offset >= self.bytes() {
            return Ok(None);
        }
        let number = self.node_starts.partition_point(|start| *start <= offset) - 1;
        let node = self.node(number)?;
        let place = node.starts.partition_point(|start| *start <= offset) - 1;
        Ok(Some((self.node_segments[number] + place as u32, node.starts[place])))
    }

    /// The segment that holds the stream byte at `offset`.
    pub(crate) fn segment_around(&mut self, offset: u64) -> Result<Option<SegmentPlace>, RepositoryError> {
        let Some((number, start)) = self.segment_at(offset)? else { return Ok(None) };
        let Some((node, place)) = self.node_of(number) else { return Ok(None) };
        let node = self.node(node)?;
        let Some(segment) = node.segments.get(place) else { return Ok(None) };
        Ok(Some(SegmentPlace { number, start, end: start + segment.bytes, fingerprint: segment.chunk.fingerprint }))
    }

    /// Whether any chunk that a segment uses may be in one of these containers.
    pub fn lies_in(
        &self,
        segment: &SegmentRef,
        is_one: impl Fn(&ContainerId) -> bool,
    ) -> Result<bool, RepositoryError> {
        self.chunks.lie_in(segment.uses.iter().map(|used| used.container), is_one)
    }

    /// The metadata chunks that the records of a metadata stream reference.
    pub fn chunks(&self) -> &MetaChunks {
        &self.chunks
    }
}

/// Reads, decodes and verifies a segment. Chunks that are only named are set to their places,
/// except those whose containers are gone.
fn read_segment(chunks: &MetaChunks, reference: &SegmentRef) -> Result<Segment, RepositoryError> {
    let mut segment = chunks.segment(reference)?;
    chunks.resolver.place(&chunks.moved, &mut segment.records.iter_mut().map(|record| &mut record.chunk))?;
    Ok(segment)
}

/// The error for metadata that does not decode: it names the container of the chunk.
pub fn damaged(chunk: &ChunkRef, source: larder_format::DecodeError) -> RepositoryError {
    RepositoryError::Damaged { name: names::container(chunk.container), source }
}

/// The records of a stream from some offset on, in order.
#[derive(Debug)]
pub struct RecordCursor {
    reader: RecipeReader,
    segment: SegmentNumber,
    records: Arc<Vec<ChunkRecord>>,
    record: usize,
    /// Stream offset of the next record.
    offset: u64,
}

impl RecordCursor {
    pub(crate) fn new(reader: RecipeReader) -> Self {
        Self { reader, segment: 0, records: Arc::default(), record: 0, offset: 0 }
    }

    /// Stream offset of the next record.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The segment of the last returned record, that record's place in it, and all its records.
    pub(crate) fn last(&self) -> (SegmentNumber, usize, &Arc<Vec<ChunkRecord>>) {
        (self.segment.saturating_sub(1), self.record.saturating_sub(1), &self.records)
    }

    /// The recipe that the cursor reads.
    pub fn reader(&mut self) -> &mut RecipeReader {
        &mut self.reader
    }

    /// Goes to the record that begins at `offset`; `false` when none does (or it is behind the
    /// end).
    pub fn seek(&mut self, offset: u64) -> Result<bool, RepositoryError> {
        if offset == self.offset && self.record < self.records.len() {
            return Ok(true);
        }
        let Some((segment, start)) = self.reader.segment_at(offset)? else {
            self.records = Arc::default();
            self.record = 0;
            self.segment = self.reader.segments();
            self.offset = self.reader.bytes();
            return Ok(offset == self.offset);
        };
        if segment + 1 != self.segment || self.records.is_empty() || offset < self.offset {
            self.records = self.reader.segment(segment)?;
        }
        self.segment = segment + 1;
        self.record = 0;
        self.offset = start;
        while self.offset < offset {
            let Some(record) = self.records.get(self.record) else { break };
            self.offset += u64::from(record.chunk.size);
            self.record += 1;
        }
        Ok(self.offset == offset)
    }

    /// The last returned record, as its segment has it now: places may have changed.
    pub(crate) fn again(&mut self) -> Result<Option<ChunkRecord>, RepositoryError> {
        let Some(segment) = self.segment.checked_sub(1) else { return Ok(None) };
        self.records = self.reader.segment(segment)?;
        Ok(self.record.checked_sub(1).and_then(|record| self.records.get(record)).copied())
    }

    /// Forgets the segment at hand: its places may have changed.
    pub fn read_again(&mut self) {
        self.records = Arc::default();
        self.record = 0;
    }

    /// The next record.
    pub fn next_record(&mut self) -> Result<Option<ChunkRecord>, RepositoryError> {
        while self.record >= self.records.len() {
            if self.segment >= self.reader.segments() {
                return Ok(None);
            }
            self.records = self.reader.segment(self.segment)?;
            self.segment += 1;
            self.record = 0;
        }
        let record = self.records[self.record];
        self.record += 1;
        self.offset += u64::from(record.chunk.size);
        Ok(Some(record))
    }
}

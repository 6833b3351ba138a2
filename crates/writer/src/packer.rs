//! Fills containers with new chunks: chunks into frames, frames sealed by the pool, containers
//! uploaded when complete.
//!
//! A chunk's place is known at once, because payload offsets count uncompressed bytes; whether its
//! container has reached the store is known at the end. Nothing here commits: a crash leaves at
//! most containers under this job's prefix.
//!
//! Invariant: chunks keep the order in which they came; the restore counts on finding neighbours
//! together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use larder_chunking::pages::PAGE_CUT;
use larder_format::compress::{Compressor, ContentHint};
use larder_format::container::{
    ChunkEntry, ChunkKind, ChunkRef, CompressedFrame, ContainerBuilder, ContainerSealer, LIFECYCLE_PAYLOAD,
    META_FRAME_TARGET, SealedFrame, seal_compressed, seal_frame,
};
use larder_format::ids::{ContainerId, ContainerKind, DomainId, JobId};
use larder_format::layout::Layout;
use larder_format::{EncodeError, Fingerprint};
use larder_store::RepositoryError;
use larder_store::repository::random;
use parking_lot::Mutex;

use crate::container_totals::ContainerTotals;
use crate::pool::PoolHandle;
use crate::uploads::Uploads;
use crate::write_budget::WriteBudget;

/// The receiver of full frames.
#[derive(Debug, Clone)]
pub enum Destination {
    /// Sealed and uploaded.
    Store {
        /// Seals.
        pool: PoolHandle,
        /// Uploads.
        uploads: Arc<Uploads>,
    },
    /// Nothing: a dry run only counts.
    Nowhere,
}

/// See the module header.
#[derive(Debug)]
pub struct Packer {
    destination: Destination,
    kind: ContainerKind,
    job: JobId,
    /// Whose metadata the containers hold; that of the key in use unless told otherwise.
    domain: DomainId,
    next_seq: Arc<AtomicU32>,
    open: Option<Open>,
    ratio: Arc<Ratio>,
    budget: WriteBudget,
    /// The content of the chunks; `None`: judged by their sizes.
    hint: Option<ContentHint>,
    payload_min: usize,
    payload_max: usize,
    /// Whether passes read the containers again, so that they stay in the class of the bucket.
    stays_warm: bool,
}

/// Uncompressed and sealed bytes so far: tells how much payload makes a container of the target
/// size.
#[derive(Debug, Default)]
struct Ratio {
    raw: AtomicU64,
    sealed: AtomicU64,
}

impl Ratio {
    fn payload_target(&self, budget: &WriteBudget) -> usize {
        let (raw, sealed) = (self.raw.load(Ordering::Relaxed), self.sealed.load(Ordering::Relaxed));
        if sealed == 0 {
            return budget.container_target;
        }
        let target = (budget.container_target as u128 * u128::from(raw) / u128::from(sealed)) as usize;
        target.clamp(budget.container_target, budget.payload_max)
    }
}

#[derive(Debug)]
struct Open {
    id: ContainerId,
    /// `None` in a dry run.
    assembly: Option<Arc<Assembly>>,
    chunks: Vec<ChunkEntry>,
    payload: usize,
    frame: Vec<u8>,
    /// Chunks before this frame.
    chunks_before: usize,
    frames: u32,
    payload_target: usize,
}

/// A container as its frames come out of the pool, in any order. They are put together at once:
/// frames beside the object that they become would take its memory twice.
#[derive(Debug)]
struct Assembly {
    id: ContainerId,
    sealer: ContainerSealer,
    state: Mutex<Frames>,
    /// Memory for the object (bytes). A longer one is moved.
    room: usize,
    stays_warm: bool,
}

#[derive(Debug, Default)]
struct Frames {
    /// The frames up to the first that is missing.
    object: Option<ContainerBuilder>,
    /// How many these are, and the bytes that are reserved for them.
    appended: usize,
    accounted: usize,
    /// All others. Those of the object are `None`.
    sealed: Vec<Option<SealedFrame>>,
    missing: usize,
    /// Set when the packer has closed the container: its chunk table.
    chunks: Option<Vec<ChunkEntry>>,
}

impl Frames {
    /// Takes a frame, and appends those that now follow each other.
    fn add(&mut self, number: u32, frame: SealedFrame, room: usize) {
        self.sealed[number as usize] = Some(frame);
        self.missing -= 1;
        while let Some(next) = self.sealed.get_mut(self.appended).and_then(Option::take) {
            self.appended += 1;
            self.accounted += next.bytes.len().min(next.entry.raw_len as usize);
            self.object.get_or_insert_with(|| ContainerBuilder::with_room(room, 0)).push_frame(&next);
        }
    }
}

/// Payload bytes at which a frame of such a container is closed.
fn frame_target(kind: ContainerKind, budget: &WriteBudget) -> usize {
    match kind {
        ContainerKind::Data => budget.frame_target,
        ContainerKind::Meta => META_FRAME_TARGET.min(budget.frame_target),
    }
}

/// Memory for a frame: with the end of its last chunk.
fn frame_room(kind: ContainerKind, budget: &WriteBudget) -> usize {
    frame_target(kind, budget) + frame_target(kind, budget) / 8
}

impl Packer {
    /// A packer for containers of this kind of a job. They are numbered from 0.
    pub fn new(destination: Destination, kind: ContainerKind, job: JobId) -> Self {
        let (domain, budget) = match &destination {
            Destination::Store { uploads, .. } => (uploads.repository().keys().domain(), uploads.budget()),
            Destination::Nowhere => (DomainId::DEFAULT, WriteBudget::default()),
        };
        Self {
            destination,
            kind,
            job,
            domain,
            next_seq: Arc::default(),
            open: None,
            ratio: Arc::default(),
            hint: Some(ContentHint::Any),
            payload_min: budget.container_target,
            payload_max: budget.payload_max,
            stays_warm: false,
            budget,
        }
    }

    /// The same for containers of another domain than that of the key in use.
    pub fn of_domain(self, domain: DomainId) -> Self {
        Self { domain, ..self }
    }

    /// Fills containers as a layout has them. Writers of data containers ask for it, because this
    /// module decides their size. Those of the layout `lifecycle` stay in the storage class of the
    /// bucket: the next passes arrange them.
    pub fn for_layout(self, layout: Layout) -> Self {
        let payload_min = self.budget.payload_min(layout);
        let stays_warm = layout == Layout::Lifecycle;
        Self { payload_min, payload_max: self.payload_max.max(payload_min), stays_warm, ..self }
    }

    /// Another one of the same job and kind, which fills containers of its own, as the layout
    /// `lifecycle` has them. Sizes are exact, since several are open at once.
    pub fn beside(&self) -> Self {
        Self { payload_min: LIFECYCLE_PAYLOAD, payload_max: LIFECYCLE_PAYLOAD, stays_warm: true, ..self.second() }
    }

    /// Whether the containers that are begun from now on are finished: no later pass reads them, so
    /// they get the storage class that was chosen for data.
    pub fn settle(&mut self, is_settled: bool) {
        self.stays_warm = !is_settled;
    }

    /// Another one of the same job and kind. It fills containers of its own, as large as those of
    /// this one.
    pub fn second(&self) -> Self {
        let (destination, ratio) = (self.destination.clone(), self.ratio.clone());
        Self { destination, next_seq: self.next_seq.clone(), open: None, ratio, ..*self }
    }

    /// What comes now belongs to this domain. Begins a container if the open one belongs to another
    /// (`MetaInDomain`).
    pub fn change_domain(&mut self, domain: DomainId) -> Result<(), RepositoryError> {
        if domain != self.domain {
            self.close()?;
            self.domain = domain;
        }
        Ok(())
    }

    /// Numbers containers from here on.
    pub fn number_from(&mut self, next: u32) {
        self.next_seq.store(next, Ordering::Relaxed);
    }

    /// The number that the next container gets.
    pub fn next_number(&self) -> u32 {
        self.next_seq.load(Ordering::Relaxed)
    }

    /// The chunks that come now are of this.
    pub fn expect(&mut self, hint: ContentHint) {
        self.hint = Some(hint);
    }

    /// From now on, the sizes of chunks decide what their content is taken for.
    pub fn guess_hint(&mut self) {
        self.hint = None;
    }

    /// The container that is being filled.
    fn open(&mut self) -> Result<&mut Open, RepositoryError> {
        if self.open.is_none() {
            self.open = Some(self.begin()?);
        }
        Ok(self.open.as_mut().expect("it was begun"))
    }

    fn begin(&self) -> Result<Open, RepositoryError> {
        let seq = self.next_seq.fetch_add(1, Ordering::Relaxed);
        let id = ContainerId { kind: self.kind, job: self.job, seq };
        let mut payload_target = self.ratio.payload_target(&self.budget).clamp(self.payload_min, self.payload_max);
        let mut assembly = None;
        if let Destination::Store { uploads, .. } = &self.destination {
            let repository = uploads.repository();
            let random = random(repository.entropy())?;
            let sealer = ContainerSealer::new(repository.keys(), id, self.domain, random)?;
            // Its frames, the end of the last one, and tables.
            let room = self.budget.container_target.max(self.payload_min);
            let room = room + room / 16 + frame_room(self.kind, &self.budget);
            let (state, stays_warm) = (Mutex::default(), self.stays_warm);
            assembly = Some(Arc::new(Assembly { id, sealer, state, room, stays_warm }));
            uploads.opened(id);
            payload_target = repository.container_payload().unwrap_or(payload_target);
        }
        Ok(Open {
            id,
            assembly,
            chunks: Vec::new(),
            payload: 0,
            frame: Vec::with_capacity(frame_room(id.kind, &self.budget)),
            chunks_before: 0,
            frames: 0,
            payload_target,
        })
    }

    /// Appends a chunk and says where it will be.
    pub fn push(&mut self, fingerprint: Fingerprint, chunk: &[u8]) -> Result<ChunkRef, RepositoryError> {
        // A chunk never spans two frames, and a frame target is far below the largest frame a
        // reader accepts.
        let budget = self.budget;
        let open = self.open()?;
        let place = ChunkRef { fingerprint, container: open.id, offset: open.payload as u32, size: chunk.len() as u32 };
        open.chunks.push(ChunkEntry { fingerprint, size: place.size, kind: ChunkKind::Plain });
        open.frame.extend_from_slice(chunk);
        open.payload += chunk.len();
        let is_full = open.frame.len() >= frame_target(open.id.kind, &budget);
        if is_full {
            self.seal_frame()?;
        }
        self.close_if_full()?;
        Ok(place)
    }

    /// Appends a frame as it was compressed, which holds exactly these chunks, and says where they
    /// will be. The caller has read them out of these bytes.
    pub fn push_frame(
        &mut self,
        chunks: &[ChunkRef],
        frame: CompressedFrame,
    ) -> Result<Vec<ChunkRef>, RepositoryError> {
        // Offsets of earlier chunks are given out: it cannot grow any more.
        self.seal_frame()?;
        let open = self.open()?;
        let mut places = Vec::with_capacity(chunks.len());
        for ChunkRef { fingerprint, size, .. } in chunks {
            places.push(ChunkRef {
                fingerprint: *fingerprint,
                container: open.id,
                offset: open.payload as u32,
                size: *size,
            });
            open.chunks.push(ChunkEntry { fingerprint: *fingerprint, size: *size, kind: ChunkKind::Plain });
            open.payload += *size as usize;
        }
        let raw_len = frame.raw_len as usize;
        self.seal_with(raw_len, move |sealer, number, _| seal_compressed(sealer, number, frame))?;
        self.close_if_full()?;
        Ok(places)
    }

    fn close_if_full(&mut self) -> Result<(), RepositoryError> {
        match self.open.as_ref().is_some_and(|open| open.payload >= open.payload_target) {
            true => self.close(),
            false => Ok(()),
        }
    }

    /// Closes the open container, if there is one. Its upload goes on in the background.
    pub fn close(&mut self) -> Result<(), RepositoryError> {
        self.seal_frame()?;
        let Some(open) = self.open.take() else { return Ok(()) };
        if let (Destination::Store { uploads, .. }, Some(assembly)) = (&self.destination, &open.assembly) {
            assembly.state.lock().chunks = Some(open.chunks);
            finish_if_complete(assembly, uploads);
        }
        Ok(())
    }

    fn seal_frame(&mut self) -> Result<(), RepositoryError> {
        let Some(open) = self.open.as_mut().filter(|open| !open.frame.is_empty()) else { return Ok(()) };
        if matches!(self.destination, Destination::Nowhere) {
            open.frame.clear();
            open.frames += 1;
            return Ok(());
        }
        let hint = self.hint.unwrap_or_else(|| hint_of(&open.chunks[open.chunks_before..]));
        let raw = std::mem::replace(&mut open.frame, Vec::with_capacity(frame_room(open.id.kind, &self.budget)));
        let chunks = open.chunks[open.chunks_before..].to_vec();
        self.seal_with(raw.len(), move |sealer, number, compressor| {
            compressor.expect(hint);
            seal_frame(sealer, number, &raw, &chunks, compressor)
        })
    }

    /// Gives the next frame of the open container, of this number of uncompressed bytes, to a
    /// thread that seals it.
    fn seal_with(
        &mut self,
        raw_len: usize,
        seal: impl FnOnce(&ContainerSealer, u32, &mut Compressor) -> Result<SealedFrame, EncodeError> + Send + 'static,
    ) -> Result<(), RepositoryError> {
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        let number = open.frames;
        open.frames += 1;
        open.chunks_before = open.chunks.len();
        let (Destination::Store { pool, uploads }, Some(assembly)) = (&self.destination, &open.assembly) else {
            return Ok(());
        };
        uploads.take(raw_len)?;
        {
            let mut state = assembly.state.lock();
            state.sealed.push(None);
            state.missing += 1;
        }
        let (assembly, uploads, ratio) = (assembly.clone(), uploads.clone(), self.ratio.clone());
        pool.urgent(move |worker| {
            let frame = match seal(&assembly.sealer, number, &mut worker.compressor) {
                Ok(frame) => frame,
                Err(error) => return uploads.fail(error.into()),
            };
            // A frame that cannot be compressed grows by its tag; that little is not accounted for.
            uploads.give_back(raw_len.saturating_sub(frame.bytes.len()));
            ratio.raw.fetch_add(raw_len as u64, Ordering::Relaxed);
            ratio.sealed.fetch_add(frame.bytes.len() as u64, Ordering::Relaxed);
            assembly.state.lock().add(number, frame, assembly.room);
            finish_if_complete(&assembly, &uploads);
        });
        Ok(())
    }
}

/// The content of chunks, judged by their sizes: cutting by content never makes all sizes equal.
fn hint_of(chunks: &[ChunkEntry]) -> ContentHint {
    let pages = chunks.iter().filter(|chunk| chunk.size == PAGE_CUT).count();
    // Streams of pages may end within one.
    if pages > 1 && pages + 1 >= chunks.len() { ContentHint::Pages } else { ContentHint::Any }
}

/// Puts the container together once it is closed and all its frames are sealed; the thread that
/// completes this does it.
fn finish_if_complete(assembly: &Arc<Assembly>, uploads: &Arc<Uploads>) {
    let (chunks, builder, accounted) = {
        let mut state = assembly.state.lock();
        if state.missing > 0 {
            return;
        }
        let Some(chunks) = state.chunks.take() else { return };
        (chunks, state.object.take().unwrap_or_default(), state.accounted)
    };
    let bytes = chunks.iter().map(|chunk| u64::from(chunk.size)).sum();
    match builder.finish(&assembly.sealer, &chunks, uploads.repository().config().padding()) {
        Ok(object) => {
            let held = ContainerTotals { chunks: chunks.len() as u32, bytes, object_bytes: object.len() as u64 };
            uploads.upload(assembly.id, object, accounted, held, assembly.stays_warm);
        }
        Err(error) => uploads.fail(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use larder_format::compress::Codec;
    use larder_format::container::FrameEntry;

    use super::*;

    #[test]
    fn frames_in_any_order_are_put_together_in_theirs() {
        let frame = |number: u32| {
            let bytes = vec![0; number as usize + 1];
            let entry = FrameEntry { codec: Codec::Raw, raw_len: number, sealed_len: number + 1 };
            SealedFrame { entry, bytes }
        };
        let mut frames = Frames { sealed: (0..4).map(|_| None).collect(), missing: 4, ..Frames::default() };
        for (number, bytes) in [(2, 0), (0, 1), (1, 1 + 2 + 3), (3, 1 + 2 + 3 + 4)] {
            frames.add(number, frame(number), 100);
            let object = frames.object.as_ref().map_or(0, ContainerBuilder::object_len);
            assert_eq!(object, bytes, "with frame {number}");
        }
        assert_eq!((frames.missing, frames.appended, frames.accounted), (0, 4, 1 + 2 + 3));
        assert!(frames.sealed.iter().all(Option::is_none), "nothing is held twice");
    }

    #[test]
    fn pages_are_known_by_their_sizes() {
        let chunks = |sizes: &[u32]| -> Vec<_> {
            let entry = |size| ChunkEntry { fingerprint: Fingerprint([0; 32]), size, kind: ChunkKind::Plain };
            sizes.iter().copied().map(entry).collect()
        };
        for pages in [&[PAGE_CUT; 3][..], &[PAGE_CUT, PAGE_CUT, 1000]] {
            assert_eq!(hint_of(&chunks(pages)), ContentHint::Pages, "{pages:?}");
        }
        for others in [&[][..], &[PAGE_CUT], &[PAGE_CUT, 1000, 5000, PAGE_CUT], &[3000, 5000]] {
            assert_eq!(hint_of(&chunks(others)), ContentHint::Any, "{others:?}");
        }
    }
}

//! Fills containers with new chunks: chunks into frames, frames sealed by the pool, containers uploaded when complete.
//!
//! A chunk's place is known at once, because payload offsets count uncompressed bytes; whether its container has reached the
//! store is known at the end. Nothing here commits: a crash leaves at most containers under this job's prefix.
//!
//! Invariant: chunks keep the order in which they came; the restore counts on finding neighbours together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use larder_format::Fingerprint;
use larder_format::compress::Matter;
use larder_format::container::{
    CONTAINER_TARGET, ChunkEntry, ChunkKind, ChunkRef, ContainerBuilder, FRAME_TARGET, SealedFrame, seal_frame,
};
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use larder_store::RepositoryError;
use parking_lot::Mutex;

use super::pool::PoolHandle;
use super::uploads::Uploads;

/// Payload bytes at which a container is closed however well it compresses.
pub(crate) const PAYLOAD_MAX: usize = 4 * CONTAINER_TARGET;
/// The same where many are open at once.
pub(crate) const BESIDE_PAYLOAD_MAX: usize = 2 * CONTAINER_TARGET;

/// What is done with full frames.
#[derive(Debug, Clone)]
pub(crate) enum Destination {
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
pub(crate) struct Packer {
    destination: Destination,
    kind: ContainerKind,
    job: JobId,
    next_seq: Arc<AtomicU32>,
    open: Option<Open>,
    ratio: Arc<Ratio>,
    matter: Matter,
    payload_max: usize,
}

/// Uncompressed and sealed bytes so far: tells how much payload makes a container of the target size.
#[derive(Debug, Default)]
struct Ratio {
    raw: AtomicU64,
    sealed: AtomicU64,
}

impl Ratio {
    fn payload_target(&self) -> usize {
        let (raw, sealed) = (self.raw.load(Ordering::Relaxed), self.sealed.load(Ordering::Relaxed));
        if sealed == 0 {
            return CONTAINER_TARGET;
        }
        let target = (CONTAINER_TARGET as u128 * u128::from(raw) / u128::from(sealed)) as usize;
        target.clamp(CONTAINER_TARGET, PAYLOAD_MAX)
    }
}

#[derive(Debug)]
struct Open {
    id: ContainerId,
    assembly: Arc<Assembly>,
    chunks: Vec<ChunkEntry>,
    payload: usize,
    frame: Vec<u8>,
    frames: u32,
    payload_target: usize,
}

/// Frames of one container as they come out of the pool, in any order.
#[derive(Debug)]
struct Assembly {
    id: ContainerId,
    state: Mutex<Frames>,
}

#[derive(Debug, Default)]
struct Frames {
    sealed: Vec<Option<SealedFrame>>,
    missing: usize,
    /// Set when the packer has closed the container: its chunk table.
    chunks: Option<Vec<ChunkEntry>>,
}

impl Packer {
    pub(crate) fn new(destination: Destination, kind: ContainerKind, job: JobId) -> Self {
        Self {
            destination,
            kind,
            job,
            next_seq: Arc::default(),
            open: None,
            ratio: Arc::default(),
            matter: Matter::Any,
            payload_max: PAYLOAD_MAX,
        }
    }

    /// Another one of the same job and kind, which fills containers of its own.
    pub(crate) fn beside(&self) -> Self {
        let (destination, ratio) = (self.destination.clone(), self.ratio.clone());
        Self {
            destination,
            next_seq: self.next_seq.clone(),
            open: None,
            ratio,
            payload_max: BESIDE_PAYLOAD_MAX,
            ..*self
        }
    }

    /// Numbers containers from here on.
    pub(crate) fn number_from(&mut self, next: u32) {
        self.next_seq.store(next, Ordering::Relaxed);
    }

    /// The number that the next container gets.
    pub(crate) fn next_number(&self) -> u32 {
        self.next_seq.load(Ordering::Relaxed)
    }

    /// The chunks that come now are of this.
    pub(crate) fn expect(&mut self, matter: Matter) {
        self.matter = matter;
    }

    /// Appends a chunk and says where it will be.
    pub(crate) fn push(&mut self, fingerprint: Fingerprint, chunk: &[u8]) -> Result<ChunkRef, RepositoryError> {
        // A chunk never spans two frames, and a frame target is far below the largest frame a reader accepts.
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let seq = self.next_seq.fetch_add(1, Ordering::Relaxed);
                let id = ContainerId { kind: self.kind, job: self.job, seq };
                if let Destination::Store { uploads, .. } = &self.destination {
                    uploads.opened();
                }
                let assembly = Arc::new(Assembly { id, state: Mutex::default() });
                let payload_target = self.ratio.payload_target().min(self.payload_max);
                self.open.insert(Open {
                    id,
                    assembly,
                    chunks: Vec::new(),
                    payload: 0,
                    frame: Vec::with_capacity(FRAME_TARGET + FRAME_TARGET / 8),
                    frames: 0,
                    payload_target,
                })
            }
        };
        let place = ChunkRef { fingerprint, container: open.id, offset: open.payload as u32, size: chunk.len() as u32 };
        open.chunks.push(ChunkEntry { fingerprint, size: place.size, kind: ChunkKind::Plain });
        open.frame.extend_from_slice(chunk);
        open.payload += chunk.len();
        if open.frame.len() >= FRAME_TARGET {
            self.seal_frame()?;
        }
        if self.open.as_ref().is_some_and(|open| open.payload >= open.payload_target) {
            self.close()?;
        }
        Ok(place)
    }

    /// Closes the open container, if there is one. Its upload goes on in the background.
    pub(crate) fn close(&mut self) -> Result<(), RepositoryError> {
        self.seal_frame()?;
        let Some(open) = self.open.take() else { return Ok(()) };
        if let Destination::Store { uploads, .. } = &self.destination {
            open.assembly.state.lock().chunks = Some(open.chunks);
            finish_if_complete(&open.assembly, uploads);
        }
        Ok(())
    }

    fn seal_frame(&mut self) -> Result<(), RepositoryError> {
        let Some(open) = self.open.as_mut().filter(|open| !open.frame.is_empty()) else { return Ok(()) };
        let number = open.frames;
        open.frames += 1;
        let Destination::Store { pool, uploads } = &self.destination else {
            open.frame.clear();
            return Ok(());
        };
        let raw = std::mem::replace(&mut open.frame, Vec::with_capacity(FRAME_TARGET + FRAME_TARGET / 8));
        uploads.take(raw.len())?;
        {
            let mut state = open.assembly.state.lock();
            state.sealed.push(None);
            state.missing += 1;
        }
        let (assembly, uploads, ratio, matter) =
            (open.assembly.clone(), uploads.clone(), self.ratio.clone(), self.matter);
        pool.urgent(move |worker| {
            worker.compressor.expect(matter);
            let keys = uploads.repository().keys();
            let frame = match seal_frame(keys, assembly.id, number, &raw, &mut worker.compressor) {
                Ok(frame) => frame,
                Err(error) => return uploads.fail(error.into()),
            };
            // A frame that cannot be compressed grows by its tag; that little is not accounted for.
            uploads.give_back(raw.len().saturating_sub(frame.bytes.len()));
            ratio.raw.fetch_add(raw.len() as u64, Ordering::Relaxed);
            ratio.sealed.fetch_add(frame.bytes.len() as u64, Ordering::Relaxed);
            {
                let mut state = assembly.state.lock();
                state.sealed[number as usize] = Some(frame);
                state.missing -= 1;
            }
            finish_if_complete(&assembly, &uploads);
        });
        Ok(())
    }
}

/// Puts the container together once it is closed and all its frames are sealed; whoever makes that true does it.
fn finish_if_complete(assembly: &Arc<Assembly>, uploads: &Arc<Uploads>) {
    let (chunks, frames) = {
        let mut state = assembly.state.lock();
        if state.missing > 0 {
            return;
        }
        let Some(chunks) = state.chunks.take() else { return };
        (chunks, std::mem::take(&mut state.sealed))
    };
    let payload: usize = frames.iter().flatten().map(|frame| frame.bytes.len()).sum();
    let mut builder = ContainerBuilder::with_room(assembly.id, payload, chunks.len());
    let mut accounted = 0;
    for frame in frames.into_iter().flatten() {
        accounted += frame.bytes.len().min(frame.entry.raw_len as usize);
        builder.push_frame(&frame);
    }
    let bytes = chunks.iter().map(|chunk| u64::from(chunk.size)).sum();
    match builder.finish(uploads.repository().keys(), &chunks) {
        Ok(object) => uploads.upload(assembly.id, object, accounted, chunks.len() as u32, bytes),
        Err(error) => uploads.fail(error.into()),
    }
}

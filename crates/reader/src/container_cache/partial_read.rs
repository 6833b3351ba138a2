//! Reading a piece of a container: the frames that hold chunks which begin in a part of its
//! payload.
//!
//! Frames do not end where pieces do. The first piece that needs the frame on a border reads it for
//! both, and likewise the tables of the container. However small the pieces are, nothing is read
//! twice while they follow one another.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use larder_format::container::{ContainerIndex, FrameLocation};
use larder_format::ids::ContainerId;
use larder_store::container_reader::OpenContainer;
use larder_store::{Repository, RepositoryError};
use tokio::sync::OnceCell;

/// A sealed frame and its place in the object, once read.
pub(super) type Border = Arc<OnceCell<(u64, Bytes)>>;

/// See the module header.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) id: ContainerId,
    /// Where in the payload its chunks begin.
    pub(super) payload: Range<u32>,
    /// The frame that extends into it from the piece before.
    pub(super) front: Border,
    /// The frame that extends from it into the next piece.
    pub(super) back: Border,
    pub(super) tables: Arc<OnceCell<ContainerIndex>>,
}

impl Piece {
    /// Reads the wanted parts of it.
    pub(super) async fn read(
        &self,
        repository: &Repository,
        wanted: &[Range<u32>],
    ) -> Result<OpenContainer, RepositoryError> {
        let (mut cost, mut known) = (Cost::default(), Vec::new());
        let index = self.tables.get_or_try_init(|| async {
            let tail = repository.read_container_frames(self.id, &[]).await?;
            cost.add(&tail);
            // Must not stay in memory without use.
            if wanted.iter().flat_map(|range| tail.index.frames_of(range)).any(|frame| tail.holds(frame)) {
                known.extend(tail.sealed_parts().1.iter().cloned());
            }
            Ok::<_, RepositoryError>(tail.index)
        });
        let index = index.await?.clone();
        let front = border(&index, self.payload.start, wanted);
        let back = border(&index, self.payload.end, wanted);
        if let Some(front) = front {
            let read = self.front.get_or_try_init(|| async {
                let known = known.clone();
                let one = repository.read_more_frames(index.clone(), &[front.payload_range()], known).await?;
                cost.add(&one);
                sealed(&one, &front)
            });
            known.push(read.await?.clone());
        }
        let is_one = front.is_some_and(|front| back.is_some_and(|back| front.number == back.number));
        if let (true, Some(known)) = (is_one, known.last()) {
            // The frame is larger than the piece. The other setter has set the same frame.
            let _ = self.back.set(known.clone());
        }
        if let Some(back) = back.filter(|_| !is_one) {
            let mut all = None;
            let read = self.back.get_or_try_init(|| async {
                let read = repository.read_more_frames(index.clone(), wanted, known.clone()).await?;
                sealed(all.insert(read), &back)
            });
            known.push(read.await?.clone());
            if let Some(all) = all {
                return Ok(cost.of(all));
            }
        }
        Ok(cost.of(repository.read_more_frames(index, wanted, known).await?))
    }
}

/// The frame across a place in the payload, if any part of it is wanted.
fn border(index: &ContainerIndex, place: u32, wanted: &[Range<u32>]) -> Option<FrameLocation> {
    let frame = index.frame_at(place).filter(|frame| frame.payload_offset < place)?;
    let range = frame.payload_range();
    wanted.iter().any(|wanted| wanted.start < range.end && range.start < wanted.end).then_some(*frame)
}

/// A copy, so that it does not keep the rest of the read in memory.
fn sealed(container: &OpenContainer, frame: &FrameLocation) -> Result<(u64, Bytes), RepositoryError> {
    let bytes = container.sealed(frame).ok_or_else(|| RepositoryError::Damaged {
        name: larder_format::names::container(container.index.id),
        source: larder_format::DecodeError::Truncated { what: "frame" },
    })?;
    Ok((frame.object_range().start, Bytes::copy_from_slice(bytes)))
}

/// The cost of a read.
#[derive(Debug, Default)]
struct Cost {
    bytes: u64,
    requests: u32,
}

impl Cost {
    fn add(&mut self, read: &OpenContainer) {
        self.bytes += read.bytes_read;
        self.requests += read.requests;
    }

    /// With the cost of the last read.
    fn of(self, mut container: OpenContainer) -> OpenContainer {
        container.bytes_read += self.bytes;
        container.requests += self.requests;
        container
    }
}

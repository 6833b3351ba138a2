//! The records of the index's tables.
//!
//! | table      | key                                                        | value                                      |
//! |------------|------------------------------------------------------------|--------------------------------------------|
//! | chunks     | first 20 bytes of the fingerprint                          | u32 container number, u32 chunk number     |
//! | containers | container number, 4 bytes big-endian                       | [`ContainerFacts`]                         |
//! | extents    | id of a container, 21 bytes                                | [`Extents`](crate::extents::Extents)       |
//! | streams    | sample, 8 bytes big-endian, and 16 bytes of series key     | u32 version number                         |
//! | copies     | key of a chunk, and container number, 4 bytes big-endian   | u32 chunk number in the container          |
//!
//! Container facts:
//!
//! | field             | size     | meaning                                                                           |
//! |-------------------|---------:|-----------------------------------------------------------------------------------|
//! | version           |        1 | 1                                                                                 |
//! | kind              |        1 | 0 data, 1 metadata                                                                |
//! | state             |        1 | 0 live, 1 queued, 2 gone, 3 arranged; plus 16 in the layout `lifecycle`           |
//! | job               |       16 | its id, with                                                                      |
//! | numbers           |  varints | sequence in the job, chunks, bytes, object bytes, retired chunks, retired bytes |
//! | series            |  varint  | how many; for each                                                                |
//! | · key             |       16 | rising                                                                            |
//! | · lifespans       |  varint  | how many, at least 1; for each                                                    |
//! | · · first         |  varint  | version number, less the last one (or, at first, 0) of the lifespan before        |
//! | · · length        |  varint  | last version number less the first, plus 1; 0 = open, only in the last            |
//! | forwards          |  varint  | how many container numbers; each less the one before it, as a varint              |

use crate::ids::{ContainerId, ContainerKind, JobId, SeriesKey};
use crate::layout::Layout;
use crate::wire::{DecodeError, EncodeError, Put, Reader};
use larder_chunking::Fingerprint;

const FACTS: &str = "record of a container in the index";
/// Of the byte of the state: the container is one of a series in the layout `lifecycle`.
const LIFECYCLE: u8 = 16;

/// The key of a chunk: enough of its fingerprint that two of them never meet by chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkKey(pub [u8; 20]);

impl ChunkKey {
    /// The key of the chunk with this fingerprint.
    pub fn of(fingerprint: &Fingerprint) -> Self {
        let mut key = [0; 20];
        key.copy_from_slice(&fingerprint.0[..20]);
        Self(key)
    }
}

impl AsRef<[u8]> for ChunkKey {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The place of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkPlace {
    /// Number of the container in the index.
    pub container: u32,
    /// Number of the chunk in the container.
    pub chunk: u32,
}

impl ChunkPlace {
    /// Its 8 bytes.
    pub fn encode(&self) -> [u8; 8] {
        let mut out = [0; 8];
        out[..4].copy_from_slice(&self.container.to_le_bytes());
        out[4..].copy_from_slice(&self.chunk.to_le_bytes());
        out
    }

    /// Reads them.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, "place of a chunk in the index");
        let place = Self { container: reader.u32()?, chunk: reader.u32()? };
        reader.finish()?;
        Ok(place)
    }
}

/// The key of a copy of a chunk beside the one that the table of chunks has. Copies of one chunk
/// are neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyKey {
    /// The chunk.
    pub chunk: ChunkKey,
    /// Number of the container that holds the copy.
    pub container: u32,
}

impl CopyKey {
    /// Its 24 bytes.
    pub fn encode(&self) -> [u8; 24] {
        let mut out = [0; 24];
        out[..20].copy_from_slice(&self.chunk.0);
        out[20..].copy_from_slice(&self.container.to_be_bytes());
        out
    }

    /// Reads them.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, "key of a copy in the index");
        let key = Self { chunk: ChunkKey(reader.array()?), container: u32::from_be_bytes(reader.array()?) };
        reader.finish()?;
        Ok(key)
    }
}

/// The key of a sample of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// The sample: the first 8 bytes of a chunk's fingerprint, as in sketches.
    pub sample: u64,
    /// The series in which it was seen.
    pub series: SeriesKey,
}

impl StreamKey {
    /// Its 24 bytes. Keys of one sample share their first 8.
    pub fn encode(&self) -> [u8; 24] {
        let mut out = [0; 24];
        out[..8].copy_from_slice(&self.sample.to_be_bytes());
        out[8..].copy_from_slice(&self.series.0);
        out
    }

    /// Reads them.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, "key of a sample in the index");
        let key = Self { sample: u64::from_be_bytes(reader.array()?), series: SeriesKey(reader.array()?) };
        reader.finish()?;
        Ok(key)
    }
}

/// The state of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerState {
    /// It is there, and to stay.
    Live,
    /// Its deletion is decided and may be under way.
    Queued,
    /// It was retired with the index that says so first, and any program may delete it at any time.
    /// Its record stays while versions name it, to keep the containers that have its chunks now.
    Gone,
    /// As [`Self::Gone`], in the layout `lifecycle`. The record of its extents has the present
    /// places of its bytes, and the containers there have lifespans of their own.
    Arranged,
}

/// From when to when a series uses a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lifespan {
    /// Number of the first version that uses it.
    pub first: u32,
    /// Number of the last one; `None` as long as the newest version of the series that was ingested
    /// is one that does.
    pub last: Option<u32>,
}

impl Lifespan {
    /// Whether a version of the series with this number uses the container, as far as is known.
    pub fn contains(&self, version: u32) -> bool {
        self.first <= version && self.last.is_none_or(|last| version <= last)
    }
}

/// The lifespans of a container in one series.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeriesLifespans {
    /// The series.
    pub series: SeriesKey,
    /// Rising and apart from one another; at least one. Only the last may be open.
    pub lifespans: Vec<Lifespan>,
}

/// The record of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerFacts {
    /// Its name.
    pub id: ContainerId,
    /// Its state.
    pub state: ContainerState,
    /// The layout of the series that it is of. In the layout `lifecycle` it is of one series, and
    /// its chunks are in no other table.
    pub layout: Layout,
    /// Chunks in it.
    pub chunks: u32,
    /// Bytes of them, uncompressed.
    pub bytes: u64,
    /// Bytes of the object.
    pub object_bytes: u64,
    /// Chunks of it that were retired, because the index redirects to another copy.
    pub retired_chunks: u32,
    /// Bytes of those.
    pub retired_bytes: u64,
    /// Who uses it, by series in rising order.
    pub users: Vec<SeriesLifespans>,
    /// Numbers of the containers that have copies of its chunks, rising: they are kept as long as
    /// versions name this one. Of a container that is there only in an index that was rebuilt
    /// (`RebuiltKeepsCopies`). Of one that is arranged: those that have any of its extents.
    pub forwards: Vec<u32>,
}

impl ContainerFacts {
    /// Appends the value of its record.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check()?;
        out.put_u8(2);
        out.put_u8(match self.id.kind {
            ContainerKind::Data => 0,
            ContainerKind::Meta => 1,
        });
        let state = match self.state {
            ContainerState::Live => 0,
            ContainerState::Queued => 1,
            ContainerState::Gone => 2,
            ContainerState::Arranged => 3,
        };
        out.put_u8(match self.layout {
            Layout::Standard => state,
            Layout::Lifecycle => state | LIFECYCLE,
        });
        out.extend_from_slice(&self.id.job.0);
        out.put_varint(u64::from(self.id.seq));
        out.put_varint(u64::from(self.chunks));
        out.put_varint(self.bytes);
        out.put_varint(self.object_bytes);
        out.put_varint(u64::from(self.retired_chunks));
        out.put_varint(self.retired_bytes);
        out.put_varint(self.users.len() as u64);
        for user in &self.users {
            out.extend_from_slice(&user.series.0);
            out.put_varint(user.lifespans.len() as u64);
            let mut before = 0;
            for Lifespan { first, last } in &user.lifespans {
                out.put_varint(u64::from(first - before));
                out.put_varint(last.map_or(0, |last| u64::from(last - first) + 1));
                before = last.unwrap_or(*first);
            }
        }
        out.put_varint(self.forwards.len() as u64);
        let mut before = 0;
        for forward in &self.forwards {
            out.put_varint(u64::from(forward - before));
            before = *forward;
        }
        Ok(())
    }

    /// Reads the value of a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, FACTS);
        reader.version(2)?;
        let kind = match reader.u8()? {
            0 => ContainerKind::Data,
            1 => ContainerKind::Meta,
            _ => return Err(reader.invalid("unknown kind of container")),
        };
        let state = reader.u8()?;
        let layout = if state & LIFECYCLE == 0 { Layout::Standard } else { Layout::Lifecycle };
        let state = match state & !LIFECYCLE {
            0 => ContainerState::Live,
            1 => ContainerState::Queued,
            2 => ContainerState::Gone,
            3 => ContainerState::Arranged,
            _ => return Err(reader.invalid("unknown state of a container")),
        };
        let id = ContainerId { kind, job: JobId(reader.array()?), seq: reader.varint_u32()? };
        let (chunks, bytes, object_bytes) = (reader.varint_u32()?, reader.varint()?, reader.varint()?);
        let (retired_chunks, retired_bytes) = (reader.varint_u32()?, reader.varint()?);
        let count = reader.count(19)?;
        let mut users = Vec::with_capacity(count);
        for _ in 0..count {
            let series = SeriesKey(reader.array()?);
            users.push(SeriesLifespans { series, lifespans: decode_lifespans(&mut reader)? });
        }
        let count = reader.count(1)?;
        let mut forwards = Vec::with_capacity(count);
        let mut before = 0;
        for _ in 0..count {
            before = add(before, &mut reader)?;
            forwards.push(before);
        }
        reader.finish()?;
        let facts =
            Self { id, state, layout, chunks, bytes, object_bytes, retired_chunks, retired_bytes, users, forwards };
        facts.check()?;
        Ok(facts)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let invalid = |why| Err(DecodeError::invalid(FACTS, why));
        if self.retired_chunks > self.chunks || self.retired_bytes > self.bytes {
            return invalid("it retired more than it holds");
        }
        if self.state == ContainerState::Arranged && self.layout != Layout::Lifecycle {
            return invalid("it is arranged and of the standard layout");
        }
        if self.layout == Layout::Lifecycle && self.users.len() > 1 {
            return invalid("it is of more than one series");
        }
        if !self.users.is_sorted_by(|a, b| a.series < b.series) {
            return invalid("its series do not rise");
        }
        let apart = |a: &Lifespan, b: &Lifespan| a.last.is_some_and(|last| last < b.first);
        let whole = |span: &Lifespan| span.last.is_none_or(|last| span.first <= last);
        let are_valid = |user: &SeriesLifespans| {
            !user.lifespans.is_empty() && user.lifespans.is_sorted_by(apart) && user.lifespans.iter().all(whole)
        };
        if !self.users.iter().all(are_valid) {
            return invalid("its lifespans are not apart");
        }
        if !self.forwards.is_sorted_by(|a, b| a < b) {
            return invalid("its forwards do not rise");
        }
        Ok(())
    }
}

fn decode_lifespans(reader: &mut Reader<'_>) -> Result<Vec<Lifespan>, DecodeError> {
    let count = reader.count(2)?;
    let mut lifespans = Vec::with_capacity(count);
    let mut before = 0;
    for _ in 0..count {
        let first = add(before, reader)?;
        let last = match reader.varint()?.checked_sub(1) {
            None => None,
            Some(more) => {
                let more = u32::try_from(more).ok().and_then(|more| first.checked_add(more));
                Some(more.ok_or(reader.invalid("a number has more than 32 bits"))?)
            }
        };
        before = last.unwrap_or(first);
        lifespans.push(Lifespan { first, last });
    }
    Ok(lifespans)
}

fn add(before: u32, reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let step = reader.varint_u32()?;
    before.checked_add(step).ok_or(reader.invalid("a number has more than 32 bits"))
}

#[cfg(test)]
mod tests;

//! The records that tasks exchange. Numbers in keys are big-endian, those in values little-endian.
//!
//! | records     | key                                    | value                                     |
//! |-------------|----------------------------------------|-------------------------------------------|
//! | scan        | u64 number of the item                 | an item (`scan.rs`)                       |
//! | requests    | first 20 bytes of the fingerprint, at  | nothing                                   |
//! | answers     | at                                     | kind (u8), two u32 or an *at*             |
//! | waiters     | as of requests                         | *at* of the owner                         |
//! | placements  | as of requests, of the owner           | place                                     |
//! | resolutions | at                                     | kind (u8), place or zeros                 |
//!
//! Kinds of answers: 0 stored in a container and chunk number of the index, 1 owner (zeros), 2
//! waits for an *at*. Kinds of resolutions: 0 placed, 1 promoted, 2 asks again.
//!
//! *at*: u32 number of the image, u32 number of the chunk among those that it asks for. *place*:
//! the other 12 bytes of the fingerprint, u32 host, u32 sequence of the container in that host's
//! job, u32 payload offset, u32 size. A question without an answer is about a new chunk that nobody
//! else asked for: a lost record costs space alone.

use larder_chunking::Fingerprint;

use crate::fleet::OutputKind;
use crate::index_tables::{ChunkKey, ChunkPlace};
use crate::run::{RecordLayout, ValueWidth};
use crate::wire::{DecodeError, Put, Reader};

const WHAT: &str = "record of a fleet task";

/// A kind of records.
pub trait FleetRecord {
    /// The kind of an output of them.
    const KIND: OutputKind;
    /// Widths of key and value.
    const LAYOUT: RecordLayout;
}

macro_rules! record {
    ($(#[$doc:meta])* $name:ident, $kind:ident, $key:literal, $value:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl FleetRecord for $name {
            const KIND: OutputKind = OutputKind::$kind;
            const LAYOUT: RecordLayout = RecordLayout { key_len: $key, value: $value };
        }
    };
}

record!(
    /// Items of a scan.
    Scans, Scan, 8, ValueWidth::Variable
);
record!(
    /// Questions.
    Requests, Requests, 28, ValueWidth::Fixed(0)
);
record!(
    /// Answers.
    Answers, Answers, 8, ValueWidth::Fixed(9)
);
record!(
    /// Who waits for whom.
    Waiters, Waiters, 28, ValueWidth::Fixed(8)
);
record!(
    /// Places of stored chunks.
    Placements, Placements, 28, ValueWidth::Fixed(28)
);
record!(
    /// What became of those who wait.
    Resolutions, Resolutions, 8, ValueWidth::Fixed(29)
);

/// One question: which image, and the number of the chunk among those that it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// Number of the image.
    pub image: u32,
    /// Number of the question.
    pub number: u32,
}

impl At {
    /// Its 8 bytes, in whose order images and their questions sort.
    pub fn encode(self) -> [u8; 8] {
        let mut out = [0; 8];
        out[..4].copy_from_slice(&self.image.to_be_bytes());
        out[4..].copy_from_slice(&self.number.to_be_bytes());
        out
    }

    /// Reads them.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, WHAT);
        let at = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(at)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { image: u32::from_be_bytes(reader.array()?), number: u32::from_be_bytes(reader.array()?) })
    }
}

impl Requests {
    /// The key of a question.
    pub fn key(chunk: &ChunkKey, at: At) -> [u8; 28] {
        let mut out = [0; 28];
        out[..20].copy_from_slice(&chunk.0);
        out[20..].copy_from_slice(&at.encode());
        out
    }

    /// Reads it.
    pub fn parse(key: &[u8]) -> Result<(ChunkKey, At), DecodeError> {
        let mut reader = Reader::new(key, WHAT);
        let found = (ChunkKey(reader.array()?), At::read(&mut reader)?);
        reader.finish()?;
        Ok(found)
    }
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The index knows it there. A hint: the asker looks.
    Stored(ChunkPlace),
    /// The asker stores it, and others wait for it.
    Owner,
    /// Another one stores it.
    Waits(At),
}

impl Answer {
    /// The value of its record.
    pub fn encode(self) -> [u8; 9] {
        let mut out = [0; 9];
        match self {
            Self::Stored(place) => out[1..].copy_from_slice(&place.encode()),
            Self::Owner => out[0] = 1,
            Self::Waits(at) => {
                out[0] = 2;
                out[1..].copy_from_slice(&at.encode());
            }
        }
        out
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, rest) = bytes.split_first().ok_or(DecodeError::Truncated { what: WHAT })?;
        match kind {
            0 => ChunkPlace::decode(rest).map(Self::Stored),
            1 if rest == [0; 8] => Ok(Self::Owner),
            2 => At::decode(rest).map(Self::Waits),
            _ => Err(DecodeError::invalid(WHAT, "an unknown kind of answer")),
        }
    }
}

/// One that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// Whose chunk it waits for.
    pub owner: At,
}

impl Waiter {
    /// The value of its record.
    pub fn encode(self) -> [u8; 8] {
        self.owner.encode()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        At::decode(bytes).map(|owner| Self { owner })
    }
}

/// Where a chunk was stored by this batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The bytes of the fingerprint that are not in its key.
    pub rest: [u8; 12],
    /// Number of the host whose job stored it.
    pub host: u32,
    /// Sequence of the container in that job.
    pub seq: u32,
    /// Offset in the payload, in bytes.
    pub offset: u32,
    /// Size, in bytes.
    pub size: u32,
}

impl Placement {
    /// The bytes of a fingerprint that are not in its key.
    pub fn rest_of(fingerprint: &Fingerprint) -> [u8; 12] {
        let mut rest = [0; 12];
        rest.copy_from_slice(&fingerprint.0[20..]);
        rest
    }

    /// The value of its record.
    pub fn encode(&self) -> [u8; 28] {
        let mut out = Vec::with_capacity(28);
        out.extend_from_slice(&self.rest);
        [self.host, self.seq, self.offset, self.size].into_iter().for_each(|number| out.put_u32(number));
        let mut bytes = [0; 28];
        bytes.copy_from_slice(&out);
        bytes
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, WHAT);
        let rest = reader.array()?;
        let (host, seq, offset, size) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        reader.finish()?;
        Ok(Self { rest, host, seq, offset, size })
    }
}

/// What became of one that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// It was stored there. A hint: the asker compares the fingerprint.
    Placed(Placement),
    /// Its owner failed: it stores the chunk itself.
    Promoted,
    /// Its owner failed, and another one that waited stores it.
    Again,
}

impl Resolution {
    /// The value of its record.
    pub fn encode(&self) -> [u8; 29] {
        let mut out = [0; 29];
        match self {
            Self::Placed(placement) => out[1..].copy_from_slice(&placement.encode()),
            Self::Promoted => out[0] = 1,
            Self::Again => out[0] = 2,
        }
        out
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, rest) = bytes.split_first().ok_or(DecodeError::Truncated { what: WHAT })?;
        match kind {
            0 => Placement::decode(rest).map(Self::Placed),
            1 if rest == [0; 28] => Ok(Self::Promoted),
            2 if rest == [0; 28] => Ok(Self::Again),
            _ => Err(DecodeError::invalid(WHAT, "an unknown kind of resolution")),
        }
    }
}

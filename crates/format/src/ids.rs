//! Names of things: jobs, containers, series, repositories; and units.
//!
//! A job's id is a UUIDv7 so that listings sort roughly by time for people; nothing safe depends on
//! that order.

use std::fmt;
use std::str::FromStr;

/// A number of bytes, the unit of every size in Larder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
}

/// Text that is not the id it was read as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {what}")]
pub struct InvalidId {
    /// The expected kind: "job id", "series key", ...
    pub what: &'static str,
    /// The text that was found, in full: ids are short.
    pub text: String,
}

fn parse_hex<const N: usize>(what: &'static str, text: &str) -> Result<[u8; N], InvalidId> {
    let invalid = || InvalidId { what, text: text.to_owned() };
    // Only lower case: an id has exactly one spelling, or one object could be reached by two keys.
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(invalid());
    }
    let raw = data_encoding::HEXLOWER.decode(text.as_bytes()).map_err(|_| invalid())?;
    raw.try_into().map_err(|_| invalid())
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $len:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $len]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl<C> minicbor::Encode<C> for $name {
            fn encode<W: minicbor::encode::Write>(
                &self,
                e: &mut minicbor::Encoder<W>,
                _: &mut C,
            ) -> Result<(), minicbor::encode::Error<W::Error>> {
                e.bytes(&self.0)?.ok()
            }
        }

        impl<'b, C> minicbor::Decode<'b, C> for $name {
            fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
                let raw = d.bytes()?.try_into();
                raw.map(Self).map_err(|_| minicbor::decode::Error::message(concat!("wrong length of a ", $what)))
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                parse_hex($what, text).map(Self)
            }
        }
    };
}

hex_id!(
    /// One run of a job; also the id of the version it commits, and the prefix of every container
    /// it writes.
    JobId, 16, "job id"
);
hex_id!(
    /// Keyed hash of a series name, which object keys have instead of the name.
    SeriesKey, 16, "series key"
);
hex_id!(
    /// The identity of a repository, drawn at random by `init`.
    RepositoryId, 16, "repository id"
);
hex_id!(
    /// Whose metadata an object holds: a keyed hash of the name of a machine, or of machines that
    /// share one history.
    DomainId, 16, "domain id"
);
hex_id!(
    /// The digest of a segment's, node's or stream's content (`content.rs`), the same in every
    /// generation of a version.
    ContentDigest, 32, "content digest"
);
hex_id!(
    /// The id of one wrapped copy of the master key.
    KeyId, 8, "key id"
);

hex_id!(
    /// One attempt at a task of a fleet batch, drawn at random.
    AttemptId, 8, "attempt"
);

hex_id!(
    /// A page run of a volume store (`page_run.rs`), drawn at random.
    PageRunId, 16, "page run id"
);

impl DomainId {
    /// The domain of those who name none, and of objects that belong to no domain.
    pub const DEFAULT: Self = Self([0; 16]);

    /// Whether it is the default domain.
    pub fn is_default(&self) -> bool {
        *self == Self::DEFAULT
    }
}

impl Default for DomainId {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Least digits of the beginning of a short id.
const SHORT_MIN: usize = 4;

impl JobId {
    /// The id's first 8 hex digits would repeat within a minute, so people are shown the random
    /// tail's last 8 instead.
    pub fn short(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.0[12..])
    }

    /// Whether `text`, in lower case, is the beginning or the end of the id, or the beginning of
    /// its short form. That one needs four digits, because texts that are shorter fit too many ids.
    pub fn fits(&self, text: &str) -> bool {
        let id = self.to_string();
        id.starts_with(text) || id.ends_with(text) || (text.len() >= SHORT_MIN && self.short().starts_with(text))
    }

    /// Whether `text`, in lower case, is the whole id or its whole short form.
    pub fn is_exactly(&self, text: &str) -> bool {
        self.to_string() == text || self.short() == text
    }

    /// Builds a version-7 UUID from a time and random bytes; both are the caller's, nothing here
    /// reads a clock.
    pub fn new(unix_ms: u64, random: [u8; 10]) -> Self {
        let mut id = [0u8; 16];
        id[..6].copy_from_slice(&unix_ms.to_be_bytes()[2..]);
        id[6..].copy_from_slice(&random);
        id[6] = 0x70 | (id[6] & 0x0f);
        id[8] = 0x80 | (id[8] & 0x3f);
        Self(id)
    }

    /// Milliseconds since the epoch at which the job says it began. For people only.
    pub fn unix_ms(&self) -> u64 {
        let mut ms = [0u8; 8];
        ms[2..].copy_from_slice(&self.0[..6]);
        u64::from_be_bytes(ms)
    }
}

/// Whether a container holds file contents or metadata (segments, recipe nodes, metadata streams).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerKind {
    /// Chunks of the data stream, under `data/`.
    Data,
    /// Segments, recipe nodes and chunks of the metadata stream, under `meta/`.
    Meta,
}

/// A container: the job that wrote it and its number within that job and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId {
    /// Data or metadata; the two are numbered apart.
    pub kind: ContainerKind,
    /// The job that wrote it.
    pub job: JobId,
    /// Counts from 0 within `job` and `kind`.
    pub seq: u32,
}

/// An object of a run of the global index: the job of the pass that wrote it and its number within
/// that job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    /// The pass that wrote it.
    pub job: JobId,
    /// Counts from 0 within `job`.
    pub seq: u32,
}

/// Whose settings they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SettingsOf {
    /// Those of the repository: they hold for series where these have none.
    Default,
    /// Those of one series.
    Series(SeriesKey),
}

//! What a writer did, in the order in which it did it: a line of text for each event.
//!
//! Power cuts are found by places in the log of the device below the store. An event with a place
//! happened when the log had that length. So a write cannot be on a disk that was cut before its
//! place, and a flush counts on each disk that was cut at its place or behind.

use crate::content::Content;

/// Something that the writer did, or an answer that it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A write was sent.
    Wrote { number: u64, first: u32, count: u32, content: Content, place: u64 },
    /// It was answered. With a place it was durable then.
    Acknowledged { number: u64, durable: Option<u64> },
    /// A flush was sent.
    FlushBegan { number: u64 },
    /// It was answered.
    Flushed { number: u64, place: u64 },
    /// A snapshot was asked for.
    SnapshotBegan { name: String, place: u64 },
    /// It exists. This is a flush, too.
    SnapshotMade { name: String, place: u64 },
    /// A deletion was asked for.
    DeletionBegan { name: String, place: u64 },
    /// The snapshot is gone.
    Deleted { name: String, place: u64 },
}

impl Event {
    /// The place in the log, if it decides whether the event counts.
    pub(crate) fn place(&self) -> Option<u64> {
        match self {
            Self::Wrote { place, .. }
            | Self::Flushed { place, .. }
            | Self::SnapshotBegan { place, .. }
            | Self::SnapshotMade { place, .. }
            | Self::DeletionBegan { place, .. }
            | Self::Deleted { place, .. } => Some(*place),
            Self::Acknowledged { durable, .. } => *durable,
            Self::FlushBegan { .. } => None,
        }
    }

    /// A line.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Wrote { number, first, count, content, place } => {
                let (kind, of) = match content {
                    Content::Zeros => ("zeros", 0),
                    Content::Pooled(of) => ("pooled", *of),
                    Content::Unique(of) => ("unique", *of),
                };
                format!("wrote {number} {first} {count} {kind} {of} {place}\n")
            }
            Self::Acknowledged { number, durable: None } => format!("acknowledged {number}\n"),
            Self::Acknowledged { number, durable: Some(place) } => format!("durable {number} {place}\n"),
            Self::FlushBegan { number } => format!("flush {number}\n"),
            Self::Flushed { number, place } => format!("flushed {number} {place}\n"),
            Self::SnapshotBegan { name, place } => format!("snapshot {name} {place}\n"),
            Self::SnapshotMade { name, place } => format!("made {name} {place}\n"),
            Self::DeletionBegan { name, place } => format!("delete {name} {place}\n"),
            Self::Deleted { name, place } => format!("deleted {name} {place}\n"),
        }
    }

    /// The event of a line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        let name = || words.get(1).map(|name| (*name).to_owned());
        Some(match *words.first()? {
            "wrote" => {
                let content = match *words.get(4)? {
                    "zeros" => Content::Zeros,
                    "pooled" => Content::Pooled(number(5)?),
                    "unique" => Content::Unique(number(5)?),
                    _ => return None,
                };
                let (first, count) = (number(2)?.try_into().ok()?, number(3)?.try_into().ok()?);
                Self::Wrote { number: number(1)?, first, count, content, place: number(6)? }
            }
            "acknowledged" => Self::Acknowledged { number: number(1)?, durable: None },
            "durable" => Self::Acknowledged { number: number(1)?, durable: Some(number(2)?) },
            "flush" => Self::FlushBegan { number: number(1)? },
            "flushed" => Self::Flushed { number: number(1)?, place: number(2)? },
            "snapshot" => Self::SnapshotBegan { name: name()?, place: number(2)? },
            "made" => Self::SnapshotMade { name: name()?, place: number(2)? },
            "delete" => Self::DeletionBegan { name: name()?, place: number(2)? },
            "deleted" => Self::Deleted { name: name()?, place: number(2)? },
            _ => return None,
        })
    }
}

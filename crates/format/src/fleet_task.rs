//! The tasks of a fleet batch, as names of objects and people know them.

use std::fmt;

/// A stage of a batch. Those of one stage begin when every task of the stage before is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// An image is cut, and its unknown chunks are asked for. Task: number of the image.
    Scan,
    /// The questions of a host are sorted. Task: number of the host.
    Send,
    /// Questions about a range of fingerprints are answered. Task: number of the partition.
    Join,
    /// The new chunks of an image are stored. Task: number of the image.
    Store,
    /// The places of stored chunks that others wait for are sorted. Task: number of the host.
    Place,
    /// Waiters get these places. Task: number of the partition.
    Resolve,
    /// The version of an image is written and committed. Task: number of the image.
    Finish,
    /// A range of containers is read and verified, for a check. Batches of images have no such
    /// tasks. Task: number of the range.
    Check,
    /// Chunks are verified and copied, for a pass. Batches of images have no such tasks. Task: its
    /// number in the pass.
    Copy,
    /// Segments of recipes are read, and their chunks are counted, for a pass. Batches of images
    /// have no such tasks. Task: its number in the pass.
    Mark,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Self; 10] = [
        Self::Scan,
        Self::Send,
        Self::Join,
        Self::Store,
        Self::Place,
        Self::Resolve,
        Self::Finish,
        Self::Check,
        Self::Copy,
        Self::Mark,
    ];

    /// Its word in names of objects and for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Scan => "scan",
            Self::Send => "send",
            Self::Join => "join",
            Self::Store => "store",
            Self::Place => "place",
            Self::Resolve => "resolve",
            Self::Finish => "finish",
            Self::Check => "check",
            Self::Copy => "copy",
            Self::Mark => "mark",
        }
    }

    /// The stage with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.word() == word)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A task of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// Its stage.
    pub stage: Stage,
    /// 0; of the stages store, place and resolve also 1 and 2, for chunks whose owner failed. Of a
    /// check: how often everything was looked at before. Of the marks of a pass: how often it
    /// began to choose before.
    pub round: u8,
    /// See [`Stage`].
    pub number: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.stage, self.round, self.number)
    }
}

//! The ranges of a map of changes while it is read, and the mistakes in it.

use std::fmt;
use std::ops::Range;

use crate::joined::{Joined, RANGES_MAX};

/// Why a map cannot be read.
#[derive(Debug)]
pub(super) enum Wrong {
    Io(std::io::Error),
    Text(String),
}

impl From<std::io::Error> for Wrong {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Text(why) => why.fmt(f),
        }
    }
}

impl Wrong {
    pub(super) fn text(why: impl fmt::Display) -> Self {
        Self::Text(why.to_string())
    }
}

/// Collects ranges, which must rise.
pub(super) struct Rising {
    joined: Joined,
    at: u64,
}

impl Rising {
    pub(super) fn new() -> Self {
        Self { joined: Joined::new(RANGES_MAX), at: 0 }
    }

    pub(super) fn push(&mut self, offset: u64, length: u64) -> Result<(), String> {
        let end = offset.checked_add(length).ok_or("a range ends beyond any image")?;
        if offset < self.at {
            return Err(format!("offset {offset} comes after offset {}: the ranges have to rise", self.at));
        }
        self.at = offset;
        self.joined.push(offset..end);
        Ok(())
    }

    pub(super) fn into_ranges(self) -> Vec<Range<u64>> {
        self.joined.into_ranges()
    }
}

//! The layouts of series: where chunks are stored. Chosen for each series, and recorded in each of
//! its versions.

use std::fmt;
use std::ops::{Index, IndexMut};
use std::str::FromStr;

use minicbor::decode::{Decoder, Error};
use minicbor::encode::{self, Encoder, Write};
use minicbor::{Decode, Encode};

/// The layout of a series: where its chunks are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// A chunk stays where it was stored first, and all series share it (SlimStore). Left out where
    /// it is stored.
    #[default]
    Standard,
    /// Chunks of the same versions are stored together, and shared only within the series
    /// (MFDedup).
    Lifecycle,
}

impl Layout {
    /// Its name for users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Lifecycle => "lifecycle",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A value for each layout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PerLayout<T> {
    /// For [`Layout::Standard`].
    pub standard: T,
    /// For [`Layout::Lifecycle`].
    pub lifecycle: T,
}

impl<T> Index<Layout> for PerLayout<T> {
    type Output = T;

    fn index(&self, layout: Layout) -> &T {
        match layout {
            Layout::Standard => &self.standard,
            Layout::Lifecycle => &self.lifecycle,
        }
    }
}

impl<T> IndexMut<Layout> for PerLayout<T> {
    fn index_mut(&mut self, layout: Layout) -> &mut T {
        match layout {
            Layout::Standard => &mut self.standard,
            Layout::Lifecycle => &mut self.lifecycle,
        }
    }
}

/// No layout is called that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no layout {text:?}: it is standard or lifecycle")]
pub struct UnknownLayout {
    /// The requested name.
    pub text: String,
}

impl FromStr for Layout {
    type Err = UnknownLayout;

    fn from_str(text: &str) -> Result<Self, UnknownLayout> {
        let all = [Self::Standard, Self::Lifecycle];
        let found = all.into_iter().find(|layout| layout.name() == text);
        found.ok_or_else(|| UnknownLayout { text: text.to_owned() })
    }
}

impl<C> Encode<C> for Layout {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        match self {
            Self::Standard => e.u8(0)?,
            Self::Lifecycle => e.u8(1)?,
        };
        Ok(())
    }

    fn is_nil(&self) -> bool {
        *self == Self::Standard
    }
}

impl<'b, C> Decode<'b, C> for Layout {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, Error> {
        match d.u8()? {
            0 => Ok(Self::Standard),
            1 => Ok(Self::Lifecycle),
            _ => Err(Error::message("unknown layout")),
        }
    }

    fn nil() -> Option<Self> {
        Some(Self::Standard)
    }
}

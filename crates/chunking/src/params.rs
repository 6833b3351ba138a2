//! Which algorithm cuts, and between which sizes: the part of chunking that is stored in a
//! repository's configuration.
//!
//! `format` stores the code of the algorithm and the three sizes. They are validated on the way in
//! and on the way out, so every [`crate::Chunker`] has parameters on which its kernels can rely.

use std::fmt;
use std::str::FromStr;

/// Least `min` of any parameters. The windows of all algorithms (4, 8 and 64 bytes) are inside the
/// shortest chunk, so no cut depends on bytes before its chunk.
pub const CHUNK_MIN: u32 = 64;

/// Greatest `max` of any parameters. A reader must hold this much of a stream at once, and a
/// container several of them.
pub const CHUNK_MAX: u32 = 8 << 20;

/// Mean length of chunks unless a repository says otherwise (bytes):
/// `docs/decisions/0002-chunk-size.md` has the measurements.
pub const DEFAULT_AVERAGE: u32 = 4 << 10;

/// How a stream is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The cut is behind the four bytes with the smallest hash between min and max, in an order
    /// that multiplies. Known contents and six lengths give its key away.
    MinCdc,
    /// Gear hash with normalised chunking, as most peers use it.
    FastCdc,
    /// Rolling Rabin fingerprint of 64 bytes, as the papers use it.
    Rabin,
    /// Every chunk has the same length; for streams made of pages.
    Fixed,
    /// The cut is behind the eight bytes with the smallest hash between min and max, in an order
    /// made of AES rounds. The default of new repositories.
    MinCdcAes,
}

impl Algorithm {
    /// All algorithms, in the order of their codes.
    pub const ALL: [Self; 5] = [Self::MinCdc, Self::FastCdc, Self::Rabin, Self::Fixed, Self::MinCdcAes];

    /// What new repositories use: `docs/decisions/0020-keyed-order-of-cuts.md`.
    pub const DEFAULT: Self = Self::MinCdcAes;

    /// The number stored on disk. Never changes.
    #[must_use]
    pub const fn to_code(self) -> u8 {
        match self {
            Self::MinCdc => 1,
            Self::FastCdc => 2,
            Self::Rabin => 3,
            Self::Fixed => 4,
            Self::MinCdcAes => 5,
        }
    }

    /// Inverse of [`Algorithm::to_code`]; `None` for a number that no version of this program has
    /// written.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::MinCdc),
            2 => Some(Self::FastCdc),
            3 => Some(Self::Rabin),
            4 => Some(Self::Fixed),
            5 => Some(Self::MinCdcAes),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::MinCdc => "mincdc",
            Self::FastCdc => "fastcdc",
            Self::Rabin => "rabin",
            Self::Fixed => "fixed",
            Self::MinCdcAes => "mincdc-aes",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|a| a.name() == name).ok_or_else(|| UnknownAlgorithm { name: name.to_owned() })
    }
}

/// A name that is no chunking algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown chunking algorithm {name:?}; known are mincdc, fastcdc, rabin, fixed, mincdc-aes")]
pub struct UnknownAlgorithm {
    /// The name that was given.
    pub name: String,
}

/// Algorithm and chunk sizes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkerParams {
    /// How to cut.
    pub algorithm: Algorithm,
    /// No chunk but the last of a stream is shorter.
    pub min: u32,
    /// Mean length on data without structure. MinCDC's mean follows from `min` and `max` alone;
    /// there it only informs.
    pub average: u32,
    /// No chunk is longer. For `Fixed` all three are equal.
    pub max: u32,
}

impl ChunkerParams {
    /// The bounds that suit the algorithm at this mean.
    ///
    /// MinCDC, in both orders: half to one and a half, which gives even chunks and its mean by
    /// construction. The lengths of FastCDC and Rabin are spread geometrically. So the bounds are
    /// wide (a quarter, and four or eight times the mean); otherwise, the bound instead of the
    /// content would force too many cuts. The result is not validated yet.
    #[must_use]
    pub const fn with_average(algorithm: Algorithm, average: u32) -> Self {
        let (min, max) = match algorithm {
            Algorithm::MinCdc | Algorithm::MinCdcAes => (average / 2, average.saturating_add(average / 2)),
            Algorithm::FastCdc => (average / 4, average.saturating_mul(4)),
            Algorithm::Rabin => (average / 4, average.saturating_mul(8)),
            Algorithm::Fixed => (average, average),
        };
        Self { algorithm, min, average, max }
    }

    /// Whether a chunker can be made of these parameters.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub const fn validate(&self) -> Result<(), ParamsError> {
        let Self { algorithm, min, average, max } = *self;
        if min < CHUNK_MIN {
            return Err(ParamsError::TooShort { min, least: CHUNK_MIN });
        }
        if max > CHUNK_MAX {
            return Err(ParamsError::TooLong { max, most: CHUNK_MAX });
        }
        let ordered = match algorithm {
            Algorithm::Fixed => min == average && average == max,
            _ => min < average && average < max,
        };
        if ordered { Ok(()) } else { Err(ParamsError::Order { algorithm, min, average, max }) }
    }
}

/// Parameters that no chunker can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// The minimum would not hold the algorithms' windows.
    #[error("minimum chunk of {min} bytes is below {least}")]
    TooShort {
        /// The requested value.
        min: u32,
        /// The least that is allowed.
        least: u32,
    },
    /// A chunk could be longer than the rest of the system holds.
    #[error("maximum chunk of {max} bytes is above {most}")]
    TooLong {
        /// The requested value.
        max: u32,
        /// The most that is allowed.
        most: u32,
    },
    /// The sizes contradict one another.
    #[error("{algorithm} cannot cut with minimum {min}, average {average}, maximum {max}")]
    Order {
        /// Fixed wants three equal sizes, the others rising ones.
        algorithm: Algorithm,
        /// The requested value.
        min: u32,
        /// The requested value.
        average: u32,
        /// The requested value.
        max: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_stable() {
        let stored = [(1, "mincdc"), (2, "fastcdc"), (3, "rabin"), (4, "fixed"), (5, "mincdc-aes")];
        for (algorithm, (code, name)) in Algorithm::ALL.into_iter().zip(stored) {
            assert_eq!(algorithm.to_code(), code);
            assert_eq!(Algorithm::from_code(code), Some(algorithm));
            assert_eq!(algorithm.to_string(), name);
            assert_eq!(name.parse(), Ok(algorithm));
        }
        for code in (0..=255).filter(|c| !(1..=5).contains(c)) {
            assert_eq!(Algorithm::from_code(code), None);
        }
        assert_eq!(Algorithm::DEFAULT.to_code(), 5);
        assert!("MinCDC".parse::<Algorithm>().is_err());
    }

    #[test]
    fn natural_bounds_are_valid_at_every_useful_average() {
        for algorithm in Algorithm::ALL {
            for average in [512, 4096, 5000, 8192, 65_536, 1 << 20] {
                assert_eq!(ChunkerParams::with_average(algorithm, average).validate(), Ok(()), "{algorithm} {average}");
            }
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let params = |algorithm, min, average, max| ChunkerParams { algorithm, min, average, max }.validate();
        assert!(matches!(params(Algorithm::MinCdc, 63, 100, 200), Err(ParamsError::TooShort { min: 63, least: 64 })));
        assert!(matches!(params(Algorithm::Fixed, 0, 0, 0), Err(ParamsError::TooShort { .. })));
        assert!(matches!(params(Algorithm::Rabin, 64, 100, CHUNK_MAX + 1), Err(ParamsError::TooLong { .. })));
        assert!(matches!(params(Algorithm::FastCdc, 100, 100, 200), Err(ParamsError::Order { .. })));
        assert!(matches!(params(Algorithm::MinCdc, 200, 300, 300), Err(ParamsError::Order { .. })));
        assert!(matches!(params(Algorithm::Fixed, 64, 64, 65), Err(ParamsError::Order { .. })));
        for algorithm in Algorithm::ALL {
            assert!(ChunkerParams::with_average(algorithm, u32::MAX).validate().is_err());
            assert!(ChunkerParams::with_average(algorithm, 0).validate().is_err());
        }
    }
}

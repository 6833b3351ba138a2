//! The size of a sample, as people write it.

use std::str::FromStr;

/// How much of a version a drill restores, besides its largest file and one item of each kind.
///
/// Half of the files are drawn so that all files are equally likely. The other half are drawn so
/// that each byte is. The first half finds what is wrong with many small files, and the second
/// what is wrong with much data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sample {
    /// This part of the files and this part of the bytes; 1 is everything.
    Part(f64),
    /// This number of files.
    Files(u64),
    /// Files with up to this number of bytes.
    Bytes(u64),
}

impl Sample {
    /// Whether everything is restored.
    pub fn is_everything(self) -> bool {
        matches!(self, Self::Part(part) if part >= 1.0)
    }
}

/// Text that is no size of a sample.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a sample such as 1%, 100files or 1GiB")]
pub struct ParseSampleError {
    /// The text.
    pub text: String,
}

impl FromStr for Sample {
    type Err = ParseSampleError;

    /// Reads `1%` and `100files`. Sizes in bytes are for the caller, who knows their units.
    fn from_str(text: &str) -> Result<Self, ParseSampleError> {
        let wrong = || ParseSampleError { text: text.to_owned() };
        let text = text.trim();
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
            // NaN is in no range.
            let is_valid = percent > 0.0 && percent <= 100.0;
            return if is_valid { Ok(Self::Part(percent / 100.0)) } else { Err(wrong()) };
        }
        let number = text.strip_suffix("files").or_else(|| text.strip_suffix("file")).ok_or_else(wrong)?;
        let number: u64 = number.trim().parse().map_err(|_| wrong())?;
        if number > 0 { Ok(Self::Files(number)) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read() {
        assert_eq!("1%".parse(), Ok(Sample::Part(0.01)));
        assert_eq!(" 2.5 % ".parse(), Ok(Sample::Part(0.025)));
        assert_eq!("100files".parse(), Ok(Sample::Files(100)));
        assert_eq!("1 file".parse(), Ok(Sample::Files(1)));
        assert!("100%".parse().is_ok_and(Sample::is_everything));
        for bad in ["", "%", "0%", "101%", "-1%", "NaN%", "files", "0files", "1.5files", "1GiB"] {
            assert!(bad.parse::<Sample>().is_err(), "{bad}");
        }
    }
}

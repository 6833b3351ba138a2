//! Compression of frames: zstd, or none where it does not pay.

use zstd::zstd_safe::{CParameter, ParamSwitch};

use crate::wire::DecodeError;

/// How a frame's bytes were made shorter. The codes are part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Stored as it is.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
}

impl Codec {
    pub(crate) fn from_code(code: u8) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(Self::Raw),
            1 => Ok(Self::Zstd),
            _ => Err(DecodeError::invalid("frame table", "unknown codec")),
        }
    }
}

/// How a writer treats frames before it seals them. Every reader reads every choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Store raw.
    Off,
    /// zstd at this level, -7 to 22.
    Zstd(i32),
}

impl Compression {
    /// zstd level 1: four fifths of a first backup's CPU time, see
    /// `docs/decisions/0003-compression.md`.
    pub const DEFAULT: Self = Self::Zstd(1);
}

/// The content of frames, where it is known: level 1 is tuned for it
/// (`docs/decisions/0003-compression.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentHint {
    /// Anything.
    Any,
    /// Pages of a database: repeats are near, short and everywhere.
    Pages,
}

impl ContentHint {
    /// How level 1 looks for matches.
    fn search(self) -> [CParameter; 4] {
        use CParameter::{HashLog, LiteralCompressionMode, TargetLength, WindowLog};
        match self {
            // 0 is the level's own.
            Self::Any => [HashLog(15), WindowLog(0), TargetLength(0), LiteralCompressionMode(ParamSwitch::Auto)],
            // With windows below 2^19, zstd takes another loop without unforeseeable branches. In
            // steps of more than two it would leave literals as they are, as the negative levels
            // do.
            Self::Pages => [HashLog(16), WindowLog(18), TargetLength(2), LiteralCompressionMode(ParamSwitch::Enable)],
        }
    }
}

/// A reusable compression context. One a thread.
pub struct Compressor {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// The content for which level 1 is tuned now; `None` at other levels, which are zstd's own.
    tuned: Option<ContentHint>,
    level: i32,
    /// What zstd made last. It is kept, because new memory of this size for each frame costs more
    /// than the copy of what is in it.
    made: Vec<u8>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compressor")
    }
}

impl Compressor {
    /// A context for `compression`; a level out of range is brought into it.
    pub fn new(compression: Compression) -> Self {
        let Compression::Zstd(level) = compression else {
            return Self { zstd: None, tuned: None, level: 0, made: Vec::new() };
        };
        let level = level.clamp(-7, 22);
        let zstd = zstd::bulk::Compressor::new(level).expect("a clamped level is one that zstd accepts");
        let mut compressor = Self { zstd: Some(zstd), tuned: None, level, made: Vec::new() };
        if level == 1 {
            compressor.set(ContentHint::Any);
        }
        compressor
    }

    /// The next frames are made of this. A wrong hint only costs speed or size.
    pub fn expect(&mut self, matter: ContentHint) {
        if self.tuned.is_some_and(|tuned| tuned != matter) {
            self.set(matter);
        }
    }

    fn set(&mut self, matter: ContentHint) {
        let Some(zstd) = &mut self.zstd else { return };
        for parameter in matter.search() {
            zstd.set_parameter(parameter).expect("zstd accepts these parameters");
        }
        self.tuned = Some(matter);
    }

    /// All that decides, beside the input, which bytes come out.
    pub(crate) fn settings(&self) -> [u8; 6] {
        let tuned = match self.tuned {
            None => 0,
            Some(ContentHint::Any) => 1,
            Some(ContentHint::Pages) => 2,
        };
        let mut settings = [u8::from(self.zstd.is_some()), tuned, 0, 0, 0, 0];
        settings[2..].copy_from_slice(&self.level.to_le_bytes());
        settings
    }

    /// The shorter of `raw` compressed and `raw` itself.
    pub fn compress<'a>(&'a mut self, raw: &'a [u8]) -> (Codec, &'a [u8]) {
        let Some(zstd) = &mut self.zstd else { return (Codec::Raw, raw) };
        self.made.clear();
        // zstd writes into the spare room: nothing has to be zeroed before.
        self.made.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        match zstd.compress_to_buffer(raw, &mut self.made) {
            Ok(len) if len < raw.len() => (Codec::Zstd, &self.made),
            _ => (Codec::Raw, raw),
        }
    }
}

/// A reusable decompression context. One a thread.
pub struct Decompressor(zstd::bulk::Decompressor<'static>);

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decompressor")
    }
}

impl Decompressor {
    /// A fresh context.
    pub fn new() -> Self {
        Self(zstd::bulk::Decompressor::new().expect("zstd allocates a decompression context"))
    }

    /// Fills `raw` completely from `stored`, or says that it does not.
    pub fn decompress_into(&mut self, codec: Codec, stored: &[u8], raw: &mut [u8]) -> Result<(), DecodeError> {
        let wrong_size = DecodeError::invalid("frame", "its size is not what the frame table says");
        match codec {
            Codec::Raw if stored.len() == raw.len() => raw.copy_from_slice(stored),
            Codec::Raw => return Err(wrong_size),
            Codec::Zstd => match self.0.decompress_to_buffer(stored, raw) {
                Ok(len) if len == raw.len() => {}
                Ok(_) => return Err(wrong_size),
                Err(_) => return Err(DecodeError::invalid("frame", "it does not decompress")),
            },
        }
        Ok(())
    }
}

impl Default for Decompressor {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of numbers and words, in pages.
    fn pages() -> Vec<u8> {
        let row = |n: u32| format!("{:08}|order {}|{}|", n.wrapping_mul(2_654_435_761), n % 977, n * 31 % 65_521);
        (0..20_000).flat_map(|n| row(n).into_bytes()).collect()
    }

    #[test]
    fn whatever_is_expected_comes_back() {
        let raw = pages();
        for compression in [Compression::Off, Compression::DEFAULT, Compression::Zstd(-3), Compression::Zstd(4)] {
            let mut compressor = Compressor::new(compression);
            let mut sizes = Vec::new();
            for matter in [ContentHint::Any, ContentHint::Pages, ContentHint::Any, ContentHint::Pages] {
                compressor.expect(matter);
                let mut back = vec![0; raw.len()];
                let (codec, stored) = compressor.compress(&raw);
                Decompressor::new().decompress_into(codec, stored, &mut back).expect("decompresses");
                assert!(back == raw, "{compression:?} {matter:?}");
                sizes.push(stored.len());
            }
            // Tuning comes and goes with the expected content, and only the default level is tuned.
            assert_eq!(sizes[..2], sizes[2..]);
            assert_eq!(sizes[0] != sizes[1], compression == Compression::DEFAULT, "{compression:?}: {sizes:?}");
        }
    }
}

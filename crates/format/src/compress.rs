//! Compression of frames: zstd, or none where it does not pay.

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

/// What a writer does with frames before it seals them. Every reader reads every choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Store raw.
    Off,
    /// zstd at this level, -7 to 22.
    Zstd(i32),
}

impl Compression {
    /// zstd level 1: four fifths of a first backup's CPU time, see `docs/decisions/0003-compression.md`.
    pub const DEFAULT: Self = Self::Zstd(1);
}

/// Log of the entries of level 1's hash table (`docs/decisions/0003-compression.md`).
const LEVEL_1_HASH_LOG: u32 = 15;

/// A reusable compression context. One a thread.
pub struct Compressor {
    level: Option<zstd::bulk::Compressor<'static>>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compressor")
    }
}

impl Compressor {
    /// A context for `compression`; a level out of range is brought into it.
    pub fn new(compression: Compression) -> Self {
        let level = match compression {
            Compression::Off => None,
            Compression::Zstd(level) => {
                let mut zstd =
                    zstd::bulk::Compressor::new(level.clamp(-7, 22)).expect("a clamped level is one that zstd accepts");
                if level == 1 {
                    // Twice the level's own table: 2 to 5 % smaller at the same speed, and it still fits the first caches.
                    let wider = zstd::zstd_safe::CParameter::HashLog(LEVEL_1_HASH_LOG);
                    zstd.set_parameter(wider).expect("zstd accepts a hash table of 32 Ki entries");
                }
                Some(zstd)
            }
        };
        Self { level }
    }

    /// Replaces `out` by the shorter of `raw` compressed and `raw` itself.
    pub fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Codec {
        out.clear();
        if let Some(zstd) = &mut self.level {
            // zstd writes into the spare room: nothing has to be zeroed before.
            out.reserve(zstd::zstd_safe::compress_bound(raw.len()) + crate::seal::TAG_LEN);
            if zstd.compress_to_buffer(raw, out).is_ok_and(|len| len < raw.len()) {
                return Codec::Zstd;
            }
            out.clear();
        }
        out.extend_from_slice(raw);
        Codec::Raw
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

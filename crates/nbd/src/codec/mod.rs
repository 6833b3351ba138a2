//! Messages of the protocol as bytes, in both directions, without I/O.
//!
//! All numbers are big-endian. Each message has an encoder and a decoder, since client and server
//! are both here. A decoder never allocates more than the bytes that it was given.

pub mod option;
pub mod option_reply;
pub mod reader;
pub mod reply;
pub mod request;

/// A message breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("broken NBD message: {0}")]
pub struct Malformed(pub &'static str);

/// First number of a server's greeting: `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second number of the greeting, and first of every option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Bytes of a greeting: two magic numbers and flags.
pub const GREETING_LEN: usize = 18;
/// Zeroes behind the reply to `NBD_OPT_EXPORT_NAME`, unless both sides said `NO_ZEROES`.
pub const EXPORT_NAME_ZEROES: usize = 124;
/// Longest name of an export, query or context in bytes.
pub const STRING_MAX: usize = 4096;
/// Longest data of an option that is decoded, in bytes.
pub const OPTION_MAX: usize = 64 << 10;

/// `NBD_FLAG_FIXED_NEWSTYLE` of the greeting and of the client's answer.
pub const FIXED_NEWSTYLE: u16 = 1;
/// `NBD_FLAG_NO_ZEROES` of the greeting and of the client's answer.
pub const NO_ZEROES: u16 = 2;

/// Flags that describe an export.
pub mod transmission {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH works.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The flag FUA works.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The medium rotates.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// TRIM works.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES works.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The flag DF works.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush covers all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE works.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The flag FAST_ZERO works.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// The greeting of a server that speaks fixed newstyle.
pub fn greeting() -> [u8; GREETING_LEN] {
    let mut bytes = [0; GREETING_LEN];
    bytes[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    bytes
}

/// Decodes a greeting and gives its flags. Servers without fixed newstyle are refused.
pub fn decode_greeting(bytes: &[u8; GREETING_LEN]) -> Result<u16, Malformed> {
    let mut fields = reader::Fields::new(bytes);
    if fields.u64()? != GREETING_MAGIC {
        return Err(Malformed("no NBD server"));
    }
    if fields.u64()? != OPTION_MAGIC {
        return Err(Malformed("the server speaks oldstyle"));
    }
    let flags = fields.u16()?;
    if flags & FIXED_NEWSTYLE == 0 {
        return Err(Malformed("the server does not speak fixed newstyle"));
    }
    Ok(flags)
}

/// Decodes the client's answer to the greeting: whether it speaks fixed newstyle, and whether it
/// wants no zeroes.
pub fn decode_client_flags(bytes: [u8; 4]) -> Result<(bool, bool), Malformed> {
    let flags = u32::from_be_bytes(bytes);
    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(Malformed("unknown client flags"));
    }
    Ok((flags & u32::from(FIXED_NEWSTYLE) != 0, flags & u32::from(NO_ZEROES) != 0))
}

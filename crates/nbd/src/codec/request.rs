//! Requests of a client that uses an export.

use super::Malformed;
use super::reader::Fields;

/// First number of every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Bytes of a request before the data of a write.
pub const REQUEST_LEN: usize = 28;

/// Flags of requests.
pub mod flag {
    /// Durable before it is answered.
    pub const FUA: u16 = 1;
    /// Zeroes: the range must stay allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Read: one piece of data.
    pub const DF: u16 = 1 << 2;
    /// Block status: one extent a context.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Zeroes: fail unless it is fast.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Types of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `NBD_CMD_READ`.
    Read,
    /// `NBD_CMD_WRITE`, with data behind the request.
    Write,
    /// `NBD_CMD_DISC`: ends the session.
    Disconnect,
    /// `NBD_CMD_FLUSH`.
    Flush,
    /// `NBD_CMD_TRIM`.
    Trim,
    /// `NBD_CMD_CACHE`.
    Cache,
    /// `NBD_CMD_WRITE_ZEROES`.
    WriteZeroes,
    /// `NBD_CMD_BLOCK_STATUS`.
    BlockStatus,
    /// Any other one, which has no data.
    Unknown(u16),
}

impl Command {
    fn of(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            number => Self::Unknown(number),
        }
    }

    fn number(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
            Self::Trim => 4,
            Self::Cache => 5,
            Self::WriteZeroes => 6,
            Self::BlockStatus => 7,
            Self::Unknown(number) => number,
        }
    }
}

/// A request without the data of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Of [`flag`].
    pub flags: u16,
    /// The type.
    pub command: Command,
    /// The client's name of this request, which the reply repeats.
    pub handle: u64,
    /// Bytes.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl Request {
    /// An error means that the session cannot go on.
    pub fn decode(bytes: &[u8; REQUEST_LEN]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return Err(Malformed("wrong magic number of a request"));
        }
        Ok(Self {
            flags: fields.u16()?,
            command: Command::of(fields.u16()?),
            handle: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        })
    }

    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.number().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.handle.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

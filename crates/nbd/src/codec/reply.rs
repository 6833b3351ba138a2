//! Replies of a server to requests: simple ones, and chunks of structured ones.

use super::Malformed;
use super::reader::Fields;
use crate::export::{ErrorCode, Extent};

/// First number of a simple reply.
pub const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// First number of a chunk.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Bytes of a simple reply before its data.
pub const SIMPLE_LEN: usize = 16;
/// Bytes of a chunk before its payload.
pub const CHUNK_HEADER_LEN: usize = 20;
/// Bytes of a chunk with data before the data.
pub const DATA_HEADER_LEN: usize = CHUNK_HEADER_LEN + 8;
/// Longest message of an error in bytes.
pub const MESSAGE_MAX: usize = 1024;

const DONE: u16 = 1;
const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const OFFSET_HOLE: u16 = 2;
const BLOCK_STATUS: u16 = 5;
const ERROR: u16 = (1 << 15) + 1;
const ERROR_OFFSET: u16 = (1 << 15) + 2;

/// Start of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A simple reply. A successful one to a read has the data behind it.
    Simple {
        /// Of the request.
        handle: u64,
        /// `None`: it succeeded.
        error: Option<ErrorCode>,
    },
    /// A chunk, with a payload behind it.
    Chunk {
        /// Of the request.
        handle: u64,
        /// No chunk of this reply follows.
        done: bool,
        /// Type of the payload.
        kind: u16,
        /// Bytes of the payload.
        length: u32,
    },
}

impl ReplyHeader {
    /// Bytes of the header that begins so; an error if none does.
    pub fn length(magic: [u8; 4]) -> Result<usize, Malformed> {
        match u32::from_be_bytes(magic) {
            SIMPLE_MAGIC => Ok(SIMPLE_LEN),
            CHUNK_MAGIC => Ok(CHUNK_HEADER_LEN),
            _ => Err(Malformed("wrong magic number of a reply")),
        }
    }

    /// An error means that the session cannot go on.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(bytes);
        let header = match fields.u32()? {
            SIMPLE_MAGIC => {
                let error = fields.u32()?;
                let error = (error != 0).then(|| ErrorCode::from_wire(error));
                Self::Simple { handle: fields.u64()?, error }
            }
            CHUNK_MAGIC => {
                let (flags, kind) = (fields.u16()?, fields.u16()?);
                Self::Chunk { handle: fields.u64()?, done: flags & DONE != 0, kind, length: fields.u32()? }
            }
            _ => return Err(Malformed("wrong magic number of a reply")),
        };
        fields.end()?;
        Ok(header)
    }
}

/// Whether the payload of this type of chunk begins with an offset, and the rest is data.
pub fn is_data(kind: u16) -> bool {
    kind == OFFSET_DATA
}

/// Payload of a chunk without data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Nothing.
    None,
    /// Zeroes.
    Hole {
        /// Bytes from the start of the device.
        offset: u64,
        /// Bytes; never 0.
        length: u32,
    },
    /// Extents from the offset of the request on.
    BlockStatus {
        /// The number that the context got when it was selected.
        context: u32,
        /// At least one.
        extents: Vec<Extent>,
    },
    /// The request failed, perhaps at an offset.
    Error {
        /// Why.
        code: ErrorCode,
        /// For a person; may be empty.
        message: String,
        /// Where, if the server knows it.
        offset: Option<u64>,
    },
}

impl Chunk {
    /// Decodes the payload of a chunk that [`is_data`] denies. An error means that the session
    /// cannot go on.
    pub fn decode(kind: u16, payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(payload);
        let chunk = match kind {
            NONE => Self::None,
            OFFSET_HOLE => {
                let (offset, length) = (fields.u64()?, fields.u32()?);
                if length == 0 {
                    return Err(Malformed("an empty hole"));
                }
                Self::Hole { offset, length }
            }
            BLOCK_STATUS => {
                let context = fields.u32()?;
                let mut extents = Vec::with_capacity(fields.left() / 8);
                while fields.left() > 0 {
                    extents.push(Extent { length: u64::from(fields.u32()?), flags: fields.u32()? });
                }
                if extents.is_empty() || extents.iter().any(|extent| extent.length == 0) {
                    return Err(Malformed("an empty extent"));
                }
                Self::BlockStatus { context, extents }
            }
            kind if kind >> 15 == 1 => {
                let code = fields.u32()?;
                let length = usize::from(fields.u16()?);
                let message = String::from_utf8_lossy(fields.bytes(length)?).into_owned();
                if code == 0 {
                    return Err(Malformed("an error without a number"));
                }
                let offset = if kind == ERROR_OFFSET { Some(fields.u64()?) } else { None };
                // Unknown types of errors may have more behind the message.
                return Ok(Self::Error { code: ErrorCode::from_wire(code), message, offset });
            }
            _ => return Err(Malformed("unknown type of a chunk")),
        };
        fields.end()?;
        Ok(chunk)
    }

    /// Appends the chunk with its header.
    pub fn encode(&self, handle: u64, done: bool, out: &mut Vec<u8>) {
        match self {
            Self::None => chunk_header(handle, done, NONE, 0, out),
            Self::Hole { offset, length } => {
                chunk_header(handle, done, OFFSET_HOLE, 12, out);
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&length.to_be_bytes());
            }
            Self::BlockStatus { context, extents } => {
                chunk_header(handle, done, BLOCK_STATUS, 4 + 8 * extents.len() as u32, out);
                out.extend_from_slice(&context.to_be_bytes());
                for extent in extents {
                    out.extend_from_slice(&(extent.length as u32).to_be_bytes());
                    out.extend_from_slice(&extent.flags.to_be_bytes());
                }
            }
            Self::Error { code, message, offset } => {
                let message = &message.as_bytes()[..message.floor_char_boundary(MESSAGE_MAX)];
                let kind = if offset.is_some() { ERROR_OFFSET } else { ERROR };
                let length = 6 + message.len() as u32 + if offset.is_some() { 8 } else { 0 };
                chunk_header(handle, done, kind, length, out);
                out.extend_from_slice(&code.to_wire().to_be_bytes());
                out.extend_from_slice(&(message.len() as u16).to_be_bytes());
                out.extend_from_slice(message);
                if let Some(offset) = offset {
                    out.extend_from_slice(&offset.to_be_bytes());
                }
            }
        }
    }
}

/// Appends a simple reply without data.
pub fn simple(handle: u64, error: Option<ErrorCode>, out: &mut Vec<u8>) {
    out.extend_from_slice(&SIMPLE_MAGIC.to_be_bytes());
    out.extend_from_slice(&error.map_or(0, ErrorCode::to_wire).to_be_bytes());
    out.extend_from_slice(&handle.to_be_bytes());
}

/// Appends the start of a chunk with `length` bytes of data, which the caller appends.
pub fn data_header(handle: u64, done: bool, offset: u64, length: u32, out: &mut Vec<u8>) {
    chunk_header(handle, done, OFFSET_DATA, 8 + length, out);
    out.extend_from_slice(&offset.to_be_bytes());
}

fn chunk_header(handle: u64, done: bool, kind: u16, length: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&CHUNK_MAGIC.to_be_bytes());
    out.extend_from_slice(&(if done { DONE } else { 0 }).to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&handle.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
}

//! Replies of a server to options.

use super::option::info;
use super::reader::{Fields, put_string, text};
use super::{Malformed, OPTION_MAX};
use crate::export::BlockSizes;

/// First number of every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Bytes of a reply before its data.
pub const OPTION_REPLY_HEADER_LEN: usize = 20;

const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFO: u32 = 3;
const META_CONTEXT: u32 = 4;
const ERROR: u32 = 1 << 31;

/// Why a server refused an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It does not know the option.
    Unsupported,
    /// It does not want to.
    Policy,
    /// The data makes no sense.
    Invalid,
    /// Not on this platform.
    Platform,
    /// Only over TLS.
    TlsRequired,
    /// There is no such export.
    Unknown,
    /// The server is shutting down.
    Shutdown,
    /// The client must ask for the sizes of requests first.
    BlockSizeRequired,
    /// The option or its reply is too large.
    TooBig,
    /// Another number, without its highest bit.
    Other(u32),
}

impl Refusal {
    fn number(self) -> u32 {
        match self {
            Self::Unsupported => 1,
            Self::Policy => 2,
            Self::Invalid => 3,
            Self::Platform => 4,
            Self::TlsRequired => 5,
            Self::Unknown => 6,
            Self::Shutdown => 7,
            Self::BlockSizeRequired => 8,
            Self::TooBig => 9,
            Self::Other(number) => number,
        }
    }

    fn of(number: u32) -> Self {
        match number {
            1 => Self::Unsupported,
            2 => Self::Policy,
            3 => Self::Invalid,
            4 => Self::Platform,
            5 => Self::TlsRequired,
            6 => Self::Unknown,
            7 => Self::Shutdown,
            8 => Self::BlockSizeRequired,
            9 => Self::TooBig,
            number => Self::Other(number),
        }
    }
}

/// One thing that a server says of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Info {
    /// Always sent.
    Export {
        /// Bytes.
        size: u64,
        /// Of [`transmission`](super::transmission).
        flags: u16,
    },
    /// The name that the server uses itself.
    Name(String),
    /// A line for a person.
    Description(String),
    /// Sizes of requests.
    BlockSize(BlockSizes),
    /// An unknown kind.
    Other(u16),
}

/// A reply to an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionReply {
    /// Done.
    Ack,
    /// An export of the list.
    Server {
        /// To ask for it.
        name: String,
        /// A line for a person; may be empty.
        description: String,
    },
    /// Of an export.
    Info(Info),
    /// A metadata context.
    Context {
        /// Its number on this connection.
        id: u32,
        /// With namespace and colon.
        name: String,
    },
    /// Refused, with a message for a person.
    Refused(Refusal, String),
    /// A reply of an unknown type.
    Other(u32),
}

/// A reply's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// The option that this answers.
    pub option: u32,
    /// Type of the reply.
    pub kind: u32,
    /// Bytes of data behind the header; at most [`OPTION_MAX`].
    pub length: u32,
}

impl OptionReplyHeader {
    /// An error means that the session cannot go on.
    pub fn decode(bytes: &[u8; OPTION_REPLY_HEADER_LEN]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(bytes);
        if fields.u64()? != OPTION_REPLY_MAGIC {
            return Err(Malformed("wrong magic number of a reply to an option"));
        }
        let header = Self { option: fields.u32()?, kind: fields.u32()?, length: fields.u32()? };
        if header.length as usize > OPTION_MAX {
            return Err(Malformed("a reply to an option is too long"));
        }
        Ok(header)
    }
}

impl OptionReply {
    /// Appends the reply to an option, with its header.
    pub fn encode(&self, option: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        out.extend_from_slice(&option.to_be_bytes());
        out.extend_from_slice(&self.kind().to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        self.data(out);
        let length = (out.len() - start - OPTION_REPLY_HEADER_LEN) as u32;
        out[start + OPTION_REPLY_HEADER_LEN - 4..start + OPTION_REPLY_HEADER_LEN]
            .copy_from_slice(&length.to_be_bytes());
    }

    fn kind(&self) -> u32 {
        match self {
            Self::Ack => ACK,
            Self::Server { .. } => SERVER,
            Self::Info(_) => INFO,
            Self::Context { .. } => META_CONTEXT,
            Self::Refused(refusal, _) => ERROR | refusal.number(),
            Self::Other(kind) => *kind,
        }
    }

    fn data(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ack | Self::Other(_) => {}
            Self::Server { name, description } => {
                put_string(out, name);
                out.extend_from_slice(description.as_bytes());
            }
            Self::Info(Info::Export { size, flags }) => {
                out.extend_from_slice(&info::EXPORT.to_be_bytes());
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(&flags.to_be_bytes());
            }
            Self::Info(Info::Name(name)) => {
                out.extend_from_slice(&info::NAME.to_be_bytes());
                out.extend_from_slice(name.as_bytes());
            }
            Self::Info(Info::Description(text)) => {
                out.extend_from_slice(&info::DESCRIPTION.to_be_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            Self::Info(Info::BlockSize(sizes)) => {
                out.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
                for size in [sizes.minimum, sizes.preferred, sizes.maximum] {
                    out.extend_from_slice(&size.to_be_bytes());
                }
            }
            Self::Info(Info::Other(kind)) => out.extend_from_slice(&kind.to_be_bytes()),
            Self::Context { id, name } => {
                out.extend_from_slice(&id.to_be_bytes());
                out.extend_from_slice(name.as_bytes());
            }
            Self::Refused(_, message) => out.extend_from_slice(message.as_bytes()),
        }
    }

    /// Decodes the data of a reply of a type.
    pub fn decode(kind: u32, data: &[u8]) -> Result<Self, Malformed> {
        if kind & ERROR != 0 {
            let message = String::from_utf8_lossy(data).into_owned();
            return Ok(Self::Refused(Refusal::of(kind & !ERROR), message));
        }
        let mut fields = Fields::new(data);
        let reply = match kind {
            ACK => Self::Ack,
            SERVER => {
                let name = fields.string()?;
                return Ok(Self::Server { name, description: text(fields.rest())? });
            }
            INFO => return Ok(Self::Info(Info::decode(fields)?)),
            META_CONTEXT => {
                let id = fields.u32()?;
                return Ok(Self::Context { id, name: text(fields.rest())? });
            }
            kind => return Ok(Self::Other(kind)),
        };
        fields.end()?;
        Ok(reply)
    }
}

impl Info {
    fn decode(mut fields: Fields<'_>) -> Result<Self, Malformed> {
        let info = match fields.u16()? {
            info::EXPORT => Self::Export { size: fields.u64()?, flags: fields.u16()? },
            info::NAME => return Ok(Self::Name(text(fields.rest())?)),
            info::DESCRIPTION => return Ok(Self::Description(text(fields.rest())?)),
            info::BLOCK_SIZE => {
                Self::BlockSize(BlockSizes { minimum: fields.u32()?, preferred: fields.u32()?, maximum: fields.u32()? })
            }
            kind => return Ok(Self::Other(kind)),
        };
        fields.end()?;
        Ok(info)
    }
}

//! Options: what a client says before it uses an export.

use super::reader::{Fields, put_string, text};
use super::{Malformed, OPTION_MAGIC};

/// Bytes of an option before its data.
pub const OPTION_HEADER_LEN: usize = 16;

/// Codes of options.
pub mod code {
    /// Use an export, without any error reply.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Continue over TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Use an export.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts of an export.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts of an export.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Kinds of information about an export.
pub mod info {
    /// Size and flags; always sent.
    pub const EXPORT: u16 = 0;
    /// The name that the server uses itself.
    pub const NAME: u16 = 1;
    /// A line for a person.
    pub const DESCRIPTION: u16 = 2;
    /// Sizes of requests.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Code and data length of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHeader {
    /// One of [`code`], or another one.
    pub code: u32,
    /// Bytes of data behind the header.
    pub length: u32,
}

impl OptionHeader {
    /// An error means that the session cannot go on.
    pub fn decode(bytes: &[u8; OPTION_HEADER_LEN]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(bytes);
        if fields.u64()? != OPTION_MAGIC {
            return Err(Malformed("wrong magic number of an option"));
        }
        Ok(Self { code: fields.u32()?, length: fields.u32()? })
    }
}

/// A question about an export, or the wish to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Name of the export.
    pub name: String,
    /// Kinds of information that the client wants, of [`info`] or unknown ones.
    pub infos: Vec<u16>,
}

/// A question about metadata contexts, or a selection of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queries {
    /// Name of the export.
    pub name: String,
    /// Names of contexts, or beginnings of names that end with a colon.
    pub queries: Vec<String>,
}

/// An option that a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientOption {
    /// `NBD_OPT_EXPORT_NAME`.
    ExportName(String),
    /// `NBD_OPT_ABORT`.
    Abort,
    /// `NBD_OPT_LIST`.
    List,
    /// `NBD_OPT_STARTTLS`.
    StartTls,
    /// `NBD_OPT_INFO`.
    Info(Wish),
    /// `NBD_OPT_GO`.
    Go(Wish),
    /// `NBD_OPT_STRUCTURED_REPLY`.
    StructuredReply,
    /// `NBD_OPT_LIST_META_CONTEXT`.
    ListContexts(Queries),
    /// `NBD_OPT_SET_META_CONTEXT`.
    SetContexts(Queries),
    /// Any other one.
    Unknown(u32),
}

impl ClientOption {
    /// Decodes the data of an option. An error is answered with `NBD_REP_ERR_INVALID`.
    pub fn decode(option: u32, data: &[u8]) -> Result<Self, Malformed> {
        let nothing =
            |option: Self| if data.is_empty() { Ok(option) } else { Err(Malformed("this option has no data")) };
        match option {
            code::EXPORT_NAME => Ok(Self::ExportName(text(data)?)),
            // Old clients send data with it, which means nothing.
            code::ABORT => Ok(Self::Abort),
            code::LIST => nothing(Self::List),
            code::STARTTLS => nothing(Self::StartTls),
            code::INFO => Ok(Self::Info(Wish::decode(data)?)),
            code::GO => Ok(Self::Go(Wish::decode(data)?)),
            code::STRUCTURED_REPLY => nothing(Self::StructuredReply),
            code::LIST_META_CONTEXT => Ok(Self::ListContexts(Queries::decode(data)?)),
            code::SET_META_CONTEXT => Ok(Self::SetContexts(Queries::decode(data)?)),
            unknown => Ok(Self::Unknown(unknown)),
        }
    }

    /// The code on the wire.
    pub fn code(&self) -> u32 {
        match self {
            Self::ExportName(_) => code::EXPORT_NAME,
            Self::Abort => code::ABORT,
            Self::List => code::LIST,
            Self::StartTls => code::STARTTLS,
            Self::Info(_) => code::INFO,
            Self::Go(_) => code::GO,
            Self::StructuredReply => code::STRUCTURED_REPLY,
            Self::ListContexts(_) => code::LIST_META_CONTEXT,
            Self::SetContexts(_) => code::SET_META_CONTEXT,
            Self::Unknown(code) => *code,
        }
    }

    /// The option with its header.
    pub fn encode(&self) -> Vec<u8> {
        let mut data = Vec::new();
        match self {
            Self::ExportName(name) => data.extend_from_slice(name.as_bytes()),
            Self::Info(wish) | Self::Go(wish) => {
                put_string(&mut data, &wish.name);
                data.extend_from_slice(&(wish.infos.len() as u16).to_be_bytes());
                wish.infos.iter().for_each(|info| data.extend_from_slice(&info.to_be_bytes()));
            }
            Self::ListContexts(asked) | Self::SetContexts(asked) => {
                put_string(&mut data, &asked.name);
                data.extend_from_slice(&(asked.queries.len() as u32).to_be_bytes());
                asked.queries.iter().for_each(|query| put_string(&mut data, query));
            }
            Self::Abort | Self::List | Self::StartTls | Self::StructuredReply | Self::Unknown(_) => {}
        }
        let mut out = Vec::with_capacity(OPTION_HEADER_LEN + data.len());
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&self.code().to_be_bytes());
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(&data);
        out
    }
}

impl Wish {
    fn decode(data: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(data);
        let name = fields.string()?;
        let infos = (0..fields.u16()?).map(|_| fields.u16()).collect::<Result<_, _>>()?;
        fields.end()?;
        Ok(Self { name, infos })
    }
}

impl Queries {
    fn decode(data: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(data);
        let name = fields.string()?;
        let count = fields.u32()? as usize;
        // Each query has a length of four bytes.
        if count > fields.left() / 4 {
            return Err(Malformed("the message is too short"));
        }
        let queries = (0..count).map(|_| fields.string()).collect::<Result<_, _>>()?;
        fields.end()?;
        Ok(Self { name, queries })
    }
}

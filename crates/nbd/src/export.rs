//! Exports: the devices that a server offers, and the errors they give.
//!
//! A server calls an export from several threads at once, and any call may block. Offsets and
//! lengths are in bytes. The server checks every request against [`Export::size`] and
//! [`Export::abilities`] first, so an export sees only requests that it said it can serve.

use std::sync::Arc;

/// Numbers of errors that the protocol knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// `EPERM`: the export is read-only.
    NotPermitted = 1,
    /// `EIO`: the data cannot be read or written.
    Io = 5,
    /// `ENOMEM`: the server is out of memory.
    NoMemory = 12,
    /// `EINVAL`: the request makes no sense for this export.
    Invalid = 22,
    /// `ENOSPC`: no space is left, or a write goes beyond the end.
    NoSpace = 28,
    /// `EOVERFLOW`: the reply would be too large to send in one piece.
    Overflow = 75,
    /// `ENOTSUP`: zeroes cannot be written fast here.
    NotSupported = 95,
    /// `ESHUTDOWN`: the server is shutting down.
    Shutdown = 108,
}

impl ErrorCode {
    /// The code of a number from the wire. An unknown number counts as `EINVAL`, as the protocol
    /// says.
    pub fn from_wire(number: u32) -> Self {
        match number {
            1 => Self::NotPermitted,
            5 => Self::Io,
            12 => Self::NoMemory,
            28 => Self::NoSpace,
            75 => Self::Overflow,
            95 => Self::NotSupported,
            108 => Self::Shutdown,
            _ => Self::Invalid,
        }
    }

    /// The number on the wire.
    pub fn to_wire(self) -> u32 {
        self as u32
    }
}

/// A request failed. The client gets the code, and the message if it speaks structured replies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code:?})")]
pub struct ExportError {
    /// The number that the client gets.
    pub code: ErrorCode,
    /// One sentence for a person.
    pub message: String,
}

impl ExportError {
    /// An error with a message for a person.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<std::io::Error> for ExportError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let code = match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => ErrorCode::NotPermitted,
            ErrorKind::OutOfMemory => ErrorCode::NoMemory,
            ErrorKind::InvalidInput => ErrorCode::Invalid,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => ErrorCode::NoSpace,
            ErrorKind::Unsupported => ErrorCode::NotSupported,
            _ => ErrorCode::Io,
        };
        Self::new(code, error.to_string())
    }
}

/// What an export can do beyond reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Abilities {
    /// Writes, trims and zeroes are refused with `EPERM`.
    pub read_only: bool,
    /// [`Export::flush`] works.
    pub flush: bool,
    /// `fua` of a write means that it is durable when it returns.
    pub fua: bool,
    /// [`Export::trim`] works.
    pub trim: bool,
    /// [`Export::write_zeroes`] works.
    pub write_zeroes: bool,
    /// [`Export::write_zeroes`] obeys [`Zeroing::fast`].
    pub fast_zero: bool,
    /// [`Export::cache`] works.
    pub cache: bool,
    /// A flush on one connection covers writes that were answered on any other.
    pub multi_conn: bool,
    /// Reads of far offsets are slow, as on a disk that rotates.
    pub rotational: bool,
    /// `base:allocation` is cheap to ask: large reads are preceded by a look at it, and zeroes are
    /// sent as holes.
    pub sparse_reads: bool,
}

impl Abilities {
    /// Of a device that never changes.
    pub const READ_ONLY: Self = Self {
        read_only: true,
        flush: true,
        fua: false,
        trim: false,
        write_zeroes: false,
        fast_zero: false,
        cache: false,
        multi_conn: true,
        rotational: false,
        sparse_reads: false,
    };
}

/// Sizes of requests in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of this: a power of two, at most 64 KiB.
    pub minimum: u32,
    /// The size that is served best: a power of two, at least 512 and `minimum`.
    pub preferred: u32,
    /// Longest read or write. The server lowers it to its own limit.
    pub maximum: u32,
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096, maximum: 32 << 20 }
    }
}

/// How zeroes are to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Zeroing {
    /// The range must stay allocated, so that later writes to it do not run out of space.
    pub no_hole: bool,
    /// Fail with [`ErrorCode::NotSupported`], before anything changes, unless this is faster than
    /// writing zeroes as data.
    pub fast: bool,
    /// The zeroes must be durable when the call returns.
    pub fua: bool,
}

/// A stretch of a device, and what a metadata context says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Bytes; never 0.
    pub length: u64,
    /// The meaning depends on the context.
    pub flags: u32,
}

impl Extent {
    /// `base:allocation`: nothing is allocated here.
    pub const HOLE: u32 = 1;
    /// `base:allocation`: reads as zeroes.
    pub const ZERO: u32 = 2;
    /// `qemu:dirty-bitmap:…` and contexts of that kind: changed.
    pub const DIRTY: u32 = 1;
}

/// The name of the context that says what is allocated, with [`Extent::HOLE`] and
/// [`Extent::ZERO`].
pub const BASE_ALLOCATION: &str = "base:allocation";

/// A block device. All calls may block, and come from several threads at once.
///
/// The server calls `read` and `write` with 1 byte to 32 MiB, and only within `size`.
pub trait Export: Send + Sync {
    /// Bytes of the device. Must not change while a client is connected.
    fn size(&self) -> u64;

    /// Must not change while a client is connected.
    fn abilities(&self) -> Abilities;

    /// Sizes of requests that this export wants.
    fn block_sizes(&self) -> BlockSizes {
        BlockSizes::default()
    }

    /// A line for a person.
    fn description(&self) -> String {
        String::new()
    }

    /// Fills the whole of `buffer` from `offset`. What is in the buffer before is undefined.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError>;

    /// Writes `data`. With `fua` it is durable when the call returns.
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        let _ = (offset, data, fua);
        Err(not_served("write"))
    }

    /// Makes every write durable that returned before.
    fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }

    /// The range is no longer needed. Reads of it may give anything until it is written.
    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        let _ = (offset, length, fua);
        Err(not_served("trim"))
    }

    /// Makes the range read as zeroes.
    fn write_zeroes(&self, offset: u64, length: u64, how: Zeroing) -> Result<(), ExportError> {
        let _ = (offset, length, how);
        Err(not_served("write zeroes"))
    }

    /// The range will be read soon.
    fn cache(&self, offset: u64, length: u64) -> Result<(), ExportError> {
        let _ = (offset, length);
        Err(not_served("cache"))
    }

    /// Names of metadata contexts, such as [`BASE_ALLOCATION`]. Each has a namespace, a colon and
    /// a name.
    fn contexts(&self) -> Vec<String> {
        Vec::new()
    }

    /// What the context says of the range, from `offset` on without gaps. At least one extent;
    /// at most `most` of them. They may end before the range does, and the last one may end
    /// behind it.
    fn block_status(&self, context: &str, offset: u64, length: u64, most: usize) -> Result<Vec<Extent>, ExportError> {
        let _ = (context, offset, length, most);
        Err(not_served("block status"))
    }
}

fn not_served(command: &str) -> ExportError {
    ExportError::new(ErrorCode::Invalid, format!("this export has no {command}"))
}

/// An export as a server lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// At most 4,096 bytes.
    pub name: String,
    /// A line for a person; may be empty.
    pub description: String,
}

/// The exports of a server.
pub trait Exports: Send + Sync {
    /// The export of a name. The empty name asks for the default one. `None` if there is no such
    /// export; an error if it exists and cannot be served now.
    fn find(&self, name: &str) -> Result<Option<Arc<dyn Export>>, ExportError>;

    /// What `NBD_OPT_LIST` shows.
    fn list(&self) -> Vec<Listed>;
}

/// One export, under its name and as the default one.
pub struct Single {
    name: String,
    export: Arc<dyn Export>,
}

impl Single {
    /// The name may be empty.
    pub fn new(name: impl Into<String>, export: Arc<dyn Export>) -> Self {
        Self { name: name.into(), export }
    }
}

impl Exports for Single {
    fn find(&self, name: &str) -> Result<Option<Arc<dyn Export>>, ExportError> {
        Ok((name.is_empty() || name == self.name).then(|| self.export.clone()))
    }

    fn list(&self) -> Vec<Listed> {
        vec![Listed { name: self.name.clone(), description: self.export.description() }]
    }
}

//! The kinds of failures of a store.

use std::fmt;

/// The kind of a failure, which decides the reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The object (or the bucket) is not there.
    NotFound,
    /// Another object holds the name, with other content: another writer was first.
    AlreadyExists,
    /// Credentials are missing, wrong or lack a right (401, 403, EACCES).
    PermissionDenied,
    /// No space is left or a quota is used up (ENOSPC, EDQUOT, 507).
    Full,
    /// The file system is mounted read-only (EROFS).
    ReadOnly,
    /// The store asks to come back later (429, 503).
    Throttled,
    /// No usable answer came: connection, name resolution, time limit, or a failure inside the
    /// server (5xx).
    Unreachable,
    /// No connection comes about for a reason that lasts: unknown host or authority, wrong
    /// protocol, a proxy that refuses.
    NoConnection,
    /// The bucket or container does not exist.
    NoBucket,
    /// An answer does not fit the request: a listing that contradicts itself, or another server's
    /// page.
    Foreign,
    /// Bytes are missing: a body shorter than announced, or an object shorter than it must be.
    Damaged,
    /// The object is larger than any of its kind may be: it is not of this kind, and was not read.
    TooLarge,
    /// This one object cannot be read, also when repeated: a bad sector, a damaged file system, or
    /// something other than a file in its place. Other objects can.
    Unreadable,
    /// The object is in a storage class that has to be thawed before it can be read. It is not
    /// damaged.
    Cold,
    /// Waiting for an answer was ended by [`Waiting::end`](crate::Waiting::end). A create or delete
    /// may have taken effect.
    Interrupted,
    /// The store created an object a second time under the same name: nothing that is stored there
    /// is safe.
    Unconditional,
    /// The request or the configuration is wrong; repeating it cannot help.
    Invalid,
    /// None of these; the source says more.
    Other,
}

impl StoreErrorKind {
    /// Whether the same request may succeed later without intervention.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Throttled | Self::Unreachable | Self::NoConnection | Self::Foreign | Self::Damaged)
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "it does not exist",
            Self::AlreadyExists => "another object has that name",
            Self::PermissionDenied => "access denied",
            Self::Full => "no space left, or a quota is used up",
            Self::ReadOnly => "the storage is read-only",
            Self::Throttled => "the storage is busy",
            Self::Unreachable => "the storage gave no usable answer",
            Self::NoConnection => "no connection to the storage",
            Self::NoBucket => "the bucket or container does not exist",
            Self::Foreign => "the answer is not that of an object store",
            Self::Damaged => "bytes are missing",
            Self::TooLarge => "it is larger than such an object may be",
            Self::Unreadable => "it cannot be read",
            Self::Cold => "it is in cold storage",
            Self::Interrupted => "stopped waiting for an answer",
            Self::Unconditional => "this storage ignores conditional creation and would lose data",
            Self::Invalid => "the request was refused",
            Self::Other => "it failed",
        })
    }
}

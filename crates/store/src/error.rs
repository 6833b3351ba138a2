//! Errors of a store, sorted by the reaction of the caller.
//!
//! [`StoreErrorKind`] decides: retry, give way to another writer, tell the user. The source keeps
//! only the information for a person, never the long chain of a client library. This is an HTTP
//! status with the server's code and words, or the operating system's error. `remote` and `local`
//! build these errors, [`sort`] finds out their kind; everyone above reads them.

mod sort;

pub(crate) use sort::element;

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use larder_format::ErrorKind;
use rustix::io::Errno;

use crate::error_kind::StoreErrorKind;
use crate::reasons::{NoFolder, Said};

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// Opening the store: no request was sent.
    Open,
    /// Creating an object.
    Create,
    /// Reading an object or a part of it.
    Read,
    /// Asking for the size of an object.
    Size,
    /// Listing the objects of a folder.
    List,
    /// Deleting an object.
    Delete,
    /// Asking for an object in cold storage.
    Thaw,
}

impl fmt::Display for StoreOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::Read => "read",
            Self::Size => "look up",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Thaw => "thaw",
        })
    }
}

/// A request to the store that failed: operation, object and reason.
#[derive(Debug, thiserror::Error)]
#[error("{}", Told(.op, .name, .kind, .source.as_deref()))]
pub struct StoreError {
    /// The operation.
    pub op: StoreOp,
    /// The object, relative to the repository; the folder of a listing; the location, when opening.
    pub name: String,
    /// The kind of failure.
    pub kind: StoreErrorKind,
    /// The words of the server or the operating system, if any.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

/// Prints an error: what was to be done, and what prevented it. If the kind says little, its source
/// is a part of it.
struct Told<'a>(&'a StoreOp, &'a str, &'a StoreErrorKind, Option<&'a (dyn Error + Send + Sync + 'static)>);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self(op, name, kind, source) = self;
        match (kind, source) {
            // The reason is the place, not one object.
            (StoreErrorKind::ReadOnly, Some(place)) if place.is::<ReadOnlyPlace>() => {
                write!(f, "{place}: cannot {op} {name}")
            }
            (StoreErrorKind::Other, Some(source)) if NoFolder::is_in(source) => write!(f, "{source}"),
            (StoreErrorKind::Other, Some(source)) => write!(f, "cannot {op} {name}: {source}"),
            // Commands print this line and continue.
            (StoreErrorKind::Unreadable, Some(source)) => write!(f, "cannot {op} {name}: {kind}: {source}"),
            _ => write!(f, "cannot {op} {name}: {kind}"),
        }
    }
}

impl StoreError {
    pub(crate) fn new(op: StoreOp, name: &str, kind: StoreErrorKind) -> Self {
        // The root of a repository has no name of its own in messages.
        let name = if name.is_empty() { "the repository" } else { name };
        Self { op, name: name.to_owned(), kind, source: None }
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same failure of a repository at this location. It is named where it is the reason.
    pub(crate) fn at(self, location: &str) -> Self {
        match self.kind {
            StoreErrorKind::ReadOnly => {
                let place = ReadOnlyPlace { location: location.to_owned(), source: self.source };
                Self { source: Some(Box::new(place)), ..self }
            }
            _ => self,
        }
    }

    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        use StoreErrorKind as Kind;
        match self.kind {
            Kind::NotFound if matches!(self.op, StoreOp::Read | StoreOp::Size) => ErrorKind::Damaged,
            Kind::PermissionDenied if self.op == StoreOp::Delete && !self.is_wrong_clock() => ErrorKind::DeleteDenied,
            Kind::AlreadyExists => ErrorKind::LostRace,
            Kind::Full => ErrorKind::Full,
            Kind::Throttled | Kind::Unreachable | Kind::Foreign => ErrorKind::Retry,
            Kind::Damaged | Kind::TooLarge | Kind::Unreadable => ErrorKind::Damaged,
            Kind::Interrupted => ErrorKind::Interrupted,
            Kind::Cold => ErrorKind::Precondition,
            Kind::NotFound
            | Kind::PermissionDenied
            | Kind::ReadOnly
            | Kind::NoConnection
            | Kind::NoBucket
            | Kind::Unconditional
            | Kind::Invalid
            | Kind::Other => ErrorKind::Unusable,
        }
    }

    /// The words of the server, if a server refused.
    pub fn server_failure(&self) -> Option<&ServerFailure> {
        self.source.as_deref().and_then(|source| source.downcast_ref())
    }

    /// Whether there can be no folder at the repository's place.
    pub fn is_no_folder(&self) -> bool {
        self.source.as_deref().is_some_and(NoFolder::is_in)
    }

    /// Whether this is about the connection to an SFTP server, or in such a server's words.
    pub fn is_of_sftp(&self) -> bool {
        self.source.as_deref().is_some_and(|source| source.is::<Said>())
    }

    /// Whether the server refused because the clock of this machine is wrong.
    pub fn is_wrong_clock(&self) -> bool {
        self.server_failure()
            .is_some_and(|failure| matches!(failure.code.as_str(), "RequestTimeTooSkewed" | "RequestExpired"))
    }

    /// Whether the same request may succeed later without intervention. A create that failed so may
    /// have taken effect all the same.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    /// Whether this says nothing of the object, only that the store cannot be asked now.
    pub(crate) fn is_outage(&self) -> bool {
        use StoreErrorKind as Kind;
        matches!(
            self.kind,
            Kind::Throttled
                | Kind::Unreachable
                | Kind::NoConnection
                | Kind::NoBucket
                | Kind::Foreign
                | Kind::Interrupted
        )
    }

    /// The same failure of a request that is not repeated because waiting was ended.
    pub(crate) fn interrupted(self) -> Self {
        Self { kind: StoreErrorKind::Interrupted, ..self }
    }

    /// Builds the error for a failed system call.
    pub(crate) fn from_io(op: StoreOp, name: &str, source: io::Error) -> Self {
        let kind = match sort::kind_of_io(&source) {
            // A disk that fails to write says nothing about an existing object.
            StoreErrorKind::Unreadable if matches!(op, StoreOp::Create | StoreOp::Delete) => StoreErrorKind::Other,
            kind => kind,
        };
        let error = Self::new(op, name, kind);
        match Errno::from_io_error(&source) {
            Some(Errno::LOOP) => error.because(LinkOnTheWay),
            _ => error.because(source),
        }
    }

    /// Whether this is about one entry that a listing cannot examine: an object, or a folder (with
    /// a slash at its end). The listing continues after it.
    pub(crate) fn is_unlisted(&self) -> bool {
        self.op == StoreOp::List && self.kind == StoreErrorKind::Unreadable
    }

    /// Builds the error for an answer that the client library did not see.
    pub(crate) fn of_server(op: StoreOp, name: &str, failure: ServerFailure) -> Self {
        let kind = sort::kind_of_server(&failure).unwrap_or(match failure.status {
            404 => StoreErrorKind::NotFound,
            _ => StoreErrorKind::Invalid,
        });
        Self::new(op, name, kind).because(failure)
    }

    /// Builds the error for a request the client library failed to do.
    pub(crate) fn from_object_store(op: StoreOp, name: &str, source: object_store::Error) -> Self {
        tracing::debug!(%op, name, error = %source, "store request failed");
        let findings = sort::Findings::of(&source);
        let kind = match findings.kind(&source) {
            // There is no race for a deletion: the store keeps immutable, leased or held objects.
            StoreErrorKind::AlreadyExists if op == StoreOp::Delete => StoreErrorKind::PermissionDenied,
            // A listing is no object: one that breaks off is an answer that did not come.
            StoreErrorKind::Damaged | StoreErrorKind::Unreadable if op == StoreOp::List => StoreErrorKind::Unreachable,
            StoreErrorKind::Other if op == StoreOp::Delete && findings.is_conflict() => {
                StoreErrorKind::PermissionDenied
            }
            kind => kind,
        };
        Self { source: Some(findings.into_source(source)), ..Self::new(op, name, kind) }
    }
}

/// The answer of a server that refused a request or failed to do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server answered {status}{}{}", Tail(" ", code), Tail(": ", message))]
pub struct ServerFailure {
    /// The HTTP status.
    pub status: u16,
    /// The store's own code, such as `SlowDown`; empty if it gave none.
    pub code: String,
    /// The store's own words, shortened; empty if it gave none.
    pub message: String,
}

/// Prints a separator and a text, or nothing for an empty text.
struct Tail<'a>(&'static str, &'a str);

impl fmt::Display for Tail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1.is_empty() { Ok(()) } else { write!(f, "{}{}", self.0, self.1) }
    }
}

/// A repository on a file system that is mounted read-only.
#[derive(Debug, thiserror::Error)]
#[error("the repository {location} is read-only")]
struct ReadOnlyPlace {
    location: String,
    /// The words of the server or the operating system, if any.
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// A symbolic link below the repository's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a symbolic link leads there, and only folders directly below the repository may be links, of root or your own"
)]
struct LinkOnTheWay;

/// Fewer bytes than there must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{expected} bytes expected, {got} found")]
pub struct ShortRead {
    /// How many bytes, or how large an object, the reader needs.
    pub expected: u64,
    /// How many there were.
    pub got: u64,
}

/// More bytes than an object of its kind may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has {got} bytes, at most {most} are read")]
pub struct Oversized {
    /// How many it may have.
    pub most: u64,
    /// How many it has.
    pub got: u64,
}

/// No answer within the time an attempt is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {0:?}")]
pub(crate) struct TimedOut(pub(crate) Duration);

//! What can go wrong with a store, sorted by what the caller does about it.
//!
//! [`StoreErrorKind`] decides: retry, give way to another writer, tell the user. The source keeps only what a person
//! needs (an HTTP status with the server's code and words, or the operating system's error), never the long chain of a
//! client library. `remote` and `local` build these errors; everyone above reads them.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

/// What was being done.
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
        })
    }
}

/// What kind of failure it was, which decides what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The object (or the bucket) is not there.
    NotFound,
    /// Another object holds the name, with other content: somebody else was first.
    AlreadyExists,
    /// Credentials are missing, wrong or lack a right (401, 403, EACCES).
    PermissionDenied,
    /// No space is left or a quota is used up (ENOSPC, EDQUOT, 507).
    Full,
    /// The file system is mounted read-only (EROFS).
    ReadOnly,
    /// The store asks to come back later (429, 503).
    Throttled,
    /// No usable answer came: connection, name resolution, time limit, or a failure inside the server (5xx).
    Unreachable,
    /// Bytes are missing: a body shorter than announced, or an object shorter than it must be.
    Damaged,
    /// The request or the configuration is wrong; repeating it cannot help.
    Invalid,
    /// None of these; the source says more.
    Other,
}

impl StoreErrorKind {
    /// Whether the same request may succeed later without anybody doing anything.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Throttled | Self::Unreachable | Self::Damaged)
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "it does not exist",
            Self::AlreadyExists => "another object has that name",
            Self::PermissionDenied => "access denied",
            Self::Full => "no space left, or a quota is used up",
            Self::ReadOnly => "the store is read-only",
            Self::Throttled => "the store is overloaded",
            Self::Unreachable => "the store gave no usable answer",
            Self::Damaged => "bytes are missing",
            Self::Invalid => "the request was refused",
            Self::Other => "it failed",
        })
    }
}

/// A request to the store that failed: what, on which object, and why.
#[derive(Debug, thiserror::Error)]
#[error("cannot {op} {name}: {kind}")]
pub struct StoreError {
    /// What was being done.
    pub op: StoreOp,
    /// The object, relative to the repository; the folder of a listing; the location, when opening.
    pub name: String,
    /// What kind of failure it was.
    pub kind: StoreErrorKind,
    /// What the server or the operating system said, if anything.
    pub source: Option<Box<dyn Error + Send + Sync>>,
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

    /// Whether the same request may succeed later without anybody doing anything. A create that failed so may have
    /// taken effect all the same.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    /// Builds the error for a failed system call.
    pub(crate) fn from_io(op: StoreOp, name: &str, source: io::Error) -> Self {
        Self::new(op, name, kind_of_io(&source)).because(source)
    }

    /// Builds the error for a request the client library failed to do.
    pub(crate) fn from_object_store(op: StoreOp, name: &str, source: object_store::Error) -> Self {
        tracing::debug!(%op, name, error = %source, "store request failed");
        let findings = Findings::of(&source);
        let kind = findings.kind(&source);
        Self { source: Some(findings.into_source(source)), ..Self::new(op, name, kind) }
    }
}

/// Sorts the operating system's errors.
fn kind_of_io(error: &io::Error) -> StoreErrorKind {
    use io::ErrorKind as Io;
    match error.kind() {
        Io::NotFound | Io::NotADirectory | Io::IsADirectory => StoreErrorKind::NotFound,
        Io::AlreadyExists => StoreErrorKind::AlreadyExists,
        Io::PermissionDenied => StoreErrorKind::PermissionDenied,
        Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => StoreErrorKind::Full,
        Io::ReadOnlyFilesystem => StoreErrorKind::ReadOnly,
        Io::UnexpectedEof => StoreErrorKind::Damaged,
        Io::TimedOut
        | Io::ConnectionRefused
        | Io::ConnectionReset
        | Io::ConnectionAborted
        | Io::NotConnected
        | Io::BrokenPipe
        | Io::HostUnreachable
        | Io::NetworkUnreachable
        | Io::NetworkDown
        | Io::StaleNetworkFileHandle => StoreErrorKind::Unreachable,
        Io::InvalidInput | Io::InvalidFilename | Io::Unsupported => StoreErrorKind::Invalid,
        _ => StoreErrorKind::Other,
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

/// Fewer bytes than there must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{expected} bytes expected, {got} found")]
pub struct ShortRead {
    /// How many bytes, or how large an object, the reader needs.
    pub expected: u64,
    /// How many there were.
    pub got: u64,
}

/// No answer within the time an attempt is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {0:?}")]
pub(crate) struct TimedOut(pub(crate) Duration);

/// What a client library's error chain holds that matters.
#[derive(Default)]
struct Findings {
    server: Option<ServerFailure>,
    io: Option<(io::ErrorKind, Option<i32>)>,
    http: Option<object_store::client::HttpErrorKind>,
    short: Option<ShortRead>,
    deepest: String,
}

impl Findings {
    fn of(error: &object_store::Error) -> Self {
        let mut findings = Self::default();
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        // The bound guards against a source that is its own source.
        for _ in 0..32 {
            let Some(error) = next else { break };
            findings.look_at(error);
            next = error.source();
        }
        findings
    }

    fn look_at(&mut self, error: &(dyn Error + 'static)) {
        let text = error.to_string();
        if let Some(failure) = parse_status(&text) {
            self.server = Some(failure);
        }
        if let Some(http) = error.downcast_ref::<object_store::client::HttpError>() {
            self.http = Some(http.kind());
        }
        if let Some(short) = error.downcast_ref::<ShortRead>() {
            self.short = Some(*short);
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            self.io = Some((io.kind(), io.raw_os_error()));
            // `source` of a wrapping io::Error skips the error it wraps.
            if let Some(inner) = io.get_ref() {
                self.look_at(inner);
            }
        }
        if !text.is_empty() {
            self.deepest = text;
        }
    }

    fn kind(&self, error: &object_store::Error) -> StoreErrorKind {
        use object_store::Error as E;
        if let Some(server) = &self.server
            && let Some(kind) = kind_of_server(server)
        {
            return kind;
        }
        match error {
            E::NotFound { .. } => return StoreErrorKind::NotFound,
            E::AlreadyExists { .. } | E::Precondition { .. } => return StoreErrorKind::AlreadyExists,
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => return StoreErrorKind::PermissionDenied,
            E::NotSupported { .. } | E::NotImplemented { .. } | E::InvalidPath { .. } => {
                return StoreErrorKind::Invalid;
            }
            _ => {}
        }
        if self.short.is_some() {
            return StoreErrorKind::Damaged;
        }
        if let Some((kind, _)) = self.io {
            match kind_of_io(&kind.into()) {
                StoreErrorKind::Other => {}
                kind => return kind,
            }
        }
        match self.http {
            Some(_) => StoreErrorKind::Unreachable,
            None => StoreErrorKind::Other,
        }
    }

    fn into_source(self, error: object_store::Error) -> Box<dyn Error + Send + Sync> {
        match self {
            Self { server: Some(server), .. } => Box::new(server),
            Self { short: Some(short), .. } => Box::new(short),
            Self { io: Some((_, Some(errno))), .. } => Box::new(io::Error::from_raw_os_error(errno)),
            Self { deepest, .. } if !deepest.is_empty() => deepest.into(),
            _ => Box::new(error),
        }
    }
}

/// Codes with which stores say that space is used up, whatever status they put before them.
const FULL: [&str; 4] = ["QuotaExceeded", "StorageFull", "InsufficientStorage", "cap_exceeded"];

/// Codes that ask for the same request again although their status reads like a refusal.
const AGAIN: [&str; 4] = ["RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch"];

/// Codes for a write that met another one under way. Neither has won yet: to be repeated, not to be taken for a loss.
const CONFLICT: [&str; 2] = ["ConditionalRequestConflict", "OperationAborted"];

/// Sorts a server's answer; `None` leaves it to what the client library made of it.
fn kind_of_server(failure: &ServerFailure) -> Option<StoreErrorKind> {
    let code = failure.code.as_str();
    if FULL.iter().any(|full| code.contains(full)) {
        return Some(StoreErrorKind::Full);
    }
    if CONFLICT.contains(&code) {
        return Some(StoreErrorKind::Throttled);
    }
    if AGAIN.contains(&code) {
        return Some(StoreErrorKind::Unreachable);
    }
    if matches!(code, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") {
        return Some(StoreErrorKind::PermissionDenied);
    }
    match failure.status {
        401 | 403 => Some(StoreErrorKind::PermissionDenied),
        404 => Some(StoreErrorKind::NotFound),
        408 => Some(StoreErrorKind::Unreachable),
        416 => Some(StoreErrorKind::Damaged),
        429 | 503 => Some(StoreErrorKind::Throttled),
        501 => Some(StoreErrorKind::Invalid),
        507 => Some(StoreErrorKind::Full),
        500..=599 => Some(StoreErrorKind::Unreachable),
        409 | 412 => None,
        300..=499 => Some(StoreErrorKind::Invalid),
        _ => None,
    }
}

/// Reads the status line and body that the client library puts into its error text; its error type is private.
fn parse_status(text: &str) -> Option<ServerFailure> {
    const MARKS: [&str; 2] = ["non-2xx status code: ", "Server returned error response: "];
    let rest = MARKS.iter().find_map(|mark| text.split_once(mark)).map(|(_, rest)| rest)?;
    // A body without a status comes with 200: S3 reports a failure that happened after it had begun to answer.
    let status = rest.get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(500);
    let code = element(rest, "Code").unwrap_or_default().to_owned();
    let message = element(rest, "Message").unwrap_or_default().chars().take(200).collect();
    Some(ServerFailure { status, code, message })
}

/// The text of an XML element that holds no other.
fn element<'a>(xml: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{tag}>"))?;
    rest.split_once("</").map(|(text, _)| text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: &str) -> object_store::Error {
        let text = format!("Error performing PUT http://x/ in 1ms - Server returned non-2xx status code: {status}");
        object_store::Error::Generic { store: "S3", source: text.into() }
    }

    fn sorted(error: object_store::Error) -> StoreErrorKind {
        StoreError::from_object_store(StoreOp::Create, "x", error).kind
    }

    #[test]
    fn a_servers_answer_is_sorted_by_status_and_code() {
        use StoreErrorKind as K;
        for (status, kind) in [
            ("401 Unauthorized: ", K::PermissionDenied),
            ("403 Forbidden: <Error><Code>AccessDenied</Code></Error>", K::PermissionDenied),
            ("403 Forbidden: <Error><Code>QuotaExceeded</Code></Error>", K::Full),
            ("400 Bad Request: <Error><Code>XMinioAdminBucketQuotaExceeded</Code></Error>", K::Full),
            ("507 Insufficient Storage: ", K::Full),
            ("429 Too Many Requests: ", K::Throttled),
            ("503 Service Unavailable: <Error><Code>SlowDown</Code></Error>", K::Throttled),
            ("409 Conflict: <Error><Code>ConditionalRequestConflict</Code></Error>", K::Throttled),
            ("500 Internal Server Error: ", K::Unreachable),
            ("400 Bad Request: <Error><Code>RequestTimeout</Code></Error>", K::Unreachable),
            ("400 Bad Request: <Error><Code>ExpiredToken</Code></Error>", K::PermissionDenied),
            ("400 Bad Request: ", K::Invalid),
            ("301 Moved Permanently: ", K::Invalid),
            ("501 Not Implemented: ", K::Invalid),
        ] {
            assert_eq!(sorted(answer(status)), kind, "{status}");
        }
    }

    #[test]
    fn a_lost_race_is_not_a_conflict_under_way() {
        let exists =
            |text: &str| object_store::Error::AlreadyExists { path: "x".into(), source: Box::new(answer(text)) };
        assert_eq!(sorted(exists("412 Precondition Failed: ")), StoreErrorKind::AlreadyExists);
        assert_eq!(sorted(exists("409 Conflict: <Code>BlobAlreadyExists</Code>")), StoreErrorKind::AlreadyExists);
        assert_eq!(sorted(exists("409 Conflict: <Code>ConditionalRequestConflict</Code>")), StoreErrorKind::Throttled);
    }

    #[test]
    fn system_errors_are_found_however_deep_they_lie() {
        use StoreErrorKind as K;
        for (errno, kind) in
            [(28, K::Full), (122, K::Full), (30, K::ReadOnly), (13, K::PermissionDenied), (104, K::Unreachable)]
        {
            let wrapped = io::Error::other(io::Error::from_raw_os_error(errno));
            let error = object_store::Error::Generic { store: "x", source: Box::new(wrapped) };
            assert_eq!(sorted(error), kind, "errno {errno}");
        }
    }

    #[test]
    fn the_message_says_what_on_which_object_and_what_the_server_said() {
        let error = StoreError::from_object_store(
            StoreOp::Create,
            "data/j/1",
            answer("503 Service Unavailable: <Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>"),
        );
        assert_eq!(error.to_string(), "cannot create data/j/1: the store is overloaded");
        let said = error.source().map(ToString::to_string);
        assert_eq!(said.as_deref(), Some("the server answered 503 SlowDown: Reduce your rate."));
    }
}

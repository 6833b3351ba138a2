//! Finds the kind of a failure that a client library or the operating system reports.
//!
//! `object_store` hides the HTTP status in the text of an error type that it does not export. It
//! turns statuses into variants by rules that are too coarse for us. A conflict under way becomes a
//! lost race, a used-up quota a denied access. So the chain of causes is searched for statuses,
//! codes and system errors. The texts are the library's; `tests/suite/http.rs` notices when they
//! change.

use std::error::Error;
use std::io;

use rustix::io::Errno;

use crate::answers::AnswerProblem;
use crate::error_kind::StoreErrorKind;
use crate::in_its_place::InItsPlace;

use super::{ServerFailure, ShortRead};

/// Credentials were to come from the machine itself, and did not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no credentials are set, and this machine's metadata service gave none ({said})")]
struct NoRole {
    said: String,
}

/// A copy on a slow medium has to be asked for first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it was archived: thaw it (restore it from the archive tier), then run the command again ({server})")]
struct Archived {
    server: ServerFailure,
}

/// Why no connection comes about, and will not by waiting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum NoConnection {
    #[error(
        "the server's certificate is not trusted ({said}); name a file with its authority in AWS_CA_BUNDLE or SSL_CERT_FILE"
    )]
    Untrusted { said: String },
    #[error("the server asks for a certificate of the client ({said}); --tls-client-cert names its file")]
    NoIdentity { said: String },
    #[error("the server does not accept the certificate of --tls-client-cert ({said})")]
    RefusedIdentity { said: String },
    #[error("the server does not speak TLS there ({said}); does the address begin with http://?")]
    NoTls { said: String },
    #[error("the server does not speak HTTP there ({said}); does the address begin with https://?")]
    NoHttp { said: String },
    #[error("the host is not known ({said})")]
    UnknownHost { said: String },
    #[error("the proxy cannot be used ({said}); it is named by AWS_PROXY_URL, https_proxy, http_proxy or all_proxy")]
    Proxy { said: String },
}

impl NoConnection {
    /// Recognises the words of the libraries for TLS, HTTP and names.
    fn of(text: &str) -> Option<Self> {
        // The outer errors repeat the words of the inner ones.
        let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
        let said = text.rsplit("error: ").next().unwrap_or(text).to_owned();
        if has(&["invalid peer certificate"]) {
            let said = text.rsplit("invalid peer certificate: ").next().unwrap_or(text).to_owned();
            Some(Self::Untrusted { said })
        } else if has(&["received fatal alert: CertificateRequired"]) {
            Some(Self::NoIdentity { said })
        } else if has(&REFUSED_IDENTITY) {
            Some(Self::RefusedIdentity { said })
        } else if has(&["message of type InvalidContentType"]) {
            Some(Self::NoTls { said })
        } else if has(&["invalid HTTP version parsed"]) {
            Some(Self::NoHttp { said })
        } else if has(&["Name or service not known", "No address associated with hostname"]) {
            Some(Self::UnknownHost { said: said.rsplit("information: ").next().unwrap_or(&said).to_owned() })
        } else if has(&[
            "unsuccessful tunnel",
            "tunnel error: unsuccessful",
            "proxy authorization required",
            "proxy scheme",
        ]) {
            Some(Self::Proxy { said })
        } else {
            None
        }
    }
}

/// Alerts by which servers refuse the certificate of a client. The last one comes if an authority
/// of the same name has another key.
const REFUSED_IDENTITY: [&str; 4] = [
    "received fatal alert: UnknownCA",
    "received fatal alert: BadCertificate",
    "received fatal alert: CertificateUnknown",
    "received fatal alert: DecryptError",
];

/// Codes for objects on a slow medium.
const ARCHIVED: [&str; 3] = ["InvalidObjectState", "BlobArchived", "BlobBeingRehydrated"];

/// Where clouds tell their machines credentials. A failure there is not about the object that was
/// asked for.
const METADATA_SERVICES: [&str; 3] = ["://169.254.", "metadata.google.internal", "[fd00:ec2::"];

/// The relevant parts of a client library's error chain.
#[derive(Default)]
pub(super) struct Findings {
    at_metadata_service: bool,
    server: Option<ServerFailure>,
    io: Option<(io::ErrorKind, Option<i32>)>,
    http: Option<object_store::client::HttpErrorKind>,
    short: Option<ShortRead>,
    answer: Option<AnswerProblem>,
    no_connection: Option<NoConnection>,
    deepest: String,
}

impl Findings {
    pub(super) fn of(error: &object_store::Error) -> Self {
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
        self.at_metadata_service |= METADATA_SERVICES.iter().any(|service| text.contains(service));
        if let Some(failure) = parse_status(&text) {
            self.server = Some(failure);
        }
        if let Some(http) = error.downcast_ref::<object_store::client::HttpError>() {
            self.http = Some(http.kind());
        }
        if let Some(short) = error.downcast_ref::<ShortRead>() {
            self.short = Some(*short);
        }
        if let Some(problem) = error.downcast_ref::<AnswerProblem>() {
            self.answer = Some(problem.clone());
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            self.io = Some((io.kind(), io.raw_os_error()));
            // `source` of a wrapping io::Error skips the error it wraps.
            if let Some(inner) = io.get_ref() {
                self.look_at(inner);
            }
        }
        if self.no_connection.is_none() {
            self.no_connection = NoConnection::of(&text);
        }
        if !text.is_empty() {
            self.deepest = text;
        }
    }

    pub(super) fn kind(&self, error: &object_store::Error) -> StoreErrorKind {
        use object_store::Error as E;
        if let Some(problem) = &self.answer {
            return problem.kind();
        }
        if self.no_connection.is_some() && self.server.is_none() {
            return StoreErrorKind::NoConnection;
        }
        if self.at_metadata_service {
            // A refusal lasts; silence may pass, also in the middle of a job whose credentials are
            // renewed every hour.
            let refused = self.server.as_ref().is_some_and(|server| (400..500).contains(&server.status));
            return if refused { StoreErrorKind::PermissionDenied } else { StoreErrorKind::Unreachable };
        }
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

    /// Whether the server reported a conflict, of any kind.
    pub(super) fn is_conflict(&self) -> bool {
        self.server.as_ref().is_some_and(|server| matches!(server.status, 409 | 412))
    }

    pub(super) fn into_source(self, error: object_store::Error) -> Box<dyn Error + Send + Sync> {
        match self {
            Self { answer: Some(problem), .. } => Box::new(problem),
            Self { no_connection: Some(problem), server: None, at_metadata_service: false, .. } => Box::new(problem),
            Self { server: Some(server), .. } if ARCHIVED.contains(&server.code.as_str()) => {
                Box::new(Archived { server })
            }
            Self { at_metadata_service: true, server, deepest, .. } => {
                Box::new(NoRole { said: server.map_or(deepest, |server| server.to_string()) })
            }
            Self { server: Some(server), .. } => Box::new(server),
            Self { short: Some(short), .. } => Box::new(short),
            Self { io: Some((_, Some(errno))), .. } => Box::new(io::Error::from_raw_os_error(errno)),
            Self { deepest, .. } if !deepest.is_empty() => deepest.into(),
            _ => Box::new(error),
        }
    }
}

/// Codes by which stores say that space is used up, with any status before them.
const FULL: [&str; 4] = ["QuotaExceeded", "StorageFull", "InsufficientStorage", "cap_exceeded"];

/// Codes that ask for the same request again although their status reads like a refusal.
const AGAIN: [&str; 4] = ["RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch"];

/// Codes for a write that met another one under way. Neither has won yet, so the request is
/// repeated and does not count as lost.
const CONFLICT: [&str; 2] = ["ConditionalRequestConflict", "OperationAborted"];

/// Codes for a bucket or container that is not there, or about to go.
const NO_BUCKET: [&str; 4] = ["NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"];

/// Codes with which token services refuse a client, mostly with a plain 400.
const NOBODY: [&str; 6] =
    ["ExpiredToken", "InvalidToken", "TokenRefreshRequired", "invalid_grant", "invalid_client", "unauthorized_client"];

/// Azure's answer when a client may create but not replace, and the name is taken. Like all its
/// refusals it is a 403, decided before the condition is looked at.
const NO_REPLACING: &str = "UnauthorizedBlobOverwrite";

/// Sorts a server's answer; `None` leaves it to the client library's own sorting.
pub(super) fn kind_of_server(failure: &ServerFailure) -> Option<StoreErrorKind> {
    let code = failure.code.as_str();
    if FULL.iter().any(|full| code.contains(full)) {
        return Some(StoreErrorKind::Full);
    }
    if CONFLICT.contains(&code) {
        return Some(StoreErrorKind::Throttled);
    }
    if ARCHIVED.contains(&code) {
        return Some(StoreErrorKind::Cold);
    }
    if AGAIN.contains(&code) {
        return Some(StoreErrorKind::Unreachable);
    }
    if NOBODY.contains(&code) {
        return Some(StoreErrorKind::PermissionDenied);
    }
    if code == NO_REPLACING {
        return Some(StoreErrorKind::AlreadyExists);
    }
    match failure.status {
        401 | 403 => Some(StoreErrorKind::PermissionDenied),
        // Only the client library knows whether the object was not found: it also asks other
        // servers for credentials.
        404 if NO_BUCKET.contains(&code) => Some(StoreErrorKind::NoBucket),
        404 => None,
        408 => Some(StoreErrorKind::Unreachable),
        416 => Some(StoreErrorKind::Damaged),
        429 | 503 => Some(StoreErrorKind::Throttled),
        501 => Some(StoreErrorKind::Invalid),
        507 => Some(StoreErrorKind::Full),
        500..=599 => Some(StoreErrorKind::Unreachable),
        409 if NO_BUCKET.contains(&code) => Some(StoreErrorKind::NoBucket),
        409 | 412 => None,
        300..=499 => Some(StoreErrorKind::Invalid),
        _ => None,
    }
}

/// Reads the status line and body that the client library puts into its error text; its error type
/// is private.
fn parse_status(text: &str) -> Option<ServerFailure> {
    const MARKS: [&str; 2] = ["non-2xx status code: ", "Server returned error response: "];
    let Some(rest) = MARKS.iter().find_map(|mark| text.split_once(mark)).map(|(_, rest)| rest) else {
        return parse_batch_part(text);
    };
    // A body without a status comes with 200: S3 reports a failure that happened after it had begun
    // to answer.
    let status = rest.get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(500);
    let code = element(rest, "Code").or_else(|| json_text(rest, "error")).unwrap_or_default().to_owned();
    let message = element(rest, "Message")
        .or_else(|| json_text(rest, "error_description"))
        .or_else(|| json_text(rest, "message"))
        .unwrap_or_default();
    // Some give the reason in plain words, for instance that TLS is spoken at this port.
    let message = match rest.split_once(": ") {
        Some((_, body)) if code.is_empty() && message.is_empty() && !body.trim_start().starts_with(['<', '{']) => body,
        _ => message,
    };
    // Azure's further lines are numbers for its own people.
    let message = message.lines().next().unwrap_or_default().chars().take(200).collect();
    Some(ServerFailure { status, code, message })
}

/// Reads Azure's answer to one part of a batch: the library deletes in batches, ours are of one.
fn parse_batch_part(text: &str) -> Option<ServerFailure> {
    let (_, rest) = text.split_once("Bulk delete request failed ")?;
    let (said, code) = rest.rsplit_once(" (code: ")?;
    let message = said.rsplit_once(": ").map_or(said, |(_, reason)| reason).to_owned();
    Some(ServerFailure { status: code.trim_end_matches(')').parse().ok()?, code: String::new(), message })
}

/// The text after a name in JSON, as far as it has no escapes.
fn json_text<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("\"{name}\""))?;
    let text = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    text.split_once('"').map(|(text, _)| text)
}

/// The text of an XML element that holds no other.
pub(crate) fn element<'a>(xml: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{tag}>"))?;
    rest.split_once("</").map(|(text, _)| text.trim())
}

/// Errors about one file, which say nothing of its neighbours: bad sectors and damaged inodes,
/// loops of links, devices and sockets. Errors of a mount as a whole (`ESTALE`, `ETIMEDOUT`,
/// `ENOTCONN`) are none of them.
fn is_of_one_file(errno: Errno) -> bool {
    matches!(errno, Errno::IO | Errno::UCLEAN | Errno::BADMSG | Errno::LOOP | Errno::NXIO)
}

/// Sorts the operating system's errors.
pub(super) fn kind_of_io(error: &io::Error) -> StoreErrorKind {
    use io::ErrorKind as Io;
    if error.get_ref().is_some_and(|inner| inner.is::<InItsPlace>()) {
        return StoreErrorKind::Unreadable;
    }
    if error.raw_os_error().map(Errno::from_raw_os_error).is_some_and(is_of_one_file) {
        return StoreErrorKind::Unreadable;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{StoreError, StoreOp};

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
    fn the_other_clouds_words_are_understood() {
        use StoreErrorKind as K;
        for (status, kind) in [
            ("404 Not Found: <Error><Code>ContainerNotFound</Code></Error>", K::NoBucket),
            ("409 Conflict: <Error><Code>ContainerBeingDeleted</Code></Error>", K::NoBucket),
            ("403 Forbidden: <Error><Code>AuthorizationPermissionMismatch</Code></Error>", K::PermissionDenied),
            ("403 Forbidden: <Error><Code>UnauthorizedBlobOverwrite</Code></Error>", K::AlreadyExists),
            ("503 Service Unavailable: <Error><Code>ServerBusy</Code></Error>", K::Throttled),
            ("500 Internal Server Error: <Error><Code>OperationTimedOut</Code></Error>", K::Unreachable),
            ("429 Too Many Requests: <Error><Code>SlowDown</Code></Error>", K::Throttled),
            ("400 Bad Request: {\"error\":\"invalid_grant\",\"error_description\":\"Bad key.\"}", K::PermissionDenied),
            (
                "401 Unauthorized: {\"error\": {\"code\": 401, \"message\": \"Invalid Credentials\"}}",
                K::PermissionDenied,
            ),
        ] {
            assert_eq!(sorted(answer(status)), kind, "{status}");
        }
        let said =
            |status| parse_status(&answer(status).source().expect("a source").to_string()).map(|said| said.message);
        assert_eq!(
            said("404 Not Found: <Error><Code>X</Code><Message>Not here.\nRequestId:1\nTime:2</Message></Error>")
                .as_deref(),
            Some("Not here.")
        );
        let json = "400 Bad Request: {\"error\":\"invalid_grant\",\"error_description\":\"Bad key.\"}";
        assert_eq!(said(json).as_deref(), Some("Bad key."));
    }

    /// On Azure every deletion is a batch of one, whose part has a status of its own.
    #[test]
    fn a_part_of_a_batch_is_sorted_like_a_whole_answer() {
        use StoreErrorKind as K;
        let part = |reason: &str| object_store::Error::Generic {
            store: "MicrosoftAzure",
            source: format!("Bulk delete request failed for key a: b/c: {reason}").into(),
        };
        let deleted = |error| StoreError::from_object_store(StoreOp::Delete, "x", error);
        for (reason, kind) in [
            ("This request is not authorized. (code: 403)", K::PermissionDenied),
            ("The server is busy. (code: 503)", K::Throttled),
            ("Operation could not be completed. (code: 500)", K::Unreachable),
            // Immutable, leased, or with snapshots that keep it: a permission is missing, and no
            // other writer was first.
            ("This operation is not permitted as the blob is immutable. (code: 409)", K::PermissionDenied),
        ] {
            assert_eq!(deleted(part(reason)).kind, kind, "{reason}");
        }
        let said = deleted(part("The server is busy. (code: 503)")).source.map(|source| source.to_string());
        assert_eq!(said.as_deref(), Some("the server answered 503: The server is busy."));
    }

    #[test]
    fn a_lost_race_is_not_a_conflict_under_way() {
        let exists =
            |text: &str| object_store::Error::AlreadyExists { path: "x".into(), source: Box::new(answer(text)) };
        assert_eq!(sorted(exists("412 Precondition Failed: ")), StoreErrorKind::AlreadyExists);
        assert_eq!(sorted(exists("409 Conflict: <Code>BlobAlreadyExists</Code>")), StoreErrorKind::AlreadyExists);
        assert_eq!(sorted(exists("409 Conflict: <Code>ConditionalRequestConflict</Code>")), StoreErrorKind::Throttled);
    }

    /// If another server's 404 counted as a missing object, committed versions would look absent.
    #[test]
    fn only_the_object_itself_can_be_not_found() {
        assert_eq!(sorted(answer("404 Not Found: ")), StoreErrorKind::Other);
        assert_eq!(sorted(answer("404 Not Found: <Error><Code>NoSuchBucket</Code></Error>")), StoreErrorKind::NoBucket);
        let missing = object_store::Error::NotFound { path: "x".into(), source: Box::new(answer("404 Not Found: ")) };
        assert_eq!(sorted(missing), StoreErrorKind::NotFound);
        let metadata = |said: &str| object_store::Error::Generic {
            store: "S3",
            source: format!("Error performing GET http://169.254.169.254/latest/meta-data in 1ms - {said}").into(),
        };
        let refused = metadata("Server returned non-2xx status code: 404 Not Found: ");
        assert_eq!(sorted(refused), StoreErrorKind::PermissionDenied);
        assert_eq!(sorted(metadata("HTTP error: error sending request")), StoreErrorKind::Unreachable);
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

    /// A bad sector costs one object; a mount that hangs or a disk that takes no bytes costs the
    /// store.
    #[test]
    fn what_one_file_answers_is_about_that_object() {
        use StoreErrorKind as K;
        let kind = |op, errno: Errno| StoreError::from_io(op, "x", errno.into()).kind;
        for errno in [Errno::IO, Errno::UCLEAN, Errno::BADMSG, Errno::LOOP, Errno::NXIO] {
            for op in [StoreOp::Read, StoreOp::Size, StoreOp::List] {
                let error = StoreError::from_io(op, "x", errno.into());
                assert_eq!(error.kind, K::Unreadable, "{op} {errno}");
                assert!(!error.is_retryable() && !error.is_outage());
                let error = crate::RepositoryError::Store(error);
                assert!(error.is_damage() && error.is_of_object(), "{op} {errno}");
            }
            assert_eq!(kind(StoreOp::Create, errno), K::Other);
            assert_eq!(kind(StoreOp::Delete, errno), K::Other);
        }
        for errno in [Errno::STALE, Errno::TIMEDOUT, Errno::NOTCONN] {
            assert_eq!(kind(StoreOp::Read, errno), K::Unreachable, "{errno}");
        }
    }

    #[test]
    fn the_message_says_what_on_which_object_and_what_the_server_said() {
        let error = StoreError::from_object_store(
            StoreOp::Create,
            "data/j/1",
            answer("503 Service Unavailable: <Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>"),
        );
        assert_eq!(error.to_string(), "cannot create data/j/1: the storage is busy");
        let said = error.source().map(ToString::to_string);
        assert_eq!(said.as_deref(), Some("the server answered 503 SlowDown: Reduce your rate."));
    }
}

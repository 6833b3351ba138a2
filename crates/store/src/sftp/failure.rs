//! Failures of SFTP requests, sorted as those of a local folder are.

use std::io;

use russh_sftp::client::error::Error as SftpError;
use russh_sftp::protocol::{Status, StatusCode};
use rustix::io::Errno;

use super::command::Connecting;
use crate::error::{StoreError, StoreOp};
use crate::error_kind::StoreErrorKind;
use crate::in_its_place::InItsPlace;

/// A request that failed, before it is known for whom.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server refused, with the system's number where the protocol has one for it.
    Refused(io::Error),
    /// The server refused without a reason: all that the protocol has no number for.
    Vague(Said),
    /// There is no connection, or no longer.
    Connection(StoreErrorKind, Said),
    /// Sorted already.
    Store(StoreError),
}

/// Words for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Said(String);

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        match status.status_code {
            StatusCode::NoSuchFile => Self::Refused(Errno::NOENT.into()),
            StatusCode::PermissionDenied => {
                Self::Refused(io::Error::new(io::ErrorKind::PermissionDenied, words(&status)))
            }
            StatusCode::NoConnection | StatusCode::ConnectionLost => {
                Self::Connection(StoreErrorKind::Unreachable, Said(words(&status)))
            }
            _ => Self::Vague(Said(words(&status))),
        }
    }
}

/// The server's words, shortened and on one line.
fn words(status: &Status) -> String {
    let code = status.status_code.to_string();
    let message: String = status.error_message.chars().filter(|c| !c.is_control()).take(200).collect();
    match message.trim() {
        "" => format!("the server answered {code:?}"),
        message if message.eq_ignore_ascii_case(&code) => format!("the server answered {code:?}"),
        message => format!("the server answered {code:?}: {message}"),
    }
}

impl From<InItsPlace> for Failure {
    fn from(found: InItsPlace) -> Self {
        Self::Refused(found.into())
    }
}

impl Failure {
    /// The command that connects does not start.
    pub(super) fn no_start(command: &Connecting, error: &io::Error) -> Self {
        Self::Connection(StoreErrorKind::Invalid, Said(format!("cannot run {command}: {error}")))
    }

    /// No session came about. `code` is the exit code of the command that connects, and `said` are
    /// its last words. After a session that came about, all reasons may pass.
    pub(super) fn no_connection(host: &str, is_first: bool, code: Option<i32>, error: &SftpError, said: &str) -> Self {
        let ends_with = |words: &str| said.rsplit("; ").next().is_some_and(|last| last.contains(words));
        let kind = match () {
            () if !is_first => StoreErrorKind::Unreachable,
            () if ends_with("Permission denied (") || ends_with("Too many authentication failures") => {
                StoreErrorKind::PermissionDenied
            }
            () if ends_with("Could not resolve hostname") => StoreErrorKind::NoConnection,
            () if ends_with("Host key verification failed") || ends_with("subsystem request failed") => {
                StoreErrorKind::Invalid
            }
            () if code == Some(127) => StoreErrorKind::Invalid,
            () => StoreErrorKind::Unreachable,
        };
        let why = if said.is_empty() { error.to_string() } else { said.to_owned() };
        Self::Connection(kind, Said(format!("no SFTP session with {host} came about: {why}")))
    }

    /// A handle that the library cannot keep.
    pub(super) fn odd_handle() -> Self {
        let words = "the server names open files in a way that this program cannot repeat";
        Self::Connection(StoreErrorKind::Invalid, Said(words.to_owned()))
    }

    /// What was staged is gone: another program removed it.
    pub(super) fn staged_is_gone() -> Self {
        Self::Connection(StoreErrorKind::Unreachable, Said("another program removed the file under way".to_owned()))
    }

    /// The server's disk is full, or cannot be written to.
    pub(super) fn disk(self, kind: StoreErrorKind, name: &str) -> Self {
        let error = self.of(StoreOp::Create, name);
        Self::Store(StoreError { kind, ..error })
    }

    /// Whether the server's words are those of a full disk. The protocol has no number for it.
    pub(super) fn says_full(&self) -> bool {
        let Self::Vague(Said(words)) = self else { return false };
        let words = words.to_ascii_lowercase();
        ["no space", "disk space", "quota", "used up"].iter().any(|full| words.contains(full))
    }

    /// Whether the server denies it.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self, Self::Refused(error) if error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// The connection is lost.
    pub(super) fn lost(host: &str, error: &SftpError, said: &str) -> Self {
        let words = if said.is_empty() { error.to_string() } else { said.to_owned() };
        Self::Connection(StoreErrorKind::Unreachable, Said(format!("the connection to {host} is lost: {words}")))
    }

    /// The server lacks what creating safely needs.
    pub(super) fn no_links(op: StoreOp, name: &str) -> Self {
        let words = "the server makes no hard links (hardlink@openssh.com), so two jobs could overwrite one another";
        Self::Store(StoreError::new(op, name, StoreErrorKind::Invalid).because(Said(words.to_owned())))
    }

    pub(super) fn taken(name: &str) -> Self {
        Self::Store(StoreError::new(StoreOp::Create, name, StoreErrorKind::AlreadyExists))
    }

    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the server gave no reason.
    pub(super) fn is_vague(&self) -> bool {
        matches!(self, Self::Vague(_))
    }

    /// Whether the connection is the reason, so that another request on it cannot succeed.
    pub(super) fn is_of_connection(&self) -> bool {
        matches!(self, Self::Connection(..))
    }

    /// The error of a request.
    pub(super) fn of(self, op: StoreOp, name: &str) -> StoreError {
        match self {
            Self::Refused(error) => StoreError::from_io(op, name, error),
            // A read or look-up of one object that a server refuses without a reason is like a bad
            // sector: others can be read.
            Self::Vague(said) => {
                let kind = match op {
                    StoreOp::Read | StoreOp::List => StoreErrorKind::Unreadable,
                    _ => StoreErrorKind::Other,
                };
                StoreError::new(op, name, kind).because(said)
            }
            Self::Connection(kind, said) => StoreError::new(op, name, kind).because(said),
            Self::Store(error) => error,
        }
    }
}

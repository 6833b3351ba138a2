//! Failures of SFTP requests, sorted as those of a local folder are.

use std::io;
use std::process::ExitStatus;

use russh_sftp::client::error::Error as SftpError;
use russh_sftp::protocol::{Status, StatusCode};
use rustix::io::Errno;

use super::command::Connecting;
use crate::error::{StoreError, StoreOp};
use crate::error_kind::StoreErrorKind;
use crate::in_its_place::InItsPlace;
use crate::reasons::Said;

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

/// Whether the library gave no answer because the stream has ended, which it only says in words.
fn has_no_answer(error: &SftpError) -> bool {
    matches!(error, SftpError::UnexpectedBehavior(words) if words == "sender dropped")
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

    /// No session could be opened. `ended` is how the command that connects ended, if it has, and
    /// `said` are its last words. After an earlier session, all reasons may pass.
    pub(super) fn no_connection(
        host: &str,
        is_first: bool,
        ended: Option<ExitStatus>,
        error: &SftpError,
        said: &str,
    ) -> Self {
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
            () if ended.and_then(|status| status.code()) == Some(127) => StoreErrorKind::Invalid,
            () => StoreErrorKind::Unreachable,
        };
        let why = match (said, ended) {
            ("", Some(status)) => format!("the command that connects ended ({status}) before it spoke SFTP"),
            ("", None) if has_no_answer(error) => "the command that connects closed its output".to_owned(),
            ("", None) => error.to_string(),
            (said, _) => said.to_owned(),
        };
        Self::Connection(kind, Said(format!("no SFTP session with {host} could be opened: {why}")))
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
        let words = match said {
            "" if has_no_answer(error) => "it was closed".to_owned(),
            "" => error.to_string(),
            said => said.to_owned(),
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn told(failure: Failure) -> String {
        let Failure::Connection(_, Said(words)) = failure else { panic!("it is about the connection") };
        words
    }

    /// Guards against: words of the library in messages.
    #[test]
    fn a_stream_that_ends_is_told_in_plain_words() {
        let error = SftpError::UnexpectedBehavior("sender dropped".to_owned());
        let none = |ended, said| told(Failure::no_connection("nas", true, ended, &error, said));
        assert_eq!(
            none(Some(ExitStatus::from_raw(1 << 8)), ""),
            "no SFTP session with nas could be opened: \
             the command that connects ended (exit status: 1) before it spoke SFTP"
        );
        assert!(none(None, "").ends_with("the command that connects closed its output"));
        assert!(none(Some(ExitStatus::from_raw(255 << 8)), "ssh: no").ends_with("opened: ssh: no"));
        assert_eq!(told(Failure::lost("nas", &error, "")), "the connection to nas is lost: it was closed");
    }
}

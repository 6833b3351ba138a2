//! Why a request is refused, in the numbers of the protocol.

use russh_sftp::protocol::StatusCode;
use russh_sftp::server::StatusReply;
use rustix::io::Errno;

/// A request that is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The system refuses.
    System(Errno),
    /// The rules refuse.
    Rule(&'static str),
    /// The space of the rules is used up.
    OverQuota,
    /// The end of a file or folder.
    End,
    /// The request makes no sense.
    Bad(&'static str),
    /// The protocol has it, and this server does not.
    Unknown,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::System(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<Refusal> for StatusReply {
    fn from(refusal: Refusal) -> Self {
        let (code, words) = match refusal {
            Refusal::System(errno) => {
                let code = match errno {
                    Errno::NOENT | Errno::NOTDIR => StatusCode::NoSuchFile,
                    Errno::ACCESS | Errno::PERM | Errno::ROFS => StatusCode::PermissionDenied,
                    _ => StatusCode::Failure,
                };
                (code, std::io::Error::from(errno).to_string())
            }
            Refusal::Rule(words) => (StatusCode::PermissionDenied, words.to_owned()),
            Refusal::OverQuota => (StatusCode::Failure, "the space of this folder is used up".to_owned()),
            Refusal::End => (StatusCode::Eof, "end".to_owned()),
            Refusal::Bad(words) => (StatusCode::BadMessage, words.to_owned()),
            Refusal::Unknown => (StatusCode::OpUnsupported, "this server only creates, reads and lists".to_owned()),
        };
        Self::new(code).with_message(words)
    }
}

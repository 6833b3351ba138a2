//! [`Failure`]: why a command stops, in one or two lines, with its exit code.
//!
//! Errors of the crates below have a kind, and `exit` has the code of each kind. The modules here
//! add advice: `store` for a repository and its storage, `jobs` for jobs, `source` for the input of
//! a backup.

mod jobs;
mod source;
mod store;
mod volume;

use std::error::Error;
use std::io;

pub(crate) use larder_format::chain;

use crate::exit::Exit;

/// Why a command stops: the error, its object or file, and advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// How the process ends.
    pub(crate) exit: Exit,
    /// The error, one line.
    pub(crate) message: String,
    /// Advice, one line.
    pub(crate) advice: Option<String>,
}

impl Failure {
    /// A failure with a message of the command line itself.
    pub(crate) fn new(exit: impl Into<Exit>, message: impl Into<String>) -> Self {
        Self { exit: exit.into(), message: message.into(), advice: None }
    }

    /// The command line makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A failure with the message of an error and its sources.
    pub(crate) fn of(exit: impl Into<Exit>, error: &(dyn Error + 'static)) -> Self {
        Self::new(exit, chain(error))
    }

    /// A failure of a local file: a full disk has a code of its own.
    pub(crate) fn of_file(error: &io::Error) -> Self {
        let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        Self::of(if is_full { Exit::Full } else { Exit::Failed }, error)
    }

    /// Adds advice.
    pub(crate) fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// Prefixes the message with the activity.
    pub(crate) fn while_doing(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_lnode::BackupError;
    use larder_store::{RepositoryError, StoreError, StoreErrorKind, StoreOp};

    #[test]
    fn a_message_is_one_line_and_says_nothing_twice() {
        let inner = std::io::Error::other("disk\non fire");
        let source: Option<Box<dyn Error + Send + Sync>> = Some(Box::new(inner));
        let error = StoreError { op: StoreOp::Read, name: "x".to_owned(), kind: StoreErrorKind::Other, source };
        assert_eq!(chain(&error), "cannot read x: disk on fire");
        let wrapped = BackupError::from(RepositoryError::from(error));
        assert_eq!(chain(&wrapped), "cannot read x: disk on fire");
    }
}

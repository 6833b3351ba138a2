//! Reasons of errors that messages and advice depend on.

use std::error::Error;
use std::io;
use std::path::PathBuf;

/// The words of a server, or about a connection to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Said(pub(crate) String);

/// A folder cannot be made although the one above it exists.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the folder {} for the repository: {why}", .path.display())]
pub(crate) struct NoFolder {
    pub(crate) path: PathBuf,
    pub(crate) why: io::Error,
}

impl NoFolder {
    /// Whether this is the reason of an error.
    pub(crate) fn is_in(error: &(dyn Error + Send + Sync + 'static)) -> bool {
        let mut next = error.downcast_ref::<io::Error>();
        while let Some(error) = next {
            let inner = error.get_ref();
            if inner.is_some_and(|inner| inner.is::<Self>()) {
                return true;
            }
            next = inner.and_then(|inner| inner.downcast_ref::<io::Error>());
        }
        false
    }
}

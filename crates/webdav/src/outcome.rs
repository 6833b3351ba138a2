//! How a request failed. `dav-server` knows few errors, and passes over some; this has the right
//! one.

use dav_server::fs::FsError;
use http::StatusCode;
use larder_format::ErrorKind;
use larder_tree::TreeError;
use parking_lot::Mutex;

/// The first failure of one request, if it has any.
#[derive(Debug, Default)]
pub(crate) struct Outcome(Mutex<Option<StatusCode>>);

impl Outcome {
    /// The status that says why, if anything failed.
    pub(crate) fn failure(&self) -> Option<StatusCode> {
        *self.0.lock()
    }

    /// Notes an error.
    pub(crate) fn note(&self, error: &TreeError) -> FsError {
        self.fail(status(error))
    }

    /// Notes a status.
    pub(crate) fn fail(&self, status: StatusCode) -> FsError {
        // It is an answer like any other.
        if status == StatusCode::NOT_FOUND {
            return FsError::NotFound;
        }
        self.0.lock().get_or_insert(status);
        FsError::GeneralFailure
    }
}

/// The status for an error. Clients repeat requests that get 503.
fn status(error: &TreeError) -> StatusCode {
    match error {
        TreeError::NotFound | TreeError::Forgotten { .. } | TreeError::NotAFolder => StatusCode::NOT_FOUND,
        TreeError::IsAFolder | TreeError::Unsuitable | TreeError::NoAttribute => StatusCode::METHOD_NOT_ALLOWED,
        TreeError::NoRoom => StatusCode::INSUFFICIENT_STORAGE,
        error if error.is_damage() => StatusCode::INTERNAL_SERVER_ERROR,
        error if error.is_cold() => StatusCode::SERVICE_UNAVAILABLE,
        error => match error.kind() {
            ErrorKind::BadKey => StatusCode::FORBIDDEN,
            ErrorKind::Bug | ErrorKind::Damaged => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        },
    }
}

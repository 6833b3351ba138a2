//! The kind of every error of this crate.

use larder_format::key_file::{PaperError, StretchError};
use larder_format::pinning::{PinEntry, PinState};
use larder_format::roles::Roles;
use larder_format::{DecodeError, EncodeError, ErrorKind};
use larder_testkit::assert_kinds;

use crate::catalog::RefError;
use crate::jobs::CommitError;
use crate::keyring::ImportError;
use crate::location::{LocationError, LocationProblem};
use crate::pins::PinError;
use crate::settings::SettingsError;
use crate::{RepositoryError, ServerFailure, StoreError, StoreErrorKind as Kind, StoreOp};

fn store(op: StoreOp, kind: Kind) -> StoreError {
    StoreError { op, name: "data/x".to_owned(), kind, source: None }
}

fn full() -> RepositoryError {
    store(StoreOp::Create, Kind::Full).into()
}

/// The kind that a failure has for every request but the exceptions below.
fn usual(kind: Kind) -> ErrorKind {
    match kind {
        Kind::Throttled | Kind::Unreachable | Kind::Foreign => ErrorKind::Retry,
        Kind::NoConnection | Kind::NoBucket | Kind::Unconditional | Kind::Invalid | Kind::Other => ErrorKind::Unusable,
        Kind::NotFound | Kind::PermissionDenied | Kind::ReadOnly => ErrorKind::Unusable,
        Kind::Cold => ErrorKind::Precondition,
        Kind::AlreadyExists => ErrorKind::LostRace,
        Kind::Full => ErrorKind::Full,
        Kind::Damaged | Kind::TooLarge | Kind::Unreadable => ErrorKind::Damaged,
        Kind::Interrupted => ErrorKind::Interrupted,
    }
}

#[test]
fn the_kind_of_a_request_depends_on_what_was_asked() {
    let kinds = [
        Kind::NotFound,
        Kind::AlreadyExists,
        Kind::PermissionDenied,
        Kind::Full,
        Kind::ReadOnly,
        Kind::Throttled,
        Kind::Unreachable,
        Kind::NoConnection,
        Kind::NoBucket,
        Kind::Foreign,
        Kind::Damaged,
        Kind::TooLarge,
        Kind::Unreadable,
        Kind::Cold,
        Kind::Interrupted,
        Kind::Unconditional,
        Kind::Invalid,
        Kind::Other,
    ];
    for op in
        [StoreOp::Open, StoreOp::Create, StoreOp::Read, StoreOp::Size, StoreOp::List, StoreOp::Delete, StoreOp::Thaw]
    {
        for kind in kinds {
            let expected = match (op, kind) {
                // A needed object is gone.
                (StoreOp::Read | StoreOp::Size, Kind::NotFound) => ErrorKind::Damaged,
                (StoreOp::Delete, Kind::PermissionDenied) => ErrorKind::DeleteDenied,
                (_, kind) => usual(kind),
            };
            assert_eq!(store(op, kind).kind(), expected, "{op:?} {kind:?}");
        }
    }
}

#[test]
fn a_wrong_clock_says_nothing_of_the_right_to_delete() {
    let source = ServerFailure { status: 403, code: "RequestTimeTooSkewed".to_owned(), message: String::new() };
    let error = store(StoreOp::Delete, Kind::PermissionDenied).because(source);
    assert!(error.is_wrong_clock());
    assert_eq!(error.kind(), ErrorKind::Unusable);
}

#[test]
fn every_error_has_its_kind() {
    use RepositoryError as Error;
    let text = String::new;
    let entry = || PinEntry { state: PinState::Pinned, time_ms: 0, host: text(), reason: text(), tags: None };
    assert_kinds!(Error {
        Error::NotARepository { .. } => Error::NotARepository { location: text() }, ErrorKind::NoRepository;
        Error::OtherConfig { .. } =>
            Error::OtherConfig { location: text(), program: None }, ErrorKind::NoRepository;
        Error::AlreadyARepository { .. } => Error::AlreadyARepository { location: text() }, ErrorKind::Precondition;
        Error::ConfigMissing { .. } => Error::ConfigMissing { location: text(), name: text() }, ErrorKind::Damaged;
        Error::ConfigUnusable { .. } => Error::ConfigUnusable { reason: text() }, ErrorKind::Damaged;
        Error::WrongPassword { .. } =>
            Error::WrongPassword { keys: 1, unreadable: 0, untried: 0 }, ErrorKind::BadKey;
        Error::NoKeys => Error::NoKeys, ErrorKind::BadKey;
        Error::ForeignPaperKey => Error::ForeignPaperKey, ErrorKind::BadKey;
        Error::ForeignKeyFile => Error::ForeignKeyFile, ErrorKind::BadKey;
        Error::KeyRemoved => Error::KeyRemoved, ErrorKind::BadKey;
        Error::DomainClosed { .. } => Error::DomainClosed { name: String::new() }, ErrorKind::BadKey;
        Error::KeyLacks { .. } =>
            Error::KeyLacks { what: "x", has: "y", needs: Roles::RESTORE }, ErrorKind::BadKey;
        Error::CannotRemoveKey { .. } => Error::CannotRemoveKey { id: text(), why: "x" }, ErrorKind::Precondition;
        Error::Damaged { .. } =>
            Error::Damaged { name: text(), source: DecodeError::Truncated { what: "x" } }, ErrorKind::Damaged;
        Error::Unstorable(_) => Error::Unstorable(EncodeError { what: "x", why: "y" }), ErrorKind::Bug;
        Error::Store(_) => full(), ErrorKind::Full;
        Error::Stretch(_) => Error::Stretch(StretchError { how: text() }), ErrorKind::Resource;
        Error::Random { .. } => Error::Random { reason: text() }, ErrorKind::Resource;
    });
    assert_kinds!(CommitError {
        CommitError::Fenced => CommitError::Fenced, ErrorKind::LostRace;
        CommitError::Repository(_) => CommitError::Repository(full()), ErrorKind::Full;
    });
    assert_kinds!(PinError {
        PinError::Pinned { .. } => PinError::Pinned { entry: entry() }, ErrorKind::Precondition;
        PinError::Unclear { .. } => PinError::Unclear { name: text() }, ErrorKind::Precondition;
        PinError::Forgotten { .. } => PinError::Forgotten { entry: entry() }, ErrorKind::Precondition;
        PinError::Retagged => PinError::Retagged, ErrorKind::LostRace;
        PinError::TooManyTags => PinError::TooManyTags, ErrorKind::Precondition;
        PinError::Gone => PinError::Gone, ErrorKind::Precondition;
        PinError::Contended => PinError::Contended, ErrorKind::LostRace;
        PinError::Repository(_) => PinError::Repository(full()), ErrorKind::Full;
    });
    assert_kinds!(ImportError {
        ImportError::Paper(_) => ImportError::Paper(PaperError::Lines { found: 1 }), ErrorKind::BadKey;
        ImportError::Repository(_) => ImportError::Repository(full()), ErrorKind::Full;
    });
    assert_kinds!(SettingsError {
        SettingsError::Contended => SettingsError::Contended, ErrorKind::LostRace;
        SettingsError::Repository(_) => SettingsError::Repository(full()), ErrorKind::Full;
    });
    assert_kinds!(RefError {
        RefError::NotFound { .. } => RefError::NotFound { text: text() }, ErrorKind::Precondition;
        RefError::Ambiguous { .. } => RefError::Ambiguous { text: text(), count: 2 }, ErrorKind::Precondition;
    });
    assert_kinds!(LocationError {
        LocationError { .. } => LocationError { problem: LocationProblem::Empty }, ErrorKind::BadRequest;
    });
}

//! Failures of a repository and its storage, and advice about them.

use larder_format::{DecodeError, names};
use larder_store::catalog::RefError;
use larder_store::jobs::CommitError;
use larder_store::keyring::ImportError;
use larder_store::pins::PinError;
use larder_store::settings::SettingsError;
use larder_store::{LocationError, OtherProgram, RepositoryError, StoreError, StoreErrorKind, StoreOp, names_variable};

use super::Failure;
use crate::text::safe;

impl From<RepositoryError> for Failure {
    fn from(error: RepositoryError) -> Self {
        let advice = match &error {
            RepositoryError::NotARepository { .. } => {
                Some("check -r/--repo, or make a repository there with `larder init`")
            }
            RepositoryError::OtherConfig { location, program } => {
                return Self::of(error.kind(), &error).advise(advice_on_other_config(location, *program));
            }
            RepositoryError::AlreadyARepository { .. } => Some("nothing was changed; it can be used as it is"),
            RepositoryError::ConfigMissing { .. } => {
                Some("nothing was changed; `larder key import` with the paper key restores access")
            }
            RepositoryError::ConfigUnusable { .. } => {
                Some("use the paper key (`larder key import`), or put the object back from a copy")
            }
            RepositoryError::CannotRemoveKey { .. } => Some("`larder key list` shows the keys"),
            RepositoryError::Damaged { name, source } => Some(advice_on_damage(name, source)),
            RepositoryError::Store(error) => return error.into(),
            RepositoryError::ForeignKeyFile => Some("check -r/--repo and --key-file"),
            RepositoryError::Stretch(_) => Some("run the command again"),
            RepositoryError::DomainClosed { .. } => {
                Some("ask an operator for a key that was made later (`larder key add`)")
            }
            RepositoryError::KeyRemoved => Some("ask an operator for a new one (`larder key add`)"),
            RepositoryError::KeyLacks { .. } => Some("give another key with --key-file, or the password"),
            RepositoryError::WrongPassword { .. }
            | RepositoryError::NoKeys
            | RepositoryError::ForeignPaperKey
            | RepositoryError::Unstorable(_)
            | RepositoryError::Random { .. } => None,
        };
        let failure = Self::of(error.kind(), &error);
        match advice {
            Some(advice) => failure.advise(advice),
            None => failure,
        }
    }
}

fn advice_on_other_config(location: &str, program: Option<OtherProgram>) -> String {
    let location = safe(location);
    match program {
        Some(OtherProgram::Restic) => format!("`larder import restic {location}` imports it into a Larder repository"),
        Some(OtherProgram::Borg) => format!("`larder import borg {location}` imports it into a Larder repository"),
        // The first bytes of a damaged configuration may be anything.
        None => {
            "check -r/--repo; if it was a Larder repository, `larder key import` with the paper key rebuilds its config"
                .to_owned()
        }
    }
}

fn advice_on_damage(name: &str, source: &DecodeError) -> &'static str {
    match source {
        DecodeError::UnsupportedVersion { .. } | DecodeError::UnknownFeature { .. } => {
            "it was written by a newer Larder; nothing was changed. Update this program to use it"
        }
        DecodeError::Development { .. } => "nothing was changed; no release reads it",
        DecodeError::KeyLacks { .. } => "give another key with --key-file, or the password",
        _ if name == names::CONFIG => "use the paper key (`larder key import`), or put the object back from a copy",
        _ if name.starts_with(names::KEYS) => {
            "put the object back from a copy, or remove it and get in with a paper key (`larder key import`)"
        }
        _ => "`larder check` names every snapshot and file that needs it",
    }
}

impl From<&StoreError> for Failure {
    fn from(error: &StoreError) -> Self {
        let failure = Self::of(error.kind(), error);
        match advice_on_request(error) {
            Some(advice) => failure.advise(advice),
            None => failure,
        }
    }
}

/// Advice on a failed request. `None`: the error itself suffices.
fn advice_on_request(error: &StoreError) -> Option<&'static str> {
    let reads_object = matches!(error.op, StoreOp::Read | StoreOp::Size);
    let is_unsupported = error.server_failure().is_some_and(|failure| matches!(failure.status, 405 | 501));
    let advice = match error.kind {
        StoreErrorKind::PermissionDenied if error.is_wrong_clock() => {
            "the clock of this machine is wrong: set it and run the command again"
        }
        StoreErrorKind::Invalid if error.op == StoreOp::Create && is_unsupported => {
            "this storage cannot create an object only if its name is free (If-None-Match: *): use another"
        }
        StoreErrorKind::NoConnection if error.is_of_sftp() => {
            "nothing was changed; check the host in -r/--repo, and try `ssh HOST` by hand"
        }
        StoreErrorKind::NoConnection => "nothing was changed; check -r/--repo, the variables it names, and proxies",
        StoreErrorKind::NoBucket => "create the bucket first, or check its name and region",
        StoreErrorKind::NotFound if reads_object => {
            "an object of the repository is missing; `larder check` names every file that needs it"
        }
        StoreErrorKind::NotFound => "check that the bucket or folder exists",
        StoreErrorKind::AlreadyExists => "another program was first; run the command again",
        StoreErrorKind::PermissionDenied if error.op == StoreOp::Delete => {
            "these credentials may not delete; nothing was removed"
        }
        StoreErrorKind::PermissionDenied => "check the credentials and what they may do (or the owner of the folder)",
        StoreErrorKind::Full => "what was committed is intact; make room and run the command again: it continues",
        StoreErrorKind::ReadOnly => {
            "make it writable to change it; snapshots, ls, find, diff, restore and check work on it as it is"
        }
        StoreErrorKind::Throttled | StoreErrorKind::Unreachable | StoreErrorKind::Interrupted => {
            "what was committed is intact; run the command again: it continues"
        }
        StoreErrorKind::Cold => "`larder restore --thaw` asks for what a snapshot needs, and restores it",
        StoreErrorKind::Foreign => {
            "nothing was concluded from it; `larder validate-store` says what this storage lacks"
        }
        StoreErrorKind::Unconditional => {
            "nothing was uploaded; use a storage, or a version of it, that refuses a second object of the same name \
             (`If-None-Match: *`). `larder validate-store` says more"
        }
        StoreErrorKind::Damaged | StoreErrorKind::TooLarge | StoreErrorKind::Unreadable => {
            "`larder check` names every snapshot and file that needs it"
        }
        _ if error.is_no_folder() => "nothing was changed; choose a place where folders can be created",
        _ if error.op == StoreOp::Open && !names_variable(error) => return credentials_of(&error.name),
        _ => return None,
    };
    Some(advice)
}

/// How a user gives a storage its credentials.
fn credentials_of(location: &str) -> Option<&'static str> {
    match location.split_once(':').map_or("", |(scheme, _)| scheme) {
        "azure" | "az" | "abfs" | "abfss" => {
            Some("set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_CONNECTION_STRING")
        }
        "gs" => Some("set GOOGLE_APPLICATION_CREDENTIALS (or other GOOGLE_* variables)"),
        "s3" => Some("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or other AWS_* variables)"),
        _ => None,
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        (&error).into()
    }
}

impl From<LocationError> for Failure {
    fn from(error: LocationError) -> Self {
        Self::of(error.kind(), &error)
    }
}

impl From<RefError> for Failure {
    fn from(error: RefError) -> Self {
        let kind = error.kind();
        // Below the command line a snapshot is called a version.
        match error {
            RefError::NotFound { text } => Self::new(kind, format!("no snapshot fits {text:?}"))
                .advise("`larder snapshots` lists what there is; --host, --tag, --path and --series narrow it down"),
            RefError::Ambiguous { text, count } => {
                Self::new(kind, format!("{text:?} fits {count} snapshots; give more digits"))
                    .advise("`larder snapshots --json` shows whole ids")
            }
        }
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Fenced => Self::of(error.kind(), &error),
            CommitError::Repository(error) => error.into(),
        }
    }
}

impl From<PinError> for Failure {
    fn from(error: PinError) -> Self {
        let kind = error.kind();
        match error {
            PinError::Repository(error) => error.into(),
            PinError::Pinned { entry } => {
                let (host, reason) = (safe(&entry.host), safe(&entry.reason));
                let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                Self::new(kind, format!("the snapshot is pinned (on {host}{why})"))
                    .advise("`larder unpin` lets it be forgotten")
            }
            PinError::Unclear { name } => {
                Self::new(kind, format!("{name} cannot be read, and it may say that the snapshot is pinned"))
                    .advise("`larder pin` or `larder unpin` replaces it")
            }
            PinError::Retagged => Self::new(kind, "the tags of the snapshot were changed meanwhile")
                .advise("run the command again, and it decides by the new ones"),
            PinError::TooManyTags => {
                Self::new(kind, "these tags together are too long; a snapshot may have 12 KiB of them")
            }
            PinError::Contended => Self::new(kind, "somebody else changes the pin of this snapshot all the time")
                .advise("run the command again"),
            PinError::Forgotten { entry } => {
                Self::new(kind, format!("the snapshot is forgotten, or about to be (on {})", safe(&entry.host)))
            }
            PinError::Gone => Self::new(kind, "the snapshot is forgotten and being removed"),
        }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Repository(error) => error.into(),
            SettingsError::Contended => Self::of(error.kind(), &error).advise("run the command again"),
        }
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Paper(_) => Self::of(error.kind(), &error),
            ImportError::Repository(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn store(op: StoreOp, kind: StoreErrorKind) -> Exit {
        Failure::from(StoreError { op, name: "data/x/1".to_owned(), kind, source: None }).exit
    }

    #[test]
    fn store_errors_end_with_the_code_that_says_what_to_do() {
        use StoreErrorKind as K;
        assert_eq!(store(StoreOp::Read, K::NotFound), Exit::Damage);
        assert_eq!(store(StoreOp::List, K::NotFound), Exit::Unreachable);
        assert_eq!(store(StoreOp::Read, K::PermissionDenied), Exit::Unreachable);
        assert_eq!(store(StoreOp::Delete, K::PermissionDenied), Exit::Refused);
        assert_eq!(store(StoreOp::Create, K::Full), Exit::Full);
        assert_eq!(store(StoreOp::Create, K::Throttled), Exit::Unreachable);
        assert_eq!(store(StoreOp::Read, K::Damaged), Exit::Damage);
        assert_eq!(store(StoreOp::Open, K::Invalid), Exit::Unreachable);
    }

    #[test]
    fn repository_errors_end_with_the_code_that_says_what_to_do() {
        let exit = |error: RepositoryError| Failure::from(error).exit;
        assert_eq!(exit(RepositoryError::NotARepository { location: String::new() }), Exit::NoRepository);
        let other = |program| RepositoryError::OtherConfig { location: "/b".to_owned(), program };
        assert_eq!(exit(other(None)), Exit::NoRepository);
        let advice = Failure::from(other(Some(OtherProgram::Borg))).advice;
        assert!(advice.is_some_and(|advice| advice.starts_with("`larder import borg /b`")));
        assert_eq!(exit(RepositoryError::WrongPassword { keys: 1, unreadable: 1, untried: 1 }), Exit::WrongKey);
        let damaged = |source| RepositoryError::Damaged { name: "config".to_owned(), source };
        assert_eq!(exit(damaged(DecodeError::Truncated { what: "x" })), Exit::Damage);
        let newer = Failure::from(damaged(DecodeError::UnsupportedVersion { what: "x", found: 2, newest: 1 }));
        assert_eq!(newer.exit, Exit::Failed);
        assert!(newer.advice.is_some_and(|advice| advice.contains("newer Larder")));
    }
}

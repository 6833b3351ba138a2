//! [`Failure`]: why a command stops, in one or two lines, with its exit code. Every error of the crates below is given its code
//! and its advice here and nowhere else.

use std::error::Error;

use larder_format::{DecodeError, names};
use larder_gnode::defragment::DefragmentError;
use larder_gnode::pass::PassError;
use larder_index::IndexError;
use larder_lifecycle::convert_layout::ConvertError;
use larder_lnode::{BackupError, RestoreError};
use larder_reader::ReadError;
use larder_rewrite::check::CheckError;
use larder_rewrite::chunk_copier::RewriteError;
use larder_rewrite::repair::RepairError;
use larder_source::exclude::TagFileError;
use larder_source::pattern_file::PatternFileError;
use larder_source::target::{TargetError, TargetErrorKind};
use larder_source::{PatternError, RootsError};
use larder_store::catalog::RefError;
use larder_store::jobs::CommitError;
use larder_store::keyring::ImportError;
use larder_store::pins::PinError;
use larder_store::settings::SettingsError;
use larder_store::{LocationError, RepositoryError, ServerFailure, StoreError, StoreErrorKind, StoreOp};

use crate::exit::Exit;
use crate::output::{absolute, safe};

/// Why a command stops: what, on which object or file, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// How the process ends.
    pub(crate) exit: Exit,
    /// What happened, one line.
    pub(crate) message: String,
    /// What to do, one line.
    pub(crate) advice: Option<String>,
}

impl Failure {
    /// A failure in words of the command line itself.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), advice: None }
    }

    /// The command line asks for something that makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A failure in the words of an error and its sources.
    pub(crate) fn of(exit: Exit, error: &(dyn Error + 'static)) -> Self {
        Self::new(exit, chain(error))
    }

    /// Adds what to do.
    pub(crate) fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// Puts words before the message: what was being done.
    pub(crate) fn while_doing(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

/// What to do when a snapshot went away while it was being read.
const FORGOTTEN: &str = "nothing is damaged; `larder snapshots` lists what there is";

/// An error and its sources in one line. Sources that the text above them already repeats are left out.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let source = error.to_string();
        if !source.is_empty() && !text.contains(&source) {
            text.push_str(": ");
            text.push_str(&source);
        }
        next = error.source();
    }
    text.replace('\n', " ")
}

impl From<RepositoryError> for Failure {
    fn from(error: RepositoryError) -> Self {
        let newer = "it was written by a newer Larder; nothing was changed. Update this program to use it";
        let (exit, advice) = match &error {
            RepositoryError::NotARepository { .. } => {
                (Exit::NoRepository, Some("check -r/--repo, or make a repository there with `larder init`"))
            }
            RepositoryError::AlreadyARepository { .. } => {
                (Exit::Failed, Some("nothing was changed; it can be used as it is"))
            }
            RepositoryError::ConfigMissing { .. } => {
                (Exit::Damage, Some("nothing was changed; `larder key import` with the paper key restores access"))
            }
            RepositoryError::ConfigUnusable { .. } => {
                (Exit::Damage, Some("use the paper key (`larder key import`), or put the object back from a copy"))
            }
            RepositoryError::WrongPassword { .. } => (Exit::WrongKey, None),
            RepositoryError::NoKeys => (Exit::WrongKey, None),
            RepositoryError::ForeignPaperKey => (Exit::WrongKey, None),
            RepositoryError::CannotRemoveKey { .. } => (Exit::Failed, Some("`larder key list` shows the keys")),
            RepositoryError::Damaged { name, source } => match source {
                DecodeError::UnsupportedVersion { .. } | DecodeError::UnknownFeature { .. } => {
                    (Exit::Failed, Some(newer))
                }
                _ if name == names::CONFIG => {
                    (Exit::Damage, Some("use the paper key (`larder key import`), or put the object back from a copy"))
                }
                _ if name.starts_with(names::KEYS) => (
                    Exit::Damage,
                    Some(
                        "put the object back from a copy, or remove it and get in with a paper key (`larder key import`)",
                    ),
                ),
                _ => (Exit::Damage, Some("`larder check` names every snapshot and file that needs it")),
            },
            RepositoryError::Store(error) => return error.into(),
            RepositoryError::Unstorable(_) | RepositoryError::Random { .. } => (Exit::Failed, None),
        };
        let failure = Self::of(exit, &error);
        match advice {
            Some(advice) => failure.advise(advice),
            None => failure,
        }
    }
}

impl From<&StoreError> for Failure {
    fn from(error: &StoreError) -> Self {
        let reads_object = matches!(error.op, StoreOp::Read | StoreOp::Size);
        let said = said(error);
        let (exit, advice) = match error.kind {
            StoreErrorKind::PermissionDenied if is_clock(error) => {
                (Exit::Unreachable, "the clock of this machine is wrong: set it and run the command again")
            }
            StoreErrorKind::Invalid
                if error.op == StoreOp::Create && said.is_some_and(|said| matches!(said.status, 405 | 501)) =>
            {
                let advice =
                    "this store cannot create an object only if its name is free (If-None-Match: *): use another";
                (Exit::Unreachable, advice)
            }
            StoreErrorKind::NoConnection => {
                (Exit::Unreachable, "nothing was changed; check -r/--repo, the variables it names, and proxies")
            }
            StoreErrorKind::NoBucket => (Exit::Unreachable, "create the bucket first, or check its name and region"),
            StoreErrorKind::NotFound if reads_object => {
                (Exit::Damage, "an object of the repository is missing; `larder check` names every file that needs it")
            }
            StoreErrorKind::NotFound => (Exit::Unreachable, "check that the bucket or folder exists"),
            StoreErrorKind::AlreadyExists => (Exit::Busy, "another program was first; run the command again"),
            StoreErrorKind::PermissionDenied if error.op == StoreOp::Delete => {
                (Exit::Refused, "these credentials may not delete; nothing was removed")
            }
            StoreErrorKind::PermissionDenied => {
                (Exit::Unreachable, "check the credentials and what they may do (or the owner of the folder)")
            }
            StoreErrorKind::Full => {
                (Exit::Full, "what was committed is intact; make room and run the command again, it continues")
            }
            StoreErrorKind::ReadOnly => {
                (Exit::Unreachable, "snapshots, ls, find, diff, restore and check work on it all the same")
            }
            StoreErrorKind::Throttled | StoreErrorKind::Unreachable => {
                (Exit::Unreachable, "what was committed is intact; run the command again, it continues")
            }
            StoreErrorKind::Interrupted => {
                (Exit::Interrupted, "what was committed is intact; run the command again, it continues")
            }
            StoreErrorKind::Foreign => {
                (Exit::Unreachable, "nothing was concluded from it; `larder validate-store` says what this store lacks")
            }
            StoreErrorKind::Unconditional => (
                Exit::Unreachable,
                "nothing was uploaded; use a store, or a version of it, that refuses a second object of the same name \
                 (`If-None-Match: *`). `larder validate-store` says more",
            ),
            StoreErrorKind::Damaged | StoreErrorKind::TooLarge | StoreErrorKind::Unreadable => {
                (Exit::Damage, "`larder check` names every snapshot and file that needs it")
            }
            // The error itself says which variables are missing.
            _ if error.op == StoreOp::Open && chain(error).contains("no credentials: set ") => (Exit::Unreachable, ""),
            _ if error.op == StoreOp::Open && !names_variable(error) => {
                (Exit::Unreachable, credentials_of(&error.name))
            }
            _ => (Exit::Unreachable, ""),
        };
        let failure = Self::of(exit, error);
        if advice.is_empty() { failure } else { failure.advise(advice) }
    }
}

/// What the server said.
fn said(error: &StoreError) -> Option<&ServerFailure> {
    error.source.as_deref().and_then(|source| source.downcast_ref::<ServerFailure>())
}

/// Whether a server finds our clock wrong.
pub(crate) fn is_clock(error: &StoreError) -> bool {
    said(error).is_some_and(|said| matches!(said.code.as_str(), "RequestTimeTooSkewed" | "RequestExpired"))
}

/// Whether the error says itself which variable is wrong.
fn names_variable(error: &StoreError) -> bool {
    error
        .source
        .as_ref()
        .is_some_and(|source| ["AWS_CA_BUNDLE", "AWS_PROXY_URL"].iter().any(|name| source.to_string().contains(name)))
}

/// How a storage is told who asks.
fn credentials_of(location: &str) -> &'static str {
    match location.split_once(':').map_or("", |(scheme, _)| scheme) {
        "azure" | "az" | "abfs" | "abfss" => {
            "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_CONNECTION_STRING"
        }
        "gs" => "set GOOGLE_APPLICATION_CREDENTIALS (or other GOOGLE_* variables)",
        "s3" => "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or other AWS_* variables)",
        _ => "",
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        (&error).into()
    }
}

impl From<LocationError> for Failure {
    fn from(error: LocationError) -> Self {
        Self::of(Exit::Usage, &error)
    }
}

impl From<RefError> for Failure {
    fn from(error: RefError) -> Self {
        // Below the command line a snapshot is called a version.
        match error {
            RefError::NotFound { text } => Self::new(Exit::Failed, format!("no snapshot fits {text:?}"))
                .advise("`larder snapshots` lists what there is; --host, --tag, --path and --series narrow it down"),
            RefError::Ambiguous { text, count } => {
                Self::new(Exit::Failed, format!("{text:?} fits {count} snapshots; give more digits"))
                    .advise("`larder snapshots --json` shows whole ids")
            }
        }
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Fenced => Self::of(Exit::Busy, &error),
            CommitError::Repository(error) => error.into(),
        }
    }
}

impl From<PinError> for Failure {
    fn from(error: PinError) -> Self {
        match error {
            PinError::Repository(error) => error.into(),
            PinError::Pinned { entry } => {
                let (host, reason) = (safe(&entry.host), safe(&entry.reason));
                let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                Self::new(Exit::Failed, format!("the snapshot is pinned (on {host}{why})"))
                    .advise("`larder unpin` lets it be forgotten")
            }
            PinError::Unclear { name } => {
                Self::new(Exit::Failed, format!("{name} cannot be read, and it may say that the snapshot is pinned"))
                    .advise("`larder pin` or `larder unpin` replaces it")
            }
            PinError::Contended => Self::new(Exit::Busy, "somebody else changes the pin of this snapshot all the time")
                .advise("run the command again"),
            PinError::Forgotten { entry } => {
                Self::new(Exit::Failed, format!("the snapshot is forgotten, or about to be (on {})", safe(&entry.host)))
            }
            PinError::Gone => Self::new(Exit::Failed, "the snapshot is forgotten and being removed"),
        }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Repository(error) => error.into(),
            SettingsError::Contended => Self::of(Exit::Busy, &error).advise("run the command again"),
        }
    }
}

impl From<PassError> for Failure {
    fn from(error: PassError) -> Self {
        match error {
            PassError::Repository(error) => error.into(),
            PassError::Index(error) => error.into(),
            PassError::UnreadableManifest { id, .. } => {
                let advice = format!(
                    "`larder check` says who needs it: remove the object if nobody does, else put it back, or remove the snapshot with `larder forget {id}`"
                );
                Self::of(Exit::Damage, &error).advise(advice)
            }
            PassError::LostManifest { .. } => Self::of(Exit::Damage, &error)
                .advise("put the object back from a copy, or drop the snapshot with `larder repair index`"),
            PassError::UnreadableLease { .. } => Self::of(Exit::Damage, &error)
                .advise("when no backup or restore is running, remove that object and run the command again"),
            PassError::WrongListing { .. } => Self::of(Exit::Unreachable, &error).advise("nothing was changed; run the command again"),
            PassError::TooMuchUnread { .. } => Self::of(Exit::Damage, &error).advise("`larder check` names them"),
            PassError::Overtaken => Self::of(Exit::Busy, &error).advise("run the command again"),
            PassError::Interrupted => Self::of(Exit::Interrupted, &error).advise("nothing was deleted"),
            PassError::NoThreads => Self::of(Exit::Failed, &error),
            PassError::LostIndex => Self::of(Exit::Damage, &error).advise(
                "`larder optimize` rebuilds it from snapshots and containers first; `larder repair index` does only that",
            ),
            PassError::UnknownTables => Self::of(Exit::Failed, &error).advise("update this program"),
        }
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Self {
        match error {
            // Whatever else a pass reads and finds damaged, it says itself.
            IndexError::Repository(error) if error.is_damage() => {
                Self::of(Exit::Damage, &error).advise("`larder repair index` rebuilds the index")
            }
            IndexError::Repository(error) => error.into(),
            IndexError::NewestLost { .. } => {
                Self::of(Exit::Damage, &error).advise("`larder optimize` and `larder repair index` rebuild it")
            }
            IndexError::Unstable { .. } => Self::of(Exit::Busy, &error).advise("run the command again"),
            error if error.is_damage() => Self::of(Exit::Damage, &error),
            error => Self::of(Exit::Failed, &error),
        }
    }
}

impl From<DefragmentError> for Failure {
    fn from(error: DefragmentError) -> Self {
        match error {
            DefragmentError::Repository(error) | DefragmentError::ChunkCopier(RewriteError::Repository(error)) => {
                error.into()
            }
            DefragmentError::Index(error) => error.into(),
            DefragmentError::ChunkCopier(RewriteError::Interrupted) => Self::of(Exit::Interrupted, &error),
            DefragmentError::ChunkCopier(RewriteError::NoThreads) => Self::of(Exit::Failed, &error),
        }
    }
}

impl From<ConvertError> for Failure {
    fn from(error: ConvertError) -> Self {
        match error {
            ConvertError::NoSuchSeries { .. } => {
                Self::of(Exit::Failed, &error).advise("`larder series list` shows the series")
            }
            ConvertError::Repository(error) => error.into(),
            ConvertError::Index(error) => error.into(),
            ConvertError::ChunkCopier(error) => DefragmentError::from(error).into(),
        }
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Paper(error) => Self::of(Exit::WrongKey, &error),
            ImportError::Repository(error) => error.into(),
        }
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Commit(error) => error.into(),
            BackupError::Repository(error) => error.into(),
            BackupError::Interrupted => Self::of(Exit::Interrupted, &error),
            BackupError::NoSuchBase { id } => {
                Self::new(Exit::Failed, format!("there is no snapshot {id} to compare with"))
                    .advise("`larder snapshots` lists what there is")
            }
            BackupError::NothingRead => Self::new(Exit::Failed, "nothing could be read: no snapshot was made"),
            BackupError::UnsharedBase { .. } => {
                Self::of(Exit::Failed, &error).advise("leave --parent out, or name a snapshot of the same series")
            }
            BackupError::Input { .. } => Self::of(Exit::Failed, &error).advise("no snapshot was made"),
            _ => Self::of(Exit::Failed, &error),
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Repository(error) => error.into(),
            ReadError::Forgotten { .. } => Self::of(Exit::Failed, &error).advise(FORGOTTEN),
        }
    }
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::Repository(error) => error.into(),
            RestoreError::Target(error) => error.into(),
            RestoreError::Interrupted => Self::of(Exit::Interrupted, &error),
            RestoreError::NoSuchPath { path } => {
                Self::new(Exit::Failed, format!("the snapshot has no {}", absolute(&path)))
                    .advise("`larder ls` or `larder find` shows what it has; paths begin with /")
            }
            RestoreError::Forgotten { .. } => Self::of(Exit::Failed, &error).advise(FORGOTTEN),
        }
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        match error.kind() {
            TargetErrorKind::Full => {
                Self::of(Exit::Full, &error).advise("make room and run the restore again, it continues")
            }
            TargetErrorKind::Damaged => Self::of(Exit::Damage, &error),
            _ => Self::of(Exit::Failed, &error),
        }
    }
}

impl From<CheckError> for Failure {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Interrupted => Self::of(Exit::Interrupted, &error),
            CheckError::Repository(error) => error.into(),
        }
    }
}

impl From<RepairError> for Failure {
    fn from(error: RepairError) -> Self {
        match error {
            RepairError::Repository(error) => error.into(),
            RepairError::Interrupted => Self::of(Exit::Interrupted, &error),
            RepairError::NoThreads => Self::of(Exit::Failed, &error),
        }
    }
}

impl From<RootsError> for Failure {
    fn from(error: RootsError) -> Self {
        Self::of(Exit::Usage, &error)
    }
}

impl From<PatternError> for Failure {
    fn from(error: PatternError) -> Self {
        Self::of(Exit::Usage, &error)
    }
}

impl From<PatternFileError> for Failure {
    fn from(error: PatternFileError) -> Self {
        Self::of(Exit::Usage, &error)
    }
}

impl From<TagFileError> for Failure {
    fn from(error: TagFileError) -> Self {
        Self::of(Exit::Usage, &error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(exit(RepositoryError::WrongPassword { keys: 1, unreadable: 1, untried: 1 }), Exit::WrongKey);
        let damaged = |source| RepositoryError::Damaged { name: "config".to_owned(), source };
        assert_eq!(exit(damaged(DecodeError::Truncated { what: "x" })), Exit::Damage);
        let newer = Failure::from(damaged(DecodeError::UnsupportedVersion { what: "x", found: 2, newest: 1 }));
        assert_eq!(newer.exit, Exit::Failed);
        assert!(newer.advice.is_some_and(|advice| advice.contains("newer Larder")));
    }

    #[test]
    fn a_message_is_one_line_and_says_nothing_twice() {
        let inner = std::io::Error::other("disk\non fire");
        let source: Option<Box<dyn Error + Send + Sync>> = Some(Box::new(inner));
        let error = StoreError { op: StoreOp::Read, name: "x".to_owned(), kind: StoreErrorKind::Other, source };
        assert_eq!(chain(&error), "cannot read x: it failed: disk on fire");
        let wrapped = BackupError::from(RepositoryError::from(error));
        assert_eq!(chain(&wrapped), "cannot read x: it failed: disk on fire");
    }
}

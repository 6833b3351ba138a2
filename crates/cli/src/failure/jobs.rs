//! Failures of jobs: backups, restores, checks, repairs and passes, and advice about them.

use larder_drill::{DrillError, NoRoom};
use larder_format::ErrorKind;
use larder_gnode::defragment::DefragmentError;
use larder_gnode::maintenance::MaintenanceError;
use larder_gnode::pass::PassError;
use larder_import::ImportError;
use larder_import::compare::CompareError;
use larder_index::IndexError;
use larder_job::RolledBack;
use larder_lifecycle::convert_layout::ConvertError;
use larder_lnode::transfer::CopyError;
use larder_lnode::{BackupError, RestoreError};
use larder_reader::{LeaseLost, RandomError, ReadError};
use larder_rewrite::check::CheckError;
use larder_rewrite::chunk_copier::RewriteError;
use larder_rewrite::repair::RepairError;
use larder_source::CommandError;
use larder_source::target::TargetError;
use larder_tree::TreeError;

use super::Failure;
use crate::exit::Exit;
use crate::sizes;
use crate::text::absolute;

/// Advice when a snapshot was removed while it was read.
const FORGOTTEN: &str = "nothing is damaged; `larder snapshots` lists what there is";

impl From<LeaseLost> for Failure {
    fn from(error: LeaseLost) -> Self {
        Self::of(error.kind(), &error)
    }
}

impl From<DrillError> for Failure {
    fn from(error: DrillError) -> Self {
        match error {
            DrillError::Restore(error) => error.into(),
            DrillError::Repository(error) => error.into(),
            DrillError::NoRoom(NoRoom { folder, free, needed }) => {
                let (free, needed) = (sizes::show(free), sizes::show(needed));
                let why = format!("{} has {free} free, and the sample needs {needed}", folder.display());
                Self::new(Exit::Full, why)
                    .advise("name another folder with --scratch, or use a smaller --sample or --no-write")
            }
            DrillError::Scratch { .. } => Self::of(error.kind(), &error).advise("name another folder with --scratch"),
            DrillError::ScratchFile { .. } => Self::of(error.kind(), &error),
        }
    }
}

impl From<RandomError> for Failure {
    fn from(error: RandomError) -> Self {
        let failure = |error: &RandomError| Self::of(error.kind(), error);
        let named = |candidates: &[Vec<u8>], has_more: bool| {
            let mut names: Vec<_> = candidates.iter().map(|path| absolute(path)).collect();
            names.extend(has_more.then(|| "…".to_owned()));
            names.join(", ")
        };
        match &error {
            RandomError::Repository(_) => match error {
                RandomError::Repository(error) => error.into(),
                error => failure(&error),
            },
            RandomError::SeveralFiles { candidates, has_more } => {
                failure(&error).advise(format!("name one as SNAPSHOT:PATH: {}", named(candidates, *has_more)))
            }
            RandomError::Folder { candidates, has_more, .. } if !candidates.is_empty() => {
                failure(&error).advise(format!("files below it: {}", named(candidates, *has_more)))
            }
            RandomError::NoSuchFile { .. } | RandomError::NotAFile { .. } | RandomError::Folder { .. } => {
                failure(&error).advise("`larder ls` shows what the snapshot has")
            }
            RandomError::NotKept { .. } => failure(&error).advise("make room, or use a larger --cache-disk"),
            _ => failure(&error),
        }
    }
}

impl From<TreeError> for Failure {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Contents(error) => error.into(),
            TreeError::Repository(error) => error.into(),
            TreeError::Forgotten { id } => ReadError::Forgotten { id }.into(),
            error => Self::of(error.kind(), &error),
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
                    "`larder check` says who needs it: remove the object if nobody does, else put it back, \
                     or remove the snapshot with `larder forget {id}`"
                );
                Self::of(error.kind(), &error).advise(advice)
            }
            error => {
                let failure = Self::of(error.kind(), &error);
                match advice_on_pass(&error) {
                    Some(advice) => failure.advise(advice),
                    None => failure,
                }
            }
        }
    }
}

fn advice_on_pass(error: &PassError) -> Option<&'static str> {
    match error {
        PassError::LostManifest { .. } => {
            Some("put the object back from a copy, or drop the snapshot with `larder repair index`")
        }
        PassError::RolledBack(RolledBack::Index { .. }) => Some(
            "look for missing snapshots first; then `larder repair index` rebuilds a lost index, and --accept-state takes an earlier state as it is",
        ),
        PassError::RolledBack(RolledBack::Version { .. }) => Some(
            "if the repository was put back on purpose, or another machine collected the snapshot, repeat this with --accept-state",
        ),
        PassError::RolledBack(RolledBack::Closing { .. }) => {
            Some("put the object back from a copy or an earlier version of it; --accept-state takes the domain as open")
        }
        PassError::ForeignIndex { .. } => {
            Some("run passes on one machine only, or take this index over with --accept-state after `larder check`")
        }
        PassError::UnreadableLease { .. } => {
            Some("when no backup or restore is running, remove that object and run the command again")
        }
        PassError::WrongListing { .. } => Some("nothing was changed; run the command again"),
        PassError::TooMuchUnread { .. } => Some("`larder check` names them"),
        PassError::Overtaken => Some("run the command again"),
        PassError::Interrupted => Some("nothing was deleted"),
        PassError::LostIndex => Some(
            "`larder optimize` rebuilds it from snapshots and containers first; `larder repair index` does only that",
        ),
        PassError::UnknownTables => Some("update this program"),
        _ => None,
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Self {
        match error {
            // A pass itself reports other damage that it finds.
            IndexError::Repository(_) if error.kind() == ErrorKind::Damaged => {
                Self::of(error.kind(), &error).advise("`larder repair index` rebuilds the index")
            }
            IndexError::Repository(error) => error.into(),
            IndexError::NewestLost { .. } => {
                Self::of(error.kind(), &error).advise("`larder optimize` and `larder repair index` rebuild it")
            }
            IndexError::Unstable { .. } => Self::of(error.kind(), &error).advise("run the command again"),
            error => Self::of(error.kind(), &error),
        }
    }
}

impl From<RewriteError> for Failure {
    fn from(error: RewriteError) -> Self {
        match error {
            RewriteError::Repository(error) => error.into(),
            error => Self::of(error.kind(), &error),
        }
    }
}

impl From<DefragmentError> for Failure {
    fn from(error: DefragmentError) -> Self {
        match error {
            DefragmentError::Repository(error) => error.into(),
            DefragmentError::Index(error) => error.into(),
            DefragmentError::ChunkCopier(error) => error.into(),
        }
    }
}

impl From<MaintenanceError> for Failure {
    fn from(error: MaintenanceError) -> Self {
        match error {
            MaintenanceError::Defragment(error) => error.into(),
            MaintenanceError::Pass(error) => error.into(),
        }
    }
}

impl From<ConvertError> for Failure {
    fn from(error: ConvertError) -> Self {
        match error {
            ConvertError::NoSuchSeries { .. } => {
                Self::of(error.kind(), &error).advise("`larder series list` shows the series")
            }
            ConvertError::Repository(error) => error.into(),
            ConvertError::Index(error) => error.into(),
            ConvertError::ChunkCopier(error) => error.into(),
        }
    }
}

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Read(error) => error.into(),
            CopyError::Backup(error) => error.into(),
        }
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        let kind = error.kind();
        match error {
            ImportError::Repository(error) => error.into(),
            ImportError::NoScratch => Self::of(kind, &error).advise("leave --no-cache out, or use --cache-dir"),
            ImportError::Compression { .. } => {
                Self::of(kind, &error).advise("decompress it in a pipe: `xz -dc FILE | larder import tar -`")
            }
            ImportError::Program { name: "borg", kind: ErrorKind::NoRepository, .. } => {
                Self::of(kind, &error).advise("check the location, which is that of the Borg repository")
            }
            ImportError::NoProgram { name: "borg", .. } => {
                Self::of(kind, &error).advise("install the package borgbackup")
            }
            ImportError::Program { name: "borg", kind: ErrorKind::Damaged, .. } => {
                Self::of(kind, &error).advise("`borg check --repair` repairs what can be repaired")
            }
            ImportError::Program { name: "borg", ref message, .. } if message.contains("access aborted") => {
                Self::of(kind, &error).advise(
                    "run `borg list` on it once, and answer its question; or set \
                     BORG_RELOCATED_REPO_ACCESS_IS_OK=yes or BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes",
                )
            }
            ImportError::Foreign { kind: ErrorKind::Damaged, .. } => Self::of(kind, &error).advise(
                "`restic repair index` makes a new index (`restic rebuild-index` before 0.16), \
                 and `restic check` shows what else is damaged",
            ),
            error => Self::of(kind, &error),
        }
    }
}

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Self {
        match error {
            CompareError::Version(error) => error.into(),
            CompareError::Original(error) => BackupError::from(error).into(),
            CompareError::Interrupted => Self::of(ErrorKind::Interrupted, &error),
        }
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        let kind = error.kind();
        match error {
            BackupError::Commit(error) => error.into(),
            BackupError::Repository(error) | BackupError::Source(error) => error.into(),
            BackupError::NoSuchBase { id } => Self::new(kind, format!("there is no snapshot {id} to compare with"))
                .advise("`larder snapshots` lists what there is"),
            BackupError::NothingRead => Self::new(kind, "nothing could be read: no snapshot was made"),
            BackupError::UnsharedBase { .. } => {
                Self::of(kind, &error).advise("leave --parent out, or name a snapshot of the same series")
            }
            BackupError::NeedsMemory { .. } => Self::of(kind, &error).advise("leave --total-memory out"),
            // The input is the command, and it is named already.
            BackupError::Input { source, .. } if source.get_ref().is_some_and(|source| source.is::<CommandError>()) => {
                Self::of(kind, &source).advise("no snapshot was made")
            }
            BackupError::Input { .. } => Self::of(kind, &error).advise("no snapshot was made"),
            error => Self::of(kind, &error),
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Repository(error) => error.into(),
            ReadError::Forgotten { .. } => Self::of(error.kind(), &error).advise(FORGOTTEN),
        }
    }
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Self {
        let kind = error.kind();
        match error {
            RestoreError::Repository(error) => error.into(),
            RestoreError::Target(error) => error.into(),
            RestoreError::Interrupted => Self::of(kind, &error),
            RestoreError::NoSuchPath { path } => Self::new(kind, format!("the snapshot has no {}", absolute(&path)))
                .advise("`larder ls` or `larder find` shows what it has; paths begin with /"),
            RestoreError::Forgotten { .. } => Self::of(kind, &error).advise(FORGOTTEN),
        }
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        let failure = Self::of(error.kind(), &error);
        match error.kind() {
            ErrorKind::Full => failure.advise("make room and run the restore again, it continues"),
            _ => failure,
        }
    }
}

impl From<CheckError> for Failure {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Repository(error) => error.into(),
            CheckError::Interrupted => Self::of(error.kind(), &error),
        }
    }
}

impl From<RepairError> for Failure {
    fn from(error: RepairError) -> Self {
        match error {
            RepairError::Repository(error) => error.into(),
            error => Self::of(error.kind(), &error),
        }
    }
}

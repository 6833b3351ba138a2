//! `larder restore`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{FetchArgs, FilterArgs};

/// Restore a snapshot, or a part of it, into a folder.
///
/// Run an interrupted restore again to continue it: complete files are not written twice.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Snapshot (latest, latest~2, or an id prefix); SNAPSHOT:/PATH restores the contents of PATH
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub(crate) snapshot: OsString,

    /// Folder to restore into
    #[arg(short = 't', long, value_name = "DIR")]
    pub(crate) target: PathBuf,

    /// Restore only files that match the pattern
    #[arg(short = 'i', long, value_name = "PATTERN", help_heading = "Selection")]
    pub(crate) include: Vec<OsString>,

    /// The same, ignoring case
    #[arg(long, value_name = "PATTERN", help_heading = "Selection")]
    pub(crate) iinclude: Vec<OsString>,

    /// Read include patterns from a file, one per line
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    pub(crate) include_file: Vec<PathBuf>,

    /// The same, ignoring case
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    pub(crate) iinclude_file: Vec<PathBuf>,

    /// Do not restore files that match the pattern
    #[arg(short = 'e', long, value_name = "PATTERN", help_heading = "Selection")]
    pub(crate) exclude: Vec<OsString>,

    /// The same, ignoring case
    #[arg(long, value_name = "PATTERN", help_heading = "Selection")]
    pub(crate) iexclude: Vec<OsString>,

    /// Read exclude patterns from a file, one per line
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    pub(crate) exclude_file: Vec<PathBuf>,

    /// The same, ignoring case
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    pub(crate) iexclude_file: Vec<PathBuf>,

    /// When to overwrite existing files
    #[arg(long, value_enum, default_value = "always", help_heading = "Existing files")]
    pub(crate) overwrite: OverwriteName,

    /// Delete what the snapshot does not have from restored folders. That includes files which
    /// the backup excluded; mounted file systems and repositories stay. With patterns, only what
    /// they select
    #[arg(long, help_heading = "Existing files")]
    pub(crate) delete: bool,

    /// With --delete: delete although the backup could not read everything
    #[arg(long, requires = "delete", help_heading = "Existing files")]
    pub(crate) force: bool,

    /// Change nothing; show what would be restored
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Change nothing; show the requests, bytes and money that the restore would take
    #[arg(long, conflicts_with_all = ["verify", "delete"])]
    pub(crate) estimate: bool,

    /// Read all restored files again and verify them
    #[arg(long)]
    pub(crate) verify: bool,

    /// Flush all files to disk before the end, so that they survive a power cut
    #[arg(long)]
    pub(crate) sync: bool,

    /// Write long runs of zeros as holes
    #[arg(long)]
    pub(crate) sparse: bool,

    /// Restore owners by number instead of by name
    #[arg(long, visible_alias = "numeric-ids", conflicts_with = "no_owner")]
    pub(crate) numeric_owner: bool,

    /// Do not restore owners; all files belong to the current user
    #[arg(long)]
    pub(crate) no_owner: bool,

    /// Do not restore set-user-id and set-group-id bits and file capabilities
    #[arg(long)]
    pub(crate) no_setid: bool,

    /// Do not restore block and character devices
    #[arg(long)]
    pub(crate) no_devices: bool,

    /// Restore only extended attributes whose names match the pattern
    #[arg(long, value_name = "PATTERN")]
    pub(crate) include_xattr: Vec<OsString>,

    /// Do not restore extended attributes whose names match the pattern
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude_xattr: Vec<OsString>,

    /// How contents are fetched
    #[command(flatten)]
    pub(crate) fetch: FetchArgs,

    /// Which snapshots `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

impl RestoreArgs {
    /// Whether patterns say what is restored.
    pub(crate) fn selects(&self) -> bool {
        let patterns = [&self.include, &self.iinclude, &self.exclude, &self.iexclude];
        let files = [&self.include_file, &self.iinclude_file, &self.exclude_file, &self.iexclude_file];
        patterns.iter().any(|given| !given.is_empty()) || files.iter().any(|given| !given.is_empty())
    }
}

/// When existing files are overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverwriteName {
    /// Always; files with equal content are not written
    Always,
    /// If size or modification time differ
    IfChanged,
    /// If the file in the snapshot is newer
    IfNewer,
    /// Never
    Never,
}

//! `larder restore`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{FetchArgs, FilterArgs};
use crate::time;

/// Restore a snapshot, or a part of it, into a folder.
///
/// Run an interrupted restore again to continue it: complete files are not written twice.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Snapshot (latest, latest~2, or an id or its beginning); SNAPSHOT:/PATH restores the contents
    /// of PATH
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

    /// Change nothing; show the requests, bytes, money and time that the restore would take
    #[arg(long, conflicts_with_all = ["verify", "delete"])]
    pub(crate) estimate: bool,

    /// Change nothing; show which objects in cold storage have to be thawed for this restore, and
    /// the hours and the price of each way to thaw them
    #[arg(long, conflicts_with_all = ["verify", "delete", "estimate", "thaw"])]
    pub(crate) plan: bool,

    /// Thaw what is in cold storage: ask for it, restore everything else, wait, and restore the
    /// rest
    #[arg(long, conflicts_with_all = ["dry_run", "estimate"], help_heading = "Cold storage")]
    pub(crate) thaw: bool,

    /// How fast it is thawed; faster is more expensive
    #[arg(long, value_enum, default_value = "bulk", requires = "thaw", help_heading = "Cold storage")]
    pub(crate) thaw_tier: ThawTierName,

    /// Days for which thawed objects stay readable
    #[arg(
        long, value_name = "N", default_value = "7", help_heading = "Cold storage",
        value_parser = clap::value_parser!(u32).range(1..=365)
    )]
    pub(crate) thaw_days: u32,

    /// Ask the storage this often what is thawed
    #[arg(
        long, value_name = "TIME", default_value = "5m", requires = "thaw", help_heading = "Cold storage",
        value_parser = time::parse_duration
    )]
    pub(crate) thaw_poll: Duration,

    /// Ask and restore what can be read, and do not wait: run the command again later
    #[arg(long, requires = "thaw", help_heading = "Cold storage")]
    pub(crate) no_wait: bool,

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

/// How fast objects are thawed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ThawTierName {
    /// Hours to two days, the cheapest
    Bulk,
    /// Hours
    Standard,
    /// Minutes, not for DEEP_ARCHIVE
    Expedited,
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

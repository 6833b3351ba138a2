//! `larder restore`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{FetchArgs, FilterArgs};

/// Bring a snapshot, or a part of it, back into a folder.
///
/// A restore that was interrupted is continued by running it again: what is complete is not written twice.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The snapshot (latest, latest~2, an id or its beginning), and what of it: SNAPSHOT:/PATH makes PATH the root of the target
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub(crate) snapshot: OsString,

    /// Folder to restore into
    #[arg(short = 't', long, value_name = "DIR")]
    pub(crate) target: PathBuf,

    /// Restore only what matches the pattern
    #[arg(short = 'i', long, value_name = "PATTERN", help_heading = "What to restore")]
    pub(crate) include: Vec<OsString>,

    /// The same without regard to upper and lower case
    #[arg(long, value_name = "PATTERN", help_heading = "What to restore")]
    pub(crate) iinclude: Vec<OsString>,

    /// File of patterns of what to restore, one a line
    #[arg(long, value_name = "FILE", help_heading = "What to restore")]
    pub(crate) include_file: Vec<PathBuf>,

    /// The same without regard to upper and lower case
    #[arg(long, value_name = "FILE", help_heading = "What to restore")]
    pub(crate) iinclude_file: Vec<PathBuf>,

    /// Do not restore what matches the pattern
    #[arg(short = 'e', long, value_name = "PATTERN", help_heading = "What to restore")]
    pub(crate) exclude: Vec<OsString>,

    /// The same without regard to upper and lower case
    #[arg(long, value_name = "PATTERN", help_heading = "What to restore")]
    pub(crate) iexclude: Vec<OsString>,

    /// File of patterns of what not to restore, one a line
    #[arg(long, value_name = "FILE", help_heading = "What to restore")]
    pub(crate) exclude_file: Vec<PathBuf>,

    /// The same without regard to upper and lower case
    #[arg(long, value_name = "FILE", help_heading = "What to restore")]
    pub(crate) iexclude_file: Vec<PathBuf>,

    /// Which existing files are overwritten
    #[arg(long, value_enum, default_value = "always", help_heading = "What to do with what exists")]
    pub(crate) overwrite: OverwriteName,

    /// Remove from restored folders what the snapshot does not have and the patterns select
    #[arg(long, help_heading = "What to do with what exists")]
    pub(crate) delete: bool,

    /// Change nothing, only say what would be restored
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Read everything again at the end and compare it
    #[arg(long)]
    pub(crate) verify: bool,

    /// End only when everything is on disk, so that not even a power cut takes it back
    #[arg(long)]
    pub(crate) sync: bool,

    /// Make long runs of zeros into holes, also where the original had none
    #[arg(long)]
    pub(crate) sparse: bool,

    /// Restore owners by number, not by name
    #[arg(long, visible_alias = "numeric-ids", conflicts_with = "no_owner")]
    pub(crate) numeric_owner: bool,

    /// Do not restore owners: everything belongs to you
    #[arg(long)]
    pub(crate) no_owner: bool,

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
    /// Always; equal content is found out and not written again
    Always,
    /// When size or time of modification differ
    IfChanged,
    /// When the one in the snapshot is newer
    IfNewer,
    /// Never
    Never,
}

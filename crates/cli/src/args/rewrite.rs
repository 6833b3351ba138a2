//! `larder rewrite`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::FilterArgs;
use crate::time;

/// Make snapshots without some files, or with another host, time or series.
///
/// Each snapshot that would differ gets a successor, which stores only new metadata. Contents are
/// neither read nor copied. Without names, these are all snapshots that the filters admit. The old
/// snapshots stay, unless --forget is given. The contents of files that were left out stay in the
/// repository until the old snapshots are forgotten and `larder optimize --max-unused 0` has run.
/// Containers that the newest and older snapshots share keep them longer. Versions of objects that
/// the storage keeps, and copies of the repository, still have them.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true))]
pub(crate) struct RewriteArgs {
    /// Snapshots (latest, latest~2, or an id or its beginning) [default: all that the filters
    /// admit]
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) ids: Vec<String>,

    /// Leave out files that match the pattern, as in `larder backup`
    #[arg(short = 'e', long, value_name = "PATTERN", help_heading = "Exclude", group = "change")]
    pub(crate) exclude: Vec<OsString>,

    /// The same, ignoring case
    #[arg(long, value_name = "PATTERN", help_heading = "Exclude", group = "change")]
    pub(crate) iexclude: Vec<OsString>,

    /// Read exclude patterns from a file, one per line
    #[arg(long, value_name = "FILE", help_heading = "Exclude", group = "change")]
    pub(crate) exclude_file: Vec<PathBuf>,

    /// The same, ignoring case
    #[arg(long, value_name = "FILE", help_heading = "Exclude", group = "change")]
    pub(crate) iexclude_file: Vec<PathBuf>,

    /// Record this host name
    #[arg(long, value_name = "NAME", help_heading = "Snapshot metadata", group = "change")]
    pub(crate) new_host: Option<String>,

    /// Record this time; needs names or filters if there are several snapshots
    #[arg(long, value_name = "TIME", value_parser = time::parse, help_heading = "Snapshot metadata", group = "change")]
    pub(crate) new_time: Option<u64>,

    /// Put the new snapshots into this series; needs names or filters if there are several
    /// snapshots
    #[arg(long, value_name = "NAME", help_heading = "Snapshot metadata", group = "change")]
    pub(crate) new_series: Option<String>,

    /// Add these tags to the new snapshots
    #[arg(long, value_name = "TAG[,TAG…]", help_heading = "Snapshot metadata", group = "change")]
    pub(crate) new_tag: Vec<String>,

    /// Forget the old snapshots
    #[arg(long)]
    pub(crate) forget: bool,

    /// Change nothing; show what would be left out
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Which snapshots, or which `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

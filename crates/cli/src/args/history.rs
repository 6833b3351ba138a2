//! `larder history`.

use std::ffi::OsString;

use clap::Args;

use super::FilterArgs;

/// Show when a file or folder changed.
///
/// Each change is shown once, at the first snapshot that has it, oldest first. The signs are + for
/// added, - for removed, M for content modified, U for metadata changed, T for file type changed.
/// For a folder, the changes below it count too. Without a filter, this compares the snapshots of
/// the series that backed up the path last. Exit code 1: no snapshot has the path.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// File or folder
    #[arg(value_name = "PATH")]
    pub(crate) wanted: OsString,

    /// Also show snapshots in which only metadata changed
    #[arg(long)]
    pub(crate) metadata: bool,

    /// Which snapshots are compared
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

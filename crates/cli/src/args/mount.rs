//! `larder mount`.

use std::path::PathBuf;

use clap::Args;
use larder_tree::TimeLayout;

use super::ShownArgs;

/// Show snapshots as a folder of this machine.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// An empty folder
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,

    /// Let other users use the files, as far as the permissions of the files allow it
    #[arg(long)]
    pub(crate) allow_other: bool,

    /// Show root as the owner of all files
    #[arg(long)]
    pub(crate) owner_root: bool,

    /// Do not check permissions of files: everyone who may use the mount can read everything
    #[arg(long)]
    pub(crate) no_default_permissions: bool,

    /// Mount over a folder that is not empty, and hide its files meanwhile
    #[arg(long)]
    pub(crate) nonempty: bool,

    /// How %T is written, as a layout of Go or with the elements of strftime
    #[arg(long, value_name = "LAYOUT", default_value = TimeLayout::DEFAULT, conflicts_with = "snapshot")]
    pub(crate) time_template: String,

    /// What is shown
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
}

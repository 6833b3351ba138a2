//! `larder mount`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use larder_tree::{DEFAULT_TEMPLATES, TimeLayout};

use super::{FetchArgs, FilterArgs};
use crate::time;

/// Show snapshots as a folder of this machine.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// An empty folder
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,

    /// Mount only this snapshot (latest, latest~2, or an id prefix), or a folder in it
    #[arg(long, value_name = "SNAPSHOT[:PATH]")]
    pub(crate) snapshot: Option<OsString>,

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

    /// Where snapshots appear; may be repeated. The id is %i and %I, the time %T, and the host %h.
    /// The user is %u, each tag %t, and the series %s
    #[arg(long, value_name = "PATH", default_values = DEFAULT_TEMPLATES, conflicts_with = "snapshot")]
    pub(crate) path_template: Vec<String>,

    /// How %T is written, as a layout of Go or with the elements of strftime
    #[arg(long, value_name = "LAYOUT", default_value = TimeLayout::DEFAULT, conflicts_with = "snapshot")]
    pub(crate) time_template: String,

    /// Protect the data of a snapshot for this time after its last use
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = time::parse_limit, hide_short_help = true)]
    pub(crate) keep: Duration,

    /// Read the list of snapshots again when it is older than this
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = time::parse_limit, hide_short_help = true)]
    pub(crate) refresh: Duration,

    /// How contents are fetched
    #[command(flatten)]
    pub(crate) fetch: FetchArgs,

    /// Which snapshots appear, and which ones `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

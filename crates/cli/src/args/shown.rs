//! What `larder mount` and `larder serve-webdav` show.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use larder_tree::DEFAULT_TEMPLATES;

use super::{FetchArgs, FilterArgs};
use crate::time;

/// Which snapshots are shown, and where.
#[derive(Debug, Args)]
pub(crate) struct ShownArgs {
    /// Show only this snapshot (latest, latest~2, or an id or its beginning), or a folder in it
    #[arg(long, value_name = "SNAPSHOT[:PATH]")]
    pub(crate) snapshot: Option<OsString>,

    /// Where snapshots appear; may be repeated. The id is %i and %I, the time %T, and the host %h.
    /// The user is %u, each tag %t, and the series %s
    #[arg(long, value_name = "PATH", default_values = DEFAULT_TEMPLATES, conflicts_with = "snapshot")]
    pub(crate) path_template: Vec<String>,

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

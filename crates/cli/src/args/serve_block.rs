//! `larder serve-block`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::{FetchArgs, FilterArgs, ListenArgs, StorePasswordArgs};

/// Serve a file or disk image of a snapshot as a block device.
#[derive(Debug, Args)]
pub(crate) struct ServeBlockArgs {
    /// Snapshot (latest, latest~2, or an id or its beginning), and a file in it; without a path,
    /// the only file
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub(crate) snapshot: OsString,

    /// File in the snapshot
    #[arg(value_name = "PATH")]
    pub(crate) inside: Option<OsString>,

    /// Where to listen
    #[command(flatten)]
    pub(crate) listen: ListenArgs,

    /// Copy the whole file to the disk cache meanwhile; after that, the repository is not needed.
    /// Without --cache-disk, the disk cache has no limit
    #[arg(long)]
    pub(crate) hydrate: bool,

    /// Show the device as the file DIR/nbd of this machine; needs nbdfuse
    #[arg(long, value_name = "DIR")]
    pub(crate) mount_file: Option<PathBuf>,

    /// Serve metrics for Prometheus on HOST:PORT, at the path /metrics, to everybody who can
    /// connect
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,

    /// Serve a device that can be written: writes go to a volume over the snapshot, which is
    /// created if it does not exist. Later runs continue it. No server of the store may run
    #[arg(long, value_name = "STORE/NAME")]
    pub(crate) overlay: Option<OsString>,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,

    /// How contents are fetched
    #[command(flatten)]
    pub(crate) fetch: FetchArgs,

    /// Which snapshots `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

//! `larder volume`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ListenArgs;
use crate::sizes;

/// Manage and serve deduplicated block devices.
///
/// A volume store is a folder of this machine with any number of volumes. It is no repository: it
/// needs no --repo. Equal data is stored once while it is written, compressed and encrypted. A
/// server offers every volume as an NBD export. Space of data that was overwritten or discarded is
/// not freed yet.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct VolumeArgs {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: VolumeCommand,
}

/// What to do with volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Create a volume store in an empty folder
    Init(VolumeInitArgs),
    /// Create a volume; no server may run meanwhile
    Create(VolumeCreateArgs),
    /// List the volumes of a store
    List(VolumeListArgs),
    /// Serve all volumes of a store as NBD exports
    ///
    /// The command serves until SIGINT or SIGTERM, and then makes everything durable. After a
    /// crash, the next start replays the log: everything that was flushed is there.
    Serve(VolumeServeArgs),
    /// Check a store for errors; no server may run meanwhile
    Check(VolumeCheckArgs),
}

/// A new store.
#[derive(Debug, Args)]
pub(crate) struct VolumeInitArgs {
    /// Folder of the store: missing or empty
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,

    /// Size of the log, which is written once now
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = sizes::parse_bytes)]
    pub(crate) log: u64,

    /// Derive the key cheaply, so that anybody can guess the password; for tests only
    #[arg(long, hide = true)]
    pub(crate) insecure_kdf: bool,
}

/// A new volume.
#[derive(Debug, Args)]
pub(crate) struct VolumeCreateArgs {
    /// Folder of the store, and name of the volume
    #[arg(value_name = "STORE/NAME")]
    pub(crate) volume: OsString,

    /// Size of the volume, at most 64 TiB; it takes no space before something is written
    #[arg(value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) size: u64,
}

/// A store.
#[derive(Debug, Args)]
pub(crate) struct VolumeListArgs {
    /// Folder of the store
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
}

/// What to serve, and where.
#[derive(Debug, Args)]
pub(crate) struct VolumeServeArgs {
    /// Folder of the store
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,

    /// Where to listen
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
}

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct VolumeCheckArgs {
    /// Folder of the store
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,

    /// Read all data and compare it with its fingerprints
    #[arg(long)]
    pub(crate) read_data: bool,
}

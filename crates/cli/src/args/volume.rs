//! `larder volume`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use larder_volume::FilterSet;

use super::ListenArgs;
use super::volume_change::{
    VolumeCollectArgs, VolumeDeleteArgs, VolumeRenameArgs, VolumeResizeArgs, VolumeSnapshotArgs,
};
use super::volume_repository::{FromArgs, StorePasswordArgs, VolumeBackupArgs, VolumeHydrateArgs};
use crate::sizes;

/// Manage and serve deduplicated block devices.
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
    ///
    /// The store gets the password of --store-password-file or LARDER_STORE_PASSWORD_FILE. Without
    /// them it gets the password that a repository would get: from the global options, from a
    /// variable such as LARDER_PASSWORD, or from a prompt. The command says which one it took.
    /// Without the password nobody can read the data.
    Init(VolumeInitArgs),
    /// Create a volume: empty, as a clone, or with the content of a snapshot of a repository
    ///
    /// Give SIZE, --clone or --from. If the store is served, the volume is an export at once.
    ///
    /// With --from, the command finds the snapshot, and the volume is there at once. Blocks that
    /// nobody wrote are read from the repository. If the store is served, its server reads them: it
    /// must have been started with that repository and its password. With --copy, only this
    /// command needs the repository.
    Create(VolumeCreateArgs),
    /// List the volumes and snapshots of a store
    List(VolumeListArgs),
    /// Serve all volumes of a store over NBD, and as files and iSCSI targets
    ///
    /// The command serves until SIGINT or SIGTERM, and then makes everything durable. After a
    /// crash, the next start replays the log: everything that was flushed is there. Other `volume`
    /// commands reach the server through the socket STORE/control.
    ///
    /// If volumes are over snapshots of a repository, the server needs it: give its --repo and
    /// password. A volume whose snapshot cannot be read is named in a warning and in `stats`. Reads
    /// of blocks that only the snapshot has fail there, and everything else is served. The server
    /// looks for the snapshot again every minute.
    Serve(VolumeServeArgs),
    /// Show the space and the work of a store
    ///
    /// Counters begin with the start of the server.
    Stats(VolumeStatsArgs),
    /// Create a snapshot of a volume, at once
    ///
    /// It has all writes that were acknowledged before, as a disk after a power failure. To have
    /// clean files, freeze the file system before (`fsfreeze`). The snapshot is the read-only
    /// export NAME@SNAP.
    Snapshot(VolumeSnapshotArgs),
    /// Change the size of a volume
    ///
    /// A smaller size discards data, so it needs --shrink. Shrink the file system before, and grow
    /// it after a larger size.
    Resize(VolumeResizeArgs),
    /// Change the name of a volume
    ///
    /// Clients that are connected keep the volume. New ones need the new name.
    Rename(VolumeRenameArgs),
    /// Delete a volume or a snapshot; there is no way back
    ///
    /// Refused while it is in use by clients (exit code 11), for a volume that has snapshots, and
    /// for a snapshot that has clones.
    Delete(VolumeDeleteArgs),
    /// Free the space of data that no volume and no snapshot uses
    ///
    /// A server does this by itself when it pays, or when space is short.
    Collect(VolumeCollectArgs),
    /// Check a store for errors; no server may run meanwhile
    ///
    /// Nothing is changed without --repair or --accept-loss. The log may be damaged, put back to an
    /// earlier state, or name a container that is missing. Then the store does not open (exit code
    /// 13), and the command lists the writes and blocks that --accept-loss would lose.
    Check(VolumeCheckArgs),
    /// Back up a volume into a repository, also while it is served
    ///
    /// The volume becomes one file of a new snapshot. The first backup reads all of it. Later ones
    /// read only the blocks that changed since the last backup of the same series. The content is
    /// that of the moment when the command begins. The server never gets the password of the
    /// repository.
    Backup(VolumeBackupArgs),
    /// Copy everything that a volume still reads from a repository, also while it is served
    ///
    /// Afterwards the volume does not need the repository. Reads and writes go on meanwhile. A copy
    /// that was interrupted continues with the next run. If the store is served, its server copies.
    ///
    /// A clone of such a volume is copied in the same way, and does not need its parent afterwards
    /// either. A volume with snapshots is refused: copy its clones first, then delete the
    /// snapshots. `larder volume backup` leaves the snapshot backup-…: without it, the next backup
    /// reads all.
    Hydrate(VolumeHydrateArgs),
}

/// A new store.
#[derive(Debug, Args)]
pub(crate) struct VolumeInitArgs {
    /// Folder of the store: missing or empty
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,

    /// Share the keys of a repository: its passwords and key files then open the store
    #[arg(long, value_name = "LOCATION")]
    pub(crate) like: Option<OsString>,

    /// Size of the log, from 32MiB to 8GiB; all of it is written once now
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = sizes::parse_bytes)]
    pub(crate) log: u64,

    /// How data is cut: by content, or in pieces of one size for volumes that are written at random
    #[arg(long, value_name = "HOW", value_enum, default_value_t = VolumeChunks::Cdc)]
    pub(crate) chunks: VolumeChunks,

    /// Derive the key cheaply, so that anybody can guess the password; for tests only
    #[arg(long, hide = true)]
    pub(crate) insecure_kdf: bool,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,
}

/// How the data of a store is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VolumeChunks {
    /// By content, 8 KiB on average: finds data that moved
    Cdc,
    /// 4 KiB each: finds pages of databases and file systems
    #[value(name = "fixed:4KiB")]
    Fixed4,
    /// 8 KiB each
    #[value(name = "fixed:8KiB")]
    Fixed8,
}

/// A new volume.
#[derive(Debug, Args)]
pub(crate) struct VolumeCreateArgs {
    /// Folder of the store, and name of the volume
    #[arg(value_name = "STORE/NAME")]
    pub(crate) volume: OsString,

    /// Size of the volume, at most 64 TiB; it takes no space before something is written
    #[arg(value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) size: Option<u64>,

    /// Begin with the content of a snapshot, or of a volume as it is now
    #[arg(long, value_name = "NAME[@SNAP]", conflicts_with_all = ["size", "from"])]
    pub(crate) clone: Option<String>,

    /// A first content
    #[command(flatten)]
    pub(crate) from: FromArgs,
}

/// A store.
#[derive(Debug, Args)]
pub(crate) struct VolumeListArgs {
    /// Folder of the store
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,
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

    /// Copy everything that volumes still read from a repository, while they are served. Progress
    /// is shown
    #[arg(long)]
    pub(crate) hydrate: bool,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,

    /// Also show each volume as the file DIR/NAME of this machine; needs FUSE
    #[arg(long, value_name = "DIR")]
    pub(crate) mount_file: Option<PathBuf>,

    /// Also serve each volume as an iSCSI target on HOST:PORT; needs tgt, FUSE and root
    #[arg(long, value_name = "ADDRESS", requires = "chap")]
    pub(crate) iscsi: Option<String>,

    /// File with the line USER:PASSWORD, which iSCSI clients must know
    #[arg(long, value_name = "FILE", requires = "iscsi")]
    pub(crate) chap: Option<PathBuf>,

    /// Serve metrics for Prometheus on HOST:PORT, at the path /metrics, to everybody who can
    /// connect
    #[arg(long, alias = "metrics-listen", value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,

    /// Filters that look for stored chunks, in order: zero, mac, bloom, block, cache, index, bytes
    ///
    /// Data stays correct with any list. Without "index", some chunks are stored twice. "bytes"
    /// reads and compares every duplicate.
    #[arg(long, value_name = "LIST", default_value_t)]
    pub(crate) filters: FilterSet,

    /// Memory for filters that rule out new chunks without a read [default: 3/8 of --memory]
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) index_memory: Option<u64>,
}

/// Which numbers to show.
#[derive(Debug, Args)]
pub(crate) struct VolumeStatsArgs {
    /// Folder of the store
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,

    /// Show the space of this volume only
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Show the numbers every second, with rates; the store must be served
    #[arg(long)]
    pub(crate) watch: bool,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,
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

    /// Replace wrong counts of chunks, which decide what a collection frees. No data is lost
    #[arg(long)]
    pub(crate) repair: bool,

    /// Open a store whose log is damaged with the state before the damage, and lose all later
    /// writes. If a container is missing, lose the content of its blocks. Without this option, the
    /// command lists them and changes nothing
    #[arg(long)]
    pub(crate) accept_loss: bool,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,
}

//! Arguments of the verbs that change volumes of a store.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::volume_repository::StorePasswordArgs;
use crate::sizes;

/// A new size of a volume.
#[derive(Debug, Args)]
pub(crate) struct VolumeResizeArgs {
    /// Folder of the store, and name of the volume
    #[arg(value_name = "STORE/NAME")]
    pub(crate) volume: OsString,

    /// New size, in multiples of 512 bytes. Clients see it when they connect again
    #[arg(value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) size: u64,

    /// Allow a smaller size, and discard the data behind the new end. Snapshots keep it
    #[arg(long)]
    pub(crate) shrink: bool,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,
}

/// A new name of a volume.
#[derive(Debug, Args)]
pub(crate) struct VolumeRenameArgs {
    /// Folder of the store, and name of the volume
    #[arg(value_name = "STORE/NAME")]
    pub(crate) volume: OsString,

    /// New name
    #[arg(value_name = "NEW-NAME")]
    pub(crate) to: String,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,
}

/// A new snapshot.
#[derive(Debug, Args)]
pub(crate) struct VolumeSnapshotArgs {
    /// Folder of the store, name of the volume, and name of the new snapshot
    #[arg(value_name = "STORE/NAME@SNAP")]
    pub(crate) snapshot: OsString,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,
}

/// What to delete.
#[derive(Debug, Args)]
pub(crate) struct VolumeDeleteArgs {
    /// Folder of the store, and name of the volume or snapshot
    #[arg(value_name = "STORE/NAME[@SNAP]")]
    pub(crate) name: OsString,

    /// Delete the snapshots of the volume too
    #[arg(long)]
    pub(crate) snapshots: bool,

    /// Delete it although clients of the server use it now. They get errors from then on
    #[arg(long)]
    pub(crate) force: bool,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,
}

/// What to collect.
#[derive(Debug, Args)]
pub(crate) struct VolumeCollectArgs {
    /// Folder of the store
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,

    /// Stop when this percentage of the file system is free, such as 20%
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) until_free: Option<u64>,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,
}

fn percent(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number.filter(|number| *number <= 100).ok_or_else(|| "a percentage from 0% to 100% is needed".to_owned())
}

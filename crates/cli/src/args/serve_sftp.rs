//! `larder serve-sftp`.

use std::path::PathBuf;

use clap::Args;

use crate::sizes;

/// Serve a folder for repositories to an SSH client.
#[derive(Debug, Args)]
pub(crate) struct ServeSftpArgs {
    /// Folder that clients see as their root; it is made if it is missing, its parent is not
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,

    /// Let clients delete nothing
    #[arg(long)]
    pub(crate) append_only: bool,

    /// Bytes that all files of the folder may have together
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) max_size: Option<u64>,
}

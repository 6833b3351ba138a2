//! `larder init`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use larder_chunking::Algorithm;

use crate::sizes;

/// Create a repository in a folder or a bucket.
///
/// All data is encrypted with a key that a password protects. Without a password or the paper key
/// (`larder key export`), nobody can restore anything.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Chunking algorithm; the default suits nearly all data
    #[arg(long, value_enum, hide = true)]
    pub(crate) chunker: Option<ChunkerName>,

    /// Average chunk size; smaller chunks find more duplicates and need more metadata
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) chunk_size: Option<u64>,

    /// Do not cut databases and disk images at their pages
    #[arg(long)]
    pub(crate) no_page_cuts: bool,

    /// Cut data as this repository does: take its chunk sizes and algorithm, and nothing else
    #[arg(long, value_name = "LOCATION", conflicts_with_all = ["chunker", "chunk_size", "no_page_cuts"])]
    pub(crate) from_repo: Option<OsString>,

    /// File that contains the password of that repository [default: as for the new one]
    #[arg(long, value_name = "FILE", requires = "from_repo")]
    pub(crate) from_password_file: Option<PathBuf>,

    /// For scripts written for restic: --from-repo means this
    #[arg(long, hide = true, requires = "from_repo")]
    pub(crate) copy_chunker_params: bool,

    /// For scripts written for restic: the format has one version
    #[arg(long, value_name = "VERSION", hide = true)]
    pub(crate) repository_version: Option<String>,

    /// Derive the key cheaply, so that anybody can guess the password; for tests only
    #[arg(long, hide = true)]
    pub(crate) insecure_kdf: bool,
}

/// The chunking algorithms by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChunkerName {
    /// The default
    MincdcAes,
    /// Faster without AES instructions; sizes of known data reveal its key
    Mincdc,
    /// For comparisons
    Fastcdc,
    /// For comparisons
    Rabin,
    /// For disk images and nothing else
    Fixed,
}

impl ChunkerName {
    /// The algorithm that has the name.
    pub(crate) fn algorithm(self) -> Algorithm {
        match self {
            Self::MincdcAes => Algorithm::MinCdcAes,
            Self::Mincdc => Algorithm::MinCdc,
            Self::Fastcdc => Algorithm::FastCdc,
            Self::Rabin => Algorithm::Rabin,
            Self::Fixed => Algorithm::Fixed,
        }
    }
}

//! `larder init`.

use clap::{Args, ValueEnum};
use larder_chunking::Algorithm;

use crate::sizes;

/// Make a repository in a folder or a bucket.
///
/// Everything stored in it is encrypted with a key that only a password opens. Without a password or the paper key (`larder key
/// export`) nothing can be restored, by anyone.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// How streams are cut into chunks; the default suits nearly everything
    #[arg(long, value_enum)]
    pub(crate) chunker: Option<ChunkerName>,

    /// Mean size of a chunk; smaller finds more duplicates and costs more metadata
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) chunk_size: Option<u64>,

    /// Never cut streams made of fixed pages (databases, disk images) at their pages
    #[arg(long)]
    pub(crate) no_page_cuts: bool,

    /// Derive keys from passwords so cheaply that any machine guesses them. For tests of this program only
    #[arg(long, hide = true)]
    pub(crate) insecure_kdf: bool,
}

/// The chunking algorithms by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChunkerName {
    /// The default
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
            Self::Mincdc => Algorithm::MinCdc,
            Self::Fastcdc => Algorithm::FastCdc,
            Self::Rabin => Algorithm::Rabin,
            Self::Fixed => Algorithm::Fixed,
        }
    }
}

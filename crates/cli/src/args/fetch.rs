//! How `restore` and `dump` fetch contents.

use clap::Args;

use crate::sizes;

/// How contents are fetched.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "How to fetch")]
pub(crate) struct FetchArgs {
    /// Number of read-ahead requests; 0 disables read-ahead [default: 6]
    #[arg(long, value_name = "N")]
    pub(crate) prefetch: Option<usize>,

    /// Disk space for parts of containers that do not fit into memory, in the cache folder or the
    /// folder for temporary files; 0 uses none [default: 1GiB; none for a local repository or
    /// without a cache]
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) cache_disk: Option<u64>,
}

//! The verbs around the program itself.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Find out whether a store keeps the promises that a repository needs.
///
/// Makes, reads, lists and deletes objects below LOCATION, in a folder of their own that is removed at the end. Says which promise
/// fails, if one does: create-if-absent with many creators at once, reading after writing, listing, reading parts, deleting.
#[derive(Debug, Args)]
pub(crate) struct ValidateStoreArgs {
    /// Where to test; -r/--repo if not given
    #[arg(value_name = "LOCATION")]
    pub(crate) location: Option<OsString>,
}

/// Write completions for a shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Write the manual pages.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for one page a verb; without it the page of larder goes to standard output
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Show an object of the repository as JSON, for support.
///
/// Shows nothing secret: no keys, no content. Names of series, hosts and paths are shown.
#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// config, key or manifest
    #[arg(value_name = "WHAT", value_parser = ["config", "key", "manifest"])]
    pub(crate) what: String,

    /// Which key, or which snapshot
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
}

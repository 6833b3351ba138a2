//! The verbs around the program itself.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap_complete::Shell;

/// Test whether a storage is safe for a repository.
///
/// The test creates, reads, lists and deletes objects in a new folder below LOCATION, and removes
/// it at the end. It checks conditional creation with many writers, reads after writes, listings,
/// range reads and deletion.
#[derive(Debug, Args)]
pub(crate) struct ValidateStoreArgs {
    /// Location to test [default: the repository]
    #[arg(value_name = "LOCATION")]
    pub(crate) location: Option<OsString>,
}

/// The objects of `cat`. What restic calls a snapshot is called a manifest.
fn what() -> PossibleValuesParser {
    let manifest = PossibleValue::new("manifest").alias("snapshot");
    let shown = [PossibleValue::new("config"), PossibleValue::new("key"), manifest];
    // Refused, with what to do.
    let others = ["pack", "blob", "tree", "index", "lock", "masterkey"].map(|name| PossibleValue::new(name).hide(true));
    PossibleValuesParser::new(shown.into_iter().chain(others))
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
    /// Write one page per verb into this folder; otherwise print the main page
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Do nothing: there are no locks.
#[derive(Debug, Args)]
pub(crate) struct UnlockArgs {
    /// For scripts written for restic: there are no locks
    #[arg(long, hide = true)]
    pub(crate) remove_all: bool,
}

/// Show an object of the repository as JSON, for support.
///
/// Keys and contents are not shown. Names of series, hosts and paths are shown.
#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// config, key or manifest
    #[arg(value_name = "WHAT", value_parser = what())]
    pub(crate) what: String,

    /// Id of the key or snapshot
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
}

//! `larder key`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Manage the passwords of a repository, and its paper key.
///
/// Several passwords may open one repository. All of them open the same master key, so removing a password does not lock out who
/// has copied the repository or the master key before.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct KeyArgs {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: KeyCommand,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// List the keys; * marks the one that your password opens
    List,
    /// Add one more password
    Add(NewKey),
    /// Remove a password
    Remove {
        /// The key's id or its beginning, from `larder key list`
        id: String,
    },
    /// Replace your password by a new one
    Passwd(NewKey),
    /// Print the paper key: it restores access when passwords or the keys/ objects are lost
    Export {
        /// Write to a new file that only you can read, instead of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Get access with a paper key and set a new password
    Import {
        /// File with the paper key; - or nothing for standard input
        #[arg(value_name = "FILE")]
        paper: Option<PathBuf>,
        /// The new key
        #[command(flatten)]
        new: NewKey,
    },
}

/// A key to be made.
#[derive(Debug, Args)]
pub(crate) struct NewKey {
    /// Its password
    #[command(flatten)]
    pub(crate) password: NewPassword,

    /// Name of the host to write down with the key
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,

    /// Name of the user to write down with the key
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// Derive the key from the password so cheaply that any machine guesses it. For tests of this program only
    #[arg(long, hide = true)]
    pub(crate) insecure_kdf: bool,
}

/// Where a new password comes from.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NewPassword {
    /// File that holds the new password [env: LARDER_NEW_PASSWORD_FILE]
    #[arg(long, value_name = "FILE", group = "new_password_source")]
    pub(crate) new_password_file: Option<PathBuf>,

    /// Command of the shell that prints the new password [env: LARDER_NEW_PASSWORD_COMMAND]
    #[arg(long, value_name = "COMMAND", group = "new_password_source")]
    pub(crate) new_password_command: Option<OsString>,

    /// Make the new password empty: anyone who can read the repository's objects can read everything in it
    #[arg(long, group = "new_password_source")]
    pub(crate) new_insecure_no_password: bool,
}

//! `larder key`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use larder_format::roles::Roles;

/// Manage the passwords and the paper key of a repository.
///
/// Several passwords may open one repository. All open the same master key: removing a password
/// does not lock out a person who has copied the repository or the master key before.
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
    /// Add a password, or a key file for a machine
    Add {
        /// What the holder of the key may do: backup, restore, operate, or several joined by +
        #[arg(long, value_name = "ROLES", default_value = "all")]
        role: Roles,

        /// Domain of the machine: keys with the role backup see the metadata of their domain only
        /// [default: the host's name]
        #[arg(long, value_name = "NAME")]
        domain: Option<String>,

        /// Write the key to this file, which opens the repository without a password (--key-file)
        #[arg(long, value_name = "FILE", conflicts_with = "new_password_source")]
        file: Option<PathBuf>,

        /// The new key
        #[command(flatten)]
        new: NewKey,
    },
    /// Remove a password or key file
    Remove {
        /// Id prefix of the key, from `larder key list`
        id: String,

        /// Close the domain of the key, because the key was stolen: only the snapshots that the
        /// domain has now count from now on
        #[arg(long)]
        close_domain: bool,

        /// Record why the domain is closed
        #[arg(long, value_name = "TEXT", requires = "close_domain")]
        reason: Option<String>,
    },
    /// Change the password
    Passwd(NewKey),
    /// Print the paper key, which restores access when passwords or key objects are lost
    Export {
        /// Write to a new private file instead of standard output
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Restore access with a paper key and set a new password
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

    /// Record this host name with the key
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,

    /// Record this user name with the key
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// Derive the key cheaply, so that anybody can guess the password; for tests only
    #[arg(long, hide = true)]
    pub(crate) insecure_kdf: bool,
}

/// Where a new password comes from.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NewPassword {
    /// File that contains the new password [env: LARDER_NEW_PASSWORD_FILE]
    #[arg(long, value_name = "FILE", group = "new_password_source")]
    pub(crate) new_password_file: Option<PathBuf>,

    /// Shell command that prints the new password [env: LARDER_NEW_PASSWORD_COMMAND]
    #[arg(long, value_name = "COMMAND", group = "new_password_source")]
    pub(crate) new_password_command: Option<OsString>,

    /// Set an empty password: anyone who can read the repository's objects can read everything in
    /// it
    #[arg(long, group = "new_password_source")]
    pub(crate) new_insecure_no_password: bool,
}

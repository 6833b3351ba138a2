//! `larder copy`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use larder_format::layout::Layout;

use super::storage::{Setting, parse as parse_setting};
use super::{FilterArgs, Global};

/// Copy snapshots from another repository into this one.
///
/// The repository of --repo gets copies of the snapshots of --from-repo. Without names, these are
/// all snapshots that the filters admit. Data is cut and encrypted again, so keys and chunk sizes
/// may differ. Every chunk that is read is verified. Files that did not change since the snapshot
/// that was copied before are not read. Copies keep time, host, user, tags, paths and series. Each
/// records its origin, and nothing is copied twice. After an interruption, the next run reuses the
/// data that was uploaded.
///
/// Some snapshots are copied only if you name them by id: those that came from this repository, and
/// those whose time nothing confirms. The same is true for a snapshot whose series would get
/// snapshots of several writers.
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// Snapshots of the other repository (latest, latest~2, or an id or its beginning) [default:
    /// all that the filters admit]
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) ids: Vec<String>,

    /// The repository to copy from
    #[command(flatten)]
    pub(crate) from: FromRepositoryArgs,

    /// Copy only the newest N of each series
    #[arg(long, value_name = "N", conflicts_with = "ids")]
    pub(crate) latest: Option<usize>,

    /// Forget copies whose original is no longer in the other repository
    #[arg(long, conflicts_with_all = ["ids", "latest"])]
    pub(crate) delete: bool,

    /// Copy also into series that have other snapshots here, and from several domains into one
    /// series
    #[arg(long)]
    pub(crate) mix_series: bool,

    /// Layout of a new series: standard, or lifecycle [default: as `larder series set` says]
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Option<Layout>,

    /// Change nothing; show what would be copied and forgotten
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Change nothing; show the requests, bytes, money and time that the copies would take in both
    /// repositories, at least and at most
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) estimate: bool,

    /// Which snapshots of the other repository
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// A second repository and how it is opened. Variables are those of the first one, with `FROM_`
/// behind `LARDER_`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The other repository")]
pub(crate) struct FromRepositoryArgs {
    /// Location of the repository to copy from, or its name in the configuration [env:
    /// LARDER_FROM_REPOSITORY]
    #[arg(long, value_name = "LOCATION", group = "from_location")]
    pub(crate) from_repo: Option<OsString>,

    /// File that contains that location [env: LARDER_FROM_REPOSITORY_FILE]
    #[arg(long, value_name = "FILE", group = "from_location")]
    pub(crate) from_repository_file: Option<PathBuf>,

    /// Key file for that repository [env: LARDER_FROM_KEY_FILE]
    #[arg(long, value_name = "FILE", group = "from_password")]
    pub(crate) from_key_file: Option<PathBuf>,

    /// File that contains its password; the password of --repo is not tried [env:
    /// LARDER_FROM_PASSWORD_FILE]
    #[arg(long, value_name = "FILE", group = "from_password")]
    pub(crate) from_password_file: Option<PathBuf>,

    /// Shell command that prints its password [env: LARDER_FROM_PASSWORD_COMMAND]
    #[arg(long, value_name = "COMMAND", group = "from_password")]
    pub(crate) from_password_command: Option<OsString>,

    /// Use an empty password for it
    #[arg(long, group = "from_password")]
    pub(crate) from_insecure_no_password: bool,

    /// Its storage
    #[command(flatten)]
    pub(crate) storage: FromStorageArgs,
}

/// The storage of a second repository.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The other repository")]
pub(crate) struct FromStorageArgs {
    /// File with NAME=value lines for its storage, such as AWS_SECRET_ACCESS_KEY; they come before
    /// the variables of this process
    #[arg(long, value_name = "FILE")]
    pub(crate) from_environment_file: Option<PathBuf>,

    /// Setting of its storage, as after --option, which is about the other one
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    from_option: Vec<Setting>,

    /// File in PEM with authorities that its storage may have, as after --cacert
    #[arg(long, value_name = "FILE")]
    from_cacert: Option<PathBuf>,

    /// File in PEM with a certificate and its key for its storage, as after --tls-client-cert
    #[arg(long, value_name = "FILE")]
    from_tls_client_cert: Option<PathBuf>,

    /// Accept every certificate of its storage: anybody on the network can then take its place
    #[arg(long)]
    from_insecure_tls: bool,
}

impl FromStorageArgs {
    /// `base` with the options that are about this storage.
    pub(crate) fn global(&self, base: Global) -> Global {
        let from = self.clone();
        Global {
            storage: base.storage.clone().and(from.from_option),
            cacert: from.from_cacert.or_else(|| base.cacert.clone()),
            tls_client_cert: from.from_tls_client_cert.or_else(|| base.tls_client_cert.clone()),
            insecure_tls: from.from_insecure_tls || base.insecure_tls,
            ..base
        }
    }
}

impl FromRepositoryArgs {
    /// The options of a command on that repository. `base` has those that are about no repository,
    /// and, if `is_named`, those that the configuration has for this one.
    pub(crate) fn global(&self, base: Global, is_named: bool) -> Global {
        let from = self.clone();
        let (repo, repository_file) = match is_named {
            true => (base.repo.clone(), None),
            false => (from.from_repo, from.from_repository_file),
        };
        let global = from.storage.global(Global { repo, repository_file, is_source: true, ..base });
        let has_credential = from.from_key_file.is_some()
            || from.from_password_file.is_some()
            || from.from_password_command.is_some()
            || from.from_insecure_no_password;
        if is_named && !has_credential {
            return global;
        }
        Global {
            key_file: from.from_key_file,
            password_file: from.from_password_file,
            password_command: from.from_password_command,
            password_fd: None,
            insecure_no_password: from.from_insecure_no_password,
            ..global
        }
    }
}

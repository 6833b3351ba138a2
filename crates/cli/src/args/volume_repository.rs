//! Volumes and repositories: passwords of stores, backups of volumes, volumes over snapshots.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use super::FilterArgs;

/// The password of a volume store.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StorePasswordArgs {
    /// File that contains the password of the volume store [default: the password is that of the
    /// repository, such as LARDER_PASSWORD_FILE]
    // The usual parser of paths refuses an empty variable.
    #[arg(long, value_name = "FILE", env = "LARDER_STORE_PASSWORD_FILE", hide_env_values = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub(crate) store_password_file: Option<PathBuf>,
}

impl StorePasswordArgs {
    /// Whether there is a file. As with all variables, an empty one counts as unset.
    pub(crate) fn is_given(&self) -> bool {
        self.store_password_file.as_ref().is_some_and(|path| !path.as_os_str().is_empty())
    }
}

/// A backup of a volume.
#[derive(Debug, Args)]
pub(crate) struct VolumeBackupArgs {
    /// Folder of the store, and name of the volume
    #[arg(value_name = "STORE/NAME")]
    pub(crate) volume: OsString,

    /// Name of the series [default: host, store and volume]
    #[arg(long, value_name = "NAME")]
    pub(crate) series: Option<String>,

    /// Tags, separated by commas; may be given several times
    #[arg(long, value_name = "TAG[,TAG…]")]
    pub(crate) tag: Vec<String>,

    /// Record this host name instead of the name of this machine [env: LARDER_HOST]
    #[arg(short = 'H', long, value_name = "NAME", env = "LARDER_HOST", hide_env = true)]
    pub(crate) host: Option<String>,

    /// Read the whole volume, also where it did not change since the last backup
    #[arg(long)]
    pub(crate) force: bool,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,
}

/// A volume whose first content is a file of a snapshot.
#[derive(Debug, Args)]
pub(crate) struct FromArgs {
    /// Take the content of a snapshot (latest, latest~2, or an id or its beginning), or of a file
    /// in it. The volume is there at once, and reads the repository while it is served
    #[arg(long, value_name = "SNAPSHOT[:PATH]", conflicts_with = "size")]
    pub(crate) from: Option<OsString>,

    /// Copy everything now, so that the volume does not need the repository
    #[arg(long, requires = "from")]
    pub(crate) copy: bool,

    /// Which snapshots `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,
}

/// A volume over a snapshot that is to stand alone.
#[derive(Debug, Args)]
pub(crate) struct VolumeHydrateArgs {
    /// Folder of the store, and name of the volume
    #[arg(value_name = "STORE/NAME")]
    pub(crate) volume: OsString,

    /// The password of the store
    #[command(flatten)]
    pub(crate) password: StorePasswordArgs,
}

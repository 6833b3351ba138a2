//! `larder import`.

use std::ffi::OsString;
#[cfg(feature = "import-restic")]
use std::path::PathBuf;

use clap::{Args, Subcommand};
use larder_format::layout::Layout;

#[cfg(feature = "import-restic")]
use super::copy::FromStorageArgs;
use crate::time;

/// Import the history of other programs.
///
/// Each original becomes a snapshot with its own time, host, user and tags, oldest first. The
/// snapshot records its origin, so nothing is imported twice. After an interruption, run the same
/// command again: it reuses the data that was uploaded.
///
/// A file that cannot be read is named, and everything else is imported. The exit code is 3 then.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct ImportArgs {
    /// What to import
    #[command(subcommand)]
    pub(crate) source: ImportSource,
}

/// What is imported.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportSource {
    /// Import an archive of tar
    Tar(ImportTarArgs),
    /// Import the archives of a Borg repository
    Borg(ImportBorgArgs),
    /// Import the snapshots of a restic repository
    #[cfg(feature = "import-restic")]
    Restic(ImportResticArgs),
}

/// Options of every import.
#[derive(Debug, Args)]
pub(crate) struct ImportOptions {
    /// Layout of a new series: standard, or lifecycle [default: as `larder series set` says]
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Option<Layout>,

    /// Read each new snapshot back, and compare it with its original
    #[arg(long)]
    pub(crate) compare: bool,

    /// Change nothing; show what would be imported
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Import an archive of tar as one snapshot.
///
/// Old, ustar, GNU and pax archives are read, also compressed with gzip or zstd. Members may come
/// in any order. Of members with the same path, the last one counts. Extended attributes, access
/// lists, hard links, holes and devices are kept.
///
/// A compressed archive, or one from standard input, needs temporary space for its contents, in the
/// cache folder.
#[derive(Debug, Args)]
pub(crate) struct ImportTarArgs {
    /// The archive; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: OsString,

    /// Name of the series; {host} and {name} are replaced, where {name} is the name of the file
    /// without its endings [default: {host}:{name}]
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) series: Option<String>,

    /// Record this host instead of the present one [env: LARDER_HOST]
    #[arg(short = 'H', long, value_name = "HOST", env = "LARDER_HOST", hide_env = true)]
    pub(crate) host: Option<String>,

    /// Tags to record, separated by commas; may be given several times
    #[arg(long, value_name = "TAGS")]
    pub(crate) tag: Vec<String>,

    /// Record this time instead of the last change of the file
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) time: Option<u64>,

    /// Options of every import
    #[command(flatten)]
    pub(crate) options: ImportOptions,
}

/// Import the archives of a Borg repository.
///
/// The program `borg` reads them: it must be installed, in version 1. It gets its variables, such
/// as BORG_PASSPHRASE, from this command. Each snapshot keeps the time, the host and the user of
/// its archive. The name of the archive becomes a tag, and so does its comment.
///
/// Borg 1 exports neither extended attributes nor access lists, so snapshots do not have them.
/// Contents of an archive need temporary space in the cache folder.
#[derive(Debug, Args)]
pub(crate) struct ImportBorgArgs {
    /// Location of the repository, as Borg takes it
    #[arg(value_name = "REPOSITORY")]
    pub(crate) repository: OsString,

    /// Name of the series; {host}, {user}, {archive} and {repository} are replaced, and groups of
    /// --series-pattern [default: {host}:{repository}]
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) series: Option<String>,

    /// Regular expression for names of archives, such as `(?P<host>[^-]+)-`. Its named groups
    /// replace their names in the template; a group `host` is also recorded as the host. Archives
    /// that it does not match are left out
    #[arg(long, value_name = "PATTERN")]
    pub(crate) series_pattern: Option<String>,

    /// Import only archives of this host; may be given several times
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Vec<String>,

    /// Add these tags, separated by commas; may be given several times
    #[arg(long, value_name = "TAGS")]
    pub(crate) tag: Vec<String>,

    /// Import only this archive, by its name or the beginning of its id; may be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) snapshot: Vec<String>,

    /// Options of every import
    #[command(flatten)]
    pub(crate) options: ImportOptions,
}

/// Import the snapshots of a restic repository.
///
/// Repositories of the formats 1 and 2 are read, in every storage that Larder knows. Each snapshot
/// keeps its time, host, user, tags and paths. Files that did not change since the snapshot that
/// was imported before are not read.
///
/// Without an option for its password, the variables LARDER_FROM_PASSWORD_FILE,
/// LARDER_FROM_PASSWORD_COMMAND and LARDER_FROM_PASSWORD count; then those of restic, such as
/// RESTIC_PASSWORD. The repository is only read, and no lock is made. Do not run `restic prune`
/// meanwhile.
#[cfg(feature = "import-restic")]
#[derive(Debug, Args)]
pub(crate) struct ImportResticArgs {
    /// Location of the repository
    #[arg(value_name = "REPOSITORY")]
    pub(crate) repository: OsString,

    /// Name of the series; {host}, {user} and {paths} are replaced [default: {host}:{paths}]
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) series: Option<String>,

    /// Import only snapshots of this host; may be given several times
    #[arg(short = 'H', long, value_name = "HOST")]
    pub(crate) host: Vec<String>,

    /// Import only snapshots with all these tags, separated by commas; may be given several times
    #[arg(long, value_name = "TAGS")]
    pub(crate) tag: Vec<String>,

    /// Import only this snapshot, by the beginning of its id; may be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) snapshot: Vec<String>,

    /// File that contains its password
    #[arg(long, value_name = "FILE", group = "from_password", help_heading = "The other repository")]
    pub(crate) from_password_file: Option<PathBuf>,

    /// Shell command that prints its password
    #[arg(long, value_name = "COMMAND", group = "from_password", help_heading = "The other repository")]
    pub(crate) from_password_command: Option<OsString>,

    /// Use an empty password for it
    #[arg(long, group = "from_password", help_heading = "The other repository")]
    pub(crate) from_insecure_no_password: bool,

    /// Options of every import
    #[command(flatten)]
    pub(crate) options: ImportOptions,

    /// Its storage
    #[command(flatten)]
    pub(crate) storage: FromStorageArgs,
}

//! `larder import`.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use larder_format::layout::Layout;

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

    /// Record this host instead of the present one
    #[arg(short = 'H', long, value_name = "HOST", env = "LARDER_HOST")]
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

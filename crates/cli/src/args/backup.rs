//! `larder backup`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::{sizes, time};

/// Back up files, folders, a stream or a device as a new snapshot.
///
/// Snapshots of the same thing form a series; each is compared with the newest of its series, and only what is new is stored. The
/// series is named after host and paths unless --series names it. Whether interrupted by Ctrl-C, a crash or a lost network: what
/// was uploaded is reused by the next run.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// Files and folders; with --stdin-from-command after --, the command and its arguments
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    /// Leave out what matches the pattern (as in restic: /a/b is anchored, a/b matches anywhere, ! takes back)
    #[arg(short = 'e', long, value_name = "PATTERN", help_heading = "What to leave out")]
    pub(crate) exclude: Vec<OsString>,

    /// The same without regard to upper and lower case
    #[arg(long, value_name = "PATTERN", help_heading = "What to leave out")]
    pub(crate) iexclude: Vec<OsString>,

    /// File of patterns, one a line
    #[arg(long, value_name = "FILE", help_heading = "What to leave out")]
    pub(crate) exclude_file: Vec<PathBuf>,

    /// The same without regard to upper and lower case
    #[arg(long, value_name = "FILE", help_heading = "What to leave out")]
    pub(crate) iexclude_file: Vec<PathBuf>,

    /// Leave out the contents of folders that hold a CACHEDIR.TAG
    #[arg(long, help_heading = "What to leave out")]
    pub(crate) exclude_caches: bool,

    /// Leave out the contents of folders that hold a file of this name (and that begins with HEADER)
    #[arg(long, value_name = "NAME[:HEADER]", help_heading = "What to leave out")]
    pub(crate) exclude_if_present: Vec<OsString>,

    /// Leave out larger files
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes, help_heading = "What to leave out")]
    pub(crate) exclude_larger_than: Option<u64>,

    /// Stay on the file systems of the given paths
    #[arg(short = 'x', long, help_heading = "What to leave out")]
    pub(crate) one_file_system: bool,

    /// File of paths to back up, one pattern (*, ?, [a-z]) a line; - for standard input
    #[arg(long, value_name = "FILE", help_heading = "What to back up")]
    pub(crate) files_from: Vec<PathBuf>,

    /// File of paths to back up, one a line, taken as they are; - for standard input
    #[arg(long, value_name = "FILE", help_heading = "What to back up")]
    pub(crate) files_from_verbatim: Vec<PathBuf>,

    /// File of paths to back up, each ended by a zero byte, as find -print0 writes it; - for standard input
    #[arg(long, value_name = "FILE", help_heading = "What to back up")]
    pub(crate) files_from_raw: Vec<PathBuf>,

    /// Back up standard input as one file
    #[arg(long, conflicts_with_all = ["paths", "stdin_from_command", "read_special"], help_heading = "What to back up")]
    pub(crate) stdin: bool,

    /// Name of that file in the snapshot
    #[arg(long, value_name = "NAME", help_heading = "What to back up")]
    pub(crate) stdin_filename: Option<OsString>,

    /// Back up what a command prints as one file; when the command fails, no snapshot is made
    #[arg(long, conflicts_with = "read_special", help_heading = "What to back up")]
    pub(crate) stdin_from_command: bool,

    /// Back up the contents of the given block device, FIFO or image as one stream
    #[arg(long, help_heading = "What to back up")]
    pub(crate) read_special: bool,

    /// Name of the series; any text
    #[arg(long, value_name = "NAME", help_heading = "What to write down")]
    pub(crate) series: Option<String>,

    /// Tags, separated by commas; may be given several times
    #[arg(long, value_name = "TAG[,TAG…]", help_heading = "What to write down")]
    pub(crate) tag: Vec<String>,

    /// Name of the host instead of this machine's
    #[arg(
        short = 'H',
        long,
        value_name = "NAME",
        env = "LARDER_HOST",
        hide_env_values = true,
        help_heading = "What to write down"
    )]
    pub(crate) host: Option<String>,

    /// Time of the snapshot instead of now
    #[arg(long, value_name = "TIME", value_parser = time::parse, help_heading = "What to write down")]
    pub(crate) time: Option<u64>,

    /// Record the time of the last access of files
    #[arg(long, help_heading = "What to write down")]
    pub(crate) with_atime: bool,

    /// Compare with this snapshot instead of the newest of the series; in the layout lifecycle, one of the same series
    #[arg(long, value_name = "SNAPSHOT", help_heading = "What to compare with")]
    pub(crate) parent: Option<OsString>,

    /// Do not look for similar snapshots of other series when the series has none of its own
    #[arg(long, help_heading = "What to compare with")]
    pub(crate) no_similar: bool,

    /// How a new series lies in containers: standard, or lifecycle [what `larder series set` says]
    ///
    /// `lifecycle` keeps chunks together that are of the same snapshots: whole snapshots restore sequentially, deleting them costs
    /// nothing, and nothing is shared with other series. A series keeps the layout of its first snapshot.
    #[arg(long, value_name = "LAYOUT", help_heading = "What to compare with")]
    pub(crate) layout: Option<larder_format::layout::Layout>,

    /// Read every file, also those that look unchanged
    #[arg(short = 'f', long, help_heading = "What to compare with")]
    pub(crate) force: bool,

    /// Compare what looks like a duplicate with what is stored, byte for byte; what differs or is damaged is stored anew
    ///
    /// Compared are contents, the list of files and recipes, with what the storage itself has. Not compared are files that look unchanged,
    /// which are not read (`--force` reads all), and repeats of what this very run has stored, which are known by their fingerprints.
    #[arg(long, help_heading = "What to compare with")]
    pub(crate) paranoid: bool,

    /// Treat runs of chunks that are duplicate for so many snapshots in a row as one; 0: never
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "What to compare with")]
    pub(crate) merge_after: usize,

    /// A file with another ctime may still be unchanged
    #[arg(long, help_heading = "What to compare with")]
    pub(crate) ignore_ctime: bool,

    /// A file with another inode number may still be unchanged
    #[arg(long, help_heading = "What to compare with")]
    pub(crate) ignore_inode: bool,

    /// Do not find out beforehand how much there is to do; the time left cannot be told then
    #[arg(long)]
    pub(crate) no_scan: bool,

    /// Make no snapshot when nothing changed
    #[arg(long)]
    pub(crate) skip_if_unchanged: bool,

    /// Store nothing, only say what would be stored
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

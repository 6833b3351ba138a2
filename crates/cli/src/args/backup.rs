//! `larder backup`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use larder_gnode::retention::GroupBy;

use super::ImageArgs;
use super::ignored::named;
use crate::{sizes, time};

/// Back up files, folders, a stream or a device as a new snapshot.
///
/// Snapshots of the same files form a series. A backup compares with the newest snapshot of its
/// series and stores only new data. The series is named after host and paths, unless --series names
/// it. After an interruption (Ctrl-C, a crash, a lost network), the next run reuses the data that
/// was uploaded.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// Files and folders; with --stdin-from-command after --, the command and its arguments
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    /// Exclude files that match the pattern, as in restic: /a/b is anchored, a/b matches anywhere,
    /// ! negates
    #[arg(short = 'e', long, value_name = "PATTERN", help_heading = "Exclude")]
    pub(crate) exclude: Vec<OsString>,

    /// The same, ignoring case
    #[arg(long, value_name = "PATTERN", help_heading = "Exclude")]
    pub(crate) iexclude: Vec<OsString>,

    /// Read exclude patterns from a file, one per line
    #[arg(long, value_name = "FILE", help_heading = "Exclude")]
    pub(crate) exclude_file: Vec<PathBuf>,

    /// The same, ignoring case
    #[arg(long, value_name = "FILE", help_heading = "Exclude")]
    pub(crate) iexclude_file: Vec<PathBuf>,

    /// Exclude the contents of folders that contain a CACHEDIR.TAG file
    #[arg(long, help_heading = "Exclude")]
    pub(crate) exclude_caches: bool,

    /// Exclude the contents of folders that contain a file of this name (which begins with HEADER)
    #[arg(long, value_name = "NAME[:HEADER]", help_heading = "Exclude")]
    pub(crate) exclude_if_present: Vec<OsString>,

    /// Exclude larger files
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes, help_heading = "Exclude")]
    pub(crate) exclude_larger_than: Option<u64>,

    /// Do not cross file system boundaries
    #[arg(short = 'x', long, help_heading = "Exclude")]
    pub(crate) one_file_system: bool,

    /// Read paths from a file, one pattern (*, ?, [a-z]) per line; - reads standard input
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub(crate) files_from: Vec<PathBuf>,

    /// Read paths from a file, one per line, without patterns; - reads standard input
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub(crate) files_from_verbatim: Vec<PathBuf>,

    /// Read paths from a file, separated by zero bytes as by find -print0; - reads standard input
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub(crate) files_from_raw: Vec<PathBuf>,

    /// Back up standard input as one file
    #[arg(long, conflicts_with_all = ["paths", "stdin_from_command", "read_special"], help_heading = "Input")]
    pub(crate) stdin: bool,

    /// Name of that file in the snapshot
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    pub(crate) stdin_filename: Option<OsString>,

    /// Back up the output of a command as one file; if the command fails, no snapshot is made
    #[arg(long, conflicts_with = "read_special", help_heading = "Input")]
    pub(crate) stdin_from_command: bool,

    /// Store nothing; walk over the files, and show the requests, bytes, money and time that their
    /// backup would take at least and at most
    #[arg(long, conflicts_with_all = ["stdin", "stdin_from_command", "read_special", "image"], help_heading = "Input")]
    pub(crate) estimate: bool,

    /// Back up the contents of the given block device or FIFO as one stream
    #[arg(long, help_heading = "Input")]
    pub(crate) read_special: bool,

    #[command(flatten)]
    pub(crate) image: ImageArgs,

    /// Name of the series; any text
    #[arg(long, value_name = "NAME", help_heading = "Snapshot metadata")]
    pub(crate) series: Option<String>,

    /// Name the series after host, paths, tags, or several of these, if --series does not; the
    /// backup compares with the newest snapshot of that series [default: host,paths]
    #[arg(short = 'g', long, value_name = "WHAT", value_parser = parse_backup_group, help_heading = "Snapshot metadata")]
    pub(crate) group_by: Option<GroupBy>,

    /// Tags, separated by commas; may be given several times
    #[arg(long, value_name = "TAG[,TAG…]", help_heading = "Snapshot metadata")]
    pub(crate) tag: Vec<String>,

    /// Record this host name instead of the name of this machine [env: LARDER_HOST]
    #[arg(
        short = 'H',
        long,
        value_name = "NAME",
        env = "LARDER_HOST",
        hide_env = true,
        help_heading = "Snapshot metadata"
    )]
    pub(crate) host: Option<String>,

    /// Record this time instead of the present
    #[arg(long, value_name = "TIME", value_parser = time::parse, help_heading = "Snapshot metadata")]
    pub(crate) time: Option<u64>,

    /// Record access times
    #[arg(long, help_heading = "Snapshot metadata")]
    pub(crate) with_atime: bool,

    /// Compare with this snapshot instead of the newest of the series, and trust it, also if
    /// another machine made it. In the layout lifecycle it must be of the same series
    #[arg(long, value_name = "SNAPSHOT", help_heading = "Change detection")]
    pub(crate) parent: Option<OsString>,

    /// Trust the newest snapshot of the series, also if another machine made it: files that look as
    /// they did there are not read
    #[arg(long, help_heading = "Change detection")]
    pub(crate) trust_newest: bool,

    /// Do not search other series for similar snapshots when the series is new
    #[arg(long, hide = true)]
    pub(crate) no_similar: bool,

    /// Layout of a new series: standard, or lifecycle [default: as `larder series set` says]
    ///
    /// `lifecycle` stores chunks of the same snapshots together: whole snapshots restore
    /// sequentially, and deleting them is cheap. Series in this layout share nothing with other
    /// series. A series keeps the layout of its first snapshot.
    #[arg(long, value_name = "LAYOUT", help_heading = "Change detection")]
    pub(crate) layout: Option<larder_format::layout::Layout>,

    /// Read every file, including files that look unchanged
    #[arg(short = 'f', long, help_heading = "Change detection")]
    pub(crate) force: bool,

    /// Compare duplicates with the stored bytes; store data again that differs or is damaged
    ///
    /// This compares contents, metadata and recipes with the objects in the storage. It does not
    /// compare files that look unchanged, because they are not read (`--force` reads all), nor
    /// duplicates within this run.
    #[arg(long, help_heading = "Change detection")]
    pub(crate) paranoid: bool,

    /// Prove runs of chunks that were duplicate together in this number of snapshots; or `never`
    #[arg(long, value_name = "N", default_value = "0", hide = true)]
    pub(crate) merge_after: MergeAfter,

    /// Ignore ctime when looking for changed files
    #[arg(long, help_heading = "Change detection")]
    pub(crate) ignore_ctime: bool,

    /// For scripts written for restic: --threads says how many files are read at once
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) read_concurrency: Option<String>,

    /// For scripts written for restic: Windows only
    #[arg(long, hide = true)]
    pub(crate) use_fs_snapshot: bool,

    /// For scripts written for restic: Windows and macOS only
    #[arg(long, hide = true)]
    pub(crate) exclude_cloud_files: bool,

    /// Ignore inode numbers when looking for changed files
    #[arg(long, help_heading = "Change detection")]
    pub(crate) ignore_inode: bool,

    /// Limit the memory of the whole process, at least 35M, and 12M for each thread beyond the
    /// first. Uses small containers, and one thread without --threads. Replaces --memory. With
    /// a password, a second process needs 64 MiB for a moment; a key file needs none
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) total_memory: Option<u64>,

    /// Do not count files first; progress then shows no remaining time
    #[arg(long)]
    pub(crate) no_scan: bool,

    /// Do not create a snapshot if no file or folder changed; without effect on streams and images
    #[arg(long)]
    pub(crate) skip_if_unchanged: bool,

    /// Store nothing; show what would be stored
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Reads `host,paths`, or a part of it. The series itself is what is named.
fn parse_backup_group(text: &str) -> Result<GroupBy, String> {
    match super::forget::parse_group_by(text)? {
        GroupBy { series: true, .. } => Err("series are named after host, paths and tags".to_owned()),
        by => Ok(by),
    }
}

impl BackupArgs {
    /// The given options that have no effect, as they are written.
    pub(super) fn without_effect(&self) -> Vec<String> {
        let mut found = named(&[
            (self.read_concurrency.is_some(), "--read-concurrency"),
            (self.use_fs_snapshot, "--use-fs-snapshot"),
            (self.exclude_cloud_files, "--exclude-cloud-files"),
        ]);
        if self.image.image.is_some() || self.stdin || self.stdin_from_command {
            found.extend(named(&[
                (!self.exclude.is_empty(), "--exclude"),
                (!self.iexclude.is_empty(), "--iexclude"),
                (!self.exclude_file.is_empty(), "--exclude-file"),
                (!self.iexclude_file.is_empty(), "--iexclude-file"),
                (self.exclude_caches, "--exclude-caches"),
                (!self.exclude_if_present.is_empty(), "--exclude-if-present"),
                (self.exclude_larger_than.is_some(), "--exclude-larger-than"),
                (self.one_file_system, "--one-file-system"),
                (self.with_atime, "--with-atime"),
                (self.no_scan, "--no-scan"),
                (self.skip_if_unchanged, "--skip-if-unchanged"),
            ]));
        }
        found
    }
}

/// After how many snapshots runs of chunks get proofs; `None`: never.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergeAfter(pub(crate) Option<usize>);

impl FromStr for MergeAfter {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "never" { Ok(Self(None)) } else { text.parse().map(|times| Self(Some(times))) }
    }
}

//! The verbs that only look: `snapshots`, `ls`, `find`, `diff`, `stats`, `dump`, `check`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use larder_format::ids::{ContainerId, ContainerKind};
use larder_rewrite::check::ReadData;

use super::FetchArgs;
use crate::{sizes, time};

/// Which snapshots are meant.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FilterArgs {
    /// Only snapshots of this host; may be repeated
    #[arg(short = 'H', long, value_name = "NAME", help_heading = "Filters")]
    pub(crate) host: Vec<String>,

    /// Only snapshots with all of these tags; may be repeated for alternatives; '' means snapshots
    /// without tags
    #[arg(long, value_name = "TAG[,TAG…]", help_heading = "Filters")]
    pub(crate) tag: Vec<String>,

    /// Only snapshots of this path; may be repeated
    #[arg(long, value_name = "PATH", help_heading = "Filters")]
    pub(crate) path: Vec<OsString>,

    /// Only snapshots of this series; may be repeated
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    pub(crate) series: Vec<String>,
}

impl FilterArgs {
    /// Whether all snapshots are admitted.
    pub(crate) fn is_empty(&self) -> bool {
        self.host.is_empty() && self.tag.is_empty() && self.path.is_empty() && self.series.is_empty()
    }
}

/// List the snapshots.
///
/// SIZE is the size of the restored files. ADDED is the size of new data, and STORED its compressed
/// size. FREE is the space that forgetting this snapshot alone would free, in whole containers. A
/// narrow terminal shows fewer columns.
#[derive(Debug, Args)]
pub(crate) struct SnapshotsArgs {
    /// Snapshots (latest, latest~2, or an id or its beginning)
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) ids: Vec<String>,

    /// Show only the newest N of each series (or of each group)
    #[arg(long, value_name = "N")]
    pub(crate) latest: Option<usize>,

    /// For scripts written for restic: --latest 1
    #[arg(long, hide = true, conflicts_with = "latest")]
    pub(crate) last: bool,

    /// Leave out the tags and the sizes of new data
    #[arg(short = 'c', long)]
    pub(crate) compact: bool,

    /// Do not show FREE: computing it reads every manifest
    #[arg(long)]
    pub(crate) no_free: bool,

    /// Group the snapshots
    #[arg(short = 'g', long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    pub(crate) group_by: Vec<GroupBy>,

    /// Which snapshots
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// What snapshots of one group have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// The host
    #[value(alias = "hosts")]
    Host,
    /// The paths
    #[value(alias = "path")]
    Paths,
    /// The tags
    #[value(alias = "tag")]
    Tags,
    /// The series
    Series,
}

/// List the files of a snapshot.
///
/// Without a path, this lists all files. With SNAPSHOT:/PATH, or paths after it, it lists that
/// folder; --recursive lists everything below it.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Snapshot (latest, latest~2, or an id or its beginning), and a path in it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub(crate) snapshot: OsString,

    /// Folders or files in the snapshot
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    /// Show mode, owner, size and time as well
    #[arg(short = 'l', long)]
    pub(crate) long: bool,

    /// List everything below the given paths
    #[arg(long)]
    pub(crate) recursive: bool,

    /// Sort by this, the smallest or oldest first
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) sort: Option<LsSort>,

    /// Reverse the order
    #[arg(long)]
    pub(crate) reverse: bool,

    /// With --long, show sizes as 1.5 MiB
    #[arg(long)]
    pub(crate) human_readable: bool,

    /// Print the format of `ncdu -f`, which shows where the space is
    #[arg(long, conflicts_with_all = ["long", "sort", "reverse", "human_readable"])]
    pub(crate) ncdu: bool,

    /// Which snapshots `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// The orders of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LsSort {
    /// The path
    Name,
    /// The size
    Size,
    /// The time of the last change of the content
    #[value(alias = "mtime")]
    Time,
    /// The time of the last access, where it was recorded
    Atime,
    /// The time of the last change of content or metadata
    Ctime,
    /// The ending of the name
    Extension,
}

/// Find files by name, size, time or container in all snapshots.
///
/// A pattern without a slash is compared with names, one with a slash with whole paths: `*.conf`,
/// `/etc/**/*.conf`.
#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    /// Pattern to search for
    #[arg(value_name = "PATTERN", required_unless_present_any = ["blob", "pack", "tree"])]
    pub(crate) patterns: Vec<OsString>,

    /// Search only these snapshots (latest, latest~2, or an id or its beginning)
    #[arg(short = 's', long = "snapshot", value_name = "SNAPSHOT")]
    pub(crate) snapshots: Vec<String>,

    /// Ignore case
    #[arg(short = 'i', long)]
    pub(crate) ignore_case: bool,

    /// Show mode, owner, size and time as well
    #[arg(short = 'l', long)]
    pub(crate) long: bool,

    /// Only files modified at this time or later
    #[arg(short = 'O', long, visible_alias = "newer", value_name = "TIME", value_parser = time::parse)]
    pub(crate) oldest: Option<u64>,

    /// Only files modified at this time or earlier
    #[arg(short = 'N', long, visible_alias = "older", value_name = "TIME", value_parser = time::parse)]
    pub(crate) newest: Option<u64>,

    /// Only files of more than this size (bytes, or with K, M, G, T)
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) larger: Option<u64>,

    /// Only files of less than this size
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) smaller: Option<u64>,

    /// Search the newest snapshot first instead of the oldest
    #[arg(short = 'R', long)]
    pub(crate) reverse: bool,

    /// With --long, show sizes as 1.5 MiB
    #[arg(long)]
    pub(crate) human_readable: bool,

    /// Only files with data in this container, named as `check` names it: data/…/…
    #[arg(long, value_name = "OBJECT", value_parser = parse_container)]
    pub(crate) blob: Option<ContainerId>,

    /// For people who know restic: the same
    #[arg(long, hide = true, value_name = "OBJECT", value_parser = parse_container, conflicts_with = "blob")]
    pub(crate) pack: Option<ContainerId>,

    /// For people who know restic: is refused, with what to do
    #[arg(long, hide = true)]
    pub(crate) tree: bool,

    /// Which snapshots
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Compare two snapshots.
///
/// Each line begins with a sign: + added, - removed, M content modified, U metadata changed, T file
/// type changed.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Older snapshot, and a path in it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub(crate) from: OsString,

    /// Newer snapshot, and a path in it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub(crate) to: OsString,

    /// Also show files of which only metadata changed
    #[arg(long)]
    pub(crate) metadata: bool,

    /// Which snapshots `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Show the size of snapshots and of the repository.
///
/// LOGICAL is the size of all restored files. UNIQUE is the size without duplicates, and STORED the
/// compressed size. UNIQUE and STORED count whole containers, which may also hold data of other
/// snapshots.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Snapshots (latest, latest~2, or an id or its beginning)
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) ids: Vec<String>,

    /// Show one line for each
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) by: Option<StatsBy>,

    /// For programs that start restic: what is counted in restic mode
    #[arg(
        long,
        value_name = "MODE",
        hide = true,
        value_parser = ["restore-size", "files-by-contents", "blobs-per-file", "raw-data"]
    )]
    pub(crate) mode: Option<String>,

    /// Which snapshots
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// What statistics are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatsBy {
    /// Each snapshot
    Snapshot,
    /// Each series
    Series,
    /// Each host
    Host,
    /// Each tag
    Tag,
}

/// Write a file, or a folder as an archive, to standard output.
///
/// A file is written unchanged. A folder is written as a tar archive with all metadata, or as a zip
/// archive.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// Snapshot (latest, latest~2, or an id or its beginning), and a path in it
    #[arg(value_name = "SNAPSHOT:PATH")]
    pub(crate) snapshot: OsString,

    /// Path in the snapshot
    #[arg(value_name = "PATH")]
    pub(crate) inside: Option<OsString>,

    /// Archive format for folders
    #[arg(short = 'a', long, value_enum, default_value = "tar")]
    pub(crate) archive: DumpFormat,

    /// Write to this file or device instead of standard output
    #[arg(short = 't', long, value_name = "FILE")]
    pub(crate) target: Option<PathBuf>,

    /// How contents are fetched
    #[command(flatten)]
    pub(crate) fetch: FetchArgs,

    /// Which snapshots `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Kinds of archives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// With all metadata
    Tar,
    /// Names, times, modes and symbolic links
    Zip,
}

/// Check the repository for errors.
///
/// By default this checks the structure: every manifest, recipe, segment and container table, that
/// all referenced objects exist, and that the index agrees with them. --read-data also reads and
/// verifies all content.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Check only these snapshots (latest, latest~2, or an id or its beginning)
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) ids: Vec<String>,

    /// Read and verify all content
    #[arg(long, conflicts_with = "read_data_subset")]
    pub(crate) read_data: bool,

    /// Read and verify a part of the content: a random 5% or 500MiB, or part 2 of 7 as 2/7
    #[arg(long, value_name = "PART", value_parser = parse_subset)]
    pub(crate) read_data_subset: Option<ReadData>,

    /// Share the reading of content with workers: this many processes, this one among them. The
    /// others are `larder fleet work` on any host
    ///
    /// The check does not wait for workers, and reads itself all that nobody takes. Samples verify
    /// the results of workers, and damage is always read again.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) workers: Option<u32>,

    /// With --workers: take over from a worker that gives no sign of life for this long
    #[arg(long, value_name = "TIME", value_parser = time::parse_duration, default_value = "1m")]
    pub(crate) claim_timeout: Duration,

    /// Read no content; show the requests, bytes, money and time that the check would take. The
    /// structure is checked, because it says which content there is
    #[arg(long)]
    pub(crate) estimate: bool,

    /// Do not compare the index with snapshots and containers: the comparison reads every container
    /// table once more
    ///
    /// The index is compared only if no snapshots are named.
    #[arg(long)]
    pub(crate) no_index: bool,

    /// Take the repository as it is, although this machine remembers a newer state
    #[arg(long)]
    pub(crate) accept_state: bool,

    /// For scripts written for restic: a check never trusts the cache
    #[arg(long, hide = true)]
    pub(crate) with_cache: bool,

    /// Which snapshots
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Reads the name of a container with data.
fn parse_container(text: &str) -> Result<ContainerId, String> {
    match larder_format::names::parse_container(text) {
        Some(id) if id.kind == ContainerKind::Data => Ok(id),
        _ => Err("this is not the name of a container, such as data/JOB/NUMBER".to_owned()),
    }
}

/// Reads `5%`, `n/m` or a size.
pub(super) fn parse_subset(text: &str) -> Result<ReadData, String> {
    let wrong = || format!("{text:?} is not a part such as 5%, 2/7 or 500MiB");
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
        return if percent > 0.0 && percent <= 100.0 { Ok(ReadData::Share(percent / 100.0)) } else { Err(wrong()) };
    }
    if let Some((n, of)) = text.split_once('/') {
        let (n, of) = (n.trim().parse().map_err(|_| wrong())?, of.trim().parse().map_err(|_| wrong())?);
        return if n >= 1 && n <= of { Ok(ReadData::Part { n, of }) } else { Err(wrong()) };
    }
    match sizes::parse_bytes(text) {
        Ok(bytes) if bytes > 0 => Ok(ReadData::Bytes(bytes)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_to_read() {
        assert_eq!(parse_subset("5%"), Ok(ReadData::Share(0.05)));
        assert_eq!(parse_subset("2/7"), Ok(ReadData::Part { n: 2, of: 7 }));
        assert_eq!(parse_subset("500MiB"), Ok(ReadData::Bytes(500 << 20)));
        for bad in ["", "0%", "101%", "NaN%", "0/7", "8/7", "1/", "x", "0"] {
            assert!(parse_subset(bad).is_err(), "{bad}");
        }
    }
}

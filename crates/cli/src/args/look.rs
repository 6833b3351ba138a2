//! The verbs that only look: `snapshots`, `ls`, `find`, `diff`, `stats`, `dump`, `check`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use larder_lnode::check::ReadData;

use super::FetchArgs;
use crate::{sizes, time};

/// Which snapshots are meant.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FilterArgs {
    /// Only snapshots of this host; may be given several times
    #[arg(short = 'H', long, value_name = "NAME", help_heading = "Which snapshots")]
    pub(crate) host: Vec<String>,

    /// Only snapshots with all of these tags; may be given several times for alternatives
    #[arg(long, value_name = "TAG[,TAG…]", help_heading = "Which snapshots")]
    pub(crate) tag: Vec<String>,

    /// Only snapshots of this path; may be given several times for snapshots of all of them
    #[arg(long, value_name = "PATH", help_heading = "Which snapshots")]
    pub(crate) path: Vec<OsString>,

    /// Only snapshots of this series; may be given several times
    #[arg(long, value_name = "NAME", help_heading = "Which snapshots")]
    pub(crate) series: Vec<String>,
}

/// List the snapshots.
///
/// SIZE is what restoring the snapshot writes, ADDED what the backup added to the repository, SHARED what was there already, FREE
/// what forgetting it alone would free, counted in whole containers: those that only it names, or in the layout `lifecycle` those of
/// which no other snapshot of its series needs anything.
#[derive(Debug, Args)]
pub(crate) struct SnapshotsArgs {
    /// Only these (latest, latest~2, an id or its beginning)
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) ids: Vec<String>,

    /// Only the newest N of each series (or of each group)
    #[arg(long, value_name = "N")]
    pub(crate) latest: Option<usize>,

    /// For fingers that know restic: the table is compact as it is
    #[arg(short = 'c', long, hide = true)]
    pub(crate) compact: bool,

    /// Do not find out what forgetting each snapshot would free: that reads every manifest
    #[arg(long)]
    pub(crate) no_free: bool,

    /// Show in groups
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

/// List what a snapshot holds.
///
/// Without a path everything is listed; with SNAPSHOT:/PATH (or paths after it) what lies directly in it, and with --recursive
/// everything below it.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// The snapshot (latest, latest~2, an id or its beginning), and what of it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub(crate) snapshot: OsString,

    /// Folders or files in the snapshot
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    /// Show mode, owner, size and time as well
    #[arg(short = 'l', long)]
    pub(crate) long: bool,

    /// Everything below the given paths
    #[arg(long)]
    pub(crate) recursive: bool,

    /// Which snapshots `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Find files by name in all snapshots.
///
/// A pattern without a slash is compared with names, one with a slash with whole paths: `*.conf`, `/etc/**/*.conf`.
#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    /// What to look for
    #[arg(value_name = "PATTERN", required = true)]
    pub(crate) patterns: Vec<OsString>,

    /// Look only into these snapshots (latest, latest~2, an id or its beginning)
    #[arg(short = 's', long = "snapshot", value_name = "SNAPSHOT")]
    pub(crate) snapshots: Vec<String>,

    /// Without regard to upper and lower case
    #[arg(short = 'i', long)]
    pub(crate) ignore_case: bool,

    /// Show mode, owner, size and time as well
    #[arg(short = 'l', long)]
    pub(crate) long: bool,

    /// Only what was modified at this time or later
    #[arg(short = 'O', long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) oldest: Option<u64>,

    /// Only what was modified at this time or earlier
    #[arg(short = 'N', long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) newest: Option<u64>,

    /// Which snapshots
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Compare two snapshots.
///
/// Every line begins with what happened: + added, - removed, M content modified, U metadata changed, T another type of file.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The older snapshot, and what of it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub(crate) from: OsString,

    /// The newer snapshot, and what of it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    pub(crate) to: OsString,

    /// Also show where only metadata changed
    #[arg(long)]
    pub(crate) metadata: bool,

    /// Which snapshots `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Say how much the snapshots hold, and how much they take.
///
/// LOGICAL is what restoring every snapshot writes, UNIQUE what is left without duplicates, STORED what is left compressed. These are
/// counted in whole containers: those of a few snapshots may hold things that only others need.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Only these (latest, latest~2, an id or its beginning)
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) ids: Vec<String>,

    /// One line for each
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) by: Option<StatsBy>,

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
/// A file is written as it is. A folder becomes a tar archive with all its metadata, or a zip archive for other systems.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The snapshot (latest, latest~2, an id or its beginning), and what of it
    #[arg(value_name = "SNAPSHOT:PATH")]
    pub(crate) snapshot: OsString,

    /// The path, if not given with the snapshot
    #[arg(value_name = "PATH")]
    pub(crate) inside: Option<OsString>,

    /// Kind of archive for folders
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

/// Find out whether every snapshot can be restored.
///
/// Without options the structure is checked: every manifest, recipe, segment and table of contents, and that everything referenced
/// is there; and that the index of the passes agrees with all of it. With --read-data all content is read and verified as well.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Only what these snapshots need (latest, latest~2, an id or its beginning)
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) ids: Vec<String>,

    /// Read and verify all content
    #[arg(long, conflicts_with = "read_data_subset")]
    pub(crate) read_data: bool,

    /// Read and verify a part of the content: 5% or 500MiB chosen anew each time, or part 2 of 7 as 2/7
    #[arg(long, value_name = "PART", value_parser = parse_subset)]
    pub(crate) read_data_subset: Option<ReadData>,

    /// Do not compare the index with snapshots and containers, which reads every container's table of contents once more
    ///
    /// It is compared only when everything is checked.
    #[arg(long)]
    pub(crate) no_index: bool,

    /// Which snapshots
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
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

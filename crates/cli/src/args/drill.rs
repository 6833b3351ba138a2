//! `larder drill`.

use std::path::PathBuf;

use clap::Args;
use larder_drill::Sample;

use super::{FetchArgs, FilterArgs};
use crate::sizes;

/// Restore a sample of the newest snapshots, and compare it.
///
/// The sample is restored into a scratch folder as `larder restore` does it, read back, and
/// compared with the snapshot. Half of its files are drawn by number, and the other half by size.
/// The largest file and one item of each kind are always in it. The report says what differs, how
/// long it took, and how long a restore of everything would take. The scratch folder is removed at
/// the end. After kill -9, a folder larder-drill-… stays, and can be deleted.
#[derive(Debug, Args)]
pub(crate) struct DrillArgs {
    /// Snapshot (latest, latest~2, or an id or its beginning); may be repeated [default: the newest
    /// of each series]
    #[arg(long, value_name = "SNAPSHOT", conflicts_with = "all")]
    pub(crate) snapshot: Vec<String>,

    /// All snapshots that the filters admit
    #[arg(long)]
    pub(crate) all: bool,

    /// How much of each snapshot: a share such as 1%, files such as 100files, or a size such as
    /// 1GiB; 100% is everything
    #[arg(long, value_name = "SAMPLE", value_parser = parse_sample, default_value = "1%")]
    pub(crate) sample: Sample,

    /// Repeat the choice of an earlier drill, whose report names its seed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Folder for the restored files; it needs space for the sample of one snapshot [default: the
    /// cache folder, else that for temporary files]
    #[arg(long, value_name = "DIR", conflicts_with = "no_write")]
    pub(crate) scratch: Option<PathBuf>,

    /// Only read and verify the contents of files, and write nothing
    #[arg(long)]
    pub(crate) no_write: bool,

    /// Restore nothing; show the requests, bytes, money and time that the drill would take. Without
    /// --seed it draws one, and shows it
    #[arg(long, conflicts_with = "no_write")]
    pub(crate) estimate: bool,

    /// Compare with the files of this machine that have the size and time of the snapshot
    #[arg(long)]
    pub(crate) compare_source: bool,

    /// Write the report to a file, as JSON or HTML, as its name says
    #[arg(long, value_name = "FILE.json|FILE.html", conflicts_with = "estimate")]
    pub(crate) report: Option<PathBuf>,

    /// How contents are fetched
    #[command(flatten)]
    pub(crate) fetch: FetchArgs,

    /// Which snapshots
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

fn parse_sample(text: &str) -> Result<Sample, String> {
    let error = match text.parse() {
        Ok(sample) => return Ok(sample),
        Err(larder_drill::ParseSampleError { .. }) if text.trim().ends_with(['%', 's']) => {
            larder_drill::ParseSampleError { text: text.to_owned() }
        }
        Err(error) => error,
    };
    match sizes::parse_bytes(text) {
        Ok(bytes) if bytes > 0 => Ok(Sample::Bytes(bytes)),
        _ => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_shares_files_or_sizes() {
        assert_eq!(parse_sample("1%"), Ok(Sample::Part(0.01)));
        assert_eq!(parse_sample("100files"), Ok(Sample::Files(100)));
        assert_eq!(parse_sample("1GiB"), Ok(Sample::Bytes(1 << 30)));
        for bad in ["", "0", "0%", "x", "5 apples"] {
            assert!(parse_sample(bad).is_err(), "{bad}");
        }
    }
}

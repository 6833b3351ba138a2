//! `larder repair`.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use larder_lnode::check::ReadData;

use super::look::{FilterArgs, parse_subset};

/// Put back, save or make anew what was lost
///
/// `larder repair --from PATH` (or `larder repair data --from PATH`) puts lost contents back from files that still have them; `repair
/// snapshots` saves what is left of damaged snapshots; `repair index` makes the index anew. All of them only add: nothing is deleted
/// or written over, and all may run beside everything else.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, arg_required_else_help = true)]
pub(crate) struct RepairArgs {
    /// What is repaired
    #[command(subcommand)]
    pub(crate) command: Option<RepairCommand>,
    /// Without a name it is the data.
    #[command(flatten)]
    pub(crate) data: RepairDataArgs,
}

/// What can be repaired.
#[derive(Debug, Subcommand)]
pub(crate) enum RepairCommand {
    /// Put lost contents back into the snapshots that lost them, from files that still have them
    ///
    /// Finds the containers that are damaged or missing, reads the files below PATH as a backup would, and puts back every chunk that
    /// was lost and is found there, under whatever name. The snapshots keep their ids. What is not found stays lost. When nothing needs
    /// a damaged container any more, the next pass (`larder optimize`) deletes it.
    Data(RepairDataArgs),
    /// Restore the object `config` from the copy that lies in every key
    ///
    /// For a config that is missing or damaged. A damaged one is deleted first. When no key is left either, `larder key import` restores
    /// both from the paper key.
    Config,
    /// Make the index anew, from snapshots and containers alone
    ///
    /// For an index that is damaged or lost. Reads every manifest and the tables of every container; deletes nothing, and may run beside
    /// everything else. Backups and restores do without an index, passes (`larder optimize`) do not.
    Index {
        /// Change nothing, only find out whether the index agrees with snapshots and containers
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
    /// Save what is left of damaged snapshots as new snapshots
    ///
    /// Every damaged snapshot gets a successor in its series, with its time, and the tags "repaired" and "repaired-from:ID", that holds
    /// everything but what is lost. Files that lost parts read as zeros there and have the time 0, so that the next backup reads them
    /// anew; files that lost everything are left out. All of them are named.
    Snapshots(RepairSnapshotsArgs),
}

/// How much is read to find what is damaged.
#[derive(Debug, Args)]
pub(crate) struct ReadDataArgs {
    /// Read and verify all content to find what is damaged, and not only what is missing, cut short or unreadable
    #[arg(long, conflicts_with = "read_data_subset")]
    pub(crate) read_data: bool,

    /// Read and verify a part of the content: 5% or 500MiB chosen anew each time, or part 2 of 7 as 2/7
    #[arg(long, value_name = "PART", value_parser = parse_subset)]
    pub(crate) read_data_subset: Option<ReadData>,
}

/// `repair data`.
#[derive(Debug, Args)]
pub(crate) struct RepairDataArgs {
    /// A file or folder that still has what was lost, wherever it is now; may be given more than once
    #[arg(long, value_name = "PATH", required = true)]
    pub(crate) from: Vec<OsString>,

    /// Change nothing, only find out what would be put back
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// How much is read
    #[command(flatten)]
    pub(crate) read: ReadDataArgs,
}

/// `repair snapshots`.
#[derive(Debug, Args)]
pub(crate) struct RepairSnapshotsArgs {
    /// Only these snapshots (latest, latest~2, an id or its beginning)
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) ids: Vec<String>,

    /// Change nothing, only find out what would be saved
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Forget the damaged snapshots that were saved
    #[arg(long)]
    pub(crate) forget: bool,

    /// How much is read
    #[command(flatten)]
    pub(crate) read: ReadDataArgs,

    /// Which snapshots
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

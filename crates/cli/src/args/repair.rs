//! `larder repair`.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use larder_rewrite::check::ReadData;

use super::look::{FilterArgs, parse_subset};

/// Repair a damaged repository
///
/// `larder repair --from PATH` (or `larder repair data --from PATH`) restores lost contents from
/// files that still have them. `repair snapshots` saves the undamaged parts of damaged snapshots.
/// `repair index` rebuilds the index. Repairs delete nothing and overwrite nothing, and may run
/// beside all other commands.
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
    /// Restore lost contents from files that still have them
    ///
    /// Finds damaged and missing containers and reads the files below PATH as a backup would. It
    /// stores every lost chunk that it finds there, under any name. The snapshots keep their ids.
    /// Chunks that are not found stay lost. The next pass (`larder optimize`) deletes damaged
    /// containers that no snapshot needs any more.
    Data(RepairDataArgs),
    /// Restore the object `config` from the copy in a key
    ///
    /// Use this if config is missing or damaged. A damaged config is deleted first. If no key is
    /// left either, `larder key import` restores both from the paper key.
    Config,
    /// Rebuild the index from snapshots and containers
    ///
    /// Use this if the index is damaged or lost. It reads every manifest and every container table,
    /// and deletes nothing. Backups work without an index; passes (`larder optimize`) and restores
    /// of moved chunks need it.
    Index {
        /// Change nothing; show whether the index agrees with snapshots and containers
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
    /// Save the undamaged parts of damaged snapshots as new snapshots
    ///
    /// Each damaged snapshot gets a successor in its series, with the same time and the tags
    /// "repaired" and "repaired-from:ID". Lost parts of files read as zeros, and such files have
    /// the time 0, so that the next backup reads them again. Files that lost all contents are left
    /// out. The command names all of them.
    Snapshots(RepairSnapshotsArgs),
}

/// How much is read to find what is damaged.
#[derive(Debug, Args)]
pub(crate) struct ReadDataArgs {
    /// Read and verify all content, and do not only look for missing, truncated or unreadable
    /// objects
    #[arg(long, conflicts_with = "read_data_subset")]
    pub(crate) read_data: bool,

    /// Read and verify a part of the content: a random 5% or 500MiB, or part 2 of 7 as 2/7
    #[arg(long, value_name = "PART", value_parser = parse_subset)]
    pub(crate) read_data_subset: Option<ReadData>,
}

/// `repair data`.
#[derive(Debug, Args)]
pub(crate) struct RepairDataArgs {
    /// File or folder that still has the lost contents, under any path; may be repeated
    #[arg(long, value_name = "PATH", required = true)]
    pub(crate) from: Vec<OsString>,

    /// Change nothing; show what would be restored
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// How much is read
    #[command(flatten)]
    pub(crate) read: ReadDataArgs,
}

/// `repair snapshots`.
#[derive(Debug, Args)]
pub(crate) struct RepairSnapshotsArgs {
    /// Snapshots (latest, latest~2, or an id or its beginning)
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) ids: Vec<String>,

    /// Change nothing; show what would be saved
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

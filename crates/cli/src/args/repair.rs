//! `larder repair`.

use clap::{Args, Subcommand};

/// Make anew what was lost and can be made anew.
#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// What is repaired
    #[command(subcommand)]
    pub(crate) command: RepairCommand,
}

/// What can be repaired.
#[derive(Debug, Subcommand)]
pub(crate) enum RepairCommand {
    /// Make the index anew, from snapshots and containers alone
    ///
    /// For an index that is damaged or lost. Reads every manifest and the tables of every container; deletes nothing, and may run beside
    /// everything else. Backups and restores do without an index, passes (`larder optimize`) do not.
    Index {
        /// Change nothing, only find out whether the index agrees with snapshots and containers
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
}

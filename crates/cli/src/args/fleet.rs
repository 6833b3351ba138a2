//! `larder fleet`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::sizes;
use crate::time::parse_duration;

/// Back up many disk images as one batch.
///
/// Duplicates are found for all images together, and across all series of the repository. Each
/// image then gets a snapshot in its own series, as `larder backup --image` makes one.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct FleetArgs {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: FleetCommand,
}

/// What to do with batches.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Back up the images of an inventory
    ///
    /// The inventory is a TOML file with `[[image]]` for each image. It has a source, and if
    /// wanted a name, a series, a host and a map of changes. A source is what
    /// `larder backup --image` takes; patterns such as /images/*.raw name several files. An image
    /// that fails leaves the others: they are saved, and the exit code is 3. At the end, a pass
    /// adds the batch to the index, so that the next batch finds its data.
    Run(Box<FleetRunArgs>),
    /// Show what a batch would take: rounds, hours, bytes, requests and money
    ///
    /// No image is read. How much changes in an image, and how fast, comes from its newest
    /// snapshot. Hosts and disks have assumed rates. `--what-if` replaces any of it.
    ///
    /// Of hosts: hosts=N; read, scratch, compute, network (bytes a second); request (seconds of
    /// one); parallel (requests at once).
    ///
    /// Of data: known, shared (percent of looked-up chunks that the index, or other images, have);
    /// changed (percent of each image); size (of images without a snapshot).
    ///
    /// Of guests: writes (bytes a second of each); hot (bytes that each writes again and again).
    ///
    /// Of prices: write-price, read-price (of 1000 requests); month-price (of a GB).
    Plan(FleetPlanArgs),
    /// Show the stages of a batch, or the batches that left anything
    Status(FleetStatusArgs),
    /// Remove what batches have left for their own tasks; snapshots do not need it
    Clean,
}

/// How a batch is made.
#[derive(Debug, Args)]
pub(crate) struct FleetRunArgs {
    /// The inventory
    #[arg(value_name = "INVENTORY")]
    pub(crate) inventory: PathBuf,

    /// Tags, separated by commas; may be given several times
    #[arg(long, value_name = "TAG[,TAG…]")]
    pub(crate) tag: Vec<String>,

    /// Read all images as a whole, whatever maps of changes say
    #[arg(short = 'f', long)]
    pub(crate) force: bool,

    /// Compare all that a map leaves out in every Nth snapshot, and samples in the others; 0:
    /// samples only
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) verify_every: u32,

    /// Folder for what a running QEMU overwrites during the batch [default: a folder of the cache]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) image_scratch: Option<PathBuf>,

    /// Answer questions about fingerprints in this number of ranges
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) partitions: Option<u32>,

    /// Make no pass at the end; the next batch finds data of this one only after a pass
    #[arg(long)]
    pub(crate) no_pass: bool,

    /// Read and store nothing; show the images, their series and what they are compared with
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// What to plan.
#[derive(Debug, Args)]
pub(crate) struct FleetPlanArgs {
    /// The inventory
    #[arg(value_name = "INVENTORY")]
    pub(crate) inventory: PathBuf,

    /// Plan as many rounds as fit this time; images of a round are frozen together
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) time_limit: Option<Duration>,

    /// Plan no more rounds than needed, so that guests overwrite at most this while images are
    /// frozen
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) overwritten_limit: Option<u64>,

    /// Replace a fact, such as hosts=16 or read=200MB; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) what_if: Vec<String>,
}

/// Which batch to show.
#[derive(Debug, Args)]
pub(crate) struct FleetStatusArgs {
    /// Id of the batch, or its beginning [default: list the batches]
    #[arg(value_name = "BATCH")]
    pub(crate) batch: Option<OsString>,
}

//! `larder fleet`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::time;

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

impl FleetArgs {
    /// What the whole process may take, in bytes.
    pub(super) fn total_memory(&self) -> Option<u64> {
        match &self.command {
            FleetCommand::Run(args) => args.total_memory,
            FleetCommand::Work(args) => args.total_memory,
            _ => None,
        }
    }
}

/// What to do with batches.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Back up the images of an inventory
    ///
    /// The inventory is a TOML file with a table `[[image]]` for each image: `source =
    /// "/images/web.raw"`. A source is what `larder backup --image` takes; a pattern such as
    /// /images/*.raw names several files. Further keys are `name`, `series`, `host`, and for maps
    /// of changes `map` or `context`, and `since`. An image that fails leaves the others: they are
    /// saved, and the exit code is 3. At the end, a pass adds the batch to the index, so that the
    /// next batch finds its data.
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
    /// Work on batches, checks and passes that other hosts share
    ///
    /// Of batches (`fleet run --queue store`), it reads the images that the inventory names for
    /// this host, and those that are shared. Give every host the same file. A batch names images
    /// by name and series only; the worker reads what its own inventory says.
    ///
    /// Of checks (`check --read-data --workers`), it reads ranges of containers. That takes a key
    /// for restores, and no inventory.
    ///
    /// Of passes (`optimize --workers`), it reads recipes, and verifies and copies chunks. That
    /// takes a key that also operates, and no inventory. It works until it is stopped.
    Work(Box<FleetWorkArgs>),
    /// Show the stages of a batch, or the batches, checks and passes that left anything
    Status(FleetStatusArgs),
    /// Finish a batch whose `fleet run` was lost, and back up its images that were not saved
    ///
    /// Only for batches with `--queue store`: workers read the images.
    Retry(FleetRetryArgs),
    /// End a batch: images that have no snapshot yet get none
    Abort(FleetBatchArgs),
    /// Delete temporary objects of batches that have ended
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

    /// In every Nth snapshot, compare everything outside the map with the stored data; in the
    /// others, and with 0 in all, compare samples only
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) verify_every: u32,

    #[command(flatten)]
    pub(crate) reading: FleetReadingArgs,

    /// Answer questions about fingerprints in this number of ranges
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) partitions: Option<u32>,

    /// Who does the work: this process alone (memory); also workers on other hosts (store); or
    /// these, with a NATS server that gives them tasks (nats://HOST:PORT, tls://HOST:PORT)
    #[arg(long, value_name = "QUEUE", default_value = "memory")]
    pub(crate) queue: FleetQueue,

    #[command(flatten)]
    pub(crate) nats: FleetNatsArgs,

    #[command(flatten)]
    pub(crate) patience: FleetPatienceArgs,

    #[command(flatten)]
    pub(crate) planner: FleetPlannerArgs,

    /// Limit the memory of the whole process, at least 35M, and 12M for each thread beyond the
    /// first. Uses small containers, and one thread without --threads. Replaces --memory. The
    /// pass at the end may take more
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) total_memory: Option<u64>,

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

    #[command(flatten)]
    pub(crate) planner: FleetPlannerArgs,
}

/// In how many rounds images are backed up. Those of a round are frozen together.
#[derive(Debug, Args)]
pub(crate) struct FleetPlannerArgs {
    /// As many rounds; images of a round are opened at its beginning [default: one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256),
        conflicts_with_all = ["time_limit", "overwritten_limit"])]
    pub(crate) rounds: Option<u32>,

    /// As many rounds as fit this time; images of a round are frozen together
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) time_limit: Option<Duration>,

    /// No more rounds than needed, so that guests overwrite at most this while images are frozen
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) overwritten_limit: Option<u64>,

    /// Replace a fact, such as hosts=16 or read=200MB; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) what_if: Vec<String>,
}

/// Who does the work of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FleetQueue {
    /// This process alone.
    Memory,
    /// Also `larder fleet work` on other hosts, with nothing but the repository between them.
    Store,
    /// These, with the NATS server at this address.
    Nats(String),
}

impl FromStr for FleetQueue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "memory" => Ok(Self::Memory),
            "store" => Ok(Self::Store),
            _ if text.starts_with("nats://") || text.starts_with("tls://") => Ok(Self::Nats(text.to_owned())),
            _ => Err("memory, store, nats://HOST:PORT or tls://HOST:PORT is expected".to_owned()),
        }
    }
}

/// How a process reads images.
#[derive(Debug, Args)]
pub(crate) struct FleetReadingArgs {
    /// Folder for what a running QEMU overwrites during the batch [default: a folder of the cache]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) image_scratch: Option<PathBuf>,

    /// Limit reading of all images in this process to this rate per second, in KiB or with a unit
    /// such as 50MiB
    #[arg(long, value_name = "RATE", value_parser = sizes::parse_rate)]
    pub(crate) limit_read: Option<u64>,
}

/// How a NATS server is used.
#[derive(Debug, Args)]
pub(crate) struct FleetNatsArgs {
    /// File with credentials for NATS: a file of `nsc`, a seed, USER:PASSWORD, or a token
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_credentials: Option<PathBuf>,

    /// File in PEM with the authorities that the NATS server may have, instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_cacert: Option<PathBuf>,
}

/// How long workers may be silent.
#[derive(Debug, Args)]
pub(crate) struct FleetPatienceArgs {
    /// With several hosts: another worker takes over from one that is silent for this long
    #[arg(long, value_name = "TIME", value_parser = time::parse_duration, default_value = "1m")]
    pub(crate) claim_timeout: Duration,

    /// With several hosts: images of a worker that is silent for this long leave the batch. At
    /// least the claim timeout
    #[arg(long, value_name = "TIME", value_parser = time::parse_duration, default_value = "10m")]
    pub(crate) task_timeout: Duration,
}

/// How a worker works.
#[derive(Debug, Args)]
pub(crate) struct FleetWorkArgs {
    /// The inventory; without it, the worker takes checks and passes only
    #[arg(value_name = "INVENTORY")]
    pub(crate) inventory: Option<PathBuf>,

    /// Name of this host in the inventory [default: the name of this machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,

    #[command(flatten)]
    pub(crate) reading: FleetReadingArgs,

    /// Who gives tasks: the repository alone (store), or a NATS server (nats://HOST:PORT,
    /// tls://HOST:PORT), the same as of `fleet run`
    #[arg(long, value_name = "QUEUE", default_value = "store")]
    pub(crate) queue: FleetQueue,

    #[command(flatten)]
    pub(crate) nats: FleetNatsArgs,

    /// End when one batch, check or pass is over
    #[arg(long)]
    pub(crate) once: bool,

    /// Limit the memory of the whole process, at least 35M, and 12M for each thread beyond the
    /// first. Uses small containers, and one thread without --threads. Replaces --memory
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) total_memory: Option<u64>,

    /// Serve metrics for Prometheus on HOST:PORT, at the path /metrics, to everybody who can
    /// connect
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,
}

/// Which batch.
#[derive(Debug, Args)]
pub(crate) struct FleetBatchArgs {
    /// Id of the batch, or its beginning
    #[arg(value_name = "BATCH")]
    pub(crate) batch: String,
}

/// Which batch to try again.
#[derive(Debug, Args)]
pub(crate) struct FleetRetryArgs {
    #[command(flatten)]
    pub(crate) batch: FleetBatchArgs,

    /// Who gives tasks: the repository alone (store), or a NATS server (nats://HOST:PORT,
    /// tls://HOST:PORT)
    #[arg(long, value_name = "QUEUE", default_value = "store")]
    pub(crate) queue: FleetQueue,

    #[command(flatten)]
    pub(crate) nats: FleetNatsArgs,

    #[command(flatten)]
    pub(crate) patience: FleetPatienceArgs,

    /// Make no pass at the end; the next batch finds data of this one only after a pass
    #[arg(long)]
    pub(crate) no_pass: bool,
}

/// Which batch to show.
#[derive(Debug, Args)]
pub(crate) struct FleetStatusArgs {
    /// Id of the batch, or its beginning [default: list the batches]
    #[arg(value_name = "BATCH")]
    pub(crate) batch: Option<OsString>,

    /// Show it every two seconds, until every task is decided
    #[arg(long)]
    pub(crate) watch: bool,
}

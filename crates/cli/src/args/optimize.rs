//! `larder optimize` and `larder gnode`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use larder_gnode::defragment::DefragmentOptions;
use larder_gnode::maintenance::{MaintenanceOptions, Task};
use larder_gnode::pass::{Listing, PassOptions};
use larder_gnode::reclaim::ReclaimOptions;
use larder_lifecycle::arrange::ArrangeOptions;

use super::Global;
use super::ignored::{IgnoredByPasses, named};
use crate::{sizes, time};

/// What a pass does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TaskName {
    /// Rewrite the newest snapshots where they use only a little of many containers, so that they
    /// restore fast; share duplicates between the newest snapshots of several series
    #[value(alias = "compact")]
    Defragment,
    /// Delete containers of forgotten snapshots, uploads of dead backups, and leases of ended jobs
    Collect,
    /// Retire containers that no newest snapshot uses and whose chunks are stored elsewhere too;
    /// older snapshots find these through the index. Includes collect
    Dedup,
    /// Do the same, and read all recipes to drop chunks that no snapshot needs. Without --task this
    /// runs after a quarter of the snapshots was forgotten. With --task it also rewrites the newest
    /// snapshots until they have at most 0.1 % of their data twice
    Exact,
    /// Arrange series in the layout lifecycle, so that chunks of the same snapshots are stored
    /// together. Without --task this arranges only series with new or forgotten snapshots. Includes
    /// collect
    Arrange,
}

/// How passes are made.
#[derive(Debug, Clone, Args)]
pub(crate) struct PassArgs {
    /// Run only these tasks [default: all]
    #[arg(long, value_name = "TASK", value_enum, value_delimiter = ',')]
    pub(crate) task: Vec<TaskName>,

    /// Start nothing new after this time (30s, 5m, 2h); the next pass continues. A step that has
    /// started may take longer
    #[arg(long, value_name = "TIME", value_parser = time::parse_limit)]
    pub(crate) max_duration: Option<Duration>,

    /// Copy at most this much data (bytes, or with K, M, G, T)
    #[arg(long, alias = "max-repack-size", value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) max_rewrite: Option<u64>,

    /// List all containers, to also find objects that an eventually consistent storage showed late
    #[arg(long, hide = true)]
    pub(crate) list_all: bool,

    /// Retire containers until at most this share of the data is unused (5 or 5%; 0 leaves none).
    /// This reads all recipes, has no budget, and also rewrites the newest snapshots. Data that
    /// both a newest and an older snapshot use stays. By default, a container is retired if a fifth
    /// of it is unused
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub(crate) max_unused: Option<f64>,

    /// Rewrite and retire data in cold storage too, if it is thawed. Containers that cannot be read
    /// always stay, and those that no snapshot needs are always deleted
    #[arg(long)]
    pub(crate) touch_cold: bool,

    /// Abort backups and restores without a heartbeat for this time, and delete their uploads. A
    /// backup that was only slow loses its work, and nothing else
    #[arg(long, value_name = "TIME", value_parser = time::parse_duration, default_value = "1d")]
    pub(crate) dead_after: Duration,

    /// Do not delete objects younger than this, by the storage's clock, if no pass has indexed them
    /// yet. These are uploads of interrupted backups, and objects that a listing does not show. 0
    /// frees such space at once
    #[arg(long, value_name = "TIME", env = "LARDER_MIN_AGE", value_parser = time::parse_limit, default_value = "1d")]
    pub(crate) min_age: Duration,

    /// Read at most this much (bytes, or with K, M, G, T) to verify snapshots that another process
    /// rewrote; until then, the data of their earlier form stays too
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes, default_value = "1G", hide = true)]
    pub(crate) prove_max: u64,

    /// Take the repository as it is, although this machine remembers a newer state
    #[arg(long)]
    pub(crate) accept_state: bool,

    /// Build only on an index that a pass on this machine published
    #[arg(long)]
    pub(crate) own_index_only: bool,

    /// Do not verify snapshots that another process rewrote: take the operator's signature for it
    #[arg(long, hide = true)]
    pub(crate) trust_signed: bool,

    /// See there
    #[command(flatten)]
    pub(crate) ignored: IgnoredByPasses,
}

/// Free space, and keep the newest snapshots fast to restore.
///
/// A pass deletes data that only forgotten snapshots or failed backups needed. It rewrites the
/// newest snapshot of a series where that makes restores faster, and removes duplicates between
/// series. It may run beside all other commands and on several machines, and may be interrupted at
/// any time. The credentials must allow it to delete objects.
#[derive(Debug, Args)]
pub(crate) struct OptimizeArgs {
    /// Change nothing; show the plan and its cost
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Change nothing; show the requests, bytes, money and time that the pass would take. Data
    /// that it would move is read
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) estimate: bool,

    /// Rewrite a snapshot only when that has become worth its cost, and say why. A pass after every
    /// backup then costs little. Between rewrites, the containers of a newest snapshot may take up
    /// to one and a half times its size
    #[arg(long, conflicts_with_all = ["task", "max_unused"])]
    pub(crate) auto: bool,

    /// Share the work of a pass with workers: this many processes, this one among them. The others
    /// are `larder fleet work` on any host, with a key that restores and operates
    ///
    /// They copy the chunks of containers that are retired, and of newest snapshots that are
    /// rewritten. For `--task exact` they also read recipes. No step waits for workers: this
    /// process does itself all that nobody takes. It verifies what they did, and deletes.
    #[arg(long, value_name = "N", conflicts_with_all = ["dry_run", "estimate"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) workers: Option<u32>,

    /// With --workers: take over from a worker that gives no sign of life for this long
    #[arg(long, value_name = "TIME", value_parser = time::parse_duration, default_value = "1m")]
    pub(crate) claim_timeout: Duration,

    /// With --workers: give away the chunks of at most this much data at a time
    #[arg(long, value_name = "SIZE", hide = true, value_parser = sizes::parse_bytes, default_value = "64M")]
    pub(crate) batch_size: u64,

    /// How the pass is made
    #[command(flatten)]
    pub(crate) pass: PassArgs,
}

/// Run maintenance continuously, as a daemon.
///
/// The daemon runs a pass of `larder optimize` when it starts, after snapshots were added or
/// forgotten, and at least every --every. A failed or unfinished pass is repeated within five
/// minutes. SIGTERM or Ctrl-C stops the daemon cleanly.
#[derive(Debug, Args)]
pub(crate) struct GnodeArgs {
    /// Run a pass at least this often
    #[arg(long, value_name = "TIME", value_parser = time::parse_duration, default_value = "1d")]
    pub(crate) every: Duration,

    /// Look for new or forgotten snapshots this often
    #[arg(long, value_name = "TIME", value_parser = time::parse_duration, default_value = "1m")]
    pub(crate) poll: Duration,

    /// Rewrite a snapshot only when that has become worth its cost, as `larder optimize --auto`
    /// does
    #[arg(long, conflicts_with_all = ["task", "max_unused"])]
    pub(crate) auto: bool,

    /// Serve metrics for Prometheus on HOST:PORT, at the path /metrics, to everybody who can
    /// connect
    #[arg(long, alias = "metrics-listen", value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,

    /// How passes are made
    #[command(flatten)]
    pub(crate) pass: PassArgs,
}

impl PassArgs {
    /// The names of the options that were given, for those who have no pass. Defaults, and what a
    /// variable says, do not count.
    pub(super) fn given(&self) -> Vec<String> {
        named(&[
            (!self.task.is_empty(), "--task"),
            (self.max_duration.is_some(), "--max-duration"),
            (self.max_rewrite.is_some(), "--max-rewrite"),
            (self.max_unused.is_some(), "--max-unused"),
            (self.touch_cold, "--touch-cold"),
            (self.accept_state, "--accept-state"),
            (self.own_index_only, "--own-index-only"),
        ])
    }

    /// The options of a round of maintenance.
    pub(crate) fn options(&self, global: &Global, dry_run: bool) -> MaintenanceOptions {
        let (defaults, compression) = (PassOptions::default(), global.compression());
        let pass = PassOptions {
            dry_run,
            dead_after: self.dead_after,
            min_age: self.min_age,
            prove_max: self.prove_max,
            accept_state: self.accept_state,
            own_index_only: self.own_index_only,
            trust_signed: self.trust_signed,
            memory: global.table_memory(),
            listing: if self.list_all { Listing::Whole } else { Listing::Auto },
            touch_cold: self.touch_cold,
            reclaim: Some(ReclaimOptions { compression, ..ReclaimOptions::default() }),
            arrange: Some(ArrangeOptions { compression, ..ArrangeOptions::default() }),
            threads: global.threads.unwrap_or(defaults.threads),
            ..defaults
        };
        MaintenanceOptions {
            tasks: self.task.iter().map(|task| Task::from(*task)).collect(),
            when_worth: false,
            max_duration: self.max_duration,
            max_rewrite: self.max_rewrite,
            max_unused: self.max_unused,
            defragment: DefragmentOptions { compression, ..DefragmentOptions::default() },
            pass,
        }
    }
}

impl From<TaskName> for Task {
    fn from(task: TaskName) -> Self {
        match task {
            TaskName::Defragment => Self::Defragment,
            TaskName::Collect => Self::Collect,
            TaskName::Dedup => Self::Dedup,
            TaskName::Exact => Self::Exact,
            TaskName::Arrange => Self::Arrange,
        }
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>();
    let percent = number.ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| format!("{text:?} is not a share such as 5% or 0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use larder_format::compress::Compression;

    /// Global options apply to maintenance as they do to backups.
    #[test]
    fn all_tasks_compress_and_compute_as_all_verbs_do() {
        let options = |args: &[&str]| {
            let cli = Cli::try_parse_from([&["larder"], args].concat()).expect("a command line");
            let Command::Optimize(OptimizeArgs { pass, dry_run, .. }) = cli.command else { panic!("another verb") };
            pass.options(&cli.global, dry_run)
        };
        let said = options(&["optimize", "--compression", "max", "--threads", "3", "--dry-run"]);
        assert!(said.pass.dry_run && said.pass.threads.get() == 3);
        let compressions = [
            said.defragment.compression,
            said.pass.reclaim.expect("wanted").compression,
            said.pass.arrange.expect("wanted").compression,
        ];
        assert_eq!(compressions, [Compression::Zstd(19); 3]);
        let (said, defaults) = (options(&["optimize"]), MaintenanceOptions::default());
        assert_eq!((said.pass.dry_run, said.pass.threads), (false, defaults.pass.threads));
        assert_eq!((said.defragment, said.tasks), (defaults.defragment, defaults.tasks));
        assert_eq!((said.pass.reclaim, said.pass.arrange), (defaults.pass.reclaim, defaults.pass.arrange));
        let limits = ["--max-rewrite", "10K", "--max-duration", "5s", "--max-unused", "5%"];
        let said = options(&[&["optimize", "--task", "exact,defragment"], &limits[..]].concat());
        assert_eq!((said.tasks, said.max_unused), ([Task::Defragment, Task::Exact].into(), Some(5.0)));
        assert_eq!((said.max_rewrite, said.max_duration), (Some(10 << 10), Some(Duration::from_secs(5))));
    }

    #[test]
    fn shares_are_read() {
        assert_eq!(
            ["5%", "0", " 2.5 % ", "100"].map(|text| parse_percent(text).ok()),
            [5.0, 0.0, 2.5, 100.0].map(Some)
        );
        for bad in ["", "%", "-1", "101%", "NaN", "5 MB"] {
            assert!(parse_percent(bad).is_err(), "{bad}");
        }
    }
}

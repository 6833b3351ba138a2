//! `larder optimize` and `larder gnode`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use larder_gnode::arranging::ArrangeOptions;
use larder_gnode::compaction::CompactionOptions;
use larder_gnode::giving_up::{Exact, GiveUpOptions, Unused};
use larder_gnode::pass::cost::Prices;
use larder_gnode::pass::{Listing, MEMORY_MIN, PassOptions};

use super::Global;
use crate::{sizes, time};

/// What a pass does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TaskName {
    /// Copy together what the newest snapshots use of containers that hold little of it, so that they are restored fast, and let
    /// them share what newest snapshots of other series have too
    Compact,
    /// Delete what no snapshot needs: containers of forgotten ones, uploads of dead backups, leases of jobs that are over
    Collect,
    /// Give up containers that no newest snapshot uses and whose chunks are stored elsewhere as well; older snapshots find them
    /// through the index. Collects too
    Dedup,
    /// The same, and read what all snapshots name, to give up also the chunks that none of them needs. Without --task this comes by
    /// itself when a quarter of the snapshots was forgotten since the last time
    Exact,
    /// Bring chunks of series in the layout lifecycle together that the same snapshots need, in all such series; without --task only
    /// in those that have new or forgotten snapshots. Collects too
    Arrange,
}

/// How passes are made.
#[derive(Debug, Clone, Args)]
pub(crate) struct PassArgs {
    /// Only these tasks; all if not given
    #[arg(long, value_name = "TASK", value_enum, value_delimiter = ',')]
    pub(crate) task: Vec<TaskName>,

    /// Begin nothing more after this time in all (30s, 5m, 2h); the next pass goes on. What has begun may take longer: looking what
    /// there is to do, laying one snapshot out anew, taking new snapshots into the index, publishing it
    #[arg(long, value_name = "TIME", value_parser = time::parse_limit)]
    pub(crate) max_duration: Option<Duration>,

    /// Copy no more than this much in all (bytes, or with K, M, G, T), to lay snapshots out anew, of each less than 20 % in any case,
    /// and to give containers up
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) max_rewrite: Option<u64>,

    /// Memory for the tables of the index (bytes, or with K, M, G, T), at least 8M; more makes passes over many snapshots faster
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, default_value = "48M")]
    pub(crate) memory: u64,

    /// List all containers, and not only those that may be unknown to the index: finds what the storage applied late, which
    /// otherwise waits until that is done anyway, now and then
    #[arg(long)]
    pub(crate) list_all: bool,

    /// Give containers up, the worst first, until no more than this share of all is of no use (5 or 5%; 0 leaves nothing). If not
    /// given, every container goes of which a fifth is of no use. What newest snapshots use stays in any case
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub(crate) max_unused: Option<f64>,

    /// Take backups and restores for dead that have not renewed their lease for this time, and collect what they uploaded. One that
    /// was only slow loses its work, and nothing else
    #[arg(long, value_name = "TIME", value_parser = time::parse_duration, default_value = "1d")]
    pub(crate) dead_after: Duration,

    /// Delete what no pass has indexed yet only when it is this old by the storage's clock: uploads of interrupted backups, and
    /// whatever a listing lacks or somebody hides for a while. 0 frees such space at once
    #[arg(long, value_name = "TIME", env = "LARDER_MIN_AGE", value_parser = time::parse_limit, default_value = "1d")]
    pub(crate) min_age: Duration,

    /// Prices for plans: a thousand creates, reads and deletes, a gigabyte and month of storage. Those of S3 Standard if not given
    #[arg(long, value_name = "LIST", env = "LARDER_PRICES")]
    pub(crate) prices: Option<Prices>,
}

/// Make room, and keep the newest snapshots fast to restore.
///
/// What the newest snapshot of a series uses of containers that hold little of it is copied together; what several newest snapshots
/// store each for itself is shared. What only forgotten snapshots needed is deleted, and what backups uploaded that never came to
/// their end. Chunks that are stored twice leave containers that only older snapshots use. May run beside everything else, on any
/// number of machines, and be interrupted at any moment. The store's credentials must allow to delete.
#[derive(Debug, Args)]
pub(crate) struct OptimizeArgs {
    /// Delete nothing, only say what would be done and what it costs
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// How the pass is made
    #[command(flatten)]
    pub(crate) pass: PassArgs,
}

/// Run passes of `larder optimize` for as long as this process runs.
///
/// A pass is made at first, when others added or forgot snapshots, and at least every --every; one that failed, or left something over,
/// is made again within five minutes. SIGTERM or Ctrl-C ends it cleanly.
#[derive(Debug, Args)]
pub(crate) struct GnodeArgs {
    /// Make a pass at least so often
    #[arg(long, value_name = "TIME", value_parser = time::parse_duration, default_value = "1d")]
    pub(crate) every: Duration,

    /// Look so often whether there are new or forgotten snapshots
    #[arg(long, value_name = "TIME", value_parser = time::parse_duration, default_value = "1m")]
    pub(crate) poll: Duration,

    /// How passes are made
    #[command(flatten)]
    pub(crate) pass: PassArgs,
}

impl PassArgs {
    /// Whether a task is to be done.
    pub(crate) fn wants(&self, task: TaskName) -> bool {
        self.task.is_empty() || self.task.contains(&task)
    }

    /// How a pass is made after so many bytes were copied for other tasks.
    pub(crate) fn options(&self, global: &Global, copied: u64) -> PassOptions {
        let defaults = PassOptions::default();
        PassOptions {
            dead_after: self.dead_after,
            min_age: self.min_age,
            max_duration: self.max_duration,
            memory: usize::try_from(self.memory).unwrap_or(usize::MAX),
            listing: if self.list_all { Listing::Whole } else { Listing::Auto },
            give_up: self.give_up(global, copied),
            arrange: self.arrange(global),
            threads: global.threads.unwrap_or(defaults.threads),
            ..defaults
        }
    }

    /// How newest snapshots are laid out anew.
    pub(crate) fn compaction(&self, global: &Global) -> CompactionOptions {
        CompactionOptions { compression: global.compression(), ..CompactionOptions::default() }
    }

    /// How series in the layout lifecycle are arranged, if they are.
    fn arrange(&self, global: &Global) -> Option<ArrangeOptions> {
        let (all, compression) = (self.task.contains(&TaskName::Arrange), global.compression());
        self.wants(TaskName::Arrange).then(|| ArrangeOptions { all, compression, ..ArrangeOptions::default() })
    }

    /// What a pass may give up after so many bytes were copied for other tasks.
    fn give_up(&self, global: &Global, copied: u64) -> Option<GiveUpOptions> {
        let exact = match (self.task.is_empty(), self.task.contains(&TaskName::Exact)) {
            (true, _) => Exact::WhenWorth,
            (false, true) => Exact::Always,
            (false, false) if self.task.contains(&TaskName::Dedup) => Exact::Never,
            (false, false) => return None,
        };
        let defaults = GiveUpOptions::default();
        Some(GiveUpOptions {
            unused: self.max_unused.map_or(defaults.unused, Unused::OfRepository),
            exact,
            max_rewrite: self.max_rewrite.map(|most| most.saturating_sub(copied)),
            compression: global.compression(),
        })
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>();
    let percent = number.ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| format!("{text:?} is not a share such as 5% or 0"))
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = sizes::parse_bytes(text)?;
    let least = MEMORY_MIN as u64;
    if bytes < least { Err(format!("a pass needs at least {}", sizes::show(least))) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use larder_format::compress::Compression;

    /// What a person says about all verbs holds for passes as for backups.
    #[test]
    fn passes_compress_and_compute_as_all_verbs_do() {
        let options = |args: &[&str]| {
            let cli = Cli::try_parse_from([&["larder"], args].concat()).expect("a command line");
            let Command::Optimize(OptimizeArgs { pass, .. }) = cli.command else { panic!("another verb") };
            (pass.options(&cli.global, 0), pass.compaction(&cli.global))
        };
        let (said, compaction) = options(&["optimize", "--compression", "max", "--threads", "3"]);
        let compressions = [
            compaction.compression,
            said.give_up.expect("wanted").compression,
            said.arrange.expect("wanted").compression,
        ];
        assert_eq!(compressions, [Compression::Zstd(19); 3]);
        assert_eq!(said.threads.get(), 3);
        let (said, compaction) = options(&["optimize"]);
        assert_eq!((said.threads, compaction), (PassOptions::default().threads, CompactionOptions::default()));
        assert_eq!(said.give_up.expect("wanted"), GiveUpOptions::default());
        let (said, _) = options(&["optimize", "--task", "exact", "--max-rewrite", "10K", "--compression", "off"]);
        let expected =
            GiveUpOptions { exact: Exact::Always, compression: Compression::Off, ..GiveUpOptions::default() };
        assert_eq!(said.give_up.expect("wanted"), GiveUpOptions { max_rewrite: Some(10 << 10), ..expected });
        assert_eq!(said.arrange, None);
    }

    #[test]
    fn memory_is_enough_or_refused() {
        assert_eq!(["8M", "1.5G", "8388608"].map(|text| parse_memory(text).is_ok()), [true; 3]);
        assert_eq!(["8388607", "8MB", "1M", "0", "much"].map(|text| parse_memory(text).is_ok()), [false; 5]);
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

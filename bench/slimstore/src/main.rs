//! The experiments of the SlimStore paper (ICDE 2021, section VII), rerun: one subcommand each.
//!
//! Every experiment prints a markdown page (what was done, tables, the paper's figures beside ours) and writes the same page and its
//! plots below a folder. CPU time is real, of one thread, on data in memory. Everything about the store is simulated and called so, except in the two
//! experiments that run the real programs.
//!
//! * [`sdb`] makes the data: database files like the paper's S-DB.
//! * [`backup`] cuts, names and finds duplicates: Larder's own code, an exact index, SiLo, Sparse Indexing.
//! * [`restore`] plays restores in virtual time under the caches that are compared.
//! * [`offline`] drives the product's own L-node and G-node over a store in memory.
//! * [`real`] runs the real programs side by side, and a real S3 server.
//! * [`larder_bench_common`] has what other benches use too: cutting and naming, the clock, pages and plots.
//! * [`experiments`] puts them together.

mod backup;
mod experiments;
mod offline;
mod real;
mod restore;
mod sdb;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use larder_chunking::Algorithm;

pub(crate) use larder_bench_common::{SEED, clock, plot, rng, table};

#[derive(Debug, Parser)]
#[command(about = "The experiments of the SlimStore paper, rerun", version)]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
    #[command(flatten)]
    settings: Settings,
}

/// What all experiments take.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Settings {
    /// Multiplies the size of all data
    #[arg(long, default_value_t = 1.0, global = true)]
    pub(crate) scale: f64,
    /// Seed of the data
    #[arg(long, default_value_t = 20_210_419, global = true)]
    pub(crate) seed: u64,
    /// Versions, where an experiment goes through many
    #[arg(long, default_value_t = 25, global = true)]
    pub(crate) versions: usize,
    /// Cutter of the experiments that use one for all
    #[arg(long, default_value = "fastcdc", global = true, value_parser = str::parse::<Algorithm>)]
    pub(crate) chunker: Algorithm,
    /// Mean chunk of these (KiB)
    #[arg(long, default_value_t = 4, global = true)]
    pub(crate) chunk_kib: u32,
    /// Where pages and plots go
    #[arg(long, default_value = "bench/slimstore/results", global = true)]
    pub(crate) out: PathBuf,
}

/// What the experiments on the real programs take.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Programs {
    /// The larder program, from a release build
    #[arg(long, default_value = "target/release/larder")]
    pub(crate) larder: PathBuf,
    /// The restic program
    #[arg(long, default_value = "restic")]
    pub(crate) restic: PathBuf,
    /// The MinIO server's program
    #[arg(long, default_value = "minio")]
    pub(crate) minio: PathBuf,
    /// Folder on the disk to be measured; some gigabytes are needed at scale 1
    #[arg(long, default_value = "/dev/shm")]
    pub(crate) work: PathBuf,
}

/// When newest versions are rewritten, and containers retired. What is not given is as the program has it.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Offline {
    /// A container is sparse when the version uses less than this share of it (percent)
    #[arg(long)]
    pub(crate) sparse_percent: Option<u8>,
    /// Of a version's bytes at most so many percent are copied
    #[arg(long)]
    pub(crate) budget_percent: Option<u8>,
    /// Containers are retired until of all of them together no more than this (percent) is of no use
    #[arg(long)]
    pub(crate) max_unused: Option<f64>,
    /// Every pass finds out what no version needs, not only when a quarter of the versions was forgotten
    #[arg(long)]
    pub(crate) exact: bool,
}

#[derive(Debug, Clone, Subcommand)]
enum Experiment {
    /// Table I: what the data is like, measured
    Data,
    /// Figure 5: skip chunking, by chunk size and by duplication
    Fig5,
    /// Figure 6: merging into superchunks
    Fig6,
    /// Figure 7: throughput and ratio by version beside SiLo and Sparse Indexing
    Fig7,
    /// Figure 8 and Table II: restores by cache, version and prefetching threads (simulated)
    Fig8,
    /// Figure 9: space and layout by version, with compaction, passes and collection; beside HAR and Capping
    Fig9(Offline),
    /// Figure 9 at 1, 3 and 16 % of change; HAR and Capping also with as many copied bytes as Larder
    Rates(Offline),
    /// Figure 10: jobs side by side beside restic, the real programs
    Fig10(Programs),
    /// Figure 8 on a real S3 server: restores by requests ahead, the real program (needs MinIO and curl)
    S3(Programs),
    /// What passes cost over an index of ten million chunks: memory and requests, the real program
    Pass(Programs),
    /// All that need no other program
    All,
}

fn main() -> anyhow::Result<()> {
    let Arguments { experiment, settings } = Arguments::parse();
    anyhow::ensure!(
        settings.scale > 0.0 && settings.versions > 1,
        "a scale above 0 and at least two versions are needed"
    );
    match experiment {
        Experiment::Data => experiments::data(&settings),
        Experiment::Fig5 => experiments::fig5(&settings),
        Experiment::Fig6 => experiments::fig6(&settings),
        Experiment::Fig7 => experiments::fig7(&settings),
        Experiment::Fig8 => experiments::fig8(&settings),
        Experiment::Fig9(offline) => experiments::fig9(&settings, offline),
        Experiment::Rates(offline) => experiments::rates(&settings, offline),
        Experiment::Fig10(programs) => experiments::fig10(&settings, &programs),
        Experiment::S3(programs) => experiments::s3(&settings, &programs),
        Experiment::Pass(programs) => experiments::pass(&settings, &programs),
        Experiment::All => {
            use experiments::{data, fig5, fig6, fig7, fig8};
            let fig9 = |settings: &Settings| experiments::fig9(settings, Offline::default());
            [data, fig5, fig6, fig7, fig8, fig9].into_iter().try_for_each(|experiment| experiment(&settings))
        }
    }
}

//! The experiments of the MFDedup paper (FAST 2021, section 5), rerun over one harness: a subcommand for each figure.
//!
//! * [`sets`] makes the data, version by version, from a seed.
//! * [`run`] cuts every version once and shows the same chunks to all [`schemes`]: exact deduplication, HAR, Capping, MFDedup and a model of
//!   Larder's `lifecycle` layout.
//! * [`disk`] turns what they read and write into the time of a slow disk.
//! * [`figures`] puts tables and plots onto pages.
//!
//! * [`real`] drives the product's own nodes on the same data, in both layouts; [`real_disk`] has them on a disk, and reads from it.
//!
//! Nothing is stored but by the real nodes: schemes hold names, sizes and places. CPU times are real, times of the disk are computed.

mod disk;
mod figures;
mod real;
mod real_disk;
mod run;
mod schemes;
mod sets;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use larder_chunking::Algorithm;

use schemes::{Bases, Lifecycle};
use sets::Set;

#[derive(Debug, Parser)]
#[command(about = "The experiments of the MFDedup paper, rerun", version)]
struct Arguments {
    #[command(subcommand)]
    figure: Figure,
    #[command(flatten)]
    settings: Settings,
}

/// What all figures take.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Settings {
    /// The data; without it all that is made from a seed
    #[arg(long, global = true)]
    pub(crate) set: Option<Set>,
    /// Multiplies the size of a version, which is about 270 MB
    #[arg(long, default_value_t = 1.0, global = true)]
    pub(crate) scale: f64,
    /// Seed of the data
    #[arg(long, default_value_t = 20_210_223, global = true)]
    pub(crate) seed: u64,
    /// Versions
    #[arg(long, default_value_t = 60, global = true)]
    pub(crate) versions: usize,
    /// Newest versions that are retained
    #[arg(long, default_value_t = 20, global = true)]
    pub(crate) keep: usize,
    /// Share of a container that may have left before it is arranged, in the model of Larder (percent)
    #[arg(long, default_value_t = 20.0, global = true)]
    pub(crate) holes: f64,
    /// Containers in the model of Larder (MiB)
    #[arg(long, default_value_t = 16, global = true)]
    pub(crate) container_mib: u64,
    /// Versions after which the model of Larder arranges
    #[arg(long, default_value_t = 1, global = true)]
    pub(crate) arrange_every: u32,
    /// Versions before in which the model of Larder looks for duplicates when too many were lost
    #[arg(long, default_value_t = 3, global = true)]
    pub(crate) bases: usize,
    /// Cutter
    #[arg(long, default_value = "fastcdc", global = true, value_parser = str::parse::<Algorithm>)]
    pub(crate) chunker: Algorithm,
    /// Mean chunk (KiB)
    #[arg(long, default_value_t = 8, global = true)]
    pub(crate) chunk_kib: u32,
    /// Memory of restores in the order of the stream: a cache of containers of this share of the version (percent)
    #[arg(long, default_value_t = 100.0, global = true)]
    pub(crate) cache_percent: f64,
    /// Folder of the real release tars
    #[arg(long, default_value = "bench/data/full/tars", global = true)]
    pub(crate) tars: PathBuf,
    /// Where the repositories of `disk` go
    #[arg(long, default_value = "target", global = true)]
    pub(crate) folder: PathBuf,
    /// Where pages and plots go
    #[arg(long, default_value = "bench/mfdedup/results", global = true)]
    pub(crate) out: PathBuf,
}

impl Settings {
    /// Memory for containers while a version of so many bytes is restored.
    fn memory(&self, bytes: u64) -> u64 {
        percent_of(bytes, self.cache_percent)
    }

    /// What the model of Larder goes by.
    pub(crate) fn rules(&self) -> Lifecycle {
        Lifecycle {
            holes: self.holes / 100.0,
            container_bytes: self.container_mib << 20,
            every: self.arrange_every.max(1),
            bases: if self.bases > 1 { Bases::WhenLost(self.bases) } else { Bases::One },
        }
    }

    /// Those of the command line when nothing is said.
    #[cfg(test)]
    fn for_tests() -> Self {
        Arguments::parse_from(["mfdedup", "fig2"]).settings
    }

    /// In words, for pages.
    fn words(&self) -> String {
        let Self {
            scale, seed, versions, keep, chunker, chunk_kib, holes, container_mib, arrange_every, bases, ..
        } = self;
        format!(
            "Scale {scale}, seed {seed}, at most {versions} versions of which {keep} are retained, {chunker} at {chunk_kib} KiB; rivals' \
             containers of 4 MiB, Larder's of {container_mib}, holes up to {holes} %, a pass after {arrange_every}, {bases} bases where one \
             loses too much"
        )
    }
}

fn percent_of(bytes: u64, percent: f64) -> u64 {
    (bytes as f64 * percent / 100.0) as u64
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub(crate) enum Figure {
    /// Figure 2: what the chunks of a version are: internal, adjacent and skip duplicates, and unique ones
    Fig2,
    /// Figure 7: actual deduplication ratio by version
    Fig7,
    /// Figure 8: backup throughput and memory of fingerprint tables
    Fig8,
    /// Figure 9: restore speed on the slow disk
    Fig9,
    /// Figure 10: seeks and extents of a restore
    Fig10,
    /// Figure 11: bytes read for a byte restored
    Fig11,
    /// Figure 12: arranging beside perfect collection
    Fig12,
    /// Figure 13: sizes of volumes and active categories
    Fig13,
    /// The model of Larder by the share of a container that may have left
    Holes,
    /// The real L-node and G-node, in both layouts, on the same data in memory
    Real,
    /// The newest version read from a real disk with caches dropped (takes a root's rights): where the real nodes put it, and HAR
    Disk,
    /// All of the above but the real nodes, a page for each set, and the targets over all sets
    All,
}

fn main() -> anyhow::Result<()> {
    let Arguments { figure, settings } = Arguments::parse();
    anyhow::ensure!(
        settings.scale > 0.0 && settings.versions > 1,
        "a scale above 0 and at least two versions are needed"
    );
    anyhow::ensure!((0.0..100.0).contains(&settings.holes), "holes are a share of 0 to less than 100 percent");
    figures::make(figure, &settings)
}

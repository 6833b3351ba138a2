//! `larder series`, `larder layout`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use larder_format::layout::Layout;

/// List series, and change their settings.
///
/// Snapshots of the same files form a series. A series has one of two layouts. `standard` shares
/// data between series and keeps the newest snapshots fast to restore. `lifecycle` stores data of
/// the same snapshots together: all snapshots restore sequentially, and forgetting is cheap, but
/// nothing is shared with other series.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct SeriesArgs {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: SeriesCommand,
}

/// What to do with series.
#[derive(Debug, Subcommand)]
pub(crate) enum SeriesCommand {
    /// List the series, and those that have settings
    List,
    /// Show one series and its settings
    Show(ShowSeriesArgs),
    /// Change the settings of a series
    ///
    /// The layout applies to a series without snapshots; an existing series keeps its layout.
    /// Settings of a series override those of --default, and `larder backup --layout` overrides
    /// both.
    Set(SetSeriesArgs),
    /// Convert a series to the other layout
    ///
    /// All data is read, verified and stored once more; passes delete the old containers. The
    /// command may be interrupted at any time: run it again to convert the remaining snapshots.
    ///
    /// A rebuilt index (`larder repair index`) leaves `lifecycle` series unarranged; convert them
    /// to `lifecycle` again.
    Convert(ConvertArgs),
}

/// What to convert.
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// Name of the series
    #[arg(value_name = "SERIES")]
    pub(crate) series: String,

    /// Domain of the series, if it is that of a machine with a key file of its own
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,

    /// New layout: standard, or lifecycle
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Layout,
}

/// One series, or what holds for those without settings of their own.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct WhichSeries {
    /// Name of the series
    #[arg(value_name = "SERIES")]
    pub(crate) series: Option<String>,

    /// Instead of a series: the settings of all series without their own
    #[arg(long)]
    pub(crate) default: bool,
}

/// What to show.
#[derive(Debug, Args)]
pub(crate) struct ShowSeriesArgs {
    /// Which
    #[command(flatten)]
    pub(crate) which: WhichSeries,

    /// Domain of the series, if it is that of a machine with a key file of its own
    #[arg(long, value_name = "NAME", conflicts_with = "default")]
    pub(crate) domain: Option<String>,
}

/// What to set.
#[derive(Debug, Args)]
pub(crate) struct SetSeriesArgs {
    /// Which
    #[command(flatten)]
    pub(crate) which: WhichSeries,

    /// Domain of the series, if it is that of a machine with a key file of its own
    #[arg(long, value_name = "NAME", conflicts_with = "default")]
    pub(crate) domain: Option<String>,

    /// Layout of new series: standard, or lifecycle
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Option<Layout>,

    /// Layout `lifecycle`: rewrite a container when more than this percentage of it is holes, which
    /// are bytes with another lifetime [default: 20]
    ///
    /// Fewer holes make restores read less, and passes move more. 0 is the layout of MFDedup's
    /// paper.
    #[arg(long, hide = true, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) holes: Option<u8>,

    /// Layout `lifecycle`: arrange containers after this number of snapshots [default: 1]
    ///
    /// Until then, passes only record unused bytes, so that forgetting frees what it says. Larger
    /// numbers move less data, and restores read more. `larder optimize --task arrange` arranges at
    /// once.
    #[arg(long, hide = true, value_name = "SNAPSHOTS", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) arrange_every: Option<u8>,
}

/// Show how a series in the layout `lifecycle` is stored.
///
/// A category has the same first and last snapshot; categories of the newest snapshot are active. A
/// volume has the same last snapshot and is deleted as a whole. FREE is the space that forgetting
/// one snapshot alone would free.
#[derive(Debug, Args)]
pub(crate) struct LayoutArgs {
    /// Name of the series
    #[arg(value_name = "SERIES")]
    pub(crate) series: String,

    /// Domain of the series, if it is that of a machine with a key file of its own
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,

    /// Draw a picture into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

//! `larder series`, `larder layout`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use larder_format::layout::Layout;

/// Show the series, and set how they are laid out.
///
/// A series is what snapshots of the same thing form. Each lies in containers in one of two layouts: `standard`, which shares what
/// several series store and keeps the newest snapshots fast to restore; and `lifecycle`, which keeps together what is needed by the same
/// snapshots: all of them restore sequentially, forgetting them costs nothing, and nothing is shared with other series.
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
    /// Show one series and what is set for it
    Show(WhichSeries),
    /// Set how a series is laid out
    ///
    /// The layout is that of a series that has no snapshot yet; one that has keeps its layout. What is set for a series holds before
    /// what --default sets, and `larder backup --layout` before both.
    Set(SetSeriesArgs),
    /// Lay the snapshots of a series out in the other layout
    ///
    /// Everything is read, verified and stored once more, each chunk once; what the old layout had goes with the next pass. May be
    /// interrupted at any moment: the snapshots that are done are done, and running it again goes on with the others.
    ///
    /// A series that is not arranged any more because the index was made anew (`larder repair index`) is converted to `lifecycle` like
    /// any other, although it has that layout.
    Convert(ConvertArgs),
}

/// What to convert.
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// Name of the series
    #[arg(value_name = "SERIES")]
    pub(crate) series: String,

    /// The layout that its snapshots are to have: standard, or lifecycle
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

    /// What holds for all series without settings of their own
    #[arg(long)]
    pub(crate) default: bool,
}

/// What to set.
#[derive(Debug, Args)]
pub(crate) struct SetSeriesArgs {
    /// Which
    #[command(flatten)]
    pub(crate) which: WhichSeries,

    /// How a series without snapshots will lie in containers: standard, or lifecycle
    #[arg(long, value_name = "LAYOUT", required_unless_present_any = ["holes", "arrange_every"])]
    pub(crate) layout: Option<Layout>,

    /// In the layout `lifecycle`, containers are written anew when more than so many percent of one are holes: bytes that its other
    /// bytes outlive, or are outlived by [20 if nothing is set]
    ///
    /// Fewer holes make restores read less, and passes move more. 0 is the layout of MFDedup's paper.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) holes: Option<u8>,

    /// In the layout `lifecycle`, containers are written anew after so many snapshots, in one go [1 if nothing is set]
    ///
    /// Until then passes only note what nobody uses any more, so that forgetting frees what it says. Rarer passes move less; in between,
    /// restores read what has left as well. `larder optimize --task arrange` does it at once.
    #[arg(long, value_name = "SNAPSHOTS", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) arrange_every: Option<u8>,
}

/// Show what lies where of a series in the layout `lifecycle`.
///
/// A category is what has the same first and the same last snapshot; those that the newest snapshot uses are active. A volume is what has
/// the same last snapshot: it goes as a whole. FREE is what forgetting a snapshot alone would free.
#[derive(Debug, Args)]
pub(crate) struct LayoutArgs {
    /// Name of the series
    #[arg(value_name = "SERIES")]
    pub(crate) series: String,

    /// Draw it into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

//! `larder run`, `larder config` and `larder schedule`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::time;

/// Run profiles of the configuration: back up, forget, optimize and check.
///
/// First, the profile is backed up to each of its repositories, and its policy is applied to its
/// own snapshots. Then `optimize` and `check` run on each repository that says how often. A failed
/// backup prevents the policy of this profile, and nothing else. All repositories are opened before
/// the first hook runs, so passwords are asked for at the beginning, and once. A second run of the
/// same profile ends at once with code 11.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Names of profiles
    #[arg(value_name = "PROFILE", conflicts_with_all = ["all", "due"])]
    pub(crate) profiles: Vec<String>,

    /// Run all profiles, in the order of the file
    #[arg(long, conflicts_with = "due")]
    pub(crate) all: bool,

    /// Run the profiles that have not run since their last scheduled time; for cron
    #[arg(long)]
    pub(crate) due: bool,

    /// If another run of the profile is not over, wait this long for its end
    #[arg(long, value_name = "DURATION", value_parser = time::parse_duration)]
    pub(crate) wait: Option<Duration>,

    /// Write metrics of all profiles to this file, in the text format of Prometheus [default: the
    /// file that the configuration names]
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,

    /// Change nothing and run no hooks; show what each step would do
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Check and show the configuration.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// What to do with it
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration for mistakes
    ///
    /// Every table, option and value is checked, and nothing is opened. Each mistake is shown with
    /// its file, line and column.
    Check,
    /// Show the options of profiles and where they come from
    ///
    /// Each option has the places of its values behind it. Secrets are in other files, so none is
    /// shown.
    Show(ShowConfigArgs),
    /// Write a JSON schema of the file, for editors
    Schema,
}

/// What to show.
#[derive(Debug, Args)]
pub(crate) struct ShowConfigArgs {
    /// Only these profiles
    #[arg(value_name = "PROFILE")]
    pub(crate) profiles: Vec<String>,
}

/// Run profiles at the times that the configuration says.
#[derive(Debug, Args)]
pub(crate) struct ScheduleArgs {
    /// What to do with the schedule
    #[command(subcommand)]
    pub(crate) command: ScheduleCommand,
}

/// What to do with the schedule.
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Install timers of systemd, or a line of cron
    ///
    /// With systemd, each profile gets a service and a timer. The service reads everything and
    /// writes only where a backup must. Runs that were missed are made up for. Without systemd,
    /// cron runs the profiles that are due. Root installs for the system, others for themselves.
    Install(InstallArgs),
    /// List what is installed
    List(WhereArgs),
    /// Show when profiles run next, when they ran last and how that ended
    Show(ShowScheduleArgs),
    /// Remove what was installed
    Remove(RemoveArgs),
}

/// Who starts runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StarterName {
    /// Timers of systemd
    Systemd,
    /// A crontab
    Cron,
}

/// Where a schedule is installed.
#[derive(Debug, Clone, Args)]
pub(crate) struct WhereArgs {
    /// Program that starts the runs [default: systemd if it runs here, else cron]
    #[arg(long, value_name = "PROGRAM", value_enum)]
    pub(crate) with: Option<StarterName>,

    /// Folder of the files, instead of that of systemd or cron; timers there are not enabled
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
}

/// What to install, and where.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// Names of profiles [default: all with a schedule]
    #[arg(value_name = "PROFILE")]
    pub(crate) profiles: Vec<String>,

    /// Print the files and install nothing
    #[arg(long)]
    pub(crate) print: bool,

    /// Where to install
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

/// What to show.
#[derive(Debug, Args)]
pub(crate) struct ShowScheduleArgs {
    /// Names of profiles [default: all]
    #[arg(value_name = "PROFILE")]
    pub(crate) profiles: Vec<String>,

    /// Where it is installed
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

/// What to remove.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Names of profiles [default: all]
    #[arg(value_name = "PROFILE")]
    pub(crate) profiles: Vec<String>,

    /// Where it is installed
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

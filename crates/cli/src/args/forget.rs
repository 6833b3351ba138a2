//! `larder forget`, `larder pin`, `larder unpin`, `larder tag`.

use clap::{ArgGroup, Args};
use larder_gnode::retention::{GroupBy, Keep, Period};

use super::{FilterArgs, PassArgs};
use crate::sizes;

/// Remove snapshots, by name or by a policy.
///
/// Without names, the --keep options form a policy, applied to each series: a snapshot stays if any
/// rule keeps it, and all others are forgotten. Periods follow the local time zone, and only
/// periods with a snapshot count. Forgotten snapshots disappear at once and for good. The next pass
/// of `larder optimize` frees their space, or --prune now. Pinned snapshots are never forgotten.
#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// Forget only these snapshots (latest, latest~2, or an id or its beginning)
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) ids: Vec<String>,

    /// Keep the newest N snapshots; every N may also be "unlimited"
    #[arg(short = 'l', long, value_name = "N", allow_negative_numbers = true, help_heading = "Policy")]
    pub(crate) keep_last: Option<Keep>,

    /// Keep the newest snapshot of each of the last N hours that have one
    #[arg(short = 'H', long, value_name = "N", allow_negative_numbers = true, help_heading = "Policy")]
    pub(crate) keep_hourly: Option<Keep>,

    /// Keep the newest snapshot of each of the last N days that have one
    #[arg(short = 'd', long, value_name = "N", allow_negative_numbers = true, help_heading = "Policy")]
    pub(crate) keep_daily: Option<Keep>,

    /// Keep the newest snapshot of each of the last N weeks that have one
    #[arg(short = 'w', long, value_name = "N", allow_negative_numbers = true, help_heading = "Policy")]
    pub(crate) keep_weekly: Option<Keep>,

    /// Keep the newest snapshot of each of the last N months that have one
    #[arg(short = 'm', long, value_name = "N", allow_negative_numbers = true, help_heading = "Policy")]
    pub(crate) keep_monthly: Option<Keep>,

    /// Keep the newest snapshot of each of the last N years that have one
    #[arg(short = 'y', long, value_name = "N", allow_negative_numbers = true, help_heading = "Policy")]
    pub(crate) keep_yearly: Option<Keep>,

    /// Keep all snapshots within this time before the newest snapshot: 1y5m7d2h
    #[arg(long, value_name = "PERIOD", help_heading = "Policy")]
    pub(crate) keep_within: Option<Period>,

    /// Keep the newest of each hour within this time before the newest snapshot
    #[arg(hide_short_help = true, long, value_name = "PERIOD", help_heading = "Policy")]
    pub(crate) keep_within_hourly: Option<Period>,

    /// Keep the newest of each day within this time
    #[arg(hide_short_help = true, long, value_name = "PERIOD", help_heading = "Policy")]
    pub(crate) keep_within_daily: Option<Period>,

    /// Keep the newest of each week within this time
    #[arg(hide_short_help = true, long, value_name = "PERIOD", help_heading = "Policy")]
    pub(crate) keep_within_weekly: Option<Period>,

    /// Keep the newest of each month within this time
    #[arg(hide_short_help = true, long, value_name = "PERIOD", help_heading = "Policy")]
    pub(crate) keep_within_monthly: Option<Period>,

    /// Keep the newest of each year within this time
    #[arg(hide_short_help = true, long, value_name = "PERIOD", help_heading = "Policy")]
    pub(crate) keep_within_yearly: Option<Period>,

    /// Keep snapshots with all of these tags; may be repeated for alternatives
    #[arg(long, value_name = "TAG[,TAG…]", help_heading = "Policy")]
    pub(crate) keep_tag: Vec<String>,

    /// Keep this snapshot; may be repeated
    #[arg(hide_short_help = true, long, value_name = "SNAPSHOT", help_heading = "Policy")]
    pub(crate) keep_id: Vec<String>,

    /// Keep the newest snapshots whose containers together take no more than this
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes, help_heading = "Policy")]
    pub(crate) keep_size: Option<u64>,

    /// Apply the policy to groups with the same series, host, paths, tags, or several of these; ''
    /// makes one group
    #[arg(short = 'g', long, value_name = "WHAT", default_value = "series", value_parser = parse_group_by)]
    pub(crate) group_by: GroupBy,

    /// Leave out the tags, the reasons and the sizes
    #[arg(short = 'c', long)]
    pub(crate) compact: bool,

    /// Change nothing; show what would be forgotten
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Change nothing; show the requests, bytes, money and time that the command would take, with
    /// --prune also those of the pass
    #[arg(hide_short_help = true, long, conflicts_with = "dry_run")]
    pub(crate) estimate: bool,

    /// Run `larder optimize` afterwards, to free the space
    #[arg(long)]
    pub(crate) prune: bool,

    /// How that pass is made
    #[command(flatten)]
    pub(crate) pass: PassArgs,

    /// Allow a policy to forget all snapshots of a group
    #[arg(hide_short_help = true, long)]
    pub(crate) unsafe_allow_remove_all: bool,

    /// Which snapshots the policy is about
    #[command(flatten)]
    pub(crate) filter: ForgetFilterArgs,
}

/// Which snapshots are meant. `-H` means hours here, as it does for restic.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ForgetFilterArgs {
    /// Only snapshots of this host; may be repeated
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    host: Vec<String>,

    /// Only snapshots with all of these tags; may be repeated for alternatives
    #[arg(long, value_name = "TAG[,TAG…]", help_heading = "Filters")]
    tag: Vec<String>,

    /// Only snapshots of this path; may be repeated
    #[arg(long, value_name = "PATH", help_heading = "Filters")]
    path: Vec<std::ffi::OsString>,

    /// Only snapshots of this series; may be repeated
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    series: Vec<String>,
}

impl From<&ForgetFilterArgs> for FilterArgs {
    fn from(args: &ForgetFilterArgs) -> Self {
        let ForgetFilterArgs { host, tag, path, series } = args.clone();
        Self { host, tag, path, series }
    }
}

/// Reads `series`, `host,paths`, or nothing.
pub(super) fn parse_group_by(text: &str) -> Result<GroupBy, String> {
    let mut by = GroupBy { series: false, host: false, paths: false, tags: false };
    for what in text.split(',').map(str::trim).filter(|what| !what.is_empty()) {
        match what {
            "series" => by.series = true,
            "host" | "hosts" => by.host = true,
            "path" | "paths" => by.paths = true,
            "tag" | "tags" => by.tags = true,
            other => return Err(format!("{other:?} is none of series, host, paths, tags")),
        }
    }
    Ok(by)
}

/// Protect snapshots from `forget`.
///
/// No policy forgets a pinned snapshot. `larder snapshots` shows which snapshots are pinned.
#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    /// Snapshots (latest, latest~2, or an id or its beginning)
    #[arg(value_name = "SNAPSHOT", required = true)]
    pub(crate) ids: Vec<String>,

    /// Record the reason, which is shown when somebody tries to forget the snapshot
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,

    /// Which snapshots `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Remove the protection of `pin`.
///
/// Policies and `larder forget` can forget these snapshots again.
#[derive(Debug, Args)]
pub(crate) struct UnpinArgs {
    /// Snapshots (latest, latest~2, or an id or its beginning)
    #[arg(value_name = "SNAPSHOT", required = true)]
    pub(crate) ids: Vec<String>,

    /// Which snapshots `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Change the tags of snapshots.
///
/// Without names, all snapshots are changed that the filters admit. Ids stay, and nothing is stored
/// again. Policies, filters and `larder mount` use the new tags at once.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true))]
pub(crate) struct TagArgs {
    /// Snapshots (latest, latest~2, or an id or its beginning) [default: all that the filters
    /// admit]
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) ids: Vec<String>,

    /// Replace all tags by these; '' removes all
    #[arg(long, value_name = "TAG[,TAG…]", group = "change", conflicts_with_all = ["add", "remove"])]
    pub(crate) set: Vec<String>,

    /// Add these tags
    #[arg(long, value_name = "TAG[,TAG…]", group = "change")]
    pub(crate) add: Vec<String>,

    /// Remove these tags
    #[arg(long, value_name = "TAG[,TAG…]", group = "change")]
    pub(crate) remove: Vec<String>,

    /// Change nothing; show the tags that the snapshots would get
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Which snapshots, or which `latest` may mean
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_as_restic_users_write_them() {
        let none = GroupBy { series: false, host: false, paths: false, tags: false };
        assert_eq!(parse_group_by("series"), Ok(GroupBy::default()));
        assert_eq!(parse_group_by("host,paths"), Ok(GroupBy { host: true, paths: true, ..none }));
        assert_eq!(parse_group_by("hosts, tag"), Ok(GroupBy { host: true, tags: true, ..none }));
        assert_eq!(parse_group_by(""), Ok(none));
        assert!(parse_group_by("color").is_err());
    }
}

//! The command line: one struct for the options of every verb, one per verb.
//!
//! Verbs and flags are those of restic where the meaning is the same; Borg's verbs work as hidden
//! aliases. The doc comments here are the help texts and the manual pages.

mod backup;
mod copy;
mod drill;
mod examples;
mod fetch;
mod fleet;
mod forget;
mod global;
mod habits;
mod history;
mod ignored;
mod image;
mod import;
mod init;
mod keys;
mod listen;
mod look;
mod mount;
mod optimize;
mod profiles;
mod repair;
mod restore;
mod rewrite;
mod series;
mod serve_block;
mod serve_sftp;
mod serve_webdav;
mod shown;
mod storage;
mod tools;
mod volume;
mod volume_change;
mod volume_repository;

use clap::{Args, CommandFactory, Parser, Subcommand};

pub(crate) use backup::BackupArgs;
pub(crate) use copy::CopyArgs;
pub(crate) use drill::DrillArgs;
pub(crate) use examples::examples;
pub(crate) use fetch::FetchArgs;
pub(crate) use fleet::{
    FleetArgs, FleetBatchArgs, FleetCommand, FleetNatsArgs, FleetPatienceArgs, FleetPlanArgs, FleetPlannerArgs,
    FleetQueue, FleetReadingArgs, FleetRetryArgs, FleetRunArgs, FleetStatusArgs, FleetWorkArgs,
};
pub(crate) use forget::{ForgetArgs, PinArgs, TagArgs, UnpinArgs};
pub(crate) use global::Global;
pub(crate) use habits::{ignored, in_one_word, spell_levels};
pub(crate) use history::HistoryArgs;
pub(crate) use image::ImageArgs;
#[cfg(feature = "import-restic")]
pub(crate) use import::ImportResticArgs;
pub(crate) use import::{ImportArgs, ImportBorgArgs, ImportOptions, ImportSource, ImportTarArgs};
pub(crate) use init::{ChunkerName, InitArgs};
pub(crate) use keys::{KeyArgs, KeyCommand, NewKey, NewPassword};
pub(crate) use listen::ListenArgs;
pub(crate) use look::{
    CheckArgs, DiffArgs, DumpArgs, DumpFormat, FilterArgs, FindArgs, GroupBy, LsArgs, LsSort, SnapshotsArgs, StatsArgs,
    StatsBy,
};
pub(crate) use mount::MountArgs;
pub(crate) use optimize::{GnodeArgs, OptimizeArgs, PassArgs};
pub(crate) use profiles::{
    ConfigArgs, ConfigCommand, InstallArgs, RemoveArgs, RunArgs, ScheduleArgs, ScheduleCommand, ShowConfigArgs,
    ShowScheduleArgs, StarterName, WhereArgs,
};
pub(crate) use repair::{ReadDataArgs, RepairArgs, RepairCommand, RepairDataArgs, RepairSnapshotsArgs};
pub(crate) use restore::{OverwriteName, RestoreArgs, ThawTierName};
pub(crate) use rewrite::RewriteArgs;
pub(crate) use series::{ConvertArgs, LayoutArgs, SeriesArgs, SeriesCommand, SetSeriesArgs, ShowSeriesArgs};
pub(crate) use serve_block::ServeBlockArgs;
pub(crate) use serve_sftp::ServeSftpArgs;
pub(crate) use serve_webdav::ServeWebdavArgs;
pub(crate) use shown::ShownArgs;
pub(crate) use storage::StorageArgs;
pub(crate) use tools::{CatArgs, CompletionsArgs, ManArgs, UnlockArgs, ValidateStoreArgs};
pub(crate) use volume::{
    VolumeArgs, VolumeCheckArgs, VolumeChunks, VolumeCommand, VolumeCreateArgs, VolumeInitArgs, VolumeListArgs,
    VolumeServeArgs, VolumeStatsArgs,
};
pub(crate) use volume_change::{
    VolumeCollectArgs, VolumeDeleteArgs, VolumeRenameArgs, VolumeResizeArgs, VolumeSnapshotArgs,
};
pub(crate) use volume_repository::{FromArgs, StorePasswordArgs, VolumeBackupArgs, VolumeHydrateArgs};

/// Back up files, streams and disk images into a bucket or a folder, deduplicated and encrypted.
///
/// Create a repository once with `larder init`. `larder backup PATH…` stores a snapshot, and
/// `larder restore latest --target DIR` restores it. Many backups may use one repository at the
/// same time; there are no locks.
#[derive(Debug, Parser)]
#[command(
    name = "larder",
    version,
    after_long_help = crate::exit::help(),
    after_help = "See `larder help VERB` for one verb, and `larder --help` for the global options and the exit codes.",
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    propagate_version = false,
    disable_help_subcommand = false
)]
pub(crate) struct Cli {
    /// What every verb accepts.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command line. `-h` of a verb is short: it shows only the verb's own options.
pub(crate) fn command() -> clap::Command {
    let larder = Cli::command().mut_subcommand("forget", of_prune_at_length);
    larder.mut_subcommands(|verb| {
        let (short, long) = (verb.get_after_help().cloned(), verb.get_after_long_help().cloned());
        let more =
            format!("See `larder help {}` for details, and `larder --help` for the global options.", verb.get_name());
        let examples = examples::of(&[verb.get_name()]);
        let codes = exit_codes(verb.get_name());
        let more_at_length = format!("{examples}{codes}See `larder --help` for the exit codes.");
        let verb = verb.after_help(short.unwrap_or_else(|| more.into()));
        let name = verb.get_name().to_owned();
        let verb = verb.after_long_help(long.unwrap_or_else(|| more_at_length.into()));
        verb.mut_subcommands(|below| {
            let path = [name.as_str(), below.get_name()];
            let (examples, codes) = (examples::of(&path), exit_codes(path[0]));
            below.after_long_help(format!("{examples}{codes}See `larder --help` for the exit codes."))
        })
    })
}

/// Options of the pass that `forget --prune` runs have their own heading, and only `--help` shows
/// them.
fn of_prune_at_length(forget: clap::Command) -> clap::Command {
    let pass = PassArgs::augment_args(clap::Command::new("pass"));
    pass.get_arguments().fold(forget, |forget, option| {
        forget.mut_arg(option.get_id(), |arg| arg.hide_short_help(true).help_heading("Options of --prune"))
    })
}

/// The exit codes of a verb that scripts should know, besides 0 and failures.
pub(crate) fn exit_codes(verb: &str) -> &'static str {
    match verb {
        "backup" => {
            "Exit code 3: the snapshot was saved, but some items could not be read.\n\
             Exit code 13: the snapshot was saved, but objects of earlier snapshots are missing or damaged.\n"
        }
        "run" => {
            "Exit code 3: all snapshots were saved, but some items could not be read.\n\
             Exit code 11: another run of the profile is not over.\n\
             If steps ended differently, the most serious code of them.\n"
        }
        "copy" => {
            "Exit code 3: some snapshots were not copied, or some copies not forgotten.\n\
             Exit code 12: a password is wrong, or a key may not do this.\n\
             Exit code 13: snapshots of the other repository are damaged or cannot be read.\n"
        }
        "import" => {
            "Exit code 3: some originals, or some of their files, could not be imported.\n\
             Exit code 13: --compare found a difference.\n"
        }
        "rewrite" => {
            "Exit code 3: some snapshots could not be rewritten, or not be forgotten.\n\
             Exit code 13: some snapshots are damaged, and were not rewritten.\n"
        }
        "drill" => {
            "Exit code 3: some items could not be restored here, or live files could not be read.\n\
             Exit code 13: restored items or unchanged live files differ from the snapshot, or it is damaged.\n\
             Exit code 16: the scratch folder has less space than the sample needs.\n"
        }
        "mount" => "Exit code 13: users of the mount met damage.\n",
        "serve-webdav" => "Exit code 13: clients met damage.\n",
        "serve-block" => {
            "Exit code 3: --hydrate could not copy everything.\n\
             Exit code 11: the lease was lost.\n\
             Exit code 13: clients met damage.\n"
        }
        "volume" => {
            "Exit code 11: another process has the store open, or clients use what is to be deleted.\n\
             Exit code 13: damage was found.\n\
             Exit code 16: the file system of the store is full.\n"
        }
        "optimize" => {
            "Exit code 3: some objects could not be deleted, or some snapshots could not be rewritten.\n\
             Exit code 13: damage was found.\n"
        }
        _ => "",
    }
}

/// The same command line, which ignores variables.
pub(crate) fn without_variables(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| arg.env(None::<&'static str>)).mut_subcommands(without_variables)
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a repository in a folder or a bucket
    #[command(aliases = ["repo-create", "rcreate"])]
    Init(InitArgs),
    /// Back up files, folders, a stream or a device as a new snapshot
    #[command(alias = "create")]
    Backup(Box<BackupArgs>),
    /// List the snapshots
    #[command(alias = "list")]
    Snapshots(SnapshotsArgs),
    /// List the files of a snapshot
    Ls(LsArgs),
    /// Find files by name, size or time in all snapshots
    Find(FindArgs),
    /// Show when a file or folder changed
    #[command(alias = "versions")]
    History(HistoryArgs),
    /// Compare two snapshots
    Diff(DiffArgs),
    /// Show the size of snapshots and of the repository
    Stats(StatsArgs),
    /// Restore a snapshot, or a part of it, into a folder
    #[command(alias = "extract")]
    Restore(Box<RestoreArgs>),
    /// Write a file, or a folder as an archive, to standard output
    Dump(DumpArgs),
    /// Show snapshots as a folder of this machine
    ///
    /// The folder is read-only. Snapshots appear by id, time, host, tag and series, and each folder
    /// of times has a link `latest`. Only the parts that programs read are fetched. Snapshots can
    /// be forgotten meanwhile: their data stays for the time of --keep after the last read, also
    /// if files are open. The command runs until SIGINT, SIGTERM or `umount DIR`. If it is killed,
    /// the folder is unmounted as well.
    Mount(Box<MountArgs>),
    /// Serve a file or disk image of a snapshot as a block device
    ///
    /// It is read-only unless --overlay is given. Clients read it over NBD: mount it, boot a
    /// virtual machine from it, or copy it. Only the parts that a client reads are fetched. The
    /// command serves until SIGINT or SIGTERM, and prints what to type on the client. Snapshots can
    /// be forgotten meanwhile: their data stays until the end.
    ServeBlock(ServeBlockArgs),
    /// Serve a folder for repositories, instead of the SFTP server of sshd
    ///
    /// It speaks SFTP on its standard streams, so that sshd can start it for a key. Clients create,
    /// read and list. They may also delete everything, unless --append-only is given. In no case do
    /// they change a stored file. The command needs no repository and no password.
    ServeSftp(ServeSftpArgs),
    /// Serve snapshots as folders over WebDAV
    ///
    /// It shows the same folders as `larder mount`, where FUSE is not available, or for other
    /// machines: to rclone, davfs2, file managers and browsers. Nothing can be changed. Links
    /// appear as the file or folder that they lead to, if it is in the same snapshot. Other links,
    /// devices, pipes and sockets are left out. Snapshots can be forgotten meanwhile: the data of
    /// those in use stays. The command runs until SIGINT or SIGTERM.
    ServeWebdav(Box<ServeWebdavArgs>),
    /// Manage and serve deduplicated block devices
    ///
    /// A volume store is a folder of this machine with any number of volumes. It is no repository:
    /// it needs no --repo. Equal data is stored once while it is written, compressed and encrypted.
    /// A server offers every volume and snapshot as an NBD export. It frees the space of data that
    /// was overwritten or discarded.
    ///
    /// While a store is served, verbs reach its server through the socket STORE/control, and need
    /// no password of the store. Otherwise they open the store themselves. `init`, `serve` and
    /// `check` always do.
    ///
    /// The password of a store comes from --store-password-file or LARDER_STORE_PASSWORD_FILE.
    /// Without them it comes from the same options, variables and prompt as that of a repository.
    Volume(VolumeArgs),
    /// Check the repository for errors
    Check(CheckArgs),
    /// Restore a sample of the newest snapshots, and compare it
    Drill(Box<DrillArgs>),
    /// Remove snapshots, by name or by a policy
    #[command(alias = "delete")]
    Forget(Box<ForgetArgs>),
    /// Protect snapshots from `forget`
    Pin(PinArgs),
    /// Remove the protection of `pin`
    Unpin(UnpinArgs),
    /// Change the tags of snapshots
    Tag(TagArgs),
    /// Copy snapshots from another repository into this one
    Copy(Box<CopyArgs>),
    /// Import the history of restic, Borg and tar
    Import(Box<ImportArgs>),
    /// Make snapshots without some files, or with another host, time or series
    Rewrite(Box<RewriteArgs>),
    /// List series, and change their settings
    Series(SeriesArgs),
    /// Show how a series in the layout `lifecycle` is stored
    Layout(LayoutArgs),
    /// Free space, and keep the newest snapshots fast to restore
    #[command(aliases = ["prune", "maintenance", "compact"])]
    Optimize(OptimizeArgs),
    /// Run maintenance continuously, as a daemon
    Gnode(GnodeArgs),
    /// Run profiles of the configuration: back up, forget, optimize, check and drill
    Run(RunArgs),
    /// Run profiles at the times that the configuration says
    Schedule(ScheduleArgs),
    /// Check and show the configuration
    Config(ConfigArgs),
    /// Back up many disk images as one batch
    Fleet(FleetArgs),
    /// Repair a damaged repository
    Repair(Box<RepairArgs>),
    /// Manage the passwords and the paper key of a repository
    Key(KeyArgs),
    /// Test whether a storage is safe for a repository
    ValidateStore(ValidateStoreArgs),
    /// Do nothing: there are no locks
    #[command(alias = "break-lock")]
    Unlock(UnlockArgs),
    /// Show an object of the repository as JSON, for support
    Cat(CatArgs),
    /// Write completions for a shell
    Completions(CompletionsArgs),
    /// Write the manual pages
    Man(ManArgs),
    /// Show the version of this program
    Version,
}

impl Command {
    /// What the whole process may take, in bytes.
    pub(crate) fn total_memory(&self) -> Option<u64> {
        match self {
            Self::Backup(args) => args.total_memory,
            Self::Fleet(args) => args.total_memory(),
            _ => None,
        }
    }

    /// Whether this process mounts snapshots.
    pub(crate) fn mounts(&self) -> bool {
        matches!(self, Self::Mount(_))
    }

    /// The verb, for logs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Init(_) => "init",
            Self::Backup(_) => "backup",
            Self::Snapshots(_) => "snapshots",
            Self::Ls(_) => "ls",
            Self::Find(_) => "find",
            Self::History(_) => "history",
            Self::Diff(_) => "diff",
            Self::Stats(_) => "stats",
            Self::Restore(_) => "restore",
            Self::Dump(_) => "dump",
            Self::Mount(_) => "mount",
            Self::ServeBlock(_) => "serve-block",
            Self::ServeSftp(_) => "serve-sftp",
            Self::ServeWebdav(_) => "serve-webdav",
            Self::Check(_) => "check",
            Self::Drill(_) => "drill",
            Self::Forget(_) => "forget",
            Self::Pin(_) => "pin",
            Self::Unpin(_) => "unpin",
            Self::Tag(_) => "tag",
            Self::Copy(_) => "copy",
            Self::Import(_) => "import",
            Self::Rewrite(_) => "rewrite",
            Self::Series(_) => "series",
            Self::Layout(_) => "layout",
            Self::Optimize(_) => "optimize",
            Self::Gnode(_) => "gnode",
            Self::Run(_) => "run",
            Self::Schedule(_) => "schedule",
            Self::Config(_) => "config",
            Self::Fleet(_) => "fleet",
            Self::Repair(_) => "repair",
            Self::Key(_) => "key",
            Self::ValidateStore(_) => "validate-store",
            Self::Unlock(_) => "unlock",
            Self::Cat(_) => "cat",
            Self::Completions(_) => "completions",
            Self::Man(_) => "man",
            Self::Volume(_) => "volume",
            Self::Version => "version",
        }
    }
}

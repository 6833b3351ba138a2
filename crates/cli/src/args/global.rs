//! The options that every verb accepts.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use larder_format::compress::Compression;
use larder_store::prices::Prices;

use super::ignored::IgnoredArgs;
use super::storage::StorageArgs;
use crate::{physical_memory, sizes, time};

/// What every verb accepts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Location of the repository: /path, s3://bucket/prefix, s3:https://host/bucket/prefix,
    /// azure://container/prefix, gs://bucket/prefix, sftp:user@host:/path; or the name of a
    /// repository in the configuration [env: LARDER_REPOSITORY]
    #[arg(short = 'r', long = "repo", value_name = "LOCATION", global = true, conflicts_with = "repository_file")]
    pub(crate) repo: Option<OsString>,

    /// Take options, sources and the repository from this profile of the configuration
    #[arg(short = 'P', long, value_name = "NAME", global = true)]
    pub(crate) profile: Option<String>,

    /// Configuration file [env: LARDER_CONFIG] [default: ~/.config/larder/larder.toml, else
    /// /etc/larder/larder.toml]
    #[arg(hide_short_help = true, long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,

    /// File that contains the location of the repository [env: LARDER_REPOSITORY_FILE]
    #[arg(hide_short_help = true, long, value_name = "FILE", global = true)]
    pub(crate) repository_file: Option<PathBuf>,

    /// Key file of this machine, from `larder key add --file`: opens the repository without a
    /// password [env: LARDER_KEY_FILE]
    #[arg(hide_short_help = true, long, value_name = "FILE", global = true, group = "password_source")]
    pub(crate) key_file: Option<PathBuf>,

    /// File that contains the password [env: LARDER_PASSWORD_FILE]
    #[arg(short = 'p', long, value_name = "FILE", global = true, group = "password_source")]
    pub(crate) password_file: Option<PathBuf>,

    /// Shell command that prints the password [env: LARDER_PASSWORD_COMMAND]
    #[arg(hide_short_help = true, long, value_name = "COMMAND", global = true, group = "password_source")]
    pub(crate) password_command: Option<OsString>,

    /// Open file descriptor to read the password from
    #[arg(hide_short_help = true, long, value_name = "N", global = true, group = "password_source")]
    pub(crate) password_fd: Option<u32>,

    /// Use an empty password: anyone who can read the repository's objects can read everything in
    /// it
    #[arg(hide_short_help = true, long, global = true, group = "password_source")]
    pub(crate) insecure_no_password: bool,

    /// Try the password on keys that cost much more memory or time than those of this program
    #[arg(hide_short_help = true, long, global = true)]
    pub(crate) costly_keys: bool,

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Print only errors, and what was asked for, such as lists
    #[arg(short = 'q', long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Print more: new, changed and restored files; twice: also unmodified files and log messages
    #[arg(short = 'v', long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Limit uploads to this rate per second, in KiB or with a unit such as 10MiB
    #[arg(hide_short_help = true, long, value_name = "RATE", global = true, env = "LARDER_LIMIT_UPLOAD", value_parser = sizes::parse_rate, hide_env_values = true)]
    pub(crate) limit_upload: Option<u64>,

    /// Limit downloads to this rate per second, in KiB or with a unit such as 10MiB
    #[arg(hide_short_help = true, long, value_name = "RATE", global = true, env = "LARDER_LIMIT_DOWNLOAD", value_parser = sizes::parse_rate, hide_env_values = true)]
    pub(crate) limit_download: Option<u64>,

    /// Folder for cached metadata of remote repositories; it can be deleted at any time
    #[arg(
        hide_short_help = true,
        long,
        value_name = "DIR",
        global = true,
        env = "LARDER_CACHE_DIR",
        hide_env_values = true
    )]
    pub(crate) cache_dir: Option<PathBuf>,

    /// Do not cache metadata
    #[arg(hide_short_help = true, long, global = true)]
    pub(crate) no_cache: bool,

    /// Folder for what this machine remembers of repositories: its witness, and its newest
    /// snapshots [default: /var/lib/larder for root, else ~/.local/state/larder]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "DIR",
        global = true,
        env = "LARDER_STATE",
        hide_env_values = true
    )]
    pub(crate) state: Option<PathBuf>,

    /// Remember nothing on this machine: backups without a key file read all files, and nobody
    /// notices when the storage shows an earlier state
    #[arg(hide_short_help = true, long, global = true)]
    pub(crate) no_state: bool,

    /// Repeat a failed request to the storage for this time (30s, 5m, 2h)
    #[arg(hide_short_help = true, long, value_name = "DURATION", global = true, env = "LARDER_TIMEOUT", value_parser = time::parse_duration, hide_env_values = true)]
    pub(crate) timeout: Option<Duration>,

    /// File in PEM with authorities to trust besides the system's
    #[arg(hide_short_help = true, long, value_name = "FILE", global = true)]
    pub(crate) cacert: Option<PathBuf>,

    /// File in PEM with a certificate and its key, for storages that ask for one (mutual TLS)
    #[arg(hide_short_help = true, long, value_name = "FILE", global = true)]
    pub(crate) tls_client_cert: Option<PathBuf>,

    /// Accept every certificate of the storage: anybody on the network can then take its place
    #[arg(hide_short_help = true, long, global = true)]
    pub(crate) insecure_tls: bool,

    /// Prices of the storage: per thousand creates, reads and deletes, per gigabyte and month, per
    /// gigabyte of traffic, and of thawing; those without a number are 0, but those of thawing are
    /// unknown [default: list prices of known clouds]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "LIST",
        global = true,
        env = "LARDER_PRICES",
        hide_env_values = true
    )]
    pub(crate) prices: Option<Prices>,

    /// Number of threads for computation
    #[arg(
        hide_short_help = true,
        long,
        value_name = "N",
        global = true,
        env = "LARDER_THREADS",
        hide_env_values = true,
        value_parser = parse_threads
    )]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Memory for caches, read-ahead, plans, duplicate detection and index tables, at least 16M
    /// [default: 96M; volume serve: a quarter of the machine's, at most 1G]
    #[arg(hide_short_help = true, long, alias = "memory-limit", value_name = "SIZE", global = true, env = "LARDER_MEMORY", value_parser = parse_memory, hide_env_values = true)]
    pub(crate) memory: Option<u64>,

    /// Bytes that the process shall take in all (`backup --total-memory`)
    #[arg(skip)]
    pub(crate) total_memory: Option<u64>,

    /// Compression of new data: auto, off, fastest, better, max, or zstd:N with N from -7 to 22
    #[arg(hide_short_help = true, long, value_name = "MODE", global = true, env = "LARDER_COMPRESSION", value_parser = parse_compression, hide_env_values = true, allow_hyphen_values = true)]
    pub(crate) compression: Option<Compression>,

    /// Write log messages to a file
    #[arg(hide_short_help = true, long, value_name = "FILE", global = true)]
    pub(crate) log_file: Option<PathBuf>,

    /// For scripts written for restic: there are no locks
    #[arg(long, global = true, hide = true)]
    pub(crate) no_lock: bool,

    /// For scripts written for restic: there are no locks to wait for
    #[arg(long, value_name = "DURATION", global = true, hide = true)]
    pub(crate) retry_lock: Option<String>,

    /// Whether this is the second repository of a command: its variables are `LARDER_FROM_…`.
    #[arg(skip)]
    pub(crate) is_source: bool,

    /// See there
    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    /// See there
    #[command(flatten)]
    pub(crate) ignored: IgnoredArgs,

    /// Log level: off, error, warn, info, debug, trace
    #[arg(
        hide_short_help = true,
        long,
        value_name = "LEVEL",
        global = true,
        env = "LARDER_LOG",
        hide_env_values = true
    )]
    pub(crate) log_level: Option<String>,
}

/// Memory of a command without `--memory`. With buffers and the program itself, every command stays
/// under 200 MB.
const MEMORY_DEFAULT: u64 = 96 << 20;

/// Every command is slow with less, and passes cannot merge tables with less than half of it.
const MEMORY_MIN: u64 = 16 << 20;

/// The most that a server of volumes takes without `--memory`.
const SERVER_MEMORY_MOST: u64 = 1 << 30;

/// Memory of a server of volumes on a machine with this much.
fn server_memory_of(machine: u64) -> u64 {
    (machine / 4).clamp(MEMORY_DEFAULT, SERVER_MEMORY_MOST)
}

impl Global {
    /// Bytes of memory for caches, plans and duplicate detection.
    pub(crate) fn memory(&self) -> usize {
        usize::try_from(self.memory.unwrap_or(MEMORY_DEFAULT)).unwrap_or(usize::MAX)
    }

    /// Bytes of memory of a server of volumes. Without `--memory` it is a quarter of the machine's,
    /// within bounds: it runs for long, and with little memory each of its commits waits for the
    /// disk.
    pub(crate) fn server_memory(&self) -> usize {
        let usual = || server_memory_of(physical_memory::bytes());
        usize::try_from(self.memory.unwrap_or_else(usual)).unwrap_or(usize::MAX)
    }

    /// The part of it that a pass uses for the tables of the index, in bytes.
    pub(crate) fn table_memory(&self) -> usize {
        self.memory() / 2
    }

    /// How new data is compressed.
    pub(crate) fn compression(&self) -> Compression {
        self.compression.unwrap_or(Compression::DEFAULT)
    }
}

/// Reads a number of threads.
fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    text.trim().parse().map_err(|_| "use a whole number, at least 1".to_owned())
}

/// Reads an amount of memory that suffices for every command.
fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = sizes::parse_bytes(text)?;
    if bytes < MEMORY_MIN { Err(format!("at least {} are needed", sizes::show(MEMORY_MIN))) } else { Ok(bytes) }
}

/// Reads a compression mode.
fn parse_compression(text: &str) -> Result<Compression, String> {
    let level = match text.to_ascii_lowercase().as_str() {
        "off" => return Ok(Compression::Off),
        "auto" => return Ok(Compression::DEFAULT),
        "fastest" => -3,
        "better" => 7,
        "max" => 19,
        other => match other.strip_prefix("zstd:").map(str::parse::<i32>) {
            Some(Ok(level)) if (-7..=22).contains(&level) => level,
            _ => return Err("use auto, off, fastest, better, max, or zstd:N with N from -7 to 22".to_owned()),
        },
    };
    Ok(Compression::Zstd(level))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_gnode::pass::{MEMORY_DEFAULT as TABLES_DEFAULT, MEMORY_MIN as TABLES_MIN};

    #[test]
    fn memory_is_enough_or_refused() {
        assert_eq!(["16M", "1.5G", "16777216"].map(|text| parse_memory(text).is_ok()), [true; 3]);
        assert_eq!(["16777215", "16MB", "1M", "0", "much"].map(|text| parse_memory(text).is_ok()), [false; 5]);
    }

    #[test]
    fn servers_take_a_quarter_of_the_machine_within_bounds() {
        let of = [64 << 20, 1 << 30, 2 << 30, 4 << 30, 1 << 40].map(server_memory_of);
        assert_eq!(of, [96 << 20, 256 << 20, 512 << 20, 1 << 30, 1 << 30]);
    }

    /// Half of the memory is the default and the minimum of passes.
    #[test]
    fn tables_have_half_of_the_memory() {
        assert_eq!((MEMORY_DEFAULT / 2, MEMORY_MIN / 2), (TABLES_DEFAULT as u64, TABLES_MIN as u64));
    }

    #[test]
    fn compression_modes() {
        assert_eq!(parse_compression("auto"), Ok(Compression::DEFAULT));
        assert_eq!(parse_compression("OFF"), Ok(Compression::Off));
        assert_eq!(parse_compression("zstd:-7"), Ok(Compression::Zstd(-7)));
        for bad in ["", "zstd", "zstd:", "zstd:23", "zstd:x", "lz4"] {
            assert!(parse_compression(bad).is_err(), "{bad}");
        }
    }
}

//! What every verb accepts.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use larder_format::compress::Compression;

use crate::{sizes, time};

/// What every verb accepts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Location of the repository: /path, s3://bucket/prefix, s3:https://host/bucket/prefix, azure://container/prefix,
    /// gs://bucket/prefix [env: LARDER_REPOSITORY]
    #[arg(short = 'r', long = "repo", value_name = "LOCATION", global = true, conflicts_with = "repository_file")]
    pub(crate) repo: Option<OsString>,

    /// File that contains the location of the repository [env: LARDER_REPOSITORY_FILE]
    #[arg(hide_short_help = true, long, value_name = "FILE", global = true)]
    pub(crate) repository_file: Option<PathBuf>,

    /// File that contains the password [env: LARDER_PASSWORD_FILE]
    #[arg(short = 'p', long, value_name = "FILE", global = true, group = "password_source")]
    pub(crate) password_file: Option<PathBuf>,

    /// Shell command that prints the password [env: LARDER_PASSWORD_COMMAND]
    #[arg(hide_short_help = true, long, value_name = "COMMAND", global = true, group = "password_source")]
    pub(crate) password_command: Option<OsString>,

    /// Open file descriptor to read the password from
    #[arg(hide_short_help = true, long, value_name = "N", global = true, group = "password_source")]
    pub(crate) password_fd: Option<u32>,

    /// Use an empty password: anyone who can read the repository's objects can read everything in it
    #[arg(hide_short_help = true, long, global = true, group = "password_source")]
    pub(crate) insecure_no_password: bool,

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Print only errors and results
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

    /// Repeat a failed request to the storage for this time (30s, 5m, 2h)
    #[arg(hide_short_help = true, long, value_name = "DURATION", global = true, env = "LARDER_TIMEOUT", value_parser = time::parse_duration, hide_env_values = true)]
    pub(crate) timeout: Option<Duration>,

    /// Number of threads for computation
    #[arg(
        hide_short_help = true,
        long,
        value_name = "N",
        global = true,
        env = "LARDER_THREADS",
        hide_env_values = true
    )]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Memory for caches, read-ahead, plans and duplicate detection
    #[arg(hide_short_help = true, long, value_name = "SIZE", global = true, env = "LARDER_MEMORY_LIMIT", value_parser = sizes::parse_bytes, hide_env_values = true)]
    pub(crate) memory_limit: Option<u64>,

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

impl Global {
    /// How new data is compressed.
    pub(crate) fn compression(&self) -> Compression {
        self.compression.unwrap_or(Compression::DEFAULT)
    }
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

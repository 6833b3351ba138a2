//! `larder serve-webdav`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::ShownArgs;

/// How %T is written for clients of all systems: some have no colons in names.
const TIMES: &str = "2006-01-02_15-04-05";

/// Serve snapshots as folders over WebDAV.
#[derive(Debug, Args)]
pub(crate) struct ServeWebdavArgs {
    /// Address to listen on
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) addr: OsString,

    /// Ask clients for this user and a password
    #[arg(long, value_name = "NAME", requires = "user_password_file")]
    pub(crate) user: Option<String>,

    /// File that contains the password of --user
    #[arg(long, value_name = "FILE", requires = "user")]
    pub(crate) user_password_file: Option<PathBuf>,

    /// Use TLS with the certificate in this file (PEM), and the others of its chain behind it
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// File with the key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Serve other machines without --user or without TLS
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Serve metrics for Prometheus on HOST:PORT, at the path /metrics, to everybody who can
    /// connect
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,

    /// How %T is written, as a layout of Go or with the elements of strftime
    #[arg(long, value_name = "LAYOUT", default_value = TIMES, conflicts_with = "snapshot")]
    pub(crate) time_template: String,

    /// What is shown
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
}

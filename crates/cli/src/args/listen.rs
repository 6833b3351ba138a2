//! Where a verb that serves block devices listens.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Where to listen.
#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// Address to listen on: unix:/PATH or HOST:PORT [default: a socket in a new private folder]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) nbd: Option<OsString>,

    /// Require TLS on HOST:PORT, and client certificates of the same authority. The folder has
    /// ca-cert.pem, server-cert.pem and server-key.pem
    #[arg(long, value_name = "DIR")]
    pub(crate) tls: Option<PathBuf>,

    /// Allow HOST:PORT without TLS; only for addresses of this machine
    #[arg(long, conflicts_with = "tls")]
    pub(crate) insecure_tcp: bool,
}

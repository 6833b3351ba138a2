//! An SFTP server for one folder whose files are created whole and never changed.
//!
//! An SSH server starts it for each session, in the place of its own SFTP server. It speaks on
//! standard streams, and can do less than that one on purpose:
//!
//! | a client may                                     | always | append-only          |
//! |--------------------------------------------------|--------|----------------------|
//! | read and list                                    | yes    | yes                  |
//! | make folders                                     | yes    | yes                  |
//! | write a new file in a folder `.staging-sftp`          | yes    | yes                  |
//! | link a file of this session from there, once     | yes    | yes                  |
//! | delete in `.staging-sftp`                             | yes    | yes                  |
//! | delete elsewhere, and remove empty folders       | yes    | no                   |
//! | open a file that exists for writing, rename, set attributes, make links to elsewhere | no | no |
//!
//! Invariants
//! * No path leaves the folder, and no link below it is followed ([`larder_beneath`]).
//! * A file that has its final name is never written again. A session links only files that it has
//!   staged itself, by their descriptor, and writes no more to them then. So no open handle, and no
//!   other file of the same staging name, can change an object.
//! * A link and a new folder are on disk when the answer is sent: the folder is synced. SFTP servers
//!   in general do not promise that.
//!
//! The crate knows nothing of repositories: the rules are those of a store of immutable objects.

mod folder;
mod handler;
mod packets;
mod refusal;
mod standard;

use std::io;
use std::path::Path;

use tokio::io::{AsyncRead, AsyncWrite};

use self::folder::Folder;
use self::handler::Session;
pub use self::standard::StandardStreams;

/// The folder of files under way.
pub const STAGING: &str = ".staging-sftp";

/// What clients may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rules {
    /// Clients delete nothing.
    pub append_only: bool,
    /// Bytes that all files and folders together may have, each at least 4 KiB; `None`: no limit.
    /// They are counted when a session first writes, and at the limit. So sessions at the same time
    /// may exceed it, each by what was left.
    pub max_size: Option<u64>,
}

/// Serves one session until its stream ends, and says whether a client spoke SFTP. The folder is made
/// if it is missing.
///
/// # Errors
/// The folder cannot be made or opened.
pub async fn serve<S>(root: &Path, rules: Rules, stream: S) -> io::Result<bool>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let folder = Folder::open(root)?;
    let (session, mut greetings) = Session::new(folder, rules);
    let config = russh_sftp::server::Config { max_client_packet_len: packets::PACKET_MAX };
    russh_sftp::server::run_with_config(stream, session, config).await;
    let was_greeted = greetings.recv().await.is_some();
    // The session is dropped with its stream.
    while greetings.recv().await.is_some() {}
    Ok(was_greeted)
}

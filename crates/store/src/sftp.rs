//! The transport for a folder of an SFTP server.
//!
//! One file per object, at the path of its name, in the same form as a local folder has: the owner
//! of the server can move a repository between the two. The SSH client of the system connects
//! ([`command`]), so its keys, agents, jump hosts and known hosts hold.
//!
//! Invariants
//! * A name shows either no file or a complete one. Files are written under a staging name, synced,
//!   and then linked ([`create`]). A link never replaces a file; a rename could, so none is used.
//! * A server without hard links is refused at the first create. Without them, two jobs could
//!   overwrite one another.
//! * Something wrong in an object's place does not end a listing ([`list`]): it is named, and the
//!   others follow.
//! * Bodies on their way take at most [`connection::PIECES`] pieces of memory for each connection,
//!   beside the bytes of the requests themselves.
//!
//! Limits: SFTP cannot sync a folder. The server's file system must make a name durable when the
//! linked file is synced, as ext4, XFS and Btrfs do. Deletions become durable by its journal.
//! OpenSSH leaves out of a listing what it cannot examine, and the rest of a folder after an I/O
//! error. The protocol does not show it.

mod command;
mod connection;
mod create;
mod failure;
mod list;
mod read;

use std::collections::HashSet;
use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;

use async_trait::async_trait;
use larder_format::names;
use parking_lot::Mutex;
use rustix::fs::FileType;
use tokio::task::JoinSet;

use self::connection::{Connection, Pool};
use self::failure::Failure;
use crate::error::StoreError;
use crate::error_kind::StoreErrorKind;
use crate::in_its_place::InItsPlace;
use crate::layer::{Call, Created, Layer, Listing, Reply, Request};
use crate::location::SftpLocation;
use crate::options::SftpOptions;

pub(crate) use self::command::CommandProblem;

/// A repository in a folder of an SFTP server.
#[derive(Debug, Clone)]
pub(crate) struct Sftp {
    pool: Arc<Pool>,
    /// The repository's folder, as the server knows it.
    base: Arc<str>,
    /// Tells the staging files of this process from those of others.
    seed: u64,
    /// First-level folders that were seen to be folders.
    sound: Arc<Mutex<HashSet<String>>>,
}

impl Sftp {
    /// Takes the folder as it is, or as it will be. Connects with the first request.
    pub(crate) fn new(location: &SftpLocation, options: &SftpOptions, seed: u64) -> Result<Self, CommandProblem> {
        let command = command::of(location, options)?;
        let pool = Pool::new(command, location.host.clone(), options.connections.get());
        Ok(Self { pool: Arc::new(pool), base: location.path.as_str().into(), seed, sound: Arc::default() })
    }

    /// The path of an object, or of a folder (empty: the repository's own).
    fn path(&self, name: &str) -> String {
        match &*self.base {
            base if name.is_empty() => base.to_owned(),
            "/" => format!("/{name}"),
            base => format!("{base}/{name}"),
        }
    }

    async fn answer(&self, call: &Call, connection: &Connection) -> Result<Reply, Failure> {
        match &call.request {
            Request::Create(bytes) => {
                create::create(self, connection, call, bytes).await?;
                Ok(Reply::Created(Created { all_answered: true }))
            }
            Request::Read(range) => read::read(self, connection, call, range).await,
            Request::Size => read::size(self, connection, &call.name).await.map(Reply::Size),
            Request::Delete => self.delete(connection, &call.name).await.map(|()| Reply::Deleted),
        }
    }

    /// Deletes the object. A missing one counts as deleted.
    async fn delete(&self, connection: &Connection, name: &str) -> Result<(), Failure> {
        match connection.ask(connection.session.remove(self.path(name))).await {
            Ok(_) => {}
            Err(failure) if failure.is_not_found() => {
                // Behind a link to nowhere it may still be there.
                let failure = self.found_missing(connection, name, failure).await;
                return if failure.is_not_found() { Ok(()) } else { Err(failure) };
            }
            Err(failure) => {
                // Servers say no more than "Failure" of a folder in an object's place, and of what
                // is below a file.
                match read::kind_of(self, connection, name).await {
                    Ok(None) => return Ok(()),
                    Ok(Some(kind)) if kind.is_dir() && !names::is_object(name) => return Ok(()),
                    _ => return Err(failure),
                }
            }
        }
        // A folder that has become empty goes too; one that has not is refused by the server.
        let mut folder = name;
        while let Some((above, _)) = folder.rsplit_once('/') {
            if connection.ask(connection.session.rmdir(self.path(above))).await.is_err() {
                break;
            }
            folder = above;
        }
        Ok(())
    }
}

#[async_trait]
impl Layer for Sftp {
    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        // A task that is stopped when this is dropped. A request that only its caller polls could
        // keep pieces and handles of a connection while the caller waits for another request.
        let mut task = JoinSet::new();
        let (sftp, call) = (self.clone(), call.clone());
        task.spawn(async move { sftp.request(&call).await });
        match task.join_next().await {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime ends.
                Err(_) => pending().await,
            },
            None => pending().await,
        }
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Listing {
        list::list(self.clone(), folder, after)
    }

    fn lists_in_order(&self) -> bool {
        true
    }
}

impl Sftp {
    async fn request(&self, call: &Call) -> Result<Reply, StoreError> {
        let (op, name) = (call.request.op(), &*call.name);
        let connection = self.pool.connection().await.map_err(|failure| failure.of(op, name))?;
        let busy = connection.busy();
        let answer = match self.answer(call, &connection).await {
            Err(failure) if failure.is_not_found() => Err(self.found_missing(&connection, name, failure).await),
            answer => answer,
        };
        busy.done();
        answer.map_err(|failure| failure.of(op, name))
    }

    /// What the file system says after a write of `bytes` that failed without a reason.
    async fn disk_problem(&self, connection: &Connection, bytes: u64) -> Option<StoreErrorKind> {
        /// The flag of a file system that is mounted read-only.
        const READ_ONLY: u64 = 1;
        /// With less space than this a write may have failed for want of it. Others write too.
        const NEARLY_FULL: u64 = 16 << 20;
        let system = connection.ask(connection.session.statvfs(self.path(""))).await.ok()?;
        if system.flags & READ_ONLY != 0 {
            return Some(StoreErrorKind::ReadOnly);
        }
        let free = system.blocks_avail.saturating_mul(system.fragment_size);
        let has_inodes = system.inodes == 0 || system.inodes_avail > 0;
        (free < NEARLY_FULL.max(bytes) || !has_inodes).then_some(StoreErrorKind::Full)
    }

    /// Why something is missing. Servers say "No such file" too of what is behind a link that leads
    /// nowhere, or behind a file in the place of a first-level folder. There it must not look
    /// absent: a disk is not mounted.
    async fn found_missing(&self, connection: &Connection, name: &str, missing: Failure) -> Failure {
        let Some(first) = name.split('/').next().filter(|first| !first.is_empty()) else { return missing };
        if !name.contains('/') && names::is_object(name) || self.sound.lock().contains(first) {
            return missing;
        }
        let link = match read::kind_of(self, connection, first).await {
            Ok(None) => return missing,
            Ok(Some(kind)) => kind == FileType::Symlink,
            Err(failure) => return failure,
        };
        match connection.ask(connection.session.stat(self.path(first))).await {
            Ok(found) if read::kind(&found.attrs).is_dir() => {
                self.sound.lock().insert(first.to_owned());
                missing
            }
            Err(failure) if !failure.is_not_found() => failure,
            _ if link => InItsPlace::BROKEN_LINK.into(),
            _ => InItsPlace::NO_FOLDER.into(),
        }
    }
}

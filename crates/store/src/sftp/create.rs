//! Creating the files of objects, so that one creator wins and a crash leaves no half file.
//!
//! | step of a create              | a crash after it leaves                                        |
//! |-------------------------------|----------------------------------------------------------------|
//! | staging file opened, written  | a part of a file under a staging name, which no listing shows  |
//! | file synced                   | the same, complete                                             |
//! | linked to its name            | the complete object, or nothing: the name is not on disk yet   |
//! | file synced again             | the complete object: the name is on disk with the file         |
//! | staging name removed          | the complete object                                            |
//!
//! A link to a name that is taken fails, whatever is there, and the protocol says only "Failure".
//! So the name is looked up after that.
//!
//! Staging files that are older than a day by the server's clock are removed by the first create.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{TryStreamExt, stream};
use russh_sftp::protocol::{FileAttributes, OpenFlags};

use super::connection::{Connection, PIECES, SMALL};
use super::read::{kind, kind_of};
use super::{Failure, Sftp};
use crate::error::StoreOp;
use crate::error_kind::StoreErrorKind;
use crate::layer::Call;

/// The folder of staging files. No object name has a segment that begins with a dot.
/// It is not that of local writers, who remove what nobody has locked.
const STAGING: &str = ".staging-sftp";

/// How often a folder may vanish under a create before that fails. Deleting the last object of a
/// folder removes it.
const FOLDER_RETRIES: u64 = 50;

/// Seconds after which a staging file was surely left by a crash.
const STALE: u64 = 24 * 3600;

/// A failure with the state of the server's disk, if that is the reason.
async fn explained(sftp: &Sftp, connection: &Connection, failure: Failure, bytes: u64, name: &str) -> Failure {
    let problem = match failure.is_vague() && !failure.says_full() {
        true => sftp.disk_problem(connection, bytes).await,
        false => failure.says_full().then_some(StoreErrorKind::Full),
    };
    match problem {
        Some(kind) => failure.disk(kind, name),
        None => failure,
    }
}

/// Creates the object, durably, unless its name is taken.
pub(super) async fn create(sftp: &Sftp, connection: &Connection, call: &Call, bytes: &Bytes) -> Result<(), Failure> {
    let name = &*call.name;
    if !connection.has("hardlink@openssh.com") {
        return Err(Failure::no_links(StoreOp::Create, name));
    }
    let _permit = connection.handles.acquire().await;
    // Only to save the upload of a file that cannot be linked; the link decides. A probe wants to
    // see that it does.
    let look = async { if call.is_probe { Ok(None) } else { kind_of(sftp, connection, name).await } };
    let (taken, staged) = futures::join!(look, Staged::open(sftp, connection));
    let staged = match staged {
        Ok(staged) => staged,
        Err(failure) => return Err(explained(sftp, connection, failure, bytes.len() as u64, name).await),
    };
    let mut created = match taken {
        Ok(Some(_)) => Err(Failure::taken(name)),
        _ => staged.publish(sftp, connection, call, bytes).await,
    };
    // Before the file under way is removed, which would make room.
    if let Err(failure) = created {
        created = Err(explained(sftp, connection, failure, bytes.len() as u64, name).await);
    }
    // Both names lead to one file, so this never removes the object.
    let closed = connection.ask(connection.session.close(staged.handle)).await;
    let removed = connection.ask(connection.session.remove(staged.path)).await;
    if let (Ok(()), Err(failure)) = (&created, closed.and(removed)) {
        // The object is there. A staging file that stays is removed in a day.
        tracing::warn!(?failure, "could not remove a staging file");
    }
    // An earlier attempt may have linked it and not synced it.
    if call.attempt > 0 && matches!(&created, Err(Failure::Store(error)) if error.kind == StoreErrorKind::AlreadyExists)
    {
        sync_existing(sftp, connection, name).await?;
    }
    created
}

/// Waits until the server's disk has an object that is there, with its name.
async fn sync_existing(sftp: &Sftp, connection: &Connection, name: &str) -> Result<(), Failure> {
    if !connection.has("fsync@openssh.com") {
        return Ok(());
    }
    let open = connection.session.open(sftp.path(name), OpenFlags::READ, FileAttributes::empty());
    let handle = connection.ask_handle(open).await?;
    let synced = connection.ask(connection.session.fsync(handle.clone())).await;
    connection.ask(connection.session.close(handle)).await?;
    synced.map(drop)
}

/// A file under a staging name.
struct Staged {
    path: String,
    handle: String,
}

impl Staged {
    async fn open(sftp: &Sftp, connection: &Connection) -> Result<Self, Failure> {
        let path = sftp.path(&format!("{STAGING}/{}", staging_name(sftp.seed)));
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUDE;
        let open = || connection.session.open(path.clone(), flags, FileAttributes::empty());
        let handle = match connection.ask_handle(open()).await {
            Err(failure) if failure.is_not_found() => {
                make_way(sftp, connection, STAGING).await?;
                connection.ask_handle(open()).await?
            }
            opened => opened?,
        };
        let staged = Self { path, handle };
        let is_first = !sftp.pool.has_swept.swap(true, Ordering::Relaxed);
        if is_first && let Err(failure) = sweep(sftp, connection, &staged.handle).await {
            tracing::warn!(?failure, "could not look for old staging files");
        }
        Ok(staged)
    }

    /// Writes the file and links it to its name.
    async fn publish(&self, sftp: &Sftp, connection: &Connection, call: &Call, bytes: &Bytes) -> Result<(), Failure> {
        let name = &*call.name;
        self.write(connection, call, bytes).await?;
        self.sync(connection).await?;
        for retry in 0..FOLDER_RETRIES {
            let link = connection.session.hardlink(self.path.clone(), sftp.path(name));
            match connection.ask(link).await {
                Ok(_) => return self.sync(connection).await,
                Err(failure) if failure.is_not_found() => {
                    let staged = connection.ask(connection.session.lstat(self.path.clone())).await;
                    if staged.is_err_and(|failure| failure.is_not_found()) {
                        return Err(Failure::staged_is_gone());
                    }
                    tokio::time::sleep(Duration::from_millis(10 * retry.min(20))).await;
                    let (folder, _) = name.rsplit_once('/').unwrap_or_default();
                    make_way(sftp, connection, folder).await?;
                }
                Err(failure) if failure.is_of_connection() => return Err(failure),
                Err(failure) => {
                    return Err(match kind_of(sftp, connection, name).await? {
                        Some(_) => Failure::taken(name),
                        // File systems without links say so.
                        None if failure.is_denied() => Failure::no_links(StoreOp::Create, name),
                        None => failure,
                    });
                }
            }
        }
        Err(Failure::Refused(rustix::io::Errno::NOENT.into()))
    }

    async fn write(&self, connection: &Connection, call: &Call, bytes: &Bytes) -> Result<(), Failure> {
        let piece = usize::try_from(connection.write_piece).unwrap_or(1 << 10);
        let total = bytes.len();
        let pieces = bytes.chunks(piece).enumerate();
        let pieces = pieces.map(|(number, bytes)| Ok::<_, Failure>((number * piece, bytes)));
        stream::iter(pieces)
            .try_for_each_concurrent(PIECES, async |(offset, bytes)| {
                // A small object does not wait behind large ones.
                let _permit = match total as u64 > SMALL {
                    true => connection.pieces.acquire().await.ok(),
                    false => None,
                };
                let write = connection.session.write(self.handle.clone(), offset as u64, bytes.to_vec());
                connection.ask(write).await?;
                if let Some(watch) = &call.watch {
                    watch.tick(bytes.len());
                }
                Ok(())
            })
            .await
    }

    /// Waits until the server's disk has the file, where the server can say so.
    async fn sync(&self, connection: &Connection) -> Result<(), Failure> {
        if connection.has("fsync@openssh.com") {
            connection.ask(connection.session.fsync(self.handle.clone())).await?;
        }
        Ok(())
    }
}

/// A name that no other writer has: those of other machines and runs have other seeds. A server
/// refuses to open a second file of one name.
fn staging_name(seed: u64) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{seed:016x}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Makes a folder of the repository (empty: its own), and those above it where they are missing.
async fn make_way(sftp: &Sftp, connection: &Connection, folder: &str) -> Result<(), Failure> {
    // From the innermost to the first that exists, then back.
    let path = sftp.path(folder);
    let ends = path.match_indices('/').map(|(end, _)| end).filter(|end| *end > 0);
    let ways: Vec<&str> = ends.map(|end| &path[..end]).chain([path.as_str()]).collect();
    let mut first = ways.len();
    while first > 0 {
        first -= 1;
        match make(sftp, connection, ways[first]).await {
            Err(failure) if failure.is_not_found() && first > 0 => {}
            made => {
                made?;
                break;
            }
        }
    }
    for way in &ways[first + 1..] {
        make(sftp, connection, way).await?;
    }
    Ok(())
}

/// Makes one folder unless it exists.
async fn make(sftp: &Sftp, connection: &Connection, path: &str) -> Result<(), Failure> {
    // The repository's own folder is for its owner; the server's umask holds for the others.
    let mode = if path == sftp.path("") { 0o700 } else { 0o777 };
    let attributes = FileAttributes { permissions: Some(mode), ..FileAttributes::empty() };
    let Err(failure) = connection.ask(connection.session.mkdir(path, attributes)).await else { return Ok(()) };
    if failure.is_not_found() || failure.is_of_connection() {
        return Err(failure);
    }
    // Servers say "Failure" or "Permission denied" of what exists.
    match connection.ask(connection.session.stat(path)).await {
        Ok(found) if kind(&found.attrs).is_dir() => Ok(()),
        _ => Err(failure),
    }
}

/// Removes staging files that crashed writers left. `own` is the handle of one just made, which
/// tells the server's time.
async fn sweep(sftp: &Sftp, connection: &Connection, own: &str) -> Result<(), Failure> {
    let now = connection.ask(connection.session.fstat(own)).await?.attrs.mtime;
    let Some(now) = now else { return Ok(()) };
    for file in super::list::entries(connection, sftp.path(STAGING)).await? {
        let is_stale = file.attrs.mtime.is_some_and(|mtime| u64::from(mtime) + STALE < u64::from(now));
        if is_stale && kind(&file.attrs).is_file() {
            let path = sftp.path(&format!("{STAGING}/{}", file.filename));
            match connection.ask(connection.session.remove(path)).await {
                Err(failure) if !failure.is_not_found() => return Err(failure),
                _ => {}
            }
        }
    }
    Ok(())
}

//! Listing a folder of the server in the byte order of object names.
//!
//! Replies have names, sizes and times, so nothing is looked up. Folders beside one another are
//! read ahead, because each costs three round trips. What is yielded for odd entries is in the
//! table of the local folder's listing.

use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use russh_sftp::protocol::File;
use rustix::fs::FileType;

use super::connection::Connection;
use super::read::kind;
use super::{Failure, Sftp};
use crate::entries::{self, DEPTH_MAX, Entry};
use crate::error::{StoreError, StoreOp};
use crate::in_its_place::InItsPlace;
use crate::layer::{Listed, Listing};
use crate::name;

/// Folders read ahead at each depth.
const AHEAD: usize = 8;

/// Lists the objects below `folder` after `after`.
pub(super) fn list(sftp: Sftp, folder: &str, after: Option<&str>) -> Listing {
    let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let walk = Walk { sftp, after: after.map(str::to_owned) };
    async move {
        let step = walk.enter(start, 0).await;
        walk.unfold(step, 0)
    }
    .flatten_stream()
    .boxed()
}

#[derive(Debug, Clone)]
struct Walk {
    sftp: Sftp,
    after: Option<String>,
}

/// What an entry of a folder came to.
enum Step {
    Object(Listed),
    Folder(Vec<(Entry, Listed)>),
    Failed(StoreError),
}

impl Walk {
    /// The objects of a step and of all folders below it.
    fn unfold(self, step: Step, depth: usize) -> BoxStream<'static, Result<Listed, StoreError>> {
        let entries = match step {
            Step::Object(listed) => return stream::iter([Ok(listed)]).boxed(),
            Step::Failed(error) => return stream::iter([Err(error)]).boxed(),
            Step::Folder(entries) => entries,
        };
        let walk = self.clone();
        stream::iter(entries)
            .map(move |(entry, listed)| {
                let walk = walk.clone();
                async move {
                    match entry {
                        Entry { name, wrong: Some(wrong) } => {
                            Step::Failed(StoreError::from_io(StoreOp::List, &name, InItsPlace::new(wrong).into()))
                        }
                        Entry { name, .. } if name.ends_with('/') => walk.enter(name, depth + 1).await,
                        Entry { .. } => Step::Object(listed),
                    }
                }
            })
            .buffered(AHEAD)
            .flat_map(move |step| self.clone().unfold(step, depth + 1))
            .boxed()
    }

    /// Reads a folder, named relative to the root and with a slash at its end.
    async fn enter(&self, name: String, depth: usize) -> Step {
        let path = name.strip_suffix('/').unwrap_or(&name);
        match self.read(path).await {
            Ok(files) => Step::Folder(self.sorted(&name, files, depth)),
            // Removed since it was seen, or never made: there is nothing in it.
            Err(failure) if failure.is_not_found() => Step::Folder(Vec::new()),
            // A listing of what is no folder: an object in its place has nothing below it.
            Err(Failure::Vague(_)) if !path.is_empty() && !entries::may_hold_objects(path) => Step::Folder(Vec::new()),
            Err(failure) => Step::Failed(failure.of(StoreOp::List, &name)),
        }
    }

    async fn read(&self, path: &str) -> Result<Vec<File>, Failure> {
        let connection = self.sftp.pool.connection().await?;
        let busy = connection.busy();
        let files = match entries(&connection, self.sftp.path(path)).await {
            Err(failure) if failure.is_not_found() => Err(self.sftp.found_missing(&connection, path, failure).await),
            files => files,
        };
        busy.done();
        files
    }

    fn sorted(&self, above: &str, files: Vec<File>, depth: usize) -> Vec<(Entry, Listed)> {
        let entry = |file: File| {
            let name = name::is_valid_segment(&file.filename).then(|| format!("{above}{}", file.filename))?;
            let modified_ms = file.attrs.mtime.map_or(0, |seconds| u64::from(seconds) * 1000);
            let listed = Listed { name: name.clone(), size: file.attrs.size.unwrap_or(0), modified_ms };
            let entry = Entry::of(name, kind(&file.attrs), depth < DEPTH_MAX)?;
            // A link in the place of a folder is entered as one only at the first level.
            let is_deep_link = kind(&file.attrs) == FileType::Symlink && !above.is_empty();
            Some((if is_deep_link { Entry { wrong: Some(FileType::Symlink), ..entry } } else { entry }, listed))
        };
        let mut entries: Vec<_> = files.into_iter().filter_map(entry).collect();
        entries::put_in_order(&mut entries, |(entry, _)| &entry.name, self.after.as_deref());
        entries
    }
}

/// All entries of a folder.
pub(super) async fn entries(connection: &Connection, path: String) -> Result<Vec<File>, Failure> {
    let _permit = connection.handles.acquire().await;
    let handle = connection.ask_handle(connection.session.opendir(path)).await?;
    let mut found = Vec::new();
    let read = loop {
        match connection.ask_on(connection.session.readdir(handle.clone())).await {
            Ok(Some(names)) if !names.files.is_empty() => found.extend(names.files),
            Ok(_) => break Ok(found),
            Err(failure) => break Err(failure),
        }
    };
    let closed = connection.ask(connection.session.close(handle)).await;
    match (read, closed) {
        (Ok(_), Err(failure)) if failure.is_of_connection() => Err(failure),
        (read, _) => read,
    }
}

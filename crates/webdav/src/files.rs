//! The tree as the file system that `dav-server` knows. Each request has one of its own.
//!
//! Calls of the tree block, so they have threads of their own. The library passes over errors in
//! the middle of a list and of a file: they are noted in the [`Outcome`], which ends the answer.

use std::collections::VecDeque;
use std::future::ready;
use std::io::SeekFrom;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Buf, Bytes};
use dav_server::davpath::DavPath;
use dav_server::fs::{
    DavDirEntry, DavFile, DavFileSystem, DavMetaData, FsError, FsFuture, FsResult, FsStream, OpenOptions, ReadDirMeta,
};
use futures::stream::{StreamExt, unfold};
use http::StatusCode;
use larder_tree::{Attributes, Kind, OpenFile, Tree, TreeError};
use parking_lot::Mutex;

use crate::left_out::Counted;
use crate::outcome::Outcome;
use crate::time::system_time;
use crate::walk::{Place, Trail, find};

/// Bytes that one read of a file returns, at most.
pub(crate) const READ: usize = 128 << 10;
/// Names of a folder that are looked at together.
const PAGE: usize = 256;

/// See the module header.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) tree: Arc<Tree>,
    pub(crate) left_out: Arc<Counted>,
    pub(crate) outcome: Arc<Outcome>,
    /// The path that was looked up last: requests ask for the same one several times.
    found: Arc<Mutex<Option<Found>>>,
}

/// A path, and where it leads.
type Found = (Vec<u8>, Place);

impl Files {
    pub(crate) fn new(tree: Arc<Tree>, left_out: Arc<Counted>) -> Self {
        Self { tree, left_out, outcome: Arc::default(), found: Arc::default() }
    }

    /// Does something on a thread that may wait.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tree) -> Result<T, TreeError> + Send + 'static,
    ) -> FsResult<T> {
        let tree = self.tree.clone();
        match tokio::task::spawn_blocking(move || work(&tree)).await {
            Ok(result) => result.map_err(|error| self.outcome.note(&error)),
            Err(error) => {
                if error.is_panic() {
                    tracing::error!("a bug: a request for a file panicked");
                }
                Err(self.outcome.fail(StatusCode::INTERNAL_SERVER_ERROR))
            }
        }
    }

    /// Where a path leads.
    pub(crate) async fn place(&self, path: &DavPath) -> FsResult<Place> {
        let path = path.as_bytes().to_vec();
        let known = self.found.lock().as_ref().filter(|(other, _)| *other == path).map(|(_, place)| place.clone());
        if let Some(place) = known {
            return Ok(place);
        }
        let names = path.clone();
        let found =
            self.call(move |tree| find(tree, names.split(|byte| *byte == b'/').filter(|name| !name.is_empty())));
        let place = found.await?;
        *self.found.lock() = Some((path, place.clone()));
        Ok(place)
    }

    /// The files and folders that a folder shows. A failure ends the list, and is noted.
    pub(crate) fn list(self, trail: Trail) -> impl futures::Stream<Item = Shown> + Send {
        let listing = Listing { files: self, trail, cookie: 0, ready: VecDeque::new(), is_over: false };
        unfold(listing, |mut listing| async move {
            while listing.ready.is_empty() && !listing.is_over {
                listing.read_on().await;
            }
            Some((listing.ready.pop_front()?, listing))
        })
    }
}

/// A list that is being read.
struct Listing {
    files: Files,
    trail: Trail,
    cookie: u64,
    ready: VecDeque<Shown>,
    is_over: bool,
}

impl Listing {
    async fn read_on(&mut self) {
        let (trail, cookie, left_out) = (self.trail.clone(), self.cookie, self.files.left_out.clone());
        match self.files.call(move |tree| page(tree, &trail, cookie, &left_out)).await {
            Ok((shown, next)) => {
                self.ready = shown.into();
                match next {
                    Some(cookie) => self.cookie = cookie,
                    None => self.is_over = true,
                }
            }
            Err(error) => {
                self.is_over = true;
                // The folder went while it was listed. The answer is not whole either.
                if error == FsError::NotFound {
                    self.files.outcome.fail(StatusCode::SERVICE_UNAVAILABLE);
                }
            }
        }
    }
}

/// The next names of a folder, and the cookie behind them. `None`: there are no more.
fn page(tree: &Tree, trail: &Trail, cookie: u64, left_out: &Counted) -> Result<(Vec<Shown>, Option<u64>), TreeError> {
    let (mut listed, mut next) = (Vec::new(), None);
    tree.list(trail.folder(), cookie, false, &mut |entry| {
        if listed.len() == PAGE {
            return true;
        }
        listed.push((entry.name.to_vec(), entry.attributes));
        next = Some(entry.cookie);
        false
    })?;
    let next = next.filter(|_| listed.len() == PAGE);
    let mut shown = Vec::new();
    for (name, attributes) in listed {
        if name == b"." || name == b".." {
            continue;
        }
        match trail.enter(tree, attributes)? {
            Some(place) => shown.push(Shown { name, facts: Facts::of(tree, place.attributes) }),
            None => left_out.add(tree, &attributes),
        }
    }
    Ok((shown, next))
}

/// A name in a folder.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) name: Vec<u8>,
    pub(crate) facts: Facts,
}

/// Facts of a file or folder, as the library asks for them.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    attributes: Attributes,
    etag: Option<String>,
}

impl Facts {
    pub(crate) fn of(tree: &Tree, attributes: Attributes) -> Self {
        // Contents of a place in a snapshot never change, and no two places share a tag.
        let within = tree.within(attributes.inode).filter(|_| attributes.kind == Kind::File);
        Self { attributes, etag: within.map(|within| format!("{}-{:x}", within.snapshot, within.number)) }
    }

    fn is_folder(&self) -> bool {
        self.attributes.kind == Kind::Folder
    }
}

impl DavMetaData for Facts {
    fn len(&self) -> u64 {
        if self.is_folder() { 0 } else { self.attributes.size }
    }

    fn modified(&self) -> FsResult<SystemTime> {
        Ok(system_time(self.attributes.mtime))
    }

    fn is_dir(&self) -> bool {
        self.is_folder()
    }

    fn etag(&self) -> Option<String> {
        self.etag.clone()
    }

    fn is_file(&self) -> bool {
        self.attributes.kind == Kind::File
    }

    fn executable(&self) -> FsResult<bool> {
        if self.is_folder() { Err(FsError::NotImplemented) } else { Ok(self.attributes.mode & 0o111 != 0) }
    }
}

impl DavDirEntry for Shown {
    fn name(&self) -> Vec<u8> {
        self.name.clone()
    }

    fn metadata(&'_ self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        Box::pin(ready(Ok(Box::new(self.facts.clone()) as Box<dyn DavMetaData>)))
    }
}

/// A file that is read in order. It is closed when this is dropped.
#[derive(Debug)]
struct Opened {
    files: Files,
    file: Arc<OpenFile>,
    facts: Facts,
    at: u64,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.files.tree.close(&self.file);
    }
}

impl DavFile for Opened {
    fn metadata(&'_ mut self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        Box::pin(ready(Ok(Box::new(self.facts.clone()) as Box<dyn DavMetaData>)))
    }

    fn write_buf(&'_ mut self, _: Box<dyn Buf + Send>) -> FsFuture<'_, ()> {
        Box::pin(ready(Err(FsError::Forbidden)))
    }

    fn write_bytes(&'_ mut self, _: Bytes) -> FsFuture<'_, ()> {
        Box::pin(ready(Err(FsError::Forbidden)))
    }

    fn read_bytes(&'_ mut self, count: usize) -> FsFuture<'_, Bytes> {
        Box::pin(async move {
            let (file, at) = (self.file.clone(), self.at);
            let bytes = self.files.call(move |tree| tree.read(&file, at, count.min(READ) as u32)).await?;
            // The library would send zeros.
            if bytes.is_empty() {
                return Err(self.files.outcome.fail(StatusCode::INTERNAL_SERVER_ERROR));
            }
            self.at += bytes.len() as u64;
            Ok(bytes.into())
        })
    }

    fn seek(&'_ mut self, to: SeekFrom) -> FsFuture<'_, u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.facts.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.unwrap_or(self.at);
        Box::pin(ready(at.ok_or(FsError::GeneralFailure)))
    }

    fn flush(&'_ mut self) -> FsFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }
}

impl DavFileSystem for Files {
    fn open<'a>(&'a self, path: &'a DavPath, options: OpenOptions) -> FsFuture<'a, Box<dyn DavFile>> {
        Box::pin(async move {
            if options.write || options.append || options.truncate || options.create || options.create_new {
                return Err(FsError::Forbidden);
            }
            let attributes = self.place(path).await?.attributes;
            let open = move |tree: &Tree| Ok((tree.open(attributes.inode)?, Facts::of(tree, attributes)));
            let (file, facts) = self.call(open).await?;
            Ok(Box::new(Opened { files: self.clone(), file: Arc::new(file), facts, at: 0 }) as Box<dyn DavFile>)
        })
    }

    fn read_dir<'a>(&'a self, path: &'a DavPath, _: ReadDirMeta) -> FsFuture<'a, FsStream<Box<dyn DavDirEntry>>> {
        Box::pin(async move {
            let place = self.place(path).await?;
            let shown = self.clone().list(place.trail);
            let shown = shown.map(|shown| Ok(Box::new(shown) as Box<dyn DavDirEntry>));
            Ok(Box::pin(shown) as FsStream<Box<dyn DavDirEntry>>)
        })
    }

    fn metadata<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, Box<dyn DavMetaData>> {
        Box::pin(async move {
            let attributes = self.place(path).await?.attributes;
            Ok(Box::new(Facts::of(&self.tree, attributes)) as Box<dyn DavMetaData>)
        })
    }
}

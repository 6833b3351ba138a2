//! The transport for a folder of this machine.
//!
//! One file per object, at the path of its name. All work is blocking system calls on tokio's
//! blocking threads.
//!
//! Invariants
//! * A name shows either no file or a complete one. Files are written without a name and linked in
//!   when they are on disk, and a link never replaces one.
//! * When a create has returned, the object survives power loss: file, folder and every folder
//!   above it are synced. A delete that has returned is final, because safe collection depends on
//!   the order of deletions.
//! * No link below the folder is followed, except a first-level one of root or the caller
//!   ([`root`]).
//! * One entry that cannot be examined does not end a listing ([`walk`]): it is named, and the
//!   others follow.
//! * Reading and listing write nothing, so a read-only mount or another user's folder will do.
//!
//! This replaces the local store of `object_store`, which leaves its staging files behind after a
//! crash, does not sync deletions and lists without order. It is as fast: see
//! `examples/local_speed.rs`.

mod blocks;
mod create;
mod read;
mod root;
mod staging;
mod walk;
mod write;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_format::names;

use self::blocks::Buffers;
use self::root::Root;
use crate::error::{ShortRead, StoreError, StoreOp};
use crate::error_kind::StoreErrorKind;
use crate::in_its_place::InItsPlace;
use crate::layer::{Call, Created, Layer, Listing, ReadRange, Reply, Request, WrongSize};

/// The pieces in which a limit on downloads counts read bytes.
const PIECE: usize = 64 << 10;

/// A repository in a folder.
#[derive(Debug, Clone)]
pub(crate) struct LocalFolder {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: Arc<Root>,
    creator: create::Creator,
    buffers: Arc<Buffers>,
}

impl LocalFolder {
    /// Takes the folder as it is, or as it will be: the first create makes it.
    pub(crate) fn new(root: &Path) -> Self {
        let buffers = Arc::<Buffers>::default();
        let root = Arc::new(Root::new(root));
        let creator = create::Creator::new(root.clone(), buffers.clone());
        Self { inner: Arc::new(Inner { root, creator, buffers }) }
    }
}

#[async_trait]
impl Layer for LocalFolder {
    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        let inner = self.inner.clone();
        let asked = call.clone();
        let reply = blocking(move || inner.answer(&asked))
            .await
            .unwrap_or_else(|lost| Err(call.error(StoreErrorKind::Other).because(lost)))?;
        // A folder may be on another machine, so the limit on downloads holds here too.
        if let (Reply::Bytes { bytes, .. }, Some(_)) = (&reply, &call.download) {
            // A piece waits for the ones before it: in one piece, a whole container would go past
            // the limit.
            for piece in bytes.chunks(PIECE) {
                call.received(piece.len()).await;
            }
        }
        Ok(reply)
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Listing {
        walk::list(self.inner.root.clone(), folder, after)
    }

    fn lists_in_order(&self) -> bool {
        true
    }
}

/// Runs blocking work; fails only when that work panics or the runtime ends.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, tokio::task::JoinError> {
    tokio::task::spawn_blocking(work).await
}

impl Inner {
    fn answer(&self, call: &Call) -> Result<Reply, StoreError> {
        let name: &str = &call.name;
        let failed = |source: io::Error| StoreError::from_io(call.request.op(), name, source);
        match &call.request {
            Request::Create(bytes) => self
                .creator
                .create(name, bytes)
                .map(|()| Reply::Created(Created { all_answered: true }))
                .map_err(failed),
            Request::Read(range) => self.read(name, range),
            Request::Size => self.open(name).map(|(_, size)| Reply::Size(size)).map_err(failed),
            Request::Delete => self.creator.delete(name).map(|()| Reply::Deleted).map_err(failed),
        }
    }

    fn open(&self, name: &str) -> io::Result<(File, u64)> {
        let (file, stat) = match self.root.object(name) {
            // A folder above objects is not in the place of one.
            Err(error) if InItsPlace::is_folder(&error) && !names::is_object(name) => {
                return Err(io::ErrorKind::NotFound.into());
            }
            // Something hides the folder. The object may still be there.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory && names::is_object(name) => {
                return Err(InItsPlace::NO_FOLDER.into());
            }
            opened => opened?,
        };
        Ok((file, u64::try_from(stat.st_size).unwrap_or(0)))
    }

    fn read(&self, name: &str, range: &ReadRange) -> Result<Reply, StoreError> {
        let failed = |source: io::Error| StoreError::from_io(StoreOp::Read, name, source);
        let (file, object_size) = self.open(name).map_err(failed)?;
        let span = range.within(object_size).map_err(|size| size.of(name))?;
        let wanted = span.end - span.start;
        let length = usize::try_from(wanted).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
        let bytes = read::read_at(&self.buffers, &file, span.start, length).map_err(failed)?;
        if bytes.len() < length {
            let short = ShortRead { expected: wanted, got: bytes.len() as u64 };
            return Err(WrongSize::from(short).of(name));
        }
        Ok(Reply::Bytes { bytes: Bytes::from(bytes), object_size, is_thawed: false })
    }
}

//! The seam inside the store: one call, one reply, and layers that wrap one another.
//!
//! Every concern (retry, limits, counters, time limits, cache) is a [`Layer`] around another; the
//! innermost is a transport: a local folder or an `object_store` client. A request is a value, so
//! that a layer has one method to write for all kinds of requests and one for listings.
//!
//! Invariants
//! * A layer answers a request with the reply of its kind.
//! * A `Read` reply holds exactly the bytes asked for: transports turn short bodies into errors.
//! * Dropping a call only ends the waiting: the request may still take effect.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::bandwidth::Bandwidth;
use crate::error::{Oversized, ShortRead, StoreError, StoreOp};
use crate::error_kind::StoreErrorKind;
use crate::watch::Watch;

/// An object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its name, relative to the repository.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was made, milliseconds since the epoch by the store's clock. 0: the store does not
    /// say. `u64::MAX`: the entry could not be examined.
    pub modified_ms: u64,
}

impl Listed {
    /// When the store says it was made; 0: it does not say.
    pub fn made_ms(&self) -> u64 {
        if self.modified_ms == u64::MAX { 0 } else { self.modified_ms }
    }
}

/// Objects of a folder, in the order of the store.
pub(crate) type Listing = BoxStream<'static, Result<Listed, StoreError>>;

/// Which bytes of an object are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadRange {
    Whole,
    /// The whole object, unless it is larger than this number of bytes: then an error, before any
    /// of it is held.
    WholeUpTo(u64),
    /// Not empty; an object that ends earlier is an error.
    Span(Range<u64>),
    /// The last bytes, or the whole object where it is smaller. Not 0.
    Tail(u64),
}

impl ReadRange {
    /// The bytes of an object of `size` bytes that this asks for; an error if it has too few, or
    /// more than are wanted.
    pub(crate) fn within(&self, size: u64) -> Result<Range<u64>, WrongSize> {
        match self {
            Self::WholeUpTo(most) if size > *most => Err(Oversized { most: *most, got: size }.into()),
            Self::Whole | Self::WholeUpTo(_) => Ok(0..size),
            Self::Span(span) if span.end > size => Err(ShortRead { expected: span.end, got: size }.into()),
            Self::Span(span) => Ok(span.clone()),
            Self::Tail(count) => Ok(size.saturating_sub(*count)..size),
        }
    }
}

/// Why an object cannot answer a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrongSize {
    Short(ShortRead),
    Oversized(Oversized),
}

impl From<ShortRead> for WrongSize {
    fn from(short: ShortRead) -> Self {
        Self::Short(short)
    }
}

impl From<Oversized> for WrongSize {
    fn from(oversized: Oversized) -> Self {
        Self::Oversized(oversized)
    }
}

impl WrongSize {
    /// The error of a read.
    pub(crate) fn of(self, name: &str) -> StoreError {
        match self {
            Self::Short(short) => StoreError::new(StoreOp::Read, name, StoreErrorKind::Damaged).because(short),
            Self::Oversized(oversized) => {
                StoreError::new(StoreOp::Read, name, StoreErrorKind::TooLarge).because(oversized)
            }
        }
    }
}

/// A request about one object.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Create(Bytes),
    Read(ReadRange),
    Size,
    Delete,
}

impl Request {
    pub(crate) fn op(&self) -> StoreOp {
        match self {
            Self::Create(_) => StoreOp::Create,
            Self::Read(_) => StoreOp::Read,
            Self::Size => StoreOp::Size,
            Self::Delete => StoreOp::Delete,
        }
    }
}

/// One request on its way down. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) name: Arc<str>,
    pub(crate) request: Request,
    /// Counts the attempts of one request from 0.
    pub(crate) attempt: u32,
    /// Whether the store itself answers it, and not data kept on this machine.
    pub(crate) is_anew: bool,
    /// Whether a create is repeated on purpose, to see whether the store refuses it
    /// ([`crate::Store::create_again`]).
    pub(crate) is_probe: bool,
    /// Whether a create keeps the class of the bucket ([`crate::Store::create_warm`]).
    pub(crate) stays_warm: bool,
    /// Where the transport shows that it gets on; set by `patience`.
    pub(crate) watch: Option<Arc<Watch>>,
    /// The limit on received bytes; set by `limit`.
    pub(crate) download: Option<Arc<Bandwidth>>,
}

impl Call {
    pub(crate) fn new(name: &str, request: Request) -> Self {
        let name = name.into();
        let (is_anew, is_probe, stays_warm) = (false, false, false);
        Self { name, request, attempt: 0, is_anew, is_probe, stays_warm, watch: None, download: None }
    }

    /// To be called by transports for every piece of a body: keeps the limit on downloads and shows
    /// progress.
    pub(crate) async fn received(&self, bytes: usize) {
        if let Some(download) = &self.download {
            if let Some(watch) = &self.watch {
                watch.pause();
            }
            download.take(bytes as u64).await;
        }
        if let Some(watch) = &self.watch {
            watch.tick(bytes);
        }
    }

    pub(crate) fn error(&self, kind: StoreErrorKind) -> StoreError {
        StoreError::new(self.request.op(), &self.name, kind)
    }
}

/// An object is in the store, and it is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// Whether every attempt at it was answered. If not, an attempt without answer may still reach
    /// the store, and create the object again after another program has deleted it. A caller that
    /// promises to have nothing under way must know this.
    pub all_answered: bool,
}

/// The answer.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Created.
    Created(Created),
    /// Deleted.
    Deleted,
    /// The bytes, and the size of the whole object they are from.
    Bytes {
        bytes: Bytes,
        object_size: u64,
        /// Whether the object is in cold storage, and can be read for some days.
        is_thawed: bool,
    },
    /// The size of the object.
    Size(u64),
}

/// Something that answers requests, possibly by asking the next one.
#[async_trait]
pub(crate) trait Layer: std::fmt::Debug + Send + Sync {
    /// Answers one request. A dropped or failed `Create` or `Delete` may still take effect later.
    async fn call(&self, call: &Call) -> Result<Reply, StoreError>;

    /// Lists the objects below `folder` (empty: all) whose names come after `after`.
    fn list(&self, folder: &str, after: Option<&str>) -> Listing;

    /// Whether [`Layer::list`] yields names in ascending byte order, so that it can be taken up
    /// again in the middle.
    fn lists_in_order(&self) -> bool;
}

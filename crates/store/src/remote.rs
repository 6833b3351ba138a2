//! The transport for everything that `object_store` reaches: S3, Azure, Google Cloud, memory, and
//! the fault store of tests.
//!
//! One request here is one request to the server. The client's own retries are off, because a
//! repeated conditional put that meets its own first attempt looks to it like a lost race. `retry`
//! decides the meaning of a repetition.
//!
//! Invariant: bytes are counted. A body that ends early, or a range that is not the one asked for,
//! is an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use larder_format::names;
use object_store::path::Path;
use object_store::{
    Attribute, GetOptions, GetRange, GetResult, GetResultPayload, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
};

use crate::answers::StorageClass;
use crate::cold::classes::is_cold;
use crate::error::{ShortRead, StoreError, StoreOp};
use crate::error_kind::StoreErrorKind;
use crate::layer::{Call, Created, Layer, Listed, Listing, ReadRange, Reply, Request};
use crate::name;

/// A repository under a prefix of an object store.
#[derive(Debug)]
pub(crate) struct Remote {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    in_order: bool,
    keeps_versions: Arc<AtomicBool>,
    /// The storage class of new data containers.
    data_class: Option<String>,
}

/// Whether a store lists names in ascending byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListOrder {
    Ascending,
    Unknown,
}

impl Remote {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, prefix: &str, order: ListOrder) -> Self {
        let prefix = prefix.trim_matches('/').to_owned();
        let in_order = order == ListOrder::Ascending;
        Self { store, prefix, in_order, keeps_versions: Arc::default(), data_class: None }
    }

    /// Stores new data containers in this class.
    pub(crate) fn with_data_class(self, data_class: Option<String>) -> Self {
        Self { data_class, ..self }
    }

    /// Sets this to true once the store names the version of a created object: such a store keeps
    /// deleted objects.
    pub(crate) fn telling_versions(self, keeps_versions: Arc<AtomicBool>) -> Self {
        Self { keeps_versions, ..self }
    }

    fn path(&self, op: StoreOp, name: &str) -> Result<Path, StoreError> {
        let whole = match (self.prefix.as_str(), name) {
            ("", name) => name.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, name) => format!("{prefix}/{name}"),
        };
        Path::parse(whole).map_err(|error| StoreError::new(op, name, StoreErrorKind::Invalid).because(error))
    }

    async fn create(&self, call: &Call, path: &Path, bytes: &Bytes) -> Result<Reply, StoreError> {
        let mut options = PutOptions::from(PutMode::Create);
        let takes_class = call.name.starts_with(names::DATA) && !call.stays_warm;
        if let Some(class) = self.data_class.as_ref().filter(|_| takes_class) {
            options.attributes.insert(Attribute::StorageClass, class.clone().into());
        }
        let put = self.store.put_opts(path, bytes.clone().into(), options).await;
        let put = put.map_err(|error| failed(call, error))?;
        // Where versions were kept once and are no more, S3 calls the version of every new object
        // so.
        if put.version.is_some_and(|version| version != "null") {
            self.keeps_versions.store(true, Ordering::Relaxed);
        }
        Ok(Reply::Created(Created { all_answered: true }))
    }

    async fn read(&self, call: &Call, path: &Path, range: &ReadRange) -> Result<Reply, StoreError> {
        let asked = match range {
            ReadRange::Whole | ReadRange::WholeUpTo(_) => None,
            ReadRange::Span(span) => Some(GetRange::Bounded(span.clone())),
            ReadRange::Tail(count) => Some(GetRange::Suffix(*count)),
        };
        let options = GetOptions { range: asked, ..GetOptions::default() };
        let result = match self.store.get_opts(path, options).await {
            Ok(result) => result,
            Err(error) => return self.read_by_size(call, path, range, failed(call, error)).await,
        };
        let (object_size, is_thawed) = (result.meta.size, is_thawed(&result));
        let expected = range.within(object_size).map_err(|size| size.of(&call.name))?;
        if result.range != expected {
            let got = result.range.end.saturating_sub(result.range.start);
            return Err(damaged(call, ShortRead { expected: expected.end - expected.start, got }));
        }
        let bytes = collect(call, result, expected.end - expected.start).await?;
        Ok(Reply::Bytes { bytes, object_size, is_thawed })
    }

    /// Second try for ranges that a store refuses: some know no suffixes, and an empty object has
    /// no range at all.
    async fn read_by_size(
        &self,
        call: &Call,
        path: &Path,
        range: &ReadRange,
        error: StoreError,
    ) -> Result<Reply, StoreError> {
        let refused = matches!(error.kind, StoreErrorKind::Invalid | StoreErrorKind::Damaged | StoreErrorKind::Other);
        if matches!(range, ReadRange::Whole | ReadRange::WholeUpTo(_)) || !refused {
            return Err(error);
        }
        let object_size = self.store.head(path).await.map_err(|error| failed(call, error))?.size;
        let span = range.within(object_size).map_err(|size| size.of(&call.name))?;
        if span.is_empty() {
            return Ok(Reply::Bytes { bytes: Bytes::new(), object_size, is_thawed: false });
        }
        if *range == ReadRange::Span(span.clone()) {
            // The object is large enough, so its size was not the reason.
            return Err(error);
        }
        let options = GetOptions { range: Some(GetRange::Bounded(span.clone())), ..GetOptions::default() };
        let result = self.store.get_opts(path, options).await.map_err(|error| failed(call, error))?;
        let is_thawed = is_thawed(&result);
        let bytes = collect(call, result, span.end - span.start).await?;
        Ok(Reply::Bytes { bytes, object_size, is_thawed })
    }
}

#[async_trait]
impl Layer for Remote {
    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        let path = self.path(call.request.op(), &call.name)?;
        match &call.request {
            Request::Create(bytes) => self.create(call, &path, bytes).await,
            Request::Read(range) => self.read(call, &path, range).await,
            Request::Size => {
                let meta = self.store.head(&path).await.map_err(|error| failed(call, error))?;
                Ok(Reply::Size(meta.size))
            }
            Request::Delete => match self.store.delete(&path).await.map_err(|error| failed(call, error)) {
                Err(error) if error.kind != StoreErrorKind::NotFound => Err(error),
                _ => Ok(Reply::Deleted),
            },
        }
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Listing {
        let path = match self.path(StoreOp::List, folder) {
            Ok(path) => path,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        let below = (!path.as_ref().is_empty()).then_some(&path);
        let listed = match after.map(|after| self.path(StoreOp::List, after)) {
            None => self.store.list(below),
            Some(Ok(after)) => self.store.list_with_offset(below, &after),
            Some(Err(error)) => return stream::iter([Err(error)]).boxed(),
        };
        let folder = folder.to_owned();
        // A store that does not know where to continue begins again; listed entries must not be
        // repeated.
        let after = after.map(str::to_owned);
        let prefix = if self.prefix.is_empty() { String::new() } else { format!("{}/", self.prefix) };
        listed
            .map_err(move |error| StoreError::from_object_store(StoreOp::List, &folder, error))
            .try_filter_map(move |meta| {
                // Foreign objects under the prefix are not ours and are ignored.
                let name = meta.location.as_ref().strip_prefix(&prefix).filter(|name| name::is_valid(name));
                let name = name.filter(|name| after.as_deref().is_none_or(|after| *name > after));
                let listed = name.map(|name| Listed {
                    name: name.to_owned(),
                    size: meta.size,
                    modified_ms: u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0),
                });
                futures::future::ready(Ok(listed))
            })
            .boxed()
    }

    fn lists_in_order(&self) -> bool {
        self.in_order
    }
}

fn failed(call: &Call, error: object_store::Error) -> StoreError {
    StoreError::from_object_store(call.request.op(), &call.name, error)
}

fn damaged(call: &Call, short: ShortRead) -> StoreError {
    call.error(StoreErrorKind::Damaged).because(short)
}

/// Whether the object is of a class that has to be thawed. It can be read, so it is.
fn is_thawed(result: &GetResult) -> bool {
    result.extensions.get::<StorageClass>().is_some_and(|class| is_cold(&class.0))
}

/// Gathers a body of exactly `expected` bytes.
async fn collect(call: &Call, result: GetResult, expected: u64) -> Result<Bytes, StoreError> {
    let short = |got: u64| damaged(call, ShortRead { expected, got });
    let mut body = match result.payload {
        GetResultPayload::Stream(body) => body,
        // A folder behind a test's fault store: the client knows how to read its file.
        GetResultPayload::File(..) => {
            let bytes = result.bytes().await.map_err(|error| failed(call, error))?;
            call.received(bytes.len()).await;
            return if bytes.len() as u64 == expected { Ok(bytes) } else { Err(short(bytes.len() as u64)) };
        }
    };
    let Some(first) = body.try_next().await.map_err(|error| failed(call, error))? else {
        return if expected == 0 { Ok(Bytes::new()) } else { Err(short(0)) };
    };
    call.received(first.len()).await;
    if first.len() as u64 == expected {
        return Ok(first);
    }
    let capacity = usize::try_from(expected).map_err(|_| short(0))?;
    let mut bytes = BytesMut::with_capacity(capacity);
    bytes.extend_from_slice(&first);
    while let Some(chunk) = body.try_next().await.map_err(|error| failed(call, error))? {
        if chunk.len() > capacity - bytes.len().min(capacity) {
            return Err(short(bytes.len() as u64 + chunk.len() as u64));
        }
        bytes.extend_from_slice(&chunk);
        call.received(chunk.len()).await;
    }
    if bytes.len() == capacity { Ok(bytes.freeze()) } else { Err(short(bytes.len() as u64)) }
}

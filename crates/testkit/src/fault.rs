//! A store that fails on demand, around any other.
//!
//! Every operation first asks the plan which fault it meets. Faults that a store cannot have (short
//! bodies of puts, stale gets) are ignored rather than refused, so that a rule for any operation
//! can be added without thought.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::plan::{Failure, Fault, Faults, OpKind};

/// A store around another one, which does what its [`Faults`] say.
#[derive(Debug)]
pub struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    faults: Faults,
}

impl FaultStore {
    /// Wraps a store; the handle is kept by the test.
    pub fn new(inner: Arc<dyn ObjectStore>) -> (Arc<Self>, Faults) {
        let faults = Faults::default();
        (Arc::new(Self { inner, faults: faults.clone() }), faults)
    }

    /// Wraps a store with a handle that exists already: several stores then share one plan and one
    /// count.
    pub fn with(inner: Arc<dyn ObjectStore>, faults: &Faults) -> Arc<Self> {
        Arc::new(Self { inner, faults: faults.clone() })
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({})", self.inner)
    }
}

/// An operation that waits for others looks this often for them, ...
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// ... and at most this often.
const LOOKS_MAX: u32 = 6000;

/// Applies a fault to an operation that has either happened or not.
async fn apply<T>(
    faults: &Faults,
    fault: Option<&Fault>,
    path: &Path,
    operation: impl Future<Output = Result<T>>,
) -> Result<T> {
    match fault {
        Some(Fault::Until(part, count)) => {
            for _ in 0..LOOKS_MAX {
                if faults.have_arrived(part, *count) {
                    return operation.await;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Err(Failure::Stopped.error(path.as_ref()))
        }
        Some(Fault::FailBefore(failure)) => Err(failure.error(path.as_ref())),
        Some(Fault::FailAfter(failure)) => {
            operation.await?;
            Err(failure.error(path.as_ref()))
        }
        Some(Fault::Delay(delay)) => {
            tokio::time::sleep(*delay).await;
            operation.await
        }
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::HangAfter) => {
            operation.await?;
            std::future::pending().await
        }
        Some(Fault::Short(_) | Fault::FlipBit(_) | Fault::Stale(_)) | None => operation.await,
    }
}

/// Spoils the body of a get.
async fn spoil(fault: Option<&Fault>, result: GetResult) -> Result<GetResult> {
    let (Some(Fault::Short(_) | Fault::FlipBit(_)), false) = (fault, result.range.is_empty()) else {
        return Ok(result);
    };
    let shell = (result.meta.clone(), result.range.clone(), result.attributes.clone());
    let whole = result.bytes().await?;
    let bytes: Bytes = match fault {
        Some(Fault::Short(keep)) => whole.slice(..whole.len().min(*keep)),
        Some(Fault::FlipBit(bit)) => {
            let bit = bit % (whole.len() as u64 * 8);
            let mut bytes = whole.to_vec();
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            bytes.into()
        }
        _ => whole,
    };
    let (meta, range, attributes) = shell;
    let payload = GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed());
    Ok(GetResult { payload, meta, range, attributes, extensions: Default::default() })
}

fn missing(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: "FaultStore".to_owned() }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let kind = if opts.mode == PutMode::Create { OpKind::Put } else { OpKind::Overwrite };
        let fault = self.faults.meet(kind, location.as_ref(), payload.content_length() as u64);
        apply(&self.faults, fault.as_ref(), location, async {
            let result = self.inner.put_opts(location, payload, opts).await?;
            self.faults.was_created(location.as_ref());
            Ok(result)
        })
        .await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(missing("put_multipart"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let kind = if options.head { OpKind::Head } else { OpKind::Get };
        let fault = self.faults.meet(kind, location.as_ref(), 0);
        let result = apply(&self.faults, fault.as_ref(), location, self.inner.get_opts(location, options)).await?;
        spoil(fault.as_ref(), result).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, faults) = (self.inner.clone(), self.faults.clone());
        locations
            .then(move |location| {
                let (inner, faults) = (inner.clone(), faults.clone());
                async move {
                    let location = location?;
                    let fault = faults.meet(OpKind::Delete, location.as_ref(), 0);
                    apply(&faults, fault.as_ref(), &location, inner.delete(&location)).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, |inner, prefix| inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let offset = offset.clone();
        self.listed(prefix, move |inner, prefix| inner.list_with_offset(prefix, &offset))
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(missing("list_with_delimiter"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(missing("copy"))
    }
}

impl FaultStore {
    fn listed(
        &self,
        prefix: Option<&Path>,
        list: impl FnOnce(&dyn ObjectStore, Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let path = prefix.cloned().unwrap_or_default();
        let fault = self.faults.meet(OpKind::List, path.as_ref(), 0);
        let listing = list(self.inner.as_ref(), prefix);
        match fault {
            Some(Fault::Stale(count)) => {
                let hidden = self.faults.created_last(count);
                listing
                    .try_filter(move |meta| {
                        futures::future::ready(!hidden.iter().any(|path| *path == meta.location.as_ref()))
                    })
                    .boxed()
            }
            Some(Fault::Short(keep)) => {
                let broken = Failure::Reset.error(path.as_ref());
                listing.take(keep).chain(stream::iter([Err(broken)])).boxed()
            }
            // All other faults happen before the first name.
            fault => {
                let faults = self.faults.clone();
                let applied = async move { apply(&faults, fault.as_ref(), &path, async { Ok(()) }).await };
                stream::once(async move { applied.await.map(|()| listing) }).try_flatten().boxed()
            }
        }
    }
}

//! The client through which an actor reaches the bucket of a simulation.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::request::{Answer, Ask};
use super::world::World;

/// A client of a [`World`].
#[derive(Debug, Clone)]
pub struct SimStore {
    pub(super) world: World,
    /// `None` is answered at once.
    pub(super) actor: Option<usize>,
}

impl fmt::Display for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimStore")
    }
}

fn missing(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: "SimStore".to_owned() }
}

impl SimStore {
    async fn ask(&self, ask: Ask) -> Result<Answer> {
        let Some(actor) = self.actor else { return self.world.answer_now(&ask) };
        match self.world.ask(actor, ask).await {
            Ok(answer) => answer,
            // The simulation is over.
            Err(_) => std::future::pending().await,
        }
    }

    fn page(&self, folder: String, after: Option<String>) -> impl Future<Output = Result<Answer>> + use<> {
        let client = self.clone();
        async move { client.ask(Ask::Page(folder, after)).await }
    }

    fn pages(&self, prefix: Option<&Path>, after: Option<String>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (client, folder) = (self.clone(), prefix.map(ToString::to_string).unwrap_or_default());
        stream::try_unfold(Some(after), move |next| {
            let page = next.map(|after| client.page(folder.clone(), after));
            async move {
                let Some(page) = page else { return Ok(None) };
                let Answer::Page(names, more) = page.await? else { return Err(missing("a page of something else")) };
                let next = names.last().filter(|_| more).map(|(name, ..)| Some(name.clone()));
                let metas: Vec<_> = names.iter().map(|(name, size, created)| Ok(meta(name, *size, *created))).collect();
                Ok(Some((stream::iter(metas), next)))
            }
        })
        .try_flatten()
        .boxed()
    }
}

fn meta(path: &str, size: u64, created_ms: u64) -> ObjectMeta {
    let created = SystemTime::UNIX_EPOCH + Duration::from_millis(created_ms);
    ObjectMeta { location: Path::from(path), last_modified: created.into(), size, e_tag: None, version: None }
}

#[async_trait]
impl ObjectStore for SimStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let (path, bytes) = (location.to_string(), Bytes::from(payload));
        let ask = if opts.mode == PutMode::Create { Ask::Create(path, bytes) } else { Ask::Put(path, bytes) };
        self.ask(ask).await?;
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(missing("put_multipart"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Answer::Bytes(bytes, created) = self.ask(Ask::Read(location.to_string())).await? else {
            return Err(missing("an answer of another kind"));
        };
        let size = bytes.len() as u64;
        let range = match &options.range {
            Some(range) => {
                range.as_range(size).map_err(|source| Error::Generic { store: "SimStore", source: Box::new(source) })?
            }
            None => 0..size,
        };
        let body = if options.head { Bytes::new() } else { bytes.slice(range.start as usize..range.end as usize) };
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::iter([Ok(body)]).boxed()),
            meta: meta(location.as_ref(), size, created),
            range,
            attributes: Default::default(),
            extensions: Default::default(),
        })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let client = self.clone();
        locations
            .then(move |location| {
                let client = client.clone();
                async move {
                    let location = location?;
                    client.ask(Ask::Delete(location.to_string())).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.pages(prefix, None)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.pages(prefix, Some(offset.to_string()))
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(missing("list_with_delimiter"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(missing("copy"))
    }
}

impl World {
    /// A client that is not part of the simulation: answered at once, never failed, and not in the
    /// trace.
    pub fn plain(&self) -> Arc<dyn ObjectStore> {
        Arc::new(SimStore { world: self.clone(), actor: None })
    }

    /// The client of an actor.
    pub(super) fn client(&self, actor: usize) -> Arc<dyn ObjectStore> {
        Arc::new(SimStore { world: self.clone(), actor: Some(actor) })
    }
}

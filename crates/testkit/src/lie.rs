//! A store that gives one wrong answer.
//!
//! A test names the request at which the store lies. It takes one variant of a lie after the other,
//! until there is no further one for that request. Requests are numbered from 0 since
//! [`Lies::tell`]. A lie looks like any other answer: it is no error, and nothing in it says that
//! it is wrong.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use crate::memory::Memory;
use crate::plan::OpKind;

/// One wrong answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// A listing shows nothing.
    Empty,
    /// A listing shows how it was before.
    Stale,
    /// A listing lacks its second half, as if a page were the last one.
    HalfListed,
    /// A listing lacks one entry, by its place.
    Lacks(usize),
    /// An object that is there is said not to be.
    NotFound,
    /// The object is said to be another one of the same folder.
    Foreign,
    /// The object is said to be half as long as it is.
    Short,
    /// The object is said to be a page of a proxy.
    Page,
    /// A create is said to have succeeded, and nothing is there.
    NotCreated,
    /// A create is said to have met another object, and nothing is there.
    NotTaken,
    /// A deletion is said to be done, and the object is there.
    NotDeleted,
}

/// A lie that was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The number of the request.
    pub index: u64,
    /// The request.
    pub kind: OpKind,
    /// The whole path in the store; the prefix of a listing.
    pub path: String,
    /// The answer.
    pub lie: Lie,
    /// The entries that a listing lacked.
    pub lacked: Vec<String>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} ({:?} {:?}): {:?}", self.index, self.kind, self.path, self.lie)?;
        if !self.lacked.is_empty() {
            write!(f, " of {}", self.lacked.join(", "))?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct State {
    count: u64,
    /// The request at which the store lies, and the possible lies.
    at: Option<(u64, usize)>,
    /// Of how many entries at most a listing lacks one, in turn.
    entries: usize,
    told: Option<Told>,
}

/// The handle of a [`LyingStore`]. Clones share all of it.
#[derive(Debug, Clone, Default)]
pub struct Lies(Arc<Mutex<State>>);

impl Lies {
    /// From now on, the request numbered `index` is answered with the lie numbered `variant` of its
    /// possible ones. Of each listing at most `entries` entries are hidden in turn.
    pub fn tell(&self, index: u64, variant: usize, entries: usize) {
        *self.0.lock() = State { at: Some((index, variant)), entries, ..State::default() };
    }

    /// Tells the truth from now on.
    pub fn end(&self) {
        self.0.lock().at = None;
    }

    /// The lie, if it was told.
    pub fn told(&self) -> Option<Told> {
        self.0.lock().told.clone()
    }

    /// How many requests there have been.
    pub fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// Numbers a request; says which lie is due.
    fn meet(&self) -> Option<(u64, usize)> {
        let mut state = self.0.lock();
        let index = state.count;
        state.count += 1;
        state.at.filter(|(at, _)| *at == index)
    }

    fn note(&self, index: u64, kind: OpKind, path: &str, lie: Lie, lacked: Vec<String>) {
        self.0.lock().told = Some(Told { index, kind, path: path.to_owned(), lie, lacked });
    }
}

/// A store around another one, with one wrong answer.
#[derive(Debug)]
pub struct LyingStore {
    inner: Arc<dyn ObjectStore>,
    before: Memory,
    lies: Lies,
}

impl LyingStore {
    /// Wraps a store. `before` is how it once was.
    pub fn new(inner: Arc<dyn ObjectStore>, before: &Memory) -> (Arc<Self>, Lies) {
        let lies = Lies::default();
        (Arc::new(Self { inner, before: before.clone(), lies: lies.clone() }), lies)
    }

    /// The possible lies about a listing of these entries, when that was the listing before.
    fn about_listing(listed: &[ObjectMeta], before: &[ObjectMeta], entries: usize) -> Vec<Lie> {
        let mut lies = Vec::new();
        let names = |of: &[ObjectMeta]| of.iter().map(|meta| meta.location.clone()).collect::<Vec<_>>();
        if !listed.is_empty() {
            lies.push(Lie::Empty);
        }
        if names(listed) != names(before) {
            lies.push(Lie::Stale);
        }
        if listed.len() > 1 {
            lies.push(Lie::HalfListed);
            let step = listed.len().div_ceil(entries.max(1));
            lies.extend((0..listed.len()).rev().step_by(step).map(Lie::Lacks));
        }
        lies
    }

    async fn listed(&self, prefix: Option<Path>, offset: Option<Path>) -> Result<Vec<ObjectMeta>> {
        let below = |store: &dyn ObjectStore| match &offset {
            None => store.list(prefix.as_ref()),
            Some(offset) => store.list_with_offset(prefix.as_ref(), offset),
        };
        let mut listed: Vec<ObjectMeta> = below(self.inner.as_ref()).try_collect().await?;
        listed.sort_by(|a, b| a.location.cmp(&b.location));
        let Some((index, variant)) = self.lies.meet() else { return Ok(listed) };
        let mut before: Vec<ObjectMeta> = below(self.before.store().as_ref()).try_collect().await?;
        before.sort_by(|a, b| a.location.cmp(&b.location));
        let entries = self.lies.0.lock().entries;
        let Some(lie) = Self::about_listing(&listed, &before, entries).get(variant).copied() else {
            return Ok(listed);
        };
        let mut shown = listed.clone();
        match lie {
            Lie::Empty => shown.clear(),
            Lie::Stale => shown = before,
            Lie::HalfListed => shown.truncate(listed.len() / 2),
            Lie::Lacks(place) => drop(shown.remove(place)),
            _ => {}
        }
        let lacked = listed.iter().filter(|meta| !shown.iter().any(|shown| shown.location == meta.location));
        let lacked = lacked.map(|meta| meta.location.to_string()).collect();
        self.lies.note(
            index,
            OpKind::List,
            prefix.map(|prefix| prefix.to_string()).as_deref().unwrap_or(""),
            lie,
            lacked,
        );
        Ok(shown)
    }

    /// Another object of the same folder, or of any.
    async fn neighbour(&self, location: &Path) -> Option<Bytes> {
        let mut all: Vec<ObjectMeta> = self.inner.list(None).try_collect().await.ok()?;
        all.sort_by(|a, b| a.location.cmp(&b.location));
        let folder = |path: &Path| path.parts().next().map(|part| part.as_ref().to_owned());
        let others: Vec<_> = all.iter().filter(|meta| meta.location != *location).collect();
        let near = others.iter().find(|meta| folder(&meta.location) == folder(location)).or(others.first())?;
        self.inner.get(&near.location).await.ok()?.bytes().await.ok()
    }
}

/// An answer that gives these bytes for the whole object, or the part of them that was asked for.
fn answer(location: &Path, meta: ObjectMeta, whole: Bytes, options: &GetOptions) -> Result<GetResult> {
    let size = whole.len() as u64;
    let range = match &options.range {
        None => 0..size,
        Some(GetRange::Bounded(range)) => range.start.min(size)..range.end.min(size),
        Some(GetRange::Offset(from)) => (*from).min(size)..size,
        Some(GetRange::Suffix(count)) => size.saturating_sub(*count)..size,
    };
    if range.is_empty() && options.range.is_some() {
        return Err(Error::Generic { store: "LyingStore", source: format!("{location}: no such range").into() });
    }
    let part = whole.slice(range.start as usize..range.end as usize);
    let payload = GetResultPayload::Stream(stream::iter([Ok(part)]).boxed());
    let meta = ObjectMeta { size, ..meta };
    Ok(GetResult { payload, meta, range, attributes: Attributes::default(), extensions: Default::default() })
}

impl fmt::Display for LyingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LyingStore({})", self.inner)
    }
}

fn missing(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: "LyingStore".to_owned() }
}

#[async_trait]
impl ObjectStore for LyingStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let lies = [Lie::NotCreated, Lie::NotTaken];
        if let Some((index, variant)) = self.lies.meet()
            && let Some(lie) = lies.get(variant)
            && opts.mode == PutMode::Create
            && self.inner.head(location).await.is_err()
        {
            self.lies.note(index, OpKind::Put, location.as_ref(), *lie, Vec::new());
            return match lie {
                Lie::NotCreated => Ok(PutResult { e_tag: None, version: None, extensions: Default::default() }),
                _ => Err(Error::AlreadyExists { path: location.to_string(), source: "it exists".into() }),
            };
        }
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(missing("put_multipart"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some((index, variant)) = self.lies.meet() else { return self.inner.get_opts(location, options).await };
        // There is nothing to hide: it would be true.
        let Ok(meta) = self.inner.head(location).await else { return self.inner.get_opts(location, options).await };
        let lies = match options.head {
            true => &[Lie::NotFound, Lie::Short][..],
            false => &[Lie::NotFound, Lie::Foreign, Lie::Short, Lie::Page],
        };
        let Some(lie) = lies.get(variant).copied() else { return self.inner.get_opts(location, options).await };
        let kind = if options.head { OpKind::Head } else { OpKind::Get };
        self.lies.note(index, kind, location.as_ref(), lie, Vec::new());
        let whole = self.inner.get(location).await?.bytes().await?;
        let whole = match lie {
            Lie::NotFound => {
                return Err(Error::NotFound { path: location.to_string(), source: "no such object".into() });
            }
            Lie::Foreign => self.neighbour(location).await.unwrap_or(whole),
            Lie::Short => whole.slice(..whole.len() / 2),
            _ => Bytes::from_static(b"<html><body>Please log in</body></html>"),
        };
        answer(location, meta, whole, &options)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, lies) = (self.inner.clone(), self.lies.clone());
        locations
            .then(move |location| {
                let (inner, lies) = (inner.clone(), lies.clone());
                async move {
                    let location = location?;
                    match lies.meet() {
                        Some((index, 0)) => {
                            lies.note(index, OpKind::Delete, location.as_ref(), Lie::NotDeleted, Vec::new());
                        }
                        _ => inner.delete(&location).await?,
                    }
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let shared = Self { inner: self.inner.clone(), before: self.before.clone(), lies: self.lies.clone() };
        let prefix = prefix.cloned();
        stream::once(
            async move { shared.listed(prefix, None).await.map(|listed| stream::iter(listed.into_iter().map(Ok))) },
        )
        .try_flatten()
        .boxed()
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let shared = Self { inner: self.inner.clone(), before: self.before.clone(), lies: self.lies.clone() };
        let (prefix, offset) = (prefix.cloned(), offset.clone());
        stream::once(async move {
            shared.listed(prefix, Some(offset)).await.map(|listed| stream::iter(listed.into_iter().map(Ok)))
        })
        .try_flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(missing("list_with_delimiter"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(missing("copy"))
    }
}

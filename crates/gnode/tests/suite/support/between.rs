//! A store in front of another that lets something happen before one chosen operation.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures::StreamExt;
use futures::TryStreamExt;
use futures::stream::{self, BoxStream};
use larder_testkit::sweep;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::Scene;

type Hook = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// See the module header. Operations are counted from 0 in the order in which they arrive.
pub struct Between {
    inner: Arc<dyn ObjectStore>,
    state: Arc<State>,
}

struct State {
    count: AtomicU64,
    at: AtomicU64,
    /// Objects below this are what it happens before, instead.
    below: OnceLock<&'static str>,
    /// Or those with this in their names.
    named: OnceLock<String>,
    armed: AtomicBool,
    /// All operations wait.
    is_still: AtomicBool,
    /// Before the first object with this in its name is created, they begin to.
    still_before: OnceLock<&'static str>,
    hook: Hook,
}

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Between")
    }
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Between")
    }
}

impl Between {
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        inner: Arc<dyn ObjectStore>,
        hook: impl Fn() -> F + Send + Sync + 'static,
    ) -> Arc<Self> {
        let state = State {
            count: AtomicU64::new(0),
            at: AtomicU64::new(0),
            below: OnceLock::new(),
            named: OnceLock::new(),
            armed: AtomicBool::new(false),
            is_still: AtomicBool::new(false),
            still_before: OnceLock::new(),
            hook: Box::new(move || Box::pin(hook())),
        };
        Arc::new(Self { inner, state: Arc::new(state) })
    }

    /// Before so many more operations it happens, once.
    pub fn happens_after(&self, operations: u64) {
        self.state.at.store(self.count() + operations, Ordering::SeqCst);
        self.state.armed.store(true, Ordering::SeqCst);
    }

    /// Before the first object below a folder is created it happens, once.
    pub fn happens_before_any_below(&self, folder: &'static str) {
        self.state.below.set(folder).unwrap();
        self.state.armed.store(true, Ordering::SeqCst);
    }

    /// Before the first object with this in its name is created it happens, once.
    pub fn happens_before_any_named(&self, text: impl Into<String>) {
        self.state.named.set(text.into()).unwrap();
        self.state.armed.store(true, Ordering::SeqCst);
    }

    /// A process over this store stands still from now on.
    pub fn stand_still(&self) {
        self.state.is_still.store(true, Ordering::SeqCst);
    }

    /// The same from before an object with this in its name is created.
    pub fn stand_still_before(&self, text: &'static str) {
        self.state.still_before.set(text).unwrap();
    }

    /// Whether it came to that object.
    pub fn has_stood_still(&self) -> bool {
        self.state.still_before.get().is_some() && self.state.armed.load(Ordering::SeqCst)
    }

    pub fn go_on(&self) {
        self.state.is_still.store(false, Ordering::SeqCst);
    }

    pub fn count(&self) -> u64 {
        self.state.count.load(Ordering::SeqCst)
    }

    pub fn has_happened(&self) -> bool {
        !self.state.armed.load(Ordering::SeqCst)
    }
}

impl State {
    async fn meet(&self, created: Option<&Path>) {
        let number = self.count.fetch_add(1, Ordering::SeqCst);
        if let (Some(text), Some(path)) = (self.still_before.get(), created)
            && path.as_ref().contains(text)
            && !self.armed.swap(true, Ordering::SeqCst)
        {
            self.is_still.store(true, Ordering::SeqCst);
        }
        while self.is_still.load(Ordering::SeqCst) {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        if self.still_before.get().is_some() {
            return;
        }
        let is_now = match (self.below.get(), self.named.get()) {
            (Some(folder), _) => created.is_some_and(|path| path.as_ref().starts_with(folder)),
            (None, Some(text)) => created.is_some_and(|path| path.as_ref().contains(text)),
            (None, None) => number == self.at.load(Ordering::SeqCst),
        };
        if is_now && self.armed.swap(false, Ordering::SeqCst) {
            (self.hook)().await;
        }
    }
}

#[async_trait]
impl ObjectStore for Between {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        assert_eq!(opts.mode, PutMode::Create, "{location} might overwrite something");
        self.state.meet(Some(location)).await;
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("nobody uploads in parts")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.state.meet(None).await;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, state) = (self.inner.clone(), self.state.clone());
        locations
            .then(move |location| {
                let (inner, state) = (inner.clone(), state.clone());
                async move {
                    let location = location?;
                    state.meet(None).await;
                    inner.delete(&location).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, state, prefix) = (self.inner.clone(), self.state.clone(), prefix.cloned());
        let listing = async move {
            state.meet(None).await;
            Ok::<_, object_store::Error>(inner.list(prefix.as_ref()))
        };
        stream::once(listing).try_flatten().boxed()
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, state) = (self.inner.clone(), self.state.clone());
        let (prefix, offset) = (prefix.cloned(), offset.clone());
        let listing = async move {
            state.meet(None).await;
            Ok::<_, object_store::Error>(inner.list_with_offset(prefix.as_ref(), &offset))
        };
        stream::once(listing).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unreachable!("nobody lists so")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unreachable!("nobody copies")
    }
}

/// Runs `job` once for each of its first operations and for every second later one, on a copy of the scene each, with `hook`
/// before that operation. A whole sweep has all of them.
pub fn at_every_operation<T>(
    scene: &Scene,
    hook: impl Fn(&Scene) + Clone + Send + Sync + 'static,
    job: impl Fn(&Scene, Arc<Between>) -> T,
    check: impl Fn(&Scene, T, &str),
) {
    let mut happened = 0;
    for n in (0..12).chain(sweep(12.., 2)) {
        let fork = Arc::new(scene.fork());
        let (other, hook) = (fork.clone(), hook.clone());
        let between = Between::new(fork.memory.store(), move || {
            let (scene, hook) = (other.clone(), hook.clone());
            async move { tokio::task::spawn_blocking(move || hook(&scene)).await.unwrap() }
        });
        between.happens_after(n);
        let result = job(&fork, between.clone());
        if !between.has_happened() {
            break;
        }
        happened += 1;
        check(&fork, result, &format!("before operation {n}"));
    }
    assert!(happened > 8, "{happened} operations");
}

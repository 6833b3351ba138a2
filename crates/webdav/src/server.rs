//! The listener, and the limits of its connections.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use larder_tree::Tree;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::access::{Access, Credentials};
use crate::answer::Service;
use crate::left_out::LeftOut;
use crate::peers::Peers;
use crate::slow::Prompt;
use crate::tls::Tls;
use crate::wrong::{OnWrongPassword, WrongPasswords};

/// Connections at once. More wait until one of them ends.
const CONNECTIONS: usize = 256;
/// Requests that wait for the tree at once. Some of them may wait for the store while others are
/// answered from the caches.
const THREADS: usize = 16;
/// Time for the head of a request. A connection without one may be open for the same time.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Bytes of the head of a request, and its headers.
const HEAD_MAX: usize = 32 << 10;
const HEADERS_MAX: usize = 64;
/// Time for the handshake of TLS.
const HANDSHAKE_TIME: Duration = Duration::from_secs(15);
/// A client may read nothing for this time.
const WRITE_TIME: Duration = Duration::from_secs(60);
/// At the end, answers under way have this time.
const END_TIME: Duration = Duration::from_secs(3);
/// After an error of accepting, such as too many open files, it waits so long.
const AFTER_ERROR: Duration = Duration::from_millis(200);

/// Who may ask, and how.
#[derive(Clone, Default)]
pub struct Options {
    /// The user and the password of clients. `None`: they need none. On an address of this machine,
    /// only requests for it are answered then.
    pub credentials: Option<Credentials>,
    /// TLS. `None`: everything is sent as it is.
    pub tls: Option<Tls>,
    /// What becomes of wrong passwords. `None`: nobody gets to know of them.
    pub on_wrong_password: Option<OnWrongPassword>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

/// A server of a tree. A drop ends it.
pub struct Server {
    address: SocketAddr,
    service: Arc<Service>,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
    /// Its own: the threads of the one that has the store's requests must not wait for the store.
    runtime: Option<Runtime>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Serves a tree at an address. Port 0 becomes a free one.
    ///
    /// # Errors
    /// The address cannot be had, or the system starts no threads.
    pub fn start(address: SocketAddr, tree: Arc<Tree>, options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let access = match options.credentials {
            Some(credentials) => Access::Password(credentials),
            None if address.ip().is_loopback() => Access::Local,
            None => Access::Everybody,
        };
        let service = Arc::new(Service::new(tree, access, WrongPasswords::new(options.on_wrong_password)));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(THREADS)
            .thread_name("webdav")
            .enable_all()
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let tls = options.tls.map(|tls| TlsAcceptor::from(tls.0));
        let task = runtime.spawn(accept(listener, service.clone(), tls, stopped));
        Ok(Self { address, service, stop, task: Some(task), runtime: Some(runtime) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it has stopped to listen by itself, which is a bug.
    pub fn is_over(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// What lists have left out so far.
    pub fn left_out(&self) -> LeftOut {
        self.service.left_out.total()
    }

    /// Stops to listen, and waits a few seconds for answers under way.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let (Some(runtime), Some(task)) = (self.runtime.take(), self.task.take()) else { return };
        // It ends its connections after less time.
        let ended = runtime.block_on(async { timeout(END_TIME * 2, task).await });
        if !matches!(ended, Ok(Ok(()))) {
            tracing::warn!("the server did not end in time");
        }
        // Threads may still wait for a store that does not answer.
        runtime.shutdown_background();
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    service: Arc<Service>,
    tls: Option<TlsAcceptor>,
    mut stopped: watch::Receiver<bool>,
) {
    let (room, mut connections) = (Arc::new(Semaphore::new(CONNECTIONS)), JoinSet::new());
    let peers = Peers::default();
    loop {
        let next = async {
            let place = room.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            next = next => next,
        };
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                sleep(AFTER_ERROR).await;
                continue;
            }
        };
        let peer = peer.ip().to_canonical();
        let Some(counted) = peers.add(peer) else { continue };
        let (service, tls, stopped) = (service.clone(), tls.clone(), stopped.clone());
        connections.spawn(async move {
            if let Err(error) = connect(stream, peer, service, tls, stopped).await {
                tracing::debug!("a connection failed: {error}");
            }
            drop((place, counted));
        });
    }
    drop(listener);
    // What is left then is cut off.
    let ended = timeout(END_TIME, async { while connections.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        tracing::debug!("{} connections were cut off", connections.len());
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

async fn connect(
    stream: TcpStream,
    peer: IpAddr,
    service: Arc<Service>,
    tls: Option<TlsAcceptor>,
    stopped: watch::Receiver<bool>,
) -> Result<(), Failed> {
    // Heads of answers are small, and clients wait for them.
    stream.set_nodelay(true)?;
    let stream = Prompt::new(stream, WRITE_TIME);
    match tls {
        None => serve(stream, peer, service, stopped).await,
        Some(tls) => serve(timeout(HANDSHAKE_TIME, tls.accept(stream)).await??, peer, service, stopped).await,
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: IpAddr,
    service: Arc<Service>,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), Failed> {
    let answer = service_fn(|request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.answer(request, peer).await) }
    });
    let mut settings = http1::Builder::new();
    settings.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_headers(HEADERS_MAX).max_buf_size(HEAD_MAX);
    let mut connection = pin!(settings.serve_connection(TokioIo::new(stream), answer));
    tokio::select! {
        served = connection.as_mut() => return Ok(served?),
        _ = stopped.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

//! The server: listeners, connections, and the end of both.

mod answer;
mod budget;
mod input;
mod limits;
mod listen;
mod negotiate;
mod outbox;
mod pool;
mod session;
mod shared;
mod spares;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use self::input::Input;
pub use self::limits::Limits;
use self::listen::Listener;
use self::shared::Shared;
use crate::export::{ExportError, Exports};
use crate::tls::ServerTls;
use crate::wire::{Socket, Wire};

/// After an error of accepting, such as too many open files, the server waits so long.
const AFTER_ERROR: Duration = Duration::from_millis(200);

/// A server of exports. Connections run on threads of their own until [`Server::shutdown`].
pub struct Server {
    shared: Arc<Shared>,
    listeners: Mutex<Vec<(UnixStream, JoinHandle<()>)>>,
}

impl Server {
    /// A server that listens nowhere yet.
    pub fn new(exports: Arc<dyn Exports>, limits: Limits) -> Self {
        Self { shared: Shared::new(exports, limits), listeners: Mutex::default() }
    }

    /// Listens on a Unix socket with mode 0600. The file of a dead server is replaced; that of a
    /// living one is an error. [`Server::shutdown`] removes the file.
    pub fn listen_unix(&self, path: &Path) -> io::Result<()> {
        self.listen(Listener::unix(path)?, None)
    }

    /// Listens on TCP and requires TLS. Returns the address, in which port 0 became a real one.
    pub fn listen_tls(&self, address: SocketAddr, tls: ServerTls) -> io::Result<SocketAddr> {
        self.listen_tcp(address, Some(tls))
    }

    /// Listens on TCP without TLS. Other addresses than loopback are refused.
    pub fn listen_insecure(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        if !address.ip().is_loopback() {
            let message = "TCP without TLS is allowed on loopback addresses only";
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        self.listen_tcp(address, None)
    }

    fn listen_tcp(&self, address: SocketAddr, tls: Option<ServerTls>) -> io::Result<SocketAddr> {
        let listener = Listener::tcp(address)?;
        let address = listener.address().ok_or(ErrorKind::AddrNotAvailable)?;
        self.listen(listener, tls)?;
        Ok(address)
    }

    fn listen(&self, listener: Listener, tls: Option<ServerTls>) -> io::Result<()> {
        let (stop, stopped) = UnixStream::pair()?;
        let shared = self.shared.clone();
        let thread = thread::Builder::new().name("nbd-accept".into());
        let thread = thread.spawn(move || accept(&shared, &listener, &stopped, tls.as_ref()))?;
        self.listeners.lock().push((stop, thread));
        Ok(())
    }

    /// Serves a connection that was made elsewhere. It may be refused, and is closed then.
    pub fn serve_unix(&self, stream: UnixStream) -> io::Result<()> {
        serve(&self.shared, Socket::Unix(stream), None)
    }

    /// The same with TCP. With `tls`, clients must use it.
    pub fn serve_tcp(&self, stream: TcpStream, tls: Option<ServerTls>) -> io::Result<()> {
        serve(&self.shared, Socket::Tcp(stream), tls)
    }

    /// Connections at the moment.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }

    /// Ends the server: accepts no connection, answers what was read, closes all connections, and
    /// flushes every export that was served, once. A client that takes no replies holds this up
    /// for [`Limits::stalled_under_pressure`] at most.
    ///
    /// The first error of a flush is returned, after all were tried.
    pub fn shutdown(&self) -> Result<(), ExportError> {
        for (stop, thread) in self.listeners.lock().drain(..) {
            drop(stop);
            // It has nothing that could be lost by a panic.
            let _ = thread.join();
        }
        self.shared.stop();
        let mut result = Ok(());
        for export in self.shared.take_served() {
            let abilities = export.abilities();
            if abilities.flush && !abilities.read_only {
                result = result.and(export.flush());
            }
        }
        result
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.shutdown() {
            tracing::error!("an NBD export was not flushed: {error}");
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &Listener, stopped: &UnixStream, tls: Option<&ServerTls>) {
    loop {
        let served = match listener.accept(stopped) {
            Ok(None) => return,
            Ok(Some(socket)) => serve(shared, socket, tls.cloned()),
            Err(error) => {
                thread::sleep(AFTER_ERROR);
                Err(error)
            }
        };
        if let Err(error) = served {
            tracing::warn!("cannot serve an NBD client: {error}");
        }
    }
}

/// Serves a connection on a thread of its own.
fn serve(shared: &Arc<Shared>, socket: Socket, tls: Option<ServerTls>) -> io::Result<()> {
    let wire = Arc::new(Wire::new(socket, shared.tick())?);
    let Some(entered) = shared.enter(&wire) else {
        wire.close(false);
        return Err(io::Error::new(ErrorKind::QuotaExceeded, "too many connections"));
    };
    let shared = shared.clone();
    let thread = thread::Builder::new().name("nbd-connection".into());
    thread.spawn(move || {
        let _entered = entered;
        let mut input = Input::new(shared.tick());
        match negotiate::run(&wire, &shared, tls.as_ref(), &mut input) {
            Ok(Some(agreed)) => {
                shared.serves(&agreed.export);
                session::run(wire, shared, agreed, input);
            }
            Ok(None) => wire.close(true),
            Err(error) => {
                tracing::debug!("an NBD negotiation ended: {error}");
                wire.close(true);
            }
        }
    })?;
    Ok(())
}

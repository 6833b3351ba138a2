//! The client: one connection to one export, many requests in flight.

mod connect;
mod replies;

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::ServerName;

use self::connect::{Agreed, Greeted};
use self::replies::{Answer, Expected, Pending};
use crate::codec::request::{Command, Request, flag};
use crate::codec::{Malformed, transmission};
use crate::export::{Abilities, BlockSizes, ExportError, Extent, Listed};
use crate::tls::ClientTls;
use crate::wire::{Socket, Wire};

/// How often a write without progress looks whether the time is over.
const TICK: Duration = Duration::from_millis(500);

/// A request or the whole connection failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server refused the request. The connection goes on.
    #[error("the server refused: {0}")]
    Refused(#[from] ExportError),
    /// The server refused an option.
    #[error("the server refused to serve the export: {0}")]
    Option(String),
    /// The server broke the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The connection failed before.
    #[error("the connection is closed: {0}")]
    Closed(String),
}

/// What a client wants of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the export; empty for the default one.
    pub export: String,
    /// Metadata contexts to select. Those that the server does not have are left out.
    pub contexts: Vec<String>,
    /// Ask for structured replies. Without them there are no contexts.
    pub structured: bool,
    /// Time for negotiation, and longest time in which a write makes no progress.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { export: String::new(), contexts: Vec::new(), structured: true, timeout: Duration::from_secs(30) }
    }
}

/// Where and how to connect.
#[derive(Debug, Clone)]
pub enum Address<'a> {
    /// A Unix socket.
    Unix(&'a Path),
    /// Host and port, without TLS.
    Tcp(&'a str),
    /// Host and port, with TLS. The certificate must be for the host.
    Tls(&'a str, &'a ClientTls),
}

/// A connection to an export. Any number of threads may use it at once.
pub struct Client {
    wire: Arc<Wire>,
    pending: Arc<Pending>,
    sending: Mutex<()>,
    agreed: Agreed,
    /// Numbers of the contexts that were selected.
    context_ids: Arc<[u32]>,
    structured: bool,
    timeout: Duration,
    receiver: Option<JoinHandle<()>>,
}

/// A request that was sent. Each must be given to [`Client::wait`] once, or its answer stays in
/// memory until the client ends.
#[derive(Debug)]
#[must_use = "the answer must be waited for"]
pub struct Ticket(u64);

/// Ends a connection from any thread, also while others wait for answers. They get errors then.
#[derive(Clone)]
pub struct Stopper(Arc<Wire>);

impl Stopper {
    /// Ends it.
    pub fn stop(&self) {
        self.0.close(false);
    }
}

impl Client {
    /// Connects and negotiates.
    pub fn connect(address: &Address<'_>, options: &Options) -> Result<Self, ClientError> {
        Self::over(connect::open(address, TICK)?, connect::tls_of(address)?, options)
    }

    /// Negotiates over a connection that exists.
    pub fn over_unix(stream: UnixStream, options: &Options) -> Result<Self, ClientError> {
        Self::over(Wire::new(Socket::Unix(stream), TICK)?, None, options)
    }

    /// The same over TCP, and over TLS with the name of the server's certificate.
    pub fn over_tcp(
        stream: TcpStream,
        tls: Option<(ClientTls, String)>,
        options: &Options,
    ) -> Result<Self, ClientError> {
        let tls = tls.map(|(tls, name)| Ok::<_, io::Error>((tls, connect::server_name(&name)?))).transpose()?;
        Self::over(Wire::new(Socket::Tcp(stream), TICK)?, tls, options)
    }

    fn over(wire: Wire, tls: Option<(ClientTls, ServerName<'static>)>, options: &Options) -> Result<Self, ClientError> {
        let agreed = Greeted::new(&wire, options.timeout, tls)?.go(options)?;
        let (wire, pending) = (Arc::new(wire), Arc::new(Pending::default()));
        wire.set_read_timeout(None)?;
        let receiver = {
            let (wire, pending) = (wire.clone(), pending.clone());
            let thread = thread::Builder::new().name("nbd-receive".into());
            thread.spawn(move || replies::receive(&wire, &pending))?
        };
        Ok(Self {
            wire,
            pending,
            sending: Mutex::default(),
            context_ids: agreed.contexts.iter().map(|(id, _)| *id).collect(),
            structured: agreed.structured,
            agreed,
            timeout: options.timeout,
            receiver: Some(receiver),
        })
    }

    /// The exports that a server lists.
    pub fn list(address: &Address<'_>, options: &Options) -> Result<Vec<Listed>, ClientError> {
        let wire = connect::open(address, TICK)?;
        Greeted::new(&wire, options.timeout, connect::tls_of(address)?)?.list()
    }

    /// Ends the connection when it is told to. Answers have no time limit: a slow disk is no
    /// error.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.wire.clone())
    }

    /// Bytes of the export.
    pub fn size(&self) -> u64 {
        self.agreed.size
    }

    /// The transmission flags as the server sent them, of
    /// [`codec::transmission`](crate::codec::transmission).
    pub fn flags(&self) -> u16 {
        self.agreed.flags
    }

    /// The same as abilities.
    pub fn abilities(&self) -> Abilities {
        let has = |flag| self.agreed.flags & flag != 0;
        Abilities {
            read_only: has(transmission::READ_ONLY),
            flush: has(transmission::SEND_FLUSH),
            fua: has(transmission::SEND_FUA),
            trim: has(transmission::SEND_TRIM),
            write_zeroes: has(transmission::SEND_WRITE_ZEROES),
            fast_zero: has(transmission::SEND_FAST_ZERO),
            cache: has(transmission::SEND_CACHE),
            multi_conn: has(transmission::CAN_MULTI_CONN),
            rotational: has(transmission::ROTATIONAL),
            sparse_reads: self.structured,
        }
    }

    /// Sizes of requests that the server told, or the default ones.
    pub fn block_sizes(&self) -> BlockSizes {
        self.agreed.sizes
    }

    /// A line for a person; may be empty.
    pub fn description(&self) -> &str {
        &self.agreed.description
    }

    /// Names of the contexts that were selected.
    pub fn contexts(&self) -> impl Iterator<Item = &str> {
        self.agreed.contexts.iter().map(|(_, name)| name.as_str())
    }

    /// Sends a request as it is, with `data` behind it. The handle is overwritten.
    ///
    /// This is how tests send requests that a server must refuse.
    pub fn submit(&self, mut request: Request, data: &[u8]) -> Result<Ticket, ClientError> {
        let expected = match request.command {
            Command::Read => Expected::Data { offset: request.offset, length: request.length },
            Command::BlockStatus => Expected::Extents { length: request.length, contexts: self.context_ids.clone() },
            _ => Expected::Nothing,
        };
        request.handle = self.pending.add(expected, self.structured)?;
        let stalled = |since| if since < self.timeout { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) };
        let sent = {
            let _sending = self.sending.lock();
            self.wire.write_all(&[&request.encode(), data], &stalled)
        };
        if let Err(error) = sent {
            // Half a request may have been sent.
            self.pending.fail(&error.to_string());
            self.wire.close(false);
            return Err(error.into());
        }
        Ok(Ticket(request.handle))
    }

    /// Waits for the answer to a request: data of a read, extents of a block status by context.
    fn answer(&self, ticket: Ticket) -> Result<Answer, ClientError> {
        self.pending.wait(ticket.0)
    }

    /// Waits for the answer to a request, and gives the data of a read; empty for others.
    pub fn wait(&self, ticket: Ticket) -> Result<Vec<u8>, ClientError> {
        Ok(self.answer(ticket)?.data)
    }

    fn request(command: Command, flags: u16, offset: u64, length: u32) -> Request {
        Request { flags, command, handle: 0, offset, length }
    }

    fn call(&self, command: Command, flags: u16, offset: u64, length: u32) -> Result<(), ClientError> {
        let ticket = self.submit(Self::request(command, flags, offset, length), &[])?;
        self.wait(ticket).map(drop)
    }

    /// Begins to read.
    pub fn submit_read(&self, offset: u64, length: u32) -> Result<Ticket, ClientError> {
        self.submit(Self::request(Command::Read, 0, offset, length), &[])
    }

    /// Reads.
    pub fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, ClientError> {
        let ticket = self.submit_read(offset, length)?;
        self.wait(ticket)
    }

    /// Begins to write.
    pub fn submit_write(&self, offset: u64, data: &[u8], fua: bool) -> Result<Ticket, ClientError> {
        let flags = if fua { flag::FUA } else { 0 };
        let length = u32::try_from(data.len()).map_err(|_| Malformed("a write of more than 4 GiB"))?;
        self.submit(Self::request(Command::Write, flags, offset, length), data)
    }

    /// Writes.
    pub fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ClientError> {
        let ticket = self.submit_write(offset, data, fua)?;
        self.wait(ticket).map(drop)
    }

    /// Makes durable what was written and answered before.
    pub fn flush(&self) -> Result<(), ClientError> {
        self.call(Command::Flush, 0, 0, 0)
    }

    /// Says that a range is no longer needed.
    pub fn trim(&self, offset: u64, length: u32) -> Result<(), ClientError> {
        self.call(Command::Trim, 0, offset, length)
    }

    /// Writes zeroes; with `fast`, only if that is faster than a write.
    pub fn write_zeroes(&self, offset: u64, length: u32, no_hole: bool, fast: bool) -> Result<(), ClientError> {
        let flags = if no_hole { flag::NO_HOLE } else { 0 } | if fast { flag::FAST_ZERO } else { 0 };
        self.call(Command::WriteZeroes, flags, offset, length)
    }

    /// Says that a range will be read soon.
    pub fn cache(&self, offset: u64, length: u32) -> Result<(), ClientError> {
        self.call(Command::Cache, 0, offset, length)
    }

    /// What a selected context says of a range. The extents may end before or behind it; at least
    /// one byte of it is covered.
    pub fn block_status(&self, context: &str, offset: u64, length: u32) -> Result<Vec<Extent>, ClientError> {
        let known = self.agreed.contexts.iter().find(|(_, name)| name == context);
        let (id, _) = known.ok_or_else(|| ClientError::Option(format!("{context} was not selected")))?;
        let ticket = self.submit(Self::request(Command::BlockStatus, 0, offset, length), &[])?;
        let mut found = self.answer(ticket)?.extents;
        let at = found.iter().position(|(context, _)| context == id);
        Ok(found.swap_remove(at.ok_or(Malformed("the server left a context out"))?).1)
    }
}

impl Drop for Client {
    /// Tells the server, and closes the connection.
    fn drop(&mut self) {
        let goodbye = Self::request(Command::Disconnect, 0, 0, 0).encode();
        let now = |_| Err(io::ErrorKind::TimedOut.into());
        if self.wire.write_all(&[&goodbye], &now).is_ok() {
            self.wire.close(true);
        } else {
            self.wire.close(false);
        }
        if let Some(receiver) = self.receiver.take() {
            // It only stores answers, and nobody waits for them any more.
            let _ = receiver.join();
        }
    }
}

//! Connections to the server: processes with an SFTP session on their pipes.
//!
//! A session has many requests under way. A second connection is only opened when the first is
//! busy, so a short command connects once. A connection is retired after a failure of its own, and
//! after a request that was abandoned: the server may still be busy with it.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader};
use std::pin::Pin;
use std::process::{Child, ChildStderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use russh_sftp::client::RawSftpSession;
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::client::rawsession::Limits;
use russh_sftp::protocol::{Handle, StatusCode};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::command::Connecting;
use super::failure::Failure;

/// Pieces of large bodies under way on one connection: 1 MiB, so that small requests do not wait
/// behind more than that on a slow line.
pub(super) const PIECES: usize = 8;

/// The largest piece, in bytes.
const PIECE_MAX: u64 = 128 << 10;

/// Bodies up to this size, in bytes, do not wait behind large ones.
pub(super) const SMALL: u64 = 64 << 10;

/// Handles open on one connection. Numbers from 128 on are no UTF-8 in the four bytes that OpenSSH
/// sends, and the library would change them.
const HANDLES: usize = 100;

/// How long no further connection is tried after one was refused.
const REFUSED: Duration = Duration::from_secs(60);

/// The piece of a server that names no limits, in bytes. All must take packets of 34,000 bytes.
const PIECE_DEFAULT: u64 = 32 << 10;

/// Requests under way on a connection above which another one is opened.
const BUSY: usize = 4;

/// Seconds for a request. The layer above ends attempts much sooner; this only bounds what is left.
const REQUEST_SECONDS: u64 = 24 * 3600;

/// How long a process that failed may take to say why.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long answers that were received before the end may take to be handed over.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Lines of the process that are kept for messages, and the bytes of a line.
const LINES: usize = 4;
const LINE_MAX: usize = 300;

/// All connections to one server.
#[derive(Debug)]
pub(super) struct Pool {
    command: Connecting,
    host: String,
    slots: Vec<tokio::sync::Mutex<Option<Arc<Connection>>>>,
    /// Whether there was ever a connection. Until then only one is tried: SSH may ask for a
    /// password.
    has_connected: AtomicBool,
    /// When a further connection was tried last and could not be opened.
    refused: Mutex<Option<Instant>>,
    /// Whether old staging files were looked for.
    pub(super) has_swept: AtomicBool,
}

impl Pool {
    pub(super) fn new(command: Connecting, host: String, connections: usize) -> Self {
        let slots = (0..connections.max(1)).map(|_| tokio::sync::Mutex::default()).collect();
        Self {
            command,
            host,
            slots,
            has_connected: AtomicBool::new(false),
            refused: Mutex::default(),
            has_swept: AtomicBool::new(false),
        }
    }

    /// A connection for one request: a sound one that is not busy, or a new one, or the least busy.
    ///
    /// A connection that cannot be opened is no failure while another one is sound: a server may
    /// limit sessions, or a login may need a person.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, Failure> {
        let mut refused = None;
        if self.has_connected.load(Ordering::Acquire) {
            let mut least: Option<Arc<Connection>> = None;
            let mut free = None;
            for slot in &self.slots {
                // Somebody is connecting there, or looks at it as we do.
                let Ok(slot) = slot.try_lock() else { continue };
                match slot.as_ref().filter(|connection| connection.is_sound()) {
                    Some(connection) if connection.load() < BUSY => return Ok(connection.clone()),
                    Some(connection) if least.as_ref().is_none_or(|least| connection.load() < least.load()) => {
                        least = Some(connection.clone());
                    }
                    Some(_) => {}
                    None => free = free.or(Some(slot)),
                }
            }
            if let (Some(mut slot), true) = (free, least.is_none() || self.may_open_more()) {
                // Before the attempt, because one that hangs is dropped with its request.
                *self.refused.lock() = Some(Instant::now());
                match self.connect(false).await {
                    Ok(connection) => {
                        *self.refused.lock() = None;
                        return Ok(slot.insert(connection).clone());
                    }
                    Err(failure) => {
                        tracing::warn!(?failure, "no further connection");
                        refused = Some(failure);
                    }
                }
            }
            if let Some(least) = least {
                return Ok(least);
            }
        }
        let mut first = self.slots[0].lock().await;
        match first.as_ref().filter(|connection| connection.is_sound()) {
            Some(connection) => Ok(connection.clone()),
            None => {
                if let Some(failure) = refused {
                    return Err(failure);
                }
                let is_first = !self.has_connected.load(Ordering::Acquire);
                let connection = first.insert(self.connect(is_first).await?).clone();
                self.has_connected.store(true, Ordering::Release);
                Ok(connection)
            }
        }
    }

    /// Whether a further connection is worth a try.
    fn may_open_more(&self) -> bool {
        self.refused.lock().is_none_or(|refused| refused.elapsed() > REFUSED)
    }

    async fn connect(&self, is_first: bool) -> Result<Arc<Connection>, Failure> {
        tracing::debug!(command = %self.command, "connecting");
        let mut process =
            Process(self.command.start(is_first).map_err(|error| Failure::no_start(&self.command, &error))?);
        let heard = Arc::new(Heard::default());
        if let Some(stderr) = process.0.stderr.take() {
            let heard = heard.clone();
            std::thread::spawn(move || heard.listen(stderr));
        }
        let (stdin, stdout) = (process.0.stdin.take(), process.0.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else { unreachable!("both are pipes") };
        let pipes = pipe::Sender::from_owned_fd(stdin.into())
            .and_then(|to| Ok((pipe::Receiver::from_owned_fd(stdout.into())?, to)));
        let (from, to) = pipes.map_err(|error| Failure::no_start(&self.command, &error))?;
        let config = russh_sftp::client::Config {
            max_packet_len: 1 << 20,
            request_timeout_secs: REQUEST_SECONDS,
            ..russh_sftp::client::Config::default()
        };
        let (ended, has_ended) = watch::channel(false);
        let from = UntilItEnds { from, ended };
        let mut session = RawSftpSession::new_with_config(tokio::io::join(from, to), config);
        let extensions = match session.init().await {
            Ok(version) => version.extensions,
            Err(error) => {
                heard.wait(LAST_WORDS).await;
                let ended = process.0.try_wait().ok().flatten();
                return Err(Failure::no_connection(&self.host, is_first, ended, &error, &heard.said()));
            }
        };
        let limits = match extensions.contains_key("limits@openssh.com") {
            true => session.limits().await.map(Limits::from).unwrap_or_default(),
            false => Limits::default(),
        };
        // The library would refuse what is over the limits; pieces are cut below them.
        session.set_limits(Limits { open_handles: None, ..limits });
        let piece = |limit: Option<u64>| limit.unwrap_or(PIECE_DEFAULT).clamp(1 << 10, PIECE_MAX);
        Ok(Arc::new(Connection {
            read_piece: piece(limits.read_len),
            write_piece: piece(limits.write_len),
            session,
            extensions,
            pieces: Semaphore::new(PIECES),
            handles: Semaphore::new(HANDLES),
            under_way: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
            has_ended,
            heard,
            host: self.host.clone(),
            _process: process,
        }))
    }
}

/// The stream from the server, which tells when it has ended. The library answers requests that it
/// has taken by then, but it may take one more just after, and would never answer that.
#[derive(Debug)]
struct UntilItEnds {
    from: pipe::Receiver,
    ended: watch::Sender<bool>,
}

impl AsyncRead for UntilItEnds {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = std::task::ready!(Pin::new(&mut self.from).poll_read(context, buffer));
        if read.is_err() || buffer.filled().len() == before {
            self.ended.send_replace(true);
        }
        Poll::Ready(read)
    }
}

/// A process that ends with its owner.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // A failure means that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The last lines that a process wrote to its standard error.
#[derive(Debug, Default)]
struct Heard {
    lines: Mutex<Vec<String>>,
    has_ended: AtomicBool,
}

impl Heard {
    /// Reads until the process ends.
    fn listen(&self, stderr: ChildStderr) {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let line: String = String::from_utf8_lossy(&line).trim().chars().take(LINE_MAX).collect();
            tracing::debug!(line, "said by the command that connects");
            if line.is_empty() {
                continue;
            }
            let mut lines = self.lines.lock();
            if lines.len() == LINES {
                lines.remove(0);
            }
            lines.push(line);
        }
        self.has_ended.store(true, Ordering::Release);
    }

    fn said(&self) -> String {
        self.lines.lock().join("; ")
    }

    /// Waits until the process has closed its standard error.
    async fn wait(&self, limit: Duration) {
        const STEP: Duration = Duration::from_millis(10);
        for _ in 0..limit.as_millis() / STEP.as_millis() {
            if self.has_ended.load(Ordering::Acquire) {
                return;
            }
            tokio::time::sleep(STEP).await;
        }
    }
}

/// One connection.
pub(super) struct Connection {
    pub(super) session: RawSftpSession,
    extensions: HashMap<String, String>,
    /// Bytes of a body that one request may ask for, and send.
    pub(super) read_piece: u64,
    pub(super) write_piece: u64,
    /// One permit for each piece under way.
    pub(super) pieces: Semaphore,
    /// One permit for each open handle.
    pub(super) handles: Semaphore,
    under_way: AtomicUsize,
    is_broken: AtomicBool,
    has_ended: watch::Receiver<bool>,
    heard: Arc<Heard>,
    host: String,
    _process: Process,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("host", &self.host)
            .field("is_broken", &self.is_broken)
            .finish_non_exhaustive()
    }
}

impl Connection {
    fn is_sound(&self) -> bool {
        !self.is_broken.load(Ordering::Acquire) && !*self.has_ended.borrow()
    }

    fn load(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Whether the server has an extension of the protocol.
    pub(super) fn has(&self, extension: &str) -> bool {
        self.extensions.contains_key(extension)
    }

    /// Counts a request, until it is dropped. One that is dropped before it is done retires the
    /// connection.
    pub(super) fn busy(&self) -> Busy<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Busy { connection: self, is_done: false }
    }

    /// Waits for an answer and sorts its failure.
    pub(super) async fn ask<T>(&self, answer: impl Future<Output = Result<T, SftpError>>) -> Result<T, Failure> {
        match self.answer(answer).await {
            Ok(answer) => Ok(answer),
            Err(SftpError::Status(status)) => Err(Failure::from(status)),
            Err(error) => {
                self.is_broken.store(true, Ordering::Release);
                self.heard.wait(Duration::from_millis(100)).await;
                Err(Failure::lost(&self.host, &error, &self.heard.said()))
            }
        }
    }

    /// The same for reading on in a file or folder; `None` at its end.
    pub(super) async fn ask_on<T>(
        &self,
        answer: impl Future<Output = Result<T, SftpError>>,
    ) -> Result<Option<T>, Failure> {
        let answer = async {
            match answer.await {
                Err(SftpError::Status(status)) if status.status_code == StatusCode::Eof => Ok(None),
                answer => answer.map(Some),
            }
        };
        self.ask(answer).await
    }

    /// Waits for a handle. One that the library has changed would name another file, or none.
    pub(super) async fn ask_handle(
        &self,
        answer: impl Future<Output = Result<Handle, SftpError>>,
    ) -> Result<String, Failure> {
        let handle = self.ask(answer).await?.handle;
        if handle.contains(char::REPLACEMENT_CHARACTER) { Err(Failure::odd_handle()) } else { Ok(handle) }
    }

    /// Waits for an answer, or for the end of the connection.
    async fn answer<T>(&self, answer: impl Future<Output = Result<T, SftpError>>) -> Result<T, SftpError> {
        let mut has_ended = self.has_ended.clone();
        let ended = async { has_ended.wait_for(|has_ended| *has_ended).await.is_ok() };
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            _ = ended => {
                let late = tokio::time::timeout(LAST_ANSWERS, answer).await;
                late.unwrap_or_else(|_| Err(SftpError::UnexpectedBehavior("it has ended".to_owned())))
            }
        }
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Busy<'a> {
    connection: &'a Connection,
    is_done: bool,
}

impl Busy<'_> {
    pub(super) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.connection.under_way.fetch_sub(1, Ordering::Relaxed);
        if !self.is_done {
            self.connection.is_broken.store(true, Ordering::Release);
        }
    }
}

//! A connection: a socket, and TLS over it once both sides agreed.
//!
//! One thread reads and one at a time writes. Both may do so at once. With TLS they share its
//! state, but neither holds it while it waits for the socket.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::Connection;

/// Bytes of TLS records that are read at once.
const CIPHERTEXT: usize = 32 << 10;
/// Bytes that become TLS records at once. More would need as much memory again.
const PLAINTEXT: usize = 256 << 10;
/// Buffers that one system call writes.
const SLICES: usize = 64;
/// Bytes that count as progress.
const PIECE: usize = 64 << 10;

/// Decides whether to wait on for the other side. It gets the time since the last piece of 64 KiB
/// went through; an error of it ends the attempt.
pub(crate) type Stalled<'a> = &'a dyn Fn(Duration) -> io::Result<()>;

/// Measures how fast bytes go through. One byte now and then is no progress.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    since: Option<Instant>,
    bytes: usize,
}

impl Pace {
    /// Some bytes went through, or none within a tick, and more are to come.
    pub(crate) fn moved(&mut self, bytes: usize, stalled: Stalled<'_>) -> io::Result<()> {
        self.bytes += bytes;
        if self.bytes >= PIECE {
            *self = Self::default();
        }
        stalled(self.since.get_or_insert_with(Instant::now).elapsed())
    }
}

/// A stream socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => (&mut &*stream).read(buffer),
            Self::Tcp(stream) => (&mut &*stream).read(buffer),
        }
    }

    /// Without a signal if the other side is gone, whatever the program does with `SIGPIPE`.
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut control = SendAncillaryBuffer::default();
        let sent = match self {
            Self::Unix(stream) => sendmsg(stream, slices, &mut control, SendFlags::NOSIGNAL),
            Self::Tcp(stream) => sendmsg(stream, slices, &mut control, SendFlags::NOSIGNAL),
        };
        Ok(sent?)
    }

    fn shut(&self, how: Shutdown) {
        // It fails only if the other side was faster.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(how),
            Self::Tcp(stream) => stream.shutdown(how),
        };
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(timeout),
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_write_timeout(timeout),
            Self::Tcp(stream) => stream.set_write_timeout(timeout),
        }
    }
}

/// TLS over the socket.
struct Tls {
    state: Mutex<Connection>,
    /// Only the reader uses it.
    incoming: Mutex<Incoming>,
}

/// Records that have arrived and are not decrypted.
struct Incoming {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Incoming {
    fn new() -> Self {
        Self { buffer: vec![0; CIPHERTEXT].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Reads from the socket once nothing is left.
    fn refill(&mut self, socket: &Socket) -> io::Result<usize> {
        (self.start, self.end) = (0, 0);
        self.end = socket.read(&mut self.buffer)?;
        Ok(self.end)
    }

    /// Gives the state some of what is left.
    fn feed(&mut self, state: &mut Connection) -> io::Result<()> {
        let mut records = &self.buffer[self.start..self.end];
        self.start += state.read_tls(&mut records)?;
        state.process_new_packets().map_err(invalid)?;
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// A connection.
pub(crate) struct Wire {
    socket: Socket,
    tls: OnceLock<Tls>,
    /// The time-out of reads that the socket has, in milliseconds; 0 for none.
    read_timeout: AtomicU64,
}

impl Wire {
    /// Writes that make no progress return after `tick`, so that the writer can decide whether to
    /// go on.
    pub(crate) fn new(socket: Socket, tick: Duration) -> io::Result<Self> {
        if let Socket::Tcp(stream) = &socket {
            stream.set_nodelay(true)?;
            rustix::net::sockopt::set_socket_keepalive(stream, true)?;
        }
        socket.set_write_timeout(Some(tick))?;
        socket.set_read_timeout(None)?;
        Ok(Self { socket, tls: OnceLock::new(), read_timeout: AtomicU64::new(0) })
    }

    /// Whether TLS is in use.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.get().is_some()
    }

    /// Sets how long [`Wire::read`] waits; `None` waits for ever.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let millis = timeout.map_or(0, |timeout| (timeout.as_millis() as u64).max(1));
        if self.read_timeout.swap(millis, Ordering::Relaxed) != millis {
            self.socket.set_read_timeout((millis > 0).then(|| Duration::from_millis(millis)))?;
        }
        Ok(())
    }

    /// Reads some bytes; 0 at the end. `WouldBlock` after the time-out of reads.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = self.tls.get() else { return self.socket.read(buffer) };
        let mut incoming = tls.incoming.lock();
        loop {
            {
                let mut state = tls.state.lock();
                match state.reader().read(buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // Without a closing alert: the requests say themselves where they end.
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                    done => return done,
                }
                if !incoming.is_empty() {
                    incoming.feed(&mut state)?;
                    continue;
                }
            }
            if incoming.refill(&self.socket)? == 0 {
                incoming.feed(&mut tls.state.lock())?;
            }
        }
    }

    /// Writes everything. While the other side takes it slowly, `stalled` is asked again and again.
    ///
    /// Only one thread may write at a time.
    pub(crate) fn write_all(&self, parts: &[&[u8]], stalled: Stalled<'_>) -> io::Result<()> {
        let Some(tls) = self.tls.get() else { return self.write_raw(parts, stalled) };
        for piece in parts.iter().flat_map(|part| part.chunks(PLAINTEXT)) {
            let mut records = Vec::with_capacity(piece.len() + 1024);
            {
                let mut state = tls.state.lock();
                state.writer().write_all(piece)?;
                while state.wants_write() {
                    state.write_tls(&mut records)?;
                }
            }
            self.write_raw(&[&records], stalled)?;
        }
        Ok(())
    }

    fn write_raw(&self, parts: &[&[u8]], stalled: Stalled<'_>) -> io::Result<()> {
        let mut pace = Pace::default();
        for group in parts.chunks(SLICES) {
            let mut slices = [IoSlice::new(&[]); SLICES];
            for (slice, part) in slices.iter_mut().zip(group) {
                *slice = IoSlice::new(part);
            }
            let mut left = &mut slices[..group.len()];
            IoSlice::advance_slices(&mut left, 0);
            while !left.is_empty() {
                match self.socket.write(left) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(count) => {
                        IoSlice::advance_slices(&mut left, count);
                        if !left.is_empty() {
                            pace.moved(count, stalled)?;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => pace.moved(0, stalled)?,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Makes the handshake and uses TLS from then on. `late` is asked after each time-out.
    pub(crate) fn start_tls(&self, mut state: Connection, late: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
        // One call writes far more than this; the limit of `rustls` would cut it.
        state.set_buffer_limit(None);
        let mut incoming = Incoming::new();
        while state.is_handshaking() {
            self.write_records(&mut state, late)?;
            if !state.is_handshaking() {
                break;
            }
            if incoming.is_empty() {
                match incoming.refill(&self.socket) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => late()?,
                    Err(error) => return Err(error),
                }
            } else if let Err(error) = incoming.feed(&mut state) {
                self.tell(&mut state);
                return Err(error);
            }
        }
        self.write_records(&mut state, late)?;
        let tls = Tls { state: Mutex::new(state), incoming: Mutex::new(incoming) };
        self.tls.set(tls).map_err(|_| io::Error::other("TLS was started twice"))
    }

    fn write_records(&self, state: &mut Connection, late: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
        let mut records = Vec::new();
        while state.wants_write() {
            state.write_tls(&mut records)?;
        }
        self.write_raw(&[&records], &|_| late())
    }

    /// Sends the alert that says why the handshake failed, if the other side takes it at once.
    fn tell(&self, state: &mut Connection) {
        let mut records = Vec::new();
        while state.wants_write() && state.write_tls(&mut records).is_ok() {}
        let _ = self.write_raw(&[&records], &|_| Err(ErrorKind::TimedOut.into()));
    }

    /// Ends reading: the reader gets what has already arrived, and then the end.
    pub(crate) fn stop_reading(&self) {
        self.socket.shut(Shutdown::Read);
    }

    /// Ends the connection for both sides. With `politely`, TLS says so first; then no other
    /// thread may be writing.
    pub(crate) fn close(&self, politely: bool) {
        if politely && let Some(tls) = self.tls.get() {
            let mut state = tls.state.lock();
            state.send_close_notify();
            self.tell(&mut state);
        }
        self.socket.shut(Shutdown::Both);
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

//! [`Acceptor`]: serves small requests of other programs, each connection on a thread of its own.
//!
//! The control socket and the metrics of `volume serve` use it. Connections are few and short, so
//! a thread for each is cheap. A drop closes all of them, and waits for their threads.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// After an error of accepting, such as too many open files, it waits so long.
const AFTER_ERROR: Duration = Duration::from_millis(200);

/// Where connections come in.
#[derive(Debug)]
pub(in crate::commands) enum Door {
    Unix(UnixDoor),
    Tcp(TcpListener),
}

/// A socket file. It goes when this is dropped.
#[derive(Debug)]
pub(in crate::commands) struct UnixDoor {
    listener: UnixListener,
    path: PathBuf,
    file: (u64, u64),
}

/// A connection.
#[derive(Debug)]
pub(in crate::commands) enum Connection {
    Unix(UnixStream),
    Tcp(TcpStream),
    /// Somebody else has it now.
    Gone,
}

/// Accepts connections until it is dropped.
#[derive(Debug)]
pub(in crate::commands) struct Acceptor {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// What is done with a connection when all are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum WhenFull {
    /// It is closed.
    Refuse,
    /// The oldest one is closed in its place. For requests that take no time to answer: a client
    /// that connects and says nothing must not keep others away.
    CloseOldest,
}

/// What serves one connection.
pub(in crate::commands) type Serve = Arc<dyn Fn(&mut Connection) + Send + Sync>;

impl Door {
    /// A socket with mode 0600 in a folder. Nobody else may listen there: an old file is removed.
    /// Anything but a socket is an error.
    pub(in crate::commands) fn unix(folder: &Path, name: &str) -> io::Result<Self> {
        let path = folder.join(name);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(found) if found.file_type().is_socket() => fs::remove_file(&path)?,
            Ok(_) => {
                let message = format!("{} exists and is no socket", path.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
            }
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        within(folder, name, |short| {
            rustix::net::bind(&socket, &SocketAddrUnix::new(short)?)?;
            Ok(rustix::fs::chmod(short, Mode::RUSR | Mode::WUSR)?)
        })?;
        let found = fs::symlink_metadata(&path)?;
        // Nobody can connect before this.
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self::Unix(UnixDoor { listener: socket.into(), path, file: (found.dev(), found.ino()) }))
    }

    /// An address.
    pub(in crate::commands) fn tcp(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    /// The address of a TCP door, in which port 0 became a real one.
    pub(in crate::commands) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    /// The next connection. `None` once `stop` has something to read.
    fn accept(&self, stop: &UnixStream) -> io::Result<Option<Connection>> {
        loop {
            let listener = match self {
                Self::Unix(door) => door.listener.as_fd(),
                Self::Tcp(listener) => listener.as_fd(),
            };
            let mut polled = [PollFd::from_borrowed_fd(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            match poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => continue,
                result => result?,
            };
            if !polled[1].revents().is_empty() {
                return Ok(None);
            }
            let accepted = match self {
                Self::Unix(door) => door.listener.accept().and_then(|(stream, _)| {
                    stream.set_nonblocking(false)?;
                    Ok(Connection::Unix(stream))
                }),
                Self::Tcp(listener) => listener.accept().and_then(|(stream, _)| {
                    stream.set_nonblocking(false)?;
                    Ok(Connection::Tcp(stream))
                }),
            };
            match accepted {
                Err(error) if is_passing(&error) => {}
                accepted => return accepted.map(Some),
            }
        }
    }
}

/// Whether an error of accepting concerns a connection that is gone already.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted)
}

impl Drop for UnixDoor {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            // What stays is replaced by the next server.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Calls something with a short path of a file: the address of a socket has 107 bytes at most.
pub(in crate::commands) fn within<T>(
    folder: &Path,
    name: &str,
    act: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let folder = fs::File::open(folder)?;
    act(&PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())))
}

impl Connection {
    /// Gives a Unix connection to somebody else: it stays open when this value ends.
    pub(in crate::commands) fn hand_over(&mut self) -> Option<UnixStream> {
        match std::mem::replace(self, Self::Gone) {
            Self::Unix(stream) => Some(stream),
            other => {
                *self = other;
                None
            }
        }
    }

    /// The same connection again.
    fn again(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Gone => Self::Gone,
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
        })
    }

    fn close(&self) {
        // The other side may have closed it.
        drop(match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Gone => Ok(()),
        });
    }

    /// Reads and writes fail when the other side does nothing for this time.
    pub(in crate::commands) fn limit(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(Some(time)).and(stream.set_write_timeout(Some(time))),
            Self::Tcp(stream) => stream.set_read_timeout(Some(time)).and(stream.set_write_timeout(Some(time))),
            Self::Gone => Ok(()),
        }
    }

    /// Appends bytes to a buffer until `is_whole` says so. `false`: the other side ended before the
    /// first byte. It is an error if there are more than `most` bytes, or if the first byte takes
    /// longer than `idle`, or all of them `whole`.
    pub(in crate::commands) fn read_until(
        &mut self,
        buffer: &mut Vec<u8>,
        most: usize,
        (idle, whole): (Duration, Duration),
        is_whole: impl Fn(&[u8]) -> bool,
    ) -> io::Result<bool> {
        let mut end = Instant::now() + if buffer.is_empty() { idle } else { whole };
        let mut part = [0; 4096];
        while !is_whole(buffer) {
            if buffer.len() > most {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a request is too long"));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.limit(left)?;
            let count = match self.read(&mut part) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            match count {
                0 if buffer.is_empty() => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
            if buffer.is_empty() {
                end = Instant::now() + whole;
            }
            buffer.extend_from_slice(&part[..count]);
        }
        Ok(true)
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
            Self::Gone => Ok(0),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
            Self::Gone => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Acceptor {
    /// Serves connections, at most `most` at once.
    pub(in crate::commands) fn start(
        door: Door,
        name: &str,
        (most, when_full): (usize, WhenFull),
        serve: Serve,
    ) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let thread_name = name.to_owned();
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || accept(&door, &stopped, &thread_name, (most, when_full), &serve))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing that could be lost by a panic.
            drop(thread.join());
        }
    }
}

fn accept(door: &Door, stopped: &UnixStream, name: &str, (most, when_full): (usize, WhenFull), serve: &Serve) {
    let mut running: Vec<(Connection, JoinHandle<()>)> = Vec::new();
    loop {
        let accepted = door.accept(stopped);
        running.retain(|(_, thread)| !thread.is_finished());
        let mut connection = match accepted {
            Ok(None) => break,
            Ok(Some(connection)) => connection,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                thread::sleep(AFTER_ERROR);
                continue;
            }
        };
        if running.len() >= most {
            match when_full {
                WhenFull::Refuse => continue,
                WhenFull::CloseOldest => {
                    let (oldest, thread) = running.remove(0);
                    oldest.close();
                    // Its read or write ends at once.
                    drop(thread.join());
                }
            }
        }
        let serve = serve.clone();
        let spawned = connection.again().and_then(|again| {
            let thread = thread::Builder::new().name(name.to_owned());
            let serve = move || {
                serve(&mut connection);
                // The other copy of it stays until the next connection comes.
                connection.close();
            };
            Ok((again, thread.spawn(serve)?))
        });
        match spawned {
            Ok(found) => running.push(found),
            Err(error) => tracing::warn!("cannot serve a connection: {error}"),
        }
    }
    for (connection, _) in &running {
        connection.close();
    }
    for (_, thread) in running {
        drop(thread.join());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo() -> Serve {
        Arc::new(|connection| {
            let mut line = Vec::new();
            let limits = (Duration::from_millis(300), Duration::from_millis(300));
            while connection.read_until(&mut line, 100, limits, |bytes| bytes.contains(&b'\n')).is_ok_and(|more| more) {
                drop(connection.write_all(&line));
                line.clear();
            }
        })
    }

    #[test]
    fn connections_are_served_and_end_with_the_acceptor() {
        let folder = tempfile::tempdir().expect("a folder");
        // Longer than an address of a socket can be.
        let deep = folder.path().join("x".repeat(120));
        fs::create_dir(&deep).expect("a folder");
        let door = Door::unix(&deep, "door").expect("a door");
        assert_eq!(fs::metadata(deep.join("door")).expect("a file").mode() & 0o777, 0o600);
        let acceptor = Acceptor::start(door, "test", (2, WhenFull::Refuse), echo()).expect("it starts");
        let connect = || within(&deep, "door", |path| UnixStream::connect(path)).expect("it listens");
        let mut first = connect();
        first.write_all(b"hello\n").expect("sent");
        let mut found = [0; 6];
        first.read_exact(&mut found).expect("echoed");
        assert_eq!(&found, b"hello\n");
        // Too long, and silent: both are closed.
        let mut long = connect();
        long.write_all(&[b'x'; 5000]).expect("sent");
        assert!(!matches!(long.read(&mut found), Ok(1..)));
        assert!(!matches!(first.read(&mut found), Ok(1..)));
        let mut open = connect();
        drop(acceptor);
        assert!(!matches!(open.read(&mut found), Ok(1..)));
        assert!(!deep.join("door").exists());
    }

    #[test]
    fn an_old_socket_is_replaced_and_other_files_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(UnixListener::bind(folder.path().join("door")).expect("bound"));
        drop(Door::unix(folder.path(), "door").expect("replaced"));
        fs::write(folder.path().join("door"), "mine").expect("written");
        assert_eq!(Door::unix(folder.path(), "door").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}

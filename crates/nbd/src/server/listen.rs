//! Sockets that a server listens on, and the thread that accepts.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::wire::Socket;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// How often a locked folder is tried again, and the pause before each: 2 s in all.
const LOCK_ATTEMPTS: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A socket that accepts connections. A Unix socket's file goes when this is dropped.
pub(super) enum Listener {
    Unix { listener: UnixListener, path: PathBuf, file: (u64, u64) },
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on a path. The file has mode 0600 before anybody can connect. The file of a dead
    /// server is replaced. That of a living one, and any file that is no socket, is an error.
    pub(super) fn unix(path: &Path) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Of two servers that find a dead one's file, the second one waits here for the first.
        let _guard = lock(folder)?;
        remove_dead(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let found = fs::symlink_metadata(path)?;
        let file = (found.dev(), found.ino());
        Ok(Self::Unix { listener: socket.into(), path: path.to_owned(), file })
    }

    pub(super) fn tcp(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    /// The address of a TCP listener.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix { .. } => None,
            Self::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    /// The next connection. `None` once `stop` has something to read.
    pub(super) fn accept(&self, stop: &UnixStream) -> io::Result<Option<Socket>> {
        loop {
            let mut polled = match self {
                Self::Unix { listener, .. } => [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)],
                Self::Tcp(listener) => [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)],
            };
            match poll(&mut polled, None) {
                Err(Errno::INTR) => continue,
                result => result?,
            };
            if !polled[1].revents().is_empty() {
                return Ok(None);
            }
            let accepted = match self {
                Self::Unix { listener, .. } => listener.accept().and_then(|(stream, _)| {
                    stream.set_nonblocking(false)?;
                    Ok(Socket::Unix(stream))
                }),
                Self::Tcp(listener) => listener.accept().and_then(|(stream, _)| {
                    stream.set_nonblocking(false)?;
                    Ok(Socket::Tcp(stream))
                }),
            };
            match accepted {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // The client left before it was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                accepted => return accepted.map(Some),
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix { path, file, .. } = self
            && fs::symlink_metadata(&*path).is_ok_and(|found| (found.dev(), found.ino()) == *file)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Locks a folder against other servers that start. Any user who can read the folder can hold this
/// lock, so the wait is bounded.
fn lock(folder: &Path) -> io::Result<fs::File> {
    let guard = fs::File::open(folder)?;
    let mut attempts = 0;
    loop {
        match rustix::fs::flock(&guard, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if attempts < LOCK_ATTEMPTS => {
                attempts += 1;
                thread::sleep(LOCK_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => {
                let message = format!("another program holds a lock of the folder {}", folder.display());
                return Err(io::Error::new(ErrorKind::AddrInUse, message));
            }
            Err(Errno::INTR) => {}
            result => {
                result?;
                return Ok(guard);
            }
        }
    }
}

fn remove_dead(path: &Path) -> io::Result<()> {
    let in_use = |message: &str| Err(io::Error::new(ErrorKind::AddrInUse, format!("{}: {message}", path.display())));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => return in_use("there is a file that is no socket"),
        Ok(_) => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        // The second one: it has no time to accept, so it lives.
        Ok(()) | Err(Errno::AGAIN) => in_use("another server listens here"),
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Err(error) => Err(error.into()),
    }
}

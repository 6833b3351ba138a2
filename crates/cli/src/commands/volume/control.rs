//! `STORE/control`: the socket by which other commands reach the server of a store.
//!
//! One line of JSON is a request, and one is its answer (`request.rs`). Lines with parts of the
//! answer may be before it. After the answer to `attach`, the connection speaks NBD. The socket has
//! mode 0600, so only the server's user and root reach it, and they need no password. The server
//! holds the lock of the store, so an old socket is of a process that ended.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_nbd::client;
use serde_json::{Value, json};

use super::request::{Parts, Reply, Request};
use crate::commands::acceptor::{Acceptor, Connection, Door, WhenFull, within};
use crate::exit::Exit;
use crate::failure::Failure;

/// Its name in the store.
pub(super) const NAME: &str = "control";
/// Longest request.
const LINE_MAX: usize = 64 << 10;
/// Longest answer: a list of all volumes that a store can have.
const ANSWER_MAX: u64 = 256 << 20;
/// A client that says nothing is closed after this time.
const IDLE: Duration = Duration::from_secs(60);
/// Time for a request once it has begun, and for taking the answer.
const WHOLE: Duration = Duration::from_secs(10);
/// Clients at once.
const CLIENTS: usize = 16;

/// What answers requests.
pub(super) type Answer = Arc<dyn Fn(&Request, Parts<'_>) -> Result<Value, Failure> + Send + Sync>;
/// What speaks NBD on a connection.
pub(super) type Attach = Arc<dyn Fn(UnixStream) -> io::Result<()> + Send + Sync>;

/// Listens in a store until the value is dropped.
pub(super) fn listen(store: &Path, answer: Answer, attach: Attach) -> Result<Acceptor, Failure> {
    let failed = |error: io::Error| {
        Failure::of(Exit::Failed, &error).while_doing(&format!("cannot listen on {}", store.join(NAME).display()))
    };
    let door = Door::unix(store, NAME).map_err(failed)?;
    let serve = Arc::new(move |connection: &mut Connection| {
        if let Err(error) = converse(connection, &answer, &attach) {
            tracing::debug!("a client of the control socket ended: {error}");
        }
    });
    Acceptor::start(door, "control", (CLIENTS, WhenFull::Refuse), serve).map_err(failed)
}

fn converse(connection: &mut Connection, answer: &Answer, attach: &Attach) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let read = connection.read_until(&mut buffer, LINE_MAX, (IDLE, WHOLE), |bytes| bytes.contains(&b'\n'));
        let reply = match read {
            Ok(false) => return Ok(()),
            Ok(true) => {
                let end = buffer.iter().position(|byte| *byte == b'\n').unwrap_or(buffer.len());
                let rest = buffer.split_off((end + 1).min(buffer.len()));
                let line = std::mem::replace(&mut buffer, rest);
                match serde_json::from_slice::<Request>(&line) {
                    Ok(Request::Attach) => {
                        send(connection, &Reply::Ok(json!({})))?;
                        return connection.hand_over().map_or(Ok(()), |stream| attach(stream));
                    }
                    Ok(request) => Reply::from(answer(&request, &mut |part| {
                        send(connection, &Reply::Part(part)).map_err(|_| Failure::new(Exit::Failed, "nobody waits"))
                    })),
                    Err(error) => Reply::from(Err(Failure::usage(format!("this is no request: {error}")))),
                }
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                let reply = Reply::from(Err(Failure::usage("a request is too long")));
                send(connection, &reply)?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        send(connection, &reply)?;
    }
}

fn send(connection: &mut Connection, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    connection.limit(WHOLE)?;
    connection.write_all(&line)
}

/// A connection to the server of a store.
#[derive(Debug)]
pub(super) struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects. `None`: the store is not served.
    pub(super) fn connect(store: &Path) -> Result<Option<Self>, Failure> {
        match within(store, NAME, |path| UnixStream::connect(path)) {
            Ok(stream) => Ok(Some(Self(BufReader::new(stream)))),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
            // The store itself says what is wrong with its folder.
            Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(None),
            Err(error) => {
                let what = format!("cannot reach the server of {}", store.display());
                Err(Failure::of(Exit::Failed, &error).while_doing(&what))
            }
        }
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Value, Failure> {
        self.ask_parts(request, &mut |_| Ok(()))
    }

    /// The same for an answer with parts. An error of `parts` ends the wait.
    pub(super) fn ask_parts(&mut self, request: &Request, parts: Parts<'_>) -> Result<Value, Failure> {
        write(self.0.get_mut(), request)?;
        loop {
            let mut line = Vec::new();
            (&mut self.0).take(ANSWER_MAX).read_until(b'\n', &mut line).map_err(failed)?;
            match read(&line)? {
                Reply::Part(part) => parts(part)?,
                reply => return reply.into(),
            }
        }
    }

    /// Something that can end the connection while it waits for an answer.
    pub(super) fn closing(&self) -> Result<UnixStream, Failure> {
        self.0.get_ref().try_clone().map_err(failed)
    }

    /// Connects to the server of a store, and uses one of its exports.
    pub(super) fn attach(store: &Path, options: &client::Options) -> Result<client::Client, Failure> {
        let Some(Self(stream)) = Self::connect(store)? else {
            return Err(failed(ErrorKind::UnexpectedEof.into()));
        };
        let mut stream = stream.into_inner();
        write(&mut stream, &Request::Attach)?;
        // Byte by byte: behind the line, the server speaks NBD.
        let (mut line, mut byte) = (Vec::new(), [0]);
        while line.last() != Some(&b'\n') && line.len() < LINE_MAX {
            stream.read_exact(&mut byte).map_err(failed)?;
            line.push(byte[0]);
        }
        Result::from(read(&line)?)?;
        client::Client::over_unix(stream, options)
            .map_err(|error| Failure::of(Exit::Failed, &error).while_doing("cannot use the server of the store"))
    }
}

fn failed(error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
            Failure::new(Exit::Failed, "the server of the store ended before it answered")
        }
        _ => Failure::of(Exit::Failed, &error).while_doing("cannot talk to the server of the store"),
    }
}

fn write(stream: &mut UnixStream, request: &Request) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(request).map_err(|error| failed(error.into()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(failed)
}

fn read(line: &[u8]) -> Result<Reply, Failure> {
    if line.last() != Some(&b'\n') {
        return Err(failed(ErrorKind::UnexpectedEof.into()));
    }
    serde_json::from_slice(line).map_err(|error| {
        Failure::new(Exit::Failed, format!("the server of the store answers something else: {error}"))
            .advise("the server may be of another version of larder")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_answered_and_harms_nobody() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Client::connect(folder.path()).expect("nothing listens").is_none());
        let answer: Answer = Arc::new(|request, parts| {
            parts(json!(1)).and_then(|()| parts(json!(2)))?;
            Ok(serde_json::to_value(request).expect("JSON"))
        });
        let device = Arc::new(larder_nbd::MemoryExport::new(1 << 20));
        let server = larder_nbd::Server::new(Arc::new(larder_nbd::Single::new("a", device)), Default::default());
        let attach: Attach = Arc::new(move |stream| server.serve_unix(stream));
        let acceptor = listen(folder.path(), answer, attach).expect("it listens");
        let mut random = 88_172_645_463_325_252u64;
        for round in 0..200 {
            let stream = UnixStream::connect(folder.path().join(NAME)).expect("it listens");
            let mut bytes = Vec::new();
            for _ in 0..round {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                bytes.extend_from_slice(match random % 5 {
                    0 => b"{\"verb\":",
                    1 => b"[[[[",
                    2 => b"\"list\"",
                    3 => b"\n",
                    _ => b"\0\xff",
                });
            }
            bytes.push(b'\n');
            drop((&stream).write_all(&bytes));
            drop(stream.shutdown(std::net::Shutdown::Write));
            for line in BufReader::new(&stream).split(b'\n') {
                let reply: Reply = serde_json::from_slice(&line.expect("a line")).expect("JSON");
                drop(Result::from(reply));
            }
        }
        let mut client = Client::connect(folder.path()).expect("a client").expect("it listens");
        assert_eq!(client.ask(&Request::List).expect("answered")["verb"], "list");
        let mut parts = Vec::new();
        let collect = &mut |part| {
            parts.push(part);
            Ok(())
        };
        assert_eq!(client.ask_parts(&Request::List, collect).expect("answered")["verb"], "list");
        assert_eq!(parts, [1, 2]);
        let attached = Client::attach(folder.path(), &client::Options::default()).expect("a device");
        attached.write(5, b"hello", false).expect("written");
        assert_eq!(attached.read(5, 5).expect("read"), b"hello");
        // Longer than a request can be.
        let long = Request::Create { name: "x".repeat(2 * LINE_MAX), size: 1 };
        assert_eq!(client.ask(&long).unwrap_err().exit, Exit::Usage);
        drop(acceptor);
        assert!(Client::connect(folder.path()).expect("nothing listens").is_none());
    }
}

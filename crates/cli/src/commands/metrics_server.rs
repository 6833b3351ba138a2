//! Metrics over HTTP, as Prometheus reads them: `GET /metrics`, and nothing else.
//!
//! A program with metrics gives a function that writes them. There is no authentication, so
//! metrics have no secrets: names and numbers only.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use crate::commands::acceptor::{Acceptor, Connection, Door, WhenFull};
use crate::exit::Exit;
use crate::failure::Failure;

/// Longest head of a request.
const HEAD_MAX: usize = 8 << 10;
/// Time for a request.
const TIME: Duration = Duration::from_secs(5);
/// Connections at once.
const CONNECTIONS: usize = 8;

/// Writes all metrics.
pub(in crate::commands) type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// A server of metrics. A drop ends it.
#[derive(Debug)]
pub(in crate::commands) struct MetricsServer {
    _acceptor: Acceptor,
    /// Where it listens.
    pub(in crate::commands) address: SocketAddr,
}

/// Reads the argument of `--metrics`.
pub(in crate::commands) fn parse_address(text: &str) -> Result<SocketAddr, Failure> {
    let wrong = || Failure::usage("--metrics takes HOST:PORT, such as 127.0.0.1:9810");
    text.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)
}

impl MetricsServer {
    /// Serves metrics on an address.
    pub(in crate::commands) fn start(address: SocketAddr, render: Render) -> Result<Self, Failure> {
        let failed =
            |error: io::Error| Failure::of(Exit::Failed, &error).while_doing(&format!("cannot listen on {address}"));
        let door = Door::tcp(address).map_err(failed)?;
        let address = door.address().unwrap_or(address);
        let serve = Arc::new(move |connection: &mut Connection| {
            if let Err(error) = answer(connection, &render) {
                tracing::debug!("a request for metrics failed: {error}");
            }
        });
        let acceptor = Acceptor::start(door, "metrics", (CONNECTIONS, WhenFull::CloseOldest), serve).map_err(failed)?;
        Ok(Self { _acceptor: acceptor, address })
    }
}

fn answer(connection: &mut Connection, render: &Render) -> io::Result<()> {
    let mut head = Vec::new();
    let is_whole = |bytes: &[u8]| bytes.windows(4).any(|part| part == b"\r\n\r\n");
    if !connection.read_until(&mut head, HEAD_MAX, (TIME, TIME), is_whole)? {
        return Ok(());
    }
    let (status, body) = match asked(&head) {
        Ok(()) => ("200 OK", render()),
        Err(status) => (status, format!("{status}\n")),
    };
    connection.limit(TIME)?;
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Whether a request asks for metrics; otherwise the status of the answer.
fn asked(head: &[u8]) -> Result<(), &'static str> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    match (words.next(), words.next(), words.next()) {
        (Some(b"GET"), Some(path), Some(version)) if version.starts_with(b"HTTP/1.") => {
            let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
            if path == b"/metrics" { Ok(()) } else { Err("404 Not Found") }
        }
        (Some(_), Some(_), Some(version)) if version.starts_with(b"HTTP/1.") => Err("405 Method Not Allowed"),
        _ => Err("400 Bad Request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpStream;

    #[test]
    fn only_metrics_are_served() {
        let render: Render = Arc::new(|| "larder_test 1\n".to_owned());
        let server = MetricsServer::start("127.0.0.1:0".parse().expect("an address"), render).expect("it starts");
        let ask = |request: &[u8]| {
            let mut stream = TcpStream::connect(server.address).expect("it listens");
            stream.write_all(request).expect("sent");
            let mut answer = String::new();
            drop(stream.read_to_string(&mut answer));
            answer
        };
        let found = ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(found.starts_with("HTTP/1.1 200 OK\r\n") && found.ends_with("\r\n\r\nlarder_test 1\n"), "{found}");
        assert!(ask(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(ask(b"\0\xff\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert_eq!(ask(&[b'x'; 10 << 10]), "");
    }

    #[test]
    fn silent_clients_do_not_keep_others_away() {
        let render: Render = Arc::new(|| "larder_test 1\n".to_owned());
        let server = MetricsServer::start("127.0.0.1:0".parse().expect("an address"), render).expect("it starts");
        let connect = || TcpStream::connect(server.address).expect("it listens");
        let _silent: Vec<_> = (0..3 * CONNECTIONS).map(|_| connect()).collect();
        let mut stream = connect();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
}

//! A link that is as slow as the paper's object store: what a server answers arrives late, and not faster than one stream may be.
//!
//! Every connection has its own rate, as streams of an object store have. What the client sends is not delayed.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::clock::Link;

const PART: usize = 64 << 10;
/// Parts on their way: what 30 ms hold at 90 MB/s, and some.
const PARTS: usize = 256;

/// See the module header. Lives until the process ends.
pub(crate) struct SlowLink {
    pub(crate) address: SocketAddr,
}

impl SlowLink {
    /// A link to `server`; without a limit on its rate when `link` has none.
    pub(crate) fn to(server: SocketAddr, link: Link) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        let address = listener.local_addr().context("no address")?;
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { continue };
                // Without its ends being copied a connection is dropped, and its client asks again.
                let _ = connect(client, server, link);
            }
        });
        Ok(Self { address })
    }
}

fn connect(client: TcpStream, server: TcpStream, link: Link) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let (parts, arriving) = sync_channel(PARTS);
    let mut from_server = server;
    std::thread::spawn(move || {
        let mut buffer = vec![0; PART];
        while let Ok(length @ 1..) = from_server.read(&mut buffer) {
            if parts.send((Instant::now(), buffer[..length].to_vec())).is_err() {
                break;
            }
        }
    });
    std::thread::spawn(move || deliver(client, &arriving, link));
    Ok(())
}

fn deliver(mut client: TcpStream, arriving: &Receiver<(Instant, Vec<u8>)>, link: Link) {
    let mut free = Instant::now();
    for (sent, part) in arriving {
        let begins = free.max(sent + Duration::from_secs_f64(link.latency));
        free = begins + Duration::from_secs_f64(part.len() as f64 / link.rate);
        std::thread::sleep(free.saturating_duration_since(Instant::now()));
        if client.write_all(&part).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the link keeps its two promises. Method: a server that sends a megabyte and closes; less than a lower bound is an error,
    /// longer is the machine's business.
    #[test]
    fn what_comes_through_is_late_and_whole() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let link = Link { latency: 0.05, rate: 10e6 };
        let slow = SlowLink::to(server.local_addr().expect("an address"), link).expect("a link");
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
        let sent = bytes.clone();
        std::thread::spawn(move || server.accept().expect("a client").0.write_all(&sent).expect("it listens"));
        let begun = Instant::now();
        let mut got = Vec::new();
        TcpStream::connect(slow.address).and_then(|mut client| client.read_to_end(&mut got)).expect("readable");
        assert!(got == bytes);
        assert!(begun.elapsed().as_secs_f64() >= 0.15);
    }
}

//! Recorded sessions: what a client and a server send when all goes well. Seeds of the fuzz
//! targets.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use larder_nbd::client::{Client, Options};
use larder_nbd::{BASE_ALLOCATION, Limits, MemoryExport, Server, Single};

/// Copies one direction, and keeps it.
fn pump(mut from: UnixStream, mut to: UnixStream) -> Vec<u8> {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count) = from.read(&mut buffer)
        && count > 0
    {
        kept.extend_from_slice(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    kept
}

/// A session: the bytes of the client and those of the server.
pub(crate) fn session(structured: bool) -> (Vec<u8>, Vec<u8>) {
    let server = Server::new(Arc::new(Single::new("disk", Arc::new(MemoryExport::new(200_000)))), Limits::default());
    let (client_end, near) = UnixStream::pair().expect("sockets");
    let (far, server_end) = UnixStream::pair().expect("sockets");
    server.serve_unix(server_end).expect("a thread");
    let clone = |stream: &UnixStream| stream.try_clone().expect("a descriptor");
    let (up, down) = ((clone(&near), clone(&far)), (far, near));
    let (up, down) = (thread::spawn(move || pump(up.0, up.1)), thread::spawn(move || pump(down.0, down.1)));
    let options = Options { contexts: vec![BASE_ALLOCATION.into()], structured, ..Options::default() };
    let client = Client::over_unix(client_end, &options).expect("a session");
    client.read(0, 1000).expect("zeroes");
    client.read(5, 70).expect("zeroes");
    let _ = client.block_status(BASE_ALLOCATION, 0, 1000);
    client.write(0, b"data", true).expect("room");
    client.write_zeroes(0, 5000, true, true).expect("room");
    client.trim(0, 5000).expect("room");
    client.cache(0, 5000).expect("it is there");
    client.flush().expect("memory");
    client.read(199_999, 2).expect_err("beyond the end");
    drop(client);
    let (sent, received) = (up.join().expect("a copy"), down.join().expect("a copy"));
    server.shutdown().expect("memory");
    (sent, received)
}

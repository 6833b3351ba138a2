//! Whole sessions with a peer that sends any bytes. Used by the tests and by the fuzz targets.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use larder_nbd::client::{Client, Options};
use larder_nbd::{BASE_ALLOCATION, Limits, MemoryExport, Server, Single};

/// Bytes of the device of a fuzzed session.
const SIZE: u64 = 200_000;

/// Longer inputs are cut, so that a socket takes everything at once.
const LONGEST: usize = 64 << 10;

/// Sockets, with these bytes and then the end on their way to the second one.
fn sockets(bytes: &[u8]) -> (UnixStream, UnixStream) {
    let (mut ours, theirs) = UnixStream::pair().expect("sockets");
    ours.write_all(&bytes[..bytes.len().min(LONGEST)]).expect("room");
    ours.shutdown(Shutdown::Write).expect("an open socket");
    (ours, theirs)
}

/// A server whose client sends these bytes and then nothing more.
pub fn server(bytes: &[u8]) {
    let limits = Limits { workers: 2, ..Limits::default() };
    let server = Server::new(Arc::new(Single::new("disk", Arc::new(MemoryExport::new(SIZE)))), limits);
    let (mut ours, theirs) = sockets(bytes);
    server.serve_unix(theirs).expect("a thread");
    // A reset is an end as well.
    let _ = std::io::copy(&mut ours, &mut std::io::sink());
    server.shutdown().expect("memory is flushed");
    assert_eq!(server.connections(), 0);
}

/// A client whose server sends these bytes and then nothing more.
pub fn client(bytes: &[u8]) {
    // The socket takes all requests, so nobody has to read them.
    let (_ours, theirs) = sockets(bytes);
    let options = Options { contexts: vec![BASE_ALLOCATION.into()], ..Options::default() };
    let Ok(client) = Client::over_unix(theirs, &options) else { return };
    let tickets = [client.submit_read(0, 1000), client.submit_read(5, 70)];
    for (ticket, length) in tickets.into_iter().zip([1000, 70]) {
        if let Ok(ticket) = ticket
            && let Ok(data) = client.wait(ticket)
        {
            assert_eq!(data.len(), length);
        }
    }
    if let Ok(extents) = client.block_status(BASE_ALLOCATION, 0, 1000) {
        assert!(!extents.is_empty() && extents.iter().all(|extent| extent.length > 0));
    }
    let _ = client.write(0, b"data", true);
    let _ = client.flush();
}

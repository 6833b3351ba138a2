//! Limits of a server.

use std::time::Duration;

/// Limits of a server. Together they bound its memory and its threads whatever clients do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. Further ones are closed at once. Each takes up to 256 KiB.
    pub connections: usize,
    /// Bytes of requests and replies in flight, of all connections together. At least twice
    /// [`Limits::request`].
    pub memory: usize,
    /// Longest read or write in bytes. At most 32 MiB.
    pub request: u32,
    /// Requests of one connection that are in flight. Further ones are not read from the socket.
    pub in_flight: usize,
    /// Threads that serve requests of one connection, beside the one that reads.
    pub workers: usize,
    /// Threads of all connections that serve requests. Beyond, the threads that read do so.
    pub all_workers: usize,
    /// Time in which a client must have chosen its export.
    pub negotiation: Duration,
    /// Options that a client may send before.
    pub options: u32,
    /// A client that neither takes replies nor sends the rest of a request is dropped after this.
    pub stalled: Duration,
    /// The same while others wait for memory, or the server shuts down.
    pub stalled_under_pressure: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            memory: 256 << 20,
            request: 32 << 20,
            in_flight: 64,
            workers: 16,
            all_workers: 512,
            negotiation: Duration::from_secs(10),
            options: 128,
            stalled: Duration::from_secs(60),
            stalled_under_pressure: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// The same limits, each brought to a value that works.
    pub(crate) fn sane(mut self) -> Self {
        self.connections = self.connections.max(1);
        self.request = self.request.clamp(64 << 10, 32 << 20);
        self.memory = self.memory.max(2 * self.request as usize);
        self.in_flight = self.in_flight.max(1);
        self.workers = self.workers.max(1);
        self.all_workers = self.all_workers.max(1);
        self
    }
}

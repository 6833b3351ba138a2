//! A client that sends bytes as a test wants them, and exports that a test controls.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use larder_nbd::codec::option::ClientOption;
use larder_nbd::codec::option_reply::{OPTION_REPLY_HEADER_LEN, OptionReply, OptionReplyHeader};
use larder_nbd::codec::request::{Command, Request};
use larder_nbd::{Abilities, Export, ExportError, Exports, Extent, Limits, Listed, MemoryExport, Server, Zeroing};
use parking_lot::{Condvar, Mutex};

pub(crate) const SIZE: u64 = 1 << 20;

/// Exports by name.
#[derive(Default)]
pub(crate) struct Named(pub(crate) HashMap<String, Arc<dyn Export>>);

impl Exports for Named {
    fn find(&self, name: &str) -> Result<Option<Arc<dyn Export>>, ExportError> {
        Ok(self.0.get(name).cloned())
    }

    fn list(&self) -> Vec<Listed> {
        let mut names: Vec<_> = self.0.keys().cloned().collect();
        names.sort();
        names.into_iter().map(|name| Listed { description: format!("of {name}"), name }).collect()
    }
}

/// A server of one export named `disk`.
pub(crate) fn server_of(export: Arc<dyn Export>, limits: Limits) -> Server {
    Server::new(Arc::new(Named(HashMap::from([("disk".to_owned(), export)]))), limits)
}

/// A server of a device in memory.
pub(crate) fn server() -> Server {
    server_of(Arc::new(MemoryExport::new(SIZE)), Limits::default())
}

/// A connection to the server.
pub(crate) fn connect(server: &Server) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    server.serve_unix(theirs).unwrap();
    ours
}

/// A client of bytes.
pub(crate) struct Raw(pub(crate) UnixStream);

impl Raw {
    /// Connected, and the greeting answered with these flags.
    pub(crate) fn new(server: &Server, flags: u32) -> Self {
        let mut raw = Self(connect(server));
        assert_eq!(raw.take(18), [b"NBDMAGIC", &b"IHAVEOPT"[..], &[0, 3]].concat());
        raw.send(&flags.to_be_bytes());
        raw
    }

    /// In transmission of `disk`, with or without structured replies and `base:allocation`.
    pub(crate) fn transmitting(server: &Server, structured: bool) -> Self {
        let mut raw = Self::new(server, 3);
        if structured {
            assert_eq!(raw.ask(&ClientOption::StructuredReply), [OptionReply::Ack]);
            let queries = vec!["base:allocation".to_owned()];
            let queries = larder_nbd::codec::option::Queries { name: "disk".into(), queries };
            raw.ask(&ClientOption::SetContexts(queries));
        }
        let wish = larder_nbd::codec::option::Wish { name: "disk".into(), infos: vec![] };
        assert_eq!(raw.ask(&ClientOption::Go(wish)).pop(), Some(OptionReply::Ack));
        raw
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Everything until the server closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset is an end as well: the server did not read everything that was sent.
        let _ = self.0.read_to_end(&mut bytes);
        bytes
    }

    pub(crate) fn option_reply(&mut self, option: u32) -> OptionReply {
        let header = self.take(OPTION_REPLY_HEADER_LEN);
        let header = OptionReplyHeader::decode(header[..].try_into().unwrap()).unwrap();
        assert_eq!(header.option, option);
        let data = self.take(header.length as usize);
        OptionReply::decode(header.kind, &data).unwrap()
    }

    /// An option with these bytes as its data, and its one reply.
    pub(crate) fn raw_option(&mut self, option: u32, data: &[u8]) -> OptionReply {
        self.send(b"IHAVEOPT");
        self.send(&option.to_be_bytes());
        self.send(&(data.len() as u32).to_be_bytes());
        self.send(data);
        self.option_reply(option)
    }

    /// All replies to an option.
    pub(crate) fn ask(&mut self, option: &ClientOption) -> Vec<OptionReply> {
        self.send(&option.encode());
        let mut replies = Vec::new();
        loop {
            let reply = self.option_reply(option.code());
            let last = matches!(reply, OptionReply::Ack | OptionReply::Refused(..));
            replies.push(reply);
            if last {
                return replies;
            }
        }
    }

    pub(crate) fn request(&mut self, command: Command, flags: u16, offset: u64, length: u32) {
        self.send(&Request { flags, command, handle: 77, offset, length }.encode());
    }

    /// A simple reply without data: its error.
    pub(crate) fn simple(&mut self) -> u32 {
        let reply = self.take(16);
        assert_eq!(reply[..4], 0x6744_6698_u32.to_be_bytes());
        assert_eq!(reply[8..], 77_u64.to_be_bytes());
        u32::from_be_bytes(reply[4..8].try_into().unwrap())
    }

    /// A chunk: flags, type and payload.
    pub(crate) fn chunk(&mut self) -> (u16, u16, Vec<u8>) {
        let header = self.take(20);
        assert_eq!(header[..4], 0x668e_33ef_u32.to_be_bytes());
        assert_eq!(header[8..16], 77_u64.to_be_bytes());
        let length = u32::from_be_bytes(header[16..].try_into().unwrap());
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        (number(4), number(6), self.take(length as usize))
    }

    /// A chunk that is an error and the last one: its number.
    pub(crate) fn error(&mut self) -> u32 {
        let (flags, kind, payload) = self.chunk();
        assert_eq!((flags, kind), (1, 0x8001));
        assert_eq!(usize::from(u16::from_be_bytes([payload[4], payload[5]])), payload.len() - 6);
        u32::from_be_bytes(payload[..4].try_into().unwrap())
    }
}

/// What a [`Gated`] export was asked, and whether its reads may go on.
#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) open: bool,
    /// Reads that are inside now, and the most there ever were.
    pub(crate) inside: usize,
    pub(crate) most: usize,
    /// Bytes of the reads that are inside now, and the most there ever were.
    pub(crate) bytes: usize,
    pub(crate) most_bytes: usize,
    pub(crate) flushes: usize,
    pub(crate) writes: Vec<(u64, usize, bool)>,
    pub(crate) zeroings: Vec<Zeroing>,
}

/// A device whose reads at odd offsets wait until the gate opens.
pub(crate) struct Gated {
    pub(crate) memory: MemoryExport,
    pub(crate) abilities: Abilities,
    pub(crate) gate: Mutex<Gate>,
    pub(crate) changed: Condvar,
}

impl Gated {
    pub(crate) fn new() -> Arc<Self> {
        let memory = MemoryExport::new(SIZE);
        let abilities = Abilities { sparse_reads: false, ..memory.abilities() };
        Arc::new(Self { memory, abilities, gate: Mutex::default(), changed: Condvar::new() })
    }

    pub(crate) fn open(&self) {
        self.gate.lock().open = true;
        self.changed.notify_all();
    }

    /// Waits until this number of reads are in the export.
    pub(crate) fn wait_for(&self, inside: usize) {
        let mut gate = self.gate.lock();
        while gate.inside < inside {
            self.changed.wait(&mut gate);
        }
    }
}

impl Export for Gated {
    fn size(&self) -> u64 {
        SIZE
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        if offset % 2 == 1 {
            let mut gate = self.gate.lock();
            gate.inside += 1;
            gate.bytes += buffer.len();
            gate.most = gate.most.max(gate.inside);
            gate.most_bytes = gate.most_bytes.max(gate.bytes);
            self.changed.notify_all();
            while !gate.open {
                self.changed.wait(&mut gate);
            }
            gate.inside -= 1;
            gate.bytes -= buffer.len();
        }
        assert_ne!(offset, 666, "an export with a bug");
        self.memory.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        self.gate.lock().writes.push((offset, data.len(), fua));
        self.memory.write(offset, data, fua)
    }

    fn flush(&self) -> Result<(), ExportError> {
        self.gate.lock().flushes += 1;
        Ok(())
    }

    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        self.memory.trim(offset, length, fua)
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: Zeroing) -> Result<(), ExportError> {
        self.gate.lock().zeroings.push(how);
        if length == 4 {
            return Err(ExportError::new(larder_nbd::ErrorCode::NotSupported, "too short to be fast"));
        }
        self.memory.write_zeroes(offset, length, how)
    }

    fn cache(&self, offset: u64, length: u64) -> Result<(), ExportError> {
        self.memory.cache(offset, length)
    }

    fn contexts(&self) -> Vec<String> {
        ["base:allocation", "test:even", "test:odd"].map(str::to_owned).to_vec()
    }

    fn block_status(&self, context: &str, _: u64, length: u64, _: usize) -> Result<Vec<Extent>, ExportError> {
        if context == "base:allocation" {
            // Many more than anybody asks for.
            return Ok((0..length as u32).map(|at| Extent { length: 1, flags: at % 2 }).collect());
        }
        // More than was asked for, and in pieces that could be one.
        let flags = u32::from(context == "test:odd");
        let half = length.div_ceil(2);
        Ok(vec![Extent { length: half, flags }, Extent { length: half, flags }, Extent { length: 1 << 40, flags: 9 }])
    }
}

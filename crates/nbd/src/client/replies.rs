//! Answers to requests, by their handles.
//!
//! Nothing that a server says is believed: an answer takes at most the memory that the request
//! asked for, and a successful read is complete.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::mem;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::ClientError;
use crate::codec::Malformed;
use crate::codec::reply::{CHUNK_HEADER_LEN, Chunk, MESSAGE_MAX, ReplyHeader, SIMPLE_LEN, is_data};
use crate::export::{ErrorCode, ExportError, Extent};
use crate::wire::Wire;

/// Longest payload of a chunk without data in bytes: extents, or an error.
const PAYLOAD_MAX: usize = 1 << 20;
/// Parts of the data of one answer that may be apart from each other: a server that sends each
/// second byte first must not cost memory or time.
const PARTS_MAX: usize = 4096;
/// Bytes that are read at once.
const AHEAD: usize = 16 << 10;

/// The answer that a request expects.
#[derive(Debug, Clone)]
pub(super) enum Expected {
    Nothing,
    Data {
        offset: u64,
        length: u32,
    },
    /// Each of these contexts may come once.
    Extents {
        length: u32,
        contexts: Arc<[u32]>,
    },
}

/// The answer to a request.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) data: Vec<u8>,
    /// Numbers of contexts and what each says.
    pub(super) extents: Vec<(u32, Vec<Extent>)>,
}

#[derive(Debug)]
struct Slot {
    expected: Expected,
    structured: bool,
    answer: Answer,
    /// Parts of the data that have come: start and end, sorted, apart from each other.
    covered: Vec<(u64, u64)>,
    error: Option<ExportError>,
    done: bool,
}

#[derive(Debug, Default)]
struct State {
    slots: HashMap<u64, Slot>,
    next: u64,
    /// The connection failed.
    failed: Option<String>,
}

/// Requests without an answer.
#[derive(Debug, Default)]
pub(super) struct Pending {
    state: Mutex<State>,
    answered: Condvar,
}

impl Pending {
    /// A handle for a request.
    pub(super) fn add(&self, expected: Expected, structured: bool) -> Result<u64, ClientError> {
        let mut state = self.state.lock();
        if let Some(why) = &state.failed {
            return Err(ClientError::Closed(why.clone()));
        }
        let handle = state.next;
        state.next += 1;
        let slot =
            Slot { expected, structured, answer: Answer::default(), covered: Vec::new(), error: None, done: false };
        state.slots.insert(handle, slot);
        Ok(handle)
    }

    /// The answer to a request, once it is there.
    pub(super) fn wait(&self, handle: u64) -> Result<Answer, ClientError> {
        let mut state = self.state.lock();
        loop {
            match state.slots.get(&handle) {
                None => return Err(ClientError::Closed("this answer was taken already".into())),
                Some(slot) if slot.done => break,
                Some(_) => {}
            }
            if let Some(why) = state.failed.clone() {
                state.slots.remove(&handle);
                return Err(ClientError::Closed(why));
            }
            self.answered.wait(&mut state);
        }
        let slot = state.slots.remove(&handle);
        let slot = slot.ok_or_else(|| ClientError::Closed("this answer was taken already".into()))?;
        match slot.error {
            Some(error) => Err(error.into()),
            None => Ok(slot.answer),
        }
    }

    /// Ends all requests with an error.
    pub(super) fn fail(&self, why: &str) {
        self.state.lock().failed.get_or_insert_with(|| why.to_owned());
        self.answered.notify_all();
    }

    /// Calls `act` with the slot that a reply is for.
    fn with<T>(&self, handle: u64, act: impl FnOnce(&mut Slot) -> io::Result<T>) -> io::Result<T> {
        let state = &mut *self.state.lock();
        let slot = state.slots.get_mut(&handle).filter(|slot| !slot.done);
        let slot = slot.ok_or_else(|| malformed("a reply to no request"))?;
        let result = act(slot);
        if slot.done {
            self.answered.notify_all();
        }
        result
    }
}

fn malformed(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, Malformed(why))
}

fn broken(error: Malformed) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// Stores replies until the connection ends.
pub(super) fn receive(wire: &Wire, pending: &Pending) {
    let mut input = Input { wire, buffer: vec![0; AHEAD].into(), start: 0, end: 0 };
    let why = loop {
        if let Err(error) = one_reply(&mut input, pending) {
            break error;
        }
    };
    pending.fail(&why.to_string());
    wire.close(false);
}

fn one_reply(input: &mut Input<'_>, pending: &Pending) -> io::Result<()> {
    let mut header = [0; CHUNK_HEADER_LEN];
    input.fill(&mut header[..4])?;
    let length = ReplyHeader::length([header[0], header[1], header[2], header[3]]).map_err(broken)?;
    input.fill(&mut header[4..length])?;
    match ReplyHeader::decode(&header[..length]).map_err(broken)? {
        ReplyHeader::Simple { handle, error } => {
            let expected = pending.with(handle, |slot| slot.simple(error))?;
            if expected > 0 {
                let mut data = vec![0; expected];
                input.fill(&mut data)?;
                pending.with(handle, |slot| {
                    (slot.answer.data, slot.done) = (data, true);
                    Ok(())
                })?;
            }
            Ok(())
        }
        ReplyHeader::Chunk { handle, done, kind, length } if is_data(kind) => {
            let mut offset = [0; 8];
            let length = length.checked_sub(8).filter(|length| *length > 0);
            let length = u64::from(length.ok_or_else(|| malformed("a piece without data"))?);
            input.fill(&mut offset)?;
            let offset = u64::from_be_bytes(offset);
            // The buffer leaves the slot meanwhile, so that others can look for their answers.
            let (mut data, from) = pending.with(handle, |slot| slot.place(offset, length))?;
            input.fill(&mut data[from..from + length as usize])?;
            pending.with(handle, |slot| {
                slot.answer.data = data;
                slot.end(done)
            })
        }
        ReplyHeader::Chunk { handle, done, kind, length } => {
            if length as usize > PAYLOAD_MAX {
                return Err(malformed("the payload of a chunk is too long"));
            }
            let mut payload = vec![0; length as usize];
            input.fill(&mut payload)?;
            let chunk = Chunk::decode(kind, &payload).map_err(broken)?;
            pending.with(handle, |slot| {
                slot.chunk(chunk)?;
                slot.end(done)
            })
        }
    }
}

impl Slot {
    /// Takes a simple reply and gives the number of bytes that follow it.
    fn simple(&mut self, error: Option<ErrorCode>) -> io::Result<usize> {
        if let Some(code) = error {
            self.error = Some(ExportError::new(code, "request failed"));
        } else if let Expected::Data { length, .. } = self.expected {
            if self.structured {
                return Err(malformed("a simple reply with data"));
            }
            if length > 0 {
                return Ok(length as usize);
            }
        } else if let Expected::Extents { .. } = self.expected {
            return Err(malformed("a simple reply to a block status"));
        }
        self.done = true;
        Ok(0)
    }

    /// Takes the buffer for a piece of data, and where in it the piece belongs.
    fn place(&mut self, at: u64, length: u64) -> io::Result<(Vec<u8>, usize)> {
        let from = self.cover(at, length)?;
        Ok((mem::take(&mut self.answer.data), from))
    }

    /// Notes that a part of the data has come, and gives its place in the buffer.
    fn cover(&mut self, at: u64, length: u64) -> io::Result<usize> {
        let Expected::Data { offset, length: asked } = self.expected else {
            return Err(malformed("data that was not asked for"));
        };
        if !self.structured {
            return Err(malformed("a chunk without structured replies"));
        }
        let end = at.checked_add(length).filter(|end| *end <= offset + u64::from(asked) && at >= offset);
        let end = end.ok_or_else(|| malformed("data beyond the request"))?;
        let next = self.covered.partition_point(|(start, _)| *start < at);
        let before = next.checked_sub(1).map_or(0, |index| self.covered[index].1);
        if before > at || self.covered.get(next).is_some_and(|(start, _)| *start < end) {
            return Err(malformed("data that came twice"));
        }
        let touches_next = self.covered.get(next).is_some_and(|(start, _)| *start == end);
        match (next > 0 && before == at, touches_next) {
            (true, true) => self.covered[next - 1].1 = self.covered.remove(next).1,
            (true, false) => self.covered[next - 1].1 = end,
            (false, true) => self.covered[next].0 = at,
            (false, false) if self.covered.len() == PARTS_MAX => {
                return Err(malformed("data in too many parts"));
            }
            (false, false) => self.covered.insert(next, (at, end)),
        }
        if self.answer.data.is_empty() {
            self.answer.data = vec![0; asked as usize];
        }
        Ok((at - offset) as usize)
    }

    fn chunk(&mut self, chunk: Chunk) -> io::Result<()> {
        if !self.structured {
            return Err(malformed("a chunk without structured replies"));
        }
        match chunk {
            Chunk::None => {}
            Chunk::Hole { offset, length } => {
                self.cover(offset, u64::from(length))?;
            }
            Chunk::BlockStatus { context, extents } => {
                let Expected::Extents { length, contexts } = &self.expected else {
                    return Err(malformed("extents that were not asked for"));
                };
                if !contexts.contains(&context) {
                    return Err(malformed("extents of a context that was not selected"));
                }
                let (_, but_last) = extents.split_last().unwrap_or((&Extent { length: 0, flags: 0 }, &[]));
                let sum: u64 = but_last.iter().map(|extent| extent.length).sum();
                if sum >= u64::from(*length) || self.answer.extents.iter().any(|(known, _)| *known == context) {
                    return Err(malformed("extents beyond the request"));
                }
                self.answer.extents.push((context, extents));
            }
            Chunk::Error { code, mut message, .. } => {
                message.truncate(message.floor_char_boundary(MESSAGE_MAX));
                self.error.get_or_insert_with(|| ExportError::new(code, message));
            }
        }
        Ok(())
    }

    /// Takes the end of a chunk. After the last one, a success must be complete.
    fn end(&mut self, done: bool) -> io::Result<()> {
        if done {
            self.complete()?;
        }
        self.done |= done;
        Ok(())
    }

    /// An error unless everything has come that a success must have.
    fn complete(&self) -> io::Result<()> {
        if self.error.is_some() {
            return Ok(());
        }
        match self.expected {
            Expected::Data { offset, length } if length > 0 => {
                let mut at = offset;
                for (start, end) in &self.covered {
                    if *start == at {
                        at = *end;
                    }
                }
                if at < offset + u64::from(length) {
                    return Err(malformed("data is missing"));
                }
            }
            Expected::Extents { .. } if self.answer.extents.is_empty() => return Err(malformed("extents are missing")),
            _ => {}
        }
        Ok(())
    }
}

/// Bytes of the server, read ahead.
struct Input<'a> {
    wire: &'a Wire,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input<'_> {
    fn fill(&mut self, data: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < data.len() {
            if self.start == self.end && data.len() - at < self.buffer.len() {
                (self.start, self.end) = (0, self.read_into_buffer()?);
            }
            let ready = (self.end - self.start).min(data.len() - at);
            if ready > 0 {
                data[at..at + ready].copy_from_slice(&self.buffer[self.start..self.start + ready]);
                self.start += ready;
                at += ready;
            } else {
                at += Self::some(self.wire, &mut data[at..])?;
            }
        }
        Ok(())
    }

    fn read_into_buffer(&mut self) -> io::Result<usize> {
        Self::some(self.wire, &mut self.buffer)
    }

    fn some(wire: &Wire, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match wire.read(buffer) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

/// A simple reply is shorter than the header of a chunk, so one buffer holds both.
const _: () = assert!(SIMPLE_LEN < CHUNK_HEADER_LEN);

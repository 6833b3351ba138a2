//! Bytes that a client sent, read ahead.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use crate::wire::{Pace, Stalled, Wire};

/// Bytes that are read at once. Data of writes beyond goes directly to its place.
const AHEAD: usize = 16 << 10;

/// The read half of a connection.
pub(super) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    tick: Duration,
}

impl Input {
    pub(super) fn new(tick: Duration) -> Self {
        Self { buffer: vec![0; AHEAD].into_boxed_slice(), start: 0, end: 0, tick }
    }

    /// Bytes that have arrived and are not taken.
    pub(super) fn arrived(&self) -> usize {
        self.end - self.start
    }

    /// Reads until `count` bytes have arrived, for ever without a `deadline`. False at the end of
    /// the connection. An end in the middle is an error.
    pub(super) fn wait_for(&mut self, wire: &Wire, count: usize, deadline: Option<Instant>) -> io::Result<bool> {
        debug_assert!(count <= AHEAD);
        if self.start > 0 && self.start + count > AHEAD {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.arrived() < count {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            }
            wire.set_read_timeout(deadline.map(left).transpose()?)?;
            match wire.read(&mut self.buffer[self.end..]) {
                Ok(0) if self.arrived() == 0 => return Ok(false),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.end += read,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Takes bytes that have arrived.
    pub(super) fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.buffer[self.start..self.start + N]);
        self.start += N;
        bytes
    }

    /// Fills `data` from what has arrived and what comes.
    pub(super) fn fill(&mut self, wire: &Wire, data: &mut [u8], stalled: Stalled<'_>) -> io::Result<()> {
        let ready = data.len().min(self.arrived());
        data[..ready].copy_from_slice(&self.buffer[self.start..self.start + ready]);
        self.start += ready;
        let (mut at, mut pace) = (ready, Pace::default());
        while at < data.len() {
            wire.set_read_timeout(Some(self.tick))?;
            match wire.read(&mut data[at..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    at += read;
                    if at < data.len() {
                        pace.moved(read, stalled)?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => pace.moved(0, stalled)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Skips bytes.
    pub(super) fn skip(&mut self, wire: &Wire, mut count: u64, stalled: Stalled<'_>) -> io::Result<()> {
        let mut scratch = [0; 4096];
        while count > 0 {
            let piece = count.min(scratch.len() as u64);
            self.fill(wire, &mut scratch[..piece as usize], stalled)?;
            count -= piece;
        }
        Ok(())
    }
}

/// Time until the deadline, at least a millisecond; an error behind it.
pub(super) fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.checked_duration_since(Instant::now()) {
        Some(left) if !left.is_zero() => Ok(left.max(Duration::from_millis(1))),
        _ => Err(io::Error::new(ErrorKind::TimedOut, "the client took too long")),
    }
}

//! Writers: several connections that write to one volume at once, each to its own sectors.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_nbd::client::{Client, Ticket};
use larder_nbd::codec::request::{Command, Request, flag};

use crate::content::{Content, POOL, Random, SECTOR};
use crate::event::Event;
use crate::shared::{End, Shared};
use crate::target::Target;

/// Connections.
const WRITERS: u64 = 4;
/// Requests in flight of one connection.
const IN_FLIGHT: usize = 8;
/// Snapshots that exist at once.
const SNAPSHOTS: usize = 3;
/// Sectors that belong to one writer, in the first and in the second half of the volume. The first
/// ones begin anywhere in a block, so writers share blocks. The second ones have whole blocks.
const STRIPES: [u64; 2] = [100, 2048];

/// What a round did.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) writes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    /// Requests to the control socket.
    pub(crate) requests: AtomicU64,
}

struct Sent {
    ticket: Ticket,
    number: u64,
    first: u32,
    count: u32,
    is_durable: bool,
}

struct Writer<'a> {
    target: &'a Target,
    shared: &'a Shared,
    counts: &'a Counts,
    client: Client,
    me: u64,
    random: Random,
    in_flight: VecDeque<Sent>,
}

/// Writes, flushes and reads that many times, until the server is killed.
pub(crate) fn write(target: &Target, shared: &Shared, seed: u64, steps: u64, counts: &Counts) -> Result<(), End> {
    let left = AtomicU64::new(steps);
    std::thread::scope(|scope| {
        let writer = |me| {
            let left = &left;
            let run = move || {
                let client = target.connect(&target.volume)?;
                let random = Random(seed.wrapping_mul(WRITERS).wrapping_add(me) << 20);
                let mut writer = Writer { target, shared, counts, client, me, random, in_flight: VecDeque::new() };
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                    writer.step()?;
                }
                writer.drain(0)
            };
            scope.spawn(run)
        };
        let running: Vec<_> = (0..WRITERS).map(writer).collect();
        let ends: Vec<_> = running.into_iter().map(|writer| writer.join().expect("no panic")).collect();
        // A mistake tells more than the end of the server.
        let mut result = Ok(());
        for end in ends {
            match end {
                Err(End::Wrong(why)) => return Err(End::Wrong(why)),
                Err(End::Killed) => result = Err(End::Killed),
                Ok(()) => {}
            }
        }
        result
    })
}

impl Writer<'_> {
    fn step(&mut self) -> Result<(), End> {
        match self.random.below(100) {
            0..64 => self.write_some(),
            64..72 => self.read_some(),
            72..80 => self.flush(),
            _ if self.me == 0 && self.random.below(6) == 0 => self.manage(),
            _ => self.write_some(),
        }
    }

    /// Sectors of this writer.
    fn range(&mut self) -> (u32, u32) {
        let half = self.client.size() / SECTOR as u64 / 2;
        let which = self.random.below(2);
        let stripe = STRIPES[which as usize];
        let turn = self.random.below(half / stripe / WRITERS);
        let begin = which * half + (turn * WRITERS + self.me) * stripe;
        let (mut first, mut count) = match self.random.below(10) {
            // Pages of 4 KiB, as file systems write them.
            0..6 => (self.random.below(stripe / 8) * 8, 8 * (1 + self.random.below(4))),
            6..8 => (self.random.below(stripe), 1 + self.random.below(20)),
            _ => (self.random.below(stripe.div_ceil(128)) * 128, 128 * (1 + self.random.below(3))),
        };
        first = first.min(stripe - 1);
        count = count.min(stripe - first);
        ((begin + first) as u32, count as u32)
    }

    /// Waits until at most that many requests are in flight.
    fn drain(&mut self, most: usize) -> Result<(), End> {
        while self.in_flight.len() > most {
            let Some(sent) = self.in_flight.pop_front() else { break };
            self.client.wait(sent.ticket)?;
            let (number, is_durable) = (sent.number, sent.is_durable);
            self.shared.note(|place| Event::Acknowledged { number, durable: is_durable.then_some(place) });
        }
        Ok(())
    }

    /// Waits for all requests in flight that overlap a range.
    fn wait_for(&mut self, first: u32, count: u32) -> Result<(), End> {
        let overlaps = |sent: &Sent| sent.first < first + count && first < sent.first + sent.count;
        match self.in_flight.iter().rposition(overlaps) {
            Some(last) => self.drain(self.in_flight.len() - last - 1),
            None => Ok(()),
        }
    }

    fn write_some(&mut self) -> Result<(), End> {
        let (first, count) = self.range();
        self.wait_for(first, count)?;
        self.drain(IN_FLIGHT - 1)?;
        let number = self.shared.number();
        let command = match self.random.below(16) {
            0 => Command::Trim,
            1 => Command::WriteZeroes,
            _ => Command::Write,
        };
        let content = match (command, self.random.below(10)) {
            (Command::Write, 0..5) => Content::Unique(number),
            (Command::Write, 5..9) => Content::Pooled(self.random.below(POOL)),
            _ => Content::Zeros,
        };
        let is_durable = self.random.below(25) == 0;
        let data = if command == Command::Write { content.bytes(count) } else { Vec::new() };
        self.shared.note(|place| Event::Wrote { number, first, count, content, place });
        let flags = if is_durable { flag::FUA } else { 0 };
        let (offset, length) = (u64::from(first) * SECTOR as u64, count * SECTOR as u32);
        let ticket = self.client.submit(Request { flags, command, handle: 0, offset, length }, &data)?;
        self.in_flight.push_back(Sent { ticket, number, first, count, is_durable });
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn read_some(&mut self) -> Result<(), End> {
        let (first, count) = self.range();
        self.wait_for(first, count)?;
        let found = self.client.read(u64::from(first) * SECTOR as u64, count * SECTOR as u32)?;
        Ok(self.shared.oracle().expect_newest(first, &found)?)
    }

    /// Other requests stay in flight meanwhile.
    fn flush(&mut self) -> Result<(), End> {
        let number = self.shared.number();
        self.shared.note(|_| Event::FlushBegan { number });
        self.client.flush()?;
        self.shared.note(|place| Event::Flushed { number, place });
        self.counts.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Snapshots and collection, by the control socket.
    fn manage(&mut self) -> Result<(), End> {
        if self.target.control.is_none() {
            return Ok(());
        }
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let volume = &self.target.volume;
        let snapshots = self.shared.oracle().snapshots();
        match self.random.below(8) {
            0..4 if snapshots.len() < SNAPSHOTS => {
                let name = format!("s{:08}", self.shared.number());
                let request = format!(r#"{{"verb":"snapshot","volume":"{volume}","snapshot":"{name}"}}"#);
                self.shared.note(|place| Event::SnapshotBegan { name: name.clone(), place });
                self.target.control(&request)?;
                self.shared.note(|place| Event::SnapshotMade { name, place });
            }
            0..6 => {
                let Some(name) = snapshots.first().cloned() else { return Ok(()) };
                let request = format!(r#"{{"verb":"delete","name":"{volume}@{name}"}}"#);
                self.shared.note(|place| Event::DeletionBegan { name: name.clone(), place });
                self.target.control(&request)?;
                self.shared.note(|place| Event::Deleted { name, place });
            }
            6 => self.target.control(r#"{"verb":"collect"}"#)?,
            _ => self.target.control(r#"{"verb":"stats","usage":true}"#)?,
        }
        Ok(())
    }
}

//! Replies on their way to the client.
//!
//! A thread that has a reply while no other writes becomes the writer. It writes its own reply, and
//! then those that others left meanwhile, many with one system call.

use std::io;

use parking_lot::{Condvar, Mutex};

use super::budget::Grant;
use super::spares::Spares;
use crate::wire::{Stalled, Wire};

/// Bytes of replies, and what they hold until they are sent.
pub(super) struct Outgoing {
    pub(super) bytes: Vec<u8>,
    /// How many replies these are.
    pub(super) replies: usize,
    /// Given back once this is dropped.
    pub(super) _grants: Vec<Grant>,
}

#[derive(Default)]
struct State {
    queue: Vec<Outgoing>,
    writing: bool,
    /// The client is gone: replies are dropped.
    dead: bool,
    in_flight: usize,
}

/// The replies of one connection, and the number of requests without a sent reply.
#[derive(Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    /// A reply was sent.
    sent: Condvar,
}

impl Outbox {
    /// Counts a request once fewer than `most` are in flight.
    pub(super) fn enter(&self, most: usize) {
        let mut state = self.state.lock();
        while state.in_flight >= most {
            self.sent.wait(&mut state);
        }
        state.in_flight += 1;
    }

    /// Whether the client is gone.
    pub(super) fn is_dead(&self) -> bool {
        self.state.lock().dead
    }

    /// Sends replies of requests that [`Outbox::enter`] counted, or leaves them to the writer.
    pub(super) fn send(&self, wire: &Wire, outgoing: Outgoing, spares: &Spares, stalled: Stalled<'_>) {
        let mut state = self.state.lock();
        state.queue.push(outgoing);
        if state.writing {
            return;
        }
        state.writing = true;
        drop(state);
        self.write_queue(wire, spares, stalled);
    }

    /// Sends replies of requests that were never counted, and forgets their grants. The bytes and
    /// grants are empty afterwards, and keep their room.
    pub(super) fn send_batch(
        &self,
        wire: &Wire,
        bytes: &mut Vec<u8>,
        grants: &mut Vec<Grant>,
        spares: &Spares,
        stalled: Stalled<'_>,
    ) {
        let mut state = self.state.lock();
        // Nothing bounds the number of such replies but that the caller waits here.
        while state.writing {
            self.sent.wait(&mut state);
        }
        (state.writing, state.in_flight) = (true, state.in_flight + 1);
        let dead = state.dead;
        drop(state);
        let result = if dead { Ok(()) } else { wire.write_all(&[bytes], stalled) };
        bytes.clear();
        grants.clear();
        self.account(wire, result, 1);
        self.write_queue(wire, spares, stalled);
    }

    fn account(&self, wire: &Wire, result: io::Result<()>, replies: usize) {
        let mut state = self.state.lock();
        if let Err(error) = result
            && !state.dead
        {
            state.dead = true;
            tracing::debug!("an NBD client is gone: {error}");
            wire.close(false);
        }
        state.in_flight -= replies;
        self.sent.notify_all();
    }

    /// Writes the queue until it is empty. Only the writer does so.
    fn write_queue(&self, wire: &Wire, spares: &Spares, stalled: Stalled<'_>) {
        loop {
            let mut state = self.state.lock();
            if state.queue.is_empty() {
                state.writing = false;
                self.sent.notify_all();
                return;
            }
            let (queue, dead) = (std::mem::take(&mut state.queue), state.dead);
            drop(state);
            let replies = queue.iter().map(|outgoing| outgoing.replies).sum();
            let result = if dead {
                Ok(())
            } else {
                let parts: Vec<&[u8]> = queue.iter().map(|outgoing| &outgoing.bytes[..]).collect();
                wire.write_all(&parts, stalled)
            };
            queue.into_iter().for_each(|outgoing| spares.give(outgoing.bytes));
            self.account(wire, result, replies);
        }
    }
}

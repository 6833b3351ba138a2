//! The queue of processes that also have a NATS server with JetStream.
//!
//! The process that planned a batch offers its tasks as messages of a stream. Each is for one host,
//! or for any. A process that gets a message claims the task in the store. When the task has a
//! register, it acknowledges the message. Until then it says that it is at work, or the message
//! comes again. A second kind of message is not stored: it wakes those that wait when somebody
//! decided a task.
//!
//! A message is ids alone. What it means stands in the plan. Claims and registers in the store
//! decide who does a task. So a server that loses all messages, invents some or is away costs time.
//! Tasks that no message delivers are taken as in [`StoreQueue`].

mod connection;
mod place;
mod subjects;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream;
use async_nats::jetstream::message::{AckKind, PublishMessage};
use futures::{FutureExt, StreamExt};
use larder_format::chain;
use larder_format::fleet::{FleetPlan, Stage, TaskId};
use larder_format::ids::JobId;
use larder_index::Task;
use larder_job::JobContext;

pub use self::connection::{Nats, NatsOptions};
use self::place::Place;
use self::subjects::{ANY, Subjects, word};
use super::{Delivery, Queue, SharedQueue, StoreQueue};
use crate::error::FleetError;
use crate::situation::Registers;
use crate::waiting::wait;

/// After a lost connection, the server is not asked for this long.
const REST: Duration = Duration::from_secs(3);
/// How often this time is doubled at most, if one request after the other fails.
const DOUBLED_MAX: u32 = 3;
/// Without a failure for this long, the next one is told again.
const TOLD_FOR: Duration = Duration::from_secs(120);
/// How many times longer than otherwise a process waits that is woken.
const WOKEN: u32 = 5;
/// Messages that are looked at in one search for a task.
const LOOKED_AT: usize = 16;
/// Parts of the time for claims: how often the store is looked at beside messages.
const LOOKS: u32 = 6;
/// Parts of it after which a message comes again whose receiver is silent.
const SILENCES: u32 = 2;
/// Parts of that: how often a receiver says that it is at work.
const SIGNS: u32 = 3;

/// The hosts of a plan, and the one of this process.
pub(crate) struct HostsOf<'a> {
    pub(crate) plan: &'a FleetPlan,
    pub(crate) own: &'a str,
}

/// A message whose task this process does.
struct Held {
    message: jetstream::Message,
    /// Says that it is at work.
    _at_work: Task<()>,
}

/// See the module header.
pub(crate) struct NatsQueue {
    context: JobContext,
    nats: Arc<Nats>,
    store: StoreQueue,
    subjects: Subjects,
    /// The word of each host of the plan in subjects.
    hosts: Vec<String>,
    own: String,
    offers: bool,
    poll: Duration,
    joined: Instant,
    place: Option<Place>,
    held: HashMap<TaskId, Held>,
    decided: HashSet<TaskId>,
    /// Tasks that were offered: when, and how often.
    offered: HashMap<TaskId, (u64, u32)>,
    /// When the store was looked at last, for tasks and for those that are lost.
    looked_ms: (u64, u64),
    /// Since when the first task that is due has been so.
    due: Option<(TaskId, u64)>,
    /// The server is not asked before.
    rests_until_ms: u64,
    /// When it was of no use last; people were told then. 0: never.
    failed_ms: u64,
    /// How many requests failed one after the other.
    failures: u32,
}

impl NatsQueue {
    pub(crate) fn join(
        nats: Arc<Nats>,
        store: StoreQueue,
        context: &JobContext,
        batch: JobId,
        hosts: HostsOf<'_>,
        offers: bool,
        poll: Duration,
    ) -> Self {
        let of_host = |host: &larder_format::fleet::PlannedHost| match host.is_any {
            Some(true) => ANY.to_owned(),
            _ => word(&host.name),
        };
        let (own, hosts) = (word(hosts.own), hosts.plan.hosts.iter().map(of_host).collect());
        let subjects = Subjects::new(&nats.prefix, batch);
        Self {
            joined: (nats.now)(),
            context: context.clone(),
            nats,
            store,
            subjects,
            hosts,
            own,
            offers,
            poll,
            place: None,
            held: HashMap::new(),
            decided: HashSet::new(),
            offered: HashMap::new(),
            looked_ms: (0, 0),
            due: None,
            rests_until_ms: 0,
            failed_ms: 0,
            failures: 0,
        }
    }

    /// Milliseconds since this process joined; never 0. Clocks that are set do not matter.
    fn now(&self) -> u64 {
        ((self.nats.now)().duration_since(self.joined).as_millis() as u64).saturating_add(1)
    }

    /// Asks the server. An error says in one line why it is of no use.
    fn ask<T>(&self, request: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let answer = self.context.executor.block_on(self.nats.within(request));
        // What it refused before the last answer explains no later failure.
        let refused = self.nats.refusal();
        answer.map_err(|why| refused.unwrap_or(why))
    }

    /// The server was of no use: it is left alone for a moment, and people are told.
    fn rest(&mut self, why: &str, time: Duration) {
        let now = self.now();
        tracing::warn!(why, "the NATS server is of no use");
        if self.failed_ms == 0 || now >= self.failed_ms.saturating_add(TOLD_FOR.as_millis() as u64) {
            self.failures = 0;
            let address = self.nats.address();
            let note =
                format!("the NATS server {address} is of no use ({why}); the batch goes on through the repository");
            self.context.progress.aside(&note);
        }
        (self.failed_ms, self.rests_until_ms) = (now, now.saturating_add(time.as_millis() as u64));
        self.place = None;
    }

    /// A request failed. The next one may cost as much time.
    fn failed(&mut self, why: &str) {
        self.rest(why, REST * (1 << self.failures.min(DOUBLED_MAX)));
        self.failures += 1;
    }

    /// Whether the server can be asked. Joins the batch there, if it must.
    fn is_up(&mut self) -> bool {
        if self.now() < self.rests_until_ms {
            return false;
        }
        if !self.nats.is_connected() {
            self.rest("the connection is lost", REST);
            return false;
        }
        if self.place.is_some() {
            return true;
        }
        match self.ask(Place::join(&self.nats, &self.subjects, &self.own, self.store.claim_after() / SILENCES)) {
            Ok(place) => {
                self.place = Some(place);
                // What was offered may be lost.
                self.offered.clear();
                true
            }
            Err(why) => {
                self.failed(&why);
                false
            }
        }
    }

    /// Offers tasks that nobody was offered yet, or that nobody took.
    fn offer(&mut self, due: &[TaskId]) {
        let (now, again) = (self.now(), self.store.claim_after().as_millis() as u64);
        let is_for_queue = |task: &&TaskId| matches!(task.stage, Stage::Send | Stage::Join | Stage::Resolve);
        let is_new = |task: &TaskId| self.offered.get(task).is_none_or(|(at, _)| now >= at.saturating_add(again));
        let new: Vec<TaskId> = due.iter().filter(is_for_queue).copied().filter(is_new).collect();
        if new.is_empty() || !self.is_up() {
            return;
        }
        for task in new {
            let times = self.offered.get(&task).map_or(0, |(_, times)| times + 1);
            let to = match task.stage {
                Stage::Send => self.hosts.get(task.number as usize).map_or(ANY, String::as_str),
                _ => ANY,
            };
            let subject = self.subjects.task(to, task);
            // The server takes the same once.
            let message = PublishMessage::build().message_id(format!("{subject}/{times}"));
            let sent = self.ask(async {
                let answer = self.nats.jetstream.send_publish(subject, message).await.map_err(|error| chain(&error))?;
                answer.await.map_err(|error| chain(&error))
            });
            if let Err(why) = sent {
                return self.failed(&why);
            }
            self.offered.insert(task, (now, times));
        }
        self.tell();
    }

    /// The next message for this process. A consumer may have gone because nobody used it for long;
    /// so it is made again once.
    fn next(&mut self) -> Option<jetstream::Message> {
        for is_again in [false, true] {
            if !self.is_up() {
                return None;
            }
            let Some(place) = &self.place else { return None };
            match self.ask(place.next()) {
                Ok(message) => {
                    self.failures = 0;
                    return message;
                }
                Err(why) if is_again => self.failed(&why),
                Err(why) => {
                    tracing::debug!(why, "the batch is joined again on the NATS server");
                    self.place = None;
                }
            }
        }
        None
    }

    fn answer(&self, message: &jetstream::Message, kind: AckKind) {
        if let Err(why) = self.ask(async { message.ack_with(kind).await.map_err(|error| error.to_string()) }) {
            tracing::debug!(why, "a message was not acknowledged; it comes again");
        }
    }

    /// A task among these that a message delivers and that this process could claim.
    fn delivered(&mut self, due: &[TaskId]) -> Result<Option<Delivery>, FleetError> {
        for _ in 0..LOOKED_AT {
            let Some(message) = self.next() else { return Ok(None) };
            let Some(task) = subjects::task_of(&message.subject) else {
                self.answer(&message, AckKind::Term);
                continue;
            };
            tracing::info!(%task, "a message of the NATS server names a task");
            if self.decided.contains(&task) || self.held.contains_key(&task) {
                self.answer(&message, AckKind::Ack);
                continue;
            }
            if !due.contains(&task) {
                // Not yet, or not here.
                self.answer(&message, AckKind::Nak(Some(self.poll)));
                continue;
            }
            match self.store.take_delivered(task)? {
                Some(delivery) => {
                    self.hold(task, message);
                    return Ok(Some(delivery));
                }
                // Somebody does it.
                None => self.answer(&message, AckKind::Nak(Some(self.store.claim_after() / LOOKS))),
            }
        }
        Ok(None)
    }

    /// Keeps a message from coming again, as long as its task is done here.
    fn hold(&mut self, task: TaskId, message: jetstream::Message) {
        let (of_task, every) = (message.clone(), self.store.claim_after() / SILENCES / SIGNS);
        let _at_work = self.context.executor.spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                if let Err(error) = of_task.ack_with(AckKind::Progress).await {
                    tracing::debug!(%error, "the NATS server did not hear that a task is being done");
                }
            }
        });
        self.held.insert(task, Held { message, _at_work });
    }

    /// Whether the store is to be looked at again. `last` is when it was.
    fn is_time(&self, last: u64) -> bool {
        self.now() >= last.saturating_add((self.store.claim_after() / LOOKS).as_millis() as u64)
    }
}

impl Queue for NatsQueue {
    fn take(&mut self, due: &[TaskId]) -> Result<Option<Delivery>, FleetError> {
        let Some(first) = due.first().copied() else { return Ok(None) };
        let now = self.now();
        if self.due.is_none_or(|(task, _)| task != first) {
            self.due = Some((first, now));
            self.looked_ms.0 = now;
        }
        if self.is_up() {
            if let Some(delivery) = self.delivered(due)? {
                return Ok(Some(delivery));
            }
            // Messages may be lost.
            if self.place.is_some() && !self.is_time(self.looked_ms.0) {
                return Ok(None);
            }
        }
        self.looked_ms.0 = now;
        self.store.take(due)
    }
}

impl SharedQueue for NatsQueue {
    fn store(&mut self) -> &mut StoreQueue {
        &mut self.store
    }

    fn look(&mut self, registers: &Registers, due: &[TaskId]) {
        self.decided.extend(registers.keys());
        let done: Vec<TaskId> = self.held.keys().filter(|task| self.decided.contains(task)).copied().collect();
        for task in done {
            if let Some(held) = self.held.remove(&task) {
                self.answer(&held.message, AckKind::Ack);
            }
        }
        if self.offers {
            self.offer(due);
        }
    }

    fn tell(&mut self) {
        if self.place.is_some() && self.nats.is_connected() {
            let (client, news) = (&self.nats.client, self.subjects.news());
            let told = async { client.publish(news, bytes::Bytes::new()).await.map_err(|error| chain(&error)) };
            if let Err(why) = self.ask(told) {
                tracing::debug!(why, "the others are not woken");
            }
        }
    }

    fn supervises(&mut self) -> bool {
        let is_time = self.place.is_none() || self.is_time(self.looked_ms.1);
        if is_time {
            self.looked_ms.1 = self.now();
        }
        is_time
    }

    fn wait(&mut self, time: Duration) -> Result<(), FleetError> {
        if !self.is_up() {
            return wait(&self.context, time);
        }
        // Messages that come again are asked for, so the wait is bounded.
        let (poll, mut left) = (self.poll, (self.poll * WOKEN).min(self.store.claim_after() / LOOKS));
        while !left.is_zero() {
            let slice = left.min(poll);
            left -= slice;
            wait(&self.context, Duration::ZERO)?;
            let Some(place) = &mut self.place else { return Ok(()) };
            let woken = self.context.executor.block_on(async {
                let woken = tokio::time::timeout(slice, place.news.next()).await;
                while let Some(Some(_)) = place.news.next().now_or_never() {}
                woken
            });
            match woken {
                // A flood of them does not make the store be listed more often than this.
                Ok(Some(_)) => return wait(&self.context, time.min(poll / 32)),
                Ok(None) => {
                    self.failed("the subscription ended");
                    return Ok(());
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        self.held.clear();
        if !self.offers || self.place.is_none() {
            return;
        }
        // Otherwise, messages go with time, as consumers do.
        let ended = self.ask(async {
            let stream =
                self.nats.jetstream.get_stream_no_info(&self.nats.stream).await.map_err(|error| chain(&error))?;
            stream.purge().filter(self.subjects.all_tasks()).await.map_err(|error| chain(&error))?;
            Ok::<_, String>(())
        });
        if let Err(why) = ended {
            tracing::debug!(why, "messages of a batch that is over stay on the NATS server for a week");
        }
    }
}

//! How a worker waits for the next batch.
//!
//! It looks at the store, at first soon after the last look, then ever less often. With a NATS
//! server it is woken by the news of any batch, and looks by itself only now and then: messages may
//! be lost.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Subscriber;
use futures::{FutureExt, StreamExt};
use larder_job::JobContext;

use crate::error::FleetError;
use crate::queue::Nats;
use crate::waiting::wait;

/// How many times longer than at first it waits at most.
const ALONE: u32 = 5;
/// The same with a server that wakes it: at first, and at most.
const WOKEN: (u32, u32) = (5, 30);
/// Short waits while a pass is about to give more away, of which there is no news.
const SOON: u32 = 30;

/// See the module header.
pub(super) struct Idle<'a> {
    context: &'a JobContext,
    poll: Duration,
    /// Whether it waits longer from time to time.
    backs_off: bool,
    nats: Option<Arc<Nats>>,
    news: Option<Subscriber>,
    /// The next wait, in units of `poll`.
    next: u32,
    /// How many waits are short.
    soon: u32,
}

impl<'a> Idle<'a> {
    pub(super) fn new(context: &'a JobContext, poll: Duration, backs_off: bool, nats: Option<Arc<Nats>>) -> Self {
        Self { context, poll, backs_off, nats, news: None, next: 1, soon: 0 }
    }

    /// There was something to do.
    pub(super) fn was_busy(&mut self) {
        self.next = 1;
    }

    /// There will be something to do soon.
    pub(super) fn is_soon_busy(&mut self) {
        self.soon = SOON;
    }

    /// Waits for the next look at the store.
    pub(super) fn wait(&mut self) -> Result<(), FleetError> {
        self.subscribe();
        if let Some(left) = self.soon.checked_sub(1) {
            self.soon = left;
            return wait(self.context, self.poll);
        }
        let is_woken = self.news.is_some();
        let next = match is_woken {
            true => self.next.clamp(WOKEN.0, WOKEN.1),
            false => self.next.min(ALONE),
        };
        self.next = if self.backs_off { next.saturating_mul(2) } else { 1 };
        for _ in 0..next {
            let Some(news) = &mut self.news else {
                wait(self.context, self.poll)?;
                continue;
            };
            wait(self.context, Duration::ZERO)?;
            let poll = self.poll;
            let woken = self.context.executor.block_on(async {
                let woken = tokio::time::timeout(poll, news.next()).await;
                while let Some(Some(_)) = news.next().now_or_never() {}
                woken
            });
            match woken {
                // A flood of news does not make the store be listed more often than this.
                Ok(Some(_)) => {
                    self.next = 1;
                    return wait(self.context, poll / 4);
                }
                Ok(None) => self.news = None,
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Subscribes to the news of all batches, while there is a connection.
    fn subscribe(&mut self) {
        let Some(nats) = &self.nats else { return };
        if !nats.is_connected() {
            self.news = None;
        } else if self.news.is_none() {
            let subscribed = self.context.executor.block_on(nats.within(nats.news_of_all()));
            self.news = subscribed.inspect_err(|why| tracing::debug!(why, "no news of batches")).ok();
        }
    }
}

//! [`Bandwidth`]: a budget of bytes a second.

use std::num::NonZeroU64;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A budget of bytes a second. A caller waits until the tokens taken before have been earned.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    bytes_per_second: NonZeroU64,
    /// When everything taken so far will have been earned.
    free: Mutex<Option<Instant>>,
}

impl Bandwidth {
    pub(crate) fn new(bytes_per_second: NonZeroU64) -> Self {
        Self { bytes_per_second, free: Mutex::new(None) }
    }

    /// Takes `bytes`, after waiting until earlier ones are earned. A caller that stops waiting has
    /// still taken them.
    pub(crate) async fn take(&self, bytes: u64) {
        let start = {
            let mut free = self.free.lock();
            let now = Instant::now();
            // Time in which nothing was taken is not saved up: it would come back as a burst.
            let start = free.unwrap_or(now).max(now);
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.get());
            *free = Some(start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
            start
        };
        tokio::time::sleep_until(start).await;
    }
}

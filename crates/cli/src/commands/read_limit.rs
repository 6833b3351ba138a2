//! `--limit-read`: the rate at which images are read, by the clock of this machine.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use larder_source::image::{Pace, ReadLimit};

use crate::app::App;
use crate::signals::Interrupts;

/// How long a wait does not look for Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

/// The limit; none without a rate, or with 0.
pub(super) fn read_limit(app: &App, rate: Option<u64>) -> Option<Arc<ReadLimit>> {
    let rate = rate.and_then(NonZeroU64::new)?;
    Some(ReadLimit::new(rate, Box::new(Running { since: Instant::now(), interrupts: app.interrupts.clone() })))
}

struct Running {
    since: Instant,
    interrupts: Interrupts,
}

impl Pace for Running {
    fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    fn wait(&self, time: Duration) -> io::Result<()> {
        let end = self.elapsed() + time;
        while let Some(left) = end.checked_sub(self.elapsed()).filter(|left| !left.is_zero()) {
            if self.interrupts.is_cancelled() {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
            }
            thread::sleep(left.min(LOOK));
        }
        Ok(())
    }
}

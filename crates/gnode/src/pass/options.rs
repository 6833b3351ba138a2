//! How a pass is made.

use std::num::NonZeroUsize;
use std::time::Duration;

use larder_lifecycle::arrange::ArrangeOptions;
use larder_store::jobs::RENEW_EVERY;

use super::listing_scope::Listing;
use crate::reclaim::ReclaimOptions;
use crate::tables::{MEMORY_DEFAULT, THREADS_MAX};

/// How a pass is made.
#[derive(Debug, Clone)]
pub struct PassOptions {
    /// A job that has not renewed its lease for so long is considered dead: it is fenced off, and what it uploaded is collected.
    /// Nothing safe depends on it; a job that was only slow has to begin again.
    pub dead_after: Duration,
    /// Containers that no index ever had are deleted only when they are so old by the store's clock, unless their job said that it
    /// committed nothing, or ended and was aborted (`OldEnough`). A store without times keeps them unless this is zero.
    pub min_age: Duration,
    /// Only look.
    pub dry_run: bool,
    /// After so many milliseconds no more is begun. Counted from the start of the pass.
    pub max_duration: Option<Duration>,
    /// Bytes of memory for the tables of the index, at least [`MEMORY_MIN`](super::MEMORY_MIN).
    pub memory: usize,
    /// Which containers it lists.
    pub listing: Listing,
    /// What is retired although versions name it; `None`: nothing.
    pub reclaim: Option<ReclaimOptions>,
    /// How series of the layout `lifecycle` are arranged; `None`: they are not, and fall behind.
    pub arrange: Option<ArrangeOptions>,
    /// Threads for checking and copying what is retired.
    pub threads: NonZeroUsize,
}

/// A day: a machine that sleeps over night goes on in the morning where it was.
const DEAD_AFTER: Duration = RENEW_EVERY.saturating_mul(288);

/// A day: whoever hides or loses something for some hours makes no pass delete what it belongs to.
const MIN_AGE: Duration = Duration::from_secs(24 * 3600);

impl Default for PassOptions {
    fn default() -> Self {
        Self {
            dead_after: DEAD_AFTER,
            min_age: MIN_AGE,
            dry_run: false,
            max_duration: None,
            memory: MEMORY_DEFAULT,
            listing: Listing::default(),
            reclaim: Some(ReclaimOptions::default()),
            arrange: Some(ArrangeOptions::default()),
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).min(THREADS_MAX),
        }
    }
}

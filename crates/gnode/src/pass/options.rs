//! How a pass is made.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use larder_lifecycle::arrange::ArrangeOptions;
use larder_store::jobs::RENEW_EVERY;

use super::listing_scope::Listing;
use crate::reclaim::{ReclaimOptions, SharePass};
use crate::tables::{MEMORY_DEFAULT, THREADS_MAX};

/// How a pass is made.
#[derive(Debug, Clone)]
pub struct PassOptions {
    /// A job that has not renewed its lease for this long is considered dead: it is fenced, and its
    /// uploads are collected. Safety does not depend on it; a job that was only slow has to begin
    /// again.
    pub dead_after: Duration,
    /// Containers that no index ever had are deleted only at this age by the store's clock. An
    /// exception are those of jobs that committed nothing by their own word, or ended and were
    /// aborted (`OldEnough`). A store without times keeps them unless this is zero.
    pub min_age: Duration,
    /// Bytes of recipes and chunks that it may read to prove generations that other programs wrote.
    /// Until a generation is proved, lower ones and their containers stay.
    pub prove_max: u64,
    /// Take the repository as it is, although this machine remembers a newer state.
    pub accept_state: bool,
    /// Build only on an index that a pass on this machine published.
    pub own_index_only: bool,
    /// Take an operator's signature for proof of a generation: what it replaces is retired without
    /// reading.
    pub trust_signed: bool,
    /// Only look.
    pub dry_run: bool,
    /// After this time nothing more starts. Counted from the start of the pass.
    pub max_duration: Option<Duration>,
    /// Bytes of memory for the tables of the index, at least [`MEMORY_MIN`](super::MEMORY_MIN).
    pub memory: usize,
    /// Which containers it lists.
    pub listing: Listing,
    /// Whether data in cold storage that is thawed for some days is rewritten and retired.
    pub touch_cold: bool,
    /// The limits of retiring containers that versions name; `None`: none are retired.
    pub reclaim: Option<ReclaimOptions>,
    /// How series of the layout `lifecycle` are arranged; `None`: they are not, and fall behind.
    pub arrange: Option<ArrangeOptions>,
    /// Threads for checking and copying chunks of retired containers.
    pub threads: NonZeroUsize,
    /// Gives workers recipes of an exact collection to read, and chunks to verify and to copy: of
    /// retired containers, and in a round of newest versions that are rewritten. `None`: this
    /// process does all alone.
    pub sharing: Option<Arc<dyn SharePass>>,
}

/// A day: a machine that sleeps over night continues in the morning.
const DEAD_AFTER: Duration = RENEW_EVERY.saturating_mul(288);

/// A day: a store that hides or loses objects for some hours causes no deletion of their data.
const MIN_AGE: Duration = Duration::from_secs(24 * 3600);

/// A gibibyte: some minutes over a slow line.
const PROVE_MAX: u64 = 1 << 30;

impl Default for PassOptions {
    fn default() -> Self {
        Self {
            dead_after: DEAD_AFTER,
            min_age: MIN_AGE,
            prove_max: PROVE_MAX,
            accept_state: false,
            own_index_only: false,
            trust_signed: false,
            dry_run: false,
            max_duration: None,
            memory: MEMORY_DEFAULT,
            listing: Listing::default(),
            touch_cold: false,
            reclaim: Some(ReclaimOptions::default()),
            arrange: Some(ArrangeOptions::default()),
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).min(THREADS_MAX),
            sharing: None,
        }
    }
}

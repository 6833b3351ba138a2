//! An index that was lost, told from one that never was, and made anew before anything is decided without it (`RebuiltFirst`).
//!
//! Only an index knows what was given up, and a delete may be under way for as long as a store likes. A pass that took a repository
//! whose index is lost for a new one would see containers that are about to go, find nothing missing, and collect what the index led to
//! instead. So it does what `repair index` does, which keeps all copies, and goes on from there.

use std::time::Duration;

use larder_index::{IndexSnapshot, Newest, has_been_indexed};
use larder_store::Repository;

use super::run::{PassError, PassOptions, Surroundings, stop};
use crate::repair::rebuild_within;

/// What a pass begins with.
pub(super) struct Beginning {
    pub(super) newest: Newest,
    /// The number of the index that was made anew, if one was.
    pub(super) rebuilt: Option<u64>,
}

/// The newest index, made anew if it was lost.
pub(super) async fn begin(
    surroundings: &Surroundings,
    options: &PassOptions,
    repository: &Repository,
    started_ms: u64,
) -> Result<Beginning, PassError> {
    let newest = IndexSnapshot::newest(repository).await?;
    if newest.highest > 0 || !is_indexed(repository).await? {
        return Ok(Beginning { newest, rebuilt: None });
    }
    // The first one may have been published between the two looks.
    let newest = IndexSnapshot::newest(repository).await?;
    if newest.highest > 0 {
        return Ok(Beginning { newest, rebuilt: None });
    }
    if options.dry_run {
        return Err(PassError::LostIndex);
    }
    tracing::warn!("the index is gone, and is made anew from snapshots and containers first");
    let within = Surroundings { stop: stop(surroundings, options.max_duration, started_ms), ..surroundings.clone() };
    let rebuilt = rebuild_within(&within, options.memory).await?.number;
    let newest = IndexSnapshot::newest(repository).await?;
    match newest.highest {
        0 => Err(PassError::Overtaken),
        _ => Ok(Beginning { newest, rebuilt }),
    }
}

/// Whether there has been an index: there is the mark that says so, or a job has a register and not its lease. Only passes remove
/// leases, and only after they published.
async fn is_indexed(repository: &Repository) -> Result<bool, PassError> {
    if has_been_indexed(repository).await? {
        return Ok(true);
    }
    // Registers before leases: whoever creates one has its lease before.
    let registers = repository.list_registers().await?;
    let jobs = repository.list_jobs().await?;
    let has_lease = |job| jobs.get(job).is_some_and(|listed| !listed.renewals.is_empty());
    Ok(registers.iter().any(|(pin, generations)| generations.first() == Some(&0) && !has_lease(&pin.job)))
}

/// Whether so much time has passed.
pub(super) fn is_late(now_ms: u64, started_ms: u64, most: Option<Duration>) -> bool {
    most.is_some_and(|most| Duration::from_millis(now_ms.saturating_sub(started_ms)) >= most)
}

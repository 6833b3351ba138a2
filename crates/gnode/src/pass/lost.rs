//! An index that was lost, told from one that never was, and made anew before anything is decided without it (`RebuiltFirst`).
//!
//! Only an index knows what was given up, and a delete may be under way for as long as a store likes. A pass that took a repository
//! whose index is lost for a new one would see containers that are about to go, find nothing missing, and collect what the index led to
//! instead. So it does what `repair index` does, which keeps all copies, and goes on from there.

use std::time::Duration;

use larder_index::{IndexSnapshot, Newest, has_been_indexed};
use larder_store::Repository;
use larder_store::survey::SeenLease;

use super::error::PassError;
use super::options::PassOptions;
use super::surroundings::{Surroundings, stop};
use crate::repair::rebuild_within;

/// How often the first index is looked for while somebody may be about to publish it, and how long between two looks: together far longer
/// than a create takes on any store, and no more than somebody who lost an index minds.
const FIRST_LOOKS: usize = 10;
const FIRST_LOOK_EVERY: Duration = Duration::from_millis(500);

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
    // The first one may have been published between the two looks, or be on its way.
    let within = Surroundings { stop: stop(surroundings, options.max_duration, started_ms), ..surroundings.clone() };
    if let Some(newest) = first_published(&within, options, repository).await? {
        return Ok(Beginning { newest, rebuilt: None });
    }
    if options.dry_run {
        return Err(PassError::LostIndex);
    }
    tracing::warn!("the index is gone, and is made anew from snapshots and containers first");
    let rebuilt = rebuild_within(&within, options.memory).await?.number;
    let newest = IndexSnapshot::newest(repository).await?;
    match newest.highest {
        0 => Err(PassError::Overtaken),
        _ => Ok(Beginning { newest, rebuilt }),
    }
}

/// The first index, if it is there by now or comes in the moment between it and the mark before it. Whoever is not waited for, because
/// it is too slow or has died there, loses nothing: the index is made anew, which costs the space of copies that nobody needs.
async fn first_published(
    surroundings: &Surroundings,
    options: &PassOptions,
    repository: &Repository,
) -> Result<Option<Newest>, PassError> {
    for look in 0..FIRST_LOOKS {
        let newest = IndexSnapshot::newest(repository).await?;
        if newest.highest > 0 {
            return Ok(Some(newest));
        }
        let is_last = look + 1 == FIRST_LOOKS || (surroundings.stop)();
        if is_last || (look == 0 && !is_first_claimed(surroundings, options, repository).await?) {
            break;
        }
        tokio::time::sleep(FIRST_LOOK_EVERY).await;
    }
    Ok(None)
}

/// Whether some job has announced that it would publish the first index, has not said that it is over, and is not thought dead.
async fn is_first_claimed(
    surroundings: &Surroundings,
    options: &PassOptions,
    repository: &Repository,
) -> Result<bool, PassError> {
    let now_ms = (surroundings.now_ms)();
    for (job, listed) in repository.list_jobs().await? {
        let is_dead = is_late(now_ms, listed.renewed_ms, Some(options.dead_after));
        let is_open = !listed.has_done && !listed.renewals.is_empty() && !is_dead;
        if is_open
            && let SeenLease::Open(lease) = repository.see_lease(job, &listed.renewals).await?
            && lease.claims == Some(1)
        {
            return Ok(true);
        }
    }
    Ok(false)
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

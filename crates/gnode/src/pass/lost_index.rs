//! Tells a lost index from one that never was, and rebuilds it before any decision
//! (`RebuiltFirst`).
//!
//! Only an index knows which containers were retired, and a delete may be under way for as long as
//! a store likes. A pass that took a repository with a lost index for a new one would see
//! containers that are about to go. It would find nothing missing, and collect the redirect targets
//! instead. The same holds when only the newest index is lost, and the one before it is still
//! there. So the pass does the work of `repair index`, which keeps all copies, and continues from
//! there.

use larder_index::{Current, State};
use larder_job::{JobContext, RolledBack};
use larder_state::Seen;
use larder_store::Repository;
use larder_store::rules::Rule;

use super::options::PassOptions;
use crate::error::PassError;
use crate::repair::rebuild_within;

/// The start of a pass.
pub(super) struct Beginning {
    pub(super) current: Current,
    /// The number of the index that was rebuilt, if one was.
    pub(super) rebuilt: Option<u64>,
}

/// The index that counts, rebuilt if it was lost. It is marked then (`MarkedBeforeRemoval`).
pub(super) async fn begin(
    context: &JobContext,
    options: &PassOptions,
    seen: &Seen,
    repository: &Repository,
) -> Result<Beginning, PassError> {
    let mut current = match options.dry_run {
        true => Current::look(repository).await?,
        false => Current::settle(repository).await?,
    };
    if !is_lost(repository, &current).await? {
        return Ok(Beginning { current, rebuilt: None });
    }
    if !repository.keeps(Rule::RebuiltFirst) {
        current.state = State::Whole;
        return Ok(Beginning { current, rebuilt: None });
    }
    if options.dry_run {
        return Err(PassError::LostIndex);
    }
    // What an index that this machine knows says about others is lost with it, and a storage that
    // hides it may hide their snapshots as well.
    if let Some(seen) = seen.index.filter(|_| !options.accept_state) {
        let newest = current.snapshot.number;
        return Err(PassError::RolledBack(RolledBack::Index { seen, newest }));
    }
    match &current.state {
        State::Lost { number } => {
            tracing::warn!(number, "the newest index is missing; it is rebuilt from snapshots and containers first");
        }
        _ => tracing::warn!("the index is missing; it is rebuilt from snapshots and containers first"),
    }
    let rebuilt = rebuild_within(context, options.memory).await?.number;
    let current = Current::settle(repository).await?;
    if is_lost(repository, &current).await? {
        return Err(PassError::Overtaken);
    }
    Ok(Beginning { current, rebuilt })
}

/// Whether an index is lost. Its mark says so. Without a mark, a job has a register and no lease:
/// only passes remove leases, and only after they published.
async fn is_lost(repository: &Repository, current: &Current) -> Result<bool, PassError> {
    match current.state {
        State::Lost { .. } => return Ok(true),
        State::Damaged { .. } => return Ok(false),
        State::Whole if current.snapshot.number > 0 => return Ok(false),
        State::Whole => {}
    }
    // Registers before leases, because a job has its lease before it creates a register.
    let registers = repository.list_registers().await?;
    let jobs = repository.list_jobs().await?;
    let has_lease = |job| jobs.get(job).is_some_and(|listed| !listed.renewals.is_empty());
    Ok(registers.iter().any(|(pin, generations)| generations.first() == Some(&0) && !has_lease(&pin.job)))
}

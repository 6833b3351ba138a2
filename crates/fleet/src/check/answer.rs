//! A worker that reads ranges of a check, and says what it found.
//!
//! It needs no lease: that of the check protects what it reads. If an object is gone all the same,
//! the process that makes the check looks for it.

use std::collections::BTreeSet;
use std::time::Duration;

use larder_format::fleet::{CheckRange, CheckResult, READ_PROOF_LEN, TaskId};
use larder_format::ids::{AttemptId, ContainerId, JobId};
use larder_job::JobContext;
use larder_rewrite::check::read_contents;
use larder_store::repository::random;

use crate::error::FleetError;
use crate::given;
use crate::queue::StoreQueue;

/// What a worker did for a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answer {
    /// Ranges that it read.
    pub ranges: u64,
    /// Containers of them.
    pub containers: u64,
    /// Containers that were damaged, missing or in cold storage.
    pub not_whole: u64,
}

/// How a worker left a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// There is nothing to read now.
    Nothing,
    /// All is read.
    Read(Answer),
    /// The process that makes the check gives no sign of life.
    Silent(Answer),
}

/// Reads ranges of a check until none is left, or its process gives no sign of life.
///
/// # Errors
/// The ranges are not for this program or key, or the store does not answer.
pub(crate) fn answer(context: &JobContext, batch: JobId, poll: Duration) -> Result<Left, FleetError> {
    let store = context.repository.store().without_cache();
    let context = &context.through(&context.repository.through(store));
    let mut unreadable = BTreeSet::new();
    let Some(range) = given::first::<CheckRange>(context, batch, &mut unreadable)? else { return Ok(Left::Nothing) };
    let me = AttemptId(random(context.repository.entropy())?);
    let claim_after = Duration::from_secs(u64::from(range.head.claim_seconds));
    let mut queue = StoreQueue::join(context, batch, me, claim_after, Vec::new())?;
    let left = read_due(context, batch, &range, &mut queue, me, unreadable, poll);
    queue.leave();
    left
}

/// Reads ranges until none is left.
fn read_due(
    context: &JobContext,
    batch: JobId,
    range: &CheckRange,
    queue: &mut StoreQueue,
    me: AttemptId,
    mut unreadable: BTreeSet<TaskId>,
    poll: Duration,
) -> Result<Left, FleetError> {
    let claim_after = Duration::from_secs(u64::from(range.head.claim_seconds));
    let (mut answer, first) = (Answer::default(), poll / 32);
    let mut next = first;
    loop {
        let due: Vec<TaskId> =
            given::due::<CheckRange>(context, batch)?.into_iter().filter(|task| !unreadable.contains(task)).collect();
        let times = queue.times()?;
        if due.is_empty() {
            return Ok(Left::Read(answer));
        }
        // Its process died, or is stopped.
        if times.silence_of(Some(range.head.asks)) > claim_after {
            return Ok(Left::Silent(answer));
        }
        let Some(taken) = queue.take_at(&times, &due)? else {
            crate::waiting::wait(context, next)?;
            next = (next * 2).min(poll);
            continue;
        };
        next = first;
        let range = match given::read(context, batch, taken.task) {
            Ok(Some(range)) => range,
            Ok(None) => return Ok(Left::Read(answer)),
            Err(FleetError::NotForUs { .. }) => {
                unreadable.insert(taken.task);
                continue;
            }
            Err(error) => return Err(error),
        };
        let result = read_range(context, &range, me)?;
        answer.ranges += 1;
        answer.containers += range.containers.len() as u64;
        answer.not_whole += result.not_whole.len() as u64;
        let repository = &context.repository;
        let register = result.encode(repository.keys(), batch, taken.task, random(repository.entropy())?);
        given::register(context, batch, taken.task, register)?;
    }
}

/// Reads the containers of a range.
fn read_range(context: &JobContext, range: &CheckRange, me: AttemptId) -> Result<CheckResult, FleetError> {
    let started_ms = context.clock.now_ms();
    context.progress.expect(0, range.bytes);
    // As large as the largest: this decides how many are in memory.
    let sized: Vec<(ContainerId, u64)> = range.containers.iter().map(|id| (*id, range.largest)).collect();
    let found = read_contents(context, &sized, Some(&range.key))?;
    let (mut not_whole, mut proofs) = (Vec::new(), Vec::with_capacity(sized.len() * READ_PROOF_LEN));
    for (id, position) in range.containers.iter().zip(0_u32..) {
        match found.proof(*id) {
            Some(proof) => proofs.extend(proof),
            None => not_whole.push(position),
        }
    }
    let took_ms = context.clock.now_ms().saturating_sub(started_ms);
    Ok(CheckResult { reader: me, host: context.identity.host.clone(), took_ms, not_whole, proofs })
}

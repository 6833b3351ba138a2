//! Which results of other processes count.
//!
//! Who may read contents can prove that it read a container. Nobody can prove that it told the
//! truth about it. So this process reads a sample of what is whole, and all that is not.

use larder_format::fleet::CheckResult;
use larder_format::ids::{AttemptId, ContainerId};
use larder_job::JobContext;
use larder_rewrite::check::{CheckError, ContentReport, read_contents};
use larder_store::repository::random;

/// One of this number of containers is read again, by chance, and of each result at least one: it
/// names its reader itself, so nothing tells the first result of a reader.
const SAMPLE_ONE_IN: u64 = 100;

/// A result of another process.
pub(super) enum Verified {
    /// It counts. What is not whole was read by this process.
    Counts {
        /// All that was found in the range.
        found: ContentReport,
        /// Who read it.
        reader: AttemptId,
        /// What people should know of it.
        remark: Option<String>,
    },
    /// It is not of this range, or nobody with the right key wrote it. Why.
    Unreadable(String),
    /// A proof is wrong.
    Wrong {
        /// The host that the result names.
        host: String,
    },
}

/// Reads what must be read of a range, and compares it with the result. `key` is that of its
/// proofs.
pub(super) fn verify(
    context: &JobContext,
    range: &[(ContainerId, u64)],
    key: &[u8; 32],
    result: &CheckResult,
) -> Result<Verified, CheckError> {
    let Some(proofs) = result.by_position(range.len()) else {
        return Ok(Verified::Unreadable("it is of another number of containers".to_owned()));
    };
    let all = || range.iter().zip(&proofs);
    let not_whole: Vec<_> = all().filter(|(_, proof)| proof.is_none()).map(|(container, _)| *container).collect();
    let whole: Vec<_> = all().filter_map(|(container, proof)| Some((*container, (*proof)?))).collect();
    let bytes = whole.iter().map(|((_, size), _)| size).sum();
    let mut found = ContentReport::read_by_others(whole.len() as u64, bytes);
    // The choice comes after the result.
    let draw = || random(context.repository.entropy()).map(u64::from_le_bytes);
    let certain = match whole.len() as u64 {
        0 => None,
        count => Some((draw()? % count) as usize),
    };
    let mut chosen = Vec::new();
    for (position, container) in whole.into_iter().enumerate() {
        if draw()?.is_multiple_of(SAMPLE_ONE_IN) || certain == Some(position) {
            chosen.push(container);
        }
    }
    let sample: Vec<(ContainerId, u64)> = chosen.iter().map(|(container, _)| *container).collect();
    let own = read_contents(context, &sample, Some(key))?;
    if own.is_whole() {
        let is_proved = |((id, _), proof): &((ContainerId, u64), _)| own.proof(*id) == Some(*proof);
        if !chosen.iter().all(is_proved) {
            return Ok(Verified::Wrong { host: result.host.clone() });
        }
    } else if own.is_gone() {
        // Chunks were moved, or a copy went back into cold storage: this process reads the range.
        return Ok(Verified::Unreadable("containers of it are gone since".to_owned()));
    } else {
        return Ok(Verified::Wrong { host: result.host.clone() });
    }
    let mut remark = None;
    if !not_whole.is_empty() {
        let again = read_contents(context, &not_whole, None)?;
        remark = again.is_whole().then(|| {
            let (host, count) = (&result.host, not_whole.len());
            format!(
                "a worker on host {host:?} could not read {count} containers, and this process can; check the memory and \
                 the network of that host"
            )
        });
        found.add(again);
    }
    Ok(Verified::Counts { found, reader: result.reader, remark })
}

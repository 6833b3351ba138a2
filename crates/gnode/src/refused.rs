//! Versions of closed domains that do not count (`larder_store::closed_domains`): maintenance
//! forgets them, and passes then collect them as any other forgotten version.
//!
//! Forgetting follows the ordinary protocol of marks and pins, so that a reader of such a version
//! keeps what it reads.

use larder_format::ids::JobId;
use larder_format::mark::Forgotten;
use larder_job::JobContext;
use larder_state::Seen;
use larder_store::catalog::Version;
use larder_store::closed_domains::ClosedDomains;
use larder_store::forget_marks::OwnedVersion;
use larder_store::pins::PinError;

use crate::error::PassError;
use crate::forget::create_marks;
use crate::pass::PassOptions;

/// The refused versions that a round found.
#[derive(Debug, Default)]
pub struct Refused {
    /// Those that are forgotten now, or would be in a dry run.
    pub forgotten: Vec<JobId>,
    /// Those that are older than the end of their domain, by the store's clock, or of unknown age:
    /// it did not see them. They stay until people forget them.
    pub older: Vec<JobId>,
    /// Those that could not be forgotten, and why. The next round tries again.
    pub failed: Vec<(JobId, PinError)>,
}

/// Forgets all refused versions. A dry run only says which.
///
/// # Errors
/// The repository cannot be listed; [`PassError::RolledBack`] when this machine saw a domain closed
/// that is open now.
pub fn forget_refused(context: &JobContext, options: &PassOptions) -> Result<Refused, PassError> {
    let (repository, executor, dry_run) = (&context.repository, &context.executor, options.dry_run);
    let seen = context.machine.seen();
    // One listing, as a rule of nothing.
    let closed = executor.block_on(repository.closed_domains())?;
    expect_closed(context, options, &seen, &closed)?;
    if closed.is_empty() {
        return Ok(Refused::default());
    }
    let refused = executor.block_on(repository.catalog())?.refused;
    let is_later = |version: &Version| closed.was_closed_before(version.summary.domain, version.made_ms);
    let (later, older): (Vec<_>, Vec<_>) = refused.into_iter().partition(is_later);
    let ids = |versions: &[Version]| versions.iter().map(Version::id).collect();
    if dry_run {
        return Ok(Refused { forgotten: ids(&later), older: ids(&older), failed: Vec::new() });
    }
    let marks = later.iter().map(|version| {
        let mark = Forgotten {
            time_ms: context.clock.now_ms(),
            host: context.identity.host.clone(),
            reason: format!("domain {} was closed without it", version.summary.domain_name),
        };
        (OwnedVersion::from(version), mark)
    });
    let forgot = executor.block_on(create_marks(repository, marks.collect()));
    Ok(Refused { forgotten: forgot.done, older: ids(&older), failed: forgot.failed })
}

/// Compares the closed domains with those that this machine had seen before it looked, and notes
/// them. Without its end, the refused versions of a domain count again.
fn expect_closed(
    context: &JobContext,
    options: &PassOptions,
    seen: &Seen,
    closed: &ClosedDomains,
) -> Result<(), PassError> {
    let opened = seen.opened_again(|domain| closed.contains(domain));
    match opened.first() {
        Some(lost) if !options.accept_state => return Err(PassError::RolledBack(lost.clone())),
        _ if options.dry_run => return Ok(()),
        _ => {}
    }
    let open = seen.closed().iter().filter(|domain| !closed.contains(**domain));
    context.machine.forget_closed(open.copied().collect());
    context.machine.note_closed(closed.ids());
    Ok(())
}

//! Whether every proof that a version was committed is accounted for: a closing mark that names a
//! register, or a pin (`CommittedAccounted` of `docs/concurrency.md`).
//!
//! A listing may lack the register, so it is asked for by name. It may be gone for a reason: a pass
//! removes the register before the closing mark, and the forget mark last. Anything else is damage.
//! Only jobs whose lease still exists are asked about. Passes remove leases after they published an
//! index that knows the version. From then on, that index says whether it is missing.

use futures::StreamExt;
use larder_format::ids::JobId;
use larder_format::lease::Pin;
use larder_format::manifest::Register;
use larder_format::names;
use larder_format::pinning::PinState;

use crate::repository::{CONCURRENT_READS, Repository, RepositoryError, exists};
use crate::survey::ListedJob;

/// The state of a register that is said to have been created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// It exists.
    There,
    /// It is gone, and something says why.
    Explained,
    /// It is gone, and nothing says why.
    Lost,
}

/// A register that is gone without a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRegister {
    /// Its name.
    pub name: String,
    /// The version that needs it.
    pub version: Pin,
    /// The source that says that it was created.
    pub because: String,
}

impl Repository {
    /// Looks for the register that job `job` says it created.
    pub async fn account(&self, job: JobId, version: Pin, generation: u32) -> Result<Account, RepositoryError> {
        let account = self.look_for(version, generation).await?;
        if account != Account::Lost {
            return Ok(account);
        }
        // Removed since the closing mark was read.
        match self.closing_mark(job).await {
            Ok(None) => Ok(Account::Explained),
            Ok(Some(_)) => Ok(Account::Lost),
            Err(error) if error.is_of_object() => Ok(Account::Lost),
            Err(error) => Err(error),
        }
    }

    /// Looks for the register of a version that has entries of pins, by number.
    pub async fn account_pinned(&self, version: Pin) -> Result<Account, RepositoryError> {
        let account = self.look_for(version, 0).await?;
        if account != Account::Lost {
            return Ok(account);
        }
        match self.pin_line(version).await?.last.map(|entry| entry.state) {
            // A version is forgotten by the mark that follows; without entries they were removed
            // since.
            Some(PinState::Forgetting) | None => Ok(Account::Explained),
            Some(PinState::Pinned | PinState::Unpinned) => Ok(Account::Lost),
        }
    }

    async fn look_for(&self, version: Pin, generation: u32) -> Result<Account, RepositoryError> {
        if self.has_register(version, generation).await? {
            return Ok(Account::There);
        }
        match self.forgotten(version).await {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(Account::Explained),
            Err(error) if error.is_of_object() => return Ok(Account::Explained),
            Err(error) => return Err(error),
        }
        // Without its first generation a version is gone, and only the closing mark of its own job
        // shows that it existed. A slow pass may have aborted that job once more after another one
        // removed everything.
        if generation > 0 {
            match self.read_register(version, 0).await {
                Ok(None | Some(Register::Aborted)) => return Ok(Account::Explained),
                Ok(Some(Register::Committed(_))) => {}
                Err(error) if error.is_of_object() => {}
                Err(error) => return Err(error),
            }
        }
        // A later generation replaces an earlier one, which passes then remove.
        let is_replaced = generation > 0 && self.next_generation(version).await? > generation.saturating_add(1);
        Ok(if is_replaced { Account::Explained } else { Account::Lost })
    }

    /// Whether something has the name of a register: asked by name, never of a listing or a cache.
    pub async fn has_register(&self, version: Pin, generation: u32) -> Result<bool, RepositoryError> {
        let name = names::version(version.series, version.job, generation);
        Ok(exists(&self.store.without_cache(), &name).await?)
    }

    /// Whether a job still has its first lease object: asked by name, never of a listing or a
    /// cache.
    pub async fn has_lease(&self, job: JobId) -> Result<bool, RepositoryError> {
        Ok(exists(&self.store.without_cache(), &names::lease(job, 0)).await?)
    }

    /// Registers that closing marks or pins speak of and that are gone without a reason: for
    /// `check`.
    pub async fn lost_registers(&self) -> Result<Vec<LostRegister>, RepositoryError> {
        // Jobs before registers: a job with a closing mark had its register before.
        // So are pins, which only an existing version has.
        let (jobs, pins) = futures::try_join!(self.list_jobs(), self.list_pins())?;
        let registers = self.list_registers().await?;
        let has = |version: &Pin, generation| registers.get(version).is_some_and(|all| all.contains(&generation));
        let mut lost = Vec::new();
        let closed = jobs.iter().filter(|(_, listed)| has_first_lease(listed) && listed.has_done);
        let marks = closed.map(|(job, _)| async move {
            match self.closing_mark(*job).await {
                Ok(done) => Ok((job, done)),
                // Another key knows what became of jobs of other domains.
                Err(error) if error.is_of_object() || error.is_foreign() => Ok((job, None)),
                Err(error) => Err(error),
            }
        });
        let mut unlisted = Vec::new();
        let mut marks = futures::stream::iter(marks).buffered(CONCURRENT_READS);
        while let Some(mark) = marks.next().await {
            let (job, done) = mark?;
            let Some((version, generation)) = done.and_then(|done| done.register(*job)) else { continue };
            if !has(&version, generation) {
                unlisted.push((*job, version, generation));
            }
        }
        // After the stream: reads of it that have begun hold turns of the store while nobody polls
        // them, and the look below needs turns.
        for (job, version, generation) in unlisted {
            if self.account(job, version, generation).await? == Account::Lost {
                lost.push(lost_register(version, generation, names::lease_done(job)));
            }
        }
        let is_new = |job: &JobId| jobs.get(job).is_some_and(has_first_lease);
        for (version, numbers) in pins.iter().filter(|(version, _)| is_new(&version.job) && !has(version, 0)) {
            let is_told = lost.iter().any(|lost| lost.version == *version);
            if !is_told && self.account_pinned(*version).await? == Account::Lost {
                let number = numbers.last().copied().unwrap_or(0);
                lost.push(lost_register(*version, 0, names::pin(version.series, version.job, number)));
            }
        }
        Ok(lost)
    }
}

/// Whether a job has its first lease object, so that no pass has begun to remove it. Only that
/// object was answered before the closing mark (`CloseOnlyAnswered`): later renewals, and the mark
/// itself, may be created once more after everything was removed.
pub fn has_first_lease(listed: &ListedJob) -> bool {
    listed.renewals.first() == Some(&0)
}

fn lost_register(version: Pin, generation: u32, because: String) -> LostRegister {
    let Pin { series, job } = version;
    LostRegister { name: names::version(series, job, generation), version, because }
}

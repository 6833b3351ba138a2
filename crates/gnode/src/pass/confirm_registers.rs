//! Asks by name for objects that a listing lacks, before the pass believes it (`AskedTwice`,
//! `CommittedAccounted`, `OldEnough`).
//!
//! No single wrong answer of the store may cause a deletion. An earlier pass has seen everything
//! that an index has, and it goes only when it is marked. Other objects rest on listings: without
//! their register, lease or closing mark they would look like garbage. So two listings show the
//! registers. The register of each job that says it committed is asked for. Before containers go
//! that no index ever had, their job is asked for by name, and they are old enough.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use larder_format::ids::JobId;
use larder_format::lease::{JobKind, Outcome, Pin};
use larder_format::manifest::Register;
use larder_format::names;
use larder_index::IndexSnapshot;
use larder_store::accounts::{Account, has_first_lease};
use larder_store::rules::Rule;
use larder_store::survey::SeenLease;

use super::decide::{Before, Leases, Proposal};
use super::report::WaitingSpace;
use super::survey::Survey;
use crate::error::PassError;

/// Small objects that are read at once.
const CONCURRENT_READS: usize = 32;

/// Registers by version, with their generations.
type Registers = BTreeMap<Pin, Vec<u32>>;

impl Survey<'_> {
    /// The registers of step 5. They are those of the listing after the leases, the remaining ones
    /// of the listing before them, and those that closing marks and pins name. `made_ms` gets the
    /// times when the store made those that are listed.
    pub(super) async fn registers(
        &self,
        before: &Before,
        leases: &Leases,
        made_ms: &mut BTreeMap<Pin, u64>,
    ) -> Result<Registers, PassError> {
        let note = |version, time_ms| made_ms.extend([(version, time_ms)]);
        let mut registers = self.repository.list_registers_timed(note).await?;
        if self.repository.keeps(Rule::AskedTwice) {
            self.unite(before, &mut registers).await?;
        }
        self.account(before, leases, &mut registers).await?;
        Ok(registers)
    }

    /// Adds the registers of the listing before the leases.
    async fn unite(&self, before: &Before, registers: &mut Registers) -> Result<(), PassError> {
        for (version, generations) in &before.registers {
            if let Some(listed) = registers.get_mut(version) {
                add(listed, generations);
                continue;
            }
            if self.repository.has_register(*version, generations.first().copied().unwrap_or(0)).await? {
                registers.insert(*version, generations.clone());
            } else if !before.marks.contains(version) {
                // Another pass removed it meanwhile; or it never was there, and then its job is not
                // settled.
                return Err(PassError::Overtaken);
            }
        }
        Ok(())
    }

    /// Asks for the registers that are named and not listed (`CommittedAccounted`).
    async fn account(&self, before: &Before, leases: &Leases, registers: &mut Registers) -> Result<(), PassError> {
        // Passes remove leases after they published an index that knows the version: from there on
        // the index tells if it is missing.
        let new = leases.jobs.iter().filter(|(_, listed)| has_first_lease(listed));
        let new: BTreeSet<JobId> = new.map(|(job, _)| *job).collect();
        for (job, done) in before.dones.iter().chain(&leases.dones).filter(|(job, _)| new.contains(job)) {
            let Some((version, generation)) = done.register(*job) else {
                if done.outcome.is_none() {
                    self.ask_unsaid(*job, leases, registers).await?;
                }
                continue;
            };
            if registers.get(&version).is_some_and(|listed| listed.contains(&generation)) {
                continue;
            }
            let account = self.repository.account(*job, version, generation).await?;
            self.take(account, version, generation, registers).await?;
        }
        let pinned = before.pins.keys().filter(|version| new.contains(&version.job));
        for version in pinned.filter(|version| !before.marks.contains(version)) {
            if !registers.contains_key(version) {
                let account = self.repository.account_pinned(*version).await?;
                self.take(account, *version, 0, registers).await?;
            }
        }
        Ok(())
    }

    async fn take(
        &self,
        account: Account,
        version: Pin,
        generation: u32,
        registers: &mut Registers,
    ) -> Result<(), PassError> {
        match account {
            Account::There => {
                let listed = registers.entry(version).or_default();
                add(listed, &[generation]);
                if generation > 0 && listed.first() != Some(&0) && self.repository.has_register(version, 0).await? {
                    add(listed, &[0]);
                }
            }
            Account::Explained => {}
            Account::Lost if !self.repository.keeps(Rule::CommittedAccounted) => {}
            Account::Lost => {
                if IndexSnapshot::newest(self.repository).await?.snapshot.number != self.base.number {
                    return Err(PassError::Overtaken);
                }
                let name = names::version(version.series, version.job, generation);
                return Err(PassError::LostManifest { name, id: version.job });
            }
        }
        Ok(())
    }

    /// A closing mark of version 1 does not name a register: the one that the lease names is asked
    /// for.
    async fn ask_unsaid(&self, job: JobId, leases: &Leases, registers: &mut Registers) -> Result<(), PassError> {
        let renewals = leases.jobs.get(&job).map_or(&[][..], |listed| &listed.renewals);
        let SeenLease::Open(lease) = self.repository.see_lease(job, renewals).await? else { return Ok(()) };
        let version = Pin { series: self.repository.keys().series_key_in(lease.domain, &lease.series), job };
        let is_unlisted = lease.kind == JobKind::Backup && !registers.contains_key(&version);
        if is_unlisted && self.repository.has_register(version, 0).await? {
            registers.insert(version, vec![0]);
        }
        Ok(())
    }

    /// Spares containers that no index ever had while they are young, or while their job is there
    /// after all. Returns the space that waits for its age.
    pub(super) async fn spare(
        &self,
        proposal: &mut Proposal,
        registers: &Registers,
    ) -> Result<WaitingSpace, PassError> {
        let unrecorded = proposal.unrecorded()?;
        let jobs: BTreeSet<JobId> = unrecorded.iter().map(|(container, _)| container.id.job).collect();
        let asked = jobs.into_iter().map(|job| {
            let proposal = &*proposal;
            async move { Ok::<_, PassError>((job, self.ask(job, proposal, registers).await?)) }
        });
        let mut asked = futures::stream::iter(asked).buffer_unordered(CONCURRENT_READS);
        let mut answers = BTreeMap::new();
        while let Some(answer) = asked.next().await {
            let (job, answer) = answer?;
            answers.insert(job, answer);
        }
        drop(asked);
        let mut waiting = proposal.before().waiting;
        for (container, until_ms) in unrecorded {
            match (answers.get(&container.id.job), until_ms) {
                (Some(Answer::AtOnce), _) | (Some(Answer::Over), None) => {}
                (Some(Answer::Over), Some(until_ms)) => {
                    waiting.add(container.bytes, until_ms);
                    proposal.spare(&container.id)?;
                }
                (Some(Answer::Runs) | None, _) => proposal.spare(&container.id)?,
            }
        }
        Ok(waiting)
    }

    /// Asks the store, by name, for every object that shows that a job exists.
    async fn ask(&self, job: JobId, proposal: &Proposal, registers: &Registers) -> Result<Answer, PassError> {
        let (before, leases) = (proposal.before(), proposal.leases());
        let asks = self.repository.keeps(Rule::AskedTwice);
        let listed = leases.jobs.get(&job);
        if listed.is_none() {
            // It was cleaned up, unless both listings lack it.
            let is_there = asks && self.repository.has_lease(job).await?;
            return Ok(if is_there { Answer::Runs } else { Answer::Over });
        }
        let renewals = listed.map_or(&[][..], |listed| &listed.renewals);
        let seen = self.repository.see_lease(job, renewals).await?;
        let mut is_aborted = false;
        if let SeenLease::Open(lease) = &seen
            && lease.kind == JobKind::Backup
        {
            let version = Pin { series: self.repository.keys().series_key_in(lease.domain, &lease.series), job };
            let (is_listed, has_ended) = (registers.contains_key(&version), lease.ended == Some(true));
            if has_ended || (asks && !is_listed) {
                match self.repository.read_register(version, 0).await {
                    Ok(Some(Register::Aborted)) => is_aborted = has_ended,
                    // A version that no listing showed.
                    Ok(Some(Register::Committed(_))) if !is_listed => return Ok(Answer::Runs),
                    Ok(_) => {}
                    Err(error) if error.is_of_object() => return Ok(Answer::Runs),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let done = match before.dones.get(&job).or_else(|| leases.dones.get(&job)) {
            Some(done) => Some(done.clone()),
            None => match self.repository.closing_mark(job).await {
                Err(error) if error.is_of_object() => None,
                done => done?,
            },
        };
        // Only an operator's word frees young uploads at once: another machine could say it of a
        // job that runs.
        let said_nothing = done.as_ref().is_some_and(|done| done.is_signed && done.outcome == Some(Outcome::Nothing));
        // Its version was committed, and forgotten before any index knew it.
        let version = done.and_then(|done| done.register(job)).map(|(version, _)| version);
        let is_forgotten = version.is_some_and(|version| version.job == job && before.marks.contains(&version));
        Ok(if said_nothing || is_aborted || is_forgotten { Answer::AtOnce } else { Answer::Over })
    }
}

/// The fate of containers that no index ever had and that are not needed, by their job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// They go.
    AtOnce,
    /// They go when they are old enough.
    Over,
    /// They stay: the job, or its version, is there after all.
    Runs,
}

fn add(listed: &mut Vec<u32>, generations: &[u32]) {
    listed.extend(generations);
    listed.sort_unstable();
    listed.dedup();
}

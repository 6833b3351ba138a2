//! Steps 2 to 6 without the publication: what may go, and what is to be known for the tasks that go with it.

use std::collections::HashSet;

use larder_format::ids::JobId;
use larder_format::index_manifest::{ContainerList, Doomed, Reason};
use larder_format::lease::{Lease, Pin};
use larder_lifecycle::arrange::{self, Arranged};
use larder_store::rules::Rule;

use super::cost::Requests;
use super::decide::{Decision, IndexNeeds, Proposal};
use super::exact_trigger::Search;
use super::report::{Done, Kept, Outcome, PassReport, Plan};
use super::run::Pass;
use super::survey::Survey;
use crate::error::{PassError, stop_if_asked};
use crate::known_versions::{Ledger, run_ids};
use crate::reclaim::{ReclaimReport, RetentionView, Work};
use crate::tables::copying;

/// What steps 2 to 6 gave.
pub(super) struct Decided {
    pub(super) report: PassReport,
    pub(super) decision: Decision,
    /// Whether the decision, or what the ledger took in, is worth an index.
    pub(super) has_news: bool,
    pub(super) ledger: Ledger,
    pub(super) work: Option<Work>,
    pub(super) arranging: Option<arrange::Work>,
    /// Containers that a rebuild searched for, and that are still missing.
    pub(super) searched: Option<ContainerList>,
}

impl Pass<'_> {
    /// Steps 2 to 6 without the publication: what may go.
    pub(super) async fn decide(&self) -> Result<Decided, PassError> {
        let cancel = &self.context.cancel;
        let manifest = &self.base.manifest;
        let survey = Survey {
            repository: &self.repository,
            own: self.job,
            base: &self.base,
            index: &self.index,
            number: self.number,
            listing: self.options.listing,
            dead_after: self.options.dead_after,
            min_age: self.options.min_age,
            now_ms: self.context.clock.now_ms(),
            is_dry: self.options.dry_run,
        };
        stop_if_asked(cancel)?;
        let (mut before, fenced) = survey.before_leases().await?;
        stop_if_asked(cancel)?;
        let mut leases = survey.leases(&before).await?;
        survey.look_late(&mut before).await?;
        let registers = match self.repository.keeps(Rule::LeasesBeforeVersions) {
            true => survey.registers(&before, &leases).await?,
            false => before.registers.clone(),
        };
        leases.break_rules(&self.repository);
        let mut proposal = Proposal::new(before, leases);
        stop_if_asked(cancel)?;
        let mut ledger = Ledger::load(self.index_work(), &self.base).await?;
        proposal.note_recorded(|container| ledger.has_record(container));
        let manifests_read = survey.versions(&registers, &mut ledger, &mut proposal).await?;
        self.ask_for_forwards(&ledger, &mut proposal).await?;
        self.ask_for_missing(&proposal).await?;
        let waiting = survey.spare(&mut proposal, &registers).await?;
        let closed = match self.repository.keeps(Rule::RemoveOnlyClosed) {
            true => survey.closed(proposal.closing()).await?,
            false => proposal.closing().into_iter().collect(),
        };
        let kept = proposal.kept().map(|(version, by, lease)| kept(version, by, lease)).collect();
        let live_jobs = proposal.live() as u64;
        let open_uploads = proposal.open_uploads();
        let superseded = manifest.queue.iter().filter(|queued| queued.reason == Reason::Superseded);
        let superseded = superseded.filter_map(|queued| match queued.what {
            Doomed::Run(id) => Some(id),
            _ => None,
        });
        let missing = manifest.head.missing.unwrap_or(0);
        let needs = IndexNeeds {
            base: self.base.number,
            runs: run_ids(manifest).collect(),
            superseded: superseded.collect(),
            missing,
            searched: manifest.head.searched.iter().flat_map(|searched| searched.ids()).copied().collect(),
            unread: manifest.head.unread.iter().flat_map(|unread| unread.ids()).copied().collect(),
            trusts_rebuild: manifest.head.rebuilt.is_some() && !self.repository.keeps(Rule::MissingStops),
        };
        // Versions that go without ever having been in an index.
        let indexed: HashSet<Pin> =
            manifest.versions.iter().map(|version| Pin { series: version.series, job: version.job }).collect();
        ledger.note_dropped(proposal.going(&closed).filter(|pin| !indexed.contains(pin)).count() as u64);
        let work = self.work(&ledger, &proposal);
        let arranging = self.arranging(&ledger, &proposal).await?;
        let missing_containers = proposal.missing(missing);
        let searched = proposal.searched(&needs.searched);
        if missing_containers > 0 {
            // A later pass gave them up, perhaps: what versions name of them is found through its index.
            if self.is_overtaken().await? {
                return Err(PassError::Overtaken);
            }
            tracing::warn!(
                missing_containers,
                "containers that snapshots need are gone; `repair index` may find their chunks"
            );
        }
        let mut decision = proposal.decide(&registers, &closed, &needs, |container| ledger.has_record(container));
        decision.index_marks = self.marks.iter().copied().filter(|number| *number < self.base.number).collect();
        let has_news = !decision.is_empty() || ledger.has_new();
        // What goes along with an index is not worth one.
        let plan = Plan {
            fenced,
            versions_ingested: ledger.ingested(),
            new_containers: ledger.new_containers(manifest),
            ..Plan::default()
        };
        let plan = if has_news { plan.with(&decision) } else { plan };
        let report = PassReport {
            outcome: Outcome::Planned,
            plan,
            done: Done::default(),
            undeleted: Vec::new(),
            is_unfinished: false,
            kept,
            live_jobs,
            manifests_read,
            reclaimed: ReclaimReport::default(),
            arranged: Arranged::default(),
            missing_containers,
            waiting,
            open_uploads,
            unlisted: Vec::new(),
            table_bytes: ledger.table_bytes(),
            rebuilt: None,
            planning: Requests::default(),
        };
        if report.table_bytes > self.options.memory as u64 {
            let (bytes, memory) = (report.table_bytes, self.options.memory);
            tracing::warn!(bytes, memory, "the table of containers takes more memory than all other tables may");
        }
        Ok(Decided { report, decision, has_news, ledger, work, arranging, searched })
    }

    /// What is to be known for giving containers up, if that is wanted.
    fn work(&self, ledger: &Ledger, proposal: &Proposal) -> Option<Work> {
        let options = self.options.reclaim.clone()?;
        let rights = self.rights(ledger, proposal);
        let is_exact = self.search(ledger).is_wanted(options.exact);
        Some(Work {
            options,
            context: copying(self.context, &self.repository, self.options.threads),
            job: self.job.unwrap_or(self.base.manifest.head.pass),
            rights,
            walks: is_exact.then(|| ledger.walked(self.base.manifest.head.rebuilt.is_some())),
            next_number: 0,
        })
    }

    pub(super) fn search(&self, ledger: &Ledger) -> Search {
        let head = &self.base.manifest.head;
        Search {
            dropped: head.dropped.unwrap_or(0) + ledger.dropped(),
            left: head.left,
            versions: ledger.len(),
            next_version: ledger.next_version(),
        }
    }

    /// What is to be known for arranging, if there is anything to arrange.
    async fn arranging(&self, ledger: &Ledger, proposal: &Proposal) -> Result<Option<arrange::Work>, PassError> {
        let Some(options) = self.options.arrange.clone() else { return Ok(None) };
        let mut series = ledger.unarranged(options.all);
        for unarranged in &mut series {
            unarranged.holes_percent = match options.holes_percent {
                Some(percent) => percent,
                None => f64::from(self.repository.settings(unarranged.series).await?.holes_percent),
            };
            unarranged.every = match options.every {
                Some(versions) => versions,
                None => u32::from(self.repository.settings(unarranged.series).await?.arrange_every),
            };
        }
        // Where nothing may be left over, there may be something of whatever went.
        series.retain(|unarranged| unarranged.is_due() || unarranged.holes_percent <= 0.0);
        if series.is_empty() {
            return Ok(None);
        }
        Ok(Some(arrange::Work {
            options,
            context: copying(self.context, &self.repository, self.options.threads),
            job: self.job.unwrap_or(self.base.manifest.head.pass),
            rights: Box::new(self.rights(ledger, proposal)),
            series,
        }))
    }

    fn rights(&self, ledger: &Ledger, proposal: &Proposal) -> RetentionView {
        let mut rights = ledger.rights(&proposal.bases());
        proposal.fill(&mut rights);
        rights.rebuilt = self.base.manifest.head.rebuilt.unwrap_or(0);
        let keeps = |rule| self.repository.keeps(rule);
        if !keeps(Rule::RebuiltKeepsCopies) {
            rights.rebuilt = 0;
        }
        if !keeps(Rule::RetireSettled) {
            rights.leased.clear();
        }
        if !keeps(Rule::RetireNotAdopted) {
            rights.adopted.clear();
        }
        rights
    }
}

fn kept(version: Pin, by: JobId, lease: &Lease) -> Kept {
    Kept { version, by, kind: lease.kind, host: lease.host.clone() }
}

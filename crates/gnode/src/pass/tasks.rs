//! The list of tasks of a pass, made from its observations.

use std::sync::Arc;

use larder_format::ids::JobId;
use larder_format::index_manifest::IndexHead;
use larder_job::JobContext;
use larder_lifecycle::arrange;
use larder_store::RepositoryError;
use larder_store::cold_containers::ColdContainers;
use larder_store::rules::Rule;

use super::decide::Proposal;
use super::options::PassOptions;
use super::task::MaintenanceTask;
use crate::known_versions::KnownVersions;
use crate::reclaim::{self, RetentionView, Search};
use crate::tables::{copying, moving};

/// The input from which tasks are made.
pub(super) struct TaskInput<'a> {
    pub(super) context: &'a JobContext,
    pub(super) options: &'a PassOptions,
    /// The pass, to which new containers belong.
    pub(super) job: JobId,
    /// Of the index that the pass is based on.
    pub(super) head: &'a IndexHead,
    pub(super) known_versions: &'a KnownVersions,
    pub(super) proposal: &'a Proposal,
    pub(super) search: Search,
    /// The number of the index that the pass is to publish.
    pub(super) turn: u64,
    /// Containers in cold storage, as far as tasks find them.
    pub(super) cold: Arc<ColdContainers>,
}

impl TaskInput<'_> {
    /// The tasks that are wanted and have something to do, in the order in which they run.
    pub(super) async fn list(&self) -> Result<Vec<Box<dyn MaintenanceTask>>, RepositoryError> {
        let mut tasks: Vec<Box<dyn MaintenanceTask>> = Vec::new();
        // Arranging first: reclaiming then sees the records of containers as arranging leaves them.
        tasks.extend(self.arrange().await?.map(|task| Box::new(task) as Box<dyn MaintenanceTask>));
        tasks.extend(self.reclaim().map(|task| Box::new(task) as Box<dyn MaintenanceTask>));
        Ok(tasks)
    }

    fn reclaim(&self) -> Option<reclaim::Work> {
        let options = self.options.reclaim.clone()?;
        let is_exact = self.search.is_wanted(options.exact);
        Some(reclaim::Work {
            options,
            context: self.copying(),
            cold: self.cold.clone(),
            job: self.job,
            retention: self.retention_view(),
            walks: is_exact.then(|| self.known_versions.walked(self.head.rebuilt.is_some())),
            search: self.search,
            sharing: self.options.sharing.clone(),
            turn: self.turn,
        })
    }

    async fn arrange(&self) -> Result<Option<arrange::Work>, RepositoryError> {
        let Some(options) = self.options.arrange.clone() else { return Ok(None) };
        let repository = &self.context.repository;
        let mut series = self.known_versions.unarranged(options.all);
        for unarranged in &mut series {
            unarranged.holes_percent = match options.holes_percent {
                Some(percent) => percent,
                None => f64::from(repository.settings(unarranged.series).await?.holes_percent),
            };
            unarranged.every = match options.every {
                Some(versions) => versions,
                None => u32::from(repository.settings(unarranged.series).await?.arrange_every),
            };
        }
        // Where no leftovers are allowed, any deleted version may have left some.
        series.retain(|unarranged| unarranged.is_due() || unarranged.holes_percent <= 0.0);
        if series.is_empty() {
            return Ok(None);
        }
        Ok(Some(arrange::Work {
            options,
            context: self.copying(),
            cold: self.cold.clone(),
            job: self.job,
            retention: Box::new(self.retention_view()),
            series,
        }))
    }

    /// The context in which tasks read and write contents.
    fn copying(&self) -> JobContext {
        copying(&moving(self.context, self.options.touch_cold), self.options.threads)
    }

    fn retention_view(&self) -> RetentionView {
        let mut view = self.known_versions.retention_view(&self.proposal.bases());
        self.proposal.fill(&mut view);
        view.rebuilt = self.head.rebuilt.unwrap_or(0);
        let keeps = |rule| self.context.repository.keeps(rule);
        if !keeps(Rule::RebuiltKeepsCopies) {
            view.rebuilt = 0;
        }
        if !keeps(Rule::RetireSettled) {
            view.leased.clear();
        }
        if !keeps(Rule::RetireNotAdopted) {
            view.adopted.clear();
        }
        view
    }
}

//! Signs of life of a worker in batches that it has not come to yet.
//!
//! A worker does one batch after the other. Meanwhile it says in the others which images it will
//! read there. So nobody takes these hosts for lost, however long the present batch takes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use larder_format::fleet::{FLEET_RULES, FleetPlan, PLAN_MAX};
use larder_format::ids::{AttemptId, JobId};
use larder_format::names;
use larder_job::JobContext;
use larder_store::repository::random;
use larder_store::{RepositoryError, StoreErrorKind};

use super::part::{numbers, reads};
use crate::queue::{BEATS, Beats, Heartbeat};
use crate::report::FleetImage;

/// See the module header.
pub(super) struct Presence {
    _heartbeat: Heartbeat,
}

impl Presence {
    /// Begins. `left` are the batches that this worker has done, or is busy with. `every` is how
    /// often it looks.
    pub(super) fn begin(
        context: &JobContext,
        images: &[FleetImage],
        host: &str,
        left: HashSet<JobId>,
        every: Duration,
    ) -> Self {
        let (of_task, images, host) = (context.clone(), images.to_vec(), host.to_owned());
        let _heartbeat = Heartbeat::begin(context, async move {
            let mut waiting = Waiting { context: of_task, images, host, left, every, known: HashMap::new() };
            loop {
                tokio::time::sleep(waiting.every).await;
                if let Err(error) = waiting.look().await {
                    tracing::warn!(%error, "other batches did not get a sign of life of this worker");
                }
            }
        });
        Self { _heartbeat }
    }
}

struct Waiting {
    context: JobContext,
    images: Vec<FleetImage>,
    host: String,
    left: HashSet<JobId>,
    every: Duration,
    /// `None`: it reads nothing there.
    known: HashMap<JobId, Option<Beats>>,
}

impl Waiting {
    async fn look(&mut self) -> Result<(), RepositoryError> {
        let open = self.context.repository.fleet_batches().await?.open;
        self.known.retain(|batch, _| open.contains(batch));
        for batch in open.into_iter().filter(|batch| !self.left.contains(batch)).collect::<Vec<_>>() {
            let is_known = self.known.contains_key(&batch);
            if !is_known {
                let beats = self.of(batch).await?;
                self.known.insert(batch, beats);
            }
            if let Some(Some(beats)) = self.known.get(&batch) {
                beats.give(&self.context).await?;
            }
        }
        Ok(())
    }

    /// The signs of life to give in a batch.
    async fn of(&mut self, batch: JobId) -> Result<Option<Beats>, RepositoryError> {
        let repository = &self.context.repository;
        let bytes = match repository.store().get_up_to(&names::fleet_plan(batch), PLAN_MAX).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // One that is not for this worker is told when it comes to it.
        let Ok(plan) = FleetPlan::decode(repository.keys(), batch, &bytes) else { return Ok(None) };
        let Some(shared) = plan.shared.as_ref().filter(|shared| shared.rules == FLEET_RULES) else { return Ok(None) };
        let mut hosts: Vec<u32> = reads(&plan, &numbers(&plan, &self.images), &self.host).into_iter().collect();
        hosts.sort_unstable();
        if hosts.is_empty() {
            return Ok(None);
        }
        self.every = self.every.min(Duration::from_secs(u64::from(shared.claim_seconds.max(1))) / BEATS);
        let me = AttemptId(random(repository.entropy())?);
        Ok(Some(Beats::new(batch, me, hosts)))
    }
}

//! The newest version of every series, for callers that look across series. A first backup looks
//! for similar input, a G-node for the versions that are restored most.
//!
//! Newest is by the order in which the jobs began. A listing names the candidates; reading one
//! summary a series finds them, as a rule. A caller that needs few of many series names them before
//! anything is read.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use larder_format::ids::{JobId, SeriesKey};
use larder_format::lease::Pin;
use larder_format::manifest::HEAD_GUESS;
use larder_format::names;

use crate::catalog::{Listed, ListedGeneration, Version};
use crate::closed_domains::ClosedDomains;
use crate::repository::{CONCURRENT_READS, Repository, RepositoryError};

/// Generations of a manifest.
type Generations = Vec<ListedGeneration>;

/// The versions of every series as they are listed.
#[derive(Debug, Clone)]
pub struct ListedSeries {
    /// Of each series its jobs by rising id, with the generations of their manifests.
    series: BTreeMap<SeriesKey, Vec<(JobId, Generations)>>,
    forgotten: HashSet<(SeriesKey, JobId)>,
    closed: Arc<ClosedDomains>,
}

impl ListedSeries {
    /// How many series there are.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Keeps the series of this number of newest jobs.
    pub fn keep_newest(&mut self, count: usize) {
        let mut newest: Vec<_> = self.series.values().filter_map(|jobs| jobs.last().map(|(job, _)| *job)).collect();
        newest.sort_unstable_by(|a, b| b.cmp(a));
        let Some(oldest) = newest.get(count.saturating_sub(1)).copied() else { return };
        self.series.retain(|_, jobs| jobs.last().is_some_and(|(job, _)| *job >= oldest));
    }

    /// Keeps only series whose newest version this admits. Newest as far as names tell: marked
    /// versions are skipped.
    pub fn retain(&mut self, mut admits: impl FnMut(Pin) -> bool) {
        let forgotten = &self.forgotten;
        self.series.retain(|series, jobs| {
            let mut newest = jobs.iter().rev().map(|(job, _)| *job);
            newest
                .find(|job| !forgotten.contains(&(*series, *job)))
                .is_none_or(|job| admits(Pin { series: *series, job }))
        });
    }
}

impl Repository {
    /// Lists the versions of every series.
    pub async fn list_series(&self) -> Result<ListedSeries, RepositoryError> {
        let (Listed { versions, forgotten }, closed) = self.listed_below(names::VERSIONS).await?;
        let mut series: BTreeMap<SeriesKey, Vec<_>> = BTreeMap::new();
        for ((key, job), generations) in versions {
            series.entry(key).or_default().push((job, generations));
        }
        Ok(ListedSeries { series, forgotten, closed: Arc::new(closed) })
    }

    /// The newest version of each of these series that can be read and is not forgotten, with its
    /// sketch.
    pub async fn newest_of(&self, listed: ListedSeries) -> Result<Vec<Version>, RepositoryError> {
        let (forgotten, closed) = (&listed.forgotten, &*listed.closed);
        let reads = listed.series.into_iter().map(|(series, mut jobs)| async move {
            while let Some((job, generations)) = jobs.pop() {
                let is_marked = forgotten.contains(&(series, job));
                let found = self.find(series, job, generations, is_marked, closed, HEAD_GUESS).await?;
                if found.version.is_some() {
                    return Ok(found.version);
                }
            }
            Ok::<_, RepositoryError>(None)
        });
        let reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
        let found: Vec<_> = reads.try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The newest version of every series that can be read and is not forgotten, with its sketch.
    pub async fn newest_of_every_series(&self) -> Result<Vec<Version>, RepositoryError> {
        self.newest_of(self.list_series().await?).await
    }
}

//! The space that forgetting snapshots would free, for the commands that show it.
//!
//! Snapshots in the layout `lifecycle` share data only within their series, and categories give the
//! exact bytes. All others, and all metadata, count whole containers that only they name. Manifests
//! count, too.

use std::collections::{BTreeMap, HashMap, HashSet};

use larder_format::ids::{JobId, SeriesKey};
use larder_gnode::exclusive_bytes::{SharesBudget, exclusive_bytes};
use larder_job::JobContext;
use larder_lifecycle::lifecycle_map::{Categories, categories};
use larder_store::catalog::Version;

use crate::app::App;
use crate::failure::Failure;
use crate::refs::Versions;

/// The input for these numbers.
pub(super) struct Free {
    all: Vec<Version>,
    categories: BTreeMap<SeriesKey, Categories>,
}

impl Free {
    /// `None` when there is a version that cannot be read, which may need anything.
    pub(super) fn read(app: &App, context: &JobContext, versions: &Versions) -> Result<Option<Self>, Failure> {
        if versions.has_unreadable() {
            return Ok(None);
        }
        let all = versions.all();
        let categories = match app.block_on(categories(&context.repository, &all)) {
            Ok(categories) => categories,
            // A version's summary opens and its body does not; or it was forgotten and removed just
            // now.
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "what would be free cannot be known");
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Some(Self { all, categories }))
    }

    /// The categories of a series in the layout `lifecycle`.
    pub(super) fn categories(&self, series: SeriesKey) -> Option<&Categories> {
        self.categories.get(&series)
    }

    /// Bytes that forgetting each of some disjoint groups would free; `None` as above.
    pub(super) fn of_groups(
        &self,
        app: &App,
        context: &JobContext,
        groups: &[&[Version]],
    ) -> Result<Option<Vec<u64>>, Failure> {
        Ok(self.of_each_and_all(app, context, groups)?.map(|(each, _)| each))
    }

    /// The same, and what forgetting all of them would free.
    pub(super) fn of_each_and_all(
        &self,
        app: &App,
        context: &JobContext,
        groups: &[&[Version]],
    ) -> Result<Option<(Vec<u64>, u64)>, Failure> {
        let manifests = |versions: &[Version]| versions.iter().map(|version| version.manifest_bytes).sum::<u64>();
        let mut free: Vec<u64> =
            groups.iter().map(|versions| self.of_lifecycle(versions) + manifests(versions)).collect();
        let all = groups.concat();
        let together = self.of_lifecycle(&all) + manifests(&all);
        let mut numbers = HashMap::new();
        for (number, versions) in groups.iter().enumerate() {
            numbers.extend(versions.iter().map(|version| (version.id(), number)));
        }
        let of_version: Vec<_> = self.all.iter().map(|version| numbers.get(&version.id()).copied()).collect();
        let (repository, budget) = (&context.repository, SharesBudget::of_memory(context.memory / 2));
        match app.block_on(exclusive_bytes(repository, &self.all, &of_version, groups.len(), budget)) {
            Ok(shares) => {
                free.iter_mut().zip(&shares.each).for_each(|(free, share)| *free += share.alone.0);
                Ok(Some((free, together + shares.together.0)))
            }
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "what would be free cannot be known");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The same of one group.
    pub(super) fn of_one(&self, app: &App, context: &JobContext, versions: &[Version]) -> Result<Option<u64>, Failure> {
        Ok(self.of_groups(app, context, &[versions])?.and_then(|free| free.first().copied()))
    }

    fn of_lifecycle(&self, versions: &[Version]) -> u64 {
        let mut gone: BTreeMap<SeriesKey, HashSet<JobId>> = BTreeMap::new();
        for version in versions {
            gone.entry(version.series).or_default().insert(version.id());
        }
        let freed = gone.iter().filter_map(|(series, gone)| Some(self.categories.get(series)?.freed(gone)));
        freed.map(|freed| freed.object_bytes.0).sum()
    }
}

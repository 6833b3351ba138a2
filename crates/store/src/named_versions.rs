//! The versions that references mean, found without reading the others.
//!
//! Names of registers have ids, and an id begins with the time at which its job began. A version
//! counts as at most that new ([`Version::rank`]). So `latest` is found from the newest id
//! downwards, and the search ends where no older id can be newer. As a rule, that is after one
//! version. Only versions with a stated time in the past need more reads (`backup --time`, copies).
//! Beginnings and ends of ids are compared with names.
//!
//! Marks and registers are listed side by side. A pass that removes a register and then its mark
//! between the two listings may thus show a forgotten version. Jobs that rely on a version look at
//! it once more after their lease, mark first (`docs/concurrency.md`). Restores and dumps of the
//! latest version then list once more. Other readers meet a missing object, as if the pass had come
//! a moment later.

use std::collections::HashSet;

use futures::StreamExt;
use larder_format::ids::{JobId, SeriesKey};
use larder_format::names;
use larder_format::sketch::Sketch;

use crate::catalog::{Catalog, Filter, Found, Listed, ListedGeneration, Reference, Version};
use crate::closed_domains::ClosedDomains;
use crate::read_manifests::WHOLE_MANIFEST;
use crate::repository::{CONCURRENT_READS, Repository, RepositoryError};

/// Newest versions of a series that are read at first.
const FIRST_IN_SERIES: usize = 4;
/// By how much more versions are read each time, while too few of those that were read fit.
const BATCH_GROWTH: usize = 8;

/// A version that was listed and not read.
struct Unread {
    series: SeriesKey,
    job: JobId,
    generations: Vec<ListedGeneration>,
}

impl Repository {
    /// A part of the catalog in which each of these references means the same as in the whole one,
    /// with this filter. See [`Catalog::find`].
    ///
    /// It also has those versions that were read on the way. Damaged versions are in it if they are
    /// newer than what `latest` means, or if their id was given.
    pub async fn catalog_for(&self, references: &[&str], filter: &Filter) -> Result<Catalog, RepositoryError> {
        let references: Vec<_> = references.iter().filter_map(|text| Reference::parse(text)).collect();
        let names_ids = references.iter().any(|reference| matches!(reference, Reference::Id(_)));
        let prefix = match &*filter.series {
            // A key for every domain sees series of that name in all of them. Ids are found in any
            // series.
            [only] if !names_ids && !self.keys.is_for_all_domains() => {
                names::series_versions(self.keys.series_key(only))
            }
            _ => names::VERSIONS.to_owned(),
        };
        let mut search = Search::begin(self, filter, &prefix).await?;
        let mut newest = 0;
        for reference in references {
            match reference {
                Reference::Latest { back } => newest = newest.max(back.saturating_add(1)),
                Reference::Id(text) => {
                    let unread = std::mem::take(&mut search.unread).into_iter();
                    let (named, unread) = unread.partition(|one| one.job.fits(&text));
                    search.unread = unread;
                    search.read(named).await?;
                }
            }
        }
        search.find_newest(newest, |version| filter.admits(&version.summary)).await?;
        Ok(search.end())
    }

    /// The newest versions of one series in the order in which their jobs began. They are read
    /// until those found suffice, or all are read. `suffices` gets them, the newest first.
    pub async fn newest_in_series(
        &self,
        series: &str,
        suffices: impl Fn(&[Version]) -> bool,
    ) -> Result<NewestInSeries, RepositoryError> {
        let filter = Filter { series: vec![series.to_owned()], ..Filter::default() };
        self.newest_below(&filter, self.keys.series_key(series), suffices).await
    }

    /// The same for a series of any domain, as object keys name it.
    pub async fn newest_of_series_key(
        &self,
        series: SeriesKey,
        suffices: impl Fn(&[Version]) -> bool,
    ) -> Result<NewestInSeries, RepositoryError> {
        self.newest_below(&Filter::default(), series, suffices).await
    }

    async fn newest_below(
        &self,
        filter: &Filter,
        series: SeriesKey,
        suffices: impl Fn(&[Version]) -> bool,
    ) -> Result<NewestInSeries, RepositoryError> {
        let mut search = Search::begin(self, filter, &names::series_versions(series)).await?;
        let listed = search.unread.iter().map(|one| one.job).collect();
        let mut batch = FIRST_IN_SERIES;
        loop {
            search.catalog.versions.sort_by_key(|version| std::cmp::Reverse(version.id()));
            if search.unread.is_empty() || suffices(&search.catalog.versions) {
                let Search { catalog, .. } = search;
                return Ok(NewestInSeries { listed, catalog });
            }
            let next = search.unread.split_off(search.unread.len().saturating_sub(batch));
            search.read(next).await?;
            batch = CONCURRENT_READS;
        }
    }
}

/// The newest versions of a series.
#[derive(Debug)]
pub struct NewestInSeries {
    /// Ids of all versions that were listed, also of forgotten and damaged ones.
    pub listed: HashSet<JobId>,
    /// Those that were read. The versions are in the order of their jobs, the newest first.
    pub catalog: Catalog,
}

/// A search in listed versions.
struct Search<'r> {
    repository: &'r Repository,
    prefix: String,
    /// By rising id.
    unread: Vec<Unread>,
    forgotten: HashSet<(SeriesKey, JobId)>,
    catalog: Catalog,
    /// Series that the filter may admit; empty: any.
    wanted: &'r [String],
    /// Names of these series in the own domain.
    own: HashSet<SeriesKey>,
    /// Other series that have such a name, as a version of them has told.
    named_so: HashSet<SeriesKey>,
    /// Others, which do not.
    named_otherwise: HashSet<SeriesKey>,
    /// Read when a version of a domain that can be closed is found.
    closed: Option<ClosedDomains>,
}

impl<'r> Search<'r> {
    /// Lists the versions below a prefix.
    async fn begin(repository: &'r Repository, filter: &'r Filter, prefix: &str) -> Result<Self, RepositoryError> {
        let (marks, registers) =
            futures::try_join!(repository.list_marks_below(prefix), repository.list_registers_below(prefix))?;
        let Listed { versions, forgotten } = Listed::new(marks, registers);
        let listed = versions.into_iter().map(|((series, job), generations)| Unread { series, job, generations });
        let mut unread: Vec<_> = listed.collect();
        unread.sort_by_key(|one| (one.job, one.series));
        Ok(Self {
            repository,
            prefix: prefix.to_owned(),
            unread,
            forgotten,
            catalog: Catalog::default(),
            wanted: &filter.series,
            own: filter.series.iter().map(|series| repository.keys.series_key(series)).collect(),
            named_so: HashSet::new(),
            named_otherwise: HashSet::new(),
            closed: None,
        })
    }

    /// Reads from the newest down, until no unread version can be among the `count` newest that are
    /// admitted.
    async fn find_newest(&mut self, count: usize, admits: impl Fn(&Version) -> bool) -> Result<(), RepositoryError> {
        if count == 0 {
            return Ok(());
        }
        let mut batch = count;
        loop {
            let admitted = self.catalog.versions.iter().filter(|version| admits(version));
            let mut ranks: Vec<_> = admitted.map(Version::rank).collect();
            ranks.sort_unstable_by(|a, b| b.cmp(a));
            let least = ranks.get(count - 1).copied();
            let next = self.next_batch(batch.clamp(1, CONCURRENT_READS), least);
            if next.is_empty() {
                return Ok(());
            }
            self.read(next).await?;
            batch = batch.saturating_mul(BATCH_GROWTH);
        }
    }

    /// Takes the newest unread versions that may be admitted and are newer than `least`. Of a
    /// series whose name is unknown there is one: it tells the name. These wait until the own
    /// series has said how new a version must be.
    fn next_batch(&mut self, most: usize, least: Option<(u64, JobId)>) -> Vec<Unread> {
        if !self.wanted.is_empty() {
            let otherwise = &self.named_otherwise;
            self.unread.retain(|one| !otherwise.contains(&one.series));
        }
        let is_known = |one: &Unread| {
            self.wanted.is_empty() || self.own.contains(&one.series) || self.named_so.contains(&one.series)
        };
        let waits_for_own = least.is_none() && self.unread.iter().any(is_known);
        let mut asked = HashSet::new();
        let mut batch = Vec::new();
        let mut at = self.unread.len();
        while at > 0 && batch.len() < most {
            at -= 1;
            let one = &self.unread[at];
            if least.is_some_and(|least| (one.job.unix_ms(), one.job) < least) {
                break;
            }
            if is_known(one) || (!waits_for_own && asked.insert(one.series)) {
                batch.push(at);
            }
        }
        // Places above those that are still to be removed.
        batch.into_iter().map(|at| self.unread.remove(at)).collect()
    }

    /// Reads versions into the catalog.
    async fn read(&mut self, versions: Vec<Unread>) -> Result<(), RepositoryError> {
        let (repository, forgotten, none) = (self.repository, &self.forgotten, &ClosedDomains::default());
        let reads = versions.into_iter().map(|Unread { series, job, generations }| async move {
            let is_marked = forgotten.contains(&(series, job));
            repository.find(series, job, generations, is_marked, none, WHOLE_MANIFEST).await
        });
        let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
        let mut all = Vec::new();
        while let Some(found) = reads.next().await {
            all.push(found?);
        }
        drop(reads);
        let can_be_closed =
            |found: &Found| found.version.as_ref().is_some_and(|version| !version.summary.domain.is_default());
        if self.closed.is_none() && all.iter().any(can_be_closed) {
            self.closed = Some(self.repository.closed_for(&self.prefix).await?);
        }
        for mut found in all {
            if let Some(version) = &mut found.version {
                version.summary.sketch = Sketch::default();
                let names = if self.wanted.contains(&version.summary.series) {
                    &mut self.named_so
                } else {
                    &mut self.named_otherwise
                };
                names.insert(version.series);
            }
            let refuses = |version: &mut Version| {
                self.closed.as_ref().is_some_and(|closed| closed.refuses(version.series, &version.summary))
            };
            found.refused = found.version.take_if(refuses);
            self.catalog.add(found);
        }
        Ok(())
    }

    fn end(mut self) -> Catalog {
        self.catalog.sort();
        self.catalog.faulty_ends = self.closed.map(|closed| closed.faulty).unwrap_or_default();
        self.catalog
    }
}

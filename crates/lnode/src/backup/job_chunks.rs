//! The search for chunks of the data stream: the filters of this job's own chunks, and the chain of
//! all filters.
//!
//! Memory keeps the newest of the job's own chunks, and the job's overflow keeps the older ones,
//! within one budget. Not here: the filters of bases (`filters`), and their user
//! ([`super::sequence`]).

use std::path::PathBuf;

use larder_dedup::chain::Filter;
use larder_dedup::{Bloom, GroupFilter, OlderChunks, OwnChunks};
use larder_format::ids::JobId;
use larder_store::RepositoryError;

use super::bases::OrphanedContainers;
use super::filters::BaseFilters;
use super::layout_policy::LayoutPolicy;
use super::overflow::Overflow;
use super::paranoid::ByteComparison;

/// The filters of this job's own chunks.
#[derive(Debug)]
pub(super) struct JobChunks {
    /// Covers all own chunks.
    bloom: Bloom,
    newest: OwnChunks,
    older: OlderChunks<Overflow>,
}

impl JobChunks {
    /// Filters that take about `budget` bytes of memory together. With the default of 12 MiB, the
    /// newest 60,000 chunks are found in memory and another 590,000 exactly in the file. Still
    /// older ones are found if they come in runs.
    pub(super) fn new(budget: usize, scratch: Option<PathBuf>, job: JobId, policy: &dyn LayoutPolicy) -> Self {
        let twelfths = |count| budget / 12 * count;
        let overflow = Overflow::new(scratch.clone(), job);
        let older = policy.older_chunks(overflow, twelfths(6), twelfths(2), &scratch);
        Self { bloom: Bloom::new(twelfths(1)), newest: OwnChunks::new(twelfths(3)), older }
    }

    /// The filters alone.
    pub(super) fn filters(&mut self) -> impl Iterator<Item = &mut dyn Filter<RepositoryError>> {
        let filters: [&mut dyn Filter<RepositoryError>; 3] = [&mut self.bloom, &mut self.newest, &mut self.older];
        filters.into_iter()
    }

    /// Moves chunks that exceed the memory of the newest on to the overflow.
    pub(super) fn make_room(&mut self) -> Result<(), RepositoryError> {
        match self.newest.take_leaving() {
            Some(group) => self.older.keep(&group),
            None => Ok(()),
        }
    }
}

/// The chain of a data stream, nearest and cheapest first. Behind the bloom filter are only filters
/// whose chunks it has seen.
pub(super) fn data_filters<'a>(
    base: &'a mut Option<BaseFilters>,
    own: &'a mut JobChunks,
    orphans: &'a mut Option<GroupFilter<OrphanedContainers>>,
    comparison: &'a mut Option<ByteComparison>,
) -> impl Iterator<Item = &'a mut (dyn Filter<RepositoryError> + 'a)> {
    let filters: [Option<&mut dyn Filter<RepositoryError>>; 6] = [
        base.as_mut().map(|base| base as _),
        orphans.as_mut().map(|orphans| orphans as _),
        Some(&mut own.bloom),
        Some(&mut own.newest),
        Some(&mut own.older),
        comparison.as_mut().map(|comparison| comparison as _),
    ];
    filters.into_iter().flatten()
}

/// The chain of a metadata stream. A job's own blocks are not searched: every path comes once.
pub(super) fn metadata_filters<'a>(
    base: &'a mut Option<BaseFilters>,
    comparison: &'a mut Option<ByteComparison>,
) -> impl Iterator<Item = &'a mut (dyn Filter<RepositoryError> + 'a)> {
    let filters: [Option<&mut dyn Filter<RepositoryError>>; 2] =
        [base.as_mut().map(|base| base as _), comparison.as_mut().map(|comparison| comparison as _)];
    filters.into_iter().flatten()
}

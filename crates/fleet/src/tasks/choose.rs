//! Which versions an image names in its lease, so that it may share their containers.
//!
//! The index names containers of anybody. A job may only use those of versions that its lease
//! names (`OwnersNamed`). So for each container that the index found, a version is chosen that uses
//! it: the base, else one that is chosen already, else the newest of a series, else an older one.

use std::collections::{BTreeSet, HashMap};

use larder_format::ErrorKind;
use larder_format::ids::{ContainerKind, JobId};
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_format::layout::Layout;
use larder_index::{Containers, IndexIo, LookupOptions, TableView};
use larder_store::catalog::{Filter, Version};

use crate::error::FleetError;
use crate::shared::{Batch, KnownIndex};

/// Versions that a lease names at most: a lease has room for twice as many.
const VERSIONS_MAX: usize = 10_000;
/// Containers that are looked up at once.
const AT_ONCE: usize = 4096;

/// The containers that the index found, and the versions to name.
pub(crate) struct Choice {
    /// By their number in the index. Containers that nobody may share are left out.
    pub(crate) containers: HashMap<u32, ContainerFacts>,
    /// Versions to name beside the base.
    pub(crate) versions: Vec<Version>,
}

/// Chooses versions that use these containers.
pub(crate) fn choose(batch: &Batch<'_>, numbers: &BTreeSet<u32>, base: Option<&Version>) -> Result<Choice, FleetError> {
    let (context, index) = (batch.context, batch.index());
    let io = IndexIo { repository: context.repository.clone(), executor: context.executor.clone() };
    let options = LookupOptions::streaming(batch.budget().lookup / 2);
    let table = TableView::<Containers>::new(io, &index.snapshot.manifest.runs, options);
    let mut choice = Choice { containers: HashMap::new(), versions: Vec::new() };
    let mut older = BTreeSet::new();
    let numbers: Vec<u32> = numbers.iter().copied().collect();
    for some in numbers.chunks(AT_ONCE) {
        let found = match context.executor.block_on(table.get(some)) {
            // Runs were merged meanwhile: what they knew is stored again.
            Err(error) if error.kind() == ErrorKind::Damaged => {
                tracing::warn!(%error, "the index cannot be asked");
                break;
            }
            found => found?,
        };
        for (number, facts) in some.iter().zip(found) {
            let Some(facts) = facts.filter(may_share) else { continue };
            let is_named = |version: &Version| uses(&index, &facts, version);
            let is_known = base.is_some_and(is_named)
                || choice.versions.iter().any(is_named)
                || older.iter().any(|job| index.numbers.get(job).is_some_and(|of| uses_number(&facts, *of)));
            if !is_known && choice.versions.len() + older.len() < VERSIONS_MAX {
                match batch.newest.iter().find(|version| is_named(version)) {
                    Some(version) => choice.versions.push(version.clone()),
                    None => older.extend(last_user(&index, &facts)),
                }
            }
            choice.containers.insert(*number, facts);
        }
    }
    let ids: Vec<String> = older.iter().map(JobId::to_string).collect();
    if !ids.is_empty() {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let catalog = context.executor.block_on(context.repository.catalog_for(&ids, &Filter::default()))?;
        let found = catalog.versions.into_iter().filter(|version| older.contains(&version.id()));
        choice.versions.extend(found.filter(|version| version.summary.layout == Layout::Standard));
    }
    Ok(choice)
}

/// Whether chunks of a container may be shared at all.
fn may_share(facts: &ContainerFacts) -> bool {
    facts.id.kind == ContainerKind::Data
        && facts.state == ContainerState::Live
        && facts.layout == Layout::Standard
        && !facts.users.is_empty()
}

/// Whether a version uses a container, as far as the index knows. One that is not ingested yet
/// probably uses what the one before it uses.
fn uses(index: &KnownIndex, facts: &ContainerFacts, version: &Version) -> bool {
    let number = index.numbers.get(&version.id());
    let of_series = facts.users.iter().filter(|user| user.series == version.series);
    of_series.flat_map(|user| &user.lifespans).any(|lifespan| match number {
        Some((_, number)) => lifespan.contains(*number),
        None => lifespan.last.is_none(),
    })
}

fn uses_number(facts: &ContainerFacts, (series, number): (larder_format::ids::SeriesKey, u32)) -> bool {
    let of_series = facts.users.iter().filter(|user| user.series == series);
    of_series.flat_map(|user| &user.lifespans).any(|lifespan| lifespan.contains(number))
}

/// The version ingested last that uses a container.
fn last_user(index: &KnownIndex, facts: &ContainerFacts) -> Option<JobId> {
    let versions = index.snapshot.manifest.versions.iter().rev();
    let mut users = versions.filter(|version| uses_number(facts, (version.series, version.number)));
    users.find(|version| version.layout == Layout::Standard).map(|version| version.job)
}

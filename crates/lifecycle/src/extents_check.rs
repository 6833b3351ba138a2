//! Compares the records of extents with the table of containers.

use std::collections::{BTreeMap, HashMap};

use larder_format::ids::ContainerId;
use larder_format::index_manifest::IndexedVersion;
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_format::layout::Layout;
use larder_index::{ContainerExtents, IndexError, IndexPass, IndexSnapshot, LookupOptions, TableView};

/// Checks that an existing, large enough container has every extent that a retained version uses.
/// `wrong` gets the others: the container that stored the bytes first, and the one that should have
/// them.
pub fn compare_extents(
    pass: &IndexPass,
    index: &IndexSnapshot,
    containers: &BTreeMap<u32, ContainerFacts>,
    mut wrong: impl FnMut(ContainerId, ContainerId),
) -> Result<(), IndexError> {
    let by_id: HashMap<ContainerId, &ContainerFacts> = containers.values().map(|facts| (facts.id, facts)).collect();
    let runs = &index.manifest.runs;
    let table: TableView<ContainerExtents> = TableView::new(pass.io.clone(), runs, LookupOptions::default());
    for record in table.scan(0..=u64::MAX, pass.memory / 8) {
        let (id, Some(extents)) = record? else { continue };
        let Some(user) = by_id.get(&id).and_then(|facts| facts.users.first()) else { continue };
        let first = user.lifespans.first().map_or(0, |lifespan| lifespan.first);
        for extent in &extents.0 {
            let needs = first..=extent.last.unwrap_or(u32::MAX);
            // Versions that were converted in between do not use it.
            let is_of = |version: &IndexedVersion| {
                let is_of_series = version.series == user.series && version.layout == Layout::Lifecycle;
                is_of_series && needs.contains(&version.number)
            };
            if !index.manifest.versions.iter().any(is_of) {
                continue;
            }
            let (place, offset) = extent.to.unwrap_or((id, extent.from));
            let has_it = by_id.get(&place).is_some_and(|facts| {
                facts.state == ContainerState::Live && u64::from(offset) + u64::from(extent.length) <= facts.bytes
            });
            if !has_it {
                wrong(id, place);
            }
        }
    }
    Ok(())
}

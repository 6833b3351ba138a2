//! Series that passes no longer arrange, because the index was rebuilt and does not know where some
//! of their bytes went.
//!
//! Such a series loses nothing: its chunks are found by their fingerprints. Converting it within
//! its layout ([`crate::convert_layout`]) rewrites every version that names such containers, and
//! then it is arranged as usual. This module serves that conversion and users; a pass checks by
//! itself (`series`).

use std::collections::{BTreeMap, HashSet};

use larder_format::ids::{ContainerId, ContainerKind, SeriesKey};
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_format::layout::Layout;
use larder_index::{Containers, Executor, IndexError, IndexIo, IndexSnapshot, LookupOptions, TableView};
use larder_store::Repository;

/// Bytes of memory for reading the table of containers.
const SCAN_MEMORY: usize = 4 << 20;

/// Whether the extents of a container refer to a container that is gone, or that may go at any time
/// (`RebuiltKeepsCopies`).
pub(super) fn needs_rebuild(number: u32, facts: &ContainerFacts, rebuilt: u32) -> bool {
    facts.state == ContainerState::Gone || (number < rebuilt && !facts.forwards.is_empty())
}

/// For each series that cannot be arranged for that reason, the containers that cause it. Reads the
/// newest index, and its table of containers only if that index was ever rebuilt.
pub async fn needing_rebuild(repository: &Repository) -> Result<BTreeMap<SeriesKey, HashSet<ContainerId>>, IndexError> {
    disordered_on(&Executor::threads(), repository).await
}

/// The same, reading the table there.
pub(crate) async fn disordered_on(
    executor: &Executor,
    repository: &Repository,
) -> Result<BTreeMap<SeriesKey, HashSet<ContainerId>>, IndexError> {
    let snapshot = IndexSnapshot::newest(repository).await?.snapshot;
    let Some(rebuilt) = snapshot.manifest.head.rebuilt else { return Ok(BTreeMap::new()) };
    let runs = snapshot.manifest.runs.clone();
    let read = move |io: IndexIo| {
        let table: TableView<Containers> = TableView::new(io, &runs, LookupOptions::default());
        let mut all: BTreeMap<SeriesKey, HashSet<ContainerId>> = BTreeMap::new();
        for record in table.scan(0..=u64::MAX, SCAN_MEMORY) {
            let (number, Some(facts)) = record? else { continue };
            let is_data = facts.layout == Layout::Lifecycle && facts.id.kind == ContainerKind::Data;
            if is_data && needs_rebuild(number, &facts, rebuilt) {
                for user in &facts.users {
                    all.entry(user.series).or_default().insert(facts.id);
                }
            }
        }
        Ok::<_, IndexError>(all)
    };
    executor.run(repository, read).await
}

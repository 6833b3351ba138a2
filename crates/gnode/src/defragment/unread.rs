//! The containers of newest versions whose manifests are too large to be read. The index has them,
//! and reads them in bounded memory.

use larder_format::ids::ContainerId;
use larder_index::{Containers, Current, IndexError, IndexIo, IndexSnapshot, LookupOptions, TableView};
use larder_job::JobContext;
use larder_store::catalog::Version;

use crate::forget::pin_of;
use crate::lifespans::Numbers;
use crate::lifespans::is_used;

/// Shows the containers of each of these versions as far as the newest index knows them, with the
/// place of the version. A version that was not ingested yet has none: others may leave what they
/// share with it, which costs space.
pub(super) fn containers(
    context: &JobContext,
    memory: usize,
    versions: &[&Version],
    mut each: impl FnMut(usize, ContainerId) -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    let index: IndexSnapshot =
        match context.executor.block_on(Current::look(&context.repository)).and_then(Current::base) {
            Ok(index) => index,
            Err(error) if error.is_damage() => return Ok(()),
            Err(error) => return Err(error),
        };
    let numbers = |version: &&Version| {
        let mut rows = index.manifest.versions.iter();
        let row = rows.find(|row| (row.series, row.job) == (version.series, pin_of(version).job))?;
        Some(Numbers::from([(row.series, [row.number].into())]))
    };
    let wanted: Vec<(usize, Numbers)> =
        versions.iter().enumerate().filter_map(|(at, version)| Some((at, numbers(version)?))).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let io = IndexIo { repository: context.repository.clone(), executor: context.executor.clone() };
    let table: TableView<Containers> = TableView::new(io, &index.manifest.runs, LookupOptions::default());
    for record in table.scan(0..=u64::MAX, memory) {
        let (_, Some(facts)) = record? else { continue };
        for (at, _) in wanted.iter().filter(|(_, numbers)| is_used(&facts, numbers)) {
            each(*at, facts.id)?;
        }
    }
    Ok(())
}

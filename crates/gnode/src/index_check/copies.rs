//! Compares the chunks in containers with those that are listed, both in order of their keys.

use std::collections::{BTreeMap, HashSet};

use futures::StreamExt;
use larder_format::ids::ContainerId;
use larder_format::index_manifest::ContainerList;
use larder_format::index_tables::{ChunkKey, ChunkPlace, ContainerFacts, CopyKey};
use larder_format::layout::Layout;
use larder_format::names;
use larder_index::{
    Changes, Chunks, Copies, Cursor, IndexError, IndexPass, IndexSnapshot, LookupOptions, Records, Sorted, TableView,
    TypedTable,
};
use larder_job::{Cancel, Progress};
use larder_store::RepositoryError;

use super::{IndexCheck, IndexFinding, Needs};
use crate::ingest::listing::{Groups, places};

/// Tables of containers that are read at once.
const CONCURRENT_READS: usize = 16;

/// Every chunk of every container is listed once, and every listed chunk is there. Returns whether
/// the comparison is complete.
pub(super) fn compare(
    pass: &IndexPass,
    index: &IndexSnapshot,
    mut containers: BTreeMap<u32, ContainerFacts>,
    needs: &Needs,
    check: &mut IndexCheck,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<bool, IndexError> {
    let runs = &index.manifest.runs;
    let unlisted = Unlisted(index.manifest.head.unlisted.as_ref());
    let Some((actual, left_out)) = collect(pass, &containers, needs, &unlisted, check, progress, cancel)? else {
        return Ok(false);
    };
    // The container was reported or counted; the index may still be right about its chunks.
    containers.retain(|number, _| !left_out.contains(number));
    let containers = &containers;
    let chunks: TableView<Chunks> = TableView::new(pass.io.clone(), runs, LookupOptions::default());
    let copies: TableView<Copies> = TableView::new(pass.io.clone(), runs, LookupOptions::default());
    let mut actual = Groups::new(actual);
    let mut entries = chunks.scan(0..=u64::MAX, pass.memory / 8).into_cursor();
    let mut others = Groups::new(copies.scan(0..=u64::MAX, pass.memory / 8));
    let mut comparing = Comparing { containers, check };
    let mut has = [actual.advance()?, entries.advance()?, others.advance()?];
    loop {
        let keys = [has[0].then(|| actual.key()), has[1].then(|| entries.key()), has[2].then(|| others.key())];
        let Some(key) = keys.iter().flatten().min().map(|key| key.to_vec()) else { return Ok(true) };
        let takes = keys.map(|this| this == Some(&key));
        let there = if takes[0] { actual.value().unwrap_or_default() } else { &[] };
        let entry = if takes[1] { entries.value() } else { None };
        let copies = if takes[2] { others.value().unwrap_or_default() } else { &[] };
        comparing.compare(&key, there, entry, copies)?;
        if takes[0] {
            has[0] = actual.advance()?;
        }
        if takes[1] {
            has[1] = entries.advance()?;
        }
        if takes[2] {
            has[2] = others.advance()?;
        }
    }
}

/// Chunks that are in containers, and the numbers of containers whose chunks cannot be compared.
type Collected = (Records<Copies, Sorted>, HashSet<u32>);

/// The chunks that are in the containers; `None` when it was asked to stop.
fn collect(
    pass: &IndexPass,
    containers: &BTreeMap<u32, ContainerFacts>,
    needs: &Needs,
    unlisted: &Unlisted<'_>,
    check: &mut IndexCheck,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<Option<Collected>, IndexError> {
    let mut left_out = HashSet::new();
    let mut actual: Changes<Copies> = Changes::new(&pass.io, pass.memory / 2, &pass.folder)?;
    let repository = &pass.io.repository;
    let reads = containers
        .iter()
        .map(|(number, facts)| async move { (*number, facts, repository.read_container_index(facts.id).await) });
    let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS);
    while let Some((number, facts, read)) = pass.io.executor.block_on(reads.next()) {
        if cancel.is_cancelled() {
            return Ok(None);
        }
        progress.done(0, facts.object_bytes);
        let index = match read {
            Ok(index) => index,
            // Nothing can be compared before it is thawed.
            Err(error) if error.is_cold() => {
                left_out.insert(number);
                continue;
            }
            Err(error) if error.is_damage() => {
                let container = names::container(facts.id);
                let needed_by = needs.needed_by(number, facts);
                let reason = match &error {
                    RepositoryError::Store(error) => error.kind.to_string(),
                    RepositoryError::Damaged { source, .. } => source.to_string(),
                    error => error.to_string(),
                };
                check.found(IndexFinding::ContainerUnreadable { container, reason, needed_by });
                check.unreadable += 1;
                left_out.insert(number);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let bytes: u64 = index.chunks.iter().map(|chunk| u64::from(chunk.size)).sum();
        if (facts.chunks as usize, facts.bytes, facts.object_bytes) != (index.chunks.len(), bytes, index.object_len) {
            check.found(IndexFinding::WrongFacts { container: names::container(facts.id) });
        }
        // In the layout `lifecycle` chunks are found by their names.
        if facts.layout == Layout::Lifecycle {
            continue;
        }
        if unlisted.contains(&facts.id) {
            check.unlisted += 1;
            left_out.insert(number);
            continue;
        }
        // From behind, so that of equal chunks in one container the first holds.
        for (place, chunk) in index.chunks.iter().enumerate().rev() {
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            let key = CopyKey { chunk: ChunkKey::of(&chunk.fingerprint), container: number };
            actual.put(&key, &place)?;
            check.chunks += 1;
        }
    }
    Ok(Some((actual.sorted()?, left_out)))
}

/// Containers that could not be read when they were ingested, as the index says. The list has an
/// end: behind a full one, every container may be one of them.
struct Unlisted<'a>(Option<&'a ContainerList>);

impl Unlisted<'_> {
    fn contains(&self, id: &ContainerId) -> bool {
        let ids = self.0.map_or(&[][..], ContainerList::ids);
        ids.binary_search(id).is_ok() || (self.0.is_some_and(ContainerList::is_full) && ids.last() < Some(id))
    }
}

struct Comparing<'a> {
    containers: &'a BTreeMap<u32, ContainerFacts>,
    check: &'a mut IndexCheck,
}

impl Comparing<'_> {
    /// Compares one chunk: its places, the entry of the index, and its listed copies.
    fn compare(&mut self, key: &[u8], there: &[u8], entry: Option<&[u8]>, copies: &[u8]) -> Result<(), IndexError> {
        let wrong = |source| IndexError::WrongRecord { table: Chunks::TABLE, key: key.to_vec(), source };
        let key = Chunks::decode_key(key).map_err(wrong)?;
        let entry = entry.map(ChunkPlace::decode).transpose().map_err(wrong)?;
        let mut missing: Vec<ChunkPlace> = places(there).collect::<Result<_, _>>()?;
        let everywhere = missing.clone();
        self.check.different_chunks += u64::from(!missing.is_empty());
        let is_known = |place: &ChunkPlace| self.containers.contains_key(&place.container);
        let entry = entry.filter(is_known);
        let listed: Vec<ChunkPlace> = places(copies).collect::<Result<_, _>>()?;
        let listed = listed.into_iter().filter(is_known);
        self.check.waiting += u64::from(entry.is_none() && !missing.is_empty());
        for place in entry.into_iter().chain(listed) {
            let container = names::container(self.containers[&place.container].id);
            let chunk = place.chunk;
            match missing.iter().position(|missing| *missing == place) {
                Some(found) => drop(missing.swap_remove(found)),
                None if everywhere.contains(&place) => {
                    self.check.found(IndexFinding::ListedTwice { container, chunk });
                }
                None => self.check.found(IndexFinding::WrongPlace { container, chunk, key }),
            }
        }
        for place in missing {
            let container = names::container(self.containers[&place.container].id);
            self.check.found(IndexFinding::ChunkUnknown { container, chunk: place.chunk });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use larder_format::ids::{ContainerKind, JobId};
    use larder_format::index_manifest::LIST_MAX;

    use super::*;

    #[test]
    fn behind_a_full_list_every_container_may_be_unlisted() {
        let id = |seq: u32| ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq };
        let even = |count: u32| ContainerList::of((0..count).map(|number| id(2 * number))).expect("a list");
        let most = LIST_MAX as u32;
        let (short, full) = (even(most - 1), even(most));
        let (short, full) = (Unlisted(Some(&short)), Unlisted(Some(&full)));
        assert!(short.contains(&id(2)) && !short.contains(&id(3)) && !short.contains(&id(2 * most)));
        assert!(full.contains(&id(2)) && !full.contains(&id(3)) && full.contains(&id(2 * most + 1)));
        assert!(!Unlisted(None).contains(&id(2)));
    }
}

//! The third part of a check: the versions and files that need damaged objects.

use std::collections::BTreeMap;
use std::ops::Range;

use larder_format::ChunkRef;
use larder_format::ids::ContainerId;
use larder_job::JobContext;
use larder_reader::{FirstNames, MetaChunks, VersionReader, is_missing};
use larder_store::RepositoryError;
use larder_store::catalog::Version;

use super::structure::BadContainer;
use super::{AffectedVersion, CheckError};

/// Named files of each version; further ones are only counted.
const FILES_NAMED: usize = 20;

type Bad = BTreeMap<ContainerId, BadContainer>;

/// For each bad container, its cost for this version. `chunks` has the resolved places.
pub(super) fn trace(
    context: &JobContext,
    chunks: &MetaChunks,
    version: &Version,
    bad: &Bad,
) -> Result<BTreeMap<ContainerId, AffectedVersion>, CheckError> {
    let mut affected = BTreeMap::new();
    let reader = match context.executor.block_on(context.repository.manifest(version)) {
        Ok(manifest) => VersionReader::knowing(context, manifest, chunks),
        // It was read just before: another look shows whether it is forgotten.
        Err(error) if is_missing(&error) => return Ok(everything(version, bad)),
        Err(error) => return Err(error.into()),
    };
    if !reader.lies_in(|id| bad.contains_key(id))? {
        return Ok(affected);
    }
    let hurt = |id: ContainerId, affected: &mut BTreeMap<ContainerId, AffectedVersion>, file: Option<&[u8]>| {
        let entry = affected.entry(id).or_insert_with(|| AffectedVersion {
            id: version.id(),
            series: version.summary.series.clone(),
            files: Vec::new(),
            files_count: 0,
        });
        if let Some(file) = file {
            entry.files_count += 1;
            if entry.files.len() < FILES_NAMED {
                entry.files.push(file.to_vec());
            }
        }
    };
    let mut ranges = Vec::new();
    bad_metadata(&reader, bad, |id| hurt(id, &mut affected, None))?;
    bad_ranges(&reader, bad, &mut ranges)?;
    let mut first_names = FirstNames::new(&reader);
    let mut entries = reader.placed_below(b"");
    while let Some(placed) = entries.next() {
        let Ok(placed) = placed else {
            // Files in damaged metadata cannot be named.
            match entries.recover()? {
                Some(_) => continue,
                None => break,
            }
        };
        // Each name of a file is lost with it.
        let data = first_names.file(&placed.entry)?.map_or_else(|| placed.data_range(), |file| file.data);
        for id in containers_in(&ranges, &data) {
            hurt(id, &mut affected, Some(&placed.entry.path));
        }
    }
    Ok(affected)
}

/// The damaged containers of a part of the data stream, each once. `ranges` are those of
/// [`bad_ranges`].
fn containers_in(ranges: &[(Range<u64>, ContainerId)], data: &Range<u64>) -> Vec<ContainerId> {
    let mut found = Vec::new();
    if data.is_empty() {
        return found;
    }
    let first = ranges.partition_point(|(range, _)| range.end <= data.start);
    for (_, id) in ranges[first..].iter().take_while(|(range, _)| range.start < data.end) {
        if !found.contains(id) {
            found.push(*id);
        }
    }
    found
}

/// All bad containers, for a version that cannot be read any further.
fn everything(version: &Version, bad: &Bad) -> BTreeMap<ContainerId, AffectedVersion> {
    let version =
        AffectedVersion { id: version.id(), series: version.summary.series.clone(), files: Vec::new(), files_count: 0 };
    bad.keys().map(|id| (*id, version.clone())).collect()
}

/// Finds damage in the metadata itself.
fn bad_metadata(reader: &VersionReader, bad: &Bad, mut hurt: impl FnMut(ContainerId)) -> Result<(), CheckError> {
    let mut recipe = reader.metadata_recipe();
    for number in 0..recipe.recipe().nodes.len() {
        let chunk = recipe.recipe().nodes[number].chunk;
        if bad.get(&chunk.container).is_some_and(|bad| bad.covers(&chunk)) {
            hurt(chunk.container);
            continue;
        }
        let Some(node) = whole(recipe.node(number))? else { continue };
        for segment in &node.segments {
            let covered = |chunk: &&ChunkRef| bad.get(&chunk.container).is_some_and(|bad| bad.covers(chunk));
            if let Some(chunk) = segment.chain().find(covered) {
                hurt(chunk.container);
                continue;
            }
            if !recipe.lies_in(segment, |id| bad.contains_key(id))? {
                continue;
            }
            let Some(records) = whole(recipe.records_of(segment))? else { continue };
            for record in records.iter() {
                if bad.get(&record.chunk.container).is_some_and(|bad| bad.covers(&record.chunk)) {
                    hurt(record.chunk.container);
                }
            }
        }
    }
    Ok(())
}

/// Unreadable ranges of the data stream, in order, each with the damaged container.
pub(crate) fn bad_ranges(
    reader: &VersionReader,
    bad: &Bad,
    out: &mut Vec<(Range<u64>, ContainerId)>,
) -> Result<(), CheckError> {
    let mut recipe = reader.data_recipe();
    let mut add = |range: Range<u64>, id: ContainerId| match out.last_mut() {
        Some((last, last_id)) if last.end == range.start && *last_id == id => last.end = range.end,
        _ => out.push((range, id)),
    };
    let mut offset = 0;
    for number in 0..recipe.recipe().nodes.len() {
        let first = recipe.segments_through(number).saturating_sub(recipe.recipe().nodes[number].segments);
        let (chunk, bytes) = (recipe.recipe().nodes[number].chunk, recipe.recipe().nodes[number].bytes);
        let node = match bad.get(&chunk.container).is_some_and(|bad| bad.covers(&chunk)) {
            true => None,
            false => whole(recipe.node(number))?,
        };
        let Some(node) = node else {
            add(offset..offset + bytes, chunk.container);
            offset += bytes;
            continue;
        };
        for (segment, place) in node.segments.iter().zip(first..) {
            let here = offset;
            offset += segment.bytes;
            let chunk = segment.chunk;
            let covered = |chunk: &&ChunkRef| bad.get(&chunk.container).is_some_and(|bad| bad.covers(chunk));
            if let Some(chunk) = segment.chain().find(covered) {
                add(here..offset, chunk.container);
                continue;
            }
            if !recipe.lies_in(segment, |id| bad.contains_key(id))? {
                continue;
            }
            let Some(records) = whole(recipe.segment(place))? else {
                add(here..offset, chunk.container);
                continue;
            };
            let mut at = here;
            for record in records.iter() {
                let next = at + u64::from(record.chunk.size);
                if bad.get(&record.chunk.container).is_some_and(|bad| bad.covers(&record.chunk)) {
                    add(at..next, record.chunk.container);
                }
                at = next;
            }
        }
    }
    Ok(())
}

/// Damage gives `None`: the list has it already.
fn whole<T>(result: Result<T, RepositoryError>) -> Result<Option<T>, CheckError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_format::ids::{ContainerKind, JobId};

    #[test]
    fn containers_of_a_part_are_those_whose_ranges_meet_it() {
        let id = |seq| ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq };
        let ranges = [(10..20, id(1)), (20..30, id(2)), (40..50, id(1))];
        let numbers = |data| containers_in(&ranges, &data).into_iter().map(|id| id.seq).collect::<Vec<_>>();
        let none = Vec::<u32>::new();
        assert_eq!(numbers(0..10), none);
        assert_eq!(numbers(0..11), [1]);
        assert_eq!(numbers(19..21), [1, 2]);
        assert_eq!(numbers(15..45), [1, 2]);
        assert_eq!(numbers(25..25), none, "an empty file loses nothing");
        assert_eq!(numbers(30..40), none);
        assert_eq!(numbers(49..99), [1]);
        assert_eq!(numbers(50..99), none);
    }
}

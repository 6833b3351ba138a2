//! Newest versions in parts, of which each fits into memory.
//!
//! What defragmentation holds grows with the containers of newest versions. So it works on as many
//! versions at once as a share of the memory allows, in the order of their series. If all fit,
//! there is one part, and each manifest is read once. Otherwise each is read twice: the first time
//! tells which containers versions of several parts use. These stay, because their other versions
//! would keep them. So duplicates are found within a part alone. A version that no part has room
//! for stays as it is, and is reported with the memory that it needs.

use std::collections::{HashMap, HashSet};
use std::iter::Peekable;
use std::ops::Range;
use std::pin::pin;

use futures::StreamExt;
use larder_format::ids::{ContainerId, JobId};
use larder_format::layout::Layout;
use larder_index::IndexError;
use larder_job::JobContext;
use larder_reader::look_at;
use larder_spill::{Row, RowReader, RowSorter, RowWriter, SortedRows};
use larder_store::RepositoryError;
use larder_store::catalog::Version;
use larder_store::manifests::ManifestWindow;

use super::newest::Newest;
use super::{DefragmentError, DefragmentOptions, Plans, distinct, plans_of_part, unread};
use crate::spilled::{ID_BYTES, id_from, put_id, spilled};

/// Of the memory, one part in this number holds the tables of a part.
const MEMORY_ONE_IN: usize = 4;
/// Of the memory, one part in this number holds those of a version that is a part of its own.
const ALONE_ONE_IN: usize = 2;
/// A version takes about as much as this number of containers beside its containers.
const VERSION_CONTAINERS: u64 = 4;
/// One part in this number holds the names that are sorted. There are two such tables at most.
const SORTED_ONE_IN: usize = 32;
/// One part in this number is for manifests that are read ahead, as they are stored.
const WINDOW_ONE_IN: usize = 32;
/// A manifest of more than one part in this number is not read: in memory it would be too large.
const MANIFEST_ONE_IN: usize = 8;

/// Bytes that a container takes in all tables of a part, with those of the plans.
const CONTAINER_BYTES: u64 = 300;
/// The same when the user limits unused bytes, so that all containers may be left.
const CONTAINER_BYTES_THOROUGH: u64 = 800;

/// A newest version that no part has room for.
#[derive(Debug, Clone)]
pub struct TooLarge {
    /// The version.
    pub version: Version,
    /// Bytes of memory that it needs, about.
    pub needed: u64,
    /// Bytes of memory that there are.
    pub memory: u64,
}

/// Some of the newest versions.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) newest: Vec<Newest>,
    /// Versions that cannot be read. They stay as they are, and nothing is redirected to their
    /// containers.
    pub(super) unreadable: Vec<Version>,
    pub(super) too_large: Vec<TooLarge>,
    /// Containers of these versions that versions of other parts use too.
    pub(super) elsewhere: HashSet<ContainerId>,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Parts {
    room: Room,
    /// All of them, if they fit.
    whole: Option<Part>,
    /// The versions of the parts that are not read yet, by place.
    ranges: std::vec::IntoIter<Range<usize>>,
    versions: Vec<Version>,
    /// The number of the next part.
    next: u32,
    /// Containers that several parts use, by part.
    common: Option<Common>,
}

#[derive(Debug)]
struct Common(Peekable<SortedRows<InPart>>);

impl Common {
    /// Of the containers with their parts, those that several parts use.
    fn new(room: Room, sorted: SortedRows<OfContainer>) -> Result<Self, IndexError> {
        let mut common = RowSorter::new(room.memory / SORTED_ONE_IN, std::env::temp_dir());
        // The last row, and whether it was taken.
        let mut last: Option<(OfContainer, bool)> = None;
        for row in sorted {
            let row = row.map_err(spilled)?;
            let is_common = last.is_some_and(|(last, _)| last.container == row.container && last.part != row.part);
            if let Some((last, false)) = last.filter(|_| is_common) {
                common.push(InPart { part: last.part, container: last.container }).map_err(spilled)?;
            }
            if is_common {
                common.push(InPart { part: row.part, container: row.container }).map_err(spilled)?;
            }
            // A container that is twice in one part is in others too, or not.
            let was_taken = last.is_some_and(|(last, taken)| last == row && taken);
            last = Some((row, is_common || was_taken));
        }
        Ok(Self(common.sorted().map_err(spilled)?.peekable()))
    }

    /// Those of a part. Parts are asked for in their order.
    fn of(&mut self, part: u32) -> Result<HashSet<ContainerId>, IndexError> {
        let mut common = HashSet::new();
        while let Some(row) = self.0.next_if(|row| row.as_ref().map_or(true, |row| row.part <= part)) {
            let row = row.map_err(spilled)?;
            if row.part == part {
                common.insert(row.container);
            }
        }
        Ok(common)
    }
}

/// A container that a version of a part uses. In the order of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct InPart {
    part: u32,
    container: ContainerId,
}

/// The same in the order of containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct OfContainer {
    container: ContainerId,
    part: u32,
}

impl Row for InPart {
    const BYTES: usize = ID_BYTES + size_of::<u32>();

    fn encode(&self, row: &mut RowWriter<'_>) {
        row.u32(self.part);
        put_id(row, &self.container);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self { part: row.u32(), container: id_from(row) }
    }
}

impl Row for OfContainer {
    const BYTES: usize = InPart::BYTES;

    fn encode(&self, row: &mut RowWriter<'_>) {
        InPart { part: self.part, container: self.container }.encode(row);
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        let InPart { part, container } = InPart::decode(row);
        Self { container, part }
    }
}

/// What limits a part.
#[derive(Debug, Clone, Copy)]
struct Room {
    memory: usize,
    is_thorough: bool,
    /// A manifest of at most this many bytes is read in any case.
    manifest_least: u64,
}

impl Room {
    fn of(memory: usize, options: &DefragmentOptions) -> Self {
        Self { memory, is_thorough: options.unused_percent.is_some(), manifest_least: options.manifest_least }
    }

    fn container_bytes(self) -> u64 {
        if self.is_thorough { CONTAINER_BYTES_THOROUGH } else { CONTAINER_BYTES }
    }

    /// Containers of a part at most.
    fn most(self) -> u64 {
        (self.memory / MEMORY_ONE_IN) as u64 / self.container_bytes()
    }

    /// Containers of a version at most. A large one is a part of its own.
    fn most_alone(self) -> u64 {
        (self.memory / ALONE_ONE_IN) as u64 / self.container_bytes()
    }

    /// Bytes of memory that a version with this number of containers needs.
    fn needed(self, containers: u64) -> u64 {
        (containers * self.container_bytes()).saturating_mul(ALONE_ONE_IN as u64)
    }

    /// Bytes of memory that a manifest needs which is too large to be read; `bytes` in the store.
    fn needed_for_manifest(self, bytes: u64) -> Option<u64> {
        let needed = bytes.saturating_mul(MANIFEST_ONE_IN as u64);
        (bytes > self.manifest_least && needed > self.memory as u64).then_some(needed)
    }
}

/// Plans for as many newest versions at a time as memory holds: see the module header. They are to
/// be executed before the next ones are asked for.
pub(crate) struct PlansInParts<'a> {
    context: &'a JobContext,
    options: &'a DefragmentOptions,
    parts: Parts,
}

impl<'a> PlansInParts<'a> {
    pub(crate) fn look(context: &'a JobContext, options: &'a DefragmentOptions) -> Result<Self, DefragmentError> {
        Ok(Self { context, options, parts: Parts::look(context, options)? })
    }

    /// Whether there are more.
    pub(crate) fn has_more(&self) -> bool {
        self.parts.ranges.len() > 0
    }

    /// The next plans; see [`plans_after`](super::plans_after).
    pub(crate) fn next(&mut self, spent: &HashMap<JobId, u64>) -> Result<Option<Plans>, DefragmentError> {
        let part = self.parts.next(self.context)?;
        part.map(|part| plans_of_part(self.context, self.options, spent, part)).transpose()
    }
}

/// What a manifest tells.
enum Read {
    Newest(Box<Newest>),
    Unreadable(RepositoryError),
    /// The bytes of memory that the version needs, and its containers if they were read.
    TooLarge(u64, Vec<ContainerId>),
}

impl Parts {
    /// Divides the newest versions of all series.
    pub(super) fn look(context: &JobContext, options: &DefragmentOptions) -> Result<Self, DefragmentError> {
        let room = Room::of(context.memory, options);
        let mut versions = context.executor.block_on(context.repository.newest_of_every_series())?;
        // Versions of the layout `lifecycle` are arranged instead.
        versions.retain(|version| version.summary.layout == Layout::Standard);
        let (mut whole, mut begins, mut containers) = (Some(Part::default()), vec![0], 0);
        let mut sorter = RowSorter::new(room.memory / SORTED_ONE_IN, std::env::temp_dir());
        let mut alone = u32::MAX;
        let mut unread = Vec::new();
        read(context, room, &versions, |at, read| {
            let mut note = |part, used: &mut dyn Iterator<Item = ContainerId>| -> Result<(), IndexError> {
                for container in used {
                    sorter.push(OfContainer { container, part }).map_err(spilled)?;
                }
                Ok(())
            };
            match &read {
                Read::Newest(newest) => {
                    let own = newest.all_containers() + VERSION_CONTAINERS;
                    if containers + own > room.most() && containers > 0 {
                        begins.push(at);
                        containers = 0;
                        whole = None;
                    }
                    containers += own;
                    note(begins.len() as u32 - 1, &mut newest.all_names())?;
                }
                // Each of these is apart from all others.
                Read::TooLarge(_, names) => {
                    if names.is_empty() {
                        unread.push((alone, &versions[at]));
                    }
                    note(alone, &mut names.iter().copied())?;
                    alone -= 1;
                }
                Read::Unreadable(_) => {}
            }
            if let Some(whole) = &mut whole {
                whole.add(room, &versions[at], read);
            }
            Ok(())
        })?;
        if !unread.is_empty() {
            let (parts, versions): (Vec<u32>, Vec<&Version>) = unread.into_iter().unzip();
            unread::containers(context, room.memory / SORTED_ONE_IN, &versions, |at, container| {
                sorter.push(OfContainer { container, part: parts[at] }).map_err(spilled)
            })?;
        }
        let has_several = begins.len() > 1 || alone < u32::MAX;
        let mut common = match has_several {
            true => Some(Common::new(room, sorter.sorted().map_err(spilled)?)?),
            false => None,
        };
        if let (Some(whole), Some(common)) = (&mut whole, &mut common) {
            whole.elsewhere = common.of(0)?;
        }
        let ends = begins.iter().skip(1).copied().chain([versions.len()]);
        let ranges: Vec<_> = begins.iter().zip(ends).map(|(begin, end)| *begin..end).collect();
        Ok(Self { room, whole, ranges: ranges.into_iter(), versions, next: 0, common })
    }

    /// The next part.
    pub(super) fn next(&mut self, context: &JobContext) -> Result<Option<Part>, DefragmentError> {
        let Some(range) = self.ranges.next() else { return Ok(None) };
        let number = self.next;
        self.next += 1;
        if let Some(whole) = self.whole.take() {
            return Ok(Some(whole));
        }
        let (mut part, room) = (Part::default(), self.room);
        let versions = &self.versions[range];
        read(context, room, versions, |at, read| {
            // Earlier parts took their time. Others may have collected it since it was listed.
            if !matches!(read, Read::Unreadable(_)) || is_there(context, &versions[at])? {
                part.add(room, &versions[at], read);
            }
            Ok(())
        })?;
        if let Some(common) = &mut self.common {
            part.elsewhere = common.of(number)?;
        }
        Ok(Some(part))
    }
}

impl Part {
    fn add(&mut self, room: Room, version: &Version, read: Read) {
        match read {
            Read::Newest(newest) => self.newest.push(*newest),
            Read::Unreadable(error) => {
                tracing::warn!(%error, "a version cannot be read and is not defragmented");
                self.unreadable.push(version.clone());
            }
            Read::TooLarge(needed, _) => {
                let memory = room.memory as u64;
                self.too_large.push(TooLarge { version: version.clone(), needed, memory });
            }
        }
    }
}

/// Whether a version is retained, and its manifest is still this one.
fn is_there(context: &JobContext, version: &Version) -> Result<bool, DefragmentError> {
    let now = context.executor.block_on(look_at(&context.repository, version))?;
    Ok(now.is_some_and(|now| now.generation == version.generation))
}

/// Reads manifests, and shows each with its place.
fn read(
    context: &JobContext,
    room: Room,
    versions: &[Version],
    mut each: impl FnMut(usize, Read) -> Result<(), DefragmentError>,
) -> Result<(), DefragmentError> {
    let repository = &context.repository;
    let bytes = (room.memory / WINDOW_ONE_IN) as u64;
    let is_small = |version: &&Version| room.needed_for_manifest(version.manifest_bytes).is_none();
    let window = ManifestWindow { bytes, ..ManifestWindow::default() };
    let mut manifests = pin!(repository.manifests(versions.iter().filter(is_small), window));
    for (at, version) in versions.iter().enumerate() {
        if let Some(needed) = room.needed_for_manifest(version.manifest_bytes) {
            each(at, Read::TooLarge(needed, Vec::new()))?;
            continue;
        }
        let Some(manifest) = context.executor.block_on(manifests.next()) else { break };
        let read = match manifest {
            Ok(manifest) => {
                let mut newest = Newest::new(version, &manifest);
                let stored = newest.stored_bytes();
                if room.is_thorough || distinct::is_worth_reading(&manifest.data, &newest.containers, stored) {
                    newest.recipe = Some(manifest.data);
                }
                match newest.all_containers() <= room.most_alone() {
                    true => Read::Newest(Box::new(newest)),
                    false => Read::TooLarge(room.needed(newest.all_containers()), newest.all_names().collect()),
                }
            }
            Err(error) if error.is_damage() => Read::Unreadable(error),
            Err(error) => return Err(error.into()),
        };
        each(at, read)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use larder_format::ids::ContainerKind;
    use proptest::prelude::*;

    use super::*;

    fn container(seq: u32) -> ContainerId {
        ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq }
    }

    proptest! {
        /// The oracle is a map of the parts that use each container. With little memory, rows are
        /// in many runs.
        #[test]
        fn a_part_knows_which_of_its_containers_others_use(
            uses in proptest::collection::vec((0u32..40, 0u32..6), 0..200),
            memory in prop_oneof![Just(0usize), Just(4096), Just(1 << 20)],
        ) {
            let room = Room::of(memory, &DefragmentOptions::default());
            let mut sorter = RowSorter::new(memory / SORTED_ONE_IN, std::env::temp_dir());
            let mut users: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
            for (seq, part) in uses {
                sorter.push(OfContainer { container: container(seq), part }).expect("written");
                users.entry(seq).or_default().insert(part);
            }
            let mut common = Common::new(room, sorter.sorted().expect("read")).expect("read");
            // Some parts are versions that are too large, of which nobody asks.
            for part in [0, 1, 3, 4] {
                let has_others = |users: &BTreeSet<u32>| users.contains(&part) && users.len() > 1;
                let expected = users.iter().filter(|(_, users)| has_others(users)).map(|(seq, _)| container(*seq));
                prop_assert_eq!(common.of(part).expect("read"), expected.collect::<HashSet<_>>());
            }
        }
    }

    #[test]
    fn the_memory_that_a_version_needs_suffices_for_it() {
        for is_thorough in [false, true] {
            let unused_percent = is_thorough.then_some(0.0);
            let options = DefragmentOptions { unused_percent, ..DefragmentOptions::default() };
            for containers in [1, 10, 84_000] {
                let needed = Room::of(0, &options).needed(containers);
                let room = |memory: u64| Room::of(memory as usize, &options);
                assert!(room(needed).most_alone() >= containers && room(needed - 8).most_alone() < containers);
            }
        }
        let of_manifest =
            |memory: u64, bytes| Room::of(memory as usize, &DefragmentOptions::default()).needed_for_manifest(bytes);
        let needed = of_manifest(0, 2 << 20).expect("too large");
        assert_eq!((of_manifest(needed, 2 << 20), of_manifest(needed - 1, 2 << 20)), (None, Some(needed)));
        assert_eq!(of_manifest(0, 1 << 20), None);
    }
}

//! The index's knowledge of one series: its data containers, and the extents of all names.

use std::collections::{BTreeMap, HashMap, HashSet};

use larder_format::extents::{Extent, Extents};
use larder_format::ids::{ContainerId, ContainerKind, SeriesKey};
use larder_format::index_tables::{ContainerFacts, ContainerState};
use larder_format::layout::Layout;
use larder_index::{ContainerExtents, Containers, Draft, IndexError, IndexPass, LookupOptions};
use larder_store::rules::Rule;

use super::ContainerRetention;

/// Records of extents that are looked up at once.
const BATCH: usize = 256;

/// A data container of the series, as the table of containers has it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) number: u32,
    pub(super) facts: ContainerFacts,
    /// Whether versions of the standard layout use it too: then it is neither dropped nor moved
    /// (`LayoutsApart`).
    pub(super) is_apart: bool,
}

impl Known {
    /// The first version that used it.
    pub(super) fn first(&self) -> u32 {
        let lifespans = self.facts.users.first().map(|user| &user.lifespans);
        lifespans.and_then(|lifespans| lifespans.first()).map_or(0, |lifespan| lifespan.first)
    }

    pub(super) fn is_there(&self) -> bool {
        self.facts.state == ContainerState::Live
    }
}

/// See the module header. Memory: some 250 bytes for each container of the series.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) key: SeriesKey,
    pub(super) containers: BTreeMap<ContainerId, Known>,
    /// Containers of the series that versions of the standard layout had first: they are not
    /// arranged.
    pub(super) others: HashSet<ContainerId>,
}

/// The needed content of an existing container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    /// Bytes that any version needs.
    pub(super) needed: u64,
    /// The first version of any of its extents.
    pub(super) first: u32,
    /// The last version of any of them; `None`: the newest uses some.
    pub(super) last: Option<u32>,
    /// Bytes of the extents with that last version.
    pub(super) at_last: u64,
    /// Whether any of them is where a version stored it, and arranging did not.
    pub(super) is_as_stored: bool,
}

/// The existing containers, with their needed content.
pub(super) type Contents = HashMap<ContainerId, Option<Content>>;

/// The order of last versions: open ones are the highest.
pub(super) fn rank(last: Option<u32>) -> u32 {
    last.unwrap_or(u32::MAX)
}

impl Series {
    /// Reads the table of containers as the draft has it.
    pub(super) fn read(
        pass: &IndexPass,
        draft: &Draft<'_>,
        key: SeriesKey,
        retention: &dyn ContainerRetention,
    ) -> Result<Self, IndexError> {
        let keeps = pass.io.repository.keeps(Rule::LayoutsApart);
        let mut others = HashSet::new();
        let table = draft.view::<Containers>(LookupOptions::default());
        let mut containers = BTreeMap::new();
        for record in table.scan(0..=u64::MAX, pass.memory / 4) {
            let (number, Some(facts)) = record? else { continue };
            if facts.id.kind != ContainerKind::Data || !facts.users.iter().any(|user| user.series == key) {
                continue;
            }
            if facts.layout == Layout::Lifecycle {
                let is_apart = keeps && retention.is_apart(&facts);
                containers.insert(facts.id, Known { number, facts, is_apart });
            } else if keeps {
                others.insert(facts.id);
            }
        }
        let mut series = Self { key, containers, others };
        series.note_names(pass, draft)?;
        Ok(series)
    }

    /// No manifest names containers that arranging wrote, so no version of the other layout uses
    /// them. Their lifespan only covers one.
    fn note_names(&mut self, pass: &IndexPass, draft: &Draft<'_>) -> Result<(), IndexError> {
        let apart: Vec<&Known> = self.containers.values().filter(|known| known.is_apart).collect();
        let mut written = Vec::new();
        Self::extents(pass, draft, &apart, |known, extents| {
            if extents.0.is_empty() {
                written.push(known.facts.id);
            }
            Ok::<_, IndexError>(())
        })?;
        for id in written {
            if let Some(known) = self.containers.get_mut(&id) {
                known.is_apart = false;
            }
        }
        Ok(())
    }

    /// All of them in the order of their names.
    pub(super) fn by_name(&self) -> Vec<&Known> {
        self.containers.values().collect()
    }

    /// All of them in the order of categories: by first version, then by name.
    pub(super) fn by_category(&self) -> Vec<&Known> {
        let mut all = self.by_name();
        all.sort_by_key(|known| (known.first(), known.facts.id));
        all
    }

    /// Calls `each` with these containers and the extents of their names.
    ///
    /// A container without a record is as it was written. Containers that arranging wrote are no
    /// names: their records are empty.
    pub(super) fn extents<E: From<IndexError>>(
        pass: &IndexPass,
        draft: &Draft<'_>,
        names: &[&Known],
        mut each: impl FnMut(&Known, Extents) -> Result<(), E>,
    ) -> Result<(), E> {
        let table = draft.view::<ContainerExtents>(LookupOptions::default());
        for batch in names.chunks(BATCH) {
            let keys: Vec<ContainerId> = batch.iter().map(|known| known.facts.id).collect();
            let records = pass.io.executor.block_on(table.get(&keys))?;
            for (known, record) in batch.iter().zip(records) {
                each(known, record.unwrap_or_else(|| as_written(known)))?;
            }
        }
        Ok(())
    }

    /// The needed content of every existing container, including those without any.
    pub(super) fn content(&self, pass: &IndexPass, draft: &Draft<'_>) -> Result<Contents, IndexError> {
        let there = self.containers.values().filter(|known| known.is_there());
        let mut content: Contents = there.map(|known| (known.facts.id, None)).collect();
        Self::extents(pass, draft, &self.by_name(), |known, extents| {
            for extent in &extents.0 {
                add(content.entry(place_of(known, extent)).or_default(), known.first(), extent);
            }
            Ok::<_, IndexError>(())
        })?;
        Ok(content)
    }
}

/// The container in which an extent of a name is.
pub(super) fn place_of(name: &Known, extent: &Extent) -> ContainerId {
    extent.to.map_or(name.facts.id, |(container, _)| container)
}

pub(super) fn add(content: &mut Option<Content>, first: u32, extent: &Extent) {
    let length = u64::from(extent.length);
    match content {
        None => {
            let is_as_stored = extent.to.is_none();
            *content = Some(Content { needed: length, first, last: extent.last, at_last: length, is_as_stored });
        }
        Some(content) => {
            content.needed += length;
            content.is_as_stored |= extent.to.is_none();
            content.first = content.first.min(first);
            if content.last == extent.last {
                content.at_last += length;
            } else if rank(content.last) < rank(extent.last) {
                (content.last, content.at_last) = (extent.last, length);
            }
        }
    }
}

/// All bytes in place, and used by the newest version.
fn as_written(known: &Known) -> Extents {
    match u32::try_from(known.facts.bytes) {
        Ok(length) if length > 0 && known.is_there() => Extents(vec![Extent { from: 0, length, last: None, to: None }]),
        _ => Extents::default(),
    }
}

//! Copies the needed extents of containers that are retired, each into the open container of its
//! volume.
//!
//! Names are processed in the order of categories, and every volume keeps that order. So one
//! reading of the retired containers fills all volumes. The number of open containers is limited;
//! more volumes need several rounds.
//!
//! Containers of volumes are finished, and get the storage class that was chosen for data. Those of
//! the newest version stay in the class of the bucket, because later passes read them.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

use larder_format::ChunkRef;
use larder_format::extents::{Extent, Extents};
use larder_format::ids::ContainerId;
use larder_index::{Changes, ContainerExtents, Draft, IndexPass};
use larder_rewrite::chunk_copier::{RewriteError, Writer, damaged_container};
use larder_writer::WRITERS_MAX;
use lru::LruCache;

use super::ArrangeError;
use super::container_values::ContainerValues;
use super::series::{Name, Series, place_of, rank};
use super::written::Writing;
use super::{Arranged, Work};

/// Bytes of chunks whose records are processed together.
const BATCH_BYTES: u64 = 64 << 20;
/// Of the memory of the pass for tables, one part in this number holds the changed records.
const CHANGES_ONE_IN: usize = 4;
/// Tables of containers that are cached: some hundred kilobytes each.
const TABLES_KEPT: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// The outcome.
#[derive(Debug)]
pub(super) enum Ended {
    /// All extents were moved.
    Done,
    /// It was told to stop. Extents that were moved stay moved.
    Stopped,
    /// This container cannot be read.
    Unreadable(ContainerId),
    /// These containers are in cold storage, and maybe others.
    Cold(Vec<ContainerId>),
}

/// Copies the needed extents of the selected containers, and changes their records.
pub(super) fn evacuate(
    pass: &IndexPass,
    draft: &mut Draft<'_>,
    work: &Work,
    series: &mut Series,
    selected: &ContainerValues,
    writing: &mut Writing,
    arranged: &mut Arranged,
) -> Result<Ended, ArrangeError> {
    let mut names = series.by_category(pass)?;
    let mut lasts = BTreeSet::new();
    names.extents(pass, draft, |name, extents| {
        for extent in &extents.0 {
            if selected.has(&place_of(&name.id, extent))? {
                lasts.insert(rank(extent.last));
            }
        }
        Ok::<_, ArrangeError>(())
    })?;
    let lasts: Vec<u32> = lasts.into_iter().collect();
    let mut tables = Tables { cache: LruCache::new(TABLES_KEPT) };
    let cold = tables.cold_among(work, pass, selected)?;
    if !cold.is_empty() {
        return Ok(Ended::Cold(cold));
    }
    for writers in lasts.chunks(WRITERS_MAX) {
        let mut round = Round {
            pass,
            work,
            writing,
            tables: &mut tables,
            selected,
            writers,
            changes: Changes::new(&pass.io, pass.memory / CHANGES_ONE_IN, &pass.folder)?,
            names: Vec::new(),
            chunks: Vec::new(),
            bytes: 0,
            moved: (0, 0),
        };
        let ended = names.extents(pass, draft, |name, extents| round.name(name, extents));
        let ended = ended.and_then(|()| round.flush());
        if ended.is_err() {
            // Copies of an interrupted round get containers of their own.
            round.writing.copier.close_writers()?;
        }
        match ended {
            Ok(()) => {}
            Err(Cut::Unreadable(container)) => return Ok(Ended::Unreadable(container)),
            Err(Cut::Cold(container)) => return Ok(Ended::Cold(vec![container])),
            Err(Cut::Stopped) => return Ok(Ended::Stopped),
            Err(Cut::Failed(error)) => return Err(error),
        }
        let Round { changes, moved: (chunks, bytes), .. } = round;
        writing.copier.close_writers()?;
        arranged.moved_chunks += chunks;
        arranged.moved_bytes.0 += bytes;
        draft.apply(changes)?;
    }
    Ok(Ended::Done)
}

/// Why a round did not end normally.
enum Cut {
    Unreadable(ContainerId),
    Cold(ContainerId),
    Stopped,
    Failed(ArrangeError),
}

impl<E: Into<ArrangeError>> From<E> for Cut {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The chunks of containers, in order.
struct Tables {
    cache: LruCache<ContainerId, Arc<Vec<ChunkRef>>>,
}

impl Tables {
    fn of(&mut self, work: &Work, pass: &IndexPass, container: ContainerId) -> Result<Arc<Vec<ChunkRef>>, Cut> {
        if let Some(table) = self.cache.get(&container) {
            return Ok(table.clone());
        }
        match pass.io.executor.block_on(work.context.repository.read_container_index(container)) {
            Ok(index) => {
                let table: Arc<Vec<ChunkRef>> = Arc::new(index.chunk_refs().collect());
                self.cache.put(container, table.clone());
                Ok(table)
            }
            Err(error) if error.is_cold() => Err(Cut::Cold(container)),
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "a container cannot be read and is not retired");
                Err(Cut::Unreadable(container))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Containers among these that are in cold storage: the first one if the classes were not
    /// listed yet, otherwise all. Looks before anything is copied: the copies would be in vain.
    fn cold_among(
        &mut self,
        work: &Work,
        pass: &IndexPass,
        selected: &ContainerValues,
    ) -> Result<Vec<ContainerId>, ArrangeError> {
        let mut cold = Vec::new();
        if !pass.io.repository.store().has_classes() {
            return Ok(cold);
        }
        for container in selected.ids() {
            match self.of(work, pass, container?) {
                Err(Cut::Cold(container)) => cold.push(container),
                Err(Cut::Failed(error)) => return Err(error),
                // Copying finds that again.
                Ok(_) | Err(Cut::Unreadable(_) | Cut::Stopped) => {}
            }
            if !cold.is_empty() && !work.cold.was_asked() || work.context.cancel.is_cancelled() {
                break;
            }
        }
        Ok(cold)
    }

    /// The chunks of a stretch of a container's payload.
    fn stretch(
        &mut self,
        work: &Work,
        pass: &IndexPass,
        container: ContainerId,
        from: u32,
        length: u32,
    ) -> Result<Vec<ChunkRef>, Cut> {
        let table = self.of(work, pass, container)?;
        let first = table.partition_point(|chunk| chunk.offset < from);
        let end = from.saturating_add(length);
        let chunks: Vec<ChunkRef> = table[first..].iter().take_while(|chunk| chunk.offset < end).copied().collect();
        let covers = chunks.first().is_some_and(|chunk| chunk.offset == from)
            && chunks.last().is_some_and(|chunk| chunk.offset.checked_add(chunk.size) == Some(end));
        if covers { Ok(chunks) } else { Err(Cut::Unreadable(container)) }
    }
}

/// The extents of a number of last versions.
struct Round<'a> {
    pass: &'a IndexPass,
    work: &'a Work,
    writing: &'a mut Writing,
    tables: &'a mut Tables,
    selected: &'a ContainerValues,
    writers: &'a [u32],
    changes: Changes<ContainerExtents>,
    /// Names with extents that move, and these extents.
    names: Vec<(ContainerId, Vec<Moving>)>,
    /// The chunks of these that move, in order, with their writers.
    chunks: Vec<(ChunkRef, Writer)>,
    bytes: u64,
    /// Chunks that were copied, and their bytes.
    moved: (u64, u64),
}

/// An extent, and how many chunks of it move.
struct Moving {
    extent: Extent,
    chunks: usize,
}

impl Round<'_> {
    fn name(&mut self, name: &Name, extents: Extents) -> Result<(), Cut> {
        if self.work.context.cancel.is_cancelled() {
            return Err(Cut::Stopped);
        }
        let mut all = Vec::with_capacity(extents.0.len());
        let mut moves = false;
        for extent in extents.0 {
            let writer = self.writers.binary_search(&rank(extent.last)).ok();
            let writer = match writer {
                Some(writer) if self.selected.has(&place_of(&name.id, &extent))? => Some(writer),
                _ => None,
            };
            let mut chunks = 0;
            if let Some(number) = writer {
                // A later version may end the use of open extents. Nobody reads a volume again.
                let writer = Writer { number, is_settled: extent.last.is_some() };
                let (container, from) = extent.to.unwrap_or((name.id, extent.from));
                let stretch = self.tables.stretch(self.work, self.pass, container, from, extent.length)?;
                chunks = stretch.len();
                self.chunks.extend(stretch.into_iter().map(|chunk| (chunk, writer)));
                self.bytes += u64::from(extent.length);
                moves = true;
            }
            all.push(Moving { extent, chunks });
        }
        if moves {
            self.names.push((name.id, all));
        }
        if self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Copies the collected chunks.
    fn flush(&mut self) -> Result<(), Cut> {
        let (names, chunks) = (std::mem::take(&mut self.names), std::mem::take(&mut self.chunks));
        let copies = match self.writing.copier.copy_apart(&chunks) {
            Ok(copies) => copies,
            Err(RewriteError::Repository(error)) if error.is_damage() => {
                tracing::warn!(%error, "a container cannot be read and is not retired");
                let container = damaged_container(&error);
                return Err(container.map_or_else(|| Cut::from(RewriteError::Repository(error)), Cut::Unreadable));
            }
            // Its days may be over since its tables were read.
            Err(RewriteError::Repository(error)) if error.is_cold() => {
                let container = damaged_container(&error);
                return Err(container.map_or_else(|| Cut::from(RewriteError::Repository(error)), Cut::Cold));
            }
            Err(error) => return Err(error.into()),
        };
        self.moved.0 += copies.len() as u64;
        self.moved.1 += self.bytes;
        self.bytes = 0;
        let mut copies = copies.into_iter();
        for (name, all) in names {
            let mut extents = Extents::default();
            for Moving { extent, chunks } in all {
                if chunks == 0 {
                    extents.push(extent);
                }
                let mut from = extent.from;
                for copy in copies.by_ref().take(chunks) {
                    let to = Some((copy.container, copy.offset));
                    extents.push(Extent { from, length: copy.size, last: extent.last, to });
                    from += copy.size;
                }
            }
            self.changes.put(&name, &extents)?;
        }
        Ok(self.writing.take_stored()?)
    }
}

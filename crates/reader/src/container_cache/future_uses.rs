//! The future uses of containers: for every use by a segment of a stream, the segment that uses it
//! next.
//!
//! One pass over the recipe's nodes, from the end, finds them. The rows list the containers of each
//! segment, so no chunk record is read. The uses are kept as fixed-width touches, in a temporary
//! file when they exceed a bound. So memory follows the containers of the version (as its manifest
//! does) and not the length of the stream.
//!
//! The rows do not tell the real containers where recipes only name chunks, or where named
//! containers are gone. Then the plan reads the records of the segments as well. It also does where
//! containers are divided into pieces ([`Unit`]), which are used, read and kept separately.
//!
//! The plan from the rows is not trusted: a container without a touch is read all the same when it
//! is needed.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use larder_format::ids::ContainerId;
use larder_spill::{Row, RowFile, RowReader, RowWriter};
use larder_store::RepositoryError;
use lru::LruCache;

use crate::recipe_reader::RecipeReader;
use crate::resolved::SegmentNumber;

/// Number of a touch, in stream order.
pub(crate) type TouchNumber = u32;
/// Number of a container in a reader's own numbering.
pub(crate) type Number = u32;

/// "Not again."
pub(crate) const NEVER: TouchNumber = TouchNumber::MAX;

/// Touches that are read from the file at once.
const BLOCK: usize = 4096;
/// Blocks that are kept.
const BLOCKS_KEPT: NonZeroUsize = NonZeroUsize::new(8).unwrap();
/// Touches that may be in memory at least.
const IN_MEMORY_MIN: usize = 1 << 10;

/// One segment's use of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Touch {
    pub(crate) segment: SegmentNumber,
    pub(crate) container: Number,
    /// The next touch of the same container, or [`NEVER`].
    pub(crate) next: TouchNumber,
    /// Bytes that the segment uses of it; a chunk named twice counts twice.
    pub(crate) bytes: u32,
}

impl Row for Touch {
    const BYTES: usize = 16;

    fn encode(&self, row: &mut RowWriter<'_>) {
        [self.segment, self.container, self.next, self.bytes].into_iter().for_each(|field| row.u32(field));
    }

    fn decode(row: &mut RowReader<'_>) -> Self {
        Self { segment: row.u32(), container: row.u32(), next: row.u32(), bytes: row.u32() }
    }
}

/// The unit of reading and keeping: a container, or the frames with the chunks that begin in one
/// piece of its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Unit {
    pub(crate) container: ContainerId,
    pub(crate) piece: u32,
}

/// The division of containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pieces {
    /// Not at all.
    Whole,
    /// Into pieces of this many bytes of payload.
    Of(u32),
}

impl Pieces {
    /// The unit of a chunk that begins there.
    pub(crate) fn unit(self, container: ContainerId, offset: u32) -> Unit {
        let piece = match self {
            Self::Whole => 0,
            Self::Of(bytes) => offset / bytes.max(1),
        };
        Unit { container, piece }
    }
}

/// Small numbers for units.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers {
    units: Vec<Unit>,
    numbers: HashMap<Unit, Number>,
}

impl Numbers {
    pub(crate) fn of(&mut self, unit: Unit) -> Number {
        *self.numbers.entry(unit).or_insert_with(|| {
            self.units.push(unit);
            self.units.len() as Number - 1
        })
    }

    pub(crate) fn unit(&self, number: Number) -> Unit {
        self.units[number as usize]
    }
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Touches from the end of the stream to its beginning; the first of them are in the file.
    memory: Vec<Touch>,
    file: Option<RowFile<Touch>>,
    blocks: Option<LruCache<usize, Arc<Vec<Touch>>>>,
    /// Bytes that are still wanted of each container.
    wanted: HashMap<Number, u64>,
    /// The first touch of each container: the latest on the way back, counted from the end.
    newest: HashMap<Number, TouchNumber>,
    /// The last touch of each container: the earliest on the way back.
    oldest: HashMap<Number, TouchNumber>,
}

impl Uses {
    /// Plans the uses by `segments` of a stream. At most about `touches_max` touches stay in
    /// memory, if `folder` accepts a file.
    pub(crate) fn plan(
        recipe: &mut RecipeReader,
        segments: Range<SegmentNumber>,
        numbers: &mut Numbers,
        pieces: Pieces,
        touches_max: usize,
        folder: &Path,
    ) -> Result<Self, RepositoryError> {
        let chunks = recipe.chunks().clone();
        let mut builder = Builder::new(touches_max, folder);
        let nodes = recipe.recipe().nodes.len();
        for number in (0..nodes).rev() {
            let end = recipe.segments_through(number);
            let count = recipe.recipe().nodes[number].segments;
            let start = end.saturating_sub(count);
            if start >= segments.end || end <= segments.start {
                continue;
            }
            let node = match recipe.node(number) {
                Ok(node) => node,
                // A reader that continues until there will meet it.
                Err(error) if error.is_damage() => continue,
                Err(error) => return Err(error),
            };
            for (place, segment) in node.segments.iter().enumerate().rev() {
                let this = start + place as u32;
                if !segments.contains(&this) {
                    continue;
                }
                if pieces == Pieces::Whole && !chunks.may_have_gone(segment) {
                    for used in segment.uses.iter().rev() {
                        builder.push(this, numbers.of(Pieces::Whole.unit(used.container, 0)), used.bytes);
                    }
                    continue;
                }
                let records = match recipe.segment(this) {
                    Ok(records) => records,
                    Err(error) if error.is_damage() => continue,
                    Err(error) => return Err(error),
                };
                let mut used: Vec<(Number, u64)> = Vec::new();
                let mut places = HashMap::new();
                for chunk in records.iter().map(|record| &record.chunk) {
                    let number = numbers.of(pieces.unit(chunk.container, chunk.offset));
                    let place = *places.entry(number).or_insert(used.len());
                    if place == used.len() {
                        used.push((number, 0));
                    }
                    used[place].1 += u64::from(chunk.size);
                }
                used.iter().rev().for_each(|(number, bytes)| builder.push(this, *number, *bytes));
            }
        }
        Ok(builder.finish())
    }

    /// The number of touches.
    pub(crate) fn len(&self) -> TouchNumber {
        (self.in_file() + self.memory.len()) as TouchNumber
    }

    fn in_file(&self) -> usize {
        self.file.as_ref().map_or(0, |file| file.rows() as usize)
    }

    /// Whether they exceeded memory.
    #[cfg(test)]
    pub(crate) fn is_spilled(&self) -> bool {
        self.in_file() > 0
    }

    /// A touch; `None` behind the last one.
    pub(crate) fn touch(&mut self, number: TouchNumber) -> Option<Touch> {
        let place = self.len().checked_sub(1)?.checked_sub(number)? as usize;
        let mut touch = match place.checked_sub(self.in_file()) {
            Some(place) => *self.memory.get(place)?,
            None => self.read_spilled(place)?,
        };
        if touch.next != NEVER {
            touch.next = self.len() - 1 - touch.next;
        }
        Some(touch)
    }

    /// The first touch of a container.
    pub(crate) fn first(&self, container: Number) -> Option<TouchNumber> {
        self.newest.get(&container).map(|place| self.len() - 1 - place)
    }

    /// The largest number of containers between their first and last touch at one time.
    pub(crate) fn at_once(&self) -> u64 {
        let spans = self.oldest.iter().filter_map(|(number, begin)| Some((*begin, *self.newest.get(number)?)));
        most_at_once(spans)
    }

    /// The same number if this many neighbours were one.
    pub(crate) fn at_once_of(&self, numbers: &Numbers, neighbours: u32) -> u64 {
        let mut spans: HashMap<Unit, (TouchNumber, TouchNumber)> = HashMap::new();
        for (number, begin) in &self.oldest {
            let Some(end) = self.newest.get(number) else { continue };
            let unit = numbers.unit(*number);
            let whole = Unit { piece: unit.piece / neighbours.max(1), ..unit };
            let span = spans.entry(whole).or_insert((*begin, *end));
            *span = (span.0.min(*begin), span.1.max(*end));
        }
        most_at_once(spans.into_values())
    }

    /// A touch is over: its bytes are not wanted any more.
    pub(crate) fn pass(&mut self, touch: &Touch) {
        if let Some(wanted) = self.wanted.get_mut(&touch.container) {
            *wanted = wanted.saturating_sub(u64::from(touch.bytes));
        }
    }

    /// Bytes that coming touches use of a container.
    pub(crate) fn wanted(&self, container: Number) -> u64 {
        self.wanted.get(&container).copied().unwrap_or(0)
    }

    fn read_spilled(&mut self, place: usize) -> Option<Touch> {
        let block = place / BLOCK;
        let blocks = self.blocks.as_mut()?;
        if !blocks.contains(&block) {
            let first = (block * BLOCK) as u64;
            let touches = match self.file.as_ref()?.read(first..first + BLOCK as u64) {
                Ok(touches) => touches,
                Err(error) => {
                    // Only speed is lost: a container without a touch is read when it is needed.
                    tracing::warn!(%error, "the plan of what is read cannot be read back");
                    return None;
                }
            };
            blocks.put(block, Arc::new(touches));
        }
        blocks.get(&block)?.get(place % BLOCK).copied()
    }
}

/// The largest number of spans open at one time.
fn most_at_once(spans: impl Iterator<Item = (TouchNumber, TouchNumber)>) -> u64 {
    let (mut begins, mut ends): (Vec<_>, Vec<_>) = spans.unzip();
    begins.sort_unstable();
    ends.sort_unstable();
    let mut ended = 0;
    let open = begins.iter().zip(1u64..).map(|(begin, begun)| {
        ended += ends[ended..].iter().take_while(|end| *end < begin).count();
        begun - ended as u64
    });
    open.max().unwrap_or(0)
}

/// Takes touches from the end of the stream to its beginning.
#[derive(Debug)]
pub(super) struct Builder<'a> {
    uses: Uses,
    in_memory_max: usize,
    folder: &'a Path,
    cannot_spill: bool,
}

impl<'a> Builder<'a> {
    pub(super) fn new(touches_max: usize, folder: &'a Path) -> Self {
        let in_memory_max = touches_max.max(IN_MEMORY_MIN);
        Self { uses: Uses::default(), in_memory_max, folder, cannot_spill: false }
    }

    pub(super) fn push(&mut self, segment: SegmentNumber, container: Number, bytes: u64) {
        let place = self.uses.len();
        if place == NEVER {
            // No stream is that long; the rest is read without a plan.
            return;
        }
        let next = self.uses.newest.insert(container, place).unwrap_or(NEVER);
        self.uses.oldest.entry(container).or_insert(place);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        *self.uses.wanted.entry(container).or_default() += u64::from(bytes);
        self.uses.memory.push(Touch { segment, container, next, bytes });
        if self.uses.memory.len() >= self.in_memory_max && !self.cannot_spill {
            self.spill();
        }
    }

    fn spill(&mut self) {
        let Uses { memory, file, blocks, .. } = &mut self.uses;
        let written = match file {
            Some(file) => file.append(memory.iter().copied()),
            None => larder_spill::unnamed(self.folder).and_then(|unnamed| {
                let mut rows = RowFile::new(unnamed);
                rows.append(memory.iter().copied())?;
                *file = Some(rows);
                Ok(())
            }),
        };
        match written {
            Ok(()) => {
                memory.clear();
                blocks.get_or_insert_with(|| LruCache::new(BLOCKS_KEPT));
            }
            Err(error) => self.keep_in_memory(&error),
        }
    }

    fn keep_in_memory(&mut self, error: &io::Error) {
        tracing::warn!(%error, folder = %self.folder.display(), "no temporary file: the plan of what is read stays in memory");
        self.cannot_spill = true;
    }

    pub(super) fn finish(self) -> Uses {
        self.uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(touches: &[(SegmentNumber, Number)], touches_max: usize, folder: &Path) -> Uses {
        let mut builder = Builder::new(touches_max, folder);
        for (segment, container) in touches.iter().rev() {
            builder.push(*segment, *container, 10);
        }
        builder.finish()
    }

    #[test]
    fn every_touch_knows_the_next_of_its_container_also_from_the_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let touches: Vec<(u32, u32)> =
            (0..30_000).map(|n: u32| (n / 3, n.wrapping_mul(2_654_435_761) % 1000)).collect();
        for touches_max in [usize::MAX, 0] {
            let mut uses = build(&touches, touches_max, dir.path());
            assert_eq!(uses.is_spilled(), touches_max == 0);
            assert_eq!(uses.len() as usize, touches.len());
            let mut newest = HashMap::new();
            for (number, (segment, container)) in touches.iter().enumerate().rev() {
                let next = newest.insert(*container, number as u32).unwrap_or(NEVER);
                let touch = uses.touch(number as u32).expect("there");
                assert_eq!(touch, Touch { segment: *segment, container: *container, next, bytes: 10 });
            }
            assert_eq!(uses.touch(touches.len() as u32), None);
            let count = touches.iter().filter(|(_, container)| *container == 7).count() as u64;
            assert_eq!(uses.wanted(7), count * 10);
        }
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
    }

    #[test]
    fn it_tells_how_many_are_open_at_once() {
        let folder = Path::new("/dev/null/nothing");
        let at_once = |containers: &[Number]| {
            let touches: Vec<_> = containers.iter().map(|container| (0, *container)).collect();
            build(&touches, 0, folder).at_once()
        };
        assert_eq!(at_once(&[]), 0);
        assert_eq!(at_once(&[1, 2, 3, 4]), 1);
        assert_eq!(at_once(&[1, 2, 1, 3, 2, 3, 4]), 2);
        assert_eq!(at_once(&[1, 2, 3, 4, 4, 3, 2, 1]), 4);
    }

    #[test]
    fn without_a_folder_everything_stays_in_memory() {
        let mut uses = build(&[(0, 1); 5000], 0, Path::new("/dev/null/nothing"));
        assert_eq!((uses.len(), uses.is_spilled()), (5000, false));
        assert_eq!(uses.touch(0).map(|touch| touch.next), Some(1));
    }
}

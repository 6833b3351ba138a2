//! The slow disk of the model: 10 ms for every seek, 180 MB/s between them.
//!
//! All schemes write to the end of one endless log, so what is written together lies together, and a read that goes on where the last one
//! ended needs no seek. Space that was freed is not used again.

/// A disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disk {
    /// Seconds.
    seek: f64,
    /// Bytes a second.
    rate: f64,
}

/// Bytes that lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// What was read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Containers, volumes and categories that were opened.
    pub(crate) objects: u64,
    /// Bytes that were asked for.
    pub(crate) bytes: u64,
    /// Pieces of the disk that these lie in.
    pub(crate) extents: u64,
    /// Moves of the head. A gap that takes less time than a move is read over.
    pub(crate) seeks: u64,
    /// Bytes of such gaps.
    pub(crate) gaps: u64,
}

/// What rearranging or collecting did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) read: Reading,
    pub(crate) written: u64,
    /// Objects that were deleted.
    pub(crate) deleted: u64,
}

/// Bytes that are collected in memory before the head goes to where they are written.
const WRITE_BUFFER: u64 = 64 << 20;

impl Disk {
    pub(crate) const SLOW: Self = Self { seek: 0.010, rate: 180e6 };

    /// Reads extents in this order, each of an object of its own.
    pub(crate) fn read(self, extents: impl IntoIterator<Item = Extent>) -> Reading {
        let mut reading = Reading::default();
        let mut head = None;
        for Extent { at, len } in extents {
            reading.objects += 1;
            reading.bytes += len;
            match head {
                Some(head) if head == at => {}
                Some(head) if at > head && (at - head) as f64 / self.rate < self.seek => {
                    reading.extents += 1;
                    reading.gaps += at - head;
                }
                _ => {
                    reading.extents += 1;
                    reading.seeks += 1;
                }
            }
            head = Some(at + len);
        }
        reading
    }

    /// Reads extents in the order in which they lie.
    pub(crate) fn read_sorted(self, mut extents: Vec<Extent>) -> Reading {
        extents.sort_unstable();
        self.read(extents)
    }

    pub(crate) fn reading_seconds(self, reading: &Reading) -> f64 {
        reading.seeks as f64 * self.seek + (reading.bytes + reading.gaps) as f64 / self.rate
    }

    pub(crate) fn work_seconds(self, work: &Work) -> f64 {
        let turns = work.written.div_ceil(WRITE_BUFFER) as f64;
        self.reading_seconds(&work.read) + turns * self.seek + work.written as f64 / self.rate
    }

    /// Seconds to read so much in one go.
    pub(crate) fn plain_seconds(self, bytes: u64) -> f64 {
        self.seek + bytes as f64 / self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_moves_only_when_it_pays() {
        let extent = |at, len| Extent { at, len };
        let far = 100_000_000;
        let extents = [extent(0, 100), extent(100, 50), extent(160, 10), extent(far, 10), extent(0, 10)];
        let reading = Disk::SLOW.read(extents);
        assert_eq!(reading, Reading { objects: 5, bytes: 180, extents: 4, seeks: 3, gaps: 10 });
        assert!((Disk::SLOW.reading_seconds(&reading) - 0.03).abs() < 1e-5);
        let sorted = Disk::SLOW.read_sorted(extents[..4].iter().rev().copied().collect());
        assert_eq!(sorted, Reading { objects: 4, bytes: 170, extents: 3, seeks: 2, gaps: 10 });
        let work = Work { read: Reading::default(), written: 180_000_000, deleted: 0 };
        assert!((Disk::SLOW.work_seconds(&work) - 1.03).abs() < 1e-9);
    }
}

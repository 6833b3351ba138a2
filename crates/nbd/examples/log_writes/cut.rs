//! The disks that a power cut could leave.
//!
//! Everything up to the last flush is there. Of what came later, each sector of 512 bytes is there
//! or not. A sector that was written several times may have any of its contents. A disk may also
//! write larger units as a whole.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::copy;
use super::device::SECTOR;
use super::record::{Kind, Log, Placed};

/// A generator of pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Which of the later changes reach the disk.
#[derive(Debug, Clone, Copy)]
enum Luck {
    /// None.
    Nothing,
    /// All.
    Everything,
    /// Each change as a whole, in so many of eight cases.
    Changes(u64),
    /// Each sector by itself, in so many of eight cases.
    Sectors(u64),
    /// Only changes behind a place of the log.
    Newest(u64),
}

/// What happened to the changes behind the last flush.
pub(crate) struct Scattered {
    luck: Luck,
    changes: u64,
    kept: u64,
    sectors: u64,
}

impl fmt::Display for Scattered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { luck, changes, kept, sectors } = self;
        write!(f, "{changes} changes, {kept} of {sectors} sectors kept ({luck:?})")
    }
}

/// A disk in a file.
pub(crate) struct Image(File);

impl Image {
    pub(crate) fn new(file: File) -> Self {
        Self(file)
    }

    /// Makes all changes of the log between two places.
    pub(crate) fn apply(&self, log: &Log, from: u64, to: u64) -> io::Result<()> {
        log.each(from, to, |placed| {
            let data = log.data(placed)?;
            self.change(placed, &data, 0, placed.record.length)
        })
    }

    fn change(&self, placed: &Placed, data: &[u8], from: u64, length: u64) -> io::Result<()> {
        let offset = placed.record.offset + from;
        match placed.record.kind {
            Kind::Write => self.0.write_all_at(&data[from as usize..][..length as usize], offset),
            Kind::Zero => copy::punch(&self.0, offset, length),
            Kind::Flush => Ok(()),
        }
    }

    /// Makes some of the changes behind a flush, up to the cut.
    ///
    /// `unit` bytes are written as a whole: a multiple of [`SECTOR`].
    pub(crate) fn scatter(&self, log: &Log, (flushed, cut): (u64, u64), seed: u64, unit: u64) -> io::Result<Scattered> {
        let mut random = Random(seed);
        let luck = match random.below(8) {
            0 => Luck::Nothing,
            1 => Luck::Everything,
            2 | 3 => Luck::Changes(1 + random.below(7)),
            4..=6 => Luck::Sectors(1 + random.below(7)),
            _ => Luck::Newest(flushed + random.below((cut - flushed).max(1))),
        };
        let mut done = Scattered { luck, changes: 0, kept: 0, sectors: 0 };
        log.each(flushed, cut, |placed| {
            let record = &placed.record;
            let data = log.data(placed)?;
            let whole = match luck {
                Luck::Nothing => Some(false),
                Luck::Everything => Some(true),
                Luck::Changes(share) => Some(random.below(8) < share),
                Luck::Newest(from) => Some(placed.end > from),
                // A large range of zeros is one step of a disk.
                Luck::Sectors(share) => (record.length > 64 << 20).then(|| random.below(8) < share),
            };
            // The client was told that it is durable.
            let whole = if record.durable { Some(true) } else { whole };
            done.changes += 1;
            done.sectors += record.length / SECTOR;
            if let Some(is_kept) = whole {
                if is_kept {
                    done.kept += record.length / SECTOR;
                    self.change(placed, &data, 0, record.length)?;
                }
                return Ok(());
            }
            let Luck::Sectors(share) = luck else { return Ok(()) };
            let mut from = 0;
            while from < record.length {
                let length = (unit - (record.offset + from) % unit).min(record.length - from);
                if random.below(8) < share {
                    done.kept += length / SECTOR;
                    self.change(placed, &data, from, length)?;
                }
                from += length;
            }
            Ok(())
        })?;
        Ok(done)
    }
}

impl Log {
    /// Places for a cut behind `from`, in order: half of them anywhere, the others right before or
    /// behind a flush.
    pub(crate) fn cuts(&self, from: u64, count: usize, seed: u64) -> io::Result<Vec<u64>> {
        let (mut ends, mut flushes, mut before) = (Vec::new(), Vec::new(), from);
        self.each(from, u64::MAX, |placed| {
            if placed.record.kind == Kind::Flush {
                flushes.extend([before, placed.end]);
            }
            ends.push(placed.end);
            before = placed.end;
            Ok(())
        })?;
        if ends.is_empty() || flushes.is_empty() {
            return Err(io::Error::other("the log has no flush"));
        }
        let mut random = Random(seed);
        let mut pick = |of: &[u64]| of[random.below(of.len() as u64) as usize];
        let mut cuts: Vec<u64> = (0..count).map(|turn| pick(if turn % 2 == 0 { &ends } else { &flushes })).collect();
        cuts.sort_unstable();
        Ok(cuts)
    }
}

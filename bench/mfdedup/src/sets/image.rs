//! A disk image changed in place: VMS. The same regions change again and again, the rest hardly ever.

use std::io::{self, Read};

use larder_bench_common::rng::Rng;

use super::rope::fill;
use super::{Sink, Versions};

/// A file system's block (bytes).
const BLOCK: usize = 4 << 10;
/// Share of the image that is never used: zeros.
const EMPTY: f64 = 0.15;
/// Share that repeats other blocks of the image.
const COPIED: f64 = 0.06;
/// Share that is written again and again: logs, databases, browser caches.
const HOT: f64 = 0.12;
/// Share of the image that a version writes in the hot regions, and elsewhere.
const WRITTEN_HOT: f64 = 0.035;
const WRITTEN_COLD: f64 = 0.012;
/// Probability that a write brings back what was there two versions before.
const BACK: f64 = 0.004;
/// Blocks of a write: between these, log-uniform.
const WRITE: (f64, f64) = (1.0, 96.0);
/// Blocks of an extent: the same for what is empty, copied or hot.
const EXTENT: (f64, f64) = (16.0, 2048.0);

/// See the module header.
pub(super) struct Image {
    /// What each block holds: the seed of its content, 0 for zeros.
    blocks: Vec<u64>,
    /// What it held before its last write.
    earlier: Vec<u64>,
    hot: Vec<(usize, usize)>,
    rng: Rng,
}

impl Image {
    pub(super) fn new(bytes: f64, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = ((bytes / BLOCK as f64) as usize).max(64);
        let mut blocks: Vec<u64> = (0..count).map(|_| rng.next_u64() | 1).collect();
        let mut image = Self { earlier: Vec::new(), hot: Vec::new(), rng, blocks: Vec::new() };
        image.scatter(count, EMPTY, |_, from, len| blocks[from..from + len].fill(0));
        image.scatter(count, COPIED, |rng, from, len| {
            let source = rng.below(count - len);
            blocks.copy_within(source..source + len, from);
        });
        let mut hot = Vec::new();
        image.scatter(count, HOT, |_, from, len| hot.push((from, len)));
        Self { earlier: blocks.clone(), blocks, hot, ..image }
    }

    /// Extents of so much of the image altogether.
    fn scatter(&mut self, count: usize, share: f64, mut with: impl FnMut(&mut Rng, usize, usize)) {
        let mut left = (count as f64 * share) as usize;
        while left > 0 {
            let len = (self.rng.log_between(EXTENT.0, EXTENT.1) as usize).min(left).min(count / 4).max(1);
            let from = self.rng.below(count - len);
            with(&mut self.rng, from, len);
            left -= len;
        }
    }

    fn write(&mut self, share: f64, hot: bool) {
        let mut left = (self.blocks.len() as f64 * share) as usize;
        while left > 0 {
            let wanted = (self.rng.log_between(WRITE.0, WRITE.1) as usize).clamp(1, left);
            let (from, room) = match self.hot.get(self.rng.below(self.hot.len().max(1))) {
                Some(extent) if hot => *extent,
                _ => (0, self.blocks.len()),
            };
            let len = wanted.min(room);
            let from = from + self.rng.below(room - len + 1);
            let is_back = self.rng.chance(BACK);
            for block in from..from + len {
                let new = if is_back { self.earlier[block] } else { self.rng.next_u64() | 1 };
                self.earlier[block] = std::mem::replace(&mut self.blocks[block], new);
            }
            left -= len;
        }
    }
}

impl Versions for Image {
    fn next(&mut self, sink: &mut Sink<'_>) -> anyhow::Result<bool> {
        sink(&mut Reader { blocks: &self.blocks, done: 0 })?;
        self.write(WRITTEN_HOT, true);
        self.write(WRITTEN_COLD, false);
        Ok(true)
    }
}

struct Reader<'a> {
    blocks: &'a [u64],
    /// Bytes of the first block that were read.
    done: usize,
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len()
            && let Some((seed, rest)) = self.blocks.split_first()
        {
            let len = (BLOCK - self.done).min(buffer.len() - filled);
            let part = &mut buffer[filled..filled + len];
            match *seed {
                0 => part.fill(0),
                seed => fill(seed, self.done as u64, part),
            }
            filled += len;
            self.done += len;
            if self.done == BLOCK {
                (self.blocks, self.done) = (rest, 0);
            }
        }
        Ok(filled)
    }
}

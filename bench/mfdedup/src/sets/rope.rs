//! Contents that need no memory: stretches of pseudo-random streams, spliced by edits.
//!
//! A byte is a function of a stream's seed and its place there, so content is made when it is read and any stretch can be kept, moved or
//! repeated by naming it. It does not compress, and no two stretches are alike unless they are one.

use std::io::{self, Read};

/// A stretch of the stream of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    seed: u64,
    from: u64,
    len: u64,
}

/// A file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rope {
    runs: Vec<Run>,
}

impl Rope {
    /// Content that is nowhere else, if the seed is not.
    pub(super) fn fresh(seed: u64, len: u64) -> Self {
        Self { runs: vec![Run { seed, from: 0, len }] }
    }

    pub(super) fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.len).sum()
    }

    /// Replaces `removed` bytes at a place by `inserted` new ones.
    pub(super) fn splice(&mut self, at: u64, removed: u64, seed: u64, inserted: u64) {
        let mut runs = Vec::with_capacity(self.runs.len() + 2);
        let (mut place, mut is_inserted) = (0, false);
        let (from, until) = (at.min(self.len()), (at + removed).min(self.len()));
        for run in &self.runs {
            let end = place + run.len;
            let before = from.clamp(place, end) - place;
            let behind = end - until.clamp(place, end);
            if before > 0 {
                runs.push(Run { len: before, ..*run });
            }
            if !is_inserted && end >= from {
                runs.push(Run { seed, from: 0, len: inserted });
                is_inserted = true;
            }
            if behind > 0 {
                runs.push(Run { from: run.from + run.len - behind, len: behind, ..*run });
            }
            place = end;
        }
        runs.retain(|run| run.len > 0);
        self.runs = runs;
    }

    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { runs: &self.runs, done: 0 }
    }
}

/// Reads a [`Rope`].
pub(super) struct Reader<'a> {
    runs: &'a [Run],
    /// Bytes of the first run that were read.
    done: u64,
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len()
            && let Some((run, rest)) = self.runs.split_first()
        {
            let len = ((run.len - self.done) as usize).min(buffer.len() - filled);
            fill(run.seed, run.from + self.done, &mut buffer[filled..filled + len]);
            filled += len;
            self.done += len as u64;
            if self.done == run.len {
                (self.runs, self.done) = (rest, 0);
            }
        }
        Ok(filled)
    }
}

/// Bytes of a seed's stream from a place on.
pub(super) fn fill(seed: u64, from: u64, out: &mut [u8]) {
    let word = |number: u64| {
        let mut z = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    };
    let within = (from % 8) as usize;
    let (head, body) = out.split_at_mut(if within == 0 { 0 } else { (8 - within).min(out.len()) });
    head.copy_from_slice(&word(from / 8)[within..within + head.len()]);
    for (number, part) in (from.div_ceil(8)..).zip(body.chunks_mut(8)) {
        part.copy_from_slice(&word(number)[..part.len()]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(rope: &Rope) -> Vec<u8> {
        let mut bytes = Vec::new();
        rope.reader().read_to_end(&mut bytes).expect("memory");
        bytes
    }

    fn stream(seed: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        fill(seed, 0, &mut bytes);
        bytes
    }

    #[test]
    fn any_stretch_is_the_same_as_in_the_whole() {
        let whole = stream(7, 100);
        for from in 0..20 {
            for len in 0..20 {
                let mut part = vec![0; len];
                fill(7, from as u64, &mut part);
                assert_eq!(part, whole[from..from + len]);
            }
        }
    }

    proptest! {
        /// Edits do what they do to plain bytes.
        #[test]
        fn splices_as_a_vector_does(len in 1u64..300, edits in prop::collection::vec((0u64..400, 0u64..50, 0u64..50), 0..12)) {
            let mut rope = Rope::fresh(1, len);
            let mut model = stream(1, len);
            for (number, (at, removed, inserted)) in edits.into_iter().enumerate() {
                let seed = number as u64 + 2;
                let at = at % (model.len() as u64 + 1);
                rope.splice(at, removed, seed, inserted);
                let until = (at + removed).min(model.len() as u64);
                model.splice(at as usize..until as usize, stream(seed, inserted));
                prop_assert_eq!(rope.len(), model.len() as u64);
                prop_assert_eq!(content(&rope), model.clone());
                prop_assume!(!model.is_empty());
            }
        }
    }
}

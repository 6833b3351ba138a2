//! Cutting and naming, with the CPU time of each.

use std::io::Read;
use std::time::Duration;

use anyhow::Context as _;
use larder_chunking::{Chunker, ChunkerParams, Fingerprint, Fingerprinter, StreamEnd, chunker};

use crate::SEED;
use crate::clock::timed;

/// A chunk that was cut and named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Its name.
    pub fingerprint: Fingerprint,
    /// Bytes of it.
    pub size: u32,
}

/// CPU time by stage.
#[derive(Debug, Default, Clone, Copy)]
pub struct Stages {
    /// Finding the cuts.
    pub chunking: Duration,
    /// Naming the chunks.
    pub fingerprinting: Duration,
    /// Finding duplicates.
    pub lookup: Duration,
}

impl Stages {
    /// All stages together.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.chunking + self.fingerprinting + self.lookup
    }
}

impl std::ops::AddAssign for Stages {
    fn add_assign(&mut self, other: Self) {
        self.chunking += other.chunking;
        self.fingerprinting += other.fingerprinting;
        self.lookup += other.lookup;
    }
}

/// Bytes that are cut and then named while they are still in the processor's cache.
const BATCH: usize = 1 << 20;

/// Cuts and names.
pub struct Front {
    /// What cuts.
    pub chunker: Box<dyn Chunker>,
    /// What names.
    pub fingerprinter: Fingerprinter,
}

impl Front {
    /// A front of this chunker.
    ///
    /// # Errors
    /// When the parameters are not valid.
    pub fn new(params: ChunkerParams) -> anyhow::Result<Self> {
        let chunker =
            chunker(params, &SEED).with_context(|| format!("{} at {} bytes", params.algorithm, params.average))?;
        Ok(Self { chunker, fingerprinter: Fingerprinter::new(&SEED) })
    }

    /// Cuts and names a whole file.
    pub fn run(&self, file: &[u8], stages: &mut Stages) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(file.len() / 3000);
        let mut at = 0;
        while at < file.len() {
            let until = (at + BATCH + self.chunker.params().max as usize).min(file.len());
            let end = if until == file.len() { StreamEnd::Reached } else { StreamEnd::Open };
            at += self.batch(&file[at..until], end, stages, &mut pieces);
        }
        pieces
    }

    /// Cuts and names a file that is read as it goes, in the memory of one batch. Appends its pieces.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn stream(&self, file: &mut dyn Read, stages: &mut Stages, pieces: &mut Vec<Piece>) -> anyhow::Result<()> {
        let room = BATCH + self.chunker.params().max as usize;
        let mut buffer = Vec::with_capacity(room);
        loop {
            let wanted = room - buffer.len();
            let got = (&mut *file).take(wanted as u64).read_to_end(&mut buffer)?;
            let end = if got < wanted { StreamEnd::Reached } else { StreamEnd::Open };
            let cut = self.batch(&buffer, end, stages, pieces);
            buffer.drain(..cut);
            if end == StreamEnd::Reached {
                return Ok(());
            }
        }
    }

    fn batch(&self, data: &[u8], end: StreamEnd, stages: &mut Stages, pieces: &mut Vec<Piece>) -> usize {
        let (mut lengths, mut fingerprints) = (Vec::new(), Vec::new());
        let cut = timed(&mut stages.chunking, || self.chunker.cut_all(data, end, &mut lengths));
        timed(&mut stages.fingerprinting, || self.fingerprinter.many(data, &lengths, &mut fingerprints));
        let named = fingerprints.iter().zip(&lengths);
        pieces.extend(named.map(|(fingerprint, size)| Piece { fingerprint: *fingerprint, size: *size }));
        cut
    }
}

#[cfg(test)]
mod tests {
    use larder_chunking::Algorithm;

    use super::*;
    use crate::rng::Rng;

    /// Reading as it goes changes no cut, wherever the batches end.
    #[test]
    fn a_stream_is_cut_as_a_file_is() -> anyhow::Result<()> {
        let front = Front::new(ChunkerParams::with_average(Algorithm::FastCdc, 8 << 10))?;
        for size in [0, 1, BATCH, BATCH + (32 << 10), 3 * BATCH + 12_345] {
            let mut data = vec![0; size];
            Rng::new(3).fill(&mut data);
            let (mut stages, mut pieces) = (Stages::default(), Vec::new());
            front.stream(&mut data.as_slice(), &mut stages, &mut pieces)?;
            assert_eq!(pieces, front.run(&data, &mut stages), "{size} bytes");
            assert_eq!(pieces.iter().map(|piece| piece.size as usize).sum::<usize>(), size);
        }
        Ok(())
    }
}

//! The backup side: a stream is cut and named, every chunk is found or stored, and a recipe of it is kept.
//!
//! [`Front`] cuts and names. A [`Detector`] decides; [`Exact`], [`SiLo`] and [`SparseIndexing`] are the paper's rivals and
//! its reference, [`Har`] and [`Capping`] store some duplicates again for locality's sake, [`Larder`] is what this project does. All of them put new chunks into the same [`Output`], write their recipes
//! with the same codec, and start every version with an empty cache, as a job does that has just started.
//!
//! Nothing is uploaded. What is read from the store while deciding is counted as [`Traffic`], to be turned into simulated time.

mod base;
mod exact;
mod larder;
mod manifest;
mod output;
mod recipe;
mod rewriting;
mod silo;
mod sparse;

pub(crate) use larder_bench_common::front::{Front, Piece, Stages};
use larder_chunking::{Algorithm, ChunkerParams};

pub(crate) use exact::Exact;
pub(crate) use larder::{Detail, Larder, With};
pub(crate) use output::{CONTAINER_BYTES, Output};
pub(crate) use rewriting::{Capping, Har};
pub(crate) use silo::SiLo;
pub(crate) use sparse::SparseIndexing;

use crate::clock::{Traffic, timed};

/// Memory for what a job reads while deciding, the same for all (bytes of encoded recipe).
pub(crate) const CACHE_BYTES: usize = 24 << 20;

/// Finds duplicates among what earlier versions stored.
pub(crate) trait Detector {
    /// A job starts: caches are empty.
    fn begin(&mut self, output: &Output);

    /// The version that begins next, of this number of bytes, may store this number of bytes again. Only for those with such a limit.
    fn allow(&mut self, _copies: u64, _version: u64) {}

    /// The next pieces of the stream: each is found or stored, in order. A detector may hold pieces back.
    fn detect(&mut self, pieces: &[Piece], output: &mut Output);

    /// The job ends; what was held back is decided.
    fn finish(&mut self, output: &mut Output);

    /// What was read from the store so far.
    fn traffic(&self) -> Traffic;

    /// Bytes of memory of what must stay in memory between jobs (0 for a stateless node).
    fn resident_bytes(&self) -> usize;
}

/// Cuts and names, with the bounds that suit the algorithm.
pub(crate) fn front(algorithm: Algorithm, average: u32) -> anyhow::Result<Front> {
    Front::new(ChunkerParams::with_average(algorithm, average))
}

/// What a version came to.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) bytes: u64,
    pub(crate) stored: u64,
    pub(crate) chunks: u64,
    pub(crate) stages: Stages,
    pub(crate) traffic: Traffic,
}

impl Outcome {
    /// The same work was done twice: the run that was disturbed less.
    pub(crate) fn least(self, other: Self) -> Self {
        if other.stages.total() < self.stages.total() { other } else { self }
    }

    /// Share of the bytes that were not stored.
    pub(crate) fn ratio(&self) -> f64 {
        1.0 - self.stored as f64 / self.bytes.max(1) as f64
    }
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.stored += other.stored;
        self.chunks += other.chunks;
        self.stages += other.stages;
        self.traffic += other.traffic;
    }
}

/// Runs a detector over one version that is cut already.
pub(crate) fn detect(detector: &mut dyn Detector, files: &[Vec<Piece>], output: &mut Output) -> Outcome {
    let mut outcome = Outcome::default();
    let (before, traffic) = (output.stored_bytes(), detector.traffic());
    timed(&mut outcome.stages.lookup, || {
        output.begin_version();
        detector.begin(output);
        for pieces in files {
            detector.detect(pieces, output);
        }
        detector.finish(output);
    });
    outcome.bytes = files.iter().flatten().map(|piece| u64::from(piece.size)).sum();
    outcome.chunks = output.recipe().len() as u64;
    outcome.stored = output.stored_bytes() - before;
    outcome.traffic = detector.traffic() - traffic;
    outcome
}

#[cfg(test)]
mod tests {
    use larder_chunking::Fingerprint;

    use super::*;
    use crate::sdb::{Duplication, SDb, Spec};
    use std::collections::{HashMap, HashSet};

    fn versions(count: usize) -> Vec<Vec<Vec<u8>>> {
        let spec =
            Spec { files: 2, file_bytes: 4 << 20, duplication: Duplication::Fixed(0.8), self_reference: 0.2, seed: 9 };
        let mut sdb = SDb::new(spec);
        let mut next = || {
            let files = sdb.files().map(<[u8]>::to_vec).collect();
            sdb.advance();
            files
        };
        (0..count).map(|_| next()).collect()
    }

    /// Whatever a detector misses, its recipe must rebuild the stream: every reference names a chunk that was stored, and
    /// no chunk is stored by the exact index twice.
    #[test]
    fn every_recipe_is_right_and_none_beats_the_exact_index() {
        let front = front(Algorithm::MinCdc, 4096).expect("valid");
        let detectors: Vec<Box<dyn Detector>> = vec![
            Box::new(Exact::new()),
            Box::new(SiLo::new()),
            Box::new(SparseIndexing::new()),
            Box::new(Har::new()),
            Box::new(Capping::new()),
            Box::new(Larder::new(64 << 20)),
        ];
        let versions = versions(4);
        let mut stored = Vec::new();
        for mut detector in detectors {
            let mut output = Output::new(1 << 20);
            let mut where_from: HashMap<_, Fingerprint> = HashMap::new();
            for files in &versions {
                let pieces: Vec<_> = files.iter().map(|file| front.run(file, &mut Stages::default())).collect();
                detect(&mut *detector, &pieces, &mut output);
                let expected: Vec<_> = pieces.concat().iter().map(|piece| (piece.fingerprint, piece.size)).collect();
                let got: Vec<_> = output.recipe().iter().map(|chunk| (chunk.fingerprint, chunk.size)).collect();
                assert!(got == expected);
                for chunk in output.recipe() {
                    let place = (chunk.container, chunk.offset);
                    assert_eq!(*where_from.entry(place).or_insert(chunk.fingerprint), chunk.fingerprint);
                }
            }
            stored.push(output.stored_bytes());
        }
        let distinct: HashSet<_> = versions
            .iter()
            .flatten()
            .flat_map(|file| front.run(file, &mut Stages::default()))
            .map(|p| (p.fingerprint, p.size))
            .collect();
        assert_eq!(stored[0], distinct.iter().map(|(_, size)| u64::from(*size)).sum::<u64>());
        for other in &stored[1..] {
            assert!(*other >= stored[0] && *other < stored[0] * 5 / 4, "{stored:?}");
        }
    }

    /// The cuts with history are those without, whatever of it is used; and no chunk is missed by it.
    #[test]
    fn history_changes_no_cut_and_stores_no_more() {
        let uses = [
            With { skipping: true, ..With::default() },
            With::default().merging_after(1),
            With { skipping: true, proofs: true, ..With::default() }.merging_after(2),
            With { proofs: true, ..With::default() }.merging_at_once(),
            With::default().merging_together(1),
        ];
        for algorithm in [Algorithm::Rabin, Algorithm::FastCdc, Algorithm::MinCdc] {
            let front = front(algorithm, 4096).expect("valid");
            let mut plain = (Larder::new(64 << 20), Output::new(1 << 20));
            let mut others = uses.map(|with| (with, Larder::new(64 << 20), Output::new(1 << 20)));
            for files in versions(4) {
                let pieces: Vec<_> = files.iter().map(|file| front.run(file, &mut Stages::default())).collect();
                detect(&mut plain.0, &pieces, &mut plain.1);
                let slices: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
                for (with, larder, output) in &mut others {
                    larder.back_up(&front, &slices, *with, Detail::Whole, output);
                    let names =
                        |output: &Output| output.recipe().iter().map(|chunk| chunk.fingerprint).collect::<Vec<_>>();
                    assert!(names(&plain.1) == names(output), "{algorithm} {with:?}");
                }
            }
            for (with, larder, output) in &others {
                let (expected, got) = (plain.1.stored_bytes() as f64, output.stored_bytes() as f64);
                assert!((got / expected - 1.0).abs() < 0.01, "{algorithm} {with:?}: {expected} and {got}");
                assert!(!with.skipping || larder.skips().hits > 100, "{algorithm} {with:?}");
                assert!(with.merging.is_none() || larder.proved_bytes() > 1 << 20, "{algorithm} {with:?}");
            }
        }
    }
}

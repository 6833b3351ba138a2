//! How much of a file repeats, measured: MinCDC chunks of 4 KiB and an exact index of two versions.

use std::collections::{HashMap, HashSet};

use larder_chunking::{Algorithm, Chunker, ChunkerParams, Fingerprint, Fingerprinter, StreamEnd, chunker};

use crate::SEED;

/// What repeats in one version of a file, or in several added up.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) bytes: u64,
    /// In chunks that the version before has as well.
    pub(crate) in_previous: u64,
    /// In chunks that occur earlier in the same version.
    pub(crate) in_own: u64,
    /// In chunks that no version before has, counted once.
    pub(crate) unique: u64,
}

impl Measured {
    pub(crate) fn duplication(&self) -> f64 {
        self.in_previous as f64 / self.bytes.max(1) as f64
    }

    pub(crate) fn self_reference(&self) -> f64 {
        self.in_own as f64 / self.bytes.max(1) as f64
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.in_previous += other.in_previous;
        self.in_own += other.in_own;
        self.unique += other.unique;
    }
}

/// Measures the versions of one file in their order.
pub(crate) struct Measurer {
    chunker: Box<dyn Chunker>,
    fingerprinter: Fingerprinter,
    previous: HashSet<Fingerprint>,
    ever: HashMap<Fingerprint, ()>,
}

impl Measurer {
    pub(crate) fn new() -> Self {
        let params = ChunkerParams::with_average(Algorithm::MinCdc, 4 << 10);
        let chunker = chunker(params, &SEED).expect("the natural bounds of 4 KiB are valid");
        let fingerprinter = Fingerprinter::new(&SEED);
        Self { chunker, fingerprinter, previous: HashSet::new(), ever: HashMap::new() }
    }

    pub(crate) fn version(&mut self, file: &[u8]) -> Measured {
        let (mut lengths, mut fingerprints) = (Vec::new(), Vec::new());
        self.chunker.cut_all(file, StreamEnd::Reached, &mut lengths);
        self.fingerprinter.many(file, &lengths, &mut fingerprints);
        let mut measured = Measured { bytes: file.len() as u64, ..Measured::default() };
        let mut own = HashSet::with_capacity(lengths.len());
        for (length, fingerprint) in lengths.into_iter().zip(fingerprints) {
            let length = u64::from(length);
            if self.previous.contains(&fingerprint) {
                measured.in_previous += length;
            }
            if !own.insert(fingerprint) {
                measured.in_own += length;
            }
            if self.ever.insert(fingerprint, ()).is_none() {
                measured.unique += length;
            }
        }
        self.previous = own;
        measured
    }
}

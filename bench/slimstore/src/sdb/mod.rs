//! A data set like the paper's S-DB: database files whose tables are changed by inserts, updates and deletes.
//!
//! [`SDb`] holds all files of the current version in memory and steps to the next version in place, so the size of a run is
//! bounded by one version however many there are. Each file is one table ([`Table`]) of InnoDB-like pages ([`page`]).
//! Duplication between neighbouring versions differs by file, from 0.65 to 0.95 with a mean of 0.84, as Table I of the
//! paper has it; a fifth of every version repeats something else in it. Everything follows from the seed.
//!
//! The generator steers by an estimate while it changes rows; [`measure`] says what came out, by chunks.

pub(crate) mod measure;
mod page;
mod table;

use crate::rng::Rng;
pub(crate) use page::PAGE;
pub(crate) use table::Table;

/// What the data set looks like.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) files: usize,
    /// Bytes of each file in the first version.
    pub(crate) file_bytes: usize,
    pub(crate) duplication: Duplication,
    /// Share of a version that repeats something else in it.
    pub(crate) self_reference: f64,
    pub(crate) seed: u64,
}

/// How much of a file is the version before's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Duplication {
    /// From 0.65 to 0.95 by file, 0.84 on average.
    Spread,
    /// The same for all files.
    Fixed(f64),
}

/// The paper's self-reference.
pub(crate) const SELF_REFERENCE: f64 = 0.20;

impl Duplication {
    /// The share meant for one of so many files.
    pub(crate) fn of(self, file: usize, files: usize) -> f64 {
        match self {
            Self::Fixed(share) => share,
            // x^a has the mean 1 / (1 + a) over 0..1; this a makes 0.65 + 0.30 x^a average 0.84.
            Self::Spread => 0.65 + 0.30 * ((file as f64 + 0.5) / files as f64).powf(0.579),
        }
    }
}

/// See the module header.
pub(crate) struct SDb {
    spec: Spec,
    tables: Vec<Table>,
}

impl SDb {
    /// The first version.
    pub(crate) fn new(spec: Spec) -> Self {
        let tables = (0..spec.files).map(|file| {
            let seed = Rng::new(spec.seed ^ (file as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95)).next_u64();
            Table::new(spec.file_bytes, spec.self_reference, seed)
        });
        Self { tables: tables.collect(), spec }
    }

    /// Turns every file into its next version.
    pub(crate) fn advance(&mut self) {
        for (file, table) in self.tables.iter_mut().enumerate() {
            table.advance(self.spec.duplication.of(file, self.spec.files));
        }
    }

    /// The files of this version.
    pub(crate) fn files(&self) -> impl Iterator<Item = &[u8]> {
        self.tables.iter().map(Table::bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::measure::{Measured, Measurer};
    use super::*;

    fn spec(seed: u64) -> Spec {
        let duplication = Duplication::Spread;
        Spec { files: 4, file_bytes: 3 << 20, duplication, self_reference: SELF_REFERENCE, seed }
    }

    #[test]
    fn one_seed_is_one_data_set() {
        let versions = |seed| {
            let mut sdb = SDb::new(spec(seed));
            sdb.advance();
            sdb.files().map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        assert!(versions(1) == versions(1));
        assert!(versions(1) != versions(2));
    }

    #[test]
    fn the_spread_has_the_papers_mean_and_bounds() {
        let shares: Vec<f64> = (0..500).map(|file| Duplication::Spread.of(file, 500)).collect();
        let mean = shares.iter().sum::<f64>() / 500.0;
        assert!((mean - 0.84).abs() < 0.002, "mean {mean}");
        assert!(shares.iter().all(|share| (0.65..=0.95).contains(share)));
    }

    /// What the whole benchmark stands on: measured by chunks, the parameters hold for every file and every version.
    #[test]
    fn duplication_and_self_reference_are_as_asked() {
        let mut sdb = SDb::new(spec(3));
        let mut measurers: Vec<Measurer> = (0..4).map(|_| Measurer::new()).collect();
        let mut mean = Measured::default();
        for version in 0..7 {
            for (file, bytes) in sdb.files().enumerate() {
                let measured = measurers[file].version(bytes);
                let own = measured.self_reference();
                assert!((0.14..0.26).contains(&own), "file {file} version {version} repeats {own}");
                if version > 0 {
                    let wanted = Duplication::Spread.of(file, 4);
                    let got = measured.duplication();
                    assert!((got - wanted).abs() < 0.05, "file {file} version {version}: {got}, meant {wanted}");
                    mean.add(measured);
                }
            }
            sdb.advance();
        }
        assert!((mean.duplication() - 0.84).abs() < 0.03, "mean {}", mean.duplication());
        assert!((mean.self_reference() - 0.20).abs() < 0.03, "mean {}", mean.self_reference());
    }
}

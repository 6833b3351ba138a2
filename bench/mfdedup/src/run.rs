//! One run over a set: every version is cut once, and all schemes see the same chunks.

use std::collections::HashMap;
use std::time::Duration;

use larder_bench_common::clock::timed;
use larder_bench_common::front::{Front, Piece, Stages};
use larder_chunking::{Algorithm, ChunkerParams, Fingerprint};

use crate::disk::Work;
use crate::schemes::{Bases, Classic, Collection, Larder, Lifecycle, MfDedup, Number, Restored, Rule, Scheme};
use crate::sets::{Set, Versions};
use crate::{Settings, percent_of};

/// What the chunks of a version are, in bytes, for exact deduplication over all versions so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kinds {
    /// Earlier in the same version.
    pub(crate) internal: u64,
    /// In the version before.
    pub(crate) adjacent: u64,
    /// In some version before that.
    pub(crate) skip: u64,
    pub(crate) unique: u64,
}

impl Kinds {
    pub(crate) fn duplicates(&self) -> u64 {
        self.internal + self.adjacent + self.skip
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.duplicates() + self.unique
    }
}

impl std::ops::AddAssign for Kinds {
    fn add_assign(&mut self, other: Self) {
        self.internal += other.internal;
        self.adjacent += other.adjacent;
        self.skip += other.skip;
        self.unique += other.unique;
    }
}

/// Tells [`Kinds`] apart.
#[derive(Debug, Default)]
struct Classifier {
    last: HashMap<Fingerprint, Number>,
}

impl Classifier {
    fn classify(&mut self, version: Number, pieces: &[Piece]) -> Kinds {
        let mut kinds = Kinds::default();
        for piece in pieces {
            let bytes = match self.last.insert(piece.fingerprint, version) {
                Some(last) if last == version => &mut kinds.internal,
                Some(last) if last + 1 == version => &mut kinds.adjacent,
                Some(_) => &mut kinds.skip,
                None => &mut kinds.unique,
            };
            *bytes += u64::from(piece.size);
        }
        kinds
    }
}

/// A version's facts, the same for all schemes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version {
    pub(crate) bytes: u64,
    pub(crate) chunks: u64,
    /// Different chunks.
    pub(crate) distinct: u64,
    pub(crate) kinds: Kinds,
    /// CPU time of cutting and naming.
    pub(crate) stages: Stages,
    /// Bytes of all versions that are retained after it.
    pub(crate) retained: u64,
}

/// What one scheme did, by version.
pub(crate) struct Track {
    pub(crate) name: String,
    pub(crate) stored: Vec<u64>,
    /// CPU time of finding duplicates and of deciding.
    pub(crate) lookup: Vec<Duration>,
    /// Bytes of the tables of fingerprints.
    pub(crate) tables: Vec<usize>,
    pub(crate) arranged: Vec<Work>,
    pub(crate) collected: Vec<Work>,
    /// Restores of the newest version, after arranging.
    pub(crate) newest: Vec<Restored>,
    /// Restores of every retained version at the end, the oldest first.
    pub(crate) retained: Vec<(Number, Restored)>,
    /// Restores of the newest version at the end in the order of the stream, by memory ([`MEMORIES`]).
    pub(crate) by_memory: Vec<Restored>,
}

impl Track {
    /// The newest version at the end: the mean of a value over [`NEWEST`] versions.
    pub(crate) fn at_end(&self, value: impl Fn(usize, &Restored) -> f64) -> f64 {
        let from = self.newest.len().saturating_sub(NEWEST);
        let places = from..self.newest.len();
        places.clone().map(|place| value(place, &self.newest[place])).sum::<f64>() / places.len().max(1) as f64
    }

    fn new(name: String) -> Self {
        Self {
            name,
            stored: Vec::new(),
            lookup: Vec::new(),
            tables: Vec::new(),
            arranged: Vec::new(),
            collected: Vec::new(),
            newest: Vec::new(),
            retained: Vec::new(),
            by_memory: Vec::new(),
        }
    }
}

/// Everything that the figures show.
pub(crate) struct Results {
    pub(crate) set: Set,
    pub(crate) versions: Vec<Version>,
    pub(crate) tracks: Vec<Track>,
    /// MFDedup without any deletion: volumes by last version, and active categories by first version (bytes).
    pub(crate) volumes: Vec<(Number, u64)>,
    pub(crate) active: Vec<(Number, u64)>,
}

/// Places of the tracks that targets name.
pub(crate) const EXACT: usize = 0;
pub(crate) const HAR: usize = 1;
pub(crate) const HAR_CMA: usize = 2;
pub(crate) const CAPPING: usize = 3;
pub(crate) const CAPPING_CMA: usize = 4;
pub(crate) const MFDEDUP: usize = 5;
pub(crate) const LARDER_ZERO: usize = 6;
/// With the holes of the settings.
pub(crate) const LARDER: usize = 7;

/// What else Larder's model is tried with, in tracks behind the others: holes (of 1), MiB of a container, versions before a pass.
const SWEPT: [(f64, u64, Number); 16] = [
    (0.05, 4, 1),
    (0.1, 4, 1),
    (0.2, 4, 1),
    (0.4, 4, 1),
    (0.1, 8, 4),
    (0.1, 16, 1),
    (0.1, 16, 2),
    (0.1, 16, 4),
    (0.1, 16, 8),
    (0.2, 8, 4),
    (0.2, 8, 1),
    (0.2, 16, 1),
    (0.2, 16, 2),
    (0.2, 16, 4),
    (0.2, 16, 8),
    (0.1, 32, 4),
];
/// The rules of the settings with other bases.
const BASES: [Bases; 3] = [Bases::One, Bases::WhenLost(2), Bases::WhenLost(4)];
/// Versions over which the newest is averaged at the end: between passes more is read than right after one.
pub(crate) const NEWEST: usize = 8;
/// Memory of restores that is tried, in percent of the version.
pub(crate) const MEMORIES: [f64; 4] = [10.0, 25.0, 50.0, 100.0];

fn schemes(rules: Lifecycle) -> Vec<Box<dyn Scheme>> {
    let classic = |rule, collection| Box::new(Classic::new(rule, collection));
    let larder = |rules| Box::new(Larder::new(rules));
    let mut schemes: Vec<Box<dyn Scheme>> = vec![
        classic(Rule::Exact, Collection::Perfect),
        classic(Rule::Har, Collection::Perfect),
        classic(Rule::Har, Collection::Markers),
        classic(Rule::Capping, Collection::Perfect),
        classic(Rule::Capping, Collection::Markers),
        Box::new(MfDedup::default()),
        larder(Lifecycle { holes: 0.0, every: 1, ..rules }),
        larder(rules),
    ];
    for (holes, mib, every) in SWEPT {
        schemes.push(larder(Lifecycle { holes, container_bytes: mib << 20, every, ..rules }));
    }
    for bases in BASES {
        schemes.push(larder(Lifecycle { bases, ..rules }));
    }
    schemes
}

/// The bounds of the paper for its FastCDC, 2, 8 and 64 KiB at 8 KiB; for the others what suits them.
fn params(algorithm: Algorithm, average: u32) -> ChunkerParams {
    let params = ChunkerParams::with_average(algorithm, average);
    match algorithm {
        Algorithm::FastCdc => ChunkerParams { max: average.saturating_mul(8), ..params },
        Algorithm::MinCdc | Algorithm::MinCdcAes | Algorithm::Rabin | Algorithm::Fixed => params,
    }
}

pub(crate) fn run(settings: &Settings, set: Set) -> anyhow::Result<Results> {
    let front = Front::new(params(settings.chunker, settings.chunk_kib << 10))?;
    let mut data = set.versions(settings.scale, settings.seed, &settings.tars)?;
    let mut schemes = schemes(settings.rules());
    let mut tracks: Vec<Track> = schemes.iter().map(|scheme| Track::new(scheme.name())).collect();
    let (mut classifier, mut whole) = (Classifier::default(), MfDedup::default());
    let mut versions: Vec<Version> = Vec::new();
    let keep = settings.keep.max(1);
    while versions.len() < settings.versions {
        let number = versions.len() as Number + 1;
        let Some((pieces, stages)) = cut(&mut *data, &front)? else { break };
        let bytes = pieces.iter().map(|piece| u64::from(piece.size)).sum();
        let older = versions.iter().rev().take(keep - 1).map(|version| version.bytes).sum::<u64>();
        let deleted =
            (number as usize).checked_sub(keep).filter(|deleted| *deleted > 0).map(|deleted| deleted as Number);
        for (scheme, track) in schemes.iter_mut().zip(&mut tracks) {
            let mut lookup = Duration::ZERO;
            timed(&mut lookup, || scheme.back_up(number, &pieces));
            track.lookup.push(lookup);
            track.tables.push(scheme.table_bytes());
            track.collected.push(deleted.map(|deleted| scheme.delete(deleted)).unwrap_or_default());
            track.arranged.push(scheme.arrange());
            track.stored.push(scheme.stored());
            track.newest.push(scheme.restore(number, settings.memory(bytes)));
        }
        whole.back_up(number, &pieces);
        whole.arrange();
        let kinds = classifier.classify(number, &pieces);
        versions.push(Version {
            bytes,
            chunks: pieces.len() as u64,
            distinct: distinct(&pieces),
            kinds,
            stages,
            retained: bytes + older,
        });
    }
    for (scheme, track) in schemes.iter().zip(&mut tracks) {
        let retained = versions.iter().enumerate().skip(versions.len().saturating_sub(keep));
        let restored = retained.map(|(place, version)| {
            let number = place as Number + 1;
            (number, scheme.restore(number, settings.memory(version.bytes)))
        });
        track.retained = restored.collect();
        let newest = versions.last().map_or(0, |version| version.bytes);
        let by_memory = MEMORIES.map(|percent| scheme.restore(versions.len() as Number, percent_of(newest, percent)));
        track.by_memory = by_memory.into();
    }
    anyhow::ensure!(versions.len() > 1, "at least two versions are needed");
    Ok(Results { set, versions, tracks, volumes: whole.volumes(), active: whole.active() })
}

fn distinct(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.fingerprint).collect::<std::collections::HashSet<_>>().len() as u64
}

/// Cuts and names the next version.
fn cut(data: &mut dyn Versions, front: &Front) -> anyhow::Result<Option<(Vec<Piece>, Stages)>> {
    let (mut pieces, mut stages) = (Vec::new(), Stages::default());
    let is_there = data.next(&mut |file| front.stream(file, &mut stages, &mut pieces))?;
    Ok(is_there.then_some((pieces, stages)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let piece = |name: u8| Piece { fingerprint: Fingerprint([name; 32]), size: u32::from(name) };
        let mut classifier = Classifier::default();
        classifier.classify(1, &[piece(1), piece(2)]);
        classifier.classify(2, &[piece(2), piece(4)]);
        let kinds = classifier.classify(3, &[piece(4), piece(4), piece(1), piece(8), piece(8)]);
        assert_eq!(kinds, Kinds { internal: 12, adjacent: 4, skip: 1, unique: 8 });
    }
}

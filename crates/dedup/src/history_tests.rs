//! Cutting with any history gives the same cuts as cutting without, and finds the duplicates that
//! it can.

use std::convert::Infallible;
use std::sync::Arc;

use larder_chunking::{Algorithm, ChunkerParams, chunker};
use larder_format::ChunkRef;
use larder_format::ids::{ContainerId, ContainerKind, JobId};
use proptest::prelude::*;

use super::*;
use crate::{Group, NoteGroups, sample};

const KEY: [u8; 32] = [9; 32];

/// A base version in memory, in groups of a few records.
struct Base(Vec<Group>);

impl LoadGroup for Base {
    type Error = Infallible;

    fn groups(&self) -> u32 {
        self.0.len() as u32
    }

    fn load(&mut self, group: u32) -> Result<Group, Infallible> {
        Ok(self.0[group as usize].clone())
    }

    fn fill(&mut self, index: &mut dyn NoteGroups) -> Result<(), Infallible> {
        for (number, group) in self.0.iter().enumerate() {
            group.iter().for_each(|record| index.note(sample(&record.chunk.fingerprint), number as u32));
        }
        Ok(())
    }
}

fn make(algorithm: Algorithm) -> Box<dyn Chunker> {
    let params = match algorithm {
        Algorithm::Fixed => ChunkerParams { algorithm, min: 256, average: 256, max: 256 },
        _ => ChunkerParams::with_average(algorithm, 256),
    };
    chunker(params, &KEY).expect("valid parameters")
}

fn plain(chunker: &dyn Chunker, fingerprinter: &Fingerprinter, data: &[u8]) -> Vec<(u32, Fingerprint)> {
    let (mut lengths, mut names) = (Vec::new(), Vec::new());
    chunker.cut_all(data, StreamEnd::Reached, &mut lengths);
    fingerprinter.many(data, &lengths, &mut names);
    lengths.into_iter().zip(names).collect()
}

fn base_of(cuts: &[(u32, Fingerprint)], per_group: usize) -> Base {
    let mut offset = 0;
    let records = cuts.iter().map(|&(size, fingerprint)| {
        let container = ContainerId { kind: ContainerKind::Data, job: JobId([1; 16]), seq: 0 };
        let chunk = ChunkRef { fingerprint, container, offset, size };
        offset += size;
        ChunkRecord { chunk, born: container.job }
    });
    let records: Vec<_> = records.collect();
    Base(records.chunks(per_group).map(|group| Arc::new(group.to_vec())).collect())
}

/// Cuts `data` piecewise, as a reader would bring it.
fn with_history(algorithm: Algorithm, base: Base, data: &[u8], piece: usize) -> (Vec<Cut>, Skips) {
    let chunker = make(algorithm);
    let fingerprinter = Fingerprinter::new(&KEY);
    let tools = Tools { chunker: &*chunker, fingerprinter: &fingerprinter };
    let mut filter = GroupFilter::new(base, 1 << 22);
    let mut cutter = HistoryCutter::new();
    let (mut cuts, mut at, mut read) = (Vec::new(), 0, 0);
    while at < data.len() || read < data.len() {
        read = (read + piece).min(data.len());
        let end = if read == data.len() { StreamEnd::Reached } else { StreamEnd::Open };
        let Ok(consumed) = cutter.cut(tools, &mut filter, &data[at..read], end, usize::MAX, &mut cuts);
        at += consumed;
    }
    (cuts, cutter.skips())
}

/// Bytes with structure: random stretches, runs of one byte, and repetitions of earlier bytes.
fn stretches() -> impl Strategy<Value = Vec<u8>> {
    let stretch = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..3000),
        1 => (any::<u8>(), 0..3000_usize).prop_map(|(byte, count)| vec![byte; count]),
        1 => (any::<u8>(), 0..12_usize).prop_map(|(byte, count)| (0..200).map(|n| n as u8 ^ byte).collect::<Vec<u8>>().repeat(count)),
    ];
    proptest::collection::vec(stretch, 0..8).prop_map(|stretches| stretches.concat())
}

/// An edit: at this place, this number of bytes is replaced by these.
fn edit(data: &mut Vec<u8>, (place, removed, inserted): (proptest::sample::Index, usize, Vec<u8>)) {
    if data.is_empty() {
        data.extend(inserted);
        return;
    }
    let from = place.index(data.len());
    let to = (from + removed).min(data.len());
    data.splice(from..to, inserted);
}

proptest! {
    #[test]
    fn cuts_are_those_of_the_chunker_alone(
        base in stretches(),
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), 0..600_usize, proptest::collection::vec(any::<u8>(), 0..600)), 0..6),
        same_length in any::<bool>(),
        appended in proptest::collection::vec(any::<u8>(), 0..600),
        per_group in 1..40_usize,
        piece in 1..6000_usize,
    ) {
        let mut data = base.clone();
        for (place, removed, inserted) in edits {
            let removed = if same_length { inserted.len() } else { removed };
            edit(&mut data, (place, removed, inserted));
        }
        // The end of the base is no end of a chunk when more data follows.
        data.extend(appended);
        for algorithm in Algorithm::ALL {
            let chunker = make(algorithm);
            let fingerprinter = Fingerprinter::new(&KEY);
            let history = plain(&*chunker, &fingerprinter, &base);
            let expected = plain(&*chunker, &fingerprinter, &data);
            let (cuts, _) = with_history(algorithm, base_of(&history, per_group), &data, piece);
            let got: Vec<_> = cuts.iter().map(|cut| (cut.length, cut.fingerprint)).collect();
            prop_assert_eq!(got, expected, "{}", algorithm);
            for cut in &cuts {
                let is_known = history.contains(&(cut.length, cut.fingerprint));
                prop_assert_eq!(cut.known.map(|record| (record.chunk.size, record.chunk.fingerprint)),
                    is_known.then_some((cut.length, cut.fingerprint)), "{}", algorithm);
            }
        }
    }
}

/// Goal: history saves the scan. Method: a stream of random bytes, unchanged and then with one page
/// in fifty replaced in place.
#[test]
fn what_repeats_is_not_scanned() {
    let mut data = vec![0; 2 << 20];
    let mut state = 1_u64;
    for byte in &mut data {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
    for algorithm in [Algorithm::FastCdc, Algorithm::Rabin] {
        let cuts = plain(&*make(algorithm), &Fingerprinter::new(&KEY), &data);
        let (_, skips) = with_history(algorithm, base_of(&cuts, 100), &data, 100_000);
        assert_eq!((skips.hits, skips.misses, skips.scanned_bytes), (cuts.len() as u64, 0, 0), "{algorithm}");
        let mut changed = data.clone();
        for page in (0..changed.len()).step_by(50 * 4096) {
            changed[page + 1000..page + 1100].fill(7);
        }
        let (_, skips) = with_history(algorithm, base_of(&cuts, 100), &changed, 100_000);
        assert!(skips.scanned_bytes < data.len() as u64 / 10, "{algorithm}: {skips:?}");
        assert_eq!(skips.scanned_bytes + skips.skipped_bytes, data.len() as u64, "{algorithm}");
    }
}

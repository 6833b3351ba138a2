//! Cut points and fingerprints of fixed inputs never change: repositories already hold chunks cut and named like this.

use larder_chunking::{Algorithm, ChunkerParams, Fingerprinter, StreamEnd, chunker};
use std::fmt::Write;

const SEED: &[u8; 32] = b"golden seed of the chunking test";
const KEY: &[u8; 32] = b"golden key of the chunking tests";

/// Made by plain arithmetic, so that no library can change it: dense bytes, text-like bytes, runs, a repetition.
fn input() -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    };
    let mut bytes = Vec::new();
    bytes.extend((0..60_000).map(|_| next() as u8));
    bytes.extend((0..60_000).map(|_| b"etaoin shrdlu\n"[next() as usize % 14]));
    bytes.extend([0; 30_000]);
    bytes.extend([0xff; 5000]);
    bytes.extend((0..20_000).map(|i| (i % 251) as u8));
    bytes.extend((0..25_000).map(|_| next() as u8));
    bytes
}

/// One line per way of cutting: its name, its parameters, the cut points. Then the fingerprints of some chunks.
fn rendered() -> String {
    let data = input();
    let mut text = String::new();
    for algorithm in Algorithm::ALL {
        for average in [1024, 4096, 10_000] {
            let params = ChunkerParams::with_average(algorithm, average);
            let chunker = chunker(params, SEED).expect("parameters are valid");
            let mut lengths = Vec::new();
            chunker.cut_all(&data, StreamEnd::Reached, &mut lengths);
            write!(text, "{algorithm} {} {} {}:", params.min, params.average, params.max).expect("writes to memory");
            let mut at = 0;
            for length in lengths {
                at += length;
                write!(text, " {at}").expect("writes to memory");
            }
            text.push('\n');
        }
    }
    let lengths = [0, 1, 1024, 1025, 4096, 6000, 20_000];
    let mut names = Vec::new();
    Fingerprinter::new(KEY).many(&data, &lengths, &mut names);
    for (length, name) in lengths.iter().zip(names) {
        writeln!(text, "fingerprint {length}: {name}").expect("writes to memory");
    }
    text
}

#[test]
fn version_1_cuts_and_fingerprints_never_change() {
    let golden = include_str!("golden/cuts_v1.txt");
    for (got, expected) in rendered().lines().zip(golden.lines()) {
        assert_eq!(got, expected);
    }
    assert_eq!(rendered(), golden);
}

//! What an order of candidates does to deduplication when bytes move.
//!
//! Each set is cut, edited once in every 16 KiB, and cut again, with several keys. Shown is the
//! share of the edited set that lies in chunks of the first: its mean and its least over the keys,
//! and the least and the greatest mean length of chunks.

use crate::speed::random_bytes;
use larder_chunking::{Algorithm, ChunkerParams, DEFAULT_AVERAGE, Fingerprinter, StreamEnd, chunker};
use std::collections::HashSet;
use std::error::Error;
use std::ffi::OsString;
use std::fs;

/// Bytes of a set.
pub(crate) const SET: usize = 24_000_000;

/// Bytes between two edits.
const STRIDE: usize = 16 << 10;

const KEYS: u8 = 8;

const PAGE: usize = 8192;

pub(crate) fn measure(files: &[OsString]) -> Result<(), Box<dyn Error>> {
    println!("found again after one edit in {STRIDE} bytes: mean/least of {KEYS} keys [mean length: least-greatest]");
    println!("{:<30}{:>8}{:>30}{:>30}", "set", "MB", Algorithm::MinCdc, Algorithm::MinCdcAes);
    for file in files {
        let mut data = fs::read(file)?;
        data.truncate(SET);
        show(&file.to_string_lossy(), &data)?;
    }
    show("table of comma-separated values", &table())?;
    show("half-empty pages", &pages())
}

fn show(name: &str, data: &[u8]) -> Result<(), Box<dyn Error>> {
    let edited = edit(data);
    let mut line = format!("{:<30}{:>8.1}", name.rsplit('/').next().unwrap_or(name), data.len() as f64 / 1e6);
    for algorithm in [Algorithm::MinCdc, Algorithm::MinCdcAes] {
        let results = (0..KEYS).map(|key| found_again(algorithm, key, data, &edited)).collect::<Result<Vec<_>, _>>()?;
        let found = || results.iter().map(|result| result.0);
        let length = || results.iter().map(|result| result.1);
        let mean = found().sum::<f64>() / f64::from(KEYS);
        let least = found().fold(f64::INFINITY, f64::min);
        let (short, long) = (length().fold(f64::INFINITY, f64::min), length().fold(0.0, f64::max));
        line += &format!("{:>30}", format!("{mean:.1}/{least:.1} [{short:.0}-{long:.0}]"));
    }
    println!("{line}");
    Ok(())
}

/// Percent of the edited bytes that lie in chunks of the first, and the mean length of chunks.
fn found_again(algorithm: Algorithm, key: u8, data: &[u8], edited: &[u8]) -> Result<(f64, f64), Box<dyn Error>> {
    let seed = [key; 32];
    let cutter = chunker(ChunkerParams::with_average(algorithm, DEFAULT_AVERAGE), &seed)?;
    let fingerprinter = Fingerprinter::new(&seed);
    let cut = |data: &[u8]| {
        let (mut lengths, mut names) = (Vec::new(), Vec::new());
        cutter.cut_all(data, StreamEnd::Reached, &mut lengths);
        fingerprinter.many(data, &lengths, &mut names);
        (lengths, names)
    };
    let (lengths, names) = cut(data);
    let known: HashSet<_> = names.into_iter().collect();
    let (edited_lengths, edited_names) = cut(edited);
    let pairs = edited_lengths.iter().zip(edited_names);
    let found: u64 = pairs.filter(|(_, name)| known.contains(name)).map(|(&length, _)| u64::from(length)).sum();
    Ok((100.0 * found as f64 / edited.len() as f64, data.len() as f64 / lengths.len() as f64))
}

/// Numbers without order, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// In each stride, up to forty bytes are inserted, removed or replaced, in turn.
fn edit(data: &[u8]) -> Vec<u8> {
    let mut numbers = Numbers(1);
    let mut edited = Vec::with_capacity(data.len() + data.len() / 256);
    for (number, piece) in data.chunks(STRIDE).enumerate() {
        let count = 1 + numbers.below(40);
        let at = numbers.below(piece.len());
        let behind = (at + count).min(piece.len());
        let fresh: Vec<u8> = (0..count).map(|_| b'a' + numbers.below(26) as u8).collect();
        let (inserted, rest) = match number % 3 {
            0 => (&fresh[..], &piece[at..]),
            1 => (&[][..], &piece[behind..]),
            _ => (&fresh[..behind - at], &piece[behind..]),
        };
        edited.extend_from_slice(&piece[..at]);
        edited.extend_from_slice(inserted);
        edited.extend_from_slice(rest);
    }
    edited
}

/// Lines of few different words: the hardest for an order of short windows.
pub(crate) fn table() -> Vec<u8> {
    let mut numbers = Numbers(2);
    let mut bytes = Vec::with_capacity(SET);
    let mut row = 100_000;
    while bytes.len() < SET {
        row += 1;
        let state = ["open", "closed", "pending", "void"][numbers.below(4)];
        let (day, amount, zone) = (1 + numbers.below(28), numbers.below(500), numbers.below(4));
        bytes
            .extend_from_slice(format!("{row},2026-03-{day:02},{state},{amount}.00,EUR,zone-{zone},0,0,\n").as_bytes());
    }
    bytes.truncate(SET);
    bytes
}

/// Pages with a header, some bytes without structure, and zeros in the rest.
fn pages() -> Vec<u8> {
    let mut numbers = Numbers(3);
    let noise = random_bytes(SET);
    let mut bytes = vec![0; SET];
    for (number, page) in bytes.chunks_mut(PAGE).enumerate() {
        let used = (PAGE / 4 + numbers.below(PAGE / 2)).min(page.len());
        page[..used].copy_from_slice(&noise[number * PAGE..number * PAGE + used]);
        page[..used.min(4)].fill(13);
    }
    bytes
}

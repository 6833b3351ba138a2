//! How well an observer predicts cuts who knows contents and lengths of chunks, but not the key.
//!
//! From the first chunks of a set, the observer learns how often each window before a cut won among
//! its appearances. In the rest, the candidate with the best record is the guess. Shown is the
//! share of exact guesses. This is a simple observer: better ones exist.

use crate::orders::{SET, table};
use crate::speed::random_bytes;
use larder_chunking::{Algorithm, ChunkerParams, DEFAULT_AVERAGE, StreamEnd, chunker};
use std::collections::HashMap;
use std::error::Error;
use std::ffi::OsString;
use std::fs;

/// Chunks that the observer knows.
const KNOWN: usize = 3500;

pub(crate) fn measure(files: &[OsString]) -> Result<(), Box<dyn Error>> {
    println!("cuts predicted exactly after {KNOWN} known chunks; in percent");
    println!("{:<34}{:>12}{:>12}", "set", Algorithm::MinCdc, Algorithm::MinCdcAes);
    for file in files {
        let mut data = fs::read(file)?;
        data.truncate(SET);
        show(&file.to_string_lossy(), &data)?;
    }
    show("table of comma-separated values", &table())?;
    show("random bytes", &random_bytes(SET))
}

fn show(name: &str, data: &[u8]) -> Result<(), Box<dyn Error>> {
    let old = predicted::<4>(Algorithm::MinCdc, data)?;
    let new = predicted::<8>(Algorithm::MinCdcAes, data)?;
    println!("{:<34}{old:>12.1}{new:>12.1}", name.rsplit('/').next().unwrap_or(name));
    Ok(())
}

fn predicted<const WINDOW: usize>(algorithm: Algorithm, data: &[u8]) -> Result<f64, Box<dyn Error>> {
    let params = ChunkerParams::with_average(algorithm, DEFAULT_AVERAGE);
    let (min, max) = (params.min as usize, params.max as usize);
    let mut lengths = Vec::new();
    chunker(params, &[1; 32])?.cut_all(data, StreamEnd::Reached, &mut lengths);
    let starts = lengths.iter().scan(0, |at, &length| {
        *at += length as usize;
        Some((*at - length as usize, length as usize))
    });
    let chunks: Vec<_> = starts.filter(|(start, _)| start + max <= data.len()).collect();
    let (known, fresh) = chunks.split_at(KNOWN.min(chunks.len()));
    let window = |end: usize| -> [u8; WINDOW] { *data[..end].last_chunk().expect("min is above the window") };
    // Wins and appearances of the windows that won at least once.
    let mut records: HashMap<[u8; WINDOW], (u32, u32)> = HashMap::new();
    for &(start, length) in known {
        records.entry(window(start + length)).or_default().0 += 1;
    }
    for &(start, _) in known {
        for candidate in min..=max {
            if let Some(record) = records.get_mut(&window(start + candidate)) {
                record.1 += 1;
            }
        }
    }
    let score = |end: usize| records.get(&window(end)).map_or(0.0, |&(wins, seen)| f64::from(wins) / f64::from(seen));
    let guess = |start: usize| (min..=max).max_by(|&a, &b| score(start + a).total_cmp(&score(start + b)));
    let right = fresh.iter().filter(|&&(start, length)| guess(start) == Some(length)).count();
    Ok(100.0 * right as f64 / fresh.len() as f64)
}

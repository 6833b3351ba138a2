//! What the mean chunk size does to a repository that keeps several versions of one thing.
//!
//! For each way of cutting, all versions are cut and fingerprinted in order; chunks not seen before are packed back to
//! back into frames, as containers hold them, and compressed. A version is a file, or a folder whose files are cut one
//! by one.

use crate::KEY;
use larder_chunking::{Algorithm, ChunkerParams, Fingerprint, Fingerprinter, StreamEnd, chunker, page_size};
use std::collections::HashSet;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A chunk's record in a segment and in its container's table.
const METADATA_PER_CHUNK: usize = 72;

/// Bytes compressed together: `docs/decisions/0003-compression.md`.
const FRAME: usize = 512 << 10;

const WAYS: [(Algorithm, u32); 17] = [
    (Algorithm::MinCdcAes, 2 << 10),
    (Algorithm::MinCdcAes, 4 << 10),
    (Algorithm::MinCdcAes, 8 << 10),
    (Algorithm::MinCdc, 2 << 10),
    (Algorithm::MinCdc, 4 << 10),
    (Algorithm::MinCdc, 8 << 10),
    (Algorithm::MinCdc, 16 << 10),
    (Algorithm::MinCdc, 32 << 10),
    (Algorithm::MinCdc, 64 << 10),
    (Algorithm::MinCdc, 1 << 20),
    (Algorithm::FastCdc, 4 << 10),
    (Algorithm::FastCdc, 8 << 10),
    (Algorithm::FastCdc, 1 << 20),
    (Algorithm::Fixed, 4 << 10),
    (Algorithm::Fixed, 8 << 10),
    (Algorithm::Fixed, 16 << 10),
    (Algorithm::Fixed, 64 << 10),
];

pub(crate) fn measure(versions: &[OsString]) -> Result<(), Box<dyn Error>> {
    let versions: Vec<Vec<PathBuf>> = versions.iter().map(|path| files(Path::new(path))).collect::<io::Result<_>>()?;
    let mut total = 0;
    for file in versions.iter().flatten() {
        total += fs::metadata(file)?.len();
    }
    let page = versions.iter().flatten().next().map(fs::read).transpose()?;
    let page = page.and_then(|data| page_size(&data[..data.len().min(larder_chunking::pages::HEAD_BYTES)], None));
    println!("{} versions, {:.0} MB in all; page size seen in the first: {page:?}", versions.len(), mb(total as usize));
    println!("MB; meta: {METADATA_PER_CHUNK} bytes for each unique chunk; packed: zstd level 1 of the unique bytes");
    println!("{:<16}{:>9}{:>9}{:>8}{:>9}{:>9}  cut+hash GB/s", "cut", "chunks", "unique", "meta", "packed", "stored");
    for (algorithm, average) in WAYS {
        let result = store(&versions, ChunkerParams::with_average(algorithm, average))?;
        let meta = result.chunks * METADATA_PER_CHUNK;
        println!(
            "{:<16}{:>9}{:>9.1}{:>8.1}{:>9.1}{:>9.1}  {:.2}",
            format!("{algorithm} {}K", average >> 10),
            result.chunks,
            mb(result.unique),
            mb(meta),
            mb(result.packed),
            mb(result.packed + meta),
            total as f64 / 1e9 / result.time.as_secs_f64(),
        );
    }
    Ok(())
}

fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let kind = fs::symlink_metadata(path)?;
    if !kind.is_dir() {
        return Ok(if kind.is_file() { vec![path.to_owned()] } else { Vec::new() });
    }
    let mut entries: Vec<_> = fs::read_dir(path)?.map(|entry| entry.map(|e| e.path())).collect::<io::Result<_>>()?;
    entries.sort();
    entries.iter().map(|entry| files(entry)).collect::<io::Result<Vec<_>>>().map(|lists| lists.concat())
}

/// What would lie in the repository.
#[derive(Default)]
struct Stored {
    chunks: usize,
    unique: usize,
    packed: usize,
    time: Duration,
}

fn store(versions: &[Vec<PathBuf>], params: ChunkerParams) -> Result<Stored, Box<dyn Error>> {
    let cutter = chunker(params, &KEY)?;
    let fingerprinter = Fingerprinter::new(&KEY);
    let mut known: HashSet<Fingerprint> = HashSet::new();
    let mut result = Stored::default();
    let mut pack = Vec::new();
    for file in versions.iter().flatten() {
        let data = fs::read(file)?;
        let start = Instant::now();
        let (mut lengths, mut names) = (Vec::new(), Vec::new());
        cutter.cut_all(&data, StreamEnd::Reached, &mut lengths);
        fingerprinter.many(&data, &lengths, &mut names);
        result.time += start.elapsed();
        let mut rest = data.as_slice();
        for (&length, name) in lengths.iter().zip(names) {
            let (chunk, behind) = rest.split_at(length as usize);
            rest = behind;
            if known.insert(name) {
                result.chunks += 1;
                result.unique += chunk.len();
                pack.extend_from_slice(chunk);
            }
        }
        let whole = pack.len() - pack.len() % FRAME;
        result.packed += compress(&pack[..whole])?;
        pack.drain(..whole);
    }
    result.packed += compress(&pack)?;
    Ok(result)
}

fn compress(bytes: &[u8]) -> io::Result<usize> {
    let mut compressor = zstd::bulk::Compressor::new(1)?;
    bytes.chunks(FRAME).map(|part| Ok(compressor.compress(part)?.len().min(part.len()))).sum()
}

fn mb(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

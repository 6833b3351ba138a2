//! Speed of every chunker and of fingerprinting.
//!
//! The data is worked through in batches of 8 MiB, as the backup pipeline holds them. Each batch is worked on several
//! times in a row, because in the pipeline it has just been read and lies in the cache; the time of the whole is the sum
//! of each batch's best time. The line "from memory" goes round all batches instead, so that each is out of the cache.

use crate::KEY;
use larder_chunking::{
    Algorithm, Chunker, ChunkerParams, DEFAULT_AVERAGE, Fingerprinter, StreamEnd, chunker, chunkers_by_kernel,
};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

const AVERAGES: [u32; 5] = [4 << 10, 8 << 10, 16 << 10, 64 << 10, 1 << 20];

const BATCH: usize = 8 << 20;

const RUNS: usize = 12;

pub(crate) fn random_bytes(count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    blake3::Hasher::new_keyed(&KEY).finalize_xof().fill(&mut bytes);
    bytes
}

pub(crate) fn measure(data: &[u8]) -> Result<(), Box<dyn Error>> {
    let header: String = AVERAGES.iter().map(|average| format!("{:>16}", format!("{}K", average >> 10))).collect();
    println!("{:30}{header}", "cutting, GB/s [mean]");
    let lines = [
        ("mincdc-aes", Algorithm::MinCdcAes, Cache::Warm),
        ("mincdc-aes, from memory", Algorithm::MinCdcAes, Cache::Cold),
        ("mincdc", Algorithm::MinCdc, Cache::Warm),
        ("mincdc, from memory", Algorithm::MinCdc, Cache::Cold),
        ("fastcdc", Algorithm::FastCdc, Cache::Warm),
        ("rabin", Algorithm::Rabin, Cache::Warm),
    ];
    let batches: Vec<_> = data.chunks(BATCH).collect();
    for (name, algorithm, cache) in lines {
        let mut line = format!("{name:30}");
        for average in AVERAGES {
            let cutter = chunker(ChunkerParams::with_average(algorithm, average), &KEY)?;
            let rate = rate(cache, &batches, |batch| batch.len(), |batch| drop(black_box(cut(&*cutter, batch))));
            let count: usize = batches.iter().map(|batch| cut(&*cutter, batch).len()).sum();
            let mean = data.len() as f64 / count as f64 / 1024.0;
            line += &format!("{:>16}", format!("{rate:.2} [{mean:.1}K]"));
        }
        println!("{line}");
    }
    kernels(&batches)?;
    println!("{:30}{header}", "fingerprints, GB/s");
    let fingerprinter = Fingerprinter::new(&KEY);
    for algorithm in [Algorithm::Fixed, Algorithm::DEFAULT, Algorithm::FastCdc] {
        let mut lines = [format!("{:30}", format!("{algorithm} cuts, one by one")), format!("{:30}", "  many at once")];
        for average in AVERAGES {
            let cutter = chunker(ChunkerParams::with_average(algorithm, average), &KEY)?;
            let batches: Vec<_> = data.chunks(BATCH).map(|batch| (batch, cut(&*cutter, batch))).collect();
            let single = rate(
                Cache::Warm,
                &batches,
                |(batch, _)| batch.len(),
                |(batch, lengths)| one_by_one(&fingerprinter, batch, lengths),
            );
            let mut names = Vec::new();
            let many = rate(
                Cache::Warm,
                &batches,
                |(batch, _)| batch.len(),
                |(batch, lengths)| {
                    names.clear();
                    fingerprinter.many(batch, lengths, &mut names);
                    black_box(&names);
                },
            );
            lines[0] += &format!("{single:>16.2}");
            lines[1] += &format!("{many:>16.2}");
        }
        println!("{}\n{}", lines[0], lines[1]);
    }
    let start = Instant::now();
    larder_chunking::self_test()?;
    println!("self-test: {:?}", start.elapsed());
    Ok(())
}

/// Every kernel of MinCDC in both orders, at the default mean.
fn kernels(batches: &[&[u8]]) -> Result<(), Box<dyn Error>> {
    println!("{:30}{:>16}{:>16}", "cutting by kernel, GB/s", "in cache", "from memory");
    for (name, cutter) in chunkers_by_kernel(DEFAULT_AVERAGE, &KEY)? {
        // The reference of one order takes seconds for all.
        let batches = if name.ends_with("Tables") { &batches[..1] } else { batches };
        let rate = |cache| rate(cache, batches, |batch| batch.len(), |batch| drop(black_box(cut(&*cutter, batch))));
        println!("{name:30}{:>16.2}{:>16.2}", rate(Cache::Warm), rate(Cache::Cold));
    }
    Ok(())
}

fn cut(cutter: &dyn Chunker, data: &[u8]) -> Vec<u32> {
    let mut lengths = Vec::new();
    cutter.cut_all(data, StreamEnd::Reached, &mut lengths);
    lengths
}

fn one_by_one(fingerprinter: &Fingerprinter, data: &[u8], lengths: &[u32]) {
    let mut rest = data;
    for &length in lengths {
        let (chunk, behind) = rest.split_at(length as usize);
        black_box(fingerprinter.one(chunk));
        rest = behind;
    }
}

/// Whether a batch still lies in the cache when it is worked on.
#[derive(Clone, Copy)]
enum Cache {
    Warm,
    Cold,
}

/// GB/s over all batches, each at its best.
fn rate<T>(cache: Cache, batches: &[T], bytes: impl Fn(&T) -> usize, mut work: impl FnMut(&T)) -> f64 {
    let mut best = vec![f64::INFINITY; batches.len()];
    let (rounds, repeats) = match cache {
        Cache::Warm => (1, RUNS),
        Cache::Cold => (RUNS, 1),
    };
    for _ in 0..rounds {
        for (batch, best) in batches.iter().zip(&mut best) {
            for _ in 0..repeats {
                let start = Instant::now();
                work(black_box(batch));
                *best = best.min(start.elapsed().as_secs_f64());
            }
        }
    }
    batches.iter().map(bytes).sum::<usize>() as f64 / 1e9 / best.iter().sum::<f64>()
}

//! Measures cutting, fingerprinting, and what chunk sizes do to deduplication.
//!
//! ```text
//! measure                     speed on synthetic data
//! measure FILE                speed on a file
//! measure FILE FILE...        deduplication among versions of one thing, by mean chunk size
//! measure orders FILE...      what both orders of MinCDC find again of each file after edits
//! measure learn FILE...       how well an observer without the key predicts cuts of each file
//! ```
//!
//! Speeds are the best of several runs of one thread in GB/s (10^9 bytes): whatever else runs on the machine can only
//! slow a run down.

#![expect(clippy::print_stdout, reason = "a measuring program prints its figures")]

mod dedup;
mod learn;
mod orders;
mod speed;

use std::error::Error;
use std::fs;

const KEY: [u8; 32] = *b"a fixed key, so that runs repeat";

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    match files.as_slice() {
        [] => {
            println!("synthetic data (random bytes, 64 MiB)");
            speed::measure(&speed::random_bytes(64 << 20))
        }
        [mode, files @ ..] if mode == "learn" => learn::measure(files),
        [mode, files @ ..] if mode == "orders" => orders::measure(files),
        [file] => {
            println!("{}", file.display());
            speed::measure(&fs::read(file)?)
        }
        versions => dedup::measure(versions),
    }
}

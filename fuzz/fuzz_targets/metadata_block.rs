//! Metadata blocks: entries of a version.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::metadata_block(bytes));

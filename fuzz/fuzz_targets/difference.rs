//! Differences: changes of a segment.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::difference(bytes));

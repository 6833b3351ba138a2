//! Key files of machines.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| checks::machine_key(text));

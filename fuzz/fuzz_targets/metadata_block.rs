//! Metadata blocks: entries of a version.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_fuzz_targets::run(env!("CARGO_BIN_NAME"), bytes));

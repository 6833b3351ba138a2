//! The end of a domain: as it lies in the store, and sealed from fuzzed fields.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_fuzz_targets::run(env!("CARGO_BIN_NAME"), bytes));

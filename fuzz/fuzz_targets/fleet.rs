//! What tasks of a fleet batch leave for one another: as it lies in the store, sealed from fuzzed fields, and records.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_fuzz_targets::run(env!("CARGO_BIN_NAME"), bytes));

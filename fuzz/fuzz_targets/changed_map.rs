//! Maps of changes in files: text, JSON, and XML of `thin_delta`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_fuzz_targets::run(env!("CARGO_BIN_NAME"), bytes));

//! What lies in a frame once it is opened: bytes for the decompressor, and a size it must have.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_fuzz_targets::run(env!("CARGO_BIN_NAME"), bytes));

//! Segments: runs of chunk records.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_fuzz_targets::objects::segment(bytes));

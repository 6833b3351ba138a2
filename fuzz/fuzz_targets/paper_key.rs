//! Paper keys, as somebody types them.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| checks::paper_key(text));

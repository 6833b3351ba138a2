//! Ciphertexts and public halves of X-Wing, and containers with such a wrap.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::wrap(bytes));

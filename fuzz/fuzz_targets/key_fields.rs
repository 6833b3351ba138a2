//! Key objects, as far as they are read without a password.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::key_fields(bytes));

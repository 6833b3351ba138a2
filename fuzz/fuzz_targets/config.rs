//! The configuration: as it lies in the store, and with a signature that fits.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    checks::config(bytes);
    checks::config_fields(bytes);
});

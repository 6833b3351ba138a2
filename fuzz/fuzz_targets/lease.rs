//! Leases: as they lie in the store, and sealed from fuzzed fields.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    checks::lease(bytes);
    checks::lease_fields(bytes);
});

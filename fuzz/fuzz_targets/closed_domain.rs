//! The end of a domain: as it lies in the store, and sealed from fuzzed fields.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    checks::closed_domain(bytes);
    checks::closed_domain_fields(bytes);
});

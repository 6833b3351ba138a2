//! What tasks of a fleet batch leave for one another: as it lies in the store, sealed from fuzzed fields, and records.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    checks::fleet(bytes);
    checks::fleet_fields(bytes);
    checks::fleet_records(bytes);
});

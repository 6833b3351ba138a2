//! Marks of forgotten versions and closing marks: as they lie in the store, and sealed from fuzzed fields.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    checks::mark(bytes);
    checks::mark_fields(bytes);
});

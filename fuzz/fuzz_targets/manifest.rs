//! Version manifests: as they lie in the store, and sealed from fuzzed parts.

#![no_main]

use larder_fuzz::{checks, split};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    checks::manifest(bytes);
    let (summary, body) = split(bytes);
    checks::manifest_parts(summary, body);
});

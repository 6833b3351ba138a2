//! Manifests of the index: as they lie in the store, and sealed from fuzzed parts.

#![no_main]

use larder_fuzz::{checks, split};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    checks::index_manifest(bytes);
    let (head, body) = split(bytes);
    checks::index_manifest_parts(head, body);
});

//! Manifests of a volume store, before they are sealed.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::volume_manifest(bytes));

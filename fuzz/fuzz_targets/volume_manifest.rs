//! Manifests of a volume store, before they are sealed.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_fuzz_targets::objects::volume_manifest(bytes));

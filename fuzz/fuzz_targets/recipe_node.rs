//! Recipe nodes: lists of segments.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_fuzz_targets::objects::recipe_node(bytes));

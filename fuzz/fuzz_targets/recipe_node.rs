//! Recipe nodes: lists of segments.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::recipe_node(bytes));

//! Names of objects, as a store lists them.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|name: &str| checks::object_name(name));

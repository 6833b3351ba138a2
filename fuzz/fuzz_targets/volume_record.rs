//! Records of a volume store's log, before they are sealed, and the anchor of the log.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::volume_record(bytes));

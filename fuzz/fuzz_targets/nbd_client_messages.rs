//! Messages of an NBD client, as the server decodes them.

#![no_main]

use larder_fuzz::nbd_checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nbd_checks::client_messages(bytes));

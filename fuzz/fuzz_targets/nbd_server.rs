//! A whole NBD session: the input is everything that the client sends.

#![no_main]

use larder_fuzz::nbd_sessions;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nbd_sessions::server(bytes));

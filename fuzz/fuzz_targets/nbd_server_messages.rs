//! Messages of an NBD server, as the client decodes them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_fuzz_targets::nbd::server_messages(bytes));

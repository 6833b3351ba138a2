//! What lies in a frame once it is opened: bytes for the decompressor, and a size it must have.

#![no_main]

use larder_fuzz::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((len, stored)) = bytes.split_first_chunk::<2>() {
        checks::compressed_frame(stored, usize::from(u16::from_le_bytes(*len)));
    }
});

//! Everything that a QEMU says when it is asked for a disk (QMP).

#![no_main]

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use larder_source::image::qemu::size_of_disk;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (ours, mut theirs) = UnixStream::pair().expect("sockets");
    // It fits the buffer of the socket, as the questions do.
    theirs.write_all(bytes).expect("sent");
    theirs.shutdown(Shutdown::Write).expect("closed");
    drop(size_of_disk(ours, "QEMU", "disk"));
});

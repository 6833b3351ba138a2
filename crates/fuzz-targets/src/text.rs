//! Text that people and other programs write.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use larder_profile::document;
use larder_source::image::qemu::size_of_disk;
use larder_source::image::read_map_from;

use crate::support::checks;

/// The part of the input before the first byte that is no text.
fn text_of(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

/// Maps of changes in files: text, JSON, and XML of `thin_delta`.
pub fn changed_map(bytes: &[u8]) {
    let read = |mut bytes: &[u8]| read_map_from(Path::new("map"), &mut bytes);
    let Ok(map) = read(bytes) else { return };
    assert!(map.ranges.iter().all(|range| range.start < range.end));
    assert!(map.ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
    // Whatever the form was, the ranges are the same as text.
    let text: String =
        map.ranges.iter().map(|range| format!("{} {}\n", range.start, range.end - range.start)).collect();
    let again = read(format!("#\n{text}").as_bytes()).expect("it was read");
    assert_eq!(again.ranges, map.ranges);
}

/// Key files of machines.
pub fn machine_key(bytes: &[u8]) {
    checks::machine_key(text_of(bytes));
}

/// Names of objects, as a store lists them.
pub fn object_name(bytes: &[u8]) {
    checks::object_name(text_of(bytes));
}

/// Paper keys, as somebody types them.
pub fn paper_key(bytes: &[u8]) {
    checks::paper_key(text_of(bytes));
}

/// Everything that a QEMU says when it is asked for a disk (QMP).
pub fn qmp_lines(bytes: &[u8]) {
    let (ours, mut theirs) = UnixStream::pair().expect("sockets");
    // It fits the buffer of the socket, as the questions do.
    theirs.write_all(&bytes[..bytes.len().min(64 << 10)]).expect("sent");
    theirs.shutdown(Shutdown::Write).expect("closed");
    drop(size_of_disk(ours, "QEMU", "disk"));
}

/// Text of inventories and configuration files, as a document with places.
pub fn toml_document(bytes: &[u8]) {
    let text = text_of(bytes);
    let file: Arc<Path> = Arc::from(Path::new("inventory.toml"));
    match document::parse(&file, text) {
        Ok(table) => drop(format!("{table:?}")),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

//! Containers: as they lie in the store, and sealed from fuzzed trailer fields, tables and frames.

#![no_main]

use larder_fuzz::{ContainerParts, checks, split};
use libfuzzer_sys::fuzz_target;

fn parts(input: &[u8]) -> Option<ContainerParts> {
    let (fields, rest) = input.split_first_chunk::<7>()?;
    let (chunk_table, rest) = split(rest);
    let (frame_table, rest) = split(rest);
    let (padding, mut rest) = split(rest);
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (frame, behind) = split(rest);
        frames.push(frame.to_vec());
        // A single byte is a part of its own, and the last.
        rest = if behind.len() < rest.len() { behind } else { &[] };
    }
    Some(ContainerParts {
        frames,
        chunk_table: chunk_table.to_vec(),
        frame_table: frame_table.to_vec(),
        padding: padding.to_vec(),
        chunk_count: u32::from(fields[0]),
        frame_count: u32::from(fields[1]),
        payload_len: u32::from_le_bytes([fields[2], fields[3], fields[4], 0]),
        // Now and then a length that is not the part's.
        lens: [
            (fields[5] & 0x0f == 1).then_some(u32::MAX),
            (fields[5] >> 4 == 1).then_some(1 << 20),
            (fields[6] & 0x0f == 1).then_some(u32::from(fields[6] >> 4)),
        ],
        wrap: None,
    })
}

fuzz_target!(|bytes: &[u8]| {
    checks::container(bytes);
    if let Some(parts) = parts(bytes) {
        checks::container_parts(&parts);
    }
});

//! Structures of several parts, which are cut from the input.

use larder_format::roles::Roles;

use crate::support::{ContainerParts, RunParts, checks};

/// Cuts a part from the input: its first two bytes are the length. Gives the part and the rest.
fn split(input: &[u8]) -> (&[u8], &[u8]) {
    let Some((len, rest)) = input.split_first_chunk::<2>() else { return (input, &[]) };
    rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*len))))
}

fn container_parts(input: &[u8]) -> Option<ContainerParts> {
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

fn run_parts(input: &[u8]) -> Option<RunParts> {
    let (head, rest) = input.split_first_chunk::<24>()?;
    let (lies, rest) = rest.split_first()?;
    let (filter, rest) = split(rest);
    let (fences, mut rest) = split(rest);
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let (block, behind) = split(rest);
        blocks.push(block.to_vec());
        // A single byte is a part of its own, and the last.
        rest = if behind.len() < rest.len() { behind } else { &[] };
    }
    Some(RunParts {
        blocks,
        filter: filter.to_vec(),
        fences: fences.to_vec(),
        head: *head,
        // Now and then a length that is not the part's.
        lens: [(lies & 0x0f == 1).then_some(u32::MAX), (lies >> 4 == 1).then_some(1 << 20)],
    })
}

/// What lies in a frame once it is opened: bytes for the decompressor, and a size it must have.
pub fn compressed_frame(bytes: &[u8]) {
    if let Some((len, stored)) = bytes.split_first_chunk::<2>() {
        checks::compressed_frame(stored, usize::from(u16::from_le_bytes(*len)));
    }
}

/// Containers: as they lie in the store, and sealed from fuzzed trailer fields, tables and frames.
pub fn container(bytes: &[u8]) {
    checks::container(bytes);
    if let Some(parts) = container_parts(bytes) {
        checks::container_parts(&parts);
    }
}

/// Manifests of the index: as they lie in the store, and sealed from fuzzed parts.
pub fn index_manifest(bytes: &[u8]) {
    checks::index_manifest(bytes);
    let (head, body) = split(bytes);
    checks::index_manifest_parts(head, body);
}

/// Objects of runs of the index: as they lie in the store, and sealed from fuzzed blocks, filter, fences and trailer fields.
pub fn index_run(bytes: &[u8]) {
    checks::run(bytes);
    if let Some(parts) = run_parts(bytes) {
        checks::run_parts(&parts);
    }
}

/// Payloads of key objects, of a role that the first byte chooses.
pub fn key_payload(bytes: &[u8]) {
    let Some((which, payload)) = bytes.split_first() else { return };
    let roles = [Roles::ALL, Roles::BACKUP, Roles::RESTORE, Roles::OPERATE];
    checks::key_payload(roles[usize::from(*which) % roles.len()], payload);
}

/// Version manifests: as they lie in the store, and sealed from fuzzed parts.
pub fn manifest(bytes: &[u8]) {
    checks::manifest(bytes);
    let (summary, body) = split(bytes);
    checks::manifest_parts(summary, body);
}
